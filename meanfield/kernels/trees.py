"""Binary trees of equal particle counts, and who meets whom in them: what fast sums on the line and in the plane share.

Every node splits its particles into two halves, so a tree over n particles has the same shape whatever the points are:
node ``i`` of level ``l`` holds the particles edge(i, l, n) up to edge(i + 1, l, n) of the tree's order and has the heap
index 2^l - 1 + i. Clusters need no special care: nodes are small where particles are dense.

Two nodes of a level are far from each other when expansions of their balls (centre, radius) converge:

    radius_a + radius_b + spread max(radius_a, radius_b) <= ratio |centre_a - centre_b|

and the balls are at least ``clearance`` apart. A node's far list holds the nodes that are far from it and were not yet
far one level up; its near list the rest. Together they hold every pair of particles exactly once. The trees of several
runs make a forest: arrays over (run, node), and lists one after another.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield._numba import njit

__all__ = ["edge", "forest_lists", "tree_depth"]

# a tree whose leaves have more neighbours than this on average saves nothing: the caller takes the direct sum
_MOST_NEIGHBOURS = 1000


def tree_depth(n: int, leaf: float) -> int:
    """Levels below the root so that leaves hold about ``leaf`` particles (between 1 / sqrt 2 and sqrt 2 of that)."""
    return max(0, round(math.log2(n / leaf))) if n > leaf else 0


@njit(part=True)
def edge(i, level, n):  # type: ignore[no-untyped-def]
    """First particle of node i: nodes hold a multiple of four, the stride of the loops (the last one takes the rest)."""
    return n if i == 1 << level else ((i * (n >> 2)) >> level) << 2


@njit(part=True)
def _grow(array, used, wanted):  # type: ignore[no-untyped-def]
    """The same array, or a longer copy that has room for ``wanted`` entries."""
    if wanted <= array.size:
        return array
    longer = np.empty(max(wanted, 2 * array.size), np.int32)
    for i in range(used):
        longer[i] = array[i]
    return longer


@njit()
def forest_lists(centre, radius, depth, spread, ratio, clearance):  # type: ignore[no-untyped-def]
    """Far lists of all nodes and near lists of the leaves: entries start[run, i] up to start[run, i + 1], heap indices.

    centre over (run, node, component), radius over (run, node). Returns (far_start, far, near_start, near, longest_far,
    longest_near). Where ``longest_far`` is -1, some run's points are such that no tree helps (see _MOST_NEIGHBOURS). A node
    that meets only its own coincident particles has no near list: their forces are zero.
    """
    n_runs, n_nodes, dim = centre.shape
    n_leaves = 1 << depth
    far_start, near_start = np.zeros((n_runs, n_nodes + 1), np.int64), np.zeros((n_runs, n_leaves + 1), np.int64)
    far, near = np.empty(8 * n_runs * n_nodes, np.int32), np.empty(8 * n_runs * n_leaves, np.int32)
    before, now = np.empty(8 * n_leaves, np.int32), np.empty(8 * n_leaves, np.int32)
    before_start, now_start = np.zeros(n_leaves + 1, np.int64), np.zeros(n_leaves + 1, np.int64)
    n_far = n_near = longest_far = longest_near = 0
    for run in range(n_runs):
        if clearance > 0.25 * radius[run, 0] and depth > 0:
            return far_start, far, near_start, near, -1, 0
        now[0], now_start[1] = 0, 1 if radius[run, 0] > 0.0 else 0
        far_start[run, 0] = far_start[run, 1] = n_far
        for level in range(1, depth + 1):
            before, now = now, before
            before_start, now_start = now_start, before_start
            first, n_now = (1 << level) - 1, 0
            for i in range(1 << level):
                a, parent = first + i, i >> 1
                most = 2 * (before_start[parent + 1] - before_start[parent])
                far, now = _grow(far, n_far, n_far + most), _grow(now, n_now, n_now + most)
                for entry in range(before_start[parent], before_start[parent + 1]):
                    for b in range(2 * before[entry] + 1, 2 * before[entry] + 3):
                        distance2 = 0.0
                        for k in range(dim):
                            distance2 += (centre[run, a, k] - centre[run, b, k]) ** 2
                        distance = math.sqrt(distance2)
                        both = radius[run, a] + radius[run, b]
                        reach = both + spread * max(radius[run, a], radius[run, b])
                        if distance > 0.0 and reach <= ratio * distance and distance - both >= clearance:
                            far[n_far] = b
                            n_far += 1
                        elif distance > 0.0 or both > 0.0:
                            now[n_now] = b
                            n_now += 1
                now_start[i + 1] = n_now
                far_start[run, a + 1] = n_far
                longest_far = max(longest_far, n_far - far_start[run, a])
            if n_now > _MOST_NEIGHBOURS << level:
                return far_start, far, near_start, near, -1, 0
        near = _grow(near, n_near, n_near + now_start[n_leaves])
        near_start[run, 0] = n_near
        for i in range(n_leaves):
            for entry in range(now_start[i], now_start[i + 1]):
                near[n_near] = now[entry] - (n_leaves - 1)
                n_near += 1
            near_start[run, i + 1] = n_near
            longest_near = max(longest_near, n_near - near_start[run, i])
    return far_start, far, near_start, near, longest_far, longest_near
