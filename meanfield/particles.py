"""``simulate``: interacting particles under Langevin dynamics, its gradient flow, or a sampler of its law at rest.

One step, for all particles at once (synchronous; method.md 6.1):

    x_k <- P( x_k - dt N grad_k H_N(x) + sqrt(2 dt / beta) xi_k ),   N grad_k H_N = grad V(x_k) + 1/(N-1) sum_l grad g,

with P the nearest point of the domain (Algorithm 1 of the paper). Which ``scheme`` when:

    projected    the paper's; weak order 1/2 at walls, 1 away from them, strong order 1 for smooth forces
    reflected    mirror image instead of the nearest point: weak order 1 at walls; the better default for densities
    tamed        drift b / (1 + dt |b| / L): superlinear potentials and stiff softened kernels from any start
    adaptive     bisects a step while a particle would be carried far beside its neighbours: singular kernels, small N
    flow         beta = inf to a tolerance (Runge-Kutta 5(4)): ground states and deterministic trajectories
    metropolis   exact samples of exp(-beta N H_N), the unsoftened kernel included; its time is no physical time
"""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from meanfield import _checks, _rng
from meanfield._checks import Array
from meanfield._numba import fit_threads, thread_count, with_threads
from meanfield.adaptive import Adaptive, finest_core_dt
from meanfield.annealing import Annealing
from meanfield.checkpoint import Checkpoint, stored_settings
from meanfield.dataset import remember_end
from meanfield.flow import Flow
from meanfield.forces import core_radius
from meanfield.metropolis import Metropolis
from meanfield.problem import Problem
from meanfield.record import Plan, Record, make_plan, refuse_too_large
from meanfield.schemes import Euler, Noise, Stepper, refuse_coarse

__all__ = ["SCHEMES", "simulate"]

SCHEMES = ("projected", "reflected", "tamed", "adaptive", "flow", "metropolis")
# states held at once, beside the saved ones: positions, drift, noise, proposal and what NumPy makes on the way
_WORKING_STATES = {"projected": 7, "reflected": 9, "tamed": 8, "adaptive": 40, "flow": 20, "metropolis": 14}
_EXTRA = {"adaptive": ("n_substeps",), "flow": ("n_substeps",), "metropolis": ("acceptance_fraction",)}


