"""``stationary_states``: the rest states of an attractive problem, each with its free energy and its stability.

Two searches. Ways down the free energy from densities tilted to either side find the stable states. Newton's method on the
residual deflated by the states at hand, R(u) prod_k (1 / d_k^2 + 1) with d_k the distance to state k, cannot go back to them
and finds more, from the middle between two of them the saddles (Farrell, Birkisson and Funke 2015). d is Hellinger's
distance |q - q_k|, q = sqrt(volume rho), and a Newton step changes q by y / 2; the deflated step is a multiple of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield._numba import one_blas_thread
from meanfield.dataset import dataset
from meanfield.equilibrium.newton import TOLERANCE, Linear, State, continued, descend, image, newton, state
from meanfield.equilibrium.rest import refuse_collapse, start
from meanfield.equilibrium.spectrum import modes
from meanfield.mesh import Grid, Mesh, mesh_of
from meanfield.problem import Problem

__all__ = ["states_of", "stationary_states"]

_DEFLATED = 60  # steps of one deflated search
_LARGEST = 0.7  # of |y| in one of them: a quarter of the way between two disjoint densities, squared
_SAME = 1e-6  # squared Hellinger distance below which two states are one
_TILTS = (2.0, 8.0, 32.0)  # of log rho across half the domain


@one_blas_thread()
def stationary_states(problem: Problem, grid: Grid, *, initial: Sequence[str | Array | Callable[..., Array]] = (),
                      n_states: int = 16) -> xr.Dataset:
    """The self-consistent Gibbs densities that are found: minimisers of F_beta, and saddles.

    Args:
        problem: of finite inverse temperature.
        grid: cells.
        initial: densities to search from, beside the ones tried in any case: the state continued from high temperature, the
            uniform density, densities tilted to either side of each axis, and one peak or two. To follow branches through a
            transition hand in the ``density`` of the states found at the last inverse temperature.
        n_states: stop after so many.

    Returns a Dataset over ``state``, in the order of the free energy: ``density``, ``free_energy``, ``energy``, ``entropy``,
    ``residual``, and from the linearised McKean-Vlasov operator ``growth_rate`` (of the least stable perturbation) and
    ``stable``. On a period without a potential every state can be shifted: one of each such family is returned, and its
    growth rate is 0 (the shift itself) where it is stable.

    All states found are rest states, but that there are no others is not proven.

    Raises ValueError for an infinite inverse temperature, ArithmeticError where there is none (collapse).

    Source: Dawson (1983) for the double well, Sakaguchi (1988) for angles; method.md (7.5).
    """
    mesh = mesh_of(problem, grid)
    if math.isinf(problem.inverse_temperature):
        raise ValueError("stationary_states needs a finite inverse_temperature, got inf")
    n_states = _checks.count("n_states", n_states)
    linear = Linear(mesh)
    given = [start(mesh, problem.inverse_temperature, density) for density in initial]
    found = states_of(linear, given, n_states)
    if not found:
        raise ArithmeticError(f"no rest state was found at inverse temperature {problem.inverse_temperature:g}; try other "
                              "cells, a smaller inverse_temperature or an initial density")
    growth = -np.array([modes(linear, now, 1).rates[0] for now in found])
    parts = [mesh.energies(now.density, now.interaction) for now in found]
    # a neutral direction (a shift) has a rate of 0 up to the discretisation
    neutral = 1e-6 * float(max(np.abs(growth).max(), problem.temperature))
    return dataset("stationary_states", {
        "density": [now.density for now in found], "free_energy": [p.free_energy for p in parts],
        "energy": [p.energy for p in parts], "entropy": [p.entropy for p in parts],
        "residual": [now.residual for now in found], "growth_rate": growth, "stable": growth <= neutral,
    }, {"state": np.arange(len(found)), **dict(zip(mesh.names, mesh.centers, strict=True))},
        settings={"problem": problem, "cells": grid.cells, "n_states": n_states})


def states_of(linear: Linear, given: Iterable[State] = (), most: int = 16) -> list[State]:
    """The states found on a mesh, in the order of F_beta. Raises ArithmeticError where all of them have collapsed."""
    mesh = linear.mesh
    same = _Same(mesh)
    found: list[State] = []
    collapsed: ArithmeticError | None = None

    def add(now: State) -> bool:
        nonlocal collapsed
        if now.residual > 100 * max(TOLERANCE, now.roundoff) or any(same.distance(now, k) < same.limit(k) for k in found):
            return False
        try:
            refuse_collapse(mesh.problem, mesh.volumes * now.density)
        except ArithmeticError as error:
            collapsed = error
            return False
        found.append(now)
        return True

    beta = mesh.problem.inverse_temperature
    add(continued(linear, beta))
    given = list(given)
    for begin in [*given, *_starts(mesh, beta)]:
        if len(found) >= most:
            break
        near = descend(linear, begin, 1e-3)
        if not any(same.distance(near, known) < same.limit(known) for known in found):
            add(newton(linear, descend(linear, near)))
    # saddles lie between minimisers: the middle of two of them is a good start
    middles = [state(mesh, beta, 0.5 * (np.maximum(a.log_density, -1e3) + np.maximum(b.log_density, -1e3)))
               for a, b in itertools.islice(itertools.combinations(found, 2), 10)]
    for begin in [*given, *middles, state(mesh, beta, np.zeros(mesh.shape))]:
        while len(found) < most:
            now = _deflated(linear, begin, found, same)
            if now is None or not add(newton(linear, now)):
                break
    if not found and collapsed is not None:
        raise collapsed
    return sorted(found, key=lambda now: now.free_energy)


def _starts(mesh: Mesh, beta: float) -> Iterator[State]:
    """Uniform, tilted along each axis, and in one peak or two; the potential's own Gibbs density tilted likewise."""
    yield state(mesh, beta, np.zeros(mesh.shape))
    own = image(mesh, beta, np.zeros(mesh.shape)).log_density
    own = np.where(mesh.volumes > 0, own, 0.0)
    for axis, (centers, edges) in enumerate(zip(mesh.centers, mesh.edges, strict=True)):
        place = (centers - 0.5 * (edges[0] + edges[-1])) / (0.5 * (edges[-1] - edges[0]))
        place = place.reshape([-1 if a == axis else 1 for a in range(len(mesh.shape))]) + np.zeros(mesh.shape)
        periodic = _periodic(mesh, axis)
        for size in _TILTS:
            shapes = [np.cos(np.pi * place), np.cos(2 * np.pi * place)] if periodic else [place, -place, -place**2]
            for shape in shapes:
                yield state(mesh, beta, size * shape)
                if not periodic:
                    yield state(mesh, beta, np.maximum(own - own.max(), -50.0) + size * shape)


