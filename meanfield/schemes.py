"""The explicit steps of ``simulate`` (projected, reflected, tamed), their noise, and when a step is refused.

A stepper is called as ``stepper(x, step) -> Move`` and keeps what it must remember between steps, if anything, in
``carry`` (name -> array), which goes into checkpoints. The other schemes have a file each: ``adaptive.py``,
``flow.py``, ``metropolis.py``.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from scipy.spatial import cKDTree

from meanfield import _rng
from meanfield._checks import Array, UnstableStepError
from meanfield._numba import active_threads
from meanfield.forces import Drift, core_radius
from meanfield.kernels import langevin
from meanfield.problem import Problem
from meanfield.record import Move, Plan

__all__ = ["Euler", "Noise", "Stepper", "observe", "refuse_coarse", "refuse_unstable"]

# a core (see ``simulate``) above this share of the domain's diameter is no small correction any more
_COARSEST_CORE = 0.1
# Numbers of whole runs that a thread takes through a step at once, so that its passes meet them in the cache (10,000 runs of
# 16 particles: 5.8 ms a step instead of 6.4)
_TOGETHER = 1 << 15


class Stepper(Protocol):
    """What the loop of ``simulate`` calls."""

    carry: dict[str, Array]
    drift: Drift

    def __call__(self, x: Array, step: int) -> Move: ...


class Noise:
    """Standard normals of each step: (W_{t + dt} - W_t) / sqrt(dt) of one Brownian path a particle and component.

    With ``refinement`` m a step is the sum of the m fine increments that steps of length dt / m would take.
    """

    def __init__(self, seed: int, refinement: int, like: Array) -> None:
        self.key, self.refinement = _rng.philox_key(seed, _rng.NOISE), refinement
        self.out = np.empty_like(like)
        self.fine = np.empty_like(like) if refinement > 1 else self.out

    def __call__(self, step: int, first: int = 0, last: int | None = None) -> Array:
        """Those of all runs, or of the runs first ... last - 1; the array is written again by the next call."""
        m, count = self.refinement, None if last is None else last - first
        out, fine = self.out[:count], self.fine[:count]
        if m == 1:
            _rng.normals(self.key, first, step, out)
            return out
        out[:] = 0.0
        for j in range(m):
            _rng.normals(self.key, first, m * step + j, fine)
            out += fine
        out /= math.sqrt(m)
        return out


class Euler:
    """x <- P(x + dt b(x) + sqrt(2 dt / beta) xi), P the nearest point or the mirror image; tamed: b / (1 + dt |b| / L)."""

    def __init__(self, problem: Problem, plan: Plan, scheme: str, beta: Array, noise: Noise) -> None:
        self.problem, self.plan, self.noise = problem, plan, noise
        self.carry: dict[str, Array] = {}
        self.restrict = problem.domain.reflect if scheme == "reflected" else problem.domain.project
        self.tamed = scheme == "tamed"
        self.sigma = np.sqrt(2.0 * plan.dt / beta)
        self.drift = Drift(problem, plan, plan.dt)
        self.states = [np.empty(noise.out.shape) for _ in range(2)]  # fresh memory costs more than the arithmetic of a step
        runs, numbers = len(noise.out), _TOGETHER * active_threads()
        self.together = min(runs, max(1, numbers // noise.out[0].size))
        self.push = np.empty_like(noise.out[:self.together])

    def __call__(self, x: Array, step: int) -> Move:
        there = self.states[x is self.states[0]]
        clipped, longest2 = np.empty(len(x)), np.empty(len(x))
        for first in range(0, len(x), self.together):
            runs = slice(first, first + self.together)
            clipped[runs], longest2[runs] = self._go(x[runs], step, first, there[runs])
        return Move(there, clipped, longest2)

    def _go(self, x: Array, step: int, first: int, there: Array) -> tuple[Array, Array]:
        """The step of some runs, ``first`` and those after it, into ``there``."""
        problem, plan, sigma = self.problem, self.plan, self.sigma[step]
        drift = self.drift(x, step, self.push[:len(x)])
        noise = self.noise(step, first, first + len(x)) if sigma else drift
        # finite or not is all that can go wrong with a tamed step: it is shorter than L
        taming, bound = (1.0 / taming_length(problem), math.inf) if self.tamed else (0.0, problem.domain.diameter)
        worst = float(langevin.propose(x, drift, noise, plan.dt, sigma, taming, there).max())  # NaN wins a maximum
        if not (math.isfinite(worst) and worst <= bound**2):
            refuse_unstable(problem, plan.dt * drift, step, plan, bound, first)
        if not problem.domain.walls:
            return observe(problem, x, there, there)
        moved = self.restrict(there)
        seen = observe(problem, x, there, moved)
        there[:] = moved
        return seen


def taming_length(problem: Problem) -> float:
    """L, the length that no tamed drift exceeds: a tenth of the domain's diameter, 1 where there is no wall.

    A fixed length keeps the order (the bias is O(dt)); one as long as the domain would throw particles of a steep potential
    from wall to wall for ever, which is bounded and wrong.
    """
    diameter = problem.domain.diameter
    return 0.1 * diameter if math.isfinite(diameter) else 1.0


def observe(problem: Problem, before: Array, proposal: Array, moved: Array) -> tuple[Array, Array]:
    """Clipped particles and longest squared displacement of each run; going round a torus is no clipping."""
    if moved.shape != proposal.shape:
        raise ValueError(f"{type(problem.domain).__name__} must put points of shape {proposal.shape} back into the same "
                         f"shape, got {moved.shape}")
    clipped, longest2 = langevin.observe(before, proposal, moved)
    return np.zeros_like(clipped) if problem.domain.period is not None else clipped, longest2


def refuse_unstable(problem: Problem, drift: Array, step: int, plan: Plan, longest: float | None = None,
                    first_run: int = 0) -> None:
    """Raise if a drift displacement is longer than ``longest`` (default: the domain's diameter) or not finite."""
    with np.errstate(over="ignore"):  # inf is caught below
        length2 = np.square(drift).sum(axis=-1)
    worst = float(length2.max())  # NaN wins a maximum
    diameter = problem.domain.diameter
    if math.isfinite(worst) and worst <= (diameter if longest is None else longest) ** 2:
        return
    run, particle = (int(i) for i in np.unravel_index(int(np.argmax(length2)), length2.shape))
    run += first_run
    length = math.sqrt(worst) if worst >= 0 else math.nan
    time = step * plan.dt
    where = f"at step {step} (time {time:.6g}) the drift moves particle {particle} of run {run} by {length:.3g}"
    if math.isfinite(length):
        cure = f"take dt <= {plan.dt * 0.1 * diameter / length:.2g} or give the interaction a softening"
        reason = f"{length / diameter:.3g} times the diameter {diameter:.3g} of the domain"
    else:
        cure, reason = "look at the potential's gradient there", "which is not a finite number"
    raise UnstableStepError(f"{where}, {reason}; {cure}", step=step, time=time, run=run, particle=particle)


def refuse_coarse(problem: Problem, plan: Plan, x: Array) -> None:
    """Raise if dt is so long that the core of a pair is a sizeable part of the domain."""
    diameter = problem.domain.diameter
    for law in problem.laws:
        core = core_radius(law, plan.n_particles, plan.dt)
        if core > _COARSEST_CORE * diameter:
            distance, partner = cKDTree(x[0]).query(x[0], k=2)
            particle = int(np.argmin(distance[:, 1]))
            raise UnstableStepError(
                f"at step 0 one step of dt = {plan.dt:g} throws pairs closer than {core:.3g} apart by more than their own "
                f"distance, {core / diameter:.3g} times the diameter {diameter:.3g} of the domain (particles {particle} and "
                f"{int(partner[particle, 1])} of run 0 are {distance[particle, 1]:.3g} apart); take dt <= "
                f"{plan.dt * (_COARSEST_CORE * diameter / core) ** (law.s + 2):.2g} or give the interaction a softening",
                step=0, time=0.0, run=0, particle=particle)


