"""Fast pair sums of the logarithm in the plane: an adaptive complex multipole method with a bound on its error.

Far pairs of tree nodes meet through the expansions of plane_expansions.py, each with as many terms as its own distance needs
for the tolerance; near pairs are summed directly, with softening and core. Far pairs do without softening, which changes a
force at distance R by (softening / R)^2: the caller asks trees.py for a clearance that makes this small.

``plant`` builds the tree (particles halved along the longer side of their box), ``rise`` the moments of all nodes, ``cross``
what far nodes do to each other, ``fall`` the forces.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meanfield._checks import Array
from meanfield._numba import call, njit, wide_vectors
from meanfield._tasks import alone, share, task
from meanfield.kernels.plane_expansions import PAIRS, descend, evaluate, inverse_of, merge, moments, translate
from meanfield.kernels.trees import edge

__all__ = ["cross", "fall", "plant", "rise"]

# below this q the force is linear in the displacement: products of four q must not underflow (distances below 1e-35)
_TINY = 1e-70
_TASKS = 64  # more than the threads that can matter
_CUT = 5  # subtrees below this level are tasks


@njit(part=True)
def _pivot(key, low, high, k, sample):  # type: ignore[no-untyped-def]
    """A guess of the key that belongs at k: the same quantile of a sample."""
    size = min(sample.size, max(3, (high - low) >> 4))
    for i in range(size):
        value = key[low + ((high - low - 1) * i) // (size - 1)]
        j = i
        while j > 0 and sample[j - 1] > value:
            sample[j] = sample[j - 1]
            j -= 1
        sample[j] = value
    return sample[((k - low) * size) // (high - low)]


@alone("float64[::1], float64[::1], int64[::1], int64, int64, int64")
def _select(key, other, order, low, high, k):  # type: ignore[no-untyped-def]
    """Reorder low .. high - 1 of all three so that no key before k is above one from k on (Hoare's quickselect)."""
    sample = np.empty(63)
    while high - low > 1:
        pivot = _pivot(key, low, high, k, sample)
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


@task("int64, int64, float64[:, ::1], float64[:, ::1], int64[:, ::1], float64[:, :, ::1], float64[:, ::1]")
def _split(number, level, depth, all_px, all_py, all_order, all_centre, all_radius):  # type: ignore[no-untyped-def]
    """Centre and radius of a node; then halve its particles along the longer side."""
    wide_vectors()
    run = number >> level
    px, py, order, centre, radius = all_px[run], all_py[run], all_order[run], all_centre[run], all_radius[run]
    i, n = number - (run << level), px.size
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
            call(_select, (px, py, order, j0, j1, middle))
        else:
            call(_select, (py, px, order, j0, j1, middle))


@task("float64[:, :, ::1], float64[:, ::1], float64[:, ::1], float64[:, :, :, ::1], float64[:, :, :, ::1], int64[:, ::1], "
      "int32[::1], float64")
def _across(number, all_centre, all_radius, table, all_up, all_local, all_start, far, log_tolerance):  # type: ignore[no-untyped-def]
    """What the far nodes do in a node, for every _TASKS-th node (interleaved for balance)."""
    run, first = number // _TASKS, number % _TASKS
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
    s, w = np.zeros((2, order + 4, 2 * PAIRS)), np.zeros((4, 2 * PAIRS))
    for low in range(0, total, PAIRS):
        high = min(low + PAIRS, total)
        call(translate, (targets[low:high], sources[low:high], terms[high - 1], centre, radius, table, up, s, w, local))


@alone("float64[::1], float64[::1], float64[::1], float64[::1], float64, float64, float64[::1], float64[::1]")
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


# Nodes of a level are the roots of subtrees, and each subtree below it a task: first those of level ``cut`` down to the
# leaves, then the few nodes above as one. Tasks share out nodes and change no number.


@task("int64, int64, int64, int64, float64[:, ::1], float64[:, ::1], float64[:, :, ::1], float64[:, ::1], float64[:, ::1], "
      "float64[:, :, :, ::1]")
def _up(number, depth, top, bottom, leaves, all_px, all_py, all_centre,  # type: ignore[no-untyped-def]
        all_radius, factorial, all_up):
    """Moments of the nodes of levels bottom - 1 to top below one node of level ``top``, with ``leaves`` the leaves first."""
    run, subtree = number >> top, number & ((1 << top) - 1)
    px, py, centre, radius, up = all_px[run], all_py[run], all_centre[run], all_radius[run], all_up[run]
    n, first_leaf = px.size, (1 << depth) - 1
    s = np.empty((4, max((n >> depth) + 8, up.shape[2])))
    if leaves:
        for i in range(subtree << (depth - top), (subtree + 1) << (depth - top)):
            a, j0, j1 = first_leaf + i, edge(i, depth, n), edge(i + 1, depth, n)
            call(moments, (px[j0:j1], py[j0:j1], centre[a, 0], centre[a, 1], inverse_of(radius[a]), up[a], s))
    for level in range(bottom - 1, top - 1, -1):
        for i in range(subtree << (level - top), (subtree + 1) << (level - top)):
            call(merge, ((1 << level) - 1 + i, centre, radius, factorial, up, s))


@task("int64, int64, float64[:, :, ::1], float64[:, ::1], float64[:, ::1], float64[:, :, :, ::1]")
def _down(number, top, bottom, all_centre, all_radius, factorial, all_local):  # type: ignore[no-untyped-def]
    """Bring the local expansion of a node of level ``top`` down to level ``bottom``."""
    run, subtree = number >> top, number & ((1 << top) - 1)
    centre, radius, local = all_centre[run], all_radius[run], all_local[run]
    s = np.empty((6, local.shape[2]))
    for level in range(top, bottom):
        for i in range(subtree << (level - top), (subtree + 1) << (level - top)):
            call(descend, ((1 << level) - 1 + i, centre, radius, factorial, local, s))


@task("int64, int64, float64[:, ::1], float64[:, ::1], float64[:, :, ::1], float64[:, ::1], float64[:, :, :, ::1], "
      "int64[:, ::1], int32[::1], int64, float64, float64, int64[:, ::1], float64, float64[:, :, ::1]")
def _near(number, cut, depth, all_px, all_py, all_centre, all_radius, all_local,  # type: ignore[no-untyped-def]
          all_start, near, longest, softening2, core2, all_order, scale, all_out):
    """Forces on the particles below a node of level ``cut``: the expansions of their leaves, and the near leaves."""
    run, subtree = number >> cut, number & ((1 << cut) - 1)
    px, py, centre, radius, local = all_px[run], all_py[run], all_centre[run], all_radius[run], all_local[run]
    near_start, order, out = all_start[run], all_order[run], all_out[run]
    n, first_leaf = px.size, (1 << depth) - 1
    size = (n >> depth) + 8
    s, fx, fy = np.empty((4, size)), np.empty(size), np.empty(size)
    sx, sy = np.empty(longest * size), np.empty(longest * size)
    for i in range(subtree << (depth - cut), (subtree + 1) << (depth - cut)):
        a, j0, j1 = first_leaf + i, edge(i, depth, n), edge(i + 1, depth, n)
        call(evaluate, (px[j0:j1], py[j0:j1], centre[a, 0], centre[a, 1], inverse_of(radius[a]), local[a], s, fx, fy))
        m = 0
        for entry in range(near_start[i], near_start[i + 1]):
            for j in range(edge(near[entry], depth, n), edge(near[entry] + 1, depth, n)):
                sx[m], sy[m] = px[j], py[j]
                m += 1
        call(_sweep, (px[j0:j1], py[j0:j1], sx[:m], sy[:m], softening2, core2, fx, fy))
        for j in range(j0, j1):
            out[order[j], 0] += scale * fx[j - j0]
            out[order[j], 1] += scale * fy[j - j0]


def plant(px: Array, py: Array, order: Any, depth: int, centre: Array, radius: Array) -> None:
    """Bring positions px, py over (run, particle) and ``order`` into the tree's order; centre and radius of all nodes."""
    for level in range(depth + 1):
        share(_split, len(px) << level, level, depth, px, py, order, centre, radius)


def rise(px: Array, py: Array, depth: int, centre: Array, radius: Array, factorial: Array, up: Array) -> None:
    """up[run, node] = moments of the node's particles, (real, imaginary) over order."""
    cut = min(depth, _CUT)
    for top, bottom, leaves in ((cut, depth, True), (0, cut, False)):
        share(_up, len(px) << top, depth, top, bottom, leaves, px, py, centre, radius, factorial, up)


def cross(centre: Array, radius: Array, table: Array, up: Array, far_start: Any, far: Any, log_tolerance: float,
          local: Array) -> None:
    """local[run, node] = Taylor coefficients of what the node's far nodes do there, to a relative tolerance."""
    share(_across, len(radius) * _TASKS, centre, radius, table, up, local, far_start, far, log_tolerance)


def fall(px: Array, py: Array, order: Any, depth: int, centre: Array, radius: Array, factorial: Array, near_start: Any,
         near: Any, longest: int, law: tuple[float, float], scale: float, local: Array, out: Array) -> None:
    """out[run, order[run, k]] += scale times (what its nodes feel at particle k, and its near leaves)."""
    cut = min(depth, _CUT)
    for top, bottom in ((0, cut), (cut, depth)):
        share(_down, len(px) << top, top, bottom, centre, radius, factorial, local)
    share(_near, len(px) << cut, cut, depth, px, py, centre, radius, local, near_start, near, longest, *law, order,
          scale, out)
