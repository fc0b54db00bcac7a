"""Implicit steps along one axis of a mesh, the drift frozen: what the time steps of ``solve`` are made of."""

from __future__ import annotations

import math

import numpy as np

from meanfield._checks import Array
from meanfield.kernels.flux import cyclic_solve, face_coefficients, implicit_solve
from meanfield.mesh import Mesh

__all__ = ["Sweep"]

_GAMMA = 1.0 - math.sqrt(0.5)  # SDIRK2, L-stable (Alexander 1977)


class Sweep:
    """The fluxes along one axis of a mesh: ``freeze`` sets the drift, ``euler`` and ``sdirk2`` step in time.

    Arrays over cells are taken as (cell along the axis, line), which is what the kernels want.
    """

    def __init__(self, mesh: Mesh, axis: int) -> None:
        self.axis, self._shape = axis, mesh.shape
        self.temperature = mesh.problem.temperature
        self.volume = self._lines(np.where(mesh.volumes > 0, mesh.volumes, 1.0))
        self.conductance = self._lines(mesh.conductances[axis])
        self.up, self.down = np.empty_like(self.volume), np.empty_like(self.volume)
        # lines that close on themselves have a face behind their last cell
        self._solver, rows = (cyclic_solve, 5) if self.conductance[-1].any() else (implicit_solve, 2)
        self._work = np.empty((rows, *self.volume.shape))

    def _lines(self, cells: Array) -> Array:
        return np.ascontiguousarray(np.moveaxis(cells, self.axis, 0)).reshape(cells.shape[self.axis], -1)

    def _cells(self, lines: Array) -> Array:
        moved = np.moveaxis(np.empty(self._shape), self.axis, 0).shape
        return np.ascontiguousarray(np.moveaxis(lines.reshape(moved), 0, self.axis))

    def freeze(self, drift_potential: Array) -> None:
        """Set the drift potential U of the following steps."""
        face_coefficients(self._lines(drift_potential), self.temperature, self.conductance, self.up, self.down)

    def rate(self) -> float:
        """Largest share of a cell's mass that leaves it in a unit of time."""
        return float(((self.up + np.roll(self.down, 1, axis=0)) / self.volume).max())

    def flow(self, rho: Array) -> Array:
        """Mass through the face behind each cell in a unit of time, over cells."""
        lines = self._lines(rho)
        return self._cells(self.up * lines - self.down * np.roll(lines, -1, axis=0))

    def euler(self, rho: Array, dt: float) -> Array:
        """One implicit Euler step: keeps mass, and positivity for any dt."""
        return self._cells(self._solve(self._lines(rho), dt))

    def sdirk2(self, rho: Array, dt: float) -> Array:
        """One step of the L-stable SDIRK2 rule; two implicit Euler halves where that would be negative."""
        lines = self._lines(rho)
        stage = self._solve(lines, _GAMMA * dt)
        ratio = (1.0 - _GAMMA) / _GAMMA
        new = self._solve((1.0 - ratio) * lines + ratio * stage, _GAMMA * dt)
        if new.min() < 0.0:
            new = self._solve(self._solve(lines, 0.5 * dt), 0.5 * dt)
        return self._cells(new)

    def _solve(self, lines: Array, step: float) -> Array:
        out = np.empty_like(lines)
        self._solver(self.volume, self.up, self.down, step, lines, out, self._work)
        return out
