"""Projected Euler on a bisection of each step (``scheme="adaptive"``): no drift carries a particle past its neighbours.

An interval of length h is halved while a particle's drift displacement h |b_k| exceeds a quarter of its length scale,
max(distance to the nearest other particle, finest core or softening), at most the domain's diameter. The Brownian
increment of a half is drawn from the bridge between the ends, so the increments of a step add up to that of the other
schemes, whatever is halved. After ``HALVINGS`` halvings a displacement up to the whole scale is accepted and a longer one
is an ``UnstableStepError``. The core belongs to the finest sub-step: an isolated pair that it resolves moves by a quarter of
its distance at most.

Only drifts are bounded: where the noise of a sub-step is longer than a gap, particles exchange places, as they may.
All particles of a run share its sub-steps, so a crowd at high temperature, where some pair is always close, pays the finest
step everywhere (up to 1024 forces a step): made for few or cold particles.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from meanfield import _rng
from meanfield._checks import Array, UnstableStepError
from meanfield._numba import fit_threads
from meanfield.forces import Drift, core_radius, nearest_distances
from meanfield.problem import Problem
from meanfield.record import Move, Plan
from meanfield.schemes import Noise, observe

__all__ = ["Adaptive", "finest_core_dt"]

HALVINGS, SHARE = 10, 0.25


def finest_core_dt(dt: float) -> float:
    """The dt of the core: at the finest sub-step a pair at the core moves by a quarter of its distance."""
    return 0.5 / SHARE * dt * 0.5**HALVINGS


class Adaptive:
    """One nominal step of all runs, each on its own bisection; a run's numbers do not depend on the others."""

    def __init__(self, problem: Problem, plan: Plan, beta: Array, seed: int, noise: Noise, threads: int) -> None:
        self.problem, self.plan, self.noise, self.threads = problem, plan, noise, threads
        self.carry: dict[str, Array] = {}
        self.amplitude = np.sqrt(2.0 / beta)  # displacement per unit of Brownian motion
        self.key = _rng.philox_key(seed, _rng.BRIDGE)
        core_dt = finest_core_dt(plan.dt)
        self.drift = Drift(problem, plan, core_dt)
        scales = [law.softening or core_radius(law, plan.n_particles, core_dt) for law in problem.laws]
        self.scale = min((s for s in scales if s > 0), default=math.inf)

    def __call__(self, x: Array, step: int) -> Move:
        """Walk the binary tree of halves depth first: node 1 is the step, 2 m and 2 m + 1 are the halves of m."""
        x, amplitude = x.copy(), self.amplitude[step]
        brownian = self.noise(step) * math.sqrt(self.plan.dt) if amplitude else np.zeros_like(x)
        later = np.empty((HALVINGS + 1, *x.shape))  # increments of the right halves that wait, by level
        node, level = np.ones(len(x), dtype=np.int64), np.zeros(len(x), dtype=np.int64)
        clipped, longest2, substeps = (np.zeros(len(x)) for _ in range(3))
        fit_threads(self.plan.pairs, self.threads)
        drift = self.drift(x, step)
        while (runs := np.flatnonzero(node)).size:
            fit_threads(runs.size * x.shape[1] ** 2, self.threads)
            h = self.plan.dt * 0.5 ** level[runs]
            reach, limit = h[:, None] * np.sqrt(np.square(drift[runs]).sum(axis=-1)), self._limits(x[runs])
            long = ~(reach <= SHARE * limit).all(axis=-1)
            finest = level[runs] == HALVINGS
            self._refuse(runs, reach, limit, finest, step)
            long &= ~finest
            halve, go = runs[long], runs[~long]
            if halve.size:
                first = 0.5 * brownian[halve]
                if amplitude:
                    middle = np.empty_like(first)
                    _rng.bridge_normals(self.key, halve, node[halve], step, middle)
                    first += 0.5 * np.sqrt(h[long])[:, None, None] * middle
                level[halve] += 1
                later[level[halve], halve] = brownian[halve] - first
                brownian[halve] = first
                node[halve] *= 2
            if go.size:
                proposal = x[go] + h[~long, None, None] * drift[go] + amplitude * brownian[go]
                moved = self.problem.domain.project(proposal)
                out, far2 = observe(self.problem, x[go], proposal, moved)
                clipped[go] += out
                longest2[go] = np.maximum(longest2[go], far2)
                substeps[go] += 1
                x[go] = moved
                on = self._next(go, node, level)
                if on.size:
                    brownian[on] = later[level[on], on]
                    drift[on] = self.drift(x[on], step)
        return Move(x, clipped, longest2, substeps)

    @staticmethod
    def _next(runs: NDArray[np.intp], node: NDArray[np.int64], level: NDArray[np.int64]) -> NDArray[np.intp]:
        """Move these runs to the interval that follows (node 0: the step is over) and return those that have one."""
        while (up := runs[(node[runs] % 2 == 1) & (node[runs] > 1)]).size:
            node[up] //= 2
            level[up] -= 1
        node[runs] = np.where(node[runs] == 1, 0, node[runs] + 1)
        return runs[node[runs] > 0]

    def _limits(self, x: Array) -> Array:
        diameter = self.problem.domain.diameter
        if math.isinf(self.scale):  # no kernel with a length of its own
            return np.full(x.shape[:2], diameter)
        return np.minimum(np.maximum(nearest_distances(x, self.problem.domain.period), self.scale), diameter)

    def _refuse(self, runs: NDArray[np.intp], reach: Array, limit: Array, finest: NDArray[np.bool_], step: int) -> None:
        bad = ~np.isfinite(reach) | (finest[:, None] & ~(reach <= limit))
        if not bad.any():
            return
        row, particle = (int(i) for i in np.argwhere(bad)[0])
        run, time, length, scale = int(runs[row]), step * self.plan.dt, reach[row, particle], limit[row, particle]
        where = f"at step {step} (time {time:.6g}) the drift moves particle {particle} of run {run} by {length:.3g}"
        if math.isfinite(length):
            reason = f"after {HALVINGS} halvings of dt, {length / scale:.3g} times its length scale {scale:.3g}"
            cure = f"take dt <= {self.plan.dt * 0.25 * scale / length:.2g} or give the interaction a softening"
        else:
            reason, cure = "which is not a finite number", "look at the potential's gradient there"
        raise UnstableStepError(f"{where} {reason}; {cure}" if math.isfinite(length) else f"{where}, {reason}; {cure}",
                                step=step, time=time, run=run, particle=particle)
