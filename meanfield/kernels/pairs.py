"""Pair sums: forces and energies of the interaction families of ``interactions.PairLaw``, for many runs at once.

Direct sums over all pairs, each pair met once (``pair_loops`` holds the inner loops, ``pair_weights`` the families). A
pair at squared distance q = max(d^2 + softening2, core2) feels weight(q) times its displacement; below ``core2`` the
weight stays at weight(core2), which makes the force of a pair that the time step cannot resolve linear, and a coincident
pair feels nothing.

Order of the sums: particles are cut into blocks by their number alone, and blocks meet as teams in a round-robin
tournament. No two meetings of a round share a block, so threads never write to the same number, and each block adds its
meetings in the order of the rounds: the result does not depend on the number of threads. Scratch memory: positions and
forces once more, component by component (16 bytes for each component: 5 MB for 100,000 particles in space), for each run
that is being worked on. Small work stays on one thread; many small runs are shared out whole.

Distances below 1e-36 and above 1e36 (powers of q beyond float64), and |s| above 6, take slower loops without products of
four; squared distances that underflow (below 1e-162) count as coincident.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from meanfield._numba import active_threads, njit, njit_source, prange
from meanfield.kernels.pair_loops import FLAT, energies_of_rows, forces_between_blocks
from meanfield.kernels.pair_weights import HIGH, LOW, SPRING, Weight, energy_weight, force_weight

__all__ = ["add_pair_forces", "pair_energies"]

# one run below this many particles is one block: waking a second thread costs more than it brings
_ONE_BLOCK_BELOW = 3_000
# runs are worked off in so many pieces at most, and on one thread below so many pairs
_PIECES = 64
_ONE_THREAD_BELOW = 200_000


def add_pair_forces(x: Any, family: int, coupling: float, s: float, softening2: float, core2: float, out: Any) -> None:
    """out[r, k] += coupling sum_{l != k} weight(|x_k - x_l|^2) (x_k - x_l), for x over (run, particle, component).

    The weight is 1 / q (LOGARITHM), |s| q^(-s/2-1) (POWER) or -1 (SPRING). Relative error below 1e-13 of the sum of
    magnitudes. A position that is not finite makes its run's forces NaN.
    """
    if family == SPRING:
        _add_spring_forces(x, coupling, out)
        return
    weight, power, factor = force_weight(family, s)
    scale = coupling * factor
    for part, safe in _parts(x, weight, max(softening2, core2)):
        here = x if part is None else x[part]
        into = out if part is None else out[part]
        _run_forces(here, weight, safe, scale, power, softening2, core2 if safe else max(core2, LOW), into)
        if part is not None:
            out[part] = into


def _run_forces(x: Any, weight: Weight, safe: bool, scale: float, power: float, soft: float, floor: float, out: Any) -> None:
    runs, n, dim = x.shape
    size = _block_size(n)
    threads = active_threads() > 1
    if size < n and threads:
        loop = _forces_loop(weight, dim, safe, "in_blocks")
        for run in range(runs):
            loop(x[run], scale, power, soft, floor, size, out[run])
    elif threads and runs > 1 and runs * n * n >= _ONE_THREAD_BELOW:
        pieces = min(runs, _PIECES)
        _forces_loop(weight, dim, safe, "side_by_side")(x, scale, power, soft, floor, size, pieces, out)
    else:
        _forces_loop(weight, dim, safe, "one_by_one")(x, 0, runs, scale, power, soft, floor, size, out)


def pair_energies(x: Any, family: int, coupling: float, s: float, softening2: float, rows: Any, out: Any) -> None:
    """out[r] += sum_{k < l} g(|x_k - x_l|); ``rows`` over (run, particle) is scratch, summed in index order.

    A coincident pair of a singular kernel (s >= 0, no softening) makes the sum infinite.
    """
    if family == SPRING:
        _add_spring_energies(x, coupling, out)
        return
    weight, power, factor, coincident = energy_weight(family, s)
    for part, safe in _parts(x, weight, softening2):
        here = x if part is None else x[part]
        into = out if part is None else out[part]
        loop = _energies_loop(weight, x.shape[2], safe, active_threads() > 1 and len(here) * x.shape[1]**2 > _ONE_THREAD_BELOW)
        loop(here, coupling * factor, power, softening2, 0.0 if safe else LOW, coupling * coincident, rows, into)
        if part is not None:
            out[part] = into


def _parts(x: Any, weight: Weight, smallest: float) -> list[tuple[Any, bool]]:
    """(runs or None for all, whether they need the safe loops), decided run by run."""
    if weight.always_safe:
        return [(None, True)]
    if _ordinary(x, smallest < LOW):
        return [(None, False)]
    ordinary = np.array([_ordinary(x[run:run + 1], smallest < LOW) for run in range(len(x))])
    return [(np.flatnonzero(chosen), safe) for chosen, safe in ((ordinary, False), (~ordinary, True)) if chosen.any()]


@njit()
def _ordinary(x, unsoftened):  # type: ignore[no-untyped-def]
    """Whether every squared distance between different positions is surely in [LOW, HIGH].

    Two numbers closer than 2^-120 that are not equal are both below 2^-66, as float64 has 53 bits.
    """
    wrong = 0
    flat = x.reshape(-1)
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


@njit()
def _scratch(rows, columns):  # type: ignore[no-untyped-def]
    """Zeros (rows, columns); each row starts at a multiple of 64 bytes, the width of a register and a cache line."""
    stride = (columns + 7) // 8 * 8
    memory = np.zeros(rows * stride + 8)
    skip = (-(memory.ctypes.data // 8)) % 8
    return memory[skip:skip + rows * stride].reshape(rows, stride)[:, :columns]


@njit()
def _load(positions, columns):  # type: ignore[no-untyped-def]
    n, dim = positions.shape
    for k in range(n):
        for a in range(dim):
            columns[a, k] = positions[k, a]


@njit()
def _unload(columns, scale, out):  # type: ignore[no-untyped-def]
    n, dim = out.shape
    for k in range(n):
        for a in range(dim):
            out[k, a] += scale * columns[a, k]


@njit()
def _meeting(turn, table, teams):  # type: ignore[no-untyped-def]
    """The two blocks that meet at a table in a turn of the tournament of an even number of teams (circle method)."""
    others = teams - 1
    one = (turn + table) % others
    two = others if table == 0 else (turn - table) % others
    return min(one, two), max(one, two)


_LOOPS = """
def {name}_one_by_one(x, first, last, scale, power, soft, floor, size, out):
    n, dim = x.shape[1], x.shape[2]
    columns, forces = scratch({rows}, n), scratch({rows}, n)
    blocks = -(-n // size)
    teams = blocks + blocks % 2
    for run in range(first, last):
        load(x[run], columns)
        forces[:] = 0.0
        for b in range(blocks):
            between(columns, forces, b * size, min(b * size + size, n), b * size, min(b * size + size, n), power, soft, floor)
        for turn in range(teams - 1):
            for table in range(teams // 2):
                one, two = meeting(turn, table, teams)
                if two < blocks:
                    between(columns, forces, one * size, one * size + size, two * size, min(two * size + size, n),
                            power, soft, floor)
        unload(forces, scale, out[run])

def {name}_side_by_side(x, scale, power, soft, floor, size, pieces, out):
    runs = x.shape[0]
    for piece in prange(pieces):
        one_by_one(x, piece * runs // pieces, (piece + 1) * runs // pieces, scale, power, soft, floor, size, out)

def {name}_in_blocks(x, scale, power, soft, floor, size, out):
    n, dim = x.shape
    columns, forces = scratch({rows}, n), scratch({rows}, n)
    load(x, columns)
    blocks = -(-n // size)
    teams = blocks + blocks % 2
    for b in prange(blocks):
        between(columns, forces, b * size, min(b * size + size, n), b * size, min(b * size + size, n), power, soft, floor)
    for turn in range(teams - 1):
        for table in prange(teams // 2):
            one, two = meeting(turn, table, teams)
            if two < blocks:
                between(columns, forces, one * size, one * size + size, two * size, min(two * size + size, n),
                        power, soft, floor)
    unload(forces, scale, out)
"""

_ENERGY_LOOP = """
def {name}(x, scale, power, soft, floor, coincident, rows, out):
    runs, n, dim = x.shape
    pieces = -(-n // 256)
    for run in range(runs):
        columns = scratch({rows}, n)
        load(x[run], columns)
        nearest = np.full(pieces, np.inf)
        for half in prange((pieces + 1) // 2):
            # late rows are long: a piece from the front and one from the back make equal work
            for piece in range(half, pieces, max(pieces - 1 - 2 * half, 1)):
                nearest[piece] = rows_of(columns, piece * 256, min(piece * 256 + 256, n), power, soft, floor, rows[run])
        total = 0.0
        for k in range(n):
            total += rows[run, k]
        out[run] += coincident if nearest.min() == 0.0 and coincident != 0.0 else scale * total
"""


@functools.cache
def _forces_loop(weight: Weight, dim: int, safe: bool, kind: str) -> Any:
    between = forces_between_blocks(weight, dim, safe)
    label = f"{weight.name}_{dim if dim <= FLAT else 'any'}d{'_safe' if safe else ''}"
    name = f"loop_{label}"
    names = {"np": np, "prange": prange, "between": between, "meeting": _meeting, "scratch": _scratch, "load": _load,
             "unload": _unload}
    if kind == "side_by_side":
        names["one_by_one"] = _forces_loop(weight, dim, safe, "one_by_one")
    start = _LOOPS.index("def {name}_" + kind)
    source = _LOOPS[start:].split("\n\n")[0].replace("{name}", name).replace("{rows}", _padded(dim))
    return njit_source(f"{name}_{kind}", source, names, parallel=kind != "one_by_one")


@functools.cache
def _energies_loop(weight: Weight, dim: int, safe: bool, parallel: bool) -> Any:
    label = f"{weight.name}_{dim if dim <= FLAT else 'any'}d{'_safe' if safe else ''}"
    name = f"energy_loop_{label}_{'parallel' if parallel else 'serial'}"
    names = {"np": np, "prange": prange, "rows_of": energies_of_rows(weight, dim, safe), "scratch": _scratch, "load": _load}
    source = _ENERGY_LOOP.replace("{name}", name).replace("{rows}", _padded(dim))
    return njit_source(name, source, names, parallel=parallel)


def _padded(dim: int) -> str:
    """Rows of scratch: the loops for many components take them by fours."""
    return "dim" if dim <= FLAT else "(dim + 3) // 4 * 4"


@njit()
def _centre(x, a):  # type: ignore[no-untyped-def]
    """The mean of component a from the first particle on, so that a far-away cloud loses nothing."""
    origin = x[0, a]
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k, a] - origin
    return origin + total / x.shape[0]


@njit()
def _add_spring_forces(x, coupling, out):  # type: ignore[no-untyped-def]
    """All springs pull towards the centre: sum_l (x_l - x_k) = N (mean - x_k)."""
    runs, n, dim = x.shape
    for run in range(runs):
        for a in range(dim):
            centre = _centre(x[run], a)
            for k in range(n):
                out[run, k, a] += coupling * n * (centre - x[run, k, a])


@njit()
def _add_spring_energies(x, coupling, out):  # type: ignore[no-untyped-def]
    """sum_{k < l} |x_k - x_l|^2 / 2 = N / 2 sum_k |x_k - mean|^2."""
    runs, n, dim = x.shape
    for run in range(runs):
        total = 0.0
        for a in range(dim):
            centre = _centre(x[run], a)
            for k in range(n):
                total += (x[run, k, a] - centre) ** 2
        out[run] += 0.5 * coupling * n * total
