"""Pair sums of any interaction: the one place that decides which loop does them.

======================  ========================================================================================
``law`` (Riesz, spring)  ``kernels/pairs``; on a torus ``kernels/periodic_pairs`` with minimum-image displacements
CosinePair               sums of cosines and sines: exact and O(N); on a torus only if its length is a multiple of 2 pi
GaussianPair             ``kernels/other_pairs``
``weight`` of a user     ``kernels/other_pairs``, compiled for the user's function once a process (forces only)
anything else            NumPy blocks of the pair matrix through ``derivative`` and ``value``
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

# pairs in a block of the pair matrix: its handful of temporaries stays in the second-level cache
_BLOCK = 2**14


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
        _refuse_other_weight(term, numbers)
        add_weighted_forces(_by_component(x), term.weight, numbers, 1.0 / divisor, period or 0.0, out)
    else:
        for run, rows, displacement, r, own in _blocks(x, period):
            if term.radial:
                r[r == 0.0] = 1.0  # no direction: the displacement of 0 makes the force 0, whatever g' would be there
                slope = _shaped(term, term.derivative(r), r.shape, "derivative") / r
                out[run, rows] -= (slope * displacement).sum(axis=-1).T / divisor
            else:
                vectors = np.moveaxis(displacement, 0, -1)
                gradient = _shaped(term, term.gradient(vectors), vectors.shape, "gradient")
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
        for run, _, displacement, r, own in _blocks(x, period):
            r[own] = 1.0  # a singular kernel is not asked for its value at 0 by a particle itself
            energy = (_shaped(term, term.value(r), r.shape, "value") if term.radial
                      else _shaped(term, term.energy(np.moveaxis(displacement, 0, -1)), r.shape, "energy"))
            energy[own] = 0.0
            out[run] += 0.5 * energy.sum()


def _refuse_other_weight(term: Interaction, numbers: Array) -> None:
    """A wrong sign or factor in ``weight`` would go unnoticed: compare it with ``derivative`` (microseconds)."""
    for r in (0.5, 2.0):
        weight, expected = float(term.weight(r * r, numbers)), float(-term.derivative(np.array([r]))[0] / r)
        if not math.isclose(weight, expected, rel_tol=1e-6, abs_tol=1e-12):
            raise ValueError(f"{type(term).__name__}.weight must be -derivative(r) / r, got {weight:.6g} where that is "
                             f"{expected:.6g}, at r = {r}")


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


def _blocks(x: Array, period: float | None) -> Iterator[tuple[int, slice, Array, Array, tuple[Array, Array]]]:
    """(run, rows, displacements (component, row, particle), distances (row, particle), index of each row's own entry)."""
    n, dim = x.shape[1:]
    size = max(1, _BLOCK // n)
    planes = _by_component(x)
    for run in range(len(x)):
        for first in range(0, n, size):
            rows = slice(first, min(first + size, n))
            displacement = planes[run, :, rows, None] - planes[run, :, None]
            if period is not None:
                displacement -= period * np.rint(displacement / period)
            square = np.square(displacement[0])
            for a in range(1, dim):  # a sum over a short axis would cost ten times as much
                square += np.square(displacement[a])
            yield run, rows, displacement, np.sqrt(square), (np.arange(rows.stop - first), np.arange(first, rows.stop))


def _shaped(term: Interaction, result: Array, shape: tuple[int, ...], what: str) -> Array:
    array = np.array(result, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{type(term).__name__}.{what} must return shape {shape}, got {array.shape}")
    return array
