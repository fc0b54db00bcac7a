"""Pair sums: forces and energies of the interaction families of ``interactions.PairLaw``.

Each particle's sum runs over its partners in index order, so no number depends on the threads. A pair at squared
distance q (softening included) feels weight(q) times its displacement; below ``core2`` the weight stays at weight(core2),
which makes the force of a pair that the time step cannot resolve linear, and zero for a coincident pair.
"""

from __future__ import annotations

import numpy as np

from meanfield._numba import njit, prange

__all__ = ["add_pair_forces", "pair_energies"]

_LOGARITHM, _POWER, _SPRING = 0, 1, 2


@njit(inline=True)
def _weight(family, exponent, q):  # type: ignore[no-untyped-def]
    """Force over distance, up to the coupling: 1/q, q^exponent or -1."""
    if family == _LOGARITHM:
        return 1.0 / q
    if family == _POWER:
        return q**exponent
    return -1.0


@njit(parallel=True)
def add_pair_forces(x, family, coupling, s, softening2, core2, out):  # type: ignore[no-untyped-def]
    """out[r, k] += coupling sum_{l != k} weight(|x_k - x_l|^2) (x_k - x_l), for x over (run, particle, component)."""
    n_runs, n, dim = x.shape
    exponent = -0.5 * s - 1.0
    # |s| of -grad g = |s| r^(-s-2) r_vec belongs to the coupling (method.md 4.2)
    scale = coupling * abs(s) if family == _POWER else coupling
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        if dim == 1:
            here = x[run, k, 0]
            total = 0.0
            for j in range(n):
                d = here - x[run, j, 0]
                q = max(d * d + softening2, core2)
                # j == k has d = 0; a zero q (no core) would give 0 * inf
                total += d * _weight(family, exponent, q if q > 0.0 else 1.0)
            out[run, k, 0] += scale * total
        else:
            for j in range(n):
                q = softening2
                for a in range(dim):
                    d = x[run, k, a] - x[run, j, a]
                    q += d * d
                q = max(q, core2)
                w = scale * _weight(family, exponent, q if q > 0.0 else 1.0)
                for a in range(dim):
                    out[run, k, a] += w * (x[run, k, a] - x[run, j, a])


@njit(parallel=True)
def pair_energies(x, family, coupling, s, softening2, rows, out):  # type: ignore[no-untyped-def]
    """out[r] += sum_{k < l} g(|x_k - x_l|); ``rows`` over (run, particle) is scratch, summed in index order."""
    n_runs, n, dim = x.shape
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        total = 0.0
        for j in range(k):
            q = softening2
            for a in range(dim):
                d = x[run, k, a] - x[run, j, a]
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
