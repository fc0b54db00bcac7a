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
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.optimize import brentq

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import dataset
from meanfield.diagnostics.tilt import CellTilt, Statistic, Tilt, cell_values, evaluate
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
    warning: str = ""  # of gibbs

    @property
    def rate(self) -> float:
        """theta . mean - Lambda(theta), which is beta (F_beta(rho_theta) - inf F_beta)."""
        return float(self.theta @ self.mean) - self.cumulant


class TiltedStates:
    """Tilted Gibbs densities of one problem, statistic and grid, each solved once; ``components`` 0 is a plain number."""

    def __init__(self, problem: Problem, statistic: Statistic, grid: Grid, components: int = 0,
                 method: str = "cells") -> None:
        self.problem, self.grid, self.statistic, self.method = problem, grid, statistic, method
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
            theta = np.asarray(theta, dtype=np.float64)
            # a warning about a tilt that was only tried concerns nobody; infinite f at a wall has no wall density
            with warnings.catch_warnings(record=True) as caught, np.errstate(invalid="ignore"):
                warnings.simplefilter("always")
                free_energy, mean, rho = (self._on_panels if self.method == "panels" else self._on_cells)(theta)
            if not self._known:  # the first is the one without a tilt
                self._free_energy = free_energy
            self._known[key] = TiltedState(theta, self.speed * (self._free_energy - free_energy), mean, rho,
                                           str(caught[0].message) if caught else "")
        return self._known[key]

    def _on_cells(self, theta: Array) -> tuple[float, Array, Array]:
        """F_beta, the means of f and the density."""
        table, means = self.values.tilted(self.problem.inverse_temperature, theta)
        rest = gibbs(dataclasses.replace(self.problem, potential=CellTilt(self.mesh, table)), self.grid)
        rho = rest["density"].transpose(*self.mesh.names).values
        mean = np.einsum("c,cm->m", (self.mesh.volumes * rho).ravel(), means.reshape(-1, means.shape[-1]))
        return float(rest["free_energy"]), mean, rho

    def _on_panels(self, theta: Array) -> tuple[float, Array, Array]:
        push = Tilt(self.statistic, float(theta[0]) / self.speed)
        rest = gibbs(dataclasses.replace(self.problem, potential=(*self.problem.potentials, push)), self.grid,
                     method="panels")
        place = np.zeros((rest.sizes["node"], self.problem.dim))
        place[:, 0] = rest["node_place"].values
        f = evaluate(self.statistic, place)
        return float(rest["free_energy"]), np.array([rest["node_weight"].values * rest["node_density"].values @ f]), \
            rest["density"].values

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
        low = max(float(s.theta[0]) for s in below)
        high = min((float(s.theta[0]) for s in above if s.theta[0] >= low), default=low)
        if high > low:
            low = float(brentq(lambda t: float(self(np.array([t])).mean[0]) - value, low, high,
                               xtol=1e-11 / max(float(self.scale[0]), 1e-300), rtol=1e-12))
        found = min(self._known.values(), key=lambda s: abs(float(s.mean[0]) - value))
        if not abs(found.mean[0] - value) <= 1e-6 * max(float(self.scale[0]), 1e-12 * abs(value)):
            raise ArithmeticError(f"no tilt gives the mean {value:g}: it jumps over it at a tilt of {low:.6g}, as where the "
                                  "rest state is not unique and the rate function not convex")
        return found


    def at_end(self, sign: float) -> float:
        """The rate of the least (-1) or the largest (+1) value of f: finite where f takes it with some room around it."""
        edge = float(self.high[0] if sign > 0 else self.low[0])
        rates = []
        for tilt in (100.0, 200.0):
            theta = sign * tilt / max(float(self.scale[0]), 1e-300)
            rates.append(theta * edge - self(np.array([theta])).cumulant)
        return rates[1] if abs(rates[1] - rates[0]) < 1e-9 * (1.0 + abs(rates[1])) else math.inf

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


