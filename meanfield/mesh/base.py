"""A problem on a grid: what the finite-volume solver, ``gibbs`` and ``free_energy`` know of a geometry.

A mesh is a box of cells with, for each cell, its volume and the value of V, for each face between neighbours its
conductance (area over distance), and the interaction g * rho by exact cell averages (method.md 7.4). The solver works on
nothing else, so a geometry is a function that fills these in: ``cartesian``, ``disc`` and ``radial`` do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.problem import Problem

__all__ = ["MASS_TOLERANCE", "TRUNCATION_TOLERANCE", "Convolution", "Energies", "Grid", "Mesh", "cell_potential",
           "refuse_unsolvable"]

# how far from 1 the mass of a given density may be; it is then divided by its mass
MASS_TOLERANCE = 1e-3
_GAUSS = 5  # points a side of the rule that averages a function over a cell

Convolution = Callable[[Array], Array]


# what may be left near the ends of a window: see Mesh.truncation
TRUNCATION_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Grid:
    """A grid of equal cells.

    cells   cells a side: a number, or one number for each axis, ``Grid((64, 32))``
    window  where a FreeSpace is cut off: (low, high) on every axis, or one such pair for each axis; put it so wide that no
            mass comes near its ends (the attribute ``truncation`` of the results says how much does)
    radial  shells of a Ball (or, with ``window=(0, R)``, of FreeSpace) instead of squares; always so above dimension 2
    """

    cells: int | tuple[int, ...]
    window: tuple[Any, ...] | None = None
    radial: bool = False

    def __post_init__(self) -> None:
        sides = self.cells if isinstance(self.cells, (tuple, list, np.ndarray)) else None
        cells = (_checks.count("cells", self.cells, least=2) if sides is None else
                 tuple(_checks.count("cells", m, least=2) for m in sides))
        if isinstance(cells, tuple) and len(cells) == 1:
            cells = cells[0]
        object.__setattr__(self, "cells", cells)
        if not isinstance(self.radial, (bool, np.bool_)):
            raise ValueError(f"radial must be True or False, got {self.radial!r}")
        object.__setattr__(self, "radial", bool(self.radial))
        if self.window is not None:
            window = _checks.finite_array("window", self.window)
            if window.shape != (2,) and (window.ndim != 2 or window.shape[1] != 2):
                raise ValueError(f"window must be (low, high) or one such pair for each axis, got {self.window!r}")
            if not (window[..., 0] < window[..., 1]).all():
                raise ValueError(f"window must have low below high, got {self.window!r}")
            object.__setattr__(self, "window", tuple(window.tolist()) if window.ndim == 1 else
                               tuple(tuple(pair) for pair in window.tolist()))

    def shape(self, dim: int) -> tuple[int, ...]:
        """Cells along each of ``dim`` axes."""
        if not isinstance(self.cells, tuple):
            return (self.cells,) * dim
        if len(self.cells) != dim:
            raise ValueError(f"cells must be a number or {dim} of them for {dim} axes, got {self.cells}")
        return self.cells

    def sides(self, dim: int) -> tuple[tuple[float, float], ...]:
        """The window along each of ``dim`` axes."""
        if self.window is None:
            raise ValueError("FreeSpace needs a window in which the density is solved for, as in "
                             f"Grid(cells, window=({'0, ' if self.radial else '-8, '}8))")
        pairs = self.window if isinstance(self.window[0], tuple) else (self.window,) * dim
        if len(pairs) != dim:
            raise ValueError(f"window must be one pair or {dim} of them for {dim} axes, got {self.window}")
        return pairs


class Energies(NamedTuple):
    """E, Ent and F_beta of cell averages (method.md 7.3)."""

    energy: float
    entropy: float
    free_energy: float


@dataclass(frozen=True, eq=False)
class Mesh:
    """A problem on cells. Arrays over cells have one axis for each name in ``names``, in that order.

    names         coordinates, ("x",), ("x", "y") or ("r",), as in the Datasets
    centers       centre of the cells along each axis
    edges         edges of the cells along each axis, one more than centres
    volumes       volume of each cell; 0 for cells outside of the domain, whose density stays 0
    conductances  for each axis an array over cells: area over distance of the face to the next cell along that axis; 0
                  for walls; the last slot holds the face that closes a periodic axis
    potential     V in the cells (0 outside)
    convolution   rho -> g * rho in the cells, or None without interaction
    weight        volume element along the (only) axis if that is not constant: r^(dim-1) of radial cells
    contains      whether points of the coordinates are inside, if cells may be cut by the boundary
    """

    problem: Problem
    names: tuple[str, ...]
    centers: tuple[Array, ...]
    edges: tuple[Array, ...]
    volumes: Array
    conductances: tuple[Array, ...]
    potential: Array
    convolution: Convolution | None
    weight: Callable[[Array], Array] | None = None
    contains: Callable[..., Any] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each axis."""
        return self.volumes.shape

    def convolve(self, rho: Array) -> Array:
        """g * rho in the cells."""
        return np.zeros(self.shape) if self.convolution is None else self.convolution(rho)

    def mass(self, rho: Array) -> float:
        """int rho."""
        return float(np.sum(self.volumes * rho))

    def energies(self, rho: Array, interaction: Array | None = None) -> Energies:
        """E, Ent and F_beta; ``interaction`` is g * rho if it is at hand."""
        phi = self.convolve(rho) if interaction is None else interaction
        weighted = self.volumes * rho
        energy = float(np.sum(weighted * (self.potential + 0.5 * phi)))
        entropy = float(np.sum(weighted * np.log(np.where(rho > 0, rho, 1.0))))
        return Energies(energy, entropy, energy + self.problem.temperature * entropy)

    def flat(self) -> Array:
        """The same density in all cells."""
        return np.where(self.volumes > 0, 1.0 / float(self.volumes.sum()), 0.0)

    def truncation(self, rho: Array) -> float | None:
        """What the ends of a window may hide: the largest density in the cells there times the volume of the window.

        It bounds the mass beyond each end if the density of the whole space falls off there at least like exp(-x / L), L
        the length of the window: such a tail has mass L times the density at the end. None for domains without a window.
        """
        if self.problem.domain.bounded:
            return None
        ends = [np.abs(np.take(rho, (-1,) if name == "r" else (0, -1), axis=a)).max() for a, name in enumerate(self.names)]
        return float(max(ends) * self.volumes.sum())

    def recorded(self, densities: Iterable[Array]) -> dict[str, float]:
        """The attribute ``truncation`` of a result on a window, the largest over its densities; warns above 1e-6."""
        found = [value for value in map(self.truncation, densities) if value is not None]
        if not found:
            return {}
        if max(found) > TRUNCATION_TOLERANCE:
            warnings.warn(f"the density at the ends of the window amounts to a mass of {max(found):.2g}, above "
                          f"{TRUNCATION_TOLERANCE:g}; take a wider window", stacklevel=4)
        return {"truncation": max(found)}

    def density(self, initial: str | Array | Callable[..., Array]) -> tuple[Array, float]:
        """Cell averages from a name, a function of the coordinates (x), (x, y) or (r), or cell averages; also the mass
        before normalisation.

        A function is averaged over each cell by a Gauss rule of five points a side. Raises ValueError for negative or
        non-finite values and for a mass further from 1 than 1e-3 (within that it is divided by its mass).
        """
        if isinstance(initial, str):
            _checks.choice("initial", initial, ("uniform",))
            if not self.problem.domain.bounded:
                raise ValueError("initial must be a function or cell averages on FreeSpace, which has no uniform density, "
                                 f"got {initial!r}")
            return self.flat(), 1.0
        rho = self.averages(initial) if callable(initial) else _checks.finite_array("initial", initial)
        if rho.shape != self.shape:
            cells = " x ".join(map(str, self.shape))
            raise ValueError(f"initial must be a name, a function of {', '.join(self.names)} or {cells} cell averages, "
                             f"got shape {rho.shape}")
        rho = np.where(self.volumes > 0, rho, 0.0)
        if (rho < 0).any():
            worst = np.unravel_index(int(np.argmin(rho)), self.shape)
            where = ", ".join(f"{n} = {c[i]:.6g}" for n, c, i in zip(self.names, self.centers, worst, strict=True))
            raise ValueError(f"initial must be non-negative, got {rho[worst]:.3g} in the cell at {where}")
        mass = self.mass(rho)
        if not abs(mass - 1.0) <= MASS_TOLERANCE:
            raise ValueError(f"initial must have mass 1 (within {MASS_TOLERANCE:g}), got {mass:.6g}; divide it by its mass")
        return rho / mass, mass

    def averages(self, function: Callable[..., Array]) -> Array:
        node, weight = np.polynomial.legendre.leggauss(_GAUSS)
        # (cell, node) along each axis, then broadcast against each other
        dim = len(self.names)
        places, weights = [], []
        for a, edge in enumerate(self.edges):
            half = 0.5 * np.diff(edge)[:, None]
            place = edge[:-1, None] + half * (node + 1.0)
            share = np.broadcast_to(0.5 * weight, place.shape) * (self.weight(place) if self.weight else 1.0)
            share = share / share.sum(axis=1, keepdims=True)
            form = [1] * (2 * dim)
            form[a], form[dim + a] = place.shape
            places.append(place.reshape(form))
            weights.append(share.reshape(form))
        shape = (*self.shape, *([_GAUSS] * dim))
        values = np.broadcast_to(np.asarray(function(*places), dtype=np.float64), shape)
        name = f"initial({', '.join(self.names)})"
        total: Array = _checks.finite_array(name, values)
        over = tuple(range(dim, 2 * dim))
        for share in weights:
            total = total * share
        averages: Array = total.sum(axis=over)
        if self.contains is not None:
            # of a cut cell only the inside counts; where no node is inside, all do (a sliver)
            within = np.broadcast_to(self.contains(*places), shape).astype(np.float64)
            for share in weights:
                within = within * share
            part = within.sum(axis=over)
            averages = np.where(part > 0, (total * (within > 0)).sum(axis=over) / np.where(part > 0, part, 1.0), averages)
        return averages


