"""Fast pair sums of the logarithm in the plane: an adaptive complex multipole method with a bound on its error.

With z = x + i y the force on particle k is the complex conjugate of sum_l 1 / (z_k - z_l). For discs of radius r_A, r_B about
c_A, c_B, and T = c_A - c_B, a source at c_B + v does to a target at c_A + u

    1 / (T + u - v) = sum_{k, m} (-1)^m binom(k + m, m) v^k u^m / T^(k + m + 1),

whose terms with k + m >= P are at most rho^P / (1 - rho) of the first, rho = (r_A + r_B) / |T|. So each far pair of tree nodes
(trees.py) takes as many terms as its own rho needs for the tolerance, and the bound holds for all points. The matrix of binomials
is real and the same for all pairs; only powers of r / T differ. Near pairs are summed directly, with softening and core.

Far pairs do without softening, which changes a force at distance R by (softening / R)^2: the caller asks for a clearance that
makes this small. Source: Greengard and Rokhlin (1987); the tree halves particles along the longer side of their box.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield._numba import njit, prange, wide_vectors
from meanfield.kernels.trees import edge

__all__ = ["binomials", "cross", "fall", "plant", "rise"]

# below this q the force is linear in the displacement: products of four q must not underflow (distances below 1e-35)
_TINY = 1e-70
_TASKS = 64  # more than the threads that can matter
_CUT = 5  # subtrees below this level are tasks
_PAIRS = 64  # far pairs worked on side by side


def binomials(order):  # type: ignore[no-untyped-def]
    """binom(k + m, m) over (k, m) with room for a block of four beyond ``order``; k! and 1 / k! over k."""
    size = order + 4
    table = np.ones((size, size))
    for k in range(1, size):
        table[k] = np.cumsum(table[k - 1])
    factorial = np.array([math.factorial(k) for k in range(order)], dtype=np.float64)
    return table, np.stack([factorial, 1.0 / factorial])


@njit()
def _select(key, other, order, low, high, k):  # type: ignore[no-untyped-def]
    """Reorder low .. high - 1 of all three so that no key before k is above one from k on (Hoare's quickselect)."""
    while high - low > 1:
        a, b, c = key[low], key[(low + high) >> 1], key[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high - 1
        while i <= j:
            while key[i] < pivot:
                i += 1
            while key[j] > pivot:
                j -= 1
            if i <= j:
                key[i], key[j] = key[j], key[i]
                other[i], other[j] = other[j], other[i]
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if k <= j:
            high = j + 1
        elif k >= i:
            low = i
        else:
            return


@njit()
def _split(i, level, depth, px, py, order, centre, radius):  # type: ignore[no-untyped-def]
    """Centre and radius of a node; then halve its particles along the longer side."""
    wide_vectors()
    n = px.size
    j0, j1 = edge(i, level, n), edge(i + 1, level, n)
    left = right = px[j0]
    bottom = top = py[j0]
    for j in range(j0, j1):
        left, right = min(left, px[j]), max(right, px[j])
        bottom, top = min(bottom, py[j]), max(top, py[j])
    a = (1 << level) - 1 + i
    cx, cy = left + 0.5 * (right - left), bottom + 0.5 * (top - bottom)
    r2 = 0.0
    for j in range(j0, j1):
        r2 = max(r2, (px[j] - cx) ** 2 + (py[j] - cy) ** 2)
    centre[a, 0], centre[a, 1], radius[a] = cx, cy, math.sqrt(r2)
    if level < depth:
        middle = edge(2 * i + 1, level + 1, n)
        if right - left >= top - bottom:
            _select(px, py, order, j0, j1, middle)
        else:
            _select(py, px, order, j0, j1, middle)


@njit()
def _split_task(task, level, depth, px, py, order, centre, radius):  # type: ignore[no-untyped-def]
    run = task >> level
    _split(task - (run << level), level, depth, px[run], py[run], order[run], centre[run], radius[run])


@njit(parallel=True)
def plant(px, py, order, depth, centre, radius):  # type: ignore[no-untyped-def]
    """Bring positions px, py over (run, particle) and their ``order`` into the tree's order; centre and radius of all nodes."""
    for level in range(depth + 1):
        for task in prange(px.shape[0] << level):
            _split_task(np.int64(task), level, depth, px, py, order, centre, radius)


@njit()
def _exponential_terms(zr, zi, inverse_factorial, re, im):  # type: ignore[no-untyped-def]
    """re + i im = z^k / k!."""
    pr, pi = 1.0, 0.0
    for k in range(inverse_factorial.size):
        re[k], im[k] = pr * inverse_factorial[k], pi * inverse_factorial[k]
        pr, pi = pr * zr - pi * zi, pr * zi + pi * zr


@njit(inline=True)
def _inverse(radius):  # type: ignore[no-untyped-def]
    """1 / radius, and 0 for a node whose particles coincide: they then all sit at its centre."""
    return 1.0 / radius if radius > 0.0 else 0.0


@njit()
def _moments(px, py, cx, cy, inverse, up, s):  # type: ignore[no-untyped-def]
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


@njit()
def _merge(a, centre, radius, factorial, up, s):  # type: ignore[no-untyped-def]
    """Moments of a node from its children's: a'_k / k! = sum_j (sigma^j a_j / j!) (d^(k - j) / (k - j)!)."""
    wide_vectors()
    p = up.shape[2]
    inverse = _inverse(radius[a])
    dr, di, tr, ti = s[0], s[1], s[2], s[3]
    tr[:p] = 0.0
    ti[:p] = 0.0
    for b in range(2 * a + 1, 2 * a + 3):
        _exponential_terms((centre[b, 0] - centre[a, 0]) * inverse, (centre[b, 1] - centre[a, 1]) * inverse, factorial[1], dr, di)
        sigma, ratio = 1.0, radius[b] * inverse
        for j in range(p):
            br, bi = up[b, 0, j] * sigma * factorial[1, j], up[b, 1, j] * sigma * factorial[1, j]
            sigma *= ratio
            for i in range(p - j):
                tr[j + i] += br * dr[i] - bi * di[i]
                ti[j + i] += br * di[i] + bi * dr[i]
    for k in range(p):
        up[a, 0, k], up[a, 1, k] = tr[k] * factorial[0, k], ti[k] * factorial[0, k]


@njit()
def _descend(a, centre, radius, factorial, local, s):  # type: ignore[no-untyped-def]
    """Add the local expansion of a node to its children's: b'_l = sigma^l / l! sum_j (b_j j!) (d^(j - l) / (j - l)!)."""
    wide_vectors()
    p = local.shape[2]
    inverse = _inverse(radius[a])
    dr, di, tr, ti, gr, gi = s[0], s[1], s[2], s[3], s[4], s[5]
    for k in range(p):
        gr[k], gi[k] = local[a, 0, k] * factorial[0, k], local[a, 1, k] * factorial[0, k]
    for b in range(2 * a + 1, 2 * a + 3):
        _exponential_terms((centre[b, 0] - centre[a, 0]) * inverse, (centre[b, 1] - centre[a, 1]) * inverse, factorial[1], dr, di)
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


@njit()
def _rotate(a, w, step, x, terms):  # type: ignore[no-untyped-def]
    """x[k] = a[k] w step^k for rows of complex numbers over (real and imaginary part, pair); w comes as row 0 of ``w``.

    Loops of constant length over two-dimensional arrays, one written in each: LLVM vectorises those (three times rows as views).
    """
    wide_vectors()
    for k in range(terms):
        now, after = k % 2, 1 - k % 2
        for j in range(_PAIRS):
            x[k, j] = a[k, j] * w[now, j] - a[k, _PAIRS + j] * w[now, _PAIRS + j]
        for j in range(_PAIRS):
            x[k, _PAIRS + j] = a[k, j] * w[now, _PAIRS + j] + a[k, _PAIRS + j] * w[now, j]
        for j in range(_PAIRS):
            w[after, j] = w[now, j] * step[j] - w[now, _PAIRS + j] * step[_PAIRS + j]
        for j in range(_PAIRS):
            w[after, _PAIRS + j] = w[now, j] * step[_PAIRS + j] + w[now, _PAIRS + j] * step[j]


@njit()
def _combine(table, x, terms, y):  # type: ignore[no-untyped-def]
    """y[m] = sum_{k < terms - m} binom(k + m, m) x[k]; 2 x 4 entries of the table share what they load."""
    wide_vectors()
    for m in range(0, terms, 2):
        for j in range(2 * _PAIRS):
            y[m, j] = 0.0
        for j in range(2 * _PAIRS):
            y[m + 1, j] = 0.0
        for k in range(0, terms - m, 4):
            c0, c1, c2, c3 = table[m, k], table[m, k + 1], table[m, k + 2], table[m, k + 3]
            d0, d1, d2, d3 = table[m + 1, k], table[m + 1, k + 1], table[m + 1, k + 2], table[m + 1, k + 3]
            for j in range(2 * _PAIRS):
                x0, x1, x2, x3 = x[k, j], x[k + 1, j], x[k + 2, j], x[k + 3, j]
                y[m, j] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                y[m + 1, j] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3


@njit()
def _translate(targets, sources, terms, centre, radius, table, up, s, w, local):  # type: ignore[no-untyped-def]
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
        inverse[j], inverse[_PAIRS + j] = dx * square, -dy * square  # 1 / T
        step[j], step[_PAIRS + j] = radius[there] * inverse[j], radius[there] * inverse[_PAIRS + j]
        w[0, j], w[0, _PAIRS + j] = 1.0, 0.0
        for k in range(terms):
            a[k, j], a[k, _PAIRS + j] = up[there, 0, k], up[there, 1, k]
    _rotate(a, w, step, x, terms)
    x[terms:terms + 3] = 0.0
    _combine(table, x, terms, a)
    for j in range(count):  # now (-r_A / T)^m / T
        r = -radius[targets[j]]
        step[j], step[_PAIRS + j] = r * inverse[j], r * inverse[_PAIRS + j]
        w[0, j], w[0, _PAIRS + j] = inverse[j], inverse[_PAIRS + j]
    _rotate(a, w, step, x, terms)
    for j in range(count):
        here = targets[j]
        for m in range(terms):
            local[here, 0, m] += x[m, j]
            local[here, 1, m] += x[m, _PAIRS + j]


@njit()
def _across(task, all_centre, all_radius, table, all_up, all_local, all_start, far, log_tolerance):  # type: ignore[no-untyped-def]
    """What the far nodes do in a node, for every _TASKS-th node (interleaved for balance)."""
    run, first = task // _TASKS, task % _TASKS
    centre, radius, up, local, far_start = all_centre[run], all_radius[run], all_up[run], all_local[run], all_start[run]
    order = up.shape[2]
    total = 0
    for a in range(first, radius.size, _TASKS):
        total += far_start[a + 1] - far_start[a]
    # all pairs, sorted by the number of terms they need, so that those of one block need the same
    needs, place = np.empty(total, np.int64), np.zeros(order + 2, np.int64)
    j = 0
    for a in range(first, radius.size, _TASKS):
        for entry in range(far_start[a], far_start[a + 1]):
            b = far[entry]
            distance = math.sqrt((centre[a, 0] - centre[b, 0]) ** 2 + (centre[a, 1] - centre[b, 1]) ** 2)
            rho = (radius[a] + radius[b]) / distance
            need = 1
            if rho > 0.0:
                need = min(order, max(1, math.ceil((log_tolerance + math.log((1.0 - rho) / (1.0 + rho))) / math.log(rho))))
            needs[j] = need
            place[need + 1] += 1
            j += 1
    for need in range(1, order + 2):
        place[need] += place[need - 1]
    targets, sources, terms = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    j = 0
    for a in range(first, radius.size, _TASKS):
        for entry in range(far_start[a], far_start[a + 1]):
            at = place[needs[j]]
            place[needs[j]] += 1
            targets[at], sources[at], terms[at] = a, far[entry], needs[j]
            j += 1
    s, w = np.zeros((2, order + 4, 2 * _PAIRS)), np.zeros((4, 2 * _PAIRS))
    for low in range(0, total, _PAIRS):
        high = min(low + _PAIRS, total)
        _translate(targets[low:high], sources[low:high], terms[high - 1], centre, radius, table, up, s, w, local)


@njit()
def _sweep(tx, ty, sx, sy, softening2, core2, fx, fy):  # type: ignore[no-untyped-def]
    """fx, fy [i] += sum_j (target_i - source_j) / q_ij; four targets share one division."""
    wide_vectors()
    floor = max(core2, _TINY)
    n = sx.size
    done = tx.size - tx.size % 4
    for i in range(0, done, 4):
        x0, x1, x2, x3 = tx[i], tx[i + 1], tx[i + 2], tx[i + 3]
        y0, y1, y2, y3 = ty[i], ty[i + 1], ty[i + 2], ty[i + 3]
        f0 = f1 = f2 = f3 = g0 = g1 = g2 = g3 = 0.0
        for j in range(n):
            u0, u1, u2, u3 = x0 - sx[j], x1 - sx[j], x2 - sx[j], x3 - sx[j]
            v0, v1, v2, v3 = y0 - sy[j], y1 - sy[j], y2 - sy[j], y3 - sy[j]
            q0, q1 = max(u0 * u0 + v0 * v0 + softening2, floor), max(u1 * u1 + v1 * v1 + softening2, floor)
            q2, q3 = max(u2 * u2 + v2 * v2 + softening2, floor), max(u3 * u3 + v3 * v3 + softening2, floor)
            q01, q23 = q0 * q1, q2 * q3
            w = 1.0 / (q01 * q23)
            w01, w23 = w * q23, w * q01
            w0, w1, w2, w3 = w01 * q1, w01 * q0, w23 * q3, w23 * q2
            f0 += w0 * u0
            g0 += w0 * v0
            f1 += w1 * u1
            g1 += w1 * v1
            f2 += w2 * u2
            g2 += w2 * v2
            f3 += w3 * u3
            g3 += w3 * v3
        fx[i] += f0
        fx[i + 1] += f1
        fx[i + 2] += f2
        fx[i + 3] += f3
        fy[i] += g0
        fy[i + 1] += g1
        fy[i + 2] += g2
        fy[i + 3] += g3
    for i in range(done, tx.size):
        x0, y0 = tx[i], ty[i]
        f0 = g0 = 0.0
        for j in range(n):
            u0, v0 = x0 - sx[j], y0 - sy[j]
            w = 1.0 / max(u0 * u0 + v0 * v0 + softening2, floor)
            f0 += w * u0
            g0 += w * v0
        fx[i] += f0
        fy[i] += g0


@njit()
def _evaluate(px, py, cx, cy, inverse, local, s, fx, fy):  # type: ignore[no-untyped-def]
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


@njit()
def _up(task, cut, depth, all_px, all_py, all_centre, all_radius, factorial, all_up):  # type: ignore[no-untyped-def]
    """Moments of the nodes below one node of level ``cut``."""
    run, subtree = task >> cut, task & ((1 << cut) - 1)
    px, py, centre, radius, up = all_px[run], all_py[run], all_centre[run], all_radius[run], all_up[run]
    n, first_leaf = px.size, (1 << depth) - 1
    s = np.empty((4, max((n >> depth) + 8, up.shape[2])))
    for i in range(subtree << (depth - cut), (subtree + 1) << (depth - cut)):
        a, j0, j1 = first_leaf + i, edge(i, depth, n), edge(i + 1, depth, n)
        _moments(px[j0:j1], py[j0:j1], centre[a, 0], centre[a, 1], _inverse(radius[a]), up[a], s)
    for level in range(depth - 1, cut - 1, -1):
        for i in range(subtree << (level - cut), (subtree + 1) << (level - cut)):
            _merge((1 << level) - 1 + i, centre, radius, factorial, up, s)


@njit()
def _down(task, cut, depth, all_px, all_py, all_centre, all_radius, factorial, all_local, all_start, near, longest, law, all_order,
          scale, all_out):  # type: ignore[no-untyped-def]
    """Bring the local expansions of a subtree to its particles and add the near leaves."""
    run, subtree = task >> cut, task & ((1 << cut) - 1)
    px, py, centre, radius, local = all_px[run], all_py[run], all_centre[run], all_radius[run], all_local[run]
    near_start, order, out = all_start[run], all_order[run], all_out[run]
    softening2, core2 = law
    n, first_leaf = px.size, (1 << depth) - 1
    size = (n >> depth) + 8
    s, fx, fy = np.empty((6, max(size, local.shape[2]))), np.empty(size), np.empty(size)
    sx, sy = np.empty(longest * size), np.empty(longest * size)
    for level in range(cut, depth):
        for i in range(subtree << (level - cut), (subtree + 1) << (level - cut)):
            _descend((1 << level) - 1 + i, centre, radius, factorial, local, s)
    for i in range(subtree << (depth - cut), (subtree + 1) << (depth - cut)):
        a, j0, j1 = first_leaf + i, edge(i, depth, n), edge(i + 1, depth, n)
        _evaluate(px[j0:j1], py[j0:j1], centre[a, 0], centre[a, 1], _inverse(radius[a]), local[a], s, fx, fy)
        m = 0
        for entry in range(near_start[i], near_start[i + 1]):
            for j in range(edge(near[entry], depth, n), edge(near[entry] + 1, depth, n)):
                sx[m], sy[m] = px[j], py[j]
                m += 1
        _sweep(px[j0:j1], py[j0:j1], sx[:m], sy[:m], softening2, core2, fx, fy)
        for j in range(j0, j1):
            out[order[j], 0] += scale * fx[j - j0]
            out[order[j], 1] += scale * fy[j - j0]


@njit()
def _top(run, cut, centre, radius, factorial, expansions, downwards):  # type: ignore[no-untyped-def]
    """The few nodes above level ``cut``, whose subtrees are separate tasks."""
    s = np.empty((6, expansions.shape[3]))
    last = (1 << cut) - 2
    for i in range(last + 1):
        if downwards:
            _descend(i, centre[run], radius[run], factorial, expansions[run], s)
        else:
            _merge(last - i, centre[run], radius[run], factorial, expansions[run], s)


@njit(parallel=True)
def rise(px, py, depth, centre, radius, factorial, up):  # type: ignore[no-untyped-def]
    """up[run, node] = moments of the node's particles, (real, imaginary) over order."""
    cut = min(depth, _CUT)
    for task in prange(px.shape[0] << cut):
        _up(np.int64(task), cut, depth, px, py, centre, radius, factorial, up)
    for run in range(px.shape[0]):
        _top(run, cut, centre, radius, factorial, up, False)


@njit(parallel=True)
def cross(centre, radius, table, up, far_start, far, log_tolerance, local):  # type: ignore[no-untyped-def]
    """local[run, node] = Taylor coefficients of what the node's far nodes do there, to a relative tolerance."""
    for task in prange(radius.shape[0] * _TASKS):
        _across(np.int64(task), centre, radius, table, up, local, far_start, far, log_tolerance)


@njit(parallel=True)
def fall(px, py, order, depth, centre, radius, factorial, near_start, near, longest, law, scale, local, out):  # type: ignore[no-untyped-def]
    """out[run, order[run, k]] += scale times (what its nodes feel at particle k, and its near leaves)."""
    cut = min(depth, _CUT)
    for run in range(px.shape[0]):
        _top(run, cut, centre, radius, factorial, local, True)
    for task in prange(px.shape[0] << cut):
        _down(np.int64(task), cut, depth, px, py, centre, radius, factorial, local, near_start, near, longest, law, order, scale,
              out)
