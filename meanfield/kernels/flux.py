"""Finite volumes along one axis: Scharfetter-Gummel fluxes and the tridiagonal systems they make, for many lines at once.

Arrays are (cell, line): the sweep goes along the first axis, and the second is what the compiler vectorises. The flow
through the face between cells i and i+1 of a line is up_i rho_i - down_i rho_{i+1}, with no flow through the walls. up and
down are positive, and the flow vanishes exactly on rho ~ exp(-U / T): mass, positivity and discrete Gibbs states are kept
by construction. T = 0 gives the upwind flux.
"""

from __future__ import annotations

import math

from meanfield._numba import njit

__all__ = ["cyclic_solve", "face_coefficients", "implicit_solve"]


@njit(inline=True)
def _bernoulli(z):  # type: ignore[no-untyped-def]
    """z / (e^z - 1) for z >= 0; the series below 1e-3 is exact to 1e-16."""
    if z < 1e-3:
        return 1.0 - 0.5 * z + z * z / 12.0 - z * z * z * z / 720.0
    if z > 700.0:
        return 0.0
    return z / math.expm1(z)


@njit()
def face_coefficients(drift_potential, temperature, conductance, up, down):  # type: ignore[no-untyped-def]
    """up = c T B(dU / T) and down = c T B(-dU / T) on the faces i | i + 1, dU = U_{i+1} - U_i, c the conductance.

    The last row is the face between the last cell and the first (c = 0 without a period).
    """
    m, lines = drift_potential.shape
    for i in range(m):
        after = i + 1 if i < m - 1 else 0
        for j in range(lines):
            rise = drift_potential[after, j] - drift_potential[i, j]
            c = conductance[i, j]
            # B(-z) = B(z) + z, taken from the side where B does not cancel
            b = 0.0
            if temperature > 1e-14 * abs(rise):
                b = temperature * _bernoulli(abs(rise) / temperature)
            up[i, j] = c * (b + max(-rise, 0.0))
            down[i, j] = c * (b + max(rise, 0.0))


@njit()
def implicit_solve(volume, up, down, step, rhs, out, work):  # type: ignore[no-untyped-def]
    """out = (volume + step L)^{-1} volume rhs along each line with walls, L the outflow, by elimination without subtraction.

    volume + step L is an M-matrix whose column sums are the volumes. The pivot of row i is volume_i + step up_i + d_i with
    d_i = step down_{i-1} (volume_{i-1} + d_{i-1}) / pivot_{i-1} >= 0, so no pivot cancels and a non-negative right side
    stays non-negative. ``work`` is (2, cell, line).
    """
    m, lines = rhs.shape
    for j in range(lines):
        work[1, 0, j] = 0.0  # d_i
        out[0, j] = volume[0, j] * rhs[0, j]  # what has reached the cell
    for i in range(m - 1):
        for j in range(lines):
            excess = work[1, i, j]
            leave, enter = step * up[i, j], step * down[i, j]
            inverse = 1.0 / (volume[i, j] + excess + leave)
            value = out[i, j] * inverse
            out[i, j] = value
            work[0, i, j] = enter * inverse
            work[1, i + 1, j] = enter * (volume[i, j] + excess) * inverse
            out[i + 1, j] = volume[i + 1, j] * rhs[i + 1, j] + leave * value
    for j in range(lines):
        out[m - 1, j] /= volume[m - 1, j] + work[1, m - 1, j]
    for i in range(m - 2, -1, -1):
        for j in range(lines):
            out[i, j] += work[0, i, j] * out[i + 1, j]


@njit()
def cyclic_solve(volume, up, down, step, rhs, out, work):  # type: ignore[no-untyped-def]
    """The same on lines that close on themselves: the last row of ``up`` and ``down`` is the face to the first cell.

    Cells are eliminated in order, the flows between each and the last cell carried along; the last cell closes the ring. A
    pivot is the column's sum (a volume, and what came to it) plus the flows that leave, all of them non-negative: nothing is
    subtracted here either. ``work`` is (5, cell, line).
    """
    m, lines = rhs.shape
    last = m - 1
    for j in range(lines):
        work[1, 0, j] = volume[0, j]  # column sum
        work[3, 0, j] = step * down[last, j]  # flow to the last cell
        work[4, 0, j] = step * up[last, j]  # flow from it
        out[0, j] = volume[0, j] * rhs[0, j]
        work[1, last, j] = volume[last, j]
        out[last, j] = volume[last, j] * rhs[last, j]
    for i in range(m - 2):
        for j in range(lines):
            rest, leave, enter = work[1, i, j], step * up[i, j], step * down[i, j]
            to_last, from_last = work[3, i, j], work[4, i, j]
            inverse = 1.0 / (rest + leave + to_last)
            value = out[i, j] * inverse
            out[i, j] = value
            work[0, i, j] = enter * inverse
            work[2, i, j] = from_last * inverse
            work[1, i + 1, j] = volume[i + 1, j] + enter * rest * inverse
            work[3, i + 1, j] = to_last * enter * inverse
            work[4, i + 1, j] = leave * from_last * inverse
            out[i + 1, j] = volume[i + 1, j] * rhs[i + 1, j] + leave * value
            work[1, last, j] += from_last * rest * inverse
            out[last, j] += to_last * value
    i = last - 1
    for j in range(lines):
        rest = work[1, i, j]
        leave, enter = step * up[i, j] + work[3, i, j], step * down[i, j] + work[4, i, j]
        inverse = 1.0 / (rest + leave)
        value = out[i, j] * inverse
        end = (out[last, j] + leave * value) / (work[1, last, j] + enter * rest * inverse)
        out[last, j] = end
        out[i, j] = value + enter * inverse * end
    for i in range(m - 3, -1, -1):
        for j in range(lines):
            out[i, j] += work[0, i, j] * out[i + 1, j] + work[2, i, j] * out[last, j]