def rate_function(problem: Problem, statistic: Statistic, values: Any, grid: Grid, *, method: str = "cells",
                  function: Callable[[Array], Any] | None = None) -> xr.Dataset:
    """Rate function I(a) of the mean of ``statistic`` at the ``values`` a, with speed N.

    I(a) = inf {beta (F_beta(rho) - inf F_beta) : int f rho = a}. At inverse_temperature inf, where ``gibbs`` takes that:
    inf {E(rho) - inf E : int f rho = a}, the rate with speed beta_N of beta_N / N -> infinity.

    Args:
        problem: a problem that ``gibbs`` can solve; where its rest state is unique, I is what is stated.
        statistic: f, maps positions (..., component) to (...); unbounded at a wall is fine (log x on [0, 1]).
        values: means a, one number or an array. Outside the range of f: rate inf.
        grid: of the densities.
        method: "cells": exp(-beta V + theta f) is averaged over cells (graded towards walls), so that without interaction
            only round-off is left on any grid; with it the error of the rate is of second order in the cell width.
            "extrapolated": the same on twice as wide cells too, and Richardson's extrapolation (an even number of cells).
            "panels": ``gibbs`` with method "panels", on an interval; slower, many digits.
        function: a smooth G of several means: ``statistic`` then maps to (..., m), and I(a) is the rate of the stationary
            density with G(int f rho) = a on the branch that is followed from rest outwards: the least one as long as no
            other branch undercuts it, which is not looked for.

    Returns a Dataset over ``value``: ``rate``, ``tilt`` (theta; over ``statistic`` too with ``function``) and the optimal
    ``density`` over value and cells, nan where the rate is inf.

    Accuracy, as measured on the log gas, relative: on [0, 1], beta = 2, f = log x, rates 0.08 to 1.1 above the typical
    value: 6e-5 to 1e-5 with 400 cells, 1e-6 extrapolated, 1e-13 on panels; below it, where the density x^theta is
    unbounded at the wall, 4e-3 (rate 0.007) to 2e-2 (rate 1.2), 2e-2 extrapolated, 5e-4 on panels. Mean energy in a trap
    on 200 cells over 14 lengths, beta = 2 and 10: 6e-3 and 4e-2, extrapolated 1e-4 and 2.4e-3.

    A distance is no function of finitely many means, and is not solved for here: P(W_1(mu^N, rho) >= w) has the least of
    the rates of int f rho + w over all f with |f(x) - f(y)| <= |x - y|, of which each f of one's own gives an upper bound.

    Raises ValueError for a statistic that is not a number in every cell and whatever ``gibbs`` refuses, ArithmeticError
    where no tilt leads to a value: a density too narrow for the grid, or a rate function that is not convex.

    Source: method.md 9.3; Dupuis, Laschos, Ramanan (2020) for the large-deviation principle.
    """
    targets = np.atleast_1d(_checks.finite_array("values", values))
    if targets.ndim != 1 or not targets.size:
        raise ValueError(f"values must be a number or one row of numbers, got shape {targets.shape}")
    _checks.choice("method", method, ("cells", "extrapolated", "panels"))
    if function is not None and method == "panels":
        raise ValueError("a function of several means is solved for on cells, got method='panels'")
    rate, tilt, density, states = _rates(problem, statistic, targets, grid, method, function)
    if method == "extrapolated":
        if any(m % 2 or m < 4 for m in states.mesh.shape):
            raise ValueError("method 'extrapolated' needs an even number of cells a side, four or more, got "
                             f"{states.mesh.shape}")
        coarse = dataclasses.replace(grid, cells=grid.cells // 2 if isinstance(grid.cells, int)
                                     else tuple(m // 2 for m in grid.cells))
        wide = _rates(problem, statistic, targets, coarse, method, function)
        with np.errstate(invalid="ignore"):
            rate = np.where(np.isfinite(rate), np.maximum(rate + (rate - wide[0]) / 3.0, 0.0), rate)
            tilt = np.where(np.isfinite(tilt), tilt + (tilt - wide[1]) / 3.0, tilt)
    coords: dict[str, Any] = {"value": targets, **dict(zip(states.mesh.names, states.mesh.centers, strict=True))}
    if function is not None:
        coords["statistic"] = np.arange(tilt.shape[1])
    return dataset("rate_function", {"rate": rate, "tilt": tilt if function is not None else tilt[:, 0], "density": density},
                   coords, settings={"problem": problem, "statistic": _name(statistic), "function": _name(function),
                                     "cells": grid.cells, "method": method}).assign_attrs(
        speed="beta_N" if math.isinf(problem.inverse_temperature) else "N", typical=states.rest.mean)


def _rates(problem: Problem, statistic: Statistic, targets: Array, grid: Grid, method: str,
           function: Callable[[Array], Any] | None) -> tuple[Array, Array, Array, TiltedStates]:
    """Rates, tilts and densities on one grid."""
    found: list[TiltedState | None]
    if function is not None:
        from meanfield.diagnostics.constrained import constrained_rates

        states, found = constrained_rates(problem, statistic, targets, grid, function)
    else:
        states = TiltedStates(problem, statistic, grid, method=method)
        low, high = float(states.low[0]), float(states.high[0])
        found = [states.at(float(a)) if low < a < high else None for a in targets]
    rate, tilt = np.full(targets.size, math.inf), np.empty((targets.size, len(states.low)))
    density = np.full((targets.size, *states.mesh.shape), math.nan)
    for i, state in enumerate(found):
        if state is None:
            sign = math.copysign(1.0, targets[i] - float(states.rest.mean[0]))
            tilt[i] = sign * math.inf
            if targets[i] in (states.low[0], states.high[0]):
                rate[i] = states.at_end(sign)
            continue
        # theta a rather than theta mean: what is left of the search enters in second order
        aim = state.mean if function is not None else targets[i:i + 1]
        rate[i], tilt[i], density[i] = max(float(state.theta @ aim) - state.cumulant, 0.0), state.theta, state.density
    said = next((f.warning for f in (states.rest, *found) if f is not None and f.warning), "")
    if said:
        warnings.warn(said, stacklevel=3)
    return rate, tilt, density, states


def _name(function: Any) -> str:
    return "" if function is None else getattr(function, "__qualname__", repr(function))
