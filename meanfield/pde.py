"""``solve``: the McKean-Vlasov equation on an interval, by finite volumes that keep its structure.

    d rho/dt = (rho U_x)_x + (1 / beta) rho_xx,   U = V + g * rho,   no flux through the walls (method.md 7.1).

Scharfetter-Gummel fluxes (exact on discrete Gibbs states), g * rho frozen at the middle of the step (half an implicit
step ahead), and the L-stable SDIRK2 rule in time: second order in space and time. Mass is kept to round-off, the density
never gets negative, and a step after which the free energy is higher is refused and shortened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from tqdm import tqdm

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import dataset
from meanfield.kernels.flux import face_coefficients, implicit_solve
from meanfield.line import Grid, Line
from meanfield.problem import Problem

__all__ = ["solve"]

_GAMMA = 1.0 - math.sqrt(0.5)  # SDIRK2, L-stable (Alexander 1977)


def solve(problem: Problem, grid: Grid, *, t_end: float, initial: str | Array | Callable[[Array], Array] = "uniform",
          save_at: Sequence[float] | Array | None = None, progress: bool = False, tolerance: float = 1e-6) -> xr.Dataset:
    """Solve the McKean-Vlasov equation up to ``t_end``.

    Args:
        problem: on an Interval; the kernel integrable on a line (Riesz s < 1, or softened).
        grid: number of cells.
        t_end: final time.
        initial: "uniform", a function of x, or cell averages; non-negative with mass 1 (within 1e-3, then normalised;
            the mass given is in the attribute ``initial_mass``).
        save_at: increasing times in [0, t_end]; default 101 equally spaced ones.
        progress: show a progress bar in physical time.
        tolerance: largest L1 error a time step may add, estimated from one step against two halves.

    Returns a Dataset with ``density`` and ``drift_potential`` over (time, x) and, over time, ``free_energy``, ``energy``,
    ``entropy``, ``dissipation``, ``mass``, ``min_density``, ``n_steps`` and ``n_rejected``.

    Raises ValueError for arguments that make no sense and where the problem has no density on a line.

    Source: Scharfetter and Gummel (1969); for aggregation-diffusion equations Schlichting and Seis (2022).
    """
    t_end, tolerance = _checks.positive("t_end", t_end), _checks.positive("tolerance", tolerance)
    times = _times(save_at, t_end)
    line = Line(problem, grid)
    rho, initial_mass = line.density(initial)
    stepper = _Stepper(line, tolerance)
    states, counts = [], []
    t = 0.0
    with tqdm(total=t_end, unit="time", desc="solve", disable=not progress, leave=False) as bar:
        for target in times:
            while t < target:
                rho, taken = stepper.advance(rho, target - t)
                # the last step before a saved time ends on it bit for bit
                t = target if taken >= target - t else t + taken
                bar.update(taken)
            states.append(rho)
            counts.append((stepper.accepted, stepper.rejected))
    return _dataset(line, times, states, counts, initial_mass, settings={
        "problem": problem, "cells": line.cells, "t_end": t_end, "tolerance": tolerance,
        "initial": initial if isinstance(initial, str) else states[0] if times[0] == 0 else repr(initial)})


def _times(save_at: Sequence[float] | Array | None, t_end: float) -> Array:
    if save_at is None:
        return np.append(t_end / 100 * np.arange(100), t_end)
    times = np.atleast_1d(_checks.finite_array("save_at", save_at))
    if times.ndim != 1 or not times.size or times[0] < 0 or times[-1] > t_end or (np.diff(times) <= 0).any():
        raise ValueError(f"save_at must be increasing times in [0, t_end={t_end:g}], got {save_at!r}")
    return times


class _Stepper:
    """Adaptive steps: one step against two halves for the error, and the free energy as a guard."""

    def __init__(self, line: Line, tolerance: float) -> None:
        self.line, self.tolerance = line, tolerance
        self.accepted = self.rejected = 0
        self._free_energy = math.inf
        # first guess: a hundredth of the diffusion (or, without noise, drift) time across the interval
        self._dt = 0.01 * (line.high - line.low) ** 2 * min(line.problem.inverse_temperature, 1.0)
        m = line.cells
        self._up, self._down, self._work = np.empty(m - 1), np.empty(m - 1), np.empty(m)

    def advance(self, rho: Array, longest: float) -> tuple[Array, float]:
        """One accepted step of at most ``longest``: the new cell averages and the time that it took."""
        before = self.line.energies(rho)
        if not self.accepted + self.rejected:
            # start where an explicit step would be stable: a long first step can swap a peak back and forth through the
            # frozen interaction and look converged
            self._freeze(rho)
            self._dt = min(self._dt, 1.0 / max(float(self._up.max() + self._down.max()), 1e-300))
        # what round-off alone may do to F, a sum of terms of that size
        slack = 1e-13 * (1.0 + abs(before.energy) + self.line.problem.temperature * (1.0 + abs(before.entropy)))
        while True:
            dt = min(self._dt, longest)
            whole = self._step(rho, dt)
            halves = self._step(self._step(rho, dt / 2), dt / 2)
            # Richardson: the two halves err by a third of the difference
            error = float(np.abs(whole - halves).sum()) * self.line.width / 3.0
            rises = self.line.energies(halves).free_energy > before.free_energy + slack
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
        middle = np.empty_like(rho)
        self._freeze(rho)
        implicit_solve(self._up, self._down, 0.5 * dt, rho, middle, self._work)
        self._freeze(middle)
        stage, new = np.empty_like(rho), np.empty_like(rho)
        implicit_solve(self._up, self._down, _GAMMA * dt, rho, stage, self._work)
        ratio = (1.0 - _GAMMA) / _GAMMA
        implicit_solve(self._up, self._down, _GAMMA * dt, (1.0 - ratio) * rho + ratio * stage, new, self._work)
        if new.min() < 0.0:
            # SDIRK2 is not positive for long steps; two implicit Euler halves are, for any
            implicit_solve(self._up, self._down, 0.5 * dt, rho, stage, self._work)
            implicit_solve(self._up, self._down, 0.5 * dt, stage, new, self._work)
        return new

    def _freeze(self, rho: Array) -> None:
        drift_potential = self.line.potential + self.line.convolve(rho)
        face_coefficients(drift_potential, self.line.problem.temperature, self.line.width, self._up, self._down)


def _dissipation(line: Line, rho: Array, drift_potential: Array) -> float:
    """D = -h sum over faces of J (xi_{i+1} - xi_i), xi = U + log(rho) / beta; inf where mass meets a vacuum."""
    up, down = np.empty(line.cells - 1), np.empty(line.cells - 1)
    temperature = line.problem.temperature
    face_coefficients(drift_potential, temperature, line.width, up, down)
    flux = up * rho[:-1] - down * rho[1:]
    xi = drift_potential
    if temperature:
        with np.errstate(divide="ignore"):
            xi = xi + temperature * np.log(rho)
    flows = flux != 0
    return float(-line.width * np.sum(flux[flows] * (xi[1:][flows] - xi[:-1][flows])))


def _dataset(line: Line, times: Array, states: list[Array], counts: list[tuple[int, int]], initial_mass: float,
             settings: dict[str, object]) -> xr.Dataset:
    density = np.array(states)
    interaction = [line.convolve(rho) for rho in states]
    parts = [line.energies(rho, phi) for rho, phi in zip(states, interaction, strict=True)]
    drift_potential = line.potential + np.array(interaction)
    result = dataset("solve", {
        "density": density,
        "drift_potential": drift_potential,
        "free_energy": [p.free_energy for p in parts],
        "energy": [p.energy for p in parts],
        "entropy": [p.entropy for p in parts],
        "dissipation": [_dissipation(line, r, u) for r, u in zip(density, drift_potential, strict=True)],
        "mass": density.sum(axis=1) * line.width,
        "min_density": density.min(axis=1),
        "n_steps": [c[0] for c in counts],
        "n_rejected": [c[1] for c in counts],
    }, {"time": times, "x": line.x}, settings=settings)
    result.attrs["initial_mass"] = initial_mass
    return result