def _periodic(mesh: Mesh, axis: int) -> bool:
    return bool(np.take(mesh.conductances[axis], -1, axis).any())


class _Same:
    """Hellinger distances between states, up to the shifts that leave the problem as it is."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.axes = tuple(a for a in range(len(mesh.shape))
                          if _periodic(mesh, a) and np.ptp(mesh.potential, axis=a).max() == 0)

    def root(self, now: State) -> Array:
        return np.sqrt(self.mesh.volumes * now.density)

    def aligned(self, q: Array, other: State) -> Array:
        """sqrt(mass) of the other state, shifted to lie as near to q as it can."""
        image_ = self.root(other)
        if not self.axes:
            return image_
        overlap = np.fft.irfftn(np.fft.rfftn(q, axes=self.axes) * np.fft.rfftn(image_, axes=self.axes).conj(),
                                [q.shape[a] for a in self.axes], self.axes)
        rest = tuple(a for a in range(q.ndim) if a not in self.axes)
        overlap = overlap.sum(axis=rest, keepdims=True) if rest else overlap
        shift = np.unravel_index(int(np.argmax(overlap)), overlap.shape)
        return np.roll(image_, [shift[a] for a in self.axes], self.axes)

    def distance(self, now: State, other: State) -> float:
        """Squared."""
        q = self.root(now)
        return float(np.square(q - self.aligned(q, other)).sum())

    def limit(self, other: State) -> float:
        """Shifts go by whole cells, so that near states up to one cell are the same."""
        q = self.root(other)
        return max([_SAME] + [float(np.square(q - np.roll(q, 1, a)).sum()) for a in self.axes])


def _deflated(linear: Linear, begin: State, found: Sequence[State], same: _Same) -> State | None:
    """A state that Newton's method reaches without going to the ones found, or None."""
    mesh, now = linear.mesh, begin
    for _ in range(_DEFLATED):
        if now.residual < 1e-8:
            return now
        y, _ = linear.solve(now, 1e-6)
        q = same.root(now)
        pull = 0.0  # of log prod (1 / d^2 + 1) along the step
        for known in found:
            gap = q - same.aligned(q, known)
            d = max(float(np.square(gap).sum()), 1e-12)
            pull -= float(np.sum(gap * y)) / (d * (1.0 + d))
        factor = 1.0 / (1.0 - pull) if abs(1.0 - pull) > 1e-8 else 1e8
        factor = math.copysign(min(abs(factor), _LARGEST / max(float(np.sqrt(np.square(y).sum())), 1e-300)), factor)
        if abs(factor - 1.0) < 0.2:
            factor = 1.0
        towards = now.interaction + linear.pushed(now, y)
        full = image(mesh, now.beta, towards)
        logs = np.where(mesh.volumes > 0, now.log_density, 0.0)
        if factor == 1.0:
            now = full
        else:
            change = np.where(mesh.volumes > 0, full.log_density, 0.0) - logs
            now = state(mesh, now.beta, logs + factor * change)
        if not math.isfinite(now.residual):
            return None
    return None
