"""The Gibbs density on Gauss-Legendre panels: many digits where the density bends sharply at walls (``method="panels"``).

Panels get geometrically smaller towards the walls and are halved wherever the density is not resolved. On each the density
is a polynomial through ``order`` Gauss nodes, and g * rho at node i is sum_j K_ij rho_j, K_ij = int g(x_i - y) L_j(y) dy
with the Lagrange polynomials L_j of the panel of node j (product integration: Nystrom's method). Far panels take the Gauss
rule, near ones a rule graded towards their ends, and a node's own panel one graded towards the node, on both sides. The
rules ask the interaction for its values alone, so every kernel that is integrable on the line will do.

Balls of dimension two and more are taken along the radius, for Coulomb kernels: a sphere acts as its centre from outside and
is constant inside (Newton), so that g * rho is the integral of g(max(r, r')).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from meanfield._checks import Array
from meanfield.domain import Ball, Box
from meanfield.interactions import Riesz
from meanfield.mesh import Mesh
from meanfield.problem import Problem

__all__ = ["Panels", "first_panels"]

_LEVELS = 60  # halvings of the rule towards a node; what is left of a singular kernel below is a geometric series
_POINTS = 10  # nodes of each of them
_NEAR_LEVELS, _NEAR_POINTS = 14, 16  # towards the ends of a panel
_NEAR = 0.5  # nodes nearer to a panel than this share of its length are near
_FIRST_LEVELS = 16  # panels towards a wall to begin with


@dataclass(frozen=True, eq=False)
class Panels:
    """Panels on a line of some length, from both ends to the middle: panel k is [low_k, high_k] away from end side_k.

    Distances from the nearer end, not positions, so that differences between nodes next to a wall keep their digits.
    """

    problem: Problem
    order: int
    side: Array
    low: Array
    high: Array

    @property
    def span(self) -> tuple[float, float]:
        """The ends of the line: of the interval, or 0 and the radius."""
        domain = self.problem.domain
        if isinstance(domain, Box):
            return float(domain.low[0]), float(domain.high[0])
        assert isinstance(domain, Ball)
        return (0.0 if self.radial else -domain.radius), domain.radius

    @property
    def radial(self) -> bool:
        return self.problem.dim > 1

    def weight(self, r: Array) -> Array:
        """Volume element along the line."""
        d = self.problem.dim
        surface = 2.0 * math.pi ** (d / 2) / math.gamma(d / 2) if self.radial else 1.0
        return surface * np.asarray(r) ** (d - 1) if self.radial else np.ones(np.shape(r))

    def place(self, side: Array, t: Array) -> Array:
        """Coordinate of the point t away from an end."""
        low, high = self.span
        return np.where(side == 0, low + t, high - t)

    @property
    def nodes(self) -> tuple[Array, Array, Array]:
        """side, distance t from that end, and Gauss weight (without the volume element) of all nodes."""
        xi, w = legendre.leggauss(self.order)
        half = 0.5 * (self.high - self.low)[:, None]
        t = self.low[:, None] + half * (xi + 1.0)
        return np.repeat(self.side, self.order), t.ravel(), (half * w).ravel()

    @cached_property
    def mesh(self) -> tuple[Mesh, Array]:
        """The nodes as the cells of a mesh, and the matrix that takes masses to g * rho."""
        side, t, w = self.nodes
        x = self.place(side, t)
        volumes = w * self.weight(x)
        points = np.zeros((x.size, self.problem.dim))
        points[:, 0] = x
        potential = self.problem.potential_value(points)
        if not np.isfinite(potential).all():
            raise ValueError(f"the potential must be finite, got {potential[~np.isfinite(potential)][0]}")
        kernel = sum((self._kernel(term.value) for term in self.problem.interactions), np.zeros((x.size, x.size)))
        convolve = (lambda rho: kernel @ rho) if self.problem.interactions else None
        edges = np.append(np.sort(self.place(self.side, self.low)), self.span[1])
        mesh = Mesh(self.problem, ("r" if self.radial else "x",), (x,), (edges,), volumes, (np.zeros(x.size),), potential,
                    convolve)
        return mesh, kernel / volumes

    def _kernel(self, g: Callable[[Array], Array]) -> Array:
        """K_ij, the volume element of y included."""
        side, t, w = self.nodes
        p = self.order
        x = self.place(side, t)
        with np.errstate(divide="ignore", invalid="ignore"):
            matrix = self._pair(g, side[:, None], t[:, None], side, t) * (w * self.weight(x))
        fine, values = _fine_rule(p)
        for k in range(self.side.size):
            columns = slice(k * p, (k + 1) * p)
            length = self.high[k] - self.low[k]
            # distance of each node from the panel, 0 inside
            ends = [self._distance(side, t, self.side[k], e) for e in (self.low[k], self.high[k])]
            gap = np.minimum(*ends)
            rows = np.flatnonzero(gap < _NEAR * length)
            rows = rows[(rows < k * p) | (rows >= (k + 1) * p)]
            y = self.low[k] + length * fine
            there = self._pair(g, side[rows, None], t[rows, None], self.side[k], y)
            matrix[rows, columns] = length * (there * self.weight(self.place(self.side[k], y))) @ values
            matrix[columns, columns] = self._own(g, k)
        return matrix

    def _own(self, g: Callable[[Array], Array], k: int) -> Array:
        """The block of a panel with itself: on either side of each node a rule graded towards the node."""
        p, half = self.order, 0.5 * (self.high[k] - self.low[k])
        xi = legendre.leggauss(p)[0]
        rule, weights, values = _own_rule(p)
        block = np.zeros((p, p))
        for direction, reach in ((-1.0, 1.0 + xi), (1.0, 1.0 - xi)):
            away = half * reach[:, None] * rule  # (node, point)
            if self.radial:
                r = self.place(np.full(p, self.side[k]), self.low[k] + half * (1.0 + xi))[:, None]
                other = r + (direction if self.side[k] == 0 else -direction) * away
                kernel = g(np.maximum(r, other)) * self.weight(other)
            else:
                kernel = g(away)
            parts = kernel * (half * reach[:, None] * weights)
            block += np.einsum("iq,iqk->ik", parts, values[0 if direction < 0 else 1])
            block[np.arange(p), np.arange(p)] += _below(parts)
        return block

    def at_walls(self, g: Callable[[Array], Array]) -> Array:
        """Rows (wall, node) of K for the ends that are walls, the low one first."""
        p = self.order
        rows = []
        t, w, _ = _own_rule(p)
        for end in (1,) if self.radial else (0, 1):
            row = np.empty(self.side.size * p)
            for k in range(self.side.size):
                own = self.side[k] == end and self.low[k] == 0
                fine, values = (t, _lagrange(p, 2.0 * t - 1.0) * w[:, None]) if own else _fine_rule(p)
                length = self.high[k] - self.low[k]
                y = self.low[k] + length * fine
                there = self._pair(g, np.array(end), np.array(0.0), self.side[k], y)
                weight = length * there * self.weight(self.place(self.side[k], y))
                row[k * p:(k + 1) * p] = weight @ values
                if own:
                    row[k * p:(k + 1) * p] += _below((weight * w)[None]) * _lagrange(p, np.array([-1.0]))[0]
            rows.append(row)
        return np.array(rows)

    def _pair(self, g: Callable[[Array], Array], side: Array, t: Array, other: Array, s: Array) -> Array:
        if self.radial:
            return g(np.maximum(self.place(side, t), self.place(other, s)))
        return g(self._distance(side, t, other, s))

    def _distance(self, side: Array, t: Array, other: Array, s: Array) -> Array:
        low, high = self.span
        return np.where(side == other, np.abs(t - s), (high - low) - t - s)

    def coefficients(self, values: Array) -> Array:
        """Legendre coefficients (panel, degree) of the polynomials through values at the nodes."""
        return values.reshape(-1, self.order) @ _transform(self.order).T

    def evaluate(self, values: Array, side: Array, t: Array) -> Array:
        """The piecewise polynomial at points t away from their ends."""
        series = self.coefficients(values)
        k, xi = self._locate(side, t)
        result: Array = np.einsum("nk,kn->n", series[k], legendre.legvander(xi, self.order - 1).T)
        return result

    def cumulative(self, values: Array, x: Array) -> Array:
        """int from the low end to the points x of the piecewise polynomial (values include the volume element)."""
        series = self.coefficients(values)
        half = 0.5 * (self.high - self.low)
        whole = 2.0 * half * series[:, 0]
        rank = np.argsort(self.place(self.side, self.low + half))
        start = np.empty(whole.size)  # mass before each panel, from the low end
        start[rank] = np.cumsum(whole[rank]) - whole[rank]
        low, high = self.span
        side = np.where(x - low <= high - x, 0, 1)
        k, xi = self._locate(side, np.clip(np.where(side == 0, x - low, high - x), 0.0, None))
        inner = np.array([half[j] * legendre.legval(z, legendre.legint(series[j], lbnd=-1))
                          for j, z in zip(k, xi, strict=True)])
        result: Array = start[k] + np.where(side == 0, inner, whole[k] - inner)
        return result

    def _locate(self, side: Array, t: Array) -> tuple[NDArray[np.int64], Array]:
        k: NDArray[np.int64] = np.empty(np.shape(t), dtype=np.int64)
        for end in (0, 1):
            of = np.flatnonzero(self.side == end)
            of = of[np.argsort(self.low[of])]
            here = np.asarray(side) == end
            if here.any():
                k[here] = of[np.clip(np.searchsorted(self.low[of], t[here], side="right") - 1, 0, of.size - 1)]
        xi = 2.0 * (t - self.low[k]) / (self.high[k] - self.low[k]) - 1.0
        return k, np.clip(xi, -1.0, 1.0)

    def wall_panels(self, ends: list[int]) -> NDArray[np.int64]:
        """Which panels lie at the ends."""
        return np.flatnonzero((self.low == 0) & np.isin(self.side, ends))

    def unresolved(self, rho: Array, tolerance: float) -> Array:
        """Panels on which the last coefficients of the density are above the tolerance times its largest value."""
        tail = np.abs(self.coefficients(rho)[:, -3:]).max(axis=1)
        flags: Array = tail > tolerance * float(rho.max())
        return flags

    def refined(self, flags: Array) -> Panels:
        """Panels with the flagged ones halved; those at a wall into a geometric series of eight."""
        side, low, high = [], [], []
        for k in range(self.side.size):
            cuts = np.array([self.low[k], self.high[k]])
            if flags[k]:
                wall = self.low[k] == 0 and not (self.radial and self.side[k] == 0)
                cuts = np.append(0.0, self.high[k] * 2.0 ** np.arange(-8, 1)) if wall else np.linspace(cuts[0], cuts[1], 3)
            side += [self.side[k]] * (cuts.size - 1)
            low += cuts[:-1].tolist()
            high += cuts[1:].tolist()
        return Panels(self.problem, self.order, np.array(side), np.array(low), np.array(high))

    def of_order(self, order: int) -> Panels:
        """The same panels with another number of nodes."""
        return Panels(self.problem, order, self.side, self.low, self.high)


def first_panels(problem: Problem, order: int) -> Panels:
    """Panels to begin with: four to the middle from either end, the ones at walls graded.

    Raises ValueError for a domain or a kernel that panels cannot do.
    """
    domain = problem.domain
    if not isinstance(domain, Ball) and not (isinstance(domain, Box) and problem.dim == 1):
        raise ValueError(f"panels are for an Interval, or for a Ball and its Coulomb kernel, got {domain!r}")
    if problem.dim > 1:
        for term in problem.interactions:
            if not (isinstance(term, Riesz) and term.s == problem.dim - 2 and term.softening == 0):
                raise ValueError(f"panels along the radius of a Ball take its Coulomb kernel, Riesz s = {problem.dim - 2} "
                                 f"without softening, got {term!r}")
    low, high = (0.0, domain.radius) if isinstance(domain, Ball) and problem.dim > 1 else (
        (domain.low[0], domain.high[0]) if isinstance(domain, Box) else (-domain.radius, domain.radius))
    middle = 0.5 * (high - low)
    inner = np.append(middle * 2.0 ** np.arange(-_FIRST_LEVELS - 1.0, -1.0), middle * np.array([0.5, 0.75, 1.0]))
    graded = np.append(0.0, inner)
    even = np.linspace(0.0, middle, 5)
    ends = [even if problem.dim > 1 else graded, graded]
    side = np.repeat([0, 1], [e.size - 1 for e in ends])
    return Panels(problem, order, side, np.concatenate([e[:-1] for e in ends]), np.concatenate([e[1:] for e in ends]))


@cache
def _transform(p: int) -> Array:
    """Values at the Gauss nodes -> Legendre coefficients."""
    xi, w = legendre.leggauss(p)
    result: Array = (legendre.legvander(xi, p - 1) * w[:, None]).T * (np.arange(p)[:, None] + 0.5)
    return result


def _lagrange(p: int, xi: Array) -> Array:
    """L_k at points xi of [-1, 1]: (point, k)."""
    result: Array = legendre.legvander(xi, p - 1) @ _transform(p)
    return result


def _graded(levels: int, points: int) -> tuple[Array, Array]:
    """Nodes and weights on [0, 1], panels halved towards 0, nearest first."""
    node, weight = legendre.leggauss(points)
    edge = np.append(0.0, 2.0 ** np.arange(-levels, 1.0))
    half = 0.5 * np.diff(edge)[:, None]
    return (edge[:-1, None] + half * (node + 1.0)).ravel(), (half * weight).ravel()


def _below(parts: Array) -> Array:
    """What a singular kernel has below the last level: sums over the levels (row, point) go on as a geometric series."""
    last, before = parts[:, :_POINTS].sum(axis=1), parts[:, _POINTS: 2 * _POINTS].sum(axis=1)
    falls = (last * before > 0) & (np.abs(last) < np.abs(before))
    ratio = np.where(falls, last / np.where(before == 0, 1.0, before), 0.0)
    return np.asarray(last * ratio / (1.0 - ratio))


@cache
def _own_rule(p: int) -> tuple[Array, Array, list[Array]]:
    """The rule towards a node, without its last level, and Lagrange values (node, point, k) before and after the node."""
    t, w = _graded(_LEVELS, _POINTS)
    t, w = t[_POINTS:], w[_POINTS:]
    xi = legendre.leggauss(p)[0]
    values = [np.array([_lagrange(p, z + sign * (1.0 + sign * -z) * t) for z in xi]) for sign in (-1.0, 1.0)]
    return t, w, values


@cache
def _fine_rule(p: int) -> tuple[Array, Array]:
    """Nodes on [0, 1] graded towards both ends, and the Lagrange values times weights (point, k)."""
    t, w = _graded(_NEAR_LEVELS, _NEAR_POINTS)
    node = np.concatenate([0.5 * t, 1.0 - 0.5 * t])
    weight = np.concatenate([0.5 * w, 0.5 * w])
    return node, _lagrange(p, 2.0 * node - 1.0) * weight[:, None]
