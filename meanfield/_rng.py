"""Counter-based noise: a number depends on (seed, stream, run, step, particle, component) and on nothing else.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") turns a 128-bit counter
and a 64-bit key into 128 random bits; two 53-bit uniforms and Box-Muller make two normals of them. So threads, chunks
and resume points cannot change a number, and particle k has the same noise at N and at 2N.

Counter: (component pair, particle, run, step). Key: from (seed, stream) by NumPy's SeedSequence.
"""

from __future__ import annotations

import functools
import hashlib
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meanfield._numba import (
    active_threads,
    bits_to_float,
    call,
    compiled,
    float_to_bits,
    multiply_add,
    njit,
    prange,
    wide_vectors,
)
from meanfield._tasks import kernel

__all__ = ["NOISE", "bridge_normals", "generator", "normals", "philox_key", "remember_ends", "replayed_runs"]

# Streams: what a number is for. Kept apart in the key, so one seed serves all of them.
NOISE, INITIAL, MINIBATCH, PHASES, WEIGHTS, SHUFFLE, DROPOUT, BRIDGE, ACCEPT = range(9)

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_S32, _S16, _S11 = np.uint64(32), np.uint64(16), np.uint64(11)
# particles that are drawn for at once; interpreted, what fills up the last block costs as much as what is wanted
BLOCK = 256 if compiled else 8
_PIECE = 8_192  # for a thread: a multiple of BLOCK


def philox_key(seed: int, stream: int) -> NDArray[np.uint64]:
    """Two 32-bit key words (held in uint64) for one purpose of one seed."""
    return np.random.SeedSequence([seed, stream]).generate_state(2, np.uint32).astype(np.uint64)


def generator(seed: int, stream: int, *more: int) -> np.random.Generator:
    """A NumPy generator for draws that are made once, outside any parallel loop."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stream, *more])))


@njit(inline=True)
def philox(c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64):  # type: ignore[no-untyped-def]
    """Philox4x32-10 on 32-bit words held in uint64 (products of two words fit, so nothing overflows)."""
    for _ in range(10):
        p0 = _M0 * c0
        p1 = _M1 * c2
        c0, c1, c2, c3 = (p1 >> _S32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _S32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _W0) & _LOW
        k1 = (k1 + _W1) & _LOW
    return c0, c1, c2, c3


# log u = k log 2 + z f(z^2), z = (m - 1) / (m + 1), for u = 2^k m with m in [1 / sqrt 2, sqrt 2]; sin and cos of a quarter
# turn times r as r f(r^2) and f(r^2), |r| <= 1/2: Chebyshev interpolants, highest power first, relative errors below 1e-16
_MINUS_2_LOG = (-0.2961942072131055, -0.3062505629672838, -0.36367263360458657, -0.44444394113452096, -0.5714285752128336,
                -0.7999999999860468, -1.333333333333353, -4.0)
_SIN = (5.633933781537854e-08, -3.59864335298231e-06, 0.0001604411507421909, -0.004681754132340976, 0.07969262624604301,
        -0.6459640975062443, 1.5707963267948966)
_COS = (4.6552961874867623e-07, -2.520013526428479e-05, 0.000919259950041661, -0.02086348073494657, 0.25366950789986475,
        -1.2337005501361513, 1.0)


def _horner(variable: str, coefficients: tuple[float, ...]) -> str:
    text = repr(coefficients[0])
    for c in coefficients[1:]:
        text = f"multiply_add({variable}, {text}, {c!r})"
    return text


# Eight pairs in a register: 5 to 8 times faster than libm's log, cos and sin one by one. The loops are BLOCK long, also
# where fewer numbers are wanted: LLVM computes what does not fill a register in another way, whose last bits may differ.
# (53 random bits + 1/2) / 2^53 lies in (0, 1]: the logarithm never sees 0.
_PAIRS = f"""
def normal_pairs(c0, c1, c2, c3, k0, k1, x, y):
    wide_vectors()
    for i in range(BLOCK):
        a, b, c, d = philox(c0[i] & LOW, c1[i] & LOW, c2[i] & LOW, c3 & LOW, k0 & LOW, k1 & LOW)
        x[i] = (np.float64(((a << S32) | b) >> S11) + 0.5) * {2.0**-53!r}
        y[i] = (np.float64(((c << S32) | d) >> S11) + 0.5) * {2.0**-51!r}
    for i in range(BLOCK):
        bits = float_to_bits(x[i])
        k = (bits - 0x3FE6A09E667F3BCD) >> 52
        m = bits_to_float(bits - (k << 52))
        z = (m - 1.0) / (m + 1.0)
        t = z * z
        radius = math.sqrt(max(float(k) * {-2.0 * math.log(2.0)!r} + z * ({_horner("t", _MINUS_2_LOG)}), 0.0))
        turn = y[i]
        quarter = rint(turn)
        r = turn - quarter
        t = r * r
        sine = r * ({_horner("t", _SIN)})
        cosine = {_horner("t", _COS)}
        q = int(quarter)
        odd = (q & 1) != 0
        along = cosine if not odd else sine
        across = sine if not odd else cosine
        x[i] = radius * (-along if ((q + 1) & 2) != 0 else along)
        y[i] = radius * (-across if (q & 2) != 0 else across)
