"""``rate_function``: what it costs the limiting density to have an improbable mean, from a variational problem.

For N particles at rest (law proportional to exp(-beta N H_N)) and the mean fbar of a statistic f over the particles,
-log P(fbar near a) / N tends to

    I(a) = inf { beta (F_beta(rho) - inf F_beta) : int f rho = a }     (method.md 9.2, 9.3),

found by tilting V to V - (theta / beta) f: with Lambda(theta) = beta (inf F_beta - inf F_beta,theta), the scaled cumulant
function, and rho_theta the tilted Gibbs density, int f rho_theta = Lambda'(theta) and I(a) = theta a - Lambda(theta) at the
theta where that mean is a. ``estimate_rate`` measures the same from particles, at finite N.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.optimize import brentq

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import dataset
from meanfield.diagnostics.tilt import CellTilt, Statistic, cell_values
from meanfield.equilibrium import gibbs
from meanfield.mesh import Grid, mesh_of
from meanfield.problem import Problem

__all__ = ["TiltedState", "TiltedStates", "rate_function"]

_LARGEST_TILT = 1e5  # in units of 1 / standard deviation of f


class TiltedState(NamedTuple):
    """The Gibbs density under the tilt theta: Lambda(theta), the mean of f (both exact derivatives of each other)."""

    theta: Array
    cumulant: float
    mean: Array
    density: Array

    @property
    def rate(self) -> float:
        """theta . mean - Lambda(theta), which is beta (F_beta(rho_theta) - inf F_beta)."""
        return float(self.theta @ self.mean) - self.cumulant


class TiltedStates:
    """Tilted Gibbs densities of one problem, statistic and grid, each solved once; ``components`` 0 is a plain number."""

    def __init__(self, problem: Problem, statistic: Statistic, grid: Grid, components: int = 0) -> None:
        self.problem, self.grid = problem, grid
        self.mesh = mesh_of(problem, grid)
        self.values = cell_values(problem, self.mesh, statistic, components)
        self.low, self.high = self.values.statistic.min(axis=0), self.values.statistic.max(axis=0)
        beta = problem.inverse_temperature
        self.speed = 1.0 if math.isinf(beta) else beta
        self._known: dict[tuple[float, ...], TiltedState] = {}
        self._free_energy = 0.0
        self.rest = self(np.zeros(self.values.statistic.shape[1]))
        spread = self.mesh.volumes[..., None] * self.rest.density[..., None] * np.square(
            self.values.tilted(beta, self.rest.theta)[1] - self.rest.mean)
        self.scale = np.sqrt(spread.reshape(-1, len(self.low)).sum(axis=0))

    def __call__(self, theta: Array) -> TiltedState:
        key = tuple(float(t) for t in theta)
        if key not in self._known:
            table, means = self.values.tilted(self.problem.inverse_temperature, theta)
            tilted = dataclasses.replace(self.problem, potential=CellTilt(self.mesh, table))
            rest = gibbs(tilted, self.grid)
            rho = rest["density"].transpose(*self.mesh.names).values
            free_energy = float(rest["free_energy"])
            if not self._known:  # the first is the one without a tilt
                self._free_energy = free_energy
            mean = np.einsum("c,cm->m", (self.mesh.volumes * rho).ravel(), means.reshape(-1, means.shape[-1]))
            self._known[key] = TiltedState(np.asarray(theta, dtype=np.float64),
                                           self.speed * (self._free_energy - free_energy), mean, rho)
        return self._known[key]

    def at(self, value: float) -> TiltedState:
        """The state whose mean of the (only) statistic is ``value``, which must lie inside its range."""
        states = sorted(self._known.values(), key=lambda s: float(s.theta[0]))
        below = [s for s in states if s.mean[0] <= value]
        above = [s for s in states if s.mean[0] >= value]
        if not below or not above:
            sign = 1.0 if not above else -1.0
            known = self._outwards(states[-1] if sign > 0 else states[0], value, sign)
            (below if sign > 0 else above).extend(known[:-1])
            (above if sign > 0 else below).append(known[-1])
        low = max((float(s.theta[0]) for s in below))
        high = min((float(s.theta[0]) for s in above if s.theta[0] >= low), default=low)
        if high > low:
            low = float(brentq(lambda t: float(self(np.array([t])).mean[0]) - value, low, high,
                               xtol=1e-11 / max(float(self.scale[0]), 1e-300), rtol=1e-12))
        found = min(self._known.values(), key=lambda s: abs(float(s.mean[0]) - value))
        if not abs(found.mean[0] - value) <= 1e-6 * max(float(self.scale[0]), 1e-12 * abs(value)):
            raise ArithmeticError(f"no tilt gives the mean {value:g}: it jumps over it at a tilt of {low:.6g}, as where the "
                                  "rest state is not unique and the rate function not convex")
        return found


    def _outwards(self, now: TiltedState, value: float, sign: float) -> list[TiltedState]:
        """States from the outermost one on until the mean has passed ``value``."""
        found, unit = [now], max(float(self.scale[0]), 1e-300)
        step, slope = 0.5 / unit, 0.0
        while (now.mean[0] - value) * sign < 0:
            theta = float(now.theta[0])
            if abs(theta) * unit > _LARGEST_TILT:
                raise ArithmeticError(f"value {value:g} needs a tilt beyond {theta:.3g} on this grid, whose cells do not "
                                      "resolve densities that narrow; take more cells or a value further inside")
            if slope > 0:  # past the value by the secant, with something to spare
                step = min(step, 1.2 * abs(value - float(now.mean[0])) / slope + 1e-3 * step)
            try:
                following = self(np.array([theta + sign * step]))
            except ArithmeticError:  # a tilt that leaves no rest state on this grid is too far
                step *= 0.25
                if step * unit < 1e-3:
                    raise
                continue
            slope = float(following.mean[0] - now.mean[0]) * sign / step
            now, step = following, 2.0 * step
            found.append(now)
        return found


def rate_function(problem: Problem, statistic: Statistic, values: Any, grid: Grid, *,
                  function: Callable[[Array], Any] | None = None) -> xr.Dataset:
    """Rate function I(a) of the mean of ``statistic`` at the ``values`` a, with speed N.

    I(a) = inf {beta (F_beta(rho) - inf F_beta) : int f rho = a}. At inverse_temperature inf, where ``gibbs`` solves that:
    inf {E(rho) - inf E : int f rho = a}, the rate with speed beta_N of beta_N / N -> infinity.

    Args:
        problem: a problem that ``gibbs`` can solve; where its rest state is unique, I is what is stated.
        statistic: f, maps positions (..., component) to (...); unbounded at a wall is fine (log x on [0, 1]).
        values: means a, one number or an array. Outside the range of f: rate inf.
        grid: of the densities.
        function: a smooth G of several means: ``statistic`` then maps to (..., m), and I(a) is the rate of the stationary
            density with G(int f rho) = a on the branch that is followed from rest outwards: the least one as long as no
            other branch undercuts it, which is not looked for.

    Returns a Dataset over ``value``: ``rate``, ``tilt`` (theta; over ``statistic`` too with ``function``) and the optimal
    ``density`` over value and cells, nan where the rate is inf.

    Accuracy: exp(-beta V + theta f) is averaged over cells (graded towards walls), so that without interaction only round-off
    is left on any grid. With it the error is that of the free energy of ``gibbs``, of second order in the cell width
    (a logarithm more at walls). Log gas on [0, 1], beta = 2, f = log x, 200 cells: relative 2e-4 and less for rates
    between 0.1 and 2; it falls fourfold with twice the cells.

    Raises ValueError for a statistic that is not a number in every cell and whatever ``gibbs`` refuses, ArithmeticError
    where no tilt leads to a value: a density too narrow for the grid, or a rate function that is not convex.

    Source: method.md 9.3; Dupuis, Laschos, Ramanan (2020) for the large-deviation principle.
    """
    targets = np.atleast_1d(_checks.finite_array("values", values))
    if targets.ndim != 1:
        raise ValueError(f"values must be a number or one row of numbers, got shape {targets.shape}")
    if function is not None:
        from meanfield.diagnostics.constrained import constrained_rates

        states, found = constrained_rates(problem, statistic, targets, grid, function)
    else:
        states = TiltedStates(problem, statistic, grid)
        low, high = float(states.low[0]), float(states.high[0])
        found = [states.at(float(a)) if low < a < high else None for a in targets]
    mesh = states.mesh
    count = len(states.low)
    rate, tilt = np.full(targets.size, math.inf), np.empty((targets.size, count))
    density = np.full((targets.size, *mesh.shape), math.nan)
    for i, state in enumerate(found):
        if state is None:
            tilt[i] = np.copysign(math.inf, targets[i] - states.rest.mean[0])
            continue
        # theta a rather than theta mean: what is left of the search enters in second order
        aim = state.mean if function is not None else targets[i:i + 1]
        rate[i], tilt[i], density[i] = max(float(state.theta @ aim) - state.cumulant, 0.0), state.theta, state.density
    coords = {"value": targets, **dict(zip(mesh.names, mesh.centers, strict=True))}
    if function is not None:
        coords["statistic"] = np.arange(count)
    return dataset("rate_function", {"rate": rate, "tilt": tilt if function is not None else tilt[:, 0], "density": density},
                   coords, settings={"problem": problem, "statistic": _name(statistic), "function": _name(function),
                                     "cells": grid.cells}).assign_attrs(
        speed="beta_N" if math.isinf(problem.inverse_temperature) else "N", typical=states.rest.mean)


def _name(function: Any) -> str:
    return "" if function is None else getattr(function, "__qualname__", repr(function))
