"""Densities as pictures: lines over time, images in the plane, movies."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from tqdm import tqdm

from meanfield import _checks
from meanfield._checks import Array
from meanfield.plots.dynamics import at_time, cell_edges
from meanfield.plots.style import SMALL, TEXT, VERMILION, dress, label_y, legend

__all__ = ["density_image", "density_lines", "movie"]

_POINTS = 2000  # particles drawn over an image; more would hide it


def density_lines(flow: xr.Dataset, times: Sequence[float], ax: Axes, *, rest: xr.Dataset | None = None) -> None:
    """rho_t over x (or over the radius r) at several times, light to dark; ``rest`` (of ``gibbs``) as a dashed line."""
    dress(ax)
    name = "r" if "r" in flow.dims else "x"
    shades = mpl.colormaps["Blues"](np.linspace(0.35, 1.0, len(times)))
    for time, shade in zip(times, shades, strict=True):
        ax.plot(flow[name], at_time(flow, time)["density"], color=shade, label=f"t = {time:g}")
    if rest is not None:
        ax.plot(rest[name], rest["density"], color=VERMILION, linestyle="--", linewidth=1, label="at rest")
    edges = cell_edges(flow[name].values)
    ax.set(xlabel="radius r (length)" if name == "r" else "position x (length)", xlim=(edges[0], edges[-1]))
    ax.set_ylim(bottom=0)
    label_y(ax, "density (1 / length)" if name == "x" else "density (1 / volume)")
    legend(ax)


def density_image(flow: xr.Dataset, ax: Axes, *, time: float | None = None, run: xr.Dataset | None = None,
                  largest: float | None = None, bar: bool = True) -> QuadMesh:
    """The density over (x, y) at a time, with its colour bar; ``run`` adds up to 2,000 of its particles.

    Cells outside of the domain are left white. ``largest`` is the top of the colours (default: the largest density at
    that time). Returns the image.
    """
    entry = flow if time is None else at_time(flow, time)
    if set(entry["density"].dims) != {"x", "y"}:
        raise ValueError(f"density must be over x and y at one time, got dims {entry['density'].dims}; "
                         "choose a time")
    dress(ax, grid=False)
    image = ax.pcolormesh(cell_edges(flow["x"].values), cell_edges(flow["y"].values), _visible(entry), cmap="Blues", vmin=0,
                          vmax=largest or float(entry["density"].max()), rasterized=True)
    if run is not None:
        points = _points(run, time)
        ax.plot(points[:, 0], points[:, 1], ".", color=VERMILION, markersize=1.2, alpha=0.7, rasterized=True)
    if bar:
        scale = ax.figure.colorbar(image, ax=ax)
        scale.set_label("density (1 / area)", fontsize=TEXT)
        scale.ax.tick_params(labelsize=SMALL)
    ax.set(xlabel="x (length)", aspect="equal")
    label_y(ax, "y (length)")
    if time is not None:
        ax.set_title(f"t = {time:g}")
    return image


def movie(flow: xr.Dataset, path: str | Path, *, run: xr.Dataset | None = None, fps: int = 12, dpi: int = 120,
          progress: bool = False) -> Path:
    """A movie of the saved times of ``solve``, over x, r or (x, y), as GIF, or as MP4 where ffmpeg is installed.

    ``run`` adds the particles at their nearest saved times. Colours and axes are the same in all frames. Returns the
    path. Raises ValueError for another ending, RuntimeError for MP4 without ffmpeg.
    """
    target = Path(path)
    writers: dict[str, Any] = {".gif": PillowWriter, ".mp4": FFMpegWriter}
    if target.suffix not in writers:
        raise ValueError(f"path must end in .gif or .mp4, got {target.name}")
    if target.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise RuntimeError("an .mp4 needs the program ffmpeg, which is not installed; name a .gif")
    fps, plane = _checks.count("fps", fps), "y" in flow.dims
    # the start may be far higher than the rest: colours and axes end where 99 % of all values lie below
    top = float(np.quantile(flow["density"], 0.99)) or float(flow["density"].max())
    figure = Figure(figsize=(4.4, 3.6))
    ax = figure.subplots()
    writer = writers[target.suffix](fps=fps)
    partial = target.with_name(f".{target.stem}.part{target.suffix}")
    try:
        with writer.saving(figure, str(partial), dpi):
            for number, time in enumerate(tqdm(flow["time"].values, desc="movie", unit="frame", disable=not progress,
                                               leave=False)):
                ax.clear()
                if plane:
                    density_image(flow, ax, time=float(time), run=run, largest=top, bar=number == 0)
                else:
                    _line_frame(flow, run, float(time), top, ax)
                ax.set_title(f"t = {time:.3g}")
                writer.grab_frame()
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _line_frame(flow: xr.Dataset, run: xr.Dataset | None, time: float, top: float, ax: Axes) -> None:
    density_lines(flow, [time], ax)
    if run is not None:
        points = _points(run, time, everybody=True)
        radial = "r" in flow.dims
        edges = cell_edges(flow["r" if radial else "x"].values)
        bins = np.linspace(max(edges[0], 0.0) if radial else edges[0], edges[-1], 41)
        counts, _ = np.histogram(np.linalg.norm(points, axis=1) if radial else points[:, 0], bins)
        dim = points.shape[1]
        ball = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
        volume = ball * np.diff(bins**dim) if radial else np.diff(bins)
        ax.stairs(counts / len(points) / volume, bins, fill=True, alpha=0.4, color=VERMILION, label="particles")
        legend(ax)
    ax.set_ylim(0, 1.1 * top)


def _visible(entry: xr.Dataset) -> Any:
    """The density for pcolormesh (row = y), cells outside of the domain masked."""
    values = entry["density"].transpose("y", "x").values
    if "cell_volume" in entry:
        return np.ma.masked_where(entry["cell_volume"].transpose("y", "x").values == 0, values)
    return values


def _points(run: xr.Dataset, time: float | None, everybody: bool = False) -> Array:
    entry = (run if time is None else at_time(run, time))["position"]
    if "run" in entry.dims:
        entry = entry.isel(run=0)
    points: Array = entry.transpose("particle", "component").values
    return points if everybody else points[:_POINTS]
