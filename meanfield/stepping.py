"""Adaptive time steps of ``solve``: second order, positive, and never uphill in the free energy."""

from __future__ import annotations

import numpy as np

from meanfield._checks import Array
from meanfield.mesh import Mesh
from meanfield.sweeps import Sweep

__all__ = ["Stepper"]


class Stepper:
    """One step against two halves for the error, and the free energy as a guard.

    A step freezes g * rho at its middle (half an implicit step ahead) and goes through the axes one after the other, there
    and back (Strang), each by SDIRK2.
    """

    def __init__(self, mesh: Mesh, tolerance: float) -> None:
        self.mesh, self.tolerance = mesh, tolerance
        self.accepted = self.rejected = 0
        self.sweeps = [Sweep(mesh, axis) for axis in range(len(mesh.shape))]
        # first guess: a hundredth of the diffusion (or, without noise, drift) time across the domain
        across = max(float(edge[-1] - edge[0]) for edge in mesh.edges)
        self._dt = 0.01 * across**2 * min(mesh.problem.inverse_temperature, 1.0)

    def advance(self, rho: Array, longest: float) -> tuple[Array, float]:
        """One accepted step of at most ``longest``: the new cell averages and the time that it took."""
        before = self.mesh.energies(rho)
        if not self.accepted + self.rejected:
            # start where an explicit step would be stable: a long first step can swap a peak back and forth through the
            # frozen interaction and look converged
            self._freeze(rho)
            self._dt = min(self._dt, 1.0 / max(sum(sweep.rate() for sweep in self.sweeps), 1e-300))
        # what round-off alone may do to F, a sum of terms of that size
        temperature = self.mesh.problem.temperature
        slack = 1e-13 * (1.0 + abs(before.energy) + temperature * (1.0 + abs(before.entropy)))
        while True:
            dt = min(self._dt, longest)
            whole = self._step(rho, dt)
            halves = self._step(self._step(rho, dt / 2), dt / 2)
            # Richardson: the two halves err by a third of the difference
            error = self.mesh.mass(np.abs(whole - halves)) / 3.0
            rises = self.mesh.energies(halves).free_energy > before.free_energy + slack
            factor = min(3.0, max(0.2, 0.9 * (self.tolerance / error) ** (1.0 / 3.0))) if error > 0 else 3.0
            if error <= self.tolerance and not rises:
                self.accepted += 1
                # a step cut short by a saved time says nothing against the longer one
                self._dt = max(self._dt, dt * factor) if dt < self._dt else dt * factor
                return halves, dt
            self.rejected += 1
            self._dt = dt * (min(factor, 0.5) if rises else min(factor, 0.9))
            if self._dt < 1e-14 * longest:
                raise ArithmeticError(f"no time step lowers the free energy any more: error {error:.3g}, "
                                      f"tolerance {self.tolerance:g}; ask for a larger tolerance")

    def _step(self, rho: Array, dt: float) -> Array:
        self._freeze(rho)
        middle = rho
        for sweep in self.sweeps:
            middle = sweep.euler(middle, 0.5 * dt)
        self._freeze(middle)
        *there, last = self.sweeps
        for sweep in there:
            rho = sweep.sdirk2(rho, 0.5 * dt)
        rho = last.sdirk2(rho, dt)
        for sweep in reversed(there):
            rho = sweep.sdirk2(rho, 0.5 * dt)
        return rho

    def _freeze(self, rho: Array) -> None:
        drift_potential = self.mesh.potential + self.mesh.convolve(rho)
        for sweep in self.sweeps:
            sweep.freeze(drift_potential)
