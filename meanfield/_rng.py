"""Counter-based noise: a number depends on (seed, stream, run, step, particle, component) and on nothing else.

Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") turns a 128-bit counter
and a 64-bit key into 128 random bits; two 53-bit uniforms and Box-Muller make two normals of them. So threads, chunks
and resume points cannot change a number, and particle k has the same noise at N and at 2N.

Counter: (component pair, particle, run, step). Key: from (seed, stream) by NumPy's SeedSequence.
"""

from __future__ import annotations

import hashlib
import math
import threading

import numpy as np
from numpy.typing import NDArray

from meanfield._numba import njit, prange

__all__ = ["NOISE", "bridge_normals", "generator", "normals", "philox_key", "remember_ends", "replayed_runs"]

# Streams: what a number is for. Kept apart in the key, so one seed serves all of them.
NOISE, INITIAL, MINIBATCH, PHASES, WEIGHTS, SHUFFLE, DROPOUT, BRIDGE, ACCEPT = range(9)

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_S32, _S11 = np.uint64(32), np.uint64(11)


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


@njit(inline=True)
def _normal_pair(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    a, b, c, d = philox(c0, c1, c2, c3, k0, k1)
    # (53 random bits + 1/2) / 2^53 lies strictly inside (0, 1): the logarithm below never sees 0
    u = (np.float64(((a << _S32) | b) >> _S11) + 0.5) * 1.1102230246251565e-16
    v = (np.float64(((c << _S32) | d) >> _S11) + 0.5) * 1.1102230246251565e-16
    radius = math.sqrt(-2.0 * math.log(u))
    angle = 6.283185307179586 * v
    return radius * math.cos(angle), radius * math.sin(angle)


@njit(parallel=True)
def normals(key, first_run, step, out):  # type: ignore[no-untyped-def]
    """Standard normals for one step, out[(run, particle, component)]; ``first_run`` offsets the run index."""
    n_runs, n_particles, dim = out.shape
    s = np.uint64(step)
    for flat in prange(n_runs * n_particles):
        run = flat // n_particles
        particle = flat - run * n_particles
        r = np.uint64(first_run + run)
        p = np.uint64(particle)
        for pair in range((dim + 1) // 2):
            x, y = _normal_pair(np.uint64(pair), p, r, s, key[0], key[1])
            out[run, particle, 2 * pair] = x
            if 2 * pair + 1 < dim:
                out[run, particle, 2 * pair + 1] = y


@njit(parallel=True)
def bridge_normals(key, runs, nodes, step, out):  # type: ignore[no-untyped-def]
    """Standard normals for one node (below 2^16) of the bisection of a step in each of the runs with these indices.

    The node sits in the upper half of the word that counts component pairs, so up to 2^17 components are told apart.
    """
    n_runs, n_particles, dim = out.shape
    s = np.uint64(step)
    for flat in prange(n_runs * n_particles):
        run = flat // n_particles
        particle = flat - run * n_particles
        r = np.uint64(runs[run])
        shifted = np.uint64(nodes[run]) << np.uint64(16)
        p = np.uint64(particle)
        for pair in range((dim + 1) // 2):
            x, y = _normal_pair(np.uint64(pair) | shifted, p, r, s, key[0], key[1])
            out[run, particle, 2 * pair] = x
            if 2 * pair + 1 < dim:
                out[run, particle, 2 * pair + 1] = y


# Where the runs of this process ended, (seed, run, digest of the positions), oldest first. A new run from such an end with
# the same seed would see the noise that led there once more.
_ends: dict[tuple[int, int, bytes], None] = {}
_MOST_ENDS = 1 << 16
_ends_lock = threading.Lock()


def _end(seed: int, run: int, x: NDArray[np.float64]) -> tuple[int, int, bytes]:
    return seed, run, hashlib.blake2b(x.tobytes(), digest_size=16).digest()


def remember_ends(seed: int, start: NDArray[np.float64], end: NDArray[np.float64]) -> None:
    """Note where runs that used the noise of this seed ended; arrays over (run, particle, component)."""
    # a run that stayed where it was ends at its own start, from which it may be repeated
    new = [_end(seed, run, end[run]) for run in range(len(end)) if not np.array_equal(start[run], end[run])]
    with _ends_lock:
        _ends.update(dict.fromkeys(new))
        if len(_ends) > 2 * _MOST_ENDS:
            for old in list(_ends)[:-_MOST_ENDS]:
                del _ends[old]


def replayed_runs(seed: int, start: NDArray[np.float64]) -> list[int]:
    """The runs among those with these starts that would see noise which their start already depends on."""
    with _ends_lock:
        return [run for run in range(len(start)) if _end(seed, run, start[run]) in _ends]
