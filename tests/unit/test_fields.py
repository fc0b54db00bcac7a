"""Densities as pictures: what is outside stays white, axes are the right way round, movies have every frame."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from numpy.testing import assert_allclose
from PIL import Image

from meanfield import plots


def line(cells=20):
    x = (np.arange(cells) + 0.5) / cells
    rho = 1 + 0.1 * np.cos(np.pi * x) * np.array([0.0, 0.5, 1.0])[:, None]
    return xr.Dataset({"density": (("time", "x"), rho)}, {"time": [0.0, 0.5, 1.0], "x": x})


def plane(cells=12):
    x = (np.arange(cells) + 0.5) / cells * 2 - 1
    volume = np.where(np.hypot(*np.meshgrid(x, x)) < 1, 4 / cells**2, 0.0)
    rho = np.where(volume > 0, 1.0, 0.0) * (2 + x[:, None]) * np.array([1.0, 0.8, 1.2])[:, None, None]
    return xr.Dataset({"density": (("time", "x", "y"), rho), "cell_volume": (("x", "y"), volume)},
                      {"time": [0.0, 0.5, 1.0], "x": x, "y": x})


def cloud(dim, n=200):
    points = np.random.default_rng(0).uniform(-0.6, 0.6, (1, 3, n, dim))
    return xr.Dataset({"position": (("run", "time", "particle", "component"), points)}, {"time": [0.0, 0.5, 1.0]})


def test_density_image_masks_what_is_outside_and_puts_x_along_x():
    ax = Figure().subplots()
    image = plots.density_image(plane(), ax, time=0.5, run=cloud(2))
    shown = image.get_array()
    assert shown.mask[0, 0]
    assert not shown.mask[6, 6]
    assert shown[6, 10] > shown[6, 2]  # the density grows with x, and rows are y
    assert_allclose(shown[6, 10], 0.8 * (2 + plane()["x"].values[10]))
    assert ax.get_xlabel() == "x (length)"
    assert ax.lines[0].get_xdata().size == 200
    with pytest.raises(ValueError, match="choose a time"):
        plots.density_image(plane(), ax)


def test_density_lines_name_their_axis_and_times():
    ax = Figure().subplots()
    radial = xr.Dataset({"density": (("time", "r"), np.ones((2, 5)))}, {"time": [0.0, 1.0], "r": np.arange(5) / 5 + 0.1})
    plots.density_lines(radial, [0.0, 1.0], ax, rest=radial.isel(time=1))
    assert ax.get_xlabel() == "radius r (length)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["t = 0", "t = 1", "at rest"]
    assert ax.get_ylim()[0] == 0


@pytest.mark.parametrize("case", ["plane", "line", "radius"])
def test_movie_has_a_frame_for_each_time_and_leaves_nothing_else(case, tmp_path):
    flow = {"plane": plane(), "line": line(), "radius": line().rename(x="r")}[case]
    run = cloud({"plane": 2, "line": 1, "radius": 3}[case]).assign_coords(time=flow["time"].values)
    path = plots.movie(flow, tmp_path / "flow.gif", run=run, dpi=40)
    with Image.open(path) as frames:
        assert frames.n_frames == 3
    assert [p.name for p in tmp_path.iterdir()] == ["flow.gif"]
    with pytest.raises(ValueError, match=r"must end in .gif or .mp4, got flow.avi"):
        plots.movie(flow, tmp_path / "flow.avi")
