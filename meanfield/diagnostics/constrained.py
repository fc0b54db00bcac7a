"""Rates of a function of several means: the constrained problem behind ``rate_function(..., function=G)``.

Stationary points of beta (F_beta(rho) - inf F_beta) under G(int f rho) = a have theta = eta grad G(int f rho_theta) with a
multiplier eta: m + 1 equations for the m tilts and eta, each evaluation one Gibbs density.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import root

from meanfield import _checks
from meanfield._checks import Array
from meanfield.diagnostics.rate_function import TiltedState, TiltedStates
from meanfield.diagnostics.tilt import Statistic
from meanfield.mesh import Grid
from meanfield.problem import Problem

__all__ = ["constrained_rates"]

_LONGEST = 1.0  # standard deviations of the means between one value and the next that is started from it


def constrained_rates(problem: Problem, statistic: Statistic, values: Array, grid: Grid,
                      function: Callable[[Array], Any]) -> tuple[TiltedStates, list[TiltedState | None]]:
    """The stationary states of the values, followed from rest outwards on either side.

    Raises ArithmeticError where the branch ends before a value.
    """
    probe = np.asarray(statistic(problem.domain.project(np.full((1, problem.dim), 0.37))))
    if probe.ndim != 2:
        raise ValueError(f"with a function of several means statistic must map positions (1, {problem.dim}) to (1, m), "
                         f"got shape {probe.shape}")
    states = TiltedStates(problem, statistic, grid, probe.shape[1])

    def level(mean: Array) -> float:
        return _checks.number("function(means)", float(function(mean)))

    def slope(mean: Array) -> Array:
        steps = np.diag(1e-5 * states.scale)
        return np.array([(level(mean + s) - level(mean - s)) / (2.0 * s.sum()) for s in steps])

    start = level(states.rest.mean)
    # linear response at rest: covariance of the statistics
    unit = 1e-4 / states.scale
    response = np.array([(states(h).mean - states(-h).mean) / (2.0 * h.sum()) for h in np.diag(unit)])
    direction = slope(states.rest.mean)
    stiffness = float(direction @ response @ direction)
    if not stiffness > 1e-12 * float(np.square(direction * states.scale).sum()) > 0:
        raise ArithmeticError("the function has no slope at rest, so there is no direction to begin with; add a linear "
                              "statistic that breaks the symmetry")
    found: list[TiltedState | None] = [None] * values.size
    for sign in (1.0, -1.0):
        side = [i for i in np.argsort(sign * values) if sign * (values[i] - start) >= 0]
        theta, eta, reached = np.zeros(len(states.scale)), 0.0, start
        for i in side:
            count = max(1, math.ceil(abs(values[i] - reached) / (_LONGEST * math.sqrt(stiffness))))
            for value in np.linspace(reached, values[i], count + 1)[1:]:
                mean = states(theta).mean
                eta += (value - level(mean)) / stiffness  # linear response
                theta, eta = _stationary(states, level, slope, value, eta * slope(mean), eta, math.sqrt(stiffness))
            reached, found[i] = float(values[i]), states(theta)
    return states, found


def _stationary(states: TiltedStates, level: Callable[[Array], float], slope: Callable[[Array], Array], value: float,
                theta: Array, eta: float, width: float) -> tuple[Array, float]:
    scale = states.scale

    def equations(unknown: Array) -> Array:
        mean = states(unknown[:-1] / scale).mean
        return np.append(unknown[:-1] - unknown[-1] / width * slope(mean) * scale, (level(mean) - value) / width)

    solved = root(equations, np.append(theta * scale, eta * width), tol=1e-10, options={"eps": 1e-7})
    if not np.abs(equations(solved.x)).max() < 1e-6:
        raise ArithmeticError(f"no stationary density was found with function(means) = {value:.6g}: the value is out of "
                              "reach of the branch that begins at rest")
    return solved.x[:-1] / scale, float(solved.x[-1]) / width
