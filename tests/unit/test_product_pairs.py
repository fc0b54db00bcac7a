"""Pair forces in many dimensions by matrix products: the same sums as the direct loops, close pairs included."""

from __future__ import annotations

import numpy as np
import pytest

from meanfield._numba import with_threads
from meanfield.kernels import pairs, product_pairs
from meanfield.kernels.pair_weights import LOGARITHM, LOW, POWER, force_weight


def product_sum(x, family, s, soft=0.0, floor=0.0):
    weight, power, factor = force_weight(family, s)
    out = np.zeros_like(x)
    product_pairs.add_product_forces(x, weight, factor, power, soft, max(floor, LOW), out)
    return out


def exact(x, s, k, soft=0.0, floor=0.0):
    """Force on particle k in long double, and the sum of the magnitudes of its pair forces."""
    d = (x[k] - x).astype(np.longdouble)
    q = np.maximum(np.square(d).sum(axis=1) + soft, floor)
    q[q == 0] = 1.0
    pair = (abs(s) or 1.0) * d * q[:, None] ** np.longdouble(-s / 2 - 1)
    return pair.sum(axis=0), np.sqrt(np.square(pair).sum(axis=1)).sum()


def assert_exact(x, s, result, **more):
    for k in [*range(0, len(x), 37), len(x) - 1]:
        force, size = exact(x, s, k, **more)
        assert np.sqrt(np.square(result[k] - force).sum()) <= 1e-13 * size


@pytest.fixture(params=[(24, 1), (24, 95), (33, 161), (33, 400), (130, 203)], ids=str)
def cloud(request):
    dim, n = request.param
    return np.random.default_rng(n).standard_normal((n, dim))


@pytest.mark.parametrize("s", [0.0, 1.0, 1.37, -1.0, -1.5, 6.0])
def test_forces_are_those_of_the_definition(cloud, s):
    assert_exact(cloud, s, product_sum(cloud, LOGARITHM if s == 0 else POWER, s))


def test_softening_and_core(cloud):
    assert_exact(cloud, 1.37, product_sum(cloud, POWER, 1.37, soft=0.3), soft=0.3)
    assert_exact(cloud, 0.0, product_sum(cloud, LOGARITHM, 0.0, floor=50.0), floor=50.0)


@pytest.mark.parametrize("s", [0.0, 1.0, 5.0])
def test_close_pairs_keep_their_digits(s):
    """Clusters of widths 1e-9 to 1, coincident particles, and a cloud far from the origin: r^2 by products has no digits."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((300, 28))
    for first, width in ((0, 1e-9), (60, 1e-6), (120, 1e-3), (180, 0.1)):
        x[first:first + 60] = rng.standard_normal(28) + width * rng.standard_normal((60, 28))
    x[250] = x[17]
    x[299] = x[298]
    assert_exact(x, s, product_sum(x, LOGARITHM if s == 0 else POWER, s))
    far = rng.standard_normal((300, 28)) + 1e6
    assert_exact(far, s, product_sum(far, LOGARITHM if s == 0 else POWER, s))


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_any_size_of_the_cloud(cloud, size):
    x = cloud * size
    assert_exact(x, 1.0, product_sum(x, POWER, 1.0))


def test_a_cloud_in_one_point_feels_nothing():
    assert not product_sum(np.full((200, 24), 3.7), LOGARITHM, 0.0).any()


def test_forces_do_not_depend_on_threads_and_add_up_to_nothing():
    x = np.random.default_rng(2).standard_normal((1, 2_000, 32))
    found = []
    for threads in (1, 2, None):
        out = np.zeros_like(x)
        with with_threads(threads):
            pairs.add_pair_forces(x, POWER, 1.0, 1.37, 0.0, 0.0, out)
        found.append(out)
    assert product_pairs.product_pays(x[0])
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert np.abs(found[0].sum(axis=1)).max() < 1e-12 * np.abs(found[0]).sum(axis=1).max()


def test_runs_are_chosen_one_by_one():
    """A cloud of close pairs and one beyond the fast range go through the loops, its neighbours through the products."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, 1_500, 24))
    x[1] = rng.integers(0, 5, (1_500, 1)) + 1e-4 * x[1]
    x[2] *= 1e40
    assert [product_pairs.product_pays(run) for run in x] == [True, False, True, True]
    together, alone = np.zeros_like(x), np.zeros_like(x)
    pairs.add_pair_forces(x, LOGARITHM, 1.0, 0.0, 0.0, 0.0, together)
    for run in range(4):
        pairs.add_pair_forces(x[run:run + 1], LOGARITHM, 1.0, 0.0, 0.0, 0.0, alone[run:run + 1])
        assert_exact(x[run], 0.0, together[run])
    assert (together == alone).all()


def test_a_position_that_is_not_finite_makes_its_run_nan():
    x = np.random.default_rng(4).standard_normal((1_500, 24))
    x[700, 3] = np.nan
    assert np.isnan(product_sum(x, LOGARITHM, 0.0)).any(axis=1).all()
