"""Pair sums: forces and energies of the interaction families of ``interactions.PairLaw``, for many runs at once.

Direct sums over all pairs, each pair met once (``pair_loops`` holds the inner loops, ``pair_weights`` the families). A
pair at squared distance q = max(d^2 + softening2, core2) feels weight(q) times its displacement; below ``core2`` the
weight stays at weight(core2), which makes the force of a pair that the time step cannot resolve linear, and a coincident
pair feels nothing.

Runs of up to 32 particles are put side by side instead, and large clouds of 24 components or more go through
``product_pairs``; which form a run takes depends on its own positions and sizes alone.

Order of the sums: particles are cut into blocks by their number alone, and blocks meet as teams in a round-robin
tournament. No two meetings of a round share a block, so threads never write to the same number, and each block adds its
meetings in the order of the rounds: the result does not depend on the number of threads. Scratch memory: positions and
forces once more, component by component (16 bytes for each component: 5 MB for 100,000 particles in space), for each run
that is being worked on. Small work stays on one thread; many small runs are shared out whole.

Distances below 1e-36 and above 1e36 (powers of q beyond float64), and |s| above 6, take slower loops without products of
four; squared distances that underflow (below 1e-162) count as coincident.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meanfield._numba import active_threads, call, njit, prange
from meanfield._tasks import share, task
from meanfield.kernels.pair_loops import FLAT, LANES, energies_of_rows, forces_across_runs, forces_between_blocks
from meanfield.kernels.pair_weights import LOW, SPRING, Weight, energy_weight, force_weight
from meanfield.kernels.product_pairs import add_product_forces, product_pays, product_sized
from meanfield.kernels.tournament import pair_at_table

__all__ = ["add_pair_forces", "pair_energies"]

# one run below this many particles is one block: waking a second thread costs more than it brings
_ONE_BLOCK_BELOW = 3_000
# Up to so many particles runs are put side by side, eight of them in a register (10,000 runs of 16: 1.8 times faster)
_ACROSS_RUNS_UP_TO = 32
# runs are worked off in so many pieces at most, and on one thread below so many pairs
_PIECES = 64
_ONE_THREAD_BELOW = 200_000
_ROWS = 256  # rows of a piece of an energy


def add_pair_forces(x: Any, family: int, coupling: float, s: float, softening2: float, core2: float, out: Any) -> None:
    """out[r, k] += coupling sum_{l != k} weight(|x_k - x_l|^2) (x_k - x_l), for x over (run, particle, component).

    The weight is 1 / q (LOGARITHM), |s| q^(-s/2-1) (POWER) or -1 (SPRING). Relative error below 1e-13 of the sum of
    magnitudes (3e-13 for distances far from 1). No force of a run with a position that is not finite is finite.
    """
    if family == SPRING:
        _add_spring_forces(x, coupling, out)
        return
    if not (x.flags.c_contiguous and out.flags.c_contiguous):
        total = np.ascontiguousarray(out)
        add_pair_forces(np.ascontiguousarray(x), family, coupling, s, softening2, core2, total)
        out[...] = total
        return
    weight, power, factor = force_weight(family, s)
    for part, safe in _parts(x, weight, max(softening2, core2)):
        arguments = (coupling * factor, power, float(softening2), float(core2) if safe else max(core2, LOW))
        if not safe:
            part = _without_products(x, part, weight, *arguments, out)
        across = not safe and x.shape[1] <= _ACROSS_RUNS_UP_TO and x.shape[2] <= FLAT
        kernel = forces_across_runs(weight, x.shape[2]) if across else forces_between_blocks(weight, x.shape[2], safe)
        add = _forces_across_runs if across else _forces_of_runs
        if part is None:
            add(kernel, x, *arguments, out)
        else:
            chosen = out[part]
            add(kernel, x[part], *arguments, chosen)
            out[part] = chosen


def _without_products(x: Any, part: Any, weight: Weight, scale: float, power: float, soft: float, floor: float,
                      out: Any) -> Any:
    """Sum the runs for which matrix products are faster; the runs that are left, None for all."""
    if not product_sized(x[0]):
        return part
    chosen = [run for run in (range(len(x)) if part is None else part) if product_pays(x[run])]
    if not chosen:
        return part
    for run in chosen:
        add_product_forces(x[run], weight, scale, power, soft, floor, out[run])
    return np.setdiff1d(np.arange(len(x)) if part is None else part, chosen)


def _forces_of_runs(kernel: Any, x: Any, scale: float, power: float, soft: float, floor: float, out: Any) -> None:
    runs, n, dim = x.shape
    size = _block_size(n)
    several = active_threads() > 1 and runs * n * n >= _ONE_THREAD_BELOW
    if several and size < n:
        columns, forces = _scratch(2, dim, n)
        for run in range(runs):
            _run_in_blocks(kernel, x[run], scale, power, soft, floor, size, columns, forces, out[run])
    else:
        pieces = min(runs, _PIECES) if several else 1
        share(_runs_in_turn, pieces, kernel, pieces, x, scale, power, soft, floor, size, _scratch(2 * pieces, dim, n), out)


def _forces_across_runs(kernel: Any, x: Any, scale: float, power: float, soft: float, floor: float, out: Any) -> None:
    runs, n, dim = x.shape
    bundles = -(-runs // LANES)
    several = active_threads() > 1 and runs * n * n >= _ONE_THREAD_BELOW and bundles > 1
    pieces = min(bundles, _PIECES) if several else 1
    work = _aligned((pieces, 2 * n * dim * LANES))
    share(_bundles_in_turn, pieces, kernel, pieces, x, scale, power, soft, floor, work, out)


def pair_energies(x: Any, family: int, coupling: float, s: float, softening2: float, rows: Any, out: Any) -> None:
    """out[r] += sum_{k < l} g(|x_k - x_l|); ``rows`` over (run, particle) is scratch, summed in index order.

    A coincident pair of a singular kernel (s >= 0, no softening) makes the sum infinite, a position that is not finite NaN.
    """
    if family == SPRING:
        _add_spring_energies(x, coupling, out)
        return
    weight, power, factor, coincident = energy_weight(family, s)
    runs, n, dim = x.shape
    columns = _scratch(1, dim, n)[0]
    nearest = np.empty((-(-n // _ROWS), 1))
    loop = _energy_in_pieces if active_threads() > 1 and n * n >= _ONE_THREAD_BELOW else _energy_in_turn
    sums = np.empty(runs)
    for part, safe in _parts(x, weight, softening2):
        chosen = np.arange(runs) if part is None else part
        kernel = energies_of_rows(weight, dim, safe)
        loop(kernel, x, chosen, power, float(softening2), 0.0 if safe else LOW, coincident, columns, nearest, rows, sums)
    # the powers work on the bits of q, those of NaN included
    sums[~np.isfinite(x).all(axis=(1, 2))] = math.nan
    out += coupling * factor * sums


def _parts(x: Any, weight: Weight, smallest: float) -> list[tuple[Any, bool]]:
    """(runs or None for all, whether they need the safe loops), decided run by run."""
    if weight.always_safe:
        return [(None, True)]
    if _ordinary(x.reshape(-1), smallest < LOW):
        return [(None, False)]
    ordinary = np.array([_ordinary(x[run].reshape(-1), smallest < LOW) for run in range(len(x))])
    return [(np.flatnonzero(chosen), safe) for chosen, safe in ((ordinary, False), (~ordinary, True)) if chosen.any()]


@njit()
def _ordinary(flat, unsoftened):  # type: ignore[no-untyped-def]
    """Whether every squared distance between different positions is surely in [LOW, HIGH].

    Two numbers closer than 2^-120 that are not equal are both below 2^-66, as float64 has 53 bits.
    """
    wrong = 0
    for i in range(flat.size):
        size = abs(flat[i])
        wrong += size > 2.0**110
        wrong += unsoftened and size < 2.0**-66 and size != 0.0
    return wrong == 0


def _block_size(n: int) -> int:
    """Particles in a block: a multiple of 8 that depends on n alone; about 16 blocks, or blocks of 1024 for large n."""
    if n < _ONE_BLOCK_BELOW:
        return max(n, 1)
    return min(max(-(-n // 128) * 8, 256), 1024)


def _scratch(count: int, dim: int, n: int) -> Any:
    """``count`` arrays (component, particle) as the kernels want them; each row starts at a multiple of 64 bytes.

    That is the width of a register and of a cache line; the components are padded if the kernel takes them by fours.
    """
    return _aligned((count, dim if dim <= FLAT else -(-dim // 4) * 4, -(-n // 8) * 8))


def _aligned(shape: tuple[int, ...]) -> Any:
    memory = np.zeros(math.prod(shape) + 8)
    skip = -(memory.ctypes.data // 8) % 8
    return memory[skip:skip + math.prod(shape)].reshape(shape)


@njit(inline=True)
def _load(positions, columns, forces):  # type: ignore[no-untyped-def]
    n, dim = positions.shape
    forces[:] = 0.0
    for k in range(n):
        for a in range(dim):
            columns[a, k] = positions[k, a]


@njit(inline=True)
def _unload(columns, scale, out):  # type: ignore[no-untyped-def]
    n, dim = out.shape
    for k in range(n):
        for a in range(dim):
            out[k, a] += scale * columns[a, k]


@njit(inline=True)
def _meet(kernel, turn, table, size, n, power, soft, floor, columns, forces):  # type: ignore[no-untyped-def]
    """The two blocks that meet at a table in a turn of the tournament."""
    blocks = -(-n // size)
    one, two = pair_at_table(turn, table, blocks)
    if two < blocks:
        last = min(two * size + size, n)
        call(kernel, (columns, forces, one * size, one * size + size, two * size, last, power, soft, floor))


@njit(inline=True)
def _stay(kernel, block, size, n, power, soft, floor, columns, forces):  # type: ignore[no-untyped-def]
    """The pairs inside one block."""
    first, last = block * size, min(block * size + size, n)
    call(kernel, (columns, forces, first, last, first, last, power, soft, floor))


@task("int64, int64, float64[:, :, ::1], float64, float64, float64, float64, int64, float64[:, :, ::1], float64[:, :, ::1]")
def _runs_in_turn(piece, kernel, pieces, x, scale, power, soft, floor, size, work, out):  # type: ignore[no-untyped-def]
    runs, n, dim = x.shape
    columns, forces = work[2 * piece], work[2 * piece + 1]
    blocks = -(-n // size)
    for run in range(piece * runs // pieces, (piece + 1) * runs // pieces):
        for k in range(n):
            for a in range(dim):
                columns[a, k], forces[a, k] = x[run, k, a], 0.0
        for turn in range(-1, blocks + blocks % 2 - 1):
            # first every block with itself
            for table in range((blocks + 1) // 2 if turn >= 0 else blocks):
                one, two = pair_at_table(turn, table, blocks) if turn >= 0 else (table, table)
                if two < blocks:
                    i0, j0 = one * size, two * size
                    call(kernel, (columns, forces, i0, min(i0 + size, n), j0, min(j0 + size, n), power, soft, floor))
        for k in range(n):
            for a in range(dim):
                out[run, k, a] += scale * forces[a, k]


@njit(parallel=True)
def _run_in_blocks(kernel, x, scale, power, soft, floor, size, columns, forces, out):  # type: ignore[no-untyped-def]
    n = x.shape[0]
    blocks = -(-n // size)
    _load(x, columns, forces)
    for block in prange(blocks):
        _stay(kernel, np.int64(block), size, n, power, soft, floor, columns, forces)
    for turn in range(blocks + blocks % 2 - 1):
        for table in prange((blocks + 1) // 2):
            _meet(kernel, turn, np.int64(table), size, n, power, soft, floor, columns, forces)
    _unload(forces, scale, out)


@task("int64, int64, float64[:, :, ::1], float64, float64, float64, float64, float64[:, ::1], float64[:, :, ::1]")
def _bundles_in_turn(piece, kernel, pieces, x, scale, power, soft, floor, all_work, out):  # type: ignore[no-untyped-def]
    runs, n, dim = x.shape
    bundles, work = -(-runs // LANES), all_work[piece]
    for bundle in range(piece * bundles // pieces, (piece + 1) * bundles // pieces):
        run = bundle * LANES
        there = min(LANES, runs - run)
        work[:] = 0.0
        for k in range(n):
            for a in range(dim):
                row = work[(2 * k * dim + a) * LANES:(2 * k * dim + a + 1) * LANES]
                for r in range(there):
                    row[r] = x[run + r, k, a]
        call(kernel, (work, n, -(-there // 8) * 8, power, soft, floor))
        for k in range(n):
            for a in range(dim):
                row = work[((2 * k + 1) * dim + a) * LANES:((2 * k + 1) * dim + a + 1) * LANES]
                for r in range(there):
                    out[run + r, k, a] += scale * row[r]


@njit()
def _piece_of_rows(kernel, piece, n, power, soft, floor, columns, nearest, rows):  # type: ignore[no-untyped-def]
    call(kernel, (columns, piece * _ROWS, min(piece * _ROWS + _ROWS, n), power, soft, floor, rows, nearest[piece]))


@njit(inline=True)
def _sum_of_rows(nearest, coincident, rows):  # type: ignore[no-untyped-def]
    for piece in range(nearest.shape[0]):
        if nearest[piece, 0] == 0.0 and coincident != 0.0:
            return coincident
    total = 0.0
    for k in range(rows.size):
        total += rows[k]
    return total


@njit()
def _energy_in_turn(kernel, x, chosen, power, soft, floor, coincident, columns, nearest, rows, out):  # type: ignore[no-untyped-def]
    for run in chosen:
        _load(x[run], columns, columns[:0])
        for piece in range(nearest.shape[0]):
            _piece_of_rows(kernel, piece, x.shape[1], power, soft, floor, columns, nearest, rows[run])
        out[run] = _sum_of_rows(nearest, coincident, rows[run])


@njit(parallel=True)
def _energy_in_pieces(kernel, x, chosen, power, soft, floor, coincident, columns, nearest, rows, out):  # type: ignore[no-untyped-def]
    pieces = nearest.shape[0]
    for run in chosen:
        _load(x[run], columns, columns[:0])
        for index in prange((pieces + 1) // 2):
            # late rows are long: a piece from the front and one from the back make equal work
            half = np.int64(index)
            _piece_of_rows(kernel, half, x.shape[1], power, soft, floor, columns, nearest, rows[run])
            if half != pieces - 1 - half:
                _piece_of_rows(kernel, pieces - 1 - half, x.shape[1], power, soft, floor, columns, nearest, rows[run])
        out[run] = _sum_of_rows(nearest, coincident, rows[run])


def _add_spring_forces(x: Any, coupling: float, out: Any) -> None:
    """All springs pull towards the centre: sum_l (x_l - x_k) = N (mean - x_k).

    NumPy, not a loop: the compiler may take the first particle out of the differences again, and with it the digits of a
    narrow cloud far from the origin.
    """
    near = x - x[:, :1]
    out += coupling * x.shape[1] * (near.mean(axis=1, keepdims=True) - near)


def _add_spring_energies(x: Any, coupling: float, out: Any) -> None:
    """sum_{k < l} |x_k - x_l|^2 / 2 = N / 2 sum_k |x_k - mean|^2."""
    near = x - x[:, :1]
    out += 0.5 * coupling * x.shape[1] * np.square(near - near.mean(axis=1, keepdims=True)).sum(axis=(1, 2))
