"""How a classifier learnt, how far its probabilities can be trusted, and how it compares."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from meanfield import _checks
from meanfield.attention.metrics import wilson
from meanfield.plots.style import BLUE, COLOURS, GREY, SMALL, dress

__all__ = ["bars", "learning_curve", "reliability"]


def learning_curve(records: Sequence[Mapping[str, float]], ax: Axes) -> None:
    """Every key that ends in "loss" (left axis) or "accuracy" (right axis, dashed) against "epoch", or the index."""
    if not records:
        raise ValueError("records must hold one epoch or more, got none")
    keys = list(dict.fromkeys(key for record in records for key in record))
    losses, accuracies = ([k for k in keys if k.endswith(end)] for end in ("loss", "accuracy"))
    if not losses and not accuracies:
        raise ValueError(f"records must have keys that end in loss or accuracy, got {', '.join(keys)}")
    epoch = [record.get("epoch", i + 1) for i, record in enumerate(records)]
    right = ax.twinx() if losses and accuracies else ax
    colour = iter(COLOURS * (1 + len(keys) // len(COLOURS)))
    lines: list[Any] = []
    for axis, group, style in ((ax, losses, "o-"), (right, accuracies, "s--")):
        dress(axis, grid=axis is ax, spine="right" if axis is not ax else None)
        for key in group:
            lines += axis.plot(epoch, [record.get(key, math.nan) for record in records], style, markersize=3.5,
                               color=next(colour), label=key.replace("_", " "))
    if losses:
        ax.set_ylabel("loss (nats)")
    if accuracies:
        right.set_ylabel("accuracy (share)")
    ax.set_xlabel("epoch")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    # below the Axes: curves cross everywhere inside
    ax.legend(handles=lines, fontsize=SMALL, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18),
              ncols=min(2, len(lines)))


def reliability(labels: Any, probability: Any, ax: Axes, bins: int = 15) -> None:
    """Frequency of class 1 against its probability in equal bins, with 95 % Wilson bars and the counts below."""
    y, p = np.asarray(labels), _checks.finite_array("probability", probability, ndim=1)
    bins = _checks.count("bins", bins)
    if y.shape != p.shape or not p.size or not np.isin(y, (0, 1)).all() or p.min() < 0 or p.max() > 1:
        raise ValueError("labels must be 0 or 1 and probability (of class 1) in [0, 1], one for each label, "
                         f"got shapes {y.shape} and {p.shape}")
    which = np.searchsorted(np.arange(1, bins) / bins, p, side="left")  # the bins of metrics.ece_positive
    counts = np.bincount(which, minlength=bins)
    filled = np.flatnonzero(counts)
    hits = np.bincount(which, y, bins)[filled].astype(int)
    share, centre = hits / counts[filled], np.bincount(which, p, bins)[filled] / counts[filled]
    interval = np.array([wilson(int(k), int(n)) for k, n in zip(hits, counts[filled], strict=True)])
    below = ax.twinx()
    dress(below, grid=False, spine="right")
    dress(ax)
    below.bar((np.arange(bins) + 0.5) / bins, counts, width=0.9 / bins, color="#d9d9d9")
    below.set(ylim=(0, 3.5 * counts.max()), yticks=(0, counts.max()), ylabel="count (bars)")
    ax.set_zorder(below.get_zorder() + 1)
    ax.patch.set_visible(False)
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="calibrated")
    ax.errorbar(centre, share, yerr=np.abs(interval.T - share), fmt="o", markersize=4, capsize=2, color=BLUE,
                label="observed (95 %)")
    ax.set(xlim=(0, 1), ylim=(-0.02, 1.02), xlabel="probability of class 1", ylabel="frequency of class 1")
    ax.legend(fontsize=SMALL, frameon=False, loc="upper left")


def bars(names: Sequence[str], values: Any, low: Any, high: Any, ax: Axes, baseline: float | None = None) -> None:
    """Values with their intervals, side by side; ``baseline`` is a dashed line.

    Marks and not filled bars: accuracies differ in the second digit, which bars from 0 hide and bars from 0.5 inflate.
    """
    v, a, b = (_checks.finite_array(name, x, ndim=1) for name, x in (("values", values), ("low", low), ("high", high)))
    if not len(names) == v.size == a.size == b.size:
        raise ValueError(f"names, values, low and high must be equally many, got {len(names)}, {v.size}, {a.size}, "
                         f"{b.size}")
    dress(ax)
    ax.grid(False, axis="x")
    at = np.arange(v.size)
    if baseline is not None:
        ax.axhline(baseline, color=GREY, linestyle="--", linewidth=1)
    # an interval need not hold its value to the last bit
    ax.errorbar(at, v, yerr=(np.maximum(v - a, 0), np.maximum(b - v, 0)), fmt="o", markersize=5, capsize=4, color=BLUE)
    for i in at:
        ax.annotate(f"{v[i]:.3f}", (i, v[i]), xytext=(5, 0), textcoords="offset points", va="center", fontsize=SMALL,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})  # the baseline stops before the digits
    inches = ax.get_position().width * ax.get_figure(root=True).get_figwidth() / max(v.size, 1)  # type: ignore[union-attr]
    width = max(int(inches * 72 / (0.58 * SMALL)), 6)  # letters that fit under one mark
    ax.set_xticks(at, ["\n".join(textwrap.wrap(name, width, break_long_words=False)) or name for name in names])
    ax.set_xlim(-0.5, v.size - 0.3)
    ax.margins(y=0.15)
