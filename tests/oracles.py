"""Ten-line restatements, slow and plain, never imported by the package."""

from __future__ import annotations

import math

import numpy as np


def riesz(r, s, strength=1.0, softening=0.0):
    """method.md (4.1)."""
    q = r * r + softening**2
    if s == 0:
        return -0.5 * strength * math.log(q)
    return math.copysign(1.0, s) * strength * q ** (-s / 2)


def hamiltonian(positions, potential, pair):
    """method.md (5.1), a double loop; ``pair`` is g(r)."""
    n = len(positions)
    total = sum(potential(x) for x in positions) / n
    for k in range(n):
        for l in range(n):
            if k != l:
                total += pair(math.dist(positions[k], positions[l])) / (2 * n * (n - 1))
    return total


def finite_difference(function, x, h=1e-6):
    """Central differences of a scalar function of an array."""
    gradient = np.empty(x.shape)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        gradient[i] = (function(up) - function(down)) / (2 * h)
    return gradient


def transport_by_quantiles(points, weights, others, other_weights, order, n=200_000):
    """W_p on a fine grid of quantiles, first order in 1/n."""
    u = (np.arange(n) + 0.5) / n
    a = np.asarray(points)[np.argsort(points)]
    b = np.asarray(others)[np.argsort(others)]
    ca = np.cumsum(np.asarray(weights)[np.argsort(points)])
    cb = np.cumsum(np.asarray(other_weights)[np.argsort(others)])
    qa, qb = a[np.minimum(np.searchsorted(ca, u), len(a) - 1)], b[np.minimum(np.searchsorted(cb, u), len(b) - 1)]
    return np.mean(np.abs(qa - qb) ** order) ** (1 / order)
