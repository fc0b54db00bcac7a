"""Boxes, tori and windows of free space in one and two dimensions, as meshes of equal cells."""

from __future__ import annotations

import numpy as np

from meanfield._checks import Array
from meanfield.domain import Ball, Box, Torus
from meanfield.interactions.averages import double_averages
from meanfield.mesh.base import Convolution, Grid, Mesh, cell_potential
from meanfield.mesh.convolution import circulant, toeplitz
from meanfield.problem import Problem

__all__ = ["NAMES", "axes", "cartesian", "equal_cell_convolution"]

NAMES = ("x", "y")


def cartesian(problem: Problem, grid: Grid) -> Mesh:
    """An Interval, a Box or a Torus, or the ``window`` of a FreeSpace, in one or two dimensions.

    Pairs on a torus are taken at their nearest image, as ``simulate`` does: a double average over two cells knows the
    kinks of that exactly.
    """
    domain, shape = problem.domain, grid.shape(problem.dim)
    periodic = isinstance(domain, Torus)
    sides = _sides(problem, grid)
    centers, edges, widths = axes(sides, shape)
    volume = float(np.prod(widths))
    conductances = []
    for a, width in enumerate(widths):
        conductance = np.full(shape, volume / width**2)
        if not periodic:
            conductance[(slice(None),) * a + (-1,)] = 0.0
        conductances.append(conductance)
    points = np.stack(np.meshgrid(*centers, indexing="ij"), axis=-1)
    return Mesh(problem, NAMES[:problem.dim], centers, edges, np.full(shape, volume), tuple(conductances),
                cell_potential(problem, points), equal_cell_convolution(problem, widths, shape, periodic))


def _sides(problem: Problem, grid: Grid) -> tuple[tuple[float, float], ...]:
    domain = problem.domain
    if isinstance(domain, Box):
        return tuple(zip(domain.low, domain.high, strict=True))
    if isinstance(domain, Torus):
        return ((0.0, domain.length),) * domain.dim
    if isinstance(domain, Ball):
        return ((-domain.radius, domain.radius),) * domain.dim
    return grid.sides(problem.dim)


def axes(sides: tuple[tuple[float, float], ...],
         shape: tuple[int, ...]) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[float, ...]]:
    """Centres, edges and width of the cells along each axis."""
    widths = tuple((high - low) / m for (low, high), m in zip(sides, shape, strict=True))
    middles = [np.arange(m, dtype=np.float64) + 0.5 for m in shape]
    centers = tuple(low + h * middle for (low, _), h, middle in zip(sides, widths, middles, strict=True))
    edges = tuple(np.append(x - 0.5 * h, high) for (_, high), h, x in zip(sides, widths, centers, strict=True))
    return centers, edges, widths


def equal_cell_convolution(problem: Problem, widths: tuple[float, ...], shape: tuple[int, ...],
                           periodic: bool = False) -> Convolution | None:
    """g * rho of all terms by exact double averages, or None without interaction."""
    terms = [double_averages(kernel, widths, shape, periodic) for kernel in problem.interactions]
    if not terms:
        return None
    weights: Array = sum(terms[1:], terms[0]) * float(np.prod(widths))
    return circulant(weights) if periodic else toeplitz(weights)