def simulate(problem: Problem, *, n_particles: int, dt: float, t_end: float, n_runs: int = 1,
             initial: str | Array = "uniform", scheme: str = "projected", save_every: int | None = None,
             seed: int | None = 0, threads: int | None = None, progress: bool = False,
             checkpoint: str | os.PathLike[str] | None = None,
             annealing: Annealing | Callable[[float], float] | None = None, noise_refinement: int = 1,
             method: str = "auto", accuracy: float = 1e-12) -> xr.Dataset:
    """Simulate ``n_runs`` independent systems of ``n_particles`` particles up to ``t_end``.

    Args:
        problem: domain, potential, interaction, inverse temperature.
        n_particles: N; the pair sum is divided by N - 1.
        dt: time step; ``t_end`` must be a whole number of steps.
        t_end: final time.
        n_runs: independent realisations, computed side by side.
        initial: "uniform" (independent uniform points; those of particle k do not depend on N), or positions over
            (particle, component), shared by all runs, or (run, particle, component); a DataArray is read by the names of
            its dims.
        scheme: "projected", "reflected", "tamed", "adaptive", "flow" or "metropolis" (see the module).
        save_every: steps between saved states (default: that of the checkpoint that the run goes on from, or about 100 saved
            states); the first and last are always saved.
        seed: every number is a function of (problem, arguments, seed), bit for bit, whatever ``threads`` says. None takes a
            fresh seed, or that of the checkpoint; the seed that was used is in the attribute ``config``. A new run that
            starts where a run with the same seed ended would see its noise again, about which a warning is given.
        threads: threads to use at most (default: all, but one in worker threads and processes); small systems use one.
        progress: show a progress bar with rate and time left.
        checkpoint: a file written now and then and at the end. If it holds the same problem, seed and dt, the run goes on
            from there to ``t_end`` and gives the numbers of an uninterrupted run; if it holds another, it is refused.
        annealing: beta as a function of time, in force instead of ``problem.inverse_temperature`` and read at the start of
            each step: an ``Annealing`` or any function t -> beta (named in the Dataset, not stored).
        noise_refinement: m: each step uses the sum of the m increments that a run with dt / m and the same seed uses, so
            that runs at dt and dt / m see the same Brownian paths (strong orders, common random numbers).
        method: how pair forces are summed: "direct", a fast sum by name (pairsum.py lists them), or "auto", which takes a
            fast sum where there is one that was measured to be faster.
        accuracy: largest error of a fast sum, relative to the sum of the magnitudes of a particle's pair forces.

    Returns a Dataset with ``position`` over (run, time, particle, component) and, since the last saved time,
    ``clipped_fraction`` and ``max_displacement`` over (run, time); "adaptive" and "flow" add ``n_substeps``, "metropolis"
    ``acceptance_fraction``, annealed runs ``inverse_temperature`` over time. The attributes ``pair_method`` and
    ``pair_error`` name the sum that was taken for each interaction and its stated error.

    Singular kernels: an explicit step of length dt cannot resolve a pair closer than its core, the distance r_c at which
    one step would move the pair apart by r_c itself (r_c^(s+2) = 2 |s| |strength| dt / (N - 1), with |s| read as 1 for
    the logarithm). Below r_c the force of an unsoftened pair is linear in its displacement; r_c is in the attribute
    ``core_radius`` and vanishes with dt and with 1 / N. A softened kernel is taken as it is. "adaptive" has the core of
    its finest sub-step (dt / 512 in the formula), "flow" none, and "metropolis" one that its law does not see. Why:
    docs/decisions/0002 and 0005.

    Raises ValueError for arguments that make no sense (positions outside the domain or coincident under a singular
    kernel included), ``UnstableStepError`` if a drift step is longer than the domain's diameter or not finite, or if r_c
    is above a tenth of the diameter ("tamed": only if not finite; "adaptive" and "flow": if no sub-step is short enough),
    MemoryError, before anything is computed, if what is to be saved does not fit.

    Source: Algorithm 1 of arXiv:2607.23869; reflection: Bossy, Gobet, Talay (2004); taming: Hutzenthaler, Jentzen, Kloeden
    (2012) with L a tenth of the domain's diameter (1 on an unbounded one); Metropolis: Roberts, Tweedie (1996).
    """
    stored = stored_settings(checkpoint)  # what this call leaves open goes on as it was
    plan = make_plan(n_particles, dt, t_end, n_runs, stored.get("save_every") if save_every is None else save_every, method,
                     accuracy)
    threads = thread_count(threads)
    _checks.choice("scheme", scheme, SCHEMES)
    seed = _checks.seed_int(stored.get("seed", secrets.randbits(64)) if seed is None else seed)
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    refinement = _checks.count("noise_refinement", noise_refinement)
    if plan.n_steps * refinement >= 2**32:
        raise ValueError(f"noise streams have 2^32 steps, got {plan.n_steps} steps of {refinement} increments")
    refuse_too_large(plan, problem.dim, _WORKING_STATES[scheme])
    beta = _schedule(problem, plan, scheme, annealing)
    if not isinstance(initial, str):
        initial = _by_name(initial)
    x = _initial_positions(problem, initial, plan, seed)
    if not isinstance(initial, str) and np.isfinite(beta).any() and (again := _rng.replayed_runs(seed, x)):
        warnings.warn(f"initial is where run {again[0]} of an earlier call with seed={seed} ended, so that it would see the "
                      "same noise once more; take another seed, or a checkpoint to go on", stacklevel=2)
    settings = {"problem": problem, "n_particles": plan.n_particles, "dt": plan.dt, "n_runs": plan.n_runs,
                "initial": initial, "scheme": scheme, "save_every": plan.save_every, "seed": seed,
                "annealing": annealing if annealing is None or isinstance(annealing, Annealing)
                else {"callable": getattr(annealing, "__qualname__", repr(annealing)), "first": list(beta[:2])},
                "noise_refinement": refinement, "method": method, "accuracy": accuracy}
    record = Record(plan, x, _EXTRA.get(scheme, ()))
    store = Checkpoint(checkpoint, settings) if checkpoint is not None else None
    first, carried = 0, dict[str, Array]()
    if store is not None and store.exists():
        first, held = store.read(plan.n_steps)
        x, carried = record.restore(first, held), {k: v for k, v in held.items() if k.startswith("carry_")}
    step = first
    bar = tqdm(total=plan.n_steps, initial=first, unit="step", desc="simulate", disable=not progress, leave=False)
    advance: Stepper | None = None

    def state() -> dict[str, Array]:
        carry = advance.carry if advance is not None else {}
        return {**record.state(x), **carried, **{f"carry_{name}": values for name, values in carry.items()}}

    try:
        with with_threads(threads), bar:
            # without pairs a step is some tens of operations a particle
            fit_threads(plan.pairs if problem.laws else 20 * plan.n_runs * plan.n_particles, threads)
            advance = _stepper(problem, plan, scheme, seed, beta, refinement, threads, x)
            advance.carry.update({name.removeprefix("carry_"): values for name, values in carried.items()})
            if scheme in ("projected", "reflected"):
                refuse_coarse(problem, plan, x)
            for step in range(first, plan.n_steps):
                move = advance(x, step)
                record.note(move)
                x = move.position
                record.save(step + 1, x)
                if store is not None:
                    store.offer(step + 1, state)
                bar.update()
            step = plan.n_steps
    finally:  # whatever stopped the run, the last good state is kept
        if store is not None:
            store.write(step, state())
    result = record.dataset({**settings, "t_end": plan.t_end},
                            {} if annealing is None else {"inverse_temperature": beta[record.steps]})
    core_dt = {"adaptive": finest_core_dt(plan.dt), "flow": 0.0, "metropolis": 0.0}.get(scheme, plan.dt)
    cores = [core_radius(law, plan.n_particles, core_dt) for law in problem.laws]
    result.attrs["core_radius"] = np.array(cores or [0.0])
    pairs = advance.drift.pairs
    remember_end(result)
    return result.assign_attrs(pair_method=pairs.method, pair_error=np.array(pairs.errors or [0.0]))


