"""Points drawn from densities: cell frequencies, cut cells, shells, the floor's rate and exact value."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import chisquare, kstest

import meanfield as mf


def test_points_fall_into_cells_as_often_as_they_should():
    rho = np.random.default_rng(0).exponential(size=(6, 4))
    x, y = np.linspace(-1.25, 1.25, 6), np.linspace(0.25, 1.75, 4)
    data = xr.Dataset({"density": (("x", "y"), rho)}, {"x": x, "y": y})
    problem = mf.Problem(mf.Box([-1.5, 0], [1.5, 2]))
    points = mf.sample_density(problem, data, 20_000, seed=1)
    counts = mf.density_histogram(points, (np.linspace(-1.5, 1.5, 7), np.linspace(0, 2, 5))).counts
    assert chisquare(counts.ravel(), 20_000 * rho.ravel() / rho.sum()).pvalue > 1e-3
    assert kstest((points[:, 0] + 1.5) / 0.5 % 1, "uniform").pvalue > 1e-3


def test_points_of_cut_cells_stay_inside():
    disc = mf.Problem(mf.Ball(1.0, 2))
    x = np.array([-0.75, -0.25, 0.25, 0.75])
    data = xr.Dataset({"density": (("x", "y"), np.ones((4, 4)))}, {"x": x, "y": x})
    points = mf.sample_density(disc, data, 4000, seed=2)
    assert disc.domain.contains(points).all()
    assert not np.array_equal(points, mf.sample_density(disc, data, 4000, seed=3))


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_points_of_shells(dim):
    """The uniform ball: r^dim is uniform, and so is every direction."""
    ball = mf.Problem(mf.Ball(2.0, dim))
    r = (np.arange(50) + 0.5) / 25
    data = xr.Dataset({"density": (("r",), np.ones(50))}, {"r": r})
    points = mf.sample_density(ball, data, 5000, seed=4)
    radius = np.linalg.norm(points, axis=1)
    assert kstest((radius / 2) ** dim, "uniform").pvalue > 1e-3
    assert np.abs((points / radius[:, None]).mean(axis=0)).max() < 5 / math.sqrt(5000 * dim)


def test_floor_of_the_uniform_law(truths):
    """E W_1 of N independent uniforms is known exactly."""
    n, exact = 100, truths["wasserstein1_uniform"]["values"]["EW1_N100"]
    flat = mf.gibbs(mf.Problem(mf.Interval(0, 1)), mf.Grid(50))
    mean, spread = mf.monte_carlo_floor(mf.Problem(mf.Interval(0, 1)), flat, n, n_samples=400)
    assert abs(mean - exact) < 5 * spread / math.sqrt(400)


def test_radial_and_plane_floors_fall_at_the_root_rate():
    x = np.linspace(-0.95, 0.95, 20)
    box = xr.Dataset({"density": (("x", "y"), np.full((20, 20), 0.25))}, {"x": x, "y": x})
    r = (np.arange(20) + 0.5) / 20
    ball = xr.Dataset({"density": (("r",), np.full(20, 0.75 / math.pi))}, {"r": r},
                      {"config": json.dumps({"problem": {"domain": {"kind": "Ball", "dim": 3}}})})
    for problem, data in ((mf.Problem(mf.Box(-1, 1, dim=2)), box), (mf.Problem(mf.Ball(1.0, 3)), ball)):
        few, many = (mf.monte_carlo_floor(problem, data, n, n_samples=40, n_directions=8) for n in (100, 1600))
        assert few[0] / many[0] == pytest.approx(4, rel=0.25)


def test_bad_input_is_one_sentence():
    flow = xr.Dataset({"density": (("time", "x"), np.ones((2, 4)))}, {"time": [0.0, 1.0], "x": np.arange(4.0)})
    with pytest.raises(ValueError, match="one density over x, x and y or r, got dims"):
        mf.sample_density(mf.Problem(mf.Interval(-0.5, 3.5)), flow, 10)
    with pytest.raises(ValueError, match="size must be"):
        mf.sample_density(mf.Problem(mf.Interval(-0.5, 3.5)), flow.isel(time=0), 0)
