"""Tilted problems: V - (theta / beta) f, for particles (``Tilt``) and for densities on cells (``CellTilt``).

Under the tilted law the mean of f over particles is driven away from its typical value; ``rate_function`` and
``estimate_rate`` are made of such laws and are what to call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array
from meanfield.mesh import Mesh
from meanfield.potentials import Potential
from meanfield.problem import Problem

__all__ = ["CellTilt", "CellValues", "Statistic", "Tilt", "cell_values", "evaluate"]

Statistic = Callable[[Array], Array]

_GAUSS = 8
_HALVINGS = 900  # panels towards a wall at 0; elsewhere the spacing of floating point numbers ends it earlier


def evaluate(statistic: Statistic, positions: Array, components: int = 0) -> Array:
    """The statistic at positions (..., component), checked: shape (...), or (..., ``components``)."""
    if not callable(statistic):
        raise TypeError(f"statistic must be a function of positions (..., component), got {statistic!r}")
    with np.errstate(all="ignore"):  # log x at a wall is -inf, and that is said below where it matters
        values = np.asarray(statistic(positions), dtype=np.float64)
    expected = positions.shape[:-1] + ((components,) if components else ())
    if values.shape != expected:
        raise ValueError(f"statistic must map positions {positions.shape} to shape {expected}, got {values.shape}")
    if np.isnan(values).any():
        place = positions[tuple(np.argwhere(np.isnan(values))[0][:positions.ndim - 1])]
        raise ValueError(f"statistic must be a number everywhere in the domain, got nan at {place.tolist()}")
    return values


@dataclass(frozen=True, eq=False)
class Tilt(Potential):
    """-slope f(x), slope = theta / beta, for ``simulate`` with scheme "metropolis".

    That scheme is exact for any function in the place of the gradient, so this one may be a finite difference, and it is
    never longer than ``longest``: a singular f would throw particles out of the domain from wherever they come near it.
    """

    statistic: Statistic = field(repr=False)
    slope: float = 0.0
    longest: float = math.inf
    step: float = 1e-6
    derivative: Statistic | None = field(default=None, repr=False)

    @property
    def formula(self) -> str:
        return f"V(x) = -{self.slope:g} f(x)"

    def value(self, positions: Array) -> Array:
        if not self.slope:
            return np.zeros(positions.shape[:-1])  # also where f is infinite
        return -self.slope * evaluate(self.statistic, positions)

    def gradient(self, positions: Array) -> Array:
        with np.errstate(all="ignore"):
            if self.derivative is not None:
                gradient = np.asarray(self.derivative(positions), dtype=np.float64)
                if gradient.shape != positions.shape:
                    raise ValueError(f"gradient must map positions {positions.shape} to the same shape, "
                                     f"got {gradient.shape}")
            else:
                gradient = self._difference(positions)
            force = -self.slope * gradient
            force = np.where(np.isfinite(force), force, 0.0)
            length = np.sqrt(np.square(force).sum(axis=-1, keepdims=True))
            limited: Array = force * np.minimum(1.0, self.longest / np.where(length > 0, length, 1.0))
        return limited

    def _difference(self, positions: Array) -> Array:
        gradient = np.empty(positions.shape)
        for a in range(positions.shape[-1]):
            ahead, behind = positions.copy(), positions.copy()
            ahead[..., a] += self.step
            behind[..., a] -= self.step
            # a point that has left the domain of f (nan) leaves no slope, which is allowed
            gradient[..., a] = (np.asarray(self.statistic(ahead)) - np.asarray(self.statistic(behind))) / (2 * self.step)
        return gradient


@dataclass(frozen=True, eq=False)
class CellTilt(Potential):
    """One number a cell, found again by where a point lies: a potential that has been averaged beforehand."""

    mesh: Mesh = field(repr=False)
    table: Array = field(repr=False)

    @property
    def formula(self) -> str:
        return "V(x) = the tilted potential of each cell"

    def value(self, positions: Array) -> Array:
        if self.mesh.names == ("r",):
            positions = np.sqrt(np.square(positions).sum(axis=-1, keepdims=True))
        cell = [np.clip(np.searchsorted(edge, positions[..., a], side="right") - 1, 0, len(edge) - 2)
                for a, edge in enumerate(self.mesh.edges)]
        value: Array = self.table[tuple(cell)]
        return value

    def gradient(self, positions: Array) -> Array:
        return np.zeros(positions.shape)  # constant in a cell; no engine of densities asks


@dataclass(frozen=True, eq=False)
class CellValues:
    """f and V at the nodes of a rule in each cell; nodes of a cell are neighbours, ``first`` is where each cell begins.

    ``log_weight`` are logarithms of weights that sum to 1 in each cell. ``statistic`` has shape (node, m).
    """

    mesh: Mesh
    first: NDArray[np.intp]
    cell: NDArray[np.intp]
    log_weight: Array
    potential: Array
    statistic: Array

    def tilted(self, beta: float, theta: Array) -> tuple[Array, Array]:
        """What V - theta f / beta is worth in a cell, and the mean of f there, shapes (cell..., ) and (cell..., m).

        -(1 / beta) log of the cell's mean of exp(-beta V + theta f), so that without interaction the discrete law has
        the weights of the continuous one, singular f included, and the means are the derivatives: exact to the rule.
        """
        if math.isinf(beta):
            shares = np.exp(self.log_weight)
            table = np.add.reduceat(shares * (self.potential - self.statistic @ theta), self.first)
        else:
            exponent = self.log_weight - beta * self.potential + self.statistic @ theta
            top = np.maximum.reduceat(exponent, self.first)
            weights = np.exp(exponent - top[self.cell])
            total = np.add.reduceat(weights, self.first)
            table = -(top + np.log(total)) / beta
            shares = weights / total[self.cell]
        means = np.add.reduceat(shares[:, None] * self.statistic, self.first, axis=0)
        return table.reshape(self.mesh.shape), means.reshape(*self.mesh.shape, -1)


def cell_values(problem: Problem, mesh: Mesh, statistic: Statistic, components: int = 0) -> CellValues:
    """Evaluate f and V for ``CellValues``: Gauss rules of 8 points a side, graded towards the walls of a line or shells."""
    node, weight = (np.polynomial.legendre.leggauss(_GAUSS)[0] + 1) / 2, np.polynomial.legendre.leggauss(_GAUSS)[1] / 2
    if len(mesh.names) == 1:
        edges = mesh.edges[0]
        places, log_weights, counts = [], [], []
        for i, (low, high) in enumerate(pairwise(edges)):
            panels = np.array([low, high])
            if i == 0:
                panels = _graded(low, high)
            elif i == len(edges) - 2:
                panels = _graded(high, low)[::-1]
            width = np.diff(panels)[:, None]
            places.append((panels[:-1, None] + width * node).ravel())
            log_weights.append((np.log(width) + np.log(weight)).ravel())
            counts.append(places[-1].size)
        place, log_weight = np.concatenate(places)[:, None], np.concatenate(log_weights)
        if mesh.names == ("r",):
            log_weight = log_weight + (problem.dim - 1) * np.log(place[:, 0])
            place = np.concatenate([place, np.zeros((len(place), problem.dim - 1))], axis=1)
            _refuse_directions(problem, statistic, place, components)
    else:
        count = int(np.prod(mesh.shape))
        dim = len(mesh.edges)
        corner = np.stack(np.meshgrid(*[e[:-1] for e in mesh.edges], indexing="ij"), axis=-1).reshape(count, 1, dim)
        side = np.stack(np.meshgrid(*[np.diff(e) for e in mesh.edges], indexing="ij"), axis=-1).reshape(count, 1, dim)
        inner = np.stack(np.meshgrid(*[node] * dim, indexing="ij"), axis=-1).reshape(1, -1, dim)
        share = np.prod(np.stack(np.meshgrid(*[weight] * dim, indexing="ij"), axis=-1), axis=-1).ravel()
        place = (corner + side * inner).reshape(-1, dim)
        outside = ~problem.domain.contains(place)
        place[outside] = problem.domain.project(place[outside])  # in the cells that the boundary cuts
        log_weight, counts = np.tile(np.log(share), count), [share.size] * count
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    cell = np.repeat(np.arange(len(counts)), counts)
    log_weight = log_weight - np.maximum.reduceat(log_weight, first)[cell]
    log_weight = log_weight - np.log(np.add.reduceat(np.exp(log_weight), first))[cell]
    values = evaluate(statistic, place, components).reshape(len(place), -1)
    if not np.isfinite(values).all():
        at = place[int(np.argwhere(~np.isfinite(values))[0][0])]
        raise ValueError(f"statistic must be finite inside the domain, got {values[~np.isfinite(values)][0]} "
                         f"at {at.tolist()}")
    potential = _checks.finite_array("potential", problem.potential_value(place))
    return CellValues(mesh, first, cell, log_weight, potential, values)


def _graded(wall: float, far: float) -> Array:
    """Panel edges from ``wall`` to ``far``, halved towards the wall as long as they can be told from it."""
    width = far - wall
    room = _HALVINGS if wall == 0 else int(math.log2(abs(width) / (abs(wall) * 2.0**-46)))
    return wall + width * np.concatenate([[0.0], 2.0 ** -np.arange(max(room, 0), -1, -1, dtype=np.float64)])


def _refuse_directions(problem: Problem, statistic: Statistic, place: Array, components: int) -> None:
    turned = np.roll(place, 1, axis=-1)
    one, other = evaluate(statistic, place, components), evaluate(statistic, turned, components)
    if not np.allclose(one, other, rtol=1e-9, atol=1e-12):
        raise ValueError("on a radial grid the statistic must depend on |x| alone, got values that differ between "
                         "directions")
