"""Pair forces in many dimensions by matrix products: the form that is faster than ``pair_loops`` from 24 components on.

For a tile of pairs, G = X Y^T gives r^2 = x^2 + y^2 - 2 G, G is overwritten with the weights W, and the forces are
x sum_j W_ij - (W Y)_i on the rows and y sum_i W_ij - (W^T X)_j on the columns, so that each pair is met once. Measured at 32
components and 10,000 particles in the same rounds: 0.39 against 0.29 billion ordered pairs a second.

r^2 loses the digits of close pairs, and so does the force. Positions are taken from the cloud's centre, and pairs with
r^2 <= (x^2 + y^2) / 8, a particle and itself included, are left out of W and summed one by one from their own difference.
The error of r^2 is then below 32 units in the last place, which |exponent| <= 4 (``pair_weights``) makes 128: 3e-14 for a
pair at worst, a few units for a sum over many. Clouds with many such pairs are left to ``pair_loops``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from meanfield._numba import active_threads, call, njit, prange, thread_id
from meanfield._tasks import kernel
from meanfield.kernels.pair_loops import NAMES, expand
from meanfield.kernels.pair_weights import Weight
from meanfield.kernels.tournament import pair_at_table

__all__ = ["add_product_forces", "product_pays", "product_sized"]

# OpenBLAS multiplies small matrices, of at most so many multiplications, without packing them first: 75 against 35 Gflop/s
# for 160 x 160 x 32 and 256 x 256 x 32 (peak 86 to 95)
_SMALL_PRODUCT = 1_000_000
# components and particles from which the product form is the faster one (bench/pairs.py)
_LEAST_DIM, _LEAST_PARTICLES = 24, 1_500
# an evenly spaced sample of the cloud, and the share of close pairs from which pairs one by one cost too much (estimated)
_SAMPLE, _MOST_CLOSE = 64, 0.03

# G becomes W. Four rows share a division, as in ``pair_loops``; rows that are no four are summed one by one, as are close
# pairs, which are marked by -1. All rows of g have a known distance, without which the loop would not be vectorised.
_WEIGHTS_OF_PRODUCTS = """
def {name}(g, x, f, squares, sums, i0, i1, j0, j1, power, soft, floor):
    wide_vectors()
    y2 = squares[j0:j1]
    nobody = np.zeros(SIDE)
    column = nobody[:j1 - j0] if i0 == j0 else sums[j0:j1]
    for i in range(0, i1 - i0, 4):
        g$u = g[(i + $u) * SIDE:(i + $u) * SIDE + j1 - j0]
        x2$u = squares[min(i0 + i + $u, i1 - 1)]
        close = s$u = 0.0
        if i0 + i + 3 < i1:
            for j in range(j1 - j0):
                _m$u = x2$u + y2[j]
                q$u = _m$u - 2.0 * g$u[j]
                far$u = q$u > 0.125 * _m$u
                close += 0.0 if far0 and far1 and far2 and far3 else 1.0
                q$u = soft + (q$u if far$u else 1.0)
                q$u = q$u if q$u > floor else floor
                WEIGHTS
                g$u[j] = w$u if far$u else -1.0
                w$u = w$u if far$u else 0.0
                s$u += w$u
                column[j] += (w0 + w1) + (w2 + w3)
            sums[i0 + i + $u] += s$u
        else:
            close = 1.0
            g$u[:] = -1.0
        if close > 0.0:
            for k in range(i, min(i + 4, i1 - i0)):
                row = g[k * SIDE:k * SIDE + j1 - j0]
                for j in range(j1 - j0):
                    if row[j] < 0.0:
                        row[j] = 0.0
                        q0 = 0.0
                        for a in range(x.shape[1]):
                            q0 += (x[i0 + k, a] - x[j0 + j, a]) * (x[i0 + k, a] - x[j0 + j, a])
                        q0 = soft + q0
                        q0 = q0 if q0 > floor else floor
                        q1 = q2 = q3 = 1.0
                        WEIGHTS
                        for a in range(x.shape[1]):
                            push = w0 * (x[i0 + k, a] - x[j0 + j, a])
                            f[i0 + k, a] += push
                            if i0 != j0:
                                f[j0 + j, a] -= push
        for u in range(4):
            g[(i + u) * SIDE + j1 - j0:(i + u + 1) * SIDE] = 0.0
