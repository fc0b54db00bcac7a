"""Transport on a line: the p-th power of W_p between two monotone, piecewise linear quantile functions.

A sorted sample and a piecewise constant density are both lists of segments (mass, left, right): over its share of mass
the quantile runs linearly from left to right (an atom has left = right). Source: Villani, Topics in Optimal
Transportation (2003), theorem 2.18: on the line W_p^p = int_0^1 |Q_a(u) - Q_b(u)|^p du.
"""

from __future__ import annotations

import math

from meanfield._numba import njit

__all__ = ["transport_cost"]

# Masses are sums of rounded numbers: pieces below this are what is left of equal ones, and count as none. At large orders
# they would be all that counts (1e-17 of mass over a distance of 100 is W_50 = 46).
_NOTHING = 1e-13


@njit(inline=True)
def _mean_power(v0, v1, p):  # type: ignore[no-untyped-def]
    """Mean of |v|^p while v runs linearly from v0 to v1."""
    if p == 2.0:
        return (v0 * v0 + v0 * v1 + v1 * v1) / 3.0
    a, b = abs(v0), abs(v1)
    low, high = min(a, b), max(a, b)
    if high == 0.0:
        return 0.0
    if (v0 < 0.0) != (v1 < 0.0):
        # two ramps down to zero, weighted by their share of the way
        return (low * low**p + high * high**p) / ((p + 1.0) * (low + high))
    if p == 1.0:
        return 0.5 * (low + high)
    ratio = (high - low) / high
    if ratio * p < 0.05:
        # (high^(p+1) - low^(p+1)) / (high - low) cancels: expand around the middle, error below 1e-16
        mid = 0.5 * (low + high)
        e = (0.5 * (high - low) / mid) ** 2
        return mid**p * (1.0 + p * (p - 1.0) * e / 6.0 * (1.0 + (p - 2.0) * (p - 3.0) * e / 20.0
                         * (1.0 + (p - 4.0) * (p - 5.0) * e / 42.0)))
    return high**p * (1.0 - (low / high) ** (p + 1.0)) / ((p + 1.0) * ratio)


@njit()
def transport_cost(mass_a, left_a, right_a, mass_b, left_b, right_b, p, scale):  # type: ignore[no-untyped-def]
    """int_0^1 (|Q_a - Q_b| / scale)^p du for segments sorted by position; both masses must sum to 1.

    p = inf gives the largest |Q_a - Q_b| / scale, which is also the scale that keeps large powers from underflow.
    """
    i = 0
    j = 0
    done_a = 0.0  # share of segment i that is used up, as mass
    done_b = 0.0
    total = 0.0
    n, m = mass_a.size, mass_b.size
    while i < n and j < m:
        rest_a = mass_a[i] - done_a
        rest_b = mass_b[j] - done_b
        if rest_a <= 0.0:
            i += 1
            done_a = 0.0
            continue
        if rest_b <= 0.0:
            j += 1
            done_b = 0.0
            continue
        piece = min(rest_a, rest_b)
        slope_a = (right_a[i] - left_a[i]) / mass_a[i]
        slope_b = (right_b[j] - left_b[j]) / mass_b[j]
        heavy = piece > _NOTHING
        v0 = (left_a[i] + slope_a * done_a) - (left_b[j] + slope_b * done_b)
        v1 = v0 + (slope_a - slope_b) * piece
        if not heavy:
            pass
        elif p == math.inf:
            total = max(total, abs(v0) / scale, abs(v1) / scale)
        else:
            total += piece * _mean_power(v0 / scale, v1 / scale, p)
        if rest_a <= rest_b:
            done_b = done_b + piece if rest_b > rest_a else 0.0
            j = j if rest_b > rest_a else j + 1
            i += 1
            done_a = 0.0
        else:
            done_a += piece
            j += 1
            done_b = 0.0
    return total
