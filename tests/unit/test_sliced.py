"""Sliced transport: exact shifts, POT as oracle, exactly projected cells, Monte Carlo rate; radii of radial densities."""

from __future__ import annotations

import json
import math

import numpy as np
import ot
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import meanfield as mf
from meanfield.diagnostics.sliced import directions, projected_cells


def particles(points, **coords):
    return xr.Dataset({"position": (("run", "time", "particle", "component"), np.asarray(points)[None, None])}, coords)


def flat(density, x, y):
    density = density / (density.sum() * (x[1] - x[0]) * (y[1] - y[0]))
    return xr.Dataset({"density": (("x", "y"), density)}, {"x": x, "y": y})


@pytest.fixture
def bumpy():
    x, y = np.linspace(-0.9, 0.9, 19), np.linspace(0.05, 0.95, 10)
    return flat(np.random.default_rng(0).exponential(size=(19, 10)), x, y)


@pytest.mark.parametrize("order", [1, 2, 3.5])
def test_shifts_are_exact(bumpy, order):
    """Every projection moves by <theta, v>, so SW_p is the p-mean of |<theta, v>| over the directions."""
    v = np.array([0.7, -0.3])
    moved = bumpy.assign_coords(x=bumpy["x"] + v[0], y=bumpy["y"] + v[1])
    exact = np.mean(np.abs(directions(64, 2) @ v) ** order) ** (1 / order)
    assert float(mf.sliced_wasserstein(bumpy, moved, order=order)) == pytest.approx(exact, rel=1e-9)
    points = np.random.default_rng(1).standard_normal((50, 2))
    shifted = mf.sliced_wasserstein(particles(points), particles(points + v), order=order)
    assert_allclose(shifted.values, exact, rtol=1e-12)
    assert shifted.dims == ("run", "time")
    # the mean of |cos| over all directions is 2 / pi
    assert np.mean(np.abs(directions(64, 2) @ v)) == pytest.approx(2 / math.pi * np.hypot(*v), rel=1e-3)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_samples_against_pot(dim):
    rng = np.random.default_rng(dim)
    a, b = rng.standard_normal((40, dim)), rng.uniform(size=(60, dim))
    ours = float(mf.sliced_wasserstein(particles(a), particles(b), order=2, n_directions=30, seed=5).squeeze())
    theirs = ot.sliced_wasserstein_distance(a, b, projections=directions(30, dim, 5).T, p=2)
    assert ours == pytest.approx(theirs, rel=1e-10)


@given(angle=st.floats(0.03, 1.5), seed=st.integers(0, 100))
def test_projected_cells_have_the_exact_moments(angle, seed):
    """Mean and variance of <theta, x> under cells: those of the centres plus (a^2 + b^2) / 12 of the rectangle."""
    rng = np.random.default_rng(seed)
    x, y = np.linspace(0, 3, 7), np.linspace(-1, 1, 5)
    density = rng.exponential(size=(7, 5)) * (rng.uniform(size=(7, 5)) > 0.2)
    density /= density.sum() * 0.25
    theta = np.array([math.cos(angle), math.sin(angle)])
    q = projected_cells((x, y), density * 0.25, theta)
    middle = theta[0] * x[:, None] + theta[1] * y
    mean = float((density * middle).sum() * 0.25)
    variance = float((density * (middle - mean) ** 2).sum() * 0.25) + (theta[0] ** 2 + theta[1] ** 2) * 0.25 / 12
    centre, length = 0.5 * (q.left + q.right), q.right - q.left
    assert float(q.mass.sum()) == pytest.approx(1, abs=1e-12)
    assert float(q.mass @ centre) == pytest.approx(mean, abs=1e-4)
    assert float(q.mass @ ((centre - mean) ** 2 + length**2 / 12)) == pytest.approx(variance, rel=1e-4)


def test_one_square_against_its_centre():
    """W_1 of a projected unit square to its centre is the mean of |a trapezoid|: (3 a^2 + b^2) / (12 a), a > b its sides."""
    x = np.array([0.5, 1.5])
    square = flat(np.array([[1.0, 0.0], [0.0, 0.0]]), x, x)
    exact = []
    for theta in np.abs(directions(16, 2)):
        a, b = max(theta), min(theta)
        exact.append((3 * a**2 + b**2) / (12 * a))
    many = np.linspace(0.5 / 32, 1 - 0.5 / 32, 32)
    for density in (square, flat(np.ones((32, 32)), many, many)):
        value = float(mf.sliced_wasserstein(particles([[0.5, 0.5]]), density, n_directions=16).squeeze())
        assert value == pytest.approx(np.mean(exact), rel=1e-5)


def test_samples_approach_their_density_at_the_root_rate(bumpy):
    """Points drawn from the cells: SW_1 falls like N^(-1/2)."""
    rng = np.random.default_rng(3)
    mass = bumpy["density"].values.ravel() / bumpy["density"].values.sum()
    sizes, errors = np.array([250, 1000, 4000, 16000]), []
    for n in sizes:
        each = []
        for _ in range(12):
            cell = rng.choice(mass.size, n, p=mass)
            corner = np.stack([bumpy["x"].values[cell // 10], bumpy["y"].values[cell % 10]], axis=1)
            each.append(float(mf.sliced_wasserstein(particles(corner + rng.uniform(-0.05, 0.05, (n, 2))), bumpy,
                                                    n_directions=16).squeeze()))
        errors.append(np.mean(each))
    rate = mf.fit_rate(sizes, np.array(errors))
    assert abs(rate.slope + 0.5) < max(4 * rate.stderr, 0.05)
    assert errors[-1] < 0.01


@pytest.mark.parametrize("dim", [2, 3])
def test_radii_of_a_radial_density(dim):
    """The uniform ball against the centre: W_1 is the mean radius dim / (dim + 1)."""
    r = (np.arange(400) + 0.5) / 400
    volume = math.pi ** (dim / 2) / math.gamma(dim / 2 + 1)
    ball = xr.Dataset({"density": (("r",), np.full(400, 1 / volume))}, {"r": r},
                      {"config": json.dumps({"problem": {"domain": {"kind": "Ball", "dim": dim}}})})
    distance = mf.wasserstein(particles(np.zeros((3, dim))), ball)
    assert_allclose(distance.values, dim / (dim + 1), rtol=1e-5)
    assert "radii" in distance.attrs["long_name"]
    assert float(mf.wasserstein(ball, ball)) == 0


def test_bad_input_is_one_sentence(bumpy):
    line = xr.Dataset({"density": (("x",), np.ones(4) / 4)}, {"x": np.arange(4.0)})
    for a, b, sentence in [(bumpy, line, "needs two or more components or a density over x and y, got b"),
                           (bumpy, particles(np.zeros((2, 3))), "must have the same dimension, got 2 and 3"),
                           (bumpy, None, "must be a Dataset with a position or a density, got NoneType")]:
        with pytest.raises(ValueError, match=sentence):
            mf.sliced_wasserstein(a, b)
    with pytest.raises(ValueError, match="order must be at least 1"):
        mf.sliced_wasserstein(bumpy, bumpy, order=0.5)
