"""Complex expansions for the logarithm in the plane, and the bound on their error.

With z = x + i y the force on particle k is the complex conjugate of sum_l 1 / (z_k - z_l). For discs of radius r_A, r_B
about c_A, c_B, and T = c_A - c_B, a source at c_B + v does to a target at c_A + u

    1 / (T + u - v) = sum_{k, m} (-1)^m binom(k + m, m) v^k u^m / T^(k + m + 1),

whose terms with k + m >= P are at most rho^P / (1 - rho) of the first, rho = (r_A + r_B) / |T|. So each pair of discs takes
as many terms as its own rho needs, and the bound holds for all points. The matrix of binomials is real and the same for all
pairs; only powers of r / T differ.

Moments of a node are sum_j ((z_j - c) / r)^k, its local expansion is sum_m b_m ((z - c) / r)^m.

Source: Greengard and Rokhlin (1987), with the sums of Laurent and Taylor terms cut by k + m instead of k and m.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield._checks import Array
from meanfield._numba import call, njit, wide_vectors
from meanfield._tasks import alone

__all__ = ["PAIRS", "binomials", "descend", "evaluate", "inverse_of", "merge", "moments", "translate"]

PAIRS = 64  # far pairs worked on side by side


def binomials(order: int) -> tuple[Array, Array]:
    """binom(k + m, m) over (k, m) with room for a block of four beyond ``order``; k! and 1 / k! over k."""
    size = order + 4
    table = np.ones((size, size))
    for k in range(1, size):
        table[k] = np.cumsum(table[k - 1])
    factorial = np.array([math.factorial(k) for k in range(order)], dtype=np.float64)
    return table, np.stack([factorial, 1.0 / factorial])


@alone("float64, float64, float64[::1], float64[::1], float64[::1]")
def _exponential_terms(zr, zi, inverse_factorial, re, im):  # type: ignore[no-untyped-def]
    """re + i im = z^k / k!."""
    pr, pi = 1.0, 0.0
    for k in range(inverse_factorial.size):
        re[k], im[k] = pr * inverse_factorial[k], pi * inverse_factorial[k]
        pr, pi = pr * zr - pi * zi, pr * zi + pi * zr


@njit(part=True)
def inverse_of(radius):  # type: ignore[no-untyped-def]
    """1 / radius, and 0 for a node whose particles coincide: they then all sit at its centre."""
    return 1.0 / radius if radius > 0.0 else 0.0


@alone("float64[::1], float64[::1], float64, float64, float64, float64[:, ::1], float64[:, ::1]")
def moments(px, py, cx, cy, inverse, up, s):  # type: ignore[no-untyped-def]
    """up[:, k] = sum_j ((z_j - c) / r)^k, real and imaginary part."""
    wide_vectors()
    n = px.size
    zr, zi, pr, pi = s[0, :n], s[1, :n], s[2, :n], s[3, :n]
    for j in range(n):
        zr[j], zi[j] = (px[j] - cx) * inverse, (py[j] - cy) * inverse
        pr[j], pi[j] = 1.0, 0.0
    for k in range(up.shape[1]):
        real = imag = 0.0
        for j in range(n):
            real += pr[j]
            imag += pi[j]
            p = pr[j] * zr[j] - pi[j] * zi[j]
            pi[j] = pr[j] * zi[j] + pi[j] * zr[j]
            pr[j] = p
        up[0, k], up[1, k] = real, imag


@alone("int64, float64[:, ::1], float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, ::1]")
def merge(a, centre, radius, factorial, up, s):  # type: ignore[no-untyped-def]
    """Moments of a node from its children's: a'_k / k! = sum_j (sigma^j a_j / j!) (d^(k - j) / (k - j)!)."""
    wide_vectors()
    p = up.shape[2]
    inverse = inverse_of(radius[a])
    dr, di, tr, ti = s[0], s[1], s[2], s[3]
    tr[:p] = 0.0
    ti[:p] = 0.0
    for b in range(2 * a + 1, 2 * a + 3):
        call(_exponential_terms, ((centre[b, 0] - centre[a, 0]) * inverse, (centre[b, 1] - centre[a, 1]) * inverse,
                                  factorial[1], dr, di))
        sigma, ratio = 1.0, radius[b] * inverse
        for j in range(p):
            br, bi = up[b, 0, j] * sigma * factorial[1, j], up[b, 1, j] * sigma * factorial[1, j]
            sigma *= ratio
            for i in range(p - j):
                tr[j + i] += br * dr[i] - bi * di[i]
                ti[j + i] += br * di[i] + bi * dr[i]
    for k in range(p):
        up[a, 0, k], up[a, 1, k] = tr[k] * factorial[0, k], ti[k] * factorial[0, k]


@alone("int64, float64[:, ::1], float64[::1], float64[:, ::1], float64[:, :, ::1], float64[:, ::1]")
def descend(a, centre, radius, factorial, local, s):  # type: ignore[no-untyped-def]
    """Add the local expansion of a node to its children's: b'_l = sigma^l / l! sum_j (b_j j!) (d^(j - l) / (j - l)!)."""
    wide_vectors()
    p = local.shape[2]
    inverse = inverse_of(radius[a])
    dr, di, tr, ti, gr, gi = s[0], s[1], s[2], s[3], s[4], s[5]
    for k in range(p):
        gr[k], gi[k] = local[a, 0, k] * factorial[0, k], local[a, 1, k] * factorial[0, k]
    for b in range(2 * a + 1, 2 * a + 3):
        call(_exponential_terms, ((centre[b, 0] - centre[a, 0]) * inverse, (centre[b, 1] - centre[a, 1]) * inverse,
                                  factorial[1], dr, di))
        tr[:p] = 0.0
        ti[:p] = 0.0
        for i in range(p):
            for l in range(p - i):
                tr[l] += dr[i] * gr[l + i] - di[i] * gi[l + i]
                ti[l] += dr[i] * gi[l + i] + di[i] * gr[l + i]
        sigma, ratio = 1.0, radius[b] * inverse
        for l in range(p):
            local[b, 0, l] += sigma * tr[l] * factorial[1, l]
            local[b, 1, l] += sigma * ti[l] * factorial[1, l]
            sigma *= ratio


@alone("float64[:, ::1], float64[:, ::1], float64[::1], float64[:, ::1], int64")
def _rotate(a, w, step, x, terms):  # type: ignore[no-untyped-def]
    """x[k] = a[k] w step^k for rows of complex numbers over (real and imaginary part, pair); w comes as row 0 of ``w``.

    Loops of constant length over two-dimensional arrays, one written in each: LLVM vectorises those (3x rows as views).
    """
    wide_vectors()
    for k in range(terms):
        now, after = k % 2, 1 - k % 2
        for j in range(PAIRS):
            x[k, j] = a[k, j] * w[now, j] - a[k, PAIRS + j] * w[now, PAIRS + j]
        for j in range(PAIRS):
            x[k, PAIRS + j] = a[k, j] * w[now, PAIRS + j] + a[k, PAIRS + j] * w[now, j]
        for j in range(PAIRS):
            w[after, j] = w[now, j] * step[j] - w[now, PAIRS + j] * step[PAIRS + j]
        for j in range(PAIRS):
            w[after, PAIRS + j] = w[now, j] * step[PAIRS + j] + w[now, PAIRS + j] * step[j]


@alone("float64[:, ::1], float64[:, ::1], int64, float64[:, ::1]")
def _combine(table, x, terms, y):  # type: ignore[no-untyped-def]
    """y[m] = sum_{k < terms - m} binom(k + m, m) x[k]; 2 x 4 entries of the table share what they load."""
    wide_vectors()
    for m in range(0, terms, 2):
        for j in range(2 * PAIRS):
            y[m, j] = 0.0
        for j in range(2 * PAIRS):
            y[m + 1, j] = 0.0
        for k in range(0, terms - m, 4):
            c0, c1, c2, c3 = table[m, k], table[m, k + 1], table[m, k + 2], table[m, k + 3]
            d0, d1, d2, d3 = table[m + 1, k], table[m + 1, k + 1], table[m + 1, k + 2], table[m + 1, k + 3]
            for j in range(2 * PAIRS):
                x0, x1, x2, x3 = x[k, j], x[k + 1, j], x[k + 2, j], x[k + 3, j]
                y[m, j] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                y[m + 1, j] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3


@alone("int64[::1], int64[::1], int64, float64[:, ::1], float64[::1], float64[:, ::1], float64[:, :, ::1], "
       "float64[:, :, ::1], float64[:, ::1], float64[:, :, ::1]")
def translate(targets, sources, terms, centre, radius, table, up, s, w, local):  # type: ignore[no-untyped-def]
    """Add to ``local`` what source nodes do in target nodes, each pair with ``terms`` terms k + m.

    Pairs are the vector. s holds the moments of all sources, and (r_B / T)^k a_k, over (k, real and imaginary part, pair).
    """
    count = sources.size
    a, x = s[0], s[1]
    step, inverse = w[2], w[3]
    for j in range(count):
        here, there = targets[j], sources[j]
        dx, dy = centre[here, 0] - centre[there, 0], centre[here, 1] - centre[there, 1]
        square = 1.0 / (dx * dx + dy * dy)
        inverse[j], inverse[PAIRS + j] = dx * square, -dy * square  # 1 / T
        step[j], step[PAIRS + j] = radius[there] * inverse[j], radius[there] * inverse[PAIRS + j]
        w[0, j], w[0, PAIRS + j] = 1.0, 0.0
        for k in range(terms):
            a[k, j], a[k, PAIRS + j] = up[there, 0, k], up[there, 1, k]
    call(_rotate, (a, w, step, x, terms))
    x[terms:terms + 3] = 0.0
    call(_combine, (table, x, terms, a))
    for j in range(count):  # now (-r_A / T)^m / T
        r = -radius[targets[j]]
        step[j], step[PAIRS + j] = r * inverse[j], r * inverse[PAIRS + j]
        w[0, j], w[0, PAIRS + j] = inverse[j], inverse[PAIRS + j]
    call(_rotate, (a, w, step, x, terms))
    for j in range(count):
        here = targets[j]
        for m in range(terms):
            local[here, 0, m] += x[m, j]
            local[here, 1, m] += x[m, PAIRS + j]


@alone("float64[::1], float64[::1], float64, float64, float64, float64[:, ::1], float64[:, ::1], float64[::1], float64[::1]")
def evaluate(px, py, cx, cy, inverse, local, s, fx, fy):  # type: ignore[no-untyped-def]
    """Force at particles from the local expansion of their leaf (Horner): its conjugate."""
    wide_vectors()
    n = px.size
    zr, zi, pr, pi = s[0, :n], s[1, :n], s[2, :n], s[3, :n]
    for j in range(n):
        zr[j], zi[j] = (px[j] - cx) * inverse, (py[j] - cy) * inverse
        pr[j] = pi[j] = 0.0
    for m in range(local.shape[1] - 1, -1, -1):
        br, bi = local[0, m], local[1, m]
        for j in range(n):
            p = pr[j] * zr[j] - pi[j] * zi[j] + br
            pi[j] = pr[j] * zi[j] + pi[j] * zr[j] + bi
            pr[j] = p
    for j in range(n):
        fx[j], fy[j] = pr[j], -pi[j]
