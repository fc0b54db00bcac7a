"""Fast pair sums: within their stated error of the direct sum on every kind of points, bitwise free of threads."""

from __future__ import annotations

import functools

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanfield as mf
from meanfield.kernels.powers import power
from meanfield.pairsum import CROSSOVER, PairSum, line_order

SIZES = (1, 2, 3, 10, 1000, 5000)


def clusters(rng, n, dim):
    which = rng.integers(0, 20, n)
    width = 10.0 ** rng.uniform(-7, -2, 20)[which, None]
    return rng.uniform(-1, 1, (20, dim))[which] + width * rng.standard_normal((n, dim))


def two_scales(rng, n, dim):
    return np.where(np.arange(n)[:, None] % 2, rng.uniform(-1, 1, (n, dim)), 0.1 + 1e-6 * rng.standard_normal((n, dim)))


POINTS = {
    "uniform": lambda rng, n, dim: rng.uniform(-1, 1, (n, dim)),
    "gaussian": lambda rng, n, dim: rng.standard_normal((n, dim)),
    "clustered": clusters,
    "two scales": two_scales,
    "cauchy": lambda rng, n, dim: rng.standard_cauchy((n, dim)),
    "lattice": lambda rng, n, dim: np.stack([np.arange(n) % 71, np.arange(n) // 71], axis=1)[:, :dim] + 0.0 if dim > 1
    else np.linspace(-1, 1, n)[:, None],
    "repeated": lambda rng, n, dim: rng.integers(0, 150 if dim == 1 else 12, (n, dim)) / 7.0,
}


@functools.cache
def sample(kind, n, dim):
    return POINTS[kind](np.random.default_rng(n), n, dim)


def law(s, n, softening=0.0):
    """Pair forces r_vec q^(-s/2 - 1)."""
    return mf.Riesz(s, (n - 1.0) / (abs(s) or 1.0), softening)


def forces(pair, x, method, accuracy=1e-12, core=0.0):
    plan = PairSum.plan([pair], [core], n_particles=x.shape[-2], dim=x.shape[-1], method=method, accuracy=accuracy)
    x = x[None] if x.ndim == 2 else x
    out = np.zeros_like(x)
    plan.add_forces(x, out)
    return out, plan


def magnitudes(pair, x, core=0.0):
    """sum_l |f_kl|, what errors are stated in."""
    total = np.empty(len(x))
    for first in range(0, len(x), 500):
        d2 = np.square(x[first:first + 500, None] - x).sum(axis=-1)
        q = np.maximum(d2 + pair.softening**2, core**2)
        weight = np.divide(1.0, q ** (pair.s / 2 + 1), out=np.zeros_like(q), where=q > 0)
        total[first:first + 500] = (weight * np.sqrt(d2)).sum(axis=1)
    return total


def check(pair, x, method="multipole", accuracy=1e-12, core=0.0, error=None):
    fast, plan = forces(pair, x, method, accuracy, core)
    direct, _ = forces(pair, x, "direct", core=core)
    off = np.sqrt(np.square(fast - direct).sum(axis=-1))[0]
    allowed = (sum(plan.errors) if error is None else error) + 2e-14  # the direct sum is only good to round-off
    assert (off <= allowed * magnitudes(pair, x, core)).all()
    return off


@pytest.mark.parametrize("kind", POINTS)
@pytest.mark.parametrize("s", [0.0, 0.5, -1.5, 2.0])
def test_multipole_on_the_line_is_within_its_stated_error(kind, s):
    for n in SIZES if kind == "uniform" else (2500,):
        check(law(s, n), sample(kind, n, 1))


@pytest.mark.full
@pytest.mark.parametrize("kind", POINTS)
def test_multipole_in_the_plane_is_within_its_stated_error(kind):
    for n in SIZES if kind == "uniform" else (2500,):
        check(law(0.0, n), sample(kind, n, 2), accuracy=1e-10)


@pytest.mark.full
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("accuracy", [1e-3, 1e-6, 1e-9])
def test_a_looser_accuracy_is_kept_and_used(dim, accuracy):
    x = sample("gaussian", 5000, dim)
    off = check(law(0.0, 5000), x, accuracy=accuracy)
    tight = check(law(0.0, 5000), x, accuracy=accuracy * 1e-3)
    assert tight.max() < 0.1 * off.max()


def test_the_order_grows_with_the_accuracy_and_the_stated_error_is_met():
    for s in (-1.5, 0.0, 0.5, 1.0, 3.0):
        found = [line_order(s, a) for a in (1e-2, 1e-4, 1e-8, 1e-12)]
        assert [order for order, _, _ in found] == sorted(order for order, _, _ in found)
        assert all(error <= a * (1 + 1e-9) for (_, _, error), a in zip(found, (1e-2, 1e-4, 1e-8, 1e-12), strict=True))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["uniform", "clustered", "two scales"])
@pytest.mark.parametrize("softening", [1e-3, 0.3])
@pytest.mark.parametrize("s", [0.0, 0.7, -1.0])
def test_softening_on_the_line_is_in_the_kernel(kind, softening, s):
    check(law(s, 2000, softening), sample(kind, 2000, 1))


@pytest.mark.full
@pytest.mark.parametrize("softening", [1e-9, 1e-7, 1e-3, 0.3])
def test_softening_in_the_plane_is_resolved_or_summed_directly(softening):
    for kind in ("uniform", "clustered"):
        check(law(0.0, 3000, softening), sample(kind, 3000, 2), accuracy=1e-10)


@pytest.mark.full
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("core", [1e-6, 1e-3, 0.05])
def test_the_core_is_exact(dim, core):
    for kind in ("uniform", "clustered", "repeated"):
        check(law(0.0, 3000), sample(kind, 3000, dim), accuracy=1e-10, core=core)


@pytest.mark.parametrize("kind", POINTS)
@pytest.mark.parametrize("core", [0.0, 1e-7, 1e-3])
def test_sorted_sums_are_exact_to_round_off(kind, core):
    for n in SIZES if kind in ("uniform", "repeated") else (1000,):
        check(law(-1.0, n), sample(kind, n, 1), "sorted", core=core, error=0.0)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_springs_need_only_the_centre_of_mass(dim):
    x = np.random.default_rng(0).standard_normal((3, 500, dim))
    fast, plan = forces(mf.QuadraticPair(0.7), x, "auto")
    assert plan.method == "mean"
    assert_allclose(fast, forces(mf.QuadraticPair(0.7), x, "direct")[0], rtol=0, atol=1e-14)


@pytest.mark.full
@pytest.mark.parametrize("dim", [1, 2])
def test_forces_add_up_to_nothing(dim):
    for kind in ("uniform", "clustered"):
        x = sample(kind, 5000, dim)
        net = forces(law(0.0, 5000), x, "multipole", 1e-10)[0].sum(axis=(0, 1))
        assert (np.abs(net) <= 1e-10 * magnitudes(law(0.0, 5000), x).sum()).all()


def test_coincident_particles_feel_nothing():
    for dim in (1, 2):
        out, _ = forces(law(0.0, 3000), np.full((3000, dim), 0.3), "multipole")
        assert_array_equal(out, 0.0)


@pytest.mark.full
@pytest.mark.parametrize("dim", [1, 2])
def test_no_number_depends_on_threads_runs_or_repeats(dim):
    x = np.stack([sample(kind, 5000, dim) for kind in ("uniform", "gaussian", "clustered")])
    before, found = numba.get_num_threads(), []
    try:
        for threads in {1, min(2, before), before}:
            numba.set_num_threads(threads)
            found += [forces(law(0.0, 5000), x, "multipole")[0], np.concatenate(
                [forces(law(0.0, 5000), run, "multipole")[0] for run in x])]
    finally:
        numba.set_num_threads(before)
    for other in found[1:]:
        assert_array_equal(other, found[0])


@pytest.mark.parametrize(("domain", "s"), [
    (mf.Interval(-1, 1), 0.0), (mf.Interval(-1, 1), 0.5), (mf.Box(-1, 1, dim=2), 0.0)])
def test_simulate_agrees_with_the_direct_sum(domain, s):
    problem = mf.Problem(domain, mf.Quadratic(), (mf.Riesz(s, 0.2), mf.QuadraticPair(0.5)), 50.0)
    settings = {"n_particles": 1500, "dt": 1e-5, "t_end": 2e-4, "seed": 4}
    fast = mf.simulate(problem, method="multipole", accuracy=1e-11, **settings)
    direct = mf.simulate(problem, method="direct", **settings)
    assert fast.attrs["pair_method"] == "multipole, mean"
    assert fast.attrs["pair_error"][0] <= 1e-11
    assert direct.attrs["pair_method"] == "direct, direct"
    assert_allclose(fast["position"].values, direct["position"].values, rtol=0, atol=1e-10)


def test_auto_takes_what_was_measured_to_be_faster():
    def method(pair, n, dim, **more):
        return PairSum.plan([pair], [0.0], n_particles=n, dim=dim, **more).method

    for case, pair, dim in (("line logarithm", law(0.0, 9), 1), ("line power", law(0.5, 9), 1),
                            ("plane logarithm", law(0.0, 9), 2)):
        assert method(pair, CROSSOVER[case] - 1, dim) == "direct"
        assert method(pair, CROSSOVER[case], dim) == "multipole"
    assert method(law(-1.0, 9), 1000, 1) == "sorted"
    assert method(law(-1.0, 9, 0.1), 1000, 1) == "multipole"
    assert method(law(1.0, 9), 10**5, 2) == "direct"
    assert method(law(0.0, 9), 10**5, 2, method="direct") == "direct"


@pytest.mark.parametrize(("arguments", "message"), [
    ({"method": "magic"}, "method must be one of 'auto'"),
    ({"accuracy": 0.0}, "accuracy must be between"),
    ({"accuracy": np.nan}, "accuracy must be a finite number"),
    ({"method": "multipole"}, "method 'multipole' is for kernels on the line and the logarithm in the plane, got s = 1"),
    ({"method": "sorted"}, "method 'sorted' is for s = -1"),
])
def test_bad_arguments_are_one_sentence(arguments, message):
    problem = mf.Problem(mf.Box(-1, 1, dim=2), mf.Zero(), mf.Riesz(1.0), 1.0)
    with pytest.raises(ValueError, match=message):
        mf.simulate(problem, n_particles=3, dt=1e-3, t_end=1e-3, **arguments)


def test_powers_match_libm():
    q = 10.0 ** np.random.default_rng(0).uniform(-60, 20, 300)
    for exponent in (-1.685, -0.25, 0.3, -2.0):
        expected = q**exponent
        assert_allclose([power(v, exponent) for v in q], expected, rtol=1e-13)


def test_library_in_space_is_within_its_accuracy():
    pytest.importorskip("fmm3dpy")
    for core in (0.0, 0.05):
        check(law(1.0, 1000), sample("uniform", 1000, 3), "library", accuracy=1e-9, core=core)