def _schedule(problem: Problem, plan: Plan, scheme: str, annealing: Any) -> Array:
    """beta at the start of each step and at the end, checked against what the scheme can do."""
    if annealing is None:
        beta = np.full(plan.n_steps + 1, problem.inverse_temperature)
    elif callable(annealing):
        beta = np.array([_checks.positive("annealing(t)", annealing(k * plan.dt), infinite=True)
                         for k in range(plan.n_steps + 1)])
    else:
        raise ValueError(f"annealing must be an Annealing or a function t -> beta, got {annealing!r}")
    if scheme == "flow" and (annealing is not None or math.isfinite(problem.inverse_temperature)):
        raise ValueError("scheme 'flow' is the gradient flow: it needs inverse_temperature=inf and no annealing, got "
                         f"{problem.inverse_temperature!r}{'' if annealing is None else ' and an annealing'}")
    if scheme == "metropolis" and not np.isfinite(beta).all():
        raise ValueError("scheme 'metropolis' samples exp(-beta N H_N) and needs a finite inverse temperature, got inf; "
                         "scheme 'flow' finds ground states")
    return beta


def _stepper(problem: Problem, plan: Plan, scheme: str, seed: int, beta: Array, refinement: int, threads: int,
             x: Array) -> Stepper:
    """The scheme as a function (x, step) -> Move."""
    if scheme == "flow":
        return Flow(problem, plan, x, threads)
    noise = Noise(seed, refinement, x)
    if scheme == "metropolis":
        return Metropolis(problem, plan, beta, seed, noise)
    if scheme == "adaptive":
        return Adaptive(problem, plan, beta, seed, noise, threads)
    return Euler(problem, plan, scheme, beta, noise)


def _by_name(initial: Any) -> Any:
    """The numbers of a DataArray in the order (run, particle, component), whatever the order of its dims."""
    if not isinstance(initial, xr.DataArray):
        return initial
    known = {"run", "particle", "component"} & set(initial.dims)
    if not known:
        return initial.values
    if not {"particle", "component"} <= known == set(initial.dims):
        raise ValueError(f"initial must be over (particle, component) or (run, particle, component), got {initial.dims}")
    return initial.transpose("run", "particle", "component", missing_dims="ignore").values


def _initial_positions(problem: Problem, initial: str | Array, plan: Plan, seed: int) -> Array:
    shape = (plan.n_runs, plan.n_particles, problem.dim)
    if isinstance(initial, str):
        _checks.choice("initial", initial, ("uniform",))
        return np.stack([_uniform(problem, plan.n_particles, seed, run) for run in range(plan.n_runs)])
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


def _uniform(problem: Problem, n_particles: int, seed: int, run: int) -> Array:
    """Uniform points whose first N do not depend on N, whatever order the domain's sampler draws in.

    Blocks of 64, 64, 128, 256, ... points are drawn whole, each from a generator of its own, and the last is cut.
    """
    blocks, drawn = list[Array](), 0
    while drawn < n_particles:
        size = max(drawn, 64)
        more = (len(blocks),) if blocks else ()
        blocks.append(problem.domain.sample(size, _rng.generator(seed, _rng.INITIAL, run, *more)))
        drawn += size
    return np.concatenate(blocks)[:n_particles]


def _refuse_coincident(x: Array) -> None:
    for run, points in enumerate(x):
        order = np.lexsort(points.T)
        equal = (points[order[1:]] == points[order[:-1]]).all(axis=1)
        if equal.any():
            i = int(np.argmax(equal))
            a, b = sorted((int(order[i]), int(order[i + 1])))
            raise ValueError(f"initial positions must be distinct under a singular interaction, but particles {a} and {b} "
                             f"of run {run} coincide at {points[a].tolist()}; give the interaction a softening or move one")
