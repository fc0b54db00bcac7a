"""The noise against scalar arithmetic and its law; its bits depend on the counter alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from meanfield import _rng
from meanfield._numba import with_threads

KEY = _rng.philox_key(3, _rng.NOISE)


def drawn(shape, first_run=0, step=5):
    out = np.empty(shape)
    _rng.normals(KEY, first_run, step, out)
    return out


def by_definition(run, particle, component, step):
    """Box-Muller of the counter (component pair, particle, run, step), with libm."""
    counter = [np.uint64(v) for v in (component // 2, particle, run, step)]
    a, b, c, d = (int(v) for v in _rng.philox(*counter, *KEY))
    u, v = ((((high << 32 | low) >> 11) + 0.5) / 2.0**53 for high, low in ((a, b), (c, d)))
    turn = math.sin if component % 2 else math.cos
    return math.sqrt(-2.0 * math.log(u)) * turn(2.0 * math.pi * v)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 70, 2), (70, 3, 3), (2, 300, 8), (5, 17, 1)])
def test_numbers_are_those_of_the_definition(shape):
    found = drawn(shape, first_run=4)
    wanted = [by_definition(4 + run, particle, component, 5) for run, particle, component in np.ndindex(shape)]
    assert_allclose(found.reshape(-1), wanted, rtol=1e-14, atol=1e-14)


def test_the_polynomials_hold_over_the_whole_range():
    """Against NumPy's log, sin and cos at the pairs of 200,000 counters, for radius and angle by themselves."""
    n = 200_000
    zero = np.zeros(n, dtype=np.uint64)
    with np.errstate(over="ignore"):
        a, b, c, d = _rng.philox(zero, np.arange(n, dtype=np.uint64), zero, zero + np.uint64(5), *KEY)
    u, v = (((high << np.uint64(32) | low) >> np.uint64(11)) + 0.5 for high, low in ((a, b), (c, d)))
    radius, angle = np.sqrt(-2.0 * np.log(u / 2.0**53)), 2.0 * np.pi * (v / 2.0**53)
    x, y = drawn((1, n, 2))[0].T
    assert_allclose(np.hypot(x, y), radius, rtol=2e-15, atol=1e-15)
    assert_allclose(x, radius * np.cos(angle), rtol=0, atol=6e-15)
    assert_allclose(y, radius * np.sin(angle), rtol=0, atol=6e-15)


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_bits_do_not_depend_on_threads_company_or_place_in_a_block(dim):
    whole = drawn((40, 900, dim))
    with with_threads(1):
        assert_array_equal(drawn((40, 900, dim)), whole)
    for runs, n in ((1, 1), (7, 13), (40, 255), (3, 257)):
        assert_array_equal(drawn((runs, n, dim)), whole[:runs, :n])
    assert_array_equal(drawn((2, 31, dim), first_run=11), whole[11:13, :31])
    assert_array_equal(drawn((2, 31, max(dim - 1, 1))), whole[:2, :31, :max(dim - 1, 1)])


def test_some_runs_of_a_bridge_are_those_of_all():
    whole, some = np.empty((30, 20, 3)), np.empty((2, 20, 3))
    _rng.bridge_normals(KEY, np.arange(30), np.arange(30) + 1, 9, whole)
    _rng.bridge_normals(KEY, np.array([17, 4]), np.array([18, 5]), 9, some)
    assert_array_equal(some, whole[[17, 4]])
    assert len(np.unique(whole)) == whole.size


@pytest.mark.parametrize("dim", [1, 2, 3, 8])
def test_numbers_are_normal(dim):
    """Moments up to the eighth, within five standard errors; Kolmogorov-Smirnov, also of the squares and of one tail."""
    z = drawn((4, 480_000 // dim, dim), step=17).reshape(-1)
    for power in range(1, 9):
        exact, square = (0.0 if p % 2 else float(np.prod(np.arange(1, p, 2))) for p in (power, 2 * power))
        assert abs((z**power).mean() - exact) < 5 * math.sqrt((square - exact**2) / z.size)
    assert stats.kstest(z, "norm").pvalue > 1e-4
    assert stats.kstest(z**2, stats.chi2(1).cdf).pvalue > 1e-4
    beyond = z[z > 3]
    assert stats.kstest(stats.norm.sf(beyond) / stats.norm.sf(3), "uniform").pvalue > 1e-4


def test_the_interval_is_open_where_the_logarithm_needs_it():
    """The largest number that 53 bits can give is finite; nothing is NaN among millions."""
    assert np.isfinite(drawn((1, 2_000_000, 2), step=1)).all()
    assert np.abs(drawn((1, 2_000_000, 2), step=1)).max() < math.sqrt(2 * 54 * math.log(2))
