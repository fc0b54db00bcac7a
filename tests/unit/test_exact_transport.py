"""Transport in any dimension: assignment as oracle, certificates, sizes refused before they are taken, Sinkhorn's limits."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import meanfield as mf
from meanfield.diagnostics.transport import atoms, transport_1d


def clouds(seed, n=40, m=40, dim=2):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dim)), 2 * rng.uniform(size=(m, dim))


@pytest.mark.parametrize(("dim", "order"), [(2, 1), (2, 2), (3, 1.5), (5, 3)])
def test_equal_weights_are_an_assignment(dim, order):
    x, y = clouds(dim, dim=dim)
    costs = cdist(x, y) ** order
    exact = costs[linear_sum_assignment(costs)].mean() ** (1 / order)
    assert mf.exact_transport(x, y, order=order) == pytest.approx(exact, rel=1e-9)


@given(seed=st.integers(0, 1000), order=st.sampled_from([1.0, 2.0, 4.0]))
def test_points_on_a_line_of_the_plane_are_points_on_the_line(seed, order):
    rng = np.random.default_rng(seed)
    s, t, v, w = rng.normal(size=12), rng.normal(size=9), rng.dirichlet(np.ones(12)), rng.dirichlet(np.ones(9))
    angle = rng.uniform(0, np.pi)
    direction = np.array([[np.cos(angle), np.sin(angle)]])
    plane = mf.exact_transport(s[:, None] * direction, t[:, None] * direction, x_weights=v, y_weights=w, order=order)
    line = transport_1d(atoms(s, weights=v), atoms(t, weights=w), order=order)
    assert plane == pytest.approx(line, rel=1e-8)
    column = mf.exact_transport(s[:, None], t[:, None], x_weights=v, y_weights=w, order=order)
    assert column == pytest.approx(line, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "m"), [(5, 960), (2, 300), (7, 11)])
def test_bug_08_uneven_sizes_have_a_plan(n, m, dtype):
    x, y = clouds(1, n, m)
    v, w = (np.full(k, 1 / k, dtype) for k in (n, m))
    value = mf.exact_transport(x, y, x_weights=v, y_weights=w)
    assert value > 0
    assert value == pytest.approx(mf.exact_transport(x, y), rel=1e-6)


@pytest.mark.parametrize(("weights", "sentence"), [
    (np.full(7, 1.01 / 7), "x_weights must have mass 1"),
    (np.zeros(7), "x_weights must have mass 1"),
    (np.array([np.nan] + [1 / 6] * 6), "x_weights"),
    (np.array([-0.1] + [1.1 / 6] * 6), "x_weights must be non-negative"),
    (np.full(6, 1 / 6), "one for each of 7 points"),
])
def test_bug_08_wrong_weights_are_named(weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        mf.exact_transport(*clouds(0, 7, 7), x_weights=weights)


def test_bug_49_far_points_do_not_spoil_the_others():
    x, y = np.array([0.0, 1.0, 2.0, 1e8]), np.array([0.5, 1.5, 2.5, 1e8])
    on_a_line = [np.stack([v, 0.5 * v], axis=1) / np.sqrt(1.25) for v in (x, y)]
    assert mf.exact_transport(x[:, None], y[:, None]) == pytest.approx(0.375, abs=1e-9)
    assert mf.exact_transport(*on_a_line) == pytest.approx(0.375, abs=1e-6)
    for p in (50, 540, 2000):
        value = mf.exact_transport(x[:3, None], y[:3, None], order=p)
        assert 0.49 < value <= 0.5
    for bad in (np.inf, np.nan):
        with pytest.raises(ValueError, match="x must be finite"):
            mf.exact_transport(np.array([[bad, 0.0]]), np.zeros((1, 2)))


def test_bug_36_a_solver_that_stopped_early_is_an_error(monkeypatch):
    from meanfield.diagnostics import exact_transport

    x, y = clouds(2, 500, 500)
    monkeypatch.setattr(exact_transport, "_ITERATIONS", 1)
    with pytest.raises(ArithmeticError, match="no optimal plan was found between 500 and 500 points"):
        mf.exact_transport(x, y)


def test_bug_58_too_much_memory_is_said_before_it_is_taken():
    x = np.random.default_rng(0).uniform(size=(20_000, 2))
    with pytest.raises(MemoryError, match=r"would take 9,600,000,000 bytes, more than 2,147,483,648; take sliced"):
        mf.exact_transport(x, x)
    line = np.random.default_rng(1).uniform(size=(60_000, 1))
    assert mf.exact_transport(line, line + 0.25) == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize("regularisation", [0.1, 1e-2])
def test_bug_36_the_divergence_tends_to_the_distance_and_is_zero_at_home(regularisation):
    x, y = clouds(3, 60, 50)
    found = mf.sinkhorn_divergence(x, y, regularisation=regularisation)
    exact = mf.exact_transport(x, y, order=2)
    scale = cdist(x, y).max() ** 2
    assert abs(found.value**2 - exact**2) < max(0.01 * exact**2, 2 * regularisation * np.log(60) * scale)
    assert found.marginal_error <= 1e-7
    assert mf.sinkhorn_divergence(x, x, regularisation=regularisation).value**2 < 1e-9 * scale
    moved = mf.sinkhorn_divergence(x, x + 0.3, regularisation=regularisation, tolerance=1e-9)
    assert moved.value == pytest.approx(0.3 * np.sqrt(2), rel=1e-4)  # S_e of a shift is the shift, whatever e


def test_the_divergence_says_when_it_did_not_converge():
    with pytest.raises(ArithmeticError, match="stopped at a marginal error of"):
        mf.sinkhorn_divergence(*clouds(4, 30, 30), regularisation=1e-9, tolerance=1e-15)
    with pytest.raises(MemoryError, match="sliced_wasserstein"):
        mf.sinkhorn_divergence(*clouds(4, 30, 30), largest=1000)


def test_datasets_in_the_plane():
    """Particles against particles, and against a density: never less than the sliced distance."""
    points = np.random.default_rng(5).uniform(-1, 1, (2, 3, 50, 2))
    run = xr.Dataset({"position": (("run", "time", "particle", "component"), points)}, {"time": [0.0, 1.0, 2.0]})
    x = (np.arange(10) + 0.5) / 5 - 1
    flat = xr.Dataset({"density": (("x", "y"), np.full((10, 10), 0.25))}, {"x": x, "y": x})
    exact, sliced = mf.wasserstein(run, flat, order=2), mf.sliced_wasserstein(run, flat, order=2)
    assert exact.dims == ("run", "time")
    assert (exact > sliced).all()
    centers = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    assert_allclose(exact.values[1, 2], mf.exact_transport(points[1, 2], centers, order=2), rtol=1e-12)
    with pytest.raises(ValueError, match="same dimension, got 2 and 1"):
        mf.wasserstein(run, run.isel(component=[0]))
