"""A disc on a Cartesian grid: cells that the circle cuts keep the exact area and open face lengths of their inside.

A cut cell's value stands at the centre of the whole square, as in the finite volumes of Ng, Min and Gibou (J. Comput. Phys.
228, 2009), which are second order: V is therefore asked for up to a cell's diagonal beyond the circle.
"""

from __future__ import annotations

import numpy as np

from meanfield._checks import Array
from meanfield.domain import Ball
from meanfield.mesh.base import Grid, Mesh, cell_potential
from meanfield.mesh.cartesian import NAMES, axes, equal_cell_convolution
from meanfield.problem import Problem

__all__ = ["disc"]

_SLIVER = 1e-6  # of a cell: less than that is left out


def disc(problem: Problem, grid: Grid) -> Mesh:
    """A Ball of dimension two on ``grid.cells`` cells a side of its square."""
    domain, shape = problem.domain, grid.shape(2)
    assert isinstance(domain, Ball)
    radius = domain.radius
    (x, y), (x_edge, y_edge), widths = axes(((-radius, radius),) * 2, shape)
    volumes = _areas(radius, x_edge, y_edge)
    volumes[volumes < _SLIVER * widths[0] * widths[1]] = 0.0
    inside = volumes > 0
    conductances = []
    for a, (faces, sides) in enumerate(((x_edge, y_edge), (y_edge, x_edge))):
        # length of the face behind each cell along the axis: what lies between the two arcs
        half = np.sqrt(np.maximum(radius**2 - faces[1:] ** 2, 0.0))[:, None]
        length = np.maximum(np.minimum(sides[1:], half) - np.maximum(sides[:-1], -half), 0.0)
        length = length if a == 0 else length.T
        length[~(inside & np.roll(inside, -1, a))] = 0.0
        length[(slice(None),) * a + (-1,)] = 0.0
        conductances.append(length / widths[a])
    whole = equal_cell_convolution(problem, widths, shape)
    convolution = None
    if whole is not None:
        fraction = volumes / (widths[0] * widths[1])

        def convolution(rho: Array) -> Array:
            return whole(rho * fraction)

    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    return Mesh(problem, NAMES, (x, y), (x_edge, y_edge), volumes, tuple(conductances),
                cell_potential(problem, points, inside), convolution,
                contains=lambda x, y: np.square(x) + np.square(y) <= radius**2)


def _areas(radius: float, x_edge: Array, y_edge: Array) -> Array:
    """Exact area inside the circle of each cell between the edges."""
    x, y = _quadrants(x_edge), _quadrants(y_edge)
    return np.asarray(sum(_quadrant_areas(radius, *a, *b) for a in x for b in y))


def _quadrants(edge: Array) -> list[tuple[Array, Array]]:
    """The parts of the cells on either side of 0, both as distances from it."""
    positive, negative = np.maximum(edge, 0.0), np.maximum(-edge, 0.0)
    return [(positive[:-1], positive[1:]), (negative[1:], negative[:-1])]


def _quadrant_areas(radius: float, a: Array, b: Array, c: Array, d: Array) -> Array:
    """Area of [a, b] x [c, d] inside the circle, 0 <= a and 0 <= c: int_a^b clip(sqrt(R^2 - x^2) - c, 0, d - c) dx."""
    a, b = a[:, None], b[:, None]
    full = np.clip(np.sqrt(np.maximum(radius**2 - d**2, 0.0)), a, b)  # up to here the column is filled
    empty = np.clip(np.sqrt(np.maximum(radius**2 - c**2, 0.0)), a, b)  # from here on it is not met

    def primitive(x: Array) -> Array:
        ratio = np.minimum(x / radius, 1.0)
        area: Array = 0.5 * radius**2 * (ratio * np.sqrt(1.0 - ratio**2) + np.arcsin(ratio))
        return area

    cut = np.where(empty > full, primitive(empty) - primitive(full) - c * (empty - full), 0.0)
    return np.asarray((full - a) * (d - c) + np.maximum(cut, 0.0))
