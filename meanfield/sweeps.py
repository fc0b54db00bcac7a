"""Flows and implicit steps along one axis of a mesh: what the time steps of ``solve`` are made of.

The state is q = density times relative volume (the cell's volume over the mean volume), so that on equal cells q is the
density and costs nothing. Arrays over cells go in and out; inside they are (cell along the axis, line), which for the first
axis is the same memory and for the second a transposed copy.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield._checks import Array
from meanfield.kernels.cells import add_inflow, add_response, blend_to_positive, drift_ratio, transpose
from meanfield.kernels.flux import (
    cyclic_solve, face_coefficients, implicit_solve, limited_coefficients, mobility, substitute,
)
from meanfield.mesh import Mesh

__all__ = ["GAMMA", "Faces", "Sweep", "relative_volumes"]

GAMMA = 1.0 - math.sqrt(0.5)  # SDIRK2, L-stable (Alexander 1977)


def relative_volumes(mesh: Mesh) -> tuple[Array, float]:
    """Volumes over their mean (1 for cells outside of the domain), and the mean."""
    inside = mesh.volumes > 0
    mean = float(mesh.volumes[inside].mean())
    weights = np.where(inside, mesh.volumes / mean, 1.0)
    # equal cells are exactly 1
    return (np.ones(mesh.shape) if np.ptp(weights) < 1e-12 else weights), mean


class Faces:
    """Coefficients of the flows at one drift potential (``drift`` in lines)."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.drift, self.up, self.down = np.empty(shape), np.empty(shape), np.empty(shape)


