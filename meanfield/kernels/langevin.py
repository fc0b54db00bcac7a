"""The step of a Langevin scheme beside its forces: where the particles are sent, and what happened to them there.

Two passes over the positions, ``propose`` before the domain puts anybody back and ``observe`` after it. As NumPy expressions
they were eleven passes with as many arrays: about 17 of the 33 ms of a step of 10,000 runs of 16 particles (now 1), and
115 us beside a force of 830 us for one run of 2,000 (now 25).

A run's numbers come from its own loop: neither its neighbours nor the number of threads change a bit. Products that are
added are spelt ``multiply_add``, so that the compiler has no choice of when to round.

What makes the loops fast: the number of components is the length of a tuple, known when they are compiled; one loop goes
through the particles of all runs; and the largest square of a run is found among their bits, read as integers, which are in
the order of the numbers with NaN above all of them (a maximum of numbers that may be NaN stays scalar).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from meanfield._numba import active_threads, bits_to_float, float_to_bits, multiply_add, njit, prange

__all__ = ["observe", "propose"]

_PIECES = 64
_ONE_THREAD_BELOW = 50_000  # numbers
_UNROLLED = 4  # components; more of them share one compiled loop
_POSITIVE = 0x7FFFFFFFFFFFFFFF


def propose(x: Any, drift: Any, noise: Any, dt: float, sigma: float, taming: float, out: Any) -> Any:
    """out = x + dt' drift + sigma noise; the square of the longest dt drift of each run, NaN if one is NaN.

    dt' is dt / (1 + taming dt |drift|). Without ``sigma`` the noise is not read. All arrays are C-contiguous over (run,
    particle, component).
    """
    longest2, bits = np.empty(len(x)), np.empty(x.shape[:2], dtype=np.int64)
    _share(_propose, _propose_in_pieces, x, (x, drift, noise, dt, sigma, taming, out, bits, longest2))
    return longest2


def observe(before: Any, proposal: Any, moved: Any) -> tuple[Any, Any]:
    """Particles with proposal != moved, and the square of the longest displacement proposal - before, of each run."""
    changed, longest2 = np.empty(len(before), dtype=np.int64), np.empty(len(before))
    arrays = (np.ascontiguousarray(array, dtype=np.float64) for array in (before, proposal, moved))
    bits, flags = np.empty((2, *before.shape[:2]), dtype=np.int64)
    _share(_observe, _observe_in_pieces, before, (*arrays, bits, flags, changed, longest2))
    return changed, longest2


def _share(whole: Any, in_pieces: Any, x: Any, arguments: tuple[Any, ...]) -> None:
    components = (0,) * x.shape[2] if x.shape[2] <= _UNROLLED else np.zeros(x.shape[2], dtype=np.int64)
    if active_threads() > 1 and len(x) > 1 and x.size >= _ONE_THREAD_BELOW:
        in_pieces(components, *arguments)
    else:
        whole(components, 0, len(x), *arguments)


@njit()
def _propose(components, first, last, x, drift, noise, dt, sigma, taming, out, bits, longest2):  # type: ignore[no-untyped-def]
    n, dim = x.shape[1], len(components)
    b, y = x[first:last].reshape(-1), drift[first:last].reshape(-1)
    z, w = noise[first:last].reshape(-1), out[first:last].reshape(-1)
    squares = bits[first:last].reshape(-1)
    for k in range((last - first) * n):
        length2 = 0.0
        for a in range(dim):
            length2 = multiply_add(dt * y[k * dim + a], dt * y[k * dim + a], length2)
        squares[k] = float_to_bits(length2) & _POSITIVE
        h = dt / multiply_add(taming, math.sqrt(length2), 1.0) if taming != 0.0 else dt
        for a in range(dim):
            there = multiply_add(h, y[k * dim + a], b[k * dim + a])
            w[k * dim + a] = multiply_add(sigma, z[k * dim + a], there) if sigma != 0.0 else there
    _largest(first, last, bits, longest2)


@njit()
def _largest(first, last, bits, longest2):  # type: ignore[no-untyped-def]
    for run in range(first, last):
        most = 0
        for k in range(bits.shape[1]):
            most = max(most, bits[run, k])
        longest2[run] = bits_to_float(most)


@njit(parallel=True)
def _propose_in_pieces(components, x, drift, noise, dt, sigma, taming, out, bits, longest2):  # type: ignore[no-untyped-def]
    for piece in prange(_PIECES):
        first, last = np.int64(piece) * x.shape[0] // _PIECES, (np.int64(piece) + 1) * x.shape[0] // _PIECES
        _propose(components, first, last, x, drift, noise, dt, sigma, taming, out, bits, longest2)


@njit()
def _observe(components, first, last, before, proposal, moved, bits, flags, changed, longest2):  # type: ignore[no-untyped-def]
    n, dim = before.shape[1], len(components)
    b, p, m = before[first:last].reshape(-1), proposal[first:last].reshape(-1), moved[first:last].reshape(-1)
    squares, differs = bits[first:last].reshape(-1), flags[first:last].reshape(-1)
    for k in range((last - first) * n):
        length2, different = 0.0, 0
        for a in range(dim):
            d = p[k * dim + a] - b[k * dim + a]
            length2 = multiply_add(d, d, length2)
            different |= 1 if p[k * dim + a] != m[k * dim + a] else 0
        squares[k] = float_to_bits(length2) & _POSITIVE
        differs[k] = different
    _largest(first, last, bits, longest2)
    for run in range(first, last):
        count = 0
        for k in range(n):
            count += flags[run, k]
        changed[run] = count


@njit(parallel=True)
def _observe_in_pieces(components, before, proposal, moved, bits, flags, changed, longest2):  # type: ignore[no-untyped-def]
    for piece in prange(_PIECES):
        first, last = np.int64(piece) * before.shape[0] // _PIECES, (np.int64(piece) + 1) * before.shape[0] // _PIECES
        _observe(components, first, last, before, proposal, moved, bits, flags, changed, longest2)
