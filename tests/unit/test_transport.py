"""W_p on the line: against SciPy, POT and brute force; a metric; exact under shifts; the cases of public trackers."""

from __future__ import annotations

import itertools

import numpy as np
import ot
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from oracles import transport_by_quantiles
from scipy.stats import wasserstein_distance

import meanfield as mf
from meanfield.diagnostics.transport import atoms, cells, transport_1d


def sample(seed, n):
    rng = np.random.default_rng(seed)
    w = rng.exponential(size=n)
    return 2 * rng.standard_normal(n), w / w.sum()


@given(seed=st.integers(0, 2**31), n=st.integers(1, 200), m=st.integers(1, 200), weighted=st.booleans())
def test_against_scipy_and_pot(seed, n, m, weighted):
    (x, v), (y, w) = sample(seed, n), sample(seed + 1, m)
    v, w = (v, w) if weighted else (np.full(n, 1 / n), np.full(m, 1 / m))
    a, b = atoms(x, weights=v), atoms(y, weights=w)
    assert transport_1d(a, b) == pytest.approx(wasserstein_distance(x, y, v, w), rel=1e-12, abs=1e-13)
    for p in (2, 3):
        expected = ot.wasserstein_1d(x, y, v, w, p=p) ** (1 / p)
        assert transport_1d(a, b, order=p) == pytest.approx(expected, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("order", [1, 1.5, 2, 3, 7.5, 20])
def test_density_against_atoms_by_fine_atoms(order):
    """A density is the limit of atoms at the middles of its quantile slices: second order in their width."""
    rng = np.random.default_rng(2)
    rho = rng.exponential(size=30)
    rho[7] = 0.0  # a hole: the quantile jumps
    edges = np.linspace(-1, 2, 31)
    density = cells(edges, rho / (rho.sum() * 0.1))
    x, w = sample(3, 25)
    n = 200_000
    u = (np.arange(n) + 0.5) / n
    middles = np.interp(u, np.concatenate([[0], np.cumsum(density.mass)]), edges)
    expected = transport_by_quantiles(middles, np.full(n, 1 / n), x, w, order, n=n)
    assert transport_1d(density, atoms(x, weights=w), order=order) == pytest.approx(expected, rel=2e-5)


def test_density_against_density_in_closed_form():
    """U[0, 1] against U[1, 3]: Q_b - Q_a = 1 + u, so W_p^p = (2^(p+1) - 1) / (p + 1)."""
    a, b = cells(np.array([0.0, 1]), np.array([1.0])), cells(np.array([1.0, 3]), np.array([0.5]))
    for p in (1, 2, 3, 5.5):
        assert transport_1d(a, b, order=p) == pytest.approx(((2 ** (p + 1) - 1) / (p + 1)) ** (1 / p), rel=1e-14)
    # against a point inside: int_0^1 |u - 1/2|^p = 2^-p / (p + 1)
    for p in (1, 2, 4.2):
        assert transport_1d(a, atoms(np.array([0.5])), order=p) == pytest.approx(0.5 * (p + 1) ** (-1 / p), rel=1e-14)


@given(seed=st.integers(0, 2**31), shift=st.floats(-1e3, 1e3), order=st.sampled_from([1, 1.3, 2, 3, 10]))
def test_shifts_are_exact(seed, shift, order):
    x, w = sample(seed, 40)
    a, b = atoms(x, weights=w), atoms(x + shift, weights=w)
    assert transport_1d(a, b, order=order) == pytest.approx(abs(shift), rel=1e-11, abs=1e-12)


@given(seed=st.integers(0, 2**31), order=st.sampled_from([1, 2, 3]))
def test_it_is_a_metric(seed, order):
    a, b, c = (atoms(x, weights=w) for x, w in (sample(seed + k, 15 + k) for k in range(3)))
    ab, bc, ac = (transport_1d(u, v, order=order) for u, v in ((a, b), (b, c), (a, c)))
    assert ac <= ab + bc + 1e-12
    assert transport_1d(b, a, order=order) == pytest.approx(ab, rel=1e-13)
    assert transport_1d(a, a, order=order) == 0


def test_bug_07_weights_move_with_their_points():
    x, w, y, v = [3.0, 0, 1], [0.6, 0.3, 0.1], [2.0, 1], [0.2, 0.8]
    for i, j in itertools.product(itertools.permutations(range(3)), itertools.permutations(range(2))):
        a = atoms([x[k] for k in i] + [1e6], weights=[w[k] for k in i] + [0.0])
        b = atoms([y[k] for k in j], weights=[v[k] for k in j])
        found = [transport_1d(a, b, order=p) for p in (1, 2, 3)]
        assert_allclose(found, [1.3, 1.449138, 1.546680], atol=1e-6)


@pytest.mark.parametrize(("n", "m"), [(5, 960), (2, 300), (7, 11)])
def test_bug_08_masses_equal_to_rounding(n, m):
    x, y = sample(0, n)[0], sample(1, m)[0]
    exact = transport_1d(atoms(x), atoms(y), order=2)
    single = transport_1d(atoms(x, weights=np.full(n, 1 / n, np.float32)),
                          atoms(y, weights=np.full(m, 1 / m, np.float32)), order=2)
    assert exact > 0
    assert single == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("weights", "sentence"), [
    ([0.505, 0.505], r"weights must have mass 1 \(within 0.001\), got 1.01"),
    ([0, 0], "weights must have mass 1"),
    ([np.nan, 1], "weights must be finite, got nan at index"),
    ([1.1, -0.1], "weights must be non-negative, got -0.1"),
    ([1.0], r"weights must have the shape of points, got \(1,\) and \(2,\)"),
])
def test_bug_08_masses_that_are_wrong(weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        atoms([0.0, 1.0], weights=weights)
    assert atoms([0.0, 1.0], weights=[1.0, -1e-18]).mass.tolist() == [1.0, 0.0]


def test_bug_16_it_is_a_distance_not_a_power():
    for p, scale in itertools.product((1, 2, 3, 10), (1e-3, 1, 1e3)):
        assert transport_1d(atoms([0.0]), atoms([3.0 * scale]), order=p) == pytest.approx(3 * scale, rel=1e-12)
        x, y = sample(0, 20)[0], sample(1, 30)[0]
        assert transport_1d(atoms(scale * x), atoms(scale * y), order=p) == pytest.approx(
            scale * transport_1d(atoms(x), atoms(y), order=p), rel=1e-12)


def test_bug_49_far_points_and_large_orders():
    x, y = np.array([0, 1, 2, 1e8]), np.array([0.5, 1.5, 2.5, 1e8])
    assert transport_1d(atoms(x), atoms(y)) == pytest.approx(0.375, abs=1e-9)
    found = [transport_1d(atoms(x), atoms(y), order=p) for p in (50, 540, 2000, float("inf"))]
    assert (np.diff(found) > 0).all()
    assert found[-1] == 0.5
    assert found[0] == pytest.approx(0.5 * 0.75 ** (1 / 50), rel=1e-9)
    for bad in (np.inf, np.nan):
        with pytest.raises(ValueError, match="points must be finite"):
            atoms([0.0, bad])


def test_bug_50_heights_are_not_samples():
    heights = [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]
    edges = np.arange(5) - 0.5
    assert transport_1d(cells(edges, heights[0]), cells(edges, heights[1])) == pytest.approx(2.0, rel=1e-14)
    assert transport_1d(atoms(heights[0]), atoms(heights[1])) == 0.0
    with pytest.raises(TypeError):
        atoms([0.0, 1.0], [0.5, 0.5])  # weights by name only
    for wrong, sentence in ((np.zeros((100, 3)), "points must have 1 dimension"), ([], "points must not be empty")):
        with pytest.raises(ValueError, match=sentence):
            atoms(wrong)
    with pytest.raises(ValueError, match="edges must increase and be one more than the cells"):
        cells(np.arange(4), heights[0])
    with pytest.raises(ValueError, match=r"order must be at least 1, got 0.5"):
        transport_1d(atoms([0.0]), atoms([1.0]), order=0.5)


PROBLEM = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)


