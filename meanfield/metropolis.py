"""Metropolis-adjusted Langevin sampling of exp(-beta N H_N) on the domain (``scheme="metropolis"``).

All particles of a run move at once: y = x + dt b(x) + sqrt(2 dt / beta) xi, accepted with probability
min(1, exp(-beta N (H_N(y) - H_N(x))) q(x | y) / q(y | x)), and never outside the domain. The law at rest is exact for every
dt and for the kernel to the letter; b has a core (``simulate``), which shapes proposals only. ``dt`` decides how many are
accepted (around 0.57 is best; Roberts, Rosenthal 1998); time is that of a sampler, not of the dynamics.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from meanfield import _rng
from meanfield._checks import Array
from meanfield.forces import Drift, total_energy
from meanfield.problem import Problem
from meanfield.record import Move, Plan
from meanfield.schemes import Noise, refuse_unstable

__all__ = ["Metropolis"]


class Metropolis:
    """One proposal for each run and its acceptance; a rejected run stays where it is."""

    def __init__(self, problem: Problem, plan: Plan, beta: Array, seed: int, noise: Noise) -> None:
        self.problem, self.plan, self.beta, self.noise = problem, plan, beta, noise
        self.carry: dict[str, Array] = {}
        self.drift = Drift(problem, plan, plan.dt)
        self.key = _rng.philox_key(seed, _rng.ACCEPT)
        self.coin = np.empty((plan.n_runs, 1, 1))

    def __call__(self, x: Array, step: int) -> Move:
        dt, beta, domain = self.plan.dt, self.beta[step], self.problem.domain
        forth = dt * self.drift(x)
        refuse_unstable(self.problem, forth, step, self.plan, longest=math.inf)
        noise = self.noise(step) * math.sqrt(2.0 * dt / beta)
        y = x + forth + noise
        outside: NDArray[np.bool_] = np.logical_not(domain.contains(y))
        # proposals outside are refused anyway: nothing is asked of the potential there
        allowed = ~np.any(outside, axis=-1)
        inside = np.where(np.asarray(allowed)[:, None, None], y, x)
        with np.errstate(over="ignore", invalid="ignore"):
            back = dt * self.drift(inside)
            gain = beta * (total_energy(self.problem, x) - total_energy(self.problem, inside))
            gain += beta / (4.0 * dt) * (np.square(noise) - np.square(x - y - back)).sum(axis=(1, 2))
        _rng.normals(self.key, 0, step, self.coin)
        # Phi of a normal is uniform; NaN (a force or an energy that is no number) refuses
        accepted = np.logical_and(log_ndtr(self.coin[:, 0, 0]) < gain, allowed)
        moved = np.where(accepted[:, None, None], y, x)
        return Move(moved, outside.sum(axis=-1), np.square(y - x).sum(axis=-1).max(axis=-1), accepted=accepted)