"""
_ARGUMENTS = ("float64[::1], float64[:, ::1], float64[:, ::1], float64[::1], float64[::1], int64, int64, int64, int64, "
              "float64, float64, float64")


def _side(dim: int) -> int:
    """Particles on each side of a tile."""
    return min(max(int((_SMALL_PRODUCT / dim) ** 0.5) // 16 * 16, 48), 160)


@functools.cache
def _weights_of_products(weight: Weight, side: int) -> Any:
    name = f"products_{weight.name}_{side}"
    source = expand(_WEIGHTS_OF_PRODUCTS.replace("{name}", name), {"WEIGHTS": weight.fast}, {"u": 4})
    return kernel(name, source, NAMES | {"SIDE": side}, _ARGUMENTS)


def product_sized(x: Any) -> bool:
    """Whether so many particles and components, (particle, component), are enough for the product form."""
    return bool(x.shape[1] >= _LEAST_DIM and x.shape[0] >= _LEAST_PARTICLES)


def product_pays(x: Any) -> bool:
    """Whether the positions of one run, (particle, component), are such that the product form is the faster one."""
    if not product_sized(x):
        return False
    n = len(x)
    few = x[:: -(-n // _SAMPLE)] - x.mean(axis=0)
    square = np.square(few).sum(axis=1)
    both = square[:, None] + square
    close = both - 2.0 * few @ few.T <= 0.125 * both
    return bool(close.sum() - len(few) <= _MOST_CLOSE * close.size)


def add_product_forces(x: Any, weight: Weight, scale: float, power: float, soft: float, floor: float, out: Any) -> None:
    """out[k] += scale sum_l w(max(|x_k - x_l|^2 + soft, floor)) (x_k - x_l), x and out over (particle, component).

    For weights and positions to which the fast lines of ``pair_weights`` apply.
    """
    n, dim = x.shape
    side = _side(dim)
    blocks = -(-n // side)
    near = np.zeros((blocks, side, dim))
    flat = near.reshape(-1, dim)
    np.subtract(x, x.mean(axis=0), out=flat[:n])
    turned = np.ascontiguousarray(np.swapaxes(near, 1, 2))  # half as fast without
    squares, sums, forces = np.square(flat).sum(axis=1), np.zeros(len(flat)), np.zeros(flat.shape)
    work = np.empty((active_threads(), side * (side + dim)))
    run = _all_tiles if len(work) > 1 else _all_tiles_in_turn
    run(_weights_of_products(weight, side), np.ascontiguousarray(x), near, turned, squares, sums, forces, power, soft, floor,
        work)
    out += scale * (sums[:n, None] * flat[:n] + forces[:n])


@njit()
def _tile(kernel, one, two, x, near, turned, squares, sums, forces, power, soft, floor, work):  # type: ignore[no-untyped-def]
    n, dim = x.shape
    side = near.shape[1]
    i0, j0 = one * side, two * side
    flat = work[:side * side]
    weights = flat.reshape(side, side)
    pull = work[side * side:].reshape(side, dim)
    np.dot(near[one], turned[two], weights)
    call(kernel, (flat, x, forces, squares, sums, i0, min(i0 + side, n), j0, min(j0 + side, n), power, soft, floor))
    np.dot(weights, near[two], pull)
    forces[i0:i0 + side] -= pull
    if one != two:
        np.dot(weights.T, near[one], pull)
        forces[j0:j0 + side] -= pull


@njit()
def _all_tiles_in_turn(kernel, x, near, turned, squares, sums, forces, power, soft, floor, work):  # type: ignore[no-untyped-def]
    blocks = near.shape[0]
    for block in range(blocks):
        _tile(kernel, block, block, x, near, turned, squares, sums, forces, power, soft, floor, work[0])
    for turn in range(blocks + blocks % 2 - 1):
        for table in range((blocks + 1) // 2):
            one, two = pair_at_table(turn, table, blocks)
            if two < blocks:
                _tile(kernel, one, two, x, near, turned, squares, sums, forces, power, soft, floor, work[0])


@njit(parallel=True)
def _all_tiles(kernel, x, near, turned, squares, sums, forces, power, soft, floor, work):  # type: ignore[no-untyped-def]
    blocks = near.shape[0]
    for block in prange(blocks):
        own, here = work[thread_id()], np.int64(block)
        _tile(kernel, here, here, x, near, turned, squares, sums, forces, power, soft, floor, own)
    for turn in range(blocks + blocks % 2 - 1):
        for table in prange((blocks + 1) // 2):
            own = work[thread_id()]
            one, two = pair_at_table(turn, np.int64(table), blocks)
            if two < blocks:
                _tile(kernel, one, two, x, near, turned, squares, sums, forces, power, soft, floor, own)