def test_datasets_over_run_and_time():
    run = mf.simulate(PROBLEM, n_particles=30, dt=1e-3, t_end=0.1, n_runs=3, save_every=10)
    flow = mf.solve(PROBLEM, mf.Grid(50), t_end=0.1, save_at=np.linspace(0, 0.1, 11))
    distance = mf.wasserstein(run, flow, order=2)
    assert distance.dims == ("run", "time")
    assert distance.shape == (3, 11)
    assert distance.attrs["order"] == 2
    edges = np.linspace(0, 1, 51)
    expected = transport_1d(atoms(run["position"].values[1, 4, :, 0]), cells(edges, flow["density"].values[4]), order=2)
    assert float(distance[1, 4]) == pytest.approx(expected, rel=1e-13)
    assert mf.wasserstein(flow, run, order=2).equals(distance)
    rest = mf.gibbs(PROBLEM, mf.Grid(64))
    assert mf.wasserstein(run, rest).dims == ("run", "time")
    assert mf.wasserstein(flow, rest).dims == ("time",)
    assert mf.wasserstein(rest, rest).shape == ()
    assert float(mf.wasserstein(rest, rest)) == 0
    assert mf.wasserstein(run.isel(run=0), flow).dims == ("time",)


def test_times_are_matched_or_refused():
    run = mf.simulate(PROBLEM, n_particles=30, dt=1e-3, t_end=0.1, save_every=20)
    fine = mf.solve(PROBLEM, mf.Grid(50), t_end=0.1)
    distance = mf.wasserstein(run, fine)
    assert distance["time"].values.tolist() == run["time"].values.tolist()
    assert mf.wasserstein(fine, run)["time"].values.tolist() == run["time"].values.tolist()
    late = mf.solve(PROBLEM, mf.Grid(50), t_end=0.05)
    with pytest.raises(ValueError, match="times do not match: 0.1 is 0.05 away from the nearest saved time 0.05"):
        mf.wasserstein(run, late)


def test_wrong_measures_are_named():
    flat = mf.Problem(mf.Box(0, 1, dim=2))
    run = mf.simulate(flat, n_particles=3, dt=0.1, t_end=0.1)
    with pytest.raises(ValueError, match="must have the same dimension, got 2 and 1"):
        mf.wasserstein(run, mf.gibbs(PROBLEM, mf.Grid(10)))
    with pytest.raises(ValueError, match="b must be a Dataset with a position or a density, got ndarray"):
        mf.wasserstein(mf.gibbs(PROBLEM, mf.Grid(10)), np.zeros(3))


def test_rounded_masses_do_not_count_at_large_orders():
    """One third at 0 and two at 100, as 3 and as 15 particles: the same measure, whatever the order."""
    few, many = atoms([0.0, 100, 100]), atoms([0.0] * 5 + [100.0] * 10)
    for order in (1, 2, 4, 10, 50, float("inf")):
        assert transport_1d(few, many, order=order) < 1e-9


def test_runs_are_matched_by_label_or_refused():
    run = mf.simulate(PROBLEM, n_particles=20, dt=1e-2, t_end=0.1, n_runs=3)
    assert float(mf.wasserstein(run, run.isel(run=[2, 1, 0])).max()) == 0
    with pytest.raises(ValueError, match="both Datasets must have the same runs, got 3 and 2"):
        mf.wasserstein(run, run.isel(run=[0, 1]))