def refuse_unsolvable(problem: Problem, grid: Grid) -> None:
    """TypeError or ValueError where no density can be solved for, whatever the geometry."""
    if not isinstance(problem, Problem) or not isinstance(grid, Grid):
        raise TypeError(f"a Problem and a Grid are needed, got {problem!r} and {grid!r}")
    if grid.window is not None and problem.domain.bounded:
        raise ValueError(f"a window is for FreeSpace, got one for {problem.domain!r}, which has its own bounds")
    for term in problem.potentials:
        if not term.pointwise:
            raise ValueError(f"{type(term).__name__} couples the particles and has no V(x), so there is no density to "
                             "solve for; use simulate")
    for kernel in problem.interactions:
        if not kernel.integrable(problem.dim):
            raise ValueError(f"{kernel!r} has infinite energy for every density in dimension {problem.dim}; "
                             f"take s < {problem.dim} or give it a softening")


def cell_potential(problem: Problem, points: Array, inside: Any = True) -> Array:
    """V at the centres (..., component) of cells, 0 where not ``inside``; refused where it is not finite."""
    inside = np.broadcast_to(np.asarray(inside), points.shape[:-1])
    values = np.zeros(inside.shape)
    values[inside] = problem.potential_value(points[inside])
    if not np.isfinite(values).all():
        bad = np.unravel_index(int(np.argmin(np.isfinite(values))), values.shape)
        where = ", ".join(f"{c:g}" for c in points[bad])
        raise ValueError(f"the potential must be finite in every cell, got {values[bad]} at x = {where}")
    return values
