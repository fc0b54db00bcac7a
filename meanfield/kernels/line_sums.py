"""Fast pair sums on the line for any kernel of ``interactions.PairLaw``, softening and core included.

O(N) after a sort, with an error that falls geometrically with the order p. Far pairs of tree nodes (trees.py) are
interpolated at p Chebyshev points on both sides: a node's particles become p weights (``rise``), weights become p values of
force at other nodes (``cross``), values become forces on particles (``fall``). The force between the points is the kernel
itself, no expansion of it is needed, so softening is as exact as the rest. Near pairs are summed directly. For s = -1 see
sorted_sums.py.

Positions are taken relative to the nodes' centres throughout: clusters of width 1e-12 lose no digits.

Source: Fong and Darve (2009), the black-box fast multipole method; tree by particle counts instead of boxes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meanfield._checks import Array
from meanfield._numba import call, njit, wide_vectors
from meanfield._tasks import alone, share, task
from meanfield.kernels.powers import power
from meanfield.kernels.trees import edge

__all__ = ["chebyshev", "cross", "fall", "plant", "rise"]

_LOGARITHM = 0
# below this q the force is linear in the displacement: products of four q must not underflow (distances below 1e-35)
_TINY = 1e-70
_TASKS = 64  # more than the threads that can matter
_CUT = 5  # subtrees below this level are tasks


def chebyshev(order: int) -> tuple[Array, Array]:
    """Chebyshev points x_i of [-1, 1] and the matrix (2 - [n = 0]) / p T_n(x_i) over (n, i)."""
    angle = (2 * np.arange(order) + 1) * np.pi / (2 * order)
    matrix = np.cos(np.outer(np.arange(order), angle)) * (2.0 / order)
    matrix[0] *= 0.5
    return np.cos(angle), matrix


@alone("float64[::1], float64[::1], float64[::1], int64, float64, float64, float64, float64[::1]")
def _sweep(targets, y, w, family, exponent, softening2, core2, out):  # type: ignore[no-untyped-def]
    """out[i] += sum_j w[j] weight(q_ij) (targets[i] - y[j]); four targets share one division."""
    wide_vectors()
    floor = max(core2, _TINY)
    n_sources = y.size
    done = 0
    if family == _LOGARITHM:
        done = targets.size - targets.size % 4
        for i in range(0, done, 4):
            x0, x1, x2, x3 = targets[i], targets[i + 1], targets[i + 2], targets[i + 3]
            f0 = f1 = f2 = f3 = 0.0
            for j in range(n_sources):
                d0, d1, d2, d3 = x0 - y[j], x1 - y[j], x2 - y[j], x3 - y[j]
                q0, q1 = max(d0 * d0 + softening2, floor), max(d1 * d1 + softening2, floor)
                q2, q3 = max(d2 * d2 + softening2, floor), max(d3 * d3 + softening2, floor)
                q01, q23 = q0 * q1, q2 * q3
                v = w[j] / (q01 * q23)
                v01, v23 = v * q23, v * q01
                f0 += v01 * q1 * d0
                f1 += v01 * q0 * d1
                f2 += v23 * q3 * d2
                f3 += v23 * q2 * d3
            out[i] += f0
            out[i + 1] += f1
            out[i + 2] += f2
            out[i + 3] += f3
    for i in range(done, targets.size):
        x0, f0 = targets[i], 0.0
        for j in range(n_sources):
            d0 = x0 - y[j]
            f0 += w[j] * d0 * power(max(d0 * d0 + softening2, floor), exponent)
        out[i] += f0


@alone("float64[::1], float64[::1], int64, float64[:, ::1], float64[::1], float64[:, ::1]")
def _anterpolate(t, w, n, matrix, out, scratch):  # type: ignore[no-untyped-def]
    """out[i] = weights at the Chebyshev points of [-1, 1] that stand for weights w at t (adjoint of interpolation)."""
    wide_vectors()
    order = out.size
    before, now = scratch[0, :n], scratch[1, :n]
    out[:] = 0.0
    for j in range(n):
        before[j], now[j] = t[j], 1.0  # T_-1 and T_0
    for k in range(order):
        moment = 0.0
        for j in range(n):
            moment += w[j] * now[j]
            after = 2.0 * t[j] * now[j] - before[j]
            before[j], now[j] = now[j], after
        for i in range(order):
            out[i] += matrix[k, i] * moment


@alone("float64[::1], float64[::1], int64, float64[:, ::1], float64[::1], float64[:, ::1]")
def _interpolate(values, t, n, matrix, out, scratch):  # type: ignore[no-untyped-def]
    """out[j] += the polynomial through ``values`` at the Chebyshev points, at t[j] (Clenshaw's recurrence)."""
    wide_vectors()
    order = values.size
    before, now = scratch[0, :n], scratch[1, :n]
    before[:] = 0.0
    now[:] = 0.0
    for k in range(order - 1, 0, -1):
        c = 0.0
        for i in range(order):
            c += matrix[k, i] * values[i]
        for j in range(n):
            after = c + 2.0 * t[j] * now[j] - before[j]
            before[j], now[j] = now[j], after
    c = 0.0
    for i in range(order):
        c += matrix[0, i] * values[i]
    for j in range(n):
        out[j] += c + t[j] * now[j] - before[j]


@task("float64[:, ::1], int64, float64[:, :, ::1], float64[:, ::1]")
def _plant(run, xs, depth, centre, radius):  # type: ignore[no-untyped-def]
    """Centre and radius of every node of a run."""
    n = xs.shape[1]
    first_leaf = (1 << depth) - 1
    for i in range(1 << depth):
        low, high = xs[run, edge(i, depth, n)], xs[run, edge(i + 1, depth, n) - 1]
        middle = low + 0.5 * (high - low)
        centre[run, first_leaf + i, 0] = middle
        radius[run, first_leaf + i] = max(middle - low, high - middle)
    for a in range(first_leaf - 1, -1, -1):
        one, two = 2 * a + 1, 2 * a + 2
        low, high = centre[run, one, 0] - radius[run, one], centre[run, two, 0] + radius[run, two]
        middle = low + 0.5 * (high - low)
        centre[run, a, 0] = middle
        # the union of the children's intervals, not of the particles: interpolation must never extrapolate
        radius[run, a] = max(middle - centre[run, one, 0] + radius[run, one],
                             centre[run, two, 0] - middle + radius[run, two])


@njit(part=True)
def _inverse(radius):  # type: ignore[no-untyped-def]
    """1 / radius, and 0 for a node whose particles coincide: they then all sit at its centre."""
    return 1.0 / radius if radius > 0.0 else 0.0


@alone("int64, float64[:, ::1], float64[::1], float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], float64[::1], "
       "float64[:, ::1]")
def _merge(a, centre, radius, points, matrix, up, t, w, scratch):  # type: ignore[no-untyped-def]
    """Weights of a node from those of its two children."""
    p = points.size
    for which in range(2):
        child = 2 * a + 1 + which
        for i in range(p):
            t[which * p + i] = (centre[child, 0] - centre[a, 0] + radius[child] * points[i]) * _inverse(radius[a])
            w[which * p + i] = up[child, i]
    call(_anterpolate, (t, w, 2 * p, matrix, up[a], scratch))


@alone("int64, float64[:, ::1], float64[::1], float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], float64[:, ::1]")
def _descend(a, centre, radius, points, matrix, local, t, scratch):  # type: ignore[no-untyped-def]
    """Add what a node feels to what its two children feel."""
    for child in range(2 * a + 1, 2 * a + 3):
        for i in range(points.size):
            t[i] = (centre[child, 0] - centre[a, 0] + radius[child] * points[i]) * _inverse(radius[a])
        call(_interpolate, (local[a], t, points.size, matrix, local[child], scratch))


# Nodes of a level are the roots of subtrees, and each subtree below it a task: first those of level ``cut`` down to the
# leaves, then the few nodes above as one. Tasks share out nodes and change no number.


@task("int64, int64, int64, int64, float64[:, ::1], float64[:, :, ::1], float64[:, ::1], float64[::1], float64[:, ::1], "
      "float64[:, :, ::1]")
def _up(number, depth, top, bottom, leaves, all_xs, all_centre, all_radius,  # type: ignore[no-untyped-def]
        points, matrix, all_up):
    """Every node's particles as weights at its Chebyshev points: levels bottom - 1 to top below one node of level ``top``.

    With ``leaves`` the leaves first, from their particles.
    """
    run, subtree = number >> top, number & ((1 << top) - 1)
    xs, centre, radius, up = all_xs[run], all_centre[run], all_radius[run], all_up[run]
    n, p, first_leaf = xs.size, points.size, (1 << depth) - 1
    size = max((n >> depth) + 8, 2 * p)
    t, w, scratch = np.empty(size), np.ones(size), np.empty((2, size))
    if leaves:
        for i in range(subtree << (depth - top), (subtree + 1) << (depth - top)):
            a, j0, j1 = first_leaf + i, edge(i, depth, n), edge(i + 1, depth, n)
            for j in range(j0, j1):
                t[j - j0] = (xs[j] - centre[a, 0]) * _inverse(radius[a])
            call(_anterpolate, (t, w, j1 - j0, matrix, up[a], scratch))
    for level in range(bottom - 1, top - 1, -1):
        for i in range(subtree << (level - top), (subtree + 1) << (level - top)):
            call(_merge, ((1 << level) - 1 + i, centre, radius, points, matrix, up, t, w, scratch))


@task("float64[:, :, ::1], float64[:, ::1], float64[::1], float64[:, :, ::1], float64[:, :, ::1], int64[:, ::1], "
      "int32[::1], int64, int64, float64, float64, float64")
def _across(number, all_centre, all_radius, points, all_up, all_local, all_start, far, longest,  # type: ignore[no-untyped-def]
            family, exponent, softening2, core2):
    """What the far nodes do at a node's Chebyshev points, for every _TASKS-th node (interleaved for balance)."""
    run, first = number // _TASKS, number % _TASKS
    centre, radius, up, local, far_start = all_centre[run], all_radius[run], all_up[run], all_local[run], all_start[run]
    p = points.size
    y, w, t = np.empty(longest * p), np.empty(longest * p), np.empty(p)
    for a in range(first, radius.size, _TASKS):
        if far_start[a + 1] > far_start[a]:
            m = 0
            for entry in range(far_start[a], far_start[a + 1]):
                b = far[entry]
                shift = centre[b, 0] - centre[a, 0]
                for i in range(p):
                    y[m + i] = shift + radius[b] * points[i]
                    w[m + i] = up[b, i]
                m += p
            for i in range(p):
                t[i] = radius[a] * points[i]
            call(_sweep, (t, y[:m], w[:m], family, exponent, softening2, core2, local[a]))


@task("int64, int64, float64[:, :, ::1], float64[:, ::1], float64[::1], float64[:, ::1], float64[:, :, ::1]")
def _down(number, top, bottom, all_centre, all_radius, points, matrix, all_local):  # type: ignore[no-untyped-def]
    """Bring what a node of level ``top`` feels down to level ``bottom``."""
    run, subtree = number >> top, number & ((1 << top) - 1)
    centre, radius, local = all_centre[run], all_radius[run], all_local[run]
    t, scratch = np.empty(points.size), np.empty((2, points.size))
    for level in range(top, bottom):
        for i in range(subtree << (level - top), (subtree + 1) << (level - top)):
            call(_descend, ((1 << level) - 1 + i, centre, radius, points, matrix, local, t, scratch))


@task("int64, int64, float64[:, ::1], float64[:, :, ::1], float64[:, ::1], float64[:, ::1], float64[:, :, ::1], "
      "int64[:, ::1], int32[::1], int64, int64, float64, float64, float64, int64[:, ::1], float64, float64[:, :, ::1]")
def _near(number, cut, depth, all_xs, all_centre, all_radius, matrix, all_local,  # type: ignore[no-untyped-def]
          all_start, near, longest, family, exponent, softening2, core2, all_order, scale, all_out):
    """Forces on the particles below a node of level ``cut``: what their leaves feel, and the near leaves."""
    run, subtree = number >> cut, number & ((1 << cut) - 1)
    xs, centre, radius, local = all_xs[run], all_centre[run], all_radius[run], all_local[run]
    near_start, order, out = all_start[run], all_order[run], all_out[run]
    n, first_leaf = xs.size, (1 << depth) - 1
    size = (n >> depth) + 8
    t, scratch, force = np.empty(size), np.empty((2, size)), np.empty(size)
    y, w = np.empty(longest * size), np.ones(longest * size)
    for i in range(subtree << (depth - cut), (subtree + 1) << (depth - cut)):
        a, j0, j1 = first_leaf + i, edge(i, depth, n), edge(i + 1, depth, n)
        for j in range(j0, j1):
            t[j - j0] = (xs[j] - centre[a, 0]) * _inverse(radius[a])
        force[:] = 0.0
        call(_interpolate, (local[a], t, j1 - j0, matrix, force, scratch))
        m = 0
        for entry in range(near_start[i], near_start[i + 1]):
            for j in range(edge(near[entry], depth, n), edge(near[entry] + 1, depth, n)):
                y[m] = xs[j]
                m += 1
        call(_sweep, (xs[j0:j1], y[:m], w[:m], family, exponent, softening2, core2, force))
        for j in range(j0, j1):
            out[order[j], 0] += scale * force[j - j0]


def plant(xs: Array, depth: int, centre: Array, radius: Array) -> None:
    """Centre and radius of every node over (run, node), for sorted positions xs over (run, particle)."""
    share(_plant, len(xs), xs, depth, centre, radius)


def rise(xs: Array, depth: int, centre: Array, radius: Array, points: Array, matrix: Array, up: Array) -> None:
    """up[run, node] = weights at the node's Chebyshev points for its particles."""
    cut = min(depth, _CUT)
    for top, bottom, leaves in ((cut, depth, True), (0, cut, False)):
        share(_up, len(xs) << top, depth, top, bottom, leaves, xs, centre, radius, points, matrix, up)


def cross(centre: Array, radius: Array, points: Array, up: Array, far_start: Any, far: Any, longest: int,
          law: tuple[int, float, float, float], local: Array) -> None:
    """local[run, node] += what its far nodes do at its Chebyshev points."""
    share(_across, len(radius) * _TASKS, centre, radius, points, up, local, far_start, far, longest, *law)


def fall(xs: Array, order: Any, depth: int, centre: Array, radius: Array, points: Array, matrix: Array, near_start: Any,
         near: Any, longest: int, law: tuple[int, float, float, float], scale: float, local: Array, out: Array) -> None:
    """out[run, order[run, k], 0] += scale times (what its nodes feel at particle k, and its near leaves)."""
    cut = min(depth, _CUT)
    for top, bottom in ((0, cut), (cut, depth)):
        share(_down, len(xs) << top, top, bottom, centre, radius, points, matrix, local)
    share(_near, len(xs) << cut, cut, depth, xs, centre, radius, matrix, local, near_start, near, longest, *law, order,
          scale, out)
