"""Pair sums of any interaction: the one place that decides which loop does them.

======================  ========================================================================================
``law`` (Riesz, spring)  ``kernels/pairs``; on a torus ``kernels/periodic_pairs`` with minimum-image displacements
CosinePair               sums of cosines and sines: exact and O(N); on a torus only if its length is a multiple of 2 pi
GaussianPair             ``kernels/other_pairs``
``weight`` of a user     ``kernels/other_pairs``, compiled for the user's function once a process (forces only)
anything else            NumPy blocks of the pair matrix through ``gradient`` and ``energy``: O(N) memory
======================  ========================================================================================

All of them skip a particle's pair with itself and give a coincident pair no force.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from meanfield._checks import Array
from meanfield.interactions import CosinePair, GaussianPair, Interaction
from meanfield.kernels.other_pairs import add_gaussian_forces, add_weighted_forces, gaussian_energies
from meanfield.kernels.pairs import add_pair_forces, pair_energies
from meanfield.kernels.periodic_pairs import add_periodic_pair_forces, periodic_pair_energies

__all__ = ["add_energies", "add_forces"]

# numbers in a block of the pair matrix: 1 MB, so that a block's five or so temporaries stay in the second-level cache
_BLOCK = 2**17


def add_forces(term: Interaction, x: Array, divisor: float, core2: float, period: float | None, out: Array) -> None:
    """out[r, k] -= (1 / divisor) sum_{l != k} grad g(x_k - x_l), x and out over (run, particle, component).

    Below the squared distance ``core2`` a compiled ``law`` is linear (docs/decisions/0002); ``period`` of the domain.
    """
    law = term.law
    if law is not None:
        arguments = (law.family, law.coupling / divisor, law.s, law.softening**2, core2)
        if period is None:
            add_pair_forces(x, *arguments, out)
        else:
            add_periodic_pair_forces(x, *arguments, period, out)
    elif isinstance(term, CosinePair) and _whole_turns(period):
        sines, cosines, angle_sines, angle_cosines = _turns(x)
        out -= (term.strength / divisor) * (angle_sines * cosines - angle_cosines * sines)
    elif isinstance(term, GaussianPair):
        add_gaussian_forces(_by_component(x), term.strength / divisor, term.width, period or 0.0, out)
    elif term.weight is not None:
        numbers = np.array(term.parameters, dtype=np.float64)
        add_weighted_forces(_by_component(x), term.weight, numbers, 1.0 / divisor, period or 0.0, out)
    else:
        for run, rows, displacement, own in _blocks(x, period):
            gradient = _shaped(term, term.gradient(displacement), displacement.shape, "derivative")
            gradient[own] = 0.0
            out[run, rows] -= gradient.sum(axis=1) / divisor


def add_energies(term: Interaction, x: Array, period: float | None, rows: Array, out: Array) -> None:
    """out[r] += sum_{k < l} g(x_k - x_l); ``rows`` over (run, particle) is scratch."""
    law = term.law
    if law is not None:
        arguments = (law.family, law.coupling, law.s, law.softening**2)
        if period is None:
            pair_energies(x, *arguments, rows, out)
        else:
            periodic_pair_energies(x, *arguments, period, rows, out)
    elif isinstance(term, CosinePair) and _whole_turns(period):
        sines, cosines, _, _ = _turns(x)
        n, dim = x.shape[1:]
        out -= 0.5 * term.strength * ((np.square(sines) + np.square(cosines)).sum(axis=(1, 2)) - n * dim)
    elif isinstance(term, GaussianPair):
        gaussian_energies(_by_component(x), term.strength, term.width, period or 0.0, rows, out)
    else:
        for run, _, displacement, own in _blocks(x, period):
            energy = _shaped(term, term.energy(displacement), displacement.shape[:-1], "value")
            energy[own] = 0.0
            out[run] += 0.5 * energy.sum()


def _by_component(x: Array) -> Array:
    return np.ascontiguousarray(np.swapaxes(x, 1, 2))


def _whole_turns(period: float | None) -> bool:
    if period is None:
        return True
    turns = period / (2.0 * math.pi)
    return round(turns) >= 1 and math.isclose(turns, round(turns), rel_tol=1e-12)


def _turns(x: Array) -> tuple[Array, Array, Array, Array]:
    """Sums of sines and cosines over (run, 1, component), and those of each particle, of angles from the first particle.

    sum_l sin(x_k - x_l) = sin(x_k) C - cos(x_k) S is exact whatever the origin of the angles; with it in the cloud, a
    narrow cloud's forces keep their digits too.
    """
    angle = x - x[:, :1]
    sine, cosine = np.sin(angle), np.cos(angle)
    sines, cosines = (np.ascontiguousarray(np.swapaxes(v, 1, 2)).sum(axis=-1)[:, None] for v in (sine, cosine))
    return sines, cosines, sine, cosine


def _blocks(x: Array, period: float | None) -> Iterator[tuple[int, slice, Array, tuple[Array, Array]]]:
    """(run, rows, displacements (row, particle, component), index of each row's own entry); own displacements are 1."""
    n, dim = x.shape[1:]
    size = max(1, _BLOCK // (n * dim))
    for run in range(len(x)):
        for first in range(0, n, size):
            rows = slice(first, min(first + size, n))
            displacement = x[run, rows, None] - x[run, None]
            if period is not None:
                displacement -= period * np.rint(displacement / period)
            own = (np.arange(rows.stop - first), np.arange(first, rows.stop))
            displacement[own] = 1.0  # a singular kernel is never asked for its value at 0 by a particle itself
            yield run, rows, displacement, own


def _shaped(term: Interaction, result: Array, shape: tuple[int, ...], what: str) -> Array:
    array = np.array(result, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{type(term).__name__}.{what} must return an array of the shape of r, got {np.shape(result)} "
                         f"for pairs of shape {shape}")
    return array
