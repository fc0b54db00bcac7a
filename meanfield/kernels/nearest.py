"""Distance to the nearest other particle, for schemes that ask how far a step may carry."""

from __future__ import annotations

import numpy as np

from meanfield._numba import njit, prange

__all__ = ["nearest_squared"]


@njit(parallel=True)
def nearest_squared(x, period, out):  # type: ignore[no-untyped-def]
    """out[r, k] = min over l != k of |x_k - x_l|^2, for x over (run, particle, component); inf for one particle.

    ``period`` is a torus' length, between nearest images then, or 0 for none.
    """
    n_runs, n, dim = x.shape
    inverse = 1.0 / period if period > 0.0 else 0.0
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        best = np.inf
        for j in range(n):
            q = 0.0
            for a in range(dim):
                d = x[run, k, a] - x[run, j, a]
                d -= period * np.rint(d * inverse)
                q += d * d
            # the particle itself, told apart by its index, not by distance 0
            best = min(best, q if j != k else np.inf)
        out[run, k] = best
