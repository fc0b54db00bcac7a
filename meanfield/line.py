"""A problem on a grid of equal cells of an interval: cell values of V, the exact cell-averaged interaction, energies.

The convolution is (g * rho)_i = h sum_j gbar_{|i-j|} rho_j with gbar the exact double average of g over two cells
(method.md 7.4), a Toeplitz product by FFT: second order for densities that are smooth, and finite for singular g.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import fft

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain import Ball, Box
from meanfield.problem import Problem

__all__ = ["Energies", "Grid", "Line"]

# how far from 1 the mass of a given density may be; it is then divided by its mass
MASS_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Grid:
    """A grid of ``cells`` equal cells a side."""

    cells: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", _checks.count("cells", self.cells, least=2))


class Energies(NamedTuple):
    """E, Ent and F_beta of cell averages (method.md 7.3)."""

    energy: float
    entropy: float
    free_energy: float


class Line:
    """A problem on ``cells`` equal cells. Attributes: ``x`` (centres), ``width`` (h), ``potential`` (V in the cells).

    Raises ValueError where the problem has no density on a line: another dimension, a coupled objective, a kernel with
    infinite energy, a potential that is not finite.
    """

    def __init__(self, problem: Problem, grid: Grid) -> None:
        if not isinstance(problem, Problem) or not isinstance(grid, Grid):
            raise TypeError(f"a Problem and a Grid are needed, got {problem!r} and {grid!r}")
        domain = problem.domain
        if problem.dim != 1 or not isinstance(domain, (Box, Ball)):
            raise ValueError(f"densities are solved for on an Interval so far, got {domain!r}")
        self.low, self.high = (domain.low[0], domain.high[0]) if isinstance(domain, Box) else (
            -domain.radius, domain.radius)
        for term in problem.potentials:
            if not term.pointwise:
                raise ValueError(f"{type(term).__name__} couples the particles and has no V(x), so there is no density to "
                                 "solve for; use simulate")
        for kernel in problem.interactions:
            if not kernel.integrable(1):
                raise ValueError(f"{kernel!r} has infinite energy for every density on a line; "
                                 "take s < 1 or give it a softening")
        self.problem = problem
        self.cells = m = grid.cells
        self.width = (self.high - self.low) / m
        self.x: Array = self.low + self.width * (np.arange(m, dtype=np.float64) + 0.5)
        self.potential: Array = problem.potential_value(self.x[:, None])
        if not np.isfinite(self.potential).all():
            bad = int(np.argmin(np.isfinite(self.potential)))
            raise ValueError(f"the potential must be finite in every cell, got {self.potential[bad]} at x = {self.x[bad]:g}")
        self.kernel: Array | None = None
        if problem.interactions:
            averages = np.array([k.cell_averages(self.width, m) for k in problem.interactions], dtype=np.float64)
            self.kernel = averages.sum(axis=0) * self.width
            self._length = fft.next_fast_len(2 * m - 1, real=True)
            ring = np.zeros(self._length)
            ring[:m], ring[self._length - m + 1:] = self.kernel, self.kernel[:0:-1]
            self._spectrum = fft.rfft(ring)

    def convolve(self, rho: Array) -> Array:
        """g * rho in the cells."""
        if self.kernel is None:
            return np.zeros(self.cells)
        product: Array = fft.irfft(fft.rfft(rho, self._length) * self._spectrum, self._length)[: self.cells]
        return product

    def energies(self, rho: Array, interaction: Array | None = None) -> Energies:
        """E, Ent and F_beta; ``interaction`` is g * rho if it is at hand."""
        phi = self.convolve(rho) if interaction is None else interaction
        energy = float(self.width * np.sum(rho * (self.potential + 0.5 * phi)))
        entropy = float(self.width * np.sum(rho * np.log(np.where(rho > 0, rho, 1.0))))
        return Energies(energy, entropy, energy + self.problem.temperature * entropy)

    def density(self, initial: str | Array | Callable[[Array], Array]) -> tuple[Array, float]:
        """Cell averages from a name, a function of x or cell averages; also the mass before normalisation.

        A function is averaged over each cell by a five-point Gauss rule. Raises ValueError for negative or non-finite
        values and for a mass further from 1 than 1e-3 (within that it is divided by its mass).
        """
        if isinstance(initial, str):
            _checks.choice("initial", initial, ("uniform",))
            return np.full(self.cells, 1.0 / (self.high - self.low)), 1.0
        if callable(initial):
            node, weight = np.polynomial.legendre.leggauss(5)
            points = self.x[:, None] + 0.5 * self.width * node
            values: Any = np.broadcast_to(initial(points), points.shape)
            rho = _checks.finite_array("initial(x)", values) @ (0.5 * weight)
        else:
            rho = _checks.finite_array("initial", initial, ndim=1)
            if rho.shape != (self.cells,):
                raise ValueError(f"initial must be a name, a function of x or {self.cells} cell averages, "
                                 f"got shape {rho.shape}")
        if (rho < 0).any():
            i = int(np.argmin(rho))
            raise ValueError(f"initial must be non-negative, got {rho[i]:.3g} in the cell at x = {self.x[i]:.6g}")
        mass = float(rho.sum() * self.width)
        if abs(mass - 1.0) > MASS_TOLERANCE:
            raise ValueError(f"initial must have mass 1 (within {MASS_TOLERANCE:g}), got {mass:.6g}; divide it by its mass")
        return rho / mass, mass
