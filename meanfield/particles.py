"""``simulate``: interacting particles under projected or reflected Langevin dynamics.

One step, for all particles at once (synchronous; method.md 6.1):

    x_k <- P( x_k - dt N grad_k H_N(x) + sqrt(2 dt / beta) xi_k ),   N grad_k H_N = grad V(x_k) + 1/(N-1) sum_l grad g,

with P the nearest point of the domain (``scheme="projected"``, Algorithm 1 of the paper, weak order 1/2 at walls) or the
mirror image (``"reflected"``, weak order 1). ``inverse_temperature=inf`` is the gradient flow.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.spatial import cKDTree
from tqdm import tqdm

from meanfield import _checks, _rng
from meanfield._checks import Array, UnstableStepError
from meanfield._numba import thread_count, with_threads
from meanfield.checkpoint import Checkpoint
from meanfield.dataset import dataset
from meanfield.interactions import SPRING, PairLaw
from meanfield.pairsum import PairSum
from meanfield.problem import Problem

__all__ = ["simulate"]

SCHEMES = ("projected", "reflected")
# below this many pair terms a step, waking a second thread costs more than it brings (9 us against 20 ms at N = 16)
_ONE_THREAD_BELOW = 200_000
# a core (see ``simulate``) above this share of the domain's diameter is no small correction any more
_COARSEST_CORE = 0.1


def simulate(problem: Problem, *, n_particles: int, dt: float, t_end: float, n_runs: int = 1,
             initial: str | Array = "uniform", scheme: str = "projected", save_every: int | None = None, seed: int = 0,
             threads: int | None = None, progress: bool = False,
             checkpoint: str | os.PathLike[str] | None = None, method: str = "auto",
             accuracy: float = 1e-12) -> xr.Dataset:
    """Simulate ``n_runs`` independent systems of ``n_particles`` particles up to ``t_end``.

    Args:
        problem: domain, potential, interaction, inverse temperature.
        n_particles: N; the pair sum is divided by N - 1.
        dt: time step; ``t_end`` must be a whole number of steps.
        t_end: final time.
        n_runs: independent realisations, computed side by side.
        initial: "uniform" (independent uniform points), or positions over (particle, component), shared by all runs, or
            (run, particle, component).
        scheme: "projected" or "reflected".
        save_every: steps between saved states (default: about 100 saved states); the first and last are always saved.
        seed: every number is a function of (problem, arguments, seed), bit for bit, whatever ``threads`` says.
        threads: threads to use at most (default: all); small systems use one.
        progress: show a progress bar with rate and time left.
        checkpoint: a file written now and then and at the end. If it holds the same problem, seed and dt, the run goes on
            from there to ``t_end`` and gives the numbers of an uninterrupted run; if it holds another, it is refused.
        method: how pair forces are summed: "direct", a fast sum by name (pairsum.py lists them), or "auto", which takes a
            fast sum where there is one that was measured to be faster.
        accuracy: largest error of a fast sum, relative to the sum of the magnitudes of a particle's pair forces.

    Returns a Dataset with ``position`` over (run, time, particle, component) and, since the last saved time,
    ``clipped_fraction`` and ``max_displacement`` over (run, time). Its attributes ``pair_method`` and ``pair_error`` name
    the sum that was taken for each interaction and its stated error.

    Singular kernels: an explicit step of length dt cannot resolve a pair closer than its core, the distance r_c at which
    one step would move the pair apart by r_c itself (r_c^(s+2) = 2 |s| |strength| dt / (N - 1), with |s| read as 1 for
    the logarithm). Below r_c the force of an unsoftened pair is linear in its displacement; r_c is in the attribute
    ``core_radius`` and vanishes with dt and with 1 / N. A softened kernel is taken as it is. Why: docs/decisions/0002.

    Raises ValueError for arguments that make no sense (positions outside the domain or coincident under a singular
    kernel included), ``UnstableStepError`` if a drift step is longer than the domain's diameter or not finite, or if r_c
    is above a tenth of the diameter.

    Source: Algorithm 1 of arXiv:2607.23869; reflection: Bossy, Gobet, Talay (2004).
    """
    plan = _plan(n_particles, dt, t_end, n_runs, save_every)
    threads = thread_count(threads)
    _checks.choice("scheme", scheme, SCHEMES)
    seed = _checks.seed_int(seed)
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    cores = [_core_radius(law, plan) for law in problem.laws]
    pairs = PairSum.plan(problem.laws, cores, n_particles=plan.n_particles, dim=problem.dim, method=method,
                         accuracy=accuracy)
    x = _initial_positions(problem, initial, plan, seed)
    settings = {"problem": problem, "n_particles": plan.n_particles, "dt": plan.dt, "n_runs": plan.n_runs,
                "initial": initial, "scheme": scheme, "save_every": plan.save_every, "seed": seed,
                "method": method, "accuracy": float(accuracy)}
    record = _Record(plan, x)
    store = Checkpoint(checkpoint, settings) if checkpoint is not None else None
    first = 0
    if store is not None and store.exists():
        first, state = store.read(plan.n_steps)
        x = record.restore(state)
    step = first
    bar = tqdm(total=plan.n_steps, initial=first, unit="step", desc="simulate", disable=not progress, leave=False)
    try:
        with with_threads(1 if plan.pairs < _ONE_THREAD_BELOW else threads), bar:
            advance = _stepper(problem, plan, scheme, seed, x, pairs)
            _refuse_coarse(problem, plan, x)
            for step in range(first, plan.n_steps):
                proposal, moved = advance(x, step)
                record.note(proposal, moved, x)
                x = moved
                record.save(step + 1, x)
                if store is not None:
                    store.offer(step + 1, lambda x=x: record.state(x))  # type: ignore[misc]
                bar.update()
            step = plan.n_steps
    finally:  # whatever stopped the run, the last good state is kept
        if store is not None:
            store.write(step, record.state(x))
    result = record.dataset({**settings, "t_end": plan.t_end}, cores)
    return result.assign_attrs(pair_method=pairs.method, pair_error=np.array(pairs.errors) if pairs.errors else 0.0)


@dataclass(frozen=True)
class _Plan:
    n_particles: int
    n_runs: int
    dt: float
    t_end: float
    n_steps: int
    save_every: int

    @property
    def pairs(self) -> int:
        return self.n_runs * self.n_particles**2

    @property
    def saved_steps(self) -> list[int]:
        return [*range(0, self.n_steps, self.save_every), self.n_steps]


def _plan(n_particles: int, dt: float, t_end: float, n_runs: int, save_every: int | None) -> _Plan:
    dt, t_end = _checks.positive("dt", dt), _checks.positive("t_end", t_end)
    ratio = t_end / dt
    n_steps = max(round(ratio), 1)
    # t_end and dt are rounded decimals: their ratio is whole up to a few units in the last place
    if not math.isclose(ratio, n_steps, rel_tol=1e-9):
        raise ValueError(f"t_end must be a whole number of steps dt, got t_end / dt = {ratio:.6g}; "
                         f"dt = {t_end / math.ceil(ratio):.6g} would do")
    every = math.ceil(n_steps / 100) if save_every is None else _checks.count("save_every", save_every)
    return _Plan(_checks.count("n_particles", n_particles), _checks.count("n_runs", n_runs), dt, t_end, n_steps, every)


def _initial_positions(problem: Problem, initial: str | Array, plan: _Plan, seed: int) -> Array:
    shape = (plan.n_runs, plan.n_particles, problem.dim)
    if isinstance(initial, str):
        _checks.choice("initial", initial, ("uniform",))
        return np.stack([problem.domain.sample(plan.n_particles, _rng.generator(seed, _rng.INITIAL, run))
                         for run in range(plan.n_runs)])
    given = _checks.positions("initial", initial, problem.dim)
    if given.shape not in (shape, shape[1:]):
        raise ValueError(f"initial must have shape (particle, component) = {shape[1:]} or "
                         f"(run, particle, component) = {shape}, got {given.shape}")
    x = np.broadcast_to(given, shape).copy()
    outside = ~problem.domain.contains(x)
    if outside.any():
        run, particle = (int(i) for i in np.argwhere(outside)[0])
        raise ValueError(f"initial positions must lie in {problem.domain!r}, got {x[run, particle].tolist()} "
                         f"for particle {particle} of run {run}")
    if any(term.singular for term in problem.interactions):
        _refuse_coincident(x if given.ndim == 3 else x[:1])
    return x


def _refuse_coincident(x: Array) -> None:
    for run, points in enumerate(x):
        order = np.lexsort(points.T)
        equal = (points[order[1:]] == points[order[:-1]]).all(axis=1)
        if equal.any():
            i = int(np.argmax(equal))
            a, b = sorted((int(order[i]), int(order[i + 1])))
            raise ValueError(f"initial positions must be distinct under a singular interaction, but particles {a} and {b} "
                             f"of run {run} coincide at {points[a].tolist()}; give the interaction a softening or move one")


def _core_radius(law: PairLaw, plan: _Plan) -> float:
    """Where one explicit step would move an unsoftened pair apart by its own distance (see ``simulate``)."""
    if law.family == SPRING or law.softening > 0 or plan.n_particles == 1:
        return 0.0
    speed = 2.0 * abs(law.coupling) * (abs(law.s) if law.s else 1.0) * plan.dt / (plan.n_particles - 1)
    return float(speed ** (1.0 / (law.s + 2.0)))


def _stepper(problem: Problem, plan: _Plan, scheme: str, seed: int, like: Array, pairs: PairSum) -> Any:
    """One step as a function (x, step) -> (proposal, put back into the domain)."""
    restrict = problem.domain.project if scheme == "projected" else problem.domain.reflect
    sigma = math.sqrt(2.0 * plan.dt * problem.temperature)
    key, noise = _rng.philox_key(seed, _rng.NOISE), np.empty_like(like)

    def advance(x: Array, step: int) -> tuple[Array, Array]:
        drift = -problem.potential_gradient(x, step)
        pairs.add_forces(x, drift)
        drift *= plan.dt
        _refuse_unstable(problem, drift, step, plan)
        proposal = np.add(x, drift, out=drift)
        if sigma:
            _rng.normals(key, 0, step, noise)
            proposal += np.multiply(noise, sigma, out=noise)
        return proposal, restrict(proposal)

    return advance


def _refuse_unstable(problem: Problem, drift: Array, step: int, plan: _Plan) -> None:
    length2 = np.square(drift).sum(axis=-1)
    worst = float(length2.max())  # NaN wins a maximum
    diameter = problem.domain.diameter
    if worst <= diameter**2:
        return
    run, particle = (int(i) for i in np.unravel_index(int(np.argmax(length2)), length2.shape))
    length = math.sqrt(worst) if worst >= 0 else math.nan
    time = step * plan.dt
    where = f"at step {step} (time {time:.6g}) the drift moves particle {particle} of run {run} by {length:.3g}"
    if math.isfinite(length):
        cure = f"take dt <= {plan.dt * 0.1 * diameter / length:.2g} or give the interaction a softening"
        reason = f"{length / diameter:.3g} times the diameter {diameter:.3g} of the domain"
    else:
        cure, reason = "look at the potential's gradient there", "which is not a finite number"
    raise UnstableStepError(f"{where}, {reason}; {cure}", step=step, time=time, run=run, particle=particle)


def _refuse_coarse(problem: Problem, plan: _Plan, x: Array) -> None:
    diameter = problem.domain.diameter
    for law in problem.laws:
        core = _core_radius(law, plan)
        if core > _COARSEST_CORE * diameter:
            distance, partner = cKDTree(x[0]).query(x[0], k=2)
            particle = int(np.argmin(distance[:, 1]))
            raise UnstableStepError(
                f"at step 0 one step of dt = {plan.dt:g} throws pairs closer than {core:.3g} apart by more than their own "
                f"distance, {core / diameter:.3g} times the diameter {diameter:.3g} of the domain (particles {particle} and "
                f"{int(partner[particle, 1])} of run 0 are {distance[particle, 1]:.3g} apart); take dt <= "
                f"{plan.dt * (_COARSEST_CORE * diameter / core) ** (law.s + 2):.2g} or give the interaction a softening",
                step=0, time=0.0, run=0, particle=particle)


class _Record:
    """What is saved, and what has been counted since it was last saved."""

    def __init__(self, plan: _Plan, x: Array) -> None:
        self.plan, self.steps = plan, plan.saved_steps
        saved = len(self.steps)
        self.position = np.empty((x.shape[0], saved, *x.shape[1:]))
        self.clipped_fraction = np.zeros((x.shape[0], saved))
        self.max_displacement = np.zeros((x.shape[0], saved))
        self.position[:, 0] = x
        self.filled = 1
        self._clipped, self._longest2 = np.zeros(x.shape[0]), np.zeros(x.shape[0])

    def note(self, proposal: Array, moved: Array, before: Array) -> None:
        self._clipped += (proposal != moved).any(axis=-1).sum(axis=-1)
        np.maximum(self._longest2, np.square(proposal - before).sum(axis=-1).max(axis=-1), out=self._longest2)

    def save(self, step: int, x: Array) -> None:
        if step != self.steps[self.filled]:
            return
        i = self.filled
        self.position[:, i] = x
        self.clipped_fraction[:, i] = self._clipped / ((step - self.steps[i - 1]) * self.plan.n_particles)
        self.max_displacement[:, i] = np.sqrt(self._longest2)
        self._clipped[:] = self._longest2[:] = 0.0
        self.filled += 1

    def state(self, x: Array) -> dict[str, Array]:
        """All that going on needs; a last state that is no multiple of ``save_every`` is not part of it."""
        keep = self.filled - 1 if self.steps[self.filled - 1] % self.plan.save_every else self.filled
        counted = keep == self.filled
        i = self.filled - 1
        since = self.steps[i] - self.steps[i - 1] if i else 0
        return {"x": x, "position": self.position[:, :keep], "clipped_fraction": self.clipped_fraction[:, :keep],
                "max_displacement": self.max_displacement[:, :keep],
                "clipped": self._clipped if counted
                else np.rint(self.clipped_fraction[:, i] * since * self.plan.n_particles),
                "longest2": self._longest2 if counted else np.square(self.max_displacement[:, i])}

    def restore(self, state: dict[str, Array]) -> Array:
        self.filled = state["position"].shape[1]
        for name in ("position", "clipped_fraction", "max_displacement"):
            getattr(self, name)[:, :self.filled] = state[name]
        self._clipped, self._longest2 = state["clipped"], state["longest2"]
        return state["x"]

    def dataset(self, settings: dict[str, Any], cores: list[float]) -> xr.Dataset:
        plan = self.plan
        time = np.array(self.steps) * plan.dt
        time[-1] = plan.t_end
        result = dataset("simulate", {"position": self.position, "clipped_fraction": self.clipped_fraction,
                                      "max_displacement": self.max_displacement},
                         {"run": np.arange(plan.n_runs), "time": time, "particle": np.arange(plan.n_particles),
                          "component": np.arange(self.position.shape[-1])}, settings=settings)
        result.attrs["core_radius"] = np.array(cores) if cores else 0.0
        return result