"""


@functools.cache
def _pairs() -> Any:
    """Kernel (c0, c1, c2, c3, k0, k1, x, y): BLOCK pairs of standard normals, one for each counter."""
    names = {"math": math, "np": np, "rint": np.rint, "philox": philox, "float_to_bits": float_to_bits,
             "bits_to_float": bits_to_float, "multiply_add": multiply_add, "wide_vectors": wide_vectors, "BLOCK": BLOCK,
             "S32": _S32, "S11": _S11, "LOW": _LOW}
    words = ", ".join(["uint64[::1]"] * 3 + ["uint64"] * 3 + ["float64[::1]"] * 2)
    return kernel("normal_pairs", _PAIRS, names, words)


@njit()
def _block(pairs, key, runs, nodes, step, first, words, xy, out):  # type: ignore[no-untyped-def]
    """Normals of the particles first ... first + BLOCK - 1, counted through all runs; ``words`` and ``xy`` are scratch."""
    n_runs, n_particles, dim = out.shape
    total, inverse = n_runs * n_particles, 1.0 / n_particles
    rows = out.reshape(total, dim)[first:first + BLOCK]
    component, particles, of_runs, shifted = words[0], words[1], words[2], words[3]
    x, y = xy[0], xy[1]
    for j in range(BLOCK):
        flat = min(first + j, total - 1)
        run = np.uint64((flat + 0.5) * inverse)  # exact below 2^50; a division of integers would not vectorise
        particles[j] = np.uint64(flat) - run * np.uint64(n_particles)
        of_runs[j] = np.uint64(runs[run])
        shifted[j] = np.uint64(nodes[run]) << _S16
    for pair in range((dim + 1) // 2):
        for j in range(BLOCK):
            component[j] = np.uint64(pair) | shifted[j]
        call(pairs, (component, particles, of_runs, np.uint64(step), key[0], key[1], x, y))
        two = rows[:, 2 * pair:]
        if two.shape[1] > 1:
            for j in range(rows.shape[0]):
                two[j, 0] = x[j]
                two[j, 1] = y[j]
        else:
            for j in range(rows.shape[0]):
                two[j, 0] = x[j]


@njit()
def _in_turn(pairs, key, runs, nodes, step, first, last, out):  # type: ignore[no-untyped-def]
    words, xy = np.zeros((4, BLOCK), np.uint64), np.empty((2, BLOCK))
    for start in range(first, last, BLOCK):
        _block(pairs, key, runs, nodes, step, start, words, xy, out)


@njit(parallel=True)
def _in_pieces(pairs, key, runs, nodes, step, out):  # type: ignore[no-untyped-def]
    total = out.shape[0] * out.shape[1]
    for index in prange(-(-total // _PIECE)):
        first = np.int64(index) * _PIECE
        _in_turn(pairs, key, runs, nodes, step, first, min(first + _PIECE, total), out)


def normals(key: NDArray[np.uint64], first_run: int, step: int, out: NDArray[np.float64]) -> None:
    """Standard normals for one step, out[(run, particle, component)]; ``first_run`` offsets the run index."""
    runs = np.arange(first_run, first_run + out.shape[0])
    bridge_normals(key, runs, np.zeros(out.shape[0], dtype=np.int64), step, out)


def bridge_normals(key: NDArray[np.uint64], runs: NDArray[np.int64], nodes: NDArray[np.int64], step: int,
                   out: NDArray[np.float64]) -> None:
    """Standard normals for one node (below 2^16) of the bisection of a step in each of the runs with these indices.

    The node sits in the upper half of the word that counts component pairs, so up to 2^17 components are told apart; node 0
    is that of ``normals``.
    """
    total = out.shape[0] * out.shape[1]
    if active_threads() > 1 and total > _PIECE:
        _in_pieces(_pairs(), key, runs, nodes, step, out)
    else:
        _in_turn(_pairs(), key, runs, nodes, step, 0, total, out)


# Where the runs of this process ended, (seed, run, digest of the positions), oldest first. A new run from such an end with
# the same seed would see the noise that led there once more.
_ends: dict[tuple[int, int, bytes], None] = {}
_MOST_ENDS = 1 << 16
_ends_lock = threading.Lock()


def _end(seed: int, run: int, x: NDArray[np.float64]) -> tuple[int, int, bytes]:
    return seed, run, hashlib.blake2b(x.tobytes(), digest_size=16).digest()


def remember_ends(seed: int, runs: Sequence[int], start: NDArray[np.float64], end: NDArray[np.float64]) -> None:
    """Note where these runs, which used the noise of this seed, ended; arrays over (run, particle, component)."""
    # a run that stayed where it was ends at its own start, from which it may be repeated
    new = [_end(seed, run, b) for run, a, b in zip(runs, start, end, strict=True) if not np.array_equal(a, b)]
    with _ends_lock:
        _ends.update(dict.fromkeys(new))
        if len(_ends) > 2 * _MOST_ENDS:
            for old in list(_ends)[:-_MOST_ENDS]:
                del _ends[old]


def replayed_runs(seed: int, start: NDArray[np.float64]) -> list[int]:
    """The runs among those with these starts that would see noise which their start already depends on."""
    with _ends_lock:
        return [run for run in range(len(start)) if _end(seed, run, start[run]) in _ends]
