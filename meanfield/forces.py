"""N grad H_N and N H_N for the engines: the one place where a step meets the compiled pair sums."""

from __future__ import annotations

import numpy as np

from meanfield._checks import Array
from meanfield.interactions import LOGARITHM, SPRING, PairLaw
from meanfield.kernels.nearest import nearest_squared
from meanfield.pairforces import add_energies
from meanfield.pairsum import PairSum
from meanfield.problem import Problem
from meanfield.record import Plan

__all__ = ["Drift", "core_radius", "energy_magnitude", "nearest_distances", "total_energy"]


def core_radius(law: PairLaw, n_particles: int, dt: float) -> float:
    """Where one explicit step would move an unsoftened pair apart by its own distance (see ``simulate``)."""
    if law.family == SPRING or law.softening > 0 or n_particles == 1:
        return 0.0
    speed = 2.0 * abs(law.coupling) * (abs(law.s) if law.s else 1.0) * dt / (n_particles - 1)
    return float(speed ** (1.0 / (law.s + 2.0)))


class Drift:
    """-N grad H_N as a function of positions (run, particle, component); ``core_dt`` = 0 is the kernel to the letter."""

    def __init__(self, problem: Problem, plan: Plan, core_dt: float) -> None:
        self.problem = problem
        cores = [0.0 if term.law is None else core_radius(term.law, plan.n_particles, core_dt)
                 for term in problem.interactions]
        self.pairs = PairSum.plan(problem.interactions, cores, n_particles=plan.n_particles, dim=problem.dim,
                                  period=problem.domain.period, method=plan.method, accuracy=plan.accuracy)

    def __call__(self, x: Array, step: int | None = None, out: Array | None = None) -> Array:
        """What step number ``step`` feels (a minibatch, say); without it the gradient of the potential itself."""
        if step is None:
            drift = np.negative(sum(term.gradient(x) for term in self.problem.potentials), out=out)
        else:
            drift = np.negative(self.problem.potential_gradient(x, step), out=out)
        self.pairs.add_forces(x, drift)
        return drift


def _pair_energies(problem: Problem, x: Array) -> list[Array]:
    """(1 / (N - 1)) sum_{k < l} g of each run, one array for each interaction."""
    if x.shape[1] == 1:
        return []
    found, rows = [], np.empty(x.shape[:2])
    with np.errstate(divide="ignore"):
        for term in problem.interactions:
            sums = np.zeros(len(x))
            add_energies(term, x, problem.domain.period, rows, sums)
            found.append(sums / (x.shape[1] - 1))
    return found


def total_energy(problem: Problem, x: Array) -> Array:
    """N H_N of each run, shape (run,); +inf where particles coincide under a singular repulsion."""
    total: Array = problem.potential_value(x).sum(axis=-1)
    for sums in _pair_energies(problem, x):
        total = total + sums
    return total


def energy_magnitude(problem: Problem, x: Array) -> Array:
    """Size of the terms that ``total_energy`` adds up, by which its rounding is judged."""
    size: Array = np.abs(problem.potential_value(x)).sum(axis=-1)
    for term, sums in zip(problem.interactions, _pair_energies(problem, x), strict=False):
        # logarithms of either sign cancel
        cancels = term.law is not None and term.law.family == LOGARITHM
        size = size + np.abs(sums) + (x.shape[1] * abs(term.law.coupling) if cancels and term.law is not None else 0.0)
    return size


def nearest_distances(x: Array, period: float | None = None) -> Array:
    """Distance of each particle to the nearest other one (on a torus, its nearest image), shape (run, particle)."""
    out = np.empty(x.shape[:2])
    nearest_squared(x, period or 0.0, out)
    return np.sqrt(out)
