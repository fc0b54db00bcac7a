"""The gradient flow dx_k/dt = -N grad_k H_N on the domain, integrated to a tolerance (``scheme="flow"``).

Runge-Kutta 5(4) of Dormand and Prince with error control, every run at its own internal step. Walls: a stage's velocity
loses what points out of the domain where the particle touches the wall, and stage points and steps are projected, so
points at rest are exactly the constrained equilibria. The kernel is taken to the letter, without a core.
"""

from __future__ import annotations

import math

import numpy as np

from meanfield._checks import Array, UnstableStepError
from meanfield._numba import fit_threads
from meanfield.forces import Drift, energy_magnitude, nearest_distances, total_energy
from meanfield.problem import Problem
from meanfield.record import Move, Plan

__all__ = ["Flow"]

# Dormand, Prince (1980), "A family of embedded Runge-Kutta formulae"; the last stage row is the solution of order 5
_A = ((1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9), (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
      (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
      (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84))
_E = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
# local error allowed a step, in units of the domain's (or the cloud's) size: well below the 1e-8 asked of points at rest
_TOLERANCE = 1e-10
# energies are sums of N^2 terms: below this relative change a rise of the energy is rounding
_ROUNDING = 1e-13
_SHORTEST = 1e-14  # in units of dt


class Flow:
    """One nominal step of dt: as many internal steps as the tolerance asks; the internal step length is carried over."""

    def __init__(self, problem: Problem, plan: Plan, x: Array, threads: int) -> None:
        self.problem, self.plan, self.threads = problem, plan, threads
        self.drift = Drift(problem, plan, 0.0)
        self.walled = math.isfinite(problem.domain.diameter)
        self.carry = {"flow_step": np.full(len(x), math.nan)}

    def __call__(self, x: Array, step: int) -> Move:
        x, diameter = x.copy(), self.problem.domain.diameter
        size = np.full(len(x), diameter) if self.walled else 2.0 * np.abs(x).max(axis=(1, 2))
        left = np.full(len(x), self.plan.dt)
        clipped, longest2, substeps = (np.zeros(len(x)) for _ in range(3))
        fit_threads(self.plan.pairs, self.threads)
        drift = self.drift(x)
        self._refuse_non_finite(drift, step)
        velocity, _ = self._slide(x, drift, size)
        energy, rounding = total_energy(self.problem, x), _ROUNDING * energy_magnitude(self.problem, x)
        h = self.carry["flow_step"]
        fresh = np.isnan(h)
        if fresh.any():
            speed = np.sqrt(np.square(velocity[fresh]).sum(axis=-1)).max(axis=-1)
            gap = np.minimum(nearest_distances(x[fresh], self.problem.domain.period).min(axis=-1), size[fresh])
            h[fresh] = np.minimum(self.plan.dt, 0.1 * gap / np.maximum(speed, 1e-300))
        while (runs := np.flatnonzero(left > 0)).size:
            fit_threads(runs.size * x.shape[1] ** 2, self.threads)
            last = h[runs] >= left[runs]
            length = np.where(last, left[runs], h[runs])
            proposal, new, at_wall, along, error = self._try(x[runs], velocity[runs], length[:, None, None], size[runs])
            error = error / (_TOLERANCE * np.maximum(size[runs], 1e-300))
            new_energy = total_energy(self.problem, at_wall)
            falls = new_energy <= energy[runs] + rounding[runs]
            good = (error <= 1.0) & falls
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = np.clip(0.9 * error**-0.2, 0.2, 5.0)
            factor = np.where(np.isfinite(error), factor, 0.2)
            wanted = length * np.where(good, factor, np.minimum(factor, 0.5))
            # a step cut short by the end of the interval says little: the next may be as long as was planned
            h[runs] = np.where(good & last, np.maximum(wanted, h[runs]), wanted)
            at = runs[good]
            out, far2 = (proposal != new).any(axis=-1).sum(axis=-1), np.square(proposal - x[runs]).sum(axis=-1).max(axis=-1)
            clipped[at] += out[good]
            longest2[at] = np.maximum(longest2[at], far2[good])
            substeps[at] += 1
            x[at], velocity[at] = self._touch(new[good], at_wall[good], along[good], size[at])
            energy[at] = new_energy[good]
            left[at] = np.where(last[good], 0.0, left[at] - length[good])
            self._refuse_stuck(h, runs[~good], x, velocity, step)
        np.minimum(h, 1e3 * self.plan.dt, out=h)  # nothing moves any more: keep it a number
        return Move(x, clipped, longest2, substeps)

    def _try(self, x: Array, velocity: Array, h: Array, size: Array) -> tuple[Array, Array, Array, Array, Array]:
        project = self.problem.domain.project
        stages, proposal, new, at_wall = [velocity], x, x, x
        for row in _A:
            proposal = x + h * sum(a * k for a, k in zip(row, stages, strict=True) if a)
            new = project(proposal)
            along, at_wall = self._slide(new, self.drift(new), size)
            stages.append(along)
        other = proposal - h * sum(e * k for e, k in zip(_E, stages, strict=True) if e)
        # the projected difference where a wall absorbs the error, the plain one where a period wraps it round
        gaps = [np.square(a - b).sum(axis=-1) for a, b in ((new, project(other)), (proposal, other))]
        return proposal, new, at_wall, stages[-1], np.sqrt(np.minimum(*gaps).max(axis=-1))

    def _touch(self, x: Array, at_wall: Array, along: Array, size: Array) -> tuple[Array, Array]:
        """Put particles that are pressed against a wall, and all but there, onto it; their velocities with them."""
        for i in np.flatnonzero((at_wall != x).any(axis=(1, 2))):
            here = at_wall[i:i + 1]
            along[i], _ = self._slide(here, self.drift(here), size[i:i + 1])
        return at_wall, along

    def _slide(self, x: Array, drift: Array, size: Array) -> tuple[Array, Array]:
        """The drift without what a wall takes away, and the points moved onto the walls that they are pressed against.

        (P(x + 2 e b) - P(x + e b)) / e with e |b| a millionth of the domain: exact at flat walls, and on curved ones to a
        millionth of itself, so points at rest are exact.
        """
        if not self.walled:
            return drift, x
        project = self.problem.domain.project
        e = 1e-6 * size[:, None, None] / np.maximum(np.sqrt(np.square(drift).sum(axis=-1, keepdims=True)), 1e-300)
        with np.errstate(invalid="ignore", over="ignore"):
            ahead = x + e * drift
            put_back = project(ahead)
            # a nearest point is no further away than x itself; a period is
            moved_back, moved = (np.square(v).sum(axis=-1, keepdims=True) for v in (put_back - ahead, e * drift))
            wall = (moved_back <= 1.0001 * moved) & (put_back != ahead)
            if not wall.any():
                return drift, x
            along = np.where(wall, (project(x + 2.0 * e * drift) - put_back) / e, drift)
            return along, project(np.where(wall, put_back - e * along, x))

    def _refuse_non_finite(self, drift: Array, step: int) -> None:
        if np.isfinite(drift).all():
            return
        run, particle, _ = (int(i) for i in np.argwhere(~np.isfinite(drift))[0])
        time = step * self.plan.dt
        raise UnstableStepError(f"at step {step} (time {time:.6g}) the drift of particle {particle} of run {run} is not a "
                                "finite number; look at the potential's gradient there",
                                step=step, time=time, run=run, particle=particle)

    def _refuse_stuck(self, h: Array, runs: Array, x: Array, velocity: Array, step: int) -> None:
        for run in runs[h[runs] < _SHORTEST * self.plan.dt]:
            speed = np.square(velocity[run]).sum(axis=-1)
            particle, time = int(np.argmax(speed)), step * self.plan.dt
            raise UnstableStepError(
                f"at step {step} (time {time:.6g}) the flow of run {run} cannot go on: particle {particle} moves at speed "
                f"{math.sqrt(speed[particle]):.3g} and no step above {_SHORTEST * self.plan.dt:.2g} keeps the error and the "
                "energy in bounds (a collapse under attraction, or a potential whose gradient is not that of its value)",
                step=step, time=time, run=int(run), particle=particle)
