"""Pair sums on a torus: the families of ``interactions.PairLaw`` with minimum-image displacements.

Same arguments as ``pairs`` plus ``period``. The pair of one particle with the nearest image of another counts once, and
its further images not at all: no Ewald sum. Each particle's sum runs in index order, whatever the threads.
"""

from __future__ import annotations

import numpy as np

from meanfield._numba import njit, prange

__all__ = ["add_periodic_pair_forces", "periodic_pair_energies"]

_LOGARITHM, _POWER = 0, 1


@njit(inline=True)
def _image(d, period):  # type: ignore[no-untyped-def]
    """Shortest of the displacements d + k period; odd in d (half to even), so pair forces cancel."""
    return d - period * np.rint(d / period)


@njit(parallel=True)
def add_periodic_pair_forces(x, family, coupling, s, softening2, core2, period, out):  # type: ignore[no-untyped-def]
    """out[r, k] += coupling sum_{l != k} weight(|d|^2) d with d the minimum image of x_k - x_l."""
    n_runs, n, dim = x.shape
    exponent = -0.5 * s - 1.0
    scale = coupling * abs(s) if family == _POWER else coupling
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        for j in range(n):
            q = softening2
            for a in range(dim):
                d = _image(x[run, k, a] - x[run, j, a], period)
                q += d * d
            q = max(q, core2)
            if q == 0.0:  # itself, or a coincident pair without a core: no direction, no force
                q = 1.0
            if family == _LOGARITHM:
                w = scale / q
            elif family == _POWER:
                w = scale * q**exponent
            else:
                w = -scale
            for a in range(dim):
                out[run, k, a] += w * _image(x[run, k, a] - x[run, j, a], period)


@njit(parallel=True)
def periodic_pair_energies(x, family, coupling, s, softening2, period, rows, out):  # type: ignore[no-untyped-def]
    """out[r] += sum_{k < l} g at minimum images; ``rows`` over (run, particle) is scratch."""
    n_runs, n, dim = x.shape
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        total = 0.0
        for j in range(k):
            q = softening2
            for a in range(dim):
                d = _image(x[run, k, a] - x[run, j, a], period)
                q += d * d
            if family == _LOGARITHM:
                total += -0.5 * np.log(q)
            elif family == _POWER:
                total += np.sign(s) * q ** (-0.5 * s)
            else:
                total += 0.5 * (q - softening2)
        rows[run, k] = total
    for run in range(n_runs):
        total = 0.0
        for k in range(n):
            total += rows[run, k]
        out[run] += coupling * total
