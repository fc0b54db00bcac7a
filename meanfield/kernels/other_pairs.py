"""Pair sums of Gaussians, and of a jitted function of the user's; on a torus with minimum-image displacements.

``period`` is the torus' length, or 0 for none. ``x`` is over (run, component, particle) here, so that the inner loops
run along memory, in blocks that stay in the first-level cache: squared distances, then weights, then sums.
"""

from __future__ import annotations

import numpy as np

from meanfield._numba import njit, prange

__all__ = ["add_gaussian_forces", "add_weighted_forces", "gaussian_energies"]

_BLOCK = 512
_LOG2E, _LN2 = 1.4426950408889634, 0.6931471805599453
_POWERS = 2.0 ** -np.arange(1100.0)


@njit(inline=True)
def _exp_minus(u):  # type: ignore[no-untyped-def]
    """exp(-u), u >= 0, in a form that vectorises: relative error below (3 + u) 1e-16, as the rounding of u itself.

    u = k log 2 - r with |r| <= log(2) / 2, exp(-u) = 2^-k exp(r), the last by its Taylor polynomial of degree 13.
    """
    u = min(u, 745.0)
    k = np.floor(u * _LOG2E + 0.5)
    r = k * _LN2 - u
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * _POWERS[int(k)]


@njit(inline=True)
def _squares(x, run, k, first, size, period, inverse, q):  # type: ignore[no-untyped-def]
    """Squared distances of particle k to a block; ``inverse`` is 1 / period, or 0, which leaves every image as it is."""
    dim = x.shape[1]
    for i in range(size):
        q[i] = 0.0
    for a in range(dim):
        here = x[run, a, k]
        for i in range(size):
            d = here - x[run, a, first + i]
            d -= period * np.rint(d * inverse)
            q[i] += d * d


@njit(inline=True)
def _gather(x, run, k, first, size, period, inverse, scale, q, out):  # type: ignore[no-untyped-def]
    """out[run, k] += scale sum_i q_i d_i, with q the weights of a block."""
    for a in range(x.shape[1]):
        here = x[run, a, k]
        total = 0.0
        for i in range(size):
            d = here - x[run, a, first + i]
            d -= period * np.rint(d * inverse)
            total += q[i] * d
        out[run, k, a] += scale * total


@njit(parallel=True)
def add_gaussian_forces(x, strength, width, period, out):  # type: ignore[no-untyped-def]
    """out[r, k] += strength / width^2 sum_l exp(-|d|^2 / (2 width^2)) d; out over (run, particle, component)."""
    n_runs, _, n = x.shape
    inverse = 1.0 / period if period > 0.0 else 0.0
    rate, scale = 0.5 / width**2, strength / width**2
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        q = np.empty(_BLOCK)
        for first in range(0, n, _BLOCK):
            size = min(_BLOCK, n - first)
            _squares(x, run, k, first, size, period, inverse, q)
            for i in range(size):
                q[i] = _exp_minus(rate * q[i])
            _gather(x, run, k, first, size, period, inverse, scale, q, out)


@njit(parallel=True)
def gaussian_energies(x, strength, width, period, rows, out):  # type: ignore[no-untyped-def]
    """out[r] += sum_{k < l} strength exp(-|d|^2 / (2 width^2)); ``rows`` over (run, particle) is scratch."""
    n_runs, _, n = x.shape
    inverse = 1.0 / period if period > 0.0 else 0.0
    rate = 0.5 / width**2
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        q = np.empty(_BLOCK)
        total = 0.0
        for first in range(0, k, _BLOCK):
            size = min(_BLOCK, k - first)
            _squares(x, run, k, first, size, period, inverse, q)
            for i in range(size):
                total += _exp_minus(rate * q[i])
        rows[run, k] = total
    for run in range(n_runs):
        total = 0.0
        for k in range(n):
            total += rows[run, k]
        out[run] += strength * total


@njit(parallel=True, cache=False)
def add_weighted_forces(x, weight, parameters, scale, period, out):  # type: ignore[no-untyped-def]
    """out[r, k] += scale sum_{l != k} weight(|d|^2, parameters) d; a coincident pair has no direction and no force."""
    n_runs, _, n = x.shape
    inverse = 1.0 / period if period > 0.0 else 0.0
    for flat in prange(n_runs * n):
        run = flat // n
        k = flat - run * n
        q = np.empty(_BLOCK)
        for first in range(0, n, _BLOCK):
            size = min(_BLOCK, n - first)
            _squares(x, run, k, first, size, period, inverse, q)
            for i in range(size):
                q[i] = weight(q[i], parameters) if q[i] > 0.0 else 0.0
            _gather(x, run, k, first, size, period, inverse, scale, q, out)