class Sweep:
    """The fluxes along one axis of a mesh; ``freeze`` sets coefficients, ``euler`` and ``sdirk2`` step in time."""

    def __init__(self, mesh: Mesh, axis: int) -> None:
        if len(mesh.shape) > 2:
            raise ValueError(f"meshes have one or two axes, got {len(mesh.shape)}")
        self.temperature, self._flip = mesh.problem.temperature, axis == 1
        weights, mean = relative_volumes(mesh)
        conductance = mesh.conductances[axis] / mean
        self._shape = mesh.shape
        self.shape = (mesh.shape[axis], weights.size // mesh.shape[axis])
        self.rate_up = self._lines(conductance / weights)
        self.rate_down = self._lines(conductance / np.roll(weights, -1, axis))
        # lines that close on themselves have a face behind their last cell
        self._ring = np.empty((5, *self.shape)) if self.rate_up[-1].any() else None
        self._inverse, self._back = np.empty(self.shape), np.empty(self.shape)
        self._in, self._out, self._spare = np.empty(self.shape), np.empty(self.shape), np.empty(self.shape)
        self._rho, self._log = np.empty(self.shape), np.empty(self.shape)

    def _lines(self, cells: Array) -> Array:
        return np.ascontiguousarray(cells.T if self._flip else cells).reshape(self.shape)

    def enter(self, cells: Array, out: Array) -> Array:
        """Cells as lines: a view where that is the same memory, else a copy in ``out``."""
        if not self._flip:
            return cells.reshape(self.shape)
        transpose(cells, out)
        return out

    def leave(self, lines: Array, out: Array) -> Array:
        """Lines as cells."""
        if self._flip:
            transpose(lines, out)
        elif lines.base is not out and lines is not out:
            out.reshape(self.shape)[:] = lines
        return out

    def target(self, out: Array) -> Array:
        """Where lines go that ``leave`` takes to ``out``."""
        return self._out if self._flip else out.reshape(self.shape)

    def freeze(self, faces: Faces, drift_potential: Array, rho: Array | None = None, log_rho: Array | None = None) -> None:
        """Coefficients at a drift potential; with ``rho`` and its logarithm those of the limited second-order flow."""
        if self._flip:
            transpose(drift_potential, faces.drift)
        else:
            faces.drift[:] = drift_potential.reshape(self.shape)
        face_coefficients(faces.drift, self.temperature, self.rate_up, self.rate_down, faces.up, faces.down)
        if rho is not None and log_rho is not None:
            limited_coefficients(faces.drift, self.enter(log_rho, self._log), self.enter(rho, self._rho), self.temperature,
                                 faces.up, faces.down)

    def peclet(self, faces: Faces, q: Array) -> float:
        """Typical |dU| / T between neighbouring cells, weighted by mass."""
        rise = math.sqrt(drift_ratio(faces.drift, self.enter(q, self._in), self.rate_up))
        return rise / self.temperature if self.temperature else (math.inf if rise else 0.0)

    def explicit_rate(self, faces: Faces) -> float:
        """Largest share of a cell's mass that leaves it in a unit of time."""
        return float((faces.up + np.roll(faces.down, 1, axis=0)).max())

    def flow(self, faces: Faces, q: Array) -> Array:
        """q that flows through the face behind each cell in a unit of time, over cells."""
        lines = self.enter(q, self._in)
        flows = faces.up * lines - faces.down * np.roll(lines, -1, axis=0)
        return self.leave(flows, np.empty(self._shape))

    def add_inflow(self, faces: Faces, q: Array, out: Array) -> None:
        """out += dq/dt along this axis."""
        if not self._flip:
            add_inflow(faces.up, faces.down, q.reshape(self.shape), out.reshape(self.shape))
            return
        self._out[:] = 0.0
        add_inflow(faces.up, faces.down, self.enter(q, self._in), self._out)
        transpose(self._out, self._cells_spare())
        out += self._cells_spare()

    def _cells_spare(self) -> Array:
        return self._spare.reshape(self._shape)

    def euler(self, faces: Faces, q: Array, step: float, out: Array) -> Array:
        """One implicit Euler step: keeps mass, and positivity for any step."""
        target = self.target(out)
        self.solve(faces.up, faces.down, step, self.enter(q, self._in), target)
        return self.leave(target, out)

    def sdirk2(self, faces: Faces, q: Array, step: float, out: Array) -> Array:
        """One step of the L-stable SDIRK2 rule. Where it would be negative, the flows that empty a cell are cut back to
        those of two implicit Euler halves."""
        lines, target = self.enter(q, self._in), self.target(out)
        self.solve(faces.up, faces.down, GAMMA * step, lines, self._spare)
        share = (1.0 - GAMMA) / GAMMA
        self.solve_again(faces.up, faces.down, GAMMA * step, lines, self._spare, share, target)
        if target.min() < 0.0:
            low = np.empty(self.shape)
            self.solve(faces.up, faces.down, 0.5 * step, lines, self._spare)
            self.solve(faces.up, faces.down, 0.5 * step, self._spare, low)
            blend_to_positive(low, target, self._spare)
            target[:] = self._spare
        return self.leave(target, out)

    def solve(self, up: Array, down: Array, step: float, rhs: Array, out: Array) -> None:
        """out = (1 + step L)^{-1} rhs in lines; rhs and out differ."""
        if self._ring is not None:
            cyclic_solve(up, down, step, rhs, out, self._ring)
        else:
            implicit_solve(up, down, step, rhs, out, self._inverse, self._back)

    def solve_again(self, up: Array, down: Array, step: float, rhs: Array, stage: Array, share: float, out: Array) -> None:
        """The same with rhs + share (stage - rhs) on the right, after ``solve`` with these coefficients and step."""
        if self._ring is not None:
            cyclic_solve(up, down, step, rhs + share * (stage - rhs), out, self._ring)
        else:
            substitute(up, down, step, rhs, stage, share, out, self._inverse, self._back)

    def mobility(self, faces: Faces, q: Array, out: Array) -> None:
        """-dJ / d(dU) on the faces, q in lines."""
        mobility(faces.drift, q, self.temperature, self.rate_up, self.rate_down, faces.up, faces.down, out)

    def add_response(self, mobility: Array, phi: Array, step: float, out: Array) -> None:
        """out += step times the outflow caused by a change phi of the drift potential; all in lines."""
        add_response(mobility, phi, step, out)
