"""``Polytope``: any bounded convex set of linear inequalities {A x <= b}."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain.base import Domain, Seed, dots, generator, mirrored, norm, sample_shape
from meanfield.registry import register

__all__ = ["Polytope"]

# a polytope whose largest ball is smaller than this share of its largest width has no interior to speak of
_FLAT = 1e-9
# from here on (in widths) a float's last place is no longer small beside the polytope: pull such a point in first
_FAR = 1e9


@register
@dataclass(frozen=True, init=False)
class Polytope(Domain):
    """{x : A x <= b}: ``normals`` A over (half-space, component), ``offsets`` b over (half-space,); bounded, solid.

    The nearest point is exact: onto one half-space where that suffices, else the active set of the quadratic programme
    from non-negative least squares (Lawson and Hanson 1974, ch. 23), one small problem a point (some 0.1 ms), then the
    linear system of the active set. Beyond 1e9 widths a point is first pulled in along its ray. ``reflect`` mirrors about
    the nearest point, repeatedly. Volume, diameter and samples go through the vertices, so keep dim below 9 or so.

    Raises ValueError for shapes that do not fit, a zero normal, and a set that is empty, flat or unbounded.
    """

    normals: tuple[tuple[float, ...], ...]
    offsets: tuple[float, ...]

    def __init__(self, normals: Sequence[Sequence[float]] | Array, offsets: Sequence[float] | Array) -> None:
        a, b = _checks.finite_array("normals", normals, ndim=2), _checks.finite_array("offsets", offsets, ndim=1)
        if a.shape[0] != b.size or a.shape[1] < 1:
            raise ValueError(f"normals must have shape (half-space, component) and offsets (half-space,), "
                             f"got {a.shape} and {b.shape}")
        if not a.any(axis=1).all():
            raise ValueError(f"every normal must differ from zero, got zeros in row {int(np.argmin(a.any(axis=1)))}")
        object.__setattr__(self, "normals", tuple(tuple(row) for row in a.tolist()))
        object.__setattr__(self, "offsets", tuple(b.tolist()))
        if not 2 * self._inball[1] > _FLAT * self._widest:
            raise ValueError("normals and offsets must leave a set with an interior, got a flat one")

    @classmethod
    def example(cls, dim: int) -> Polytope:
        slanted = np.eye(dim) + 0.2 * np.arange(dim)[:, None] * np.ones((dim, dim))
        return cls(np.vstack([slanted, -np.eye(dim), np.ones((1, dim))]), [*[1.2] * dim, *[1.0] * dim, 0.9])

    @property
    def dim(self) -> int:  # type: ignore[override]
        return len(self.normals[0])

    @cached_property
    def _rows(self) -> Array:
        return np.array(self.normals)

    @cached_property
    def _unit(self) -> tuple[Array, Array]:
        """Outward unit normals and their offsets."""
        length = norm(self._rows)
        return self._rows / length[:, None], np.array(self.offsets) / length

    @cached_property
    def _bounds(self) -> tuple[Array, Array]:
        """Smallest box around the polytope, by linear programming; refuses what is empty or unbounded."""
        from scipy.optimize import linprog

        unit, offset = self._unit
        found = [linprog(sign * axis, unit, offset, bounds=(None, None))
                 for sign in (1.0, -1.0) for axis in np.eye(self.dim)]
        # HiGHS may say "infeasible or unbounded" (4): only a programme without an objective tells which
        if any(f.status != 0 for f in found):
            empty = linprog(np.zeros(self.dim), unit, offset, bounds=(None, None)).status == 2
            raise ValueError(f"normals and offsets must leave a {'non-empty' if empty else 'bounded'} set, got "
                             f"{'an empty' if empty else 'an unbounded'} one")
        low = np.array([f.fun for f in found[:self.dim]])
        return low, -np.array([f.fun for f in found[self.dim:]])

    @cached_property
    def _widest(self) -> float:
        return float(np.max(self._bounds[1] - self._bounds[0]))

    @cached_property
    def _inball(self) -> tuple[Array, float]:
        """Centre and radius of a largest ball inside."""
        from scipy.optimize import linprog

        unit, offset = self._unit
        scale = self._widest or 1.0
        found = linprog([*[0.0] * self.dim, -1.0], np.column_stack([unit, np.ones(len(offset))]), offset / scale,
                        bounds=[*[(None, None)] * self.dim, (0, None)])
        if found.status != 0:
            raise ValueError("normals and offsets must leave a non-empty set, got an empty one")
        return scale * found.x[:-1], scale * float(found.x[-1])

    @cached_property
    def vertices(self) -> Array:
        """The corners, over (vertex, component)."""
        if self.dim == 1:
            return np.array(self._bounds)
        from scipy.spatial import HalfspaceIntersection

        unit, offset = self._unit
        center, _ = self._inball
        corners = HalfspaceIntersection(np.column_stack([unit, -(offset - unit @ center)]), np.zeros(self.dim)).intersections
        # corners where more than dim faces meet are found more than once
        _, first = np.unique(np.round(corners / self._widest, 9), axis=0, return_index=True)
        return np.asarray(corners[np.sort(first)] + center)

    @cached_property
    def _simplices(self) -> tuple[Array, Array]:
        """A triangulation: corners over (simplex, corner, component), and volumes."""
        if self.dim == 1:
            return self.vertices[None], np.array([self._widest])
        from scipy.spatial import Delaunay

        corners = self.vertices[Delaunay(self.vertices).simplices]
        edges = corners[:, 1:] - corners[:, :1]
        return corners, np.abs(np.linalg.det(edges)) / math.factorial(self.dim)

    @cached_property
    def _volume(self) -> float:
        if self.dim == 1:
            return self._widest
        from scipy.spatial import ConvexHull

        return float(ConvexHull(self.vertices).volume)

    @cached_property
    def _diameter(self) -> float:
        return max(float(norm(self.vertices - corner).max()) for corner in self.vertices)

    @property
    def volume(self) -> float:
        return self._volume

    @property
    def diameter(self) -> float:
        return self._diameter

    def contains(self, points: Array) -> NDArray[np.bool_]:
        points = np.asarray(points, dtype=np.float64)
        return np.asarray((dots(points, self._rows) <= np.array(self.offsets)).all(axis=-1))

    def project(self, points: Array) -> Array:
        points = np.array(points, dtype=np.float64)
        outside = ~self.contains(points)
        if outside.any():
            points[outside] = self._inwards(self._nearest(points[outside]))
        return points

    def _nearest(self, x: Array) -> Array:
        """Nearest points of outside points (point, component), up to rounding."""
        unit, offset = self._unit
        center = self._inball[0]
        y = x - center
        far = norm(y)
        reach = _FAR * self._widest
        y[far > reach] *= (reach / far[far > reach])[:, None]
        offset = offset - unit @ center  # at least the radius of the ball inside
        violation = dots(y, unit) - offset
        worst = violation.argmax(axis=1)
        beyond = np.take_along_axis(violation, worst[:, None], axis=1)
        # the nearest point of the most violated half-space is the answer if it lies in the polytope
        nearest: Array = y - np.maximum(beyond, 0.0) * unit[worst]
        corner = (dots(nearest, unit) - offset > 1e-14 * (self._widest + np.abs(beyond))).any(axis=1)
        for i in np.flatnonzero(corner):
            nearest[i] = _onto_active(y[i], unit, offset, violation[i])
        return nearest + center

    def _inwards(self, points: Array) -> Array:
        """Towards the centre until inside: a rounding or two, doubled each time."""
        center, share = self._inball[0], 2.0**-53
        outside = ~self.contains(points)
        while outside.any():
            points[outside] = center + (points[outside] - center) * (1.0 - share)
            outside = ~self.contains(points)
            share *= 2.0
        return points

    def reflect(self, points: Array) -> Array:
        return mirrored(self, points)

    def boundary_distance(self, points: Array) -> Array:
        unit, offset = self._unit
        return np.asarray(np.maximum((offset - dots(np.asarray(points), unit)).min(axis=-1), 0.0))

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        rng, shape = generator(seed), sample_shape(size, self.dim)
        corners, volumes = self._simplices
        chosen = rng.choice(len(volumes), size=shape[:-1], p=volumes / volumes.sum())
        weights = rng.standard_exponential((*shape[:-1], self.dim + 1))
        weights /= weights.sum(axis=-1, keepdims=True)
        return self.project(np.einsum("...c,...cd->...d", weights, corners[chosen]))


def _onto_active(y: Array, unit: Array, offset: Array, violation: Array) -> Array:
    """argmin |p - y| over unit p <= offset: the active set from least distance programming, then p on that face.

    min |z| with unit z <= -violation is non-negative least squares of [unit^T; -violation^T] against the last axis.
    """
    from scipy.optimize import nnls

    scale = float(violation.max())
    system = np.vstack([-unit.T, violation / scale])
    target = np.zeros(len(system))
    target[-1] = 1.0
    multiplier = nnls(system, target)[0]
    active = multiplier > 1e-12 * multiplier.max()
    face, level = unit[active], offset[active]
    nearest = y
    for _ in range(2):  # the second time removes the rounding of the first
        nearest = nearest - np.linalg.lstsq(face, face @ nearest - level, rcond=None)[0]
    return nearest
