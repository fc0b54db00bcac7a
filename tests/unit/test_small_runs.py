"""Many runs of few particles, which are summed side by side."""

from __future__ import annotations

import numpy as np
import pytest

from meanfield._numba import with_threads
from meanfield.kernels import pairs
from meanfield.kernels.pair_weights import LOGARITHM, POWER


def forces(x, s, soft=0.0, core=0.0):
    out = np.zeros_like(x)
    pairs.add_pair_forces(x, LOGARITHM if s == 0 else POWER, 1.0, s, soft, core, out)
    return out


def by_definition(x, s, soft=0.0, core=0.0):
    d = (x[:, :, None] - x[:, None]).astype(np.longdouble)
    q = np.maximum(np.square(d).sum(axis=-1) + soft, core)
    q[q == 0] = 1.0
    pair = (abs(s) or 1.0) * d * q[..., None] ** np.longdouble(-s / 2 - 1)
    return pair.sum(axis=2), np.sqrt(np.square(pair).sum(axis=-1)).sum(axis=2)


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize(("runs", "n"), [(1, 2), (3, 5), (33, 7), (70, 16), (5, 32)])
@pytest.mark.parametrize("s", [0.0, 1.0, 1.37])
def test_forces_are_those_of_the_definition(dim, runs, n, s):
    x = np.random.default_rng(n).standard_normal((runs, n, dim))
    x[0, 1] = x[0, 0]
    for more in ({}, {"soft": 0.2}, {"core": 0.3}):
        force, size = by_definition(x, s, **more)
        error = np.sqrt(np.square(forces(x, s, **more) - force).sum(axis=-1))
        assert (error <= 1e-14 * size).all()


def test_a_run_does_not_depend_on_its_neighbours_or_on_threads():
    x = np.random.default_rng(1).standard_normal((1_000, 16, 2))
    x[7] *= 1e50  # goes through the safe loops
    together = forces(x, 0.0)
    for run in (0, 7, 31, 32, 999):
        assert (forces(x[run:run + 1], 0.0)[0] == together[run]).all()
    with with_threads(1):
        assert (forces(x, 0.0) == together).all()


def test_a_position_that_is_not_finite_makes_its_run_nan_and_no_other():
    x = np.random.default_rng(2).standard_normal((40, 8, 2))
    x[3, 2, 1] = np.nan
    result = forces(x, 0.0)
    assert np.isnan(result[3]).any(axis=-1).all()
    assert np.isfinite(np.delete(result, 3, axis=0)).all()
