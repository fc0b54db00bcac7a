"""The one style of all figures, set on Axes that exist; and saving them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["BLACK", "BLUE", "COLOURS", "GREY", "SKY", "SMALL", "TEXT", "VERMILION", "dress", "label_y", "legend", "save"]

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#6b6b6b"
TEXT, SMALL = 9.0, 8.0  # points, at print size
_DPI = 200
# text in an SVG stays text (it can be searched and edited); a fixed salt makes its element names reproducible
_RC: Any = {"svg.fonttype": "none", "svg.hashsalt": "meanfield"}


def dress(ax: Axes, *, grid: bool = True, spine: str | None = None) -> None:
    """The style, set on the Axes themselves: those of a caller were made before any context of ours."""
    figure = ax.get_figure(root=True)
    if figure is not None and figure.get_layout_engine() is None:
        figure.set_layout_engine("constrained", wspace=0.05)  # before a colour bar takes its place
    if not ax.lines and not ax.collections:  # a second series goes on in the cycle of the first
        ax.set_prop_cycle(cycler(color=COLOURS))
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(side == (spine or "left"))
    for edge in ax.spines.values():
        edge.set_linewidth(0.7)
    ax.tick_params(which="both", labelsize=SMALL, width=0.7)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(True, color="#e3e3e3", linewidth=0.6)
    else:
        ax.grid(False)
    ax.xaxis.label.set_fontsize(TEXT)
    ax.yaxis.label.set_fontsize(TEXT)


def label_y(ax: Axes, text: str) -> None:
    """Once for Axes that share it: on the first column."""
    place = ax.get_subplotspec()
    shared = len(ax.get_shared_y_axes().get_siblings(ax)) > 1
    if not shared or place is None or place.is_first_col():
        ax.set_ylabel(text)


def legend(ax: Axes, title: str | None = None, loc: Any = "best") -> None:
    # no frame, but a ground: where a band fills the Axes the words stay readable
    ax.legend(fontsize=SMALL, framealpha=0.85, edgecolor="none", facecolor="white", title=title, loc=loc,
              title_fontsize=SMALL, alignment="left")


def save(figure: Figure, folder: Path, stem: str, command: str) -> None:
    """Write ``folder/stem.png`` (200 dpi) and ``stem.svg``; title and making command are in the metadata, no date is."""
    for ax in figure.axes:
        ax.title.set_fontsize(TEXT)
        for label in (ax.xaxis.label, ax.yaxis.label):
            label.set_fontsize(TEXT)
    described = {"Title": stem, "Description": f"made by: {command}"}
    with mpl.rc_context(_RC):
        figure.savefig(Path(folder) / f"{stem}.png", dpi=_DPI, metadata={**described, "Software": "meanfield"})
        figure.savefig(Path(folder) / f"{stem}.svg", dpi=_DPI, metadata={**described, "Creator": "meanfield", "Date": None})
