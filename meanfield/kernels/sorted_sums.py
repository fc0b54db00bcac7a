"""The exact O(N log N) pair sum on the line for s = -1 without softening.

The force of a pair has the same size at every distance, so a particle feels its rank: particles to the left minus particles
to the right. Pairs within the core, whose force is linear, are summed one by one.
"""

from __future__ import annotations

import numpy as np

from meanfield._numba import njit, prange

__all__ = ["add_sorted_forces"]


@njit(parallel=True)
def add_sorted_forces(x, order, scale, core, out):  # type: ignore[no-untyped-def]
    """out[r, k, 0] += scale sum_l (x_k - x_l) / max(|x_k - x_l|, core), for x over (run, particle, component=1).

    Coincident particles are taken together, so that many of them cost no more than one.
    """
    n_runs, n = x.shape[0], x.shape[1]
    for run in prange(n_runs):
        value, start = np.empty(n), np.empty(n + 1, np.int64)
        count = 0
        for j in range(n):
            here = x[run, order[run, j], 0]
            if count == 0 or here > value[count - 1]:
                value[count], start[count] = here, j
                count += 1
        start[count] = n
        low = 0
        for i in range(count):
            while value[i] - value[low] >= core and low < i:
                low += 1
            total = 0.0
            for j in range(low, i):
                total += (value[i] - value[j]) * (start[j + 1] - start[j])
            high = i + 1
            while high < count and value[high] - value[i] < core:
                total += (value[i] - value[high]) * (start[high + 1] - start[high])
                high += 1
            force = np.float64(start[low] - (n - start[high]))
            if core > 0.0:
                force += total / core
            for j in range(start[i], start[i + 1]):
                out[run, order[run, j], 0] += scale * force
