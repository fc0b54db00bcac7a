"""Metropolis-adjusted Langevin sampling of exp(-beta N H_N) on the domain (``scheme="metropolis"``).

All particles of a run move at once: y = x + dt b(x) + sqrt(2 dt / beta) xi, accepted with probability
min(1, exp(-beta N (H_N(y) - H_N(x))) q(x | y) / q(y | x)), and never outside the domain. The law at rest is exact for every
dt and for the kernel to the letter; b has a core (``simulate``), which shapes proposals only. ``dt`` decides how many are
accepted (around 0.57 is best; Roberts, Rosenthal 1998); time is that of a sampler, not of the dynamics.

In a box a proposal beyond a wall is mirrored, and q is the sum over the places that the mirrors take to y: refusing all
particles for one that has left would hold dt down to where none of them does (64 particles on [0, 1]: a hundred times
slower). Places more than a width away are refused, so that the sum has three terms a component, exactly. In other domains
a proposal outside is refused.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from meanfield import _rng
from meanfield._checks import Array
from meanfield.domain import Box
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
        self.here: tuple[Array, Array, Array] | None = None  # positions, drift times dt, energy of the last step

    def __call__(self, x: Array, step: int) -> Move:
        dt, beta, domain = self.plan.dt, self.beta[step], self.problem.domain
        if self.here is None or self.here[0] is not x:
            self.here = x, dt * self.drift(x), total_energy(self.problem, x)
        _, forth, energy = self.here
        refuse_unstable(self.problem, forth, step, self.plan, longest=math.inf)
        noise = self.noise(step) * math.sqrt(2.0 * dt / beta)
        proposal = x + forth + noise
        outside: NDArray[np.bool_] = np.logical_not(domain.contains(proposal))
        y, put_back = (_mirrored(domain, proposal) if isinstance(domain, Box) else (proposal, ~outside))
        # what stays outside is refused anyway: nothing is asked of the potential there
        allowed = np.all(put_back, axis=-1)
        inside = np.where(np.asarray(allowed)[:, None, None], y, x)
        with np.errstate(over="ignore", invalid="ignore"):
            back = dt * self.drift(inside)
            new_energy = total_energy(self.problem, inside)
            gain = beta * (energy - new_energy)
            scale = beta / (4.0 * dt)
            gain += scale * (np.square(inside - x - forth) - np.square(x - inside - back)).sum(axis=(1, 2))
            if isinstance(domain, Box):
                gain += _other_ways(domain, inside + back, x, scale) - _other_ways(domain, x + forth, inside, scale)
        _rng.normals(self.key, 0, step, self.coin)
        # Phi of a normal is uniform; NaN (a force or an energy that is no number) refuses
        accepted = np.logical_and(log_ndtr(self.coin[:, 0, 0]) < gain, allowed)
        chosen = accepted[:, None, None]
        moved = np.where(chosen, y, x)
        self.here = moved, np.where(chosen, back, forth), np.where(accepted, new_energy, energy)
        return Move(moved, outside.sum(axis=-1), np.square(proposal - x).sum(axis=-1).max(axis=-1), accepted=accepted)


def _mirrored(domain: Box, proposal: Array) -> tuple[Array, NDArray[np.bool_]]:
    """The image inside, and whether each particle needed no more than one mirror an axis."""
    low, high = np.array(domain.low), np.array(domain.high)
    width = high - low
    near = np.logical_and(proposal >= low - width, proposal <= high + width)
    return domain.reflect(proposal), np.asarray(near.all(axis=-1))


def _other_ways(domain: Box, center: Array, end: Array, scale: float) -> Array:
    """log of the sum over mirror images of ``end`` of their density about ``center``, relative to that of ``end`` itself."""
    low, high = np.array(domain.low), np.array(domain.high)
    # |image - center|^2 - |end - center|^2 for the images 2 low - end and 2 high - end
    left, right = ((4.0 * scale) * (wall - end) * (wall - center) for wall in (low, high))
    ways: Array = np.logaddexp(np.logaddexp(0.0, -left), -right).sum(axis=(1, 2))
    return ways
