"""Finite volumes on a line: Scharfetter-Gummel fluxes and the tridiagonal systems they make.

The flux through the face between cells i and i+1 is J = up_i rho_i - down_i rho_{i+1}, with no flux through the walls.
up and down are positive, and J vanishes exactly on rho ~ exp(-U / T): mass, positivity and discrete Gibbs states are
kept by construction. T = 0 gives the upwind flux.
"""

from __future__ import annotations

import math

from meanfield._numba import njit

__all__ = ["face_coefficients", "implicit_solve"]


@njit(inline=True)
def _bernoulli(z):  # type: ignore[no-untyped-def]
    """z / (e^z - 1); the series below 1e-3 is exact to 1e-16."""
    if abs(z) < 1e-3:
        return 1.0 - 0.5 * z + z * z / 12.0 - z * z * z * z / 720.0
    if z > 700.0:
        return 0.0
    return z / math.expm1(z)


@njit()
def face_coefficients(drift_potential, temperature, width, up, down):  # type: ignore[no-untyped-def]
    """up = T B(dU / T) / h^2 and down = T B(-dU / T) / h^2 on the inner faces, dU = U_{i+1} - U_i."""
    scale = 1.0 / (width * width)
    for i in range(up.size):
        rise = drift_potential[i + 1] - drift_potential[i]
        # B(-z) = B(z) + z, taken from the side where B does not cancel
        if temperature <= 1e-14 * abs(rise):
            up[i] = scale * max(-rise, 0.0)
            down[i] = scale * max(rise, 0.0)
        elif rise > 0.0:
            b = temperature * _bernoulli(rise / temperature)
            up[i] = scale * b
            down[i] = scale * (b + rise)
        else:
            b = temperature * _bernoulli(-rise / temperature)
            up[i] = scale * (b - rise)
            down[i] = scale * b


@njit()
def implicit_solve(up, down, step, rhs, out, work):  # type: ignore[no-untyped-def]
    """out = (1 - step A)^{-1} rhs by elimination without subtraction.

    1 - step A is an M-matrix with unit column sums. The pivot of row i is 1 + step up_i + d_i with d_i = step down_{i-1}
    (1 + d_{i-1}) / pivot_{i-1} >= 0, so no pivot cancels and a non-negative right side stays non-negative.
    """
    m = rhs.size
    excess = 0.0  # d_i
    carried = 0.0
    for i in range(m):
        leave = step * up[i] if i < m - 1 else 0.0
        pivot = 1.0 + excess + leave
        value = (rhs[i] + carried) / pivot
        out[i] = value
        if i < m - 1:
            enter = step * down[i]
            work[i] = enter / pivot
            carried = leave * value
            excess = enter * (1.0 + excess) / pivot
    for i in range(m - 2, -1, -1):
        out[i] += work[i] * out[i + 1]
