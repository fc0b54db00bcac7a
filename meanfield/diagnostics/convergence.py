"""``converge``: how fast N particles approach their density, with the fitted rate, its standard error and what else counts.

Three errors add up in W_p(mu^N_t, rho_t): the fluctuation of N particles (what the rate is about), the bias of the time
step (an atom of order sqrt(dt) at walls under "projected"), and the grid of ``solve``. ``converge`` measures the first,
and, where asked, the second on paired noise.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import dataset
from meanfield.diagnostics.distances import wasserstein
from meanfield.diagnostics.rates import fit_rate
from meanfield.diagnostics.sampling import sample_density
from meanfield.diagnostics.sliced import sliced_wasserstein
from meanfield.diagnostics.transport import order_of_distance
from meanfield.mesh import Grid
from meanfield.particles import simulate
from meanfield.pde import solve
from meanfield.problem import Problem, config

__all__ = ["converge"]


def converge(problem: Problem, n_particles: Sequence[int], n_runs: int | Sequence[int], grid: Grid, *, dt: float,
             t_end: float, times: Sequence[float] | None = None, initial: str | Array | Callable[..., Array] = "uniform",
             order: float = 1, scheme: str = "reflected", coupled: bool = False, halve_step: bool = False, seed: int = 0,
             threads: int | None = None, progress: bool = False, folder: str | os.PathLike[str] | None = None) -> xr.Dataset:
    """The distance W_p(mu^N_t, rho_t) for growing N at chosen times, and the rate at which it falls.

    Args:
        problem, grid: what ``solve`` takes; particles start as independent points of the density's start.
        n_particles: increasing sizes N, two or more.
        n_runs: independent runs of each size, two or more; one number or one for each size.
        dt, t_end, scheme, seed, threads: what ``simulate`` takes.
        times: times of comparison, whole steps (default: ten equally spaced ones and the start).
        initial: what ``solve`` takes.
        order: p of W_p: ``wasserstein`` on the line and for radii, ``sliced_wasserstein`` in the plane.
        coupled: use the same start and the same noise for particle k at every N (synchronous coupling), and record
            ``coupling_error``, the root mean square over k of |X_k^N - X_k^M| for neighbouring sizes N < M.
        halve_step: run everything with dt / 2 on the same Brownian paths too and record ``step_bias``, the mean
            paired difference of the distances (dt minus dt / 2), with its standard error.
        folder: where each finished size is kept (made if absent); a call with the same arguments goes on from there.

    Returns a Dataset over (n_particles, time): ``error`` (mean over runs) and ``error_stderr``; over n_particles the same of
    ``sup_error`` = sup over the times; ``rate`` and ``rate_stderr`` over time and ``sup_rate``, ``sup_rate_stderr``:
    weighted least squares of log error against log N. Theory: -1/2 on the line and for sliced distances, the
    fluctuations being of order N^(-1/2) (method.md 7.2; Fournier and Guillin 2015).

    Raises ValueError for arguments that make no sense and for a folder that holds another call's results.
    """
    sizes = [_checks.count("n_particles", n, least=2) for n in n_particles]
    if len(sizes) < 2 or any(b <= a for a, b in itertools.pairwise(sizes)):
        raise ValueError(f"n_particles must be two or more increasing numbers, got {list(n_particles)}")
    given = [n_runs] * len(sizes) if isinstance(n_runs, (int, np.integer)) else list(n_runs)
    if len(given) != len(sizes):
        raise ValueError(f"n_runs must be one number or one for each of {len(sizes)} sizes, got {len(given)}")
    runs = [_checks.count("n_runs", n, least=2) for n in given]
    p, seed, dt = order_of_distance(order), _checks.seed_int(seed), _checks.positive("dt", dt)
    if coupled and len(set(runs)) > 1:
        raise ValueError(f"coupled sizes need the same n_runs, got {runs}")
    steps = _steps(times, dt, _checks.positive("t_end", t_end))
    flow = solve(problem, grid, t_end=t_end, initial=initial, save_at=dt * np.array(steps), progress=progress)
    settings = {"problem": problem, "n_particles": sizes, "n_runs": runs, "grid": grid, "dt": dt, "t_end": t_end,
                "steps": steps, "initial": flow["density"].values[0], "order": p, "scheme": scheme, "coupled": coupled,
                "halve_step": halve_step, "seed": seed}
    store = _Store(folder, settings)
    held: dict[str, list[Array]] = {"error": [], "step_bias": [], "coupling_error": []}
    previous: Array | None = None
    for number, (n, m) in enumerate(tqdm(list(zip(sizes, runs, strict=True)), desc="converge", unit="size",
                                         disable=not progress, leave=False)):
        entry = store.read(n)
        wanted = coupled and number + 1 < len(sizes) and store.read(sizes[number + 1]) is None
        if entry is None or wanted:
            fresh, previous = _one_size(problem, flow, n, m, steps, dt, p, scheme, seed if coupled else seed + number,
                                        halve_step, threads, progress, previous if coupled else None)
            if entry is None:
                entry = fresh
                store.write(n, entry)
        for name, values in entry.items():
            held[name].append(values)
    return _dataset(problem, sizes, runs, flow, held, settings)


def _steps(times: Sequence[float] | None, dt: float, t_end: float) -> list[int]:
    """Numbers of steps at which to compare."""
    last = round(t_end / dt)
    if times is None:
        return sorted({round(last * k / 10) for k in range(11)})
    steps = [round(t / dt) for t in times]
    if not steps or any(abs(s * dt - t) > 1e-9 * max(dt, t) for s, t in zip(steps, times, strict=True)) \
            or any(b <= a for a, b in itertools.pairwise(steps)) or steps[0] < 0 or steps[-1] > last:
        raise ValueError(f"times must be increasing whole steps of dt={dt:g} in [0, t_end={t_end:g}], got {list(times)}")
    return steps


def _one_size(problem: Problem, flow: xr.Dataset, n: int, m: int, steps: list[int], dt: float, p: float, scheme: str,
              seed: int, halve_step: bool, threads: int | None, progress: bool,
              previous: Array | None) -> tuple[dict[str, Array], Array]:
    # one stream of points a run, so that a larger N only adds particles: the coupling of the starts
    start = np.stack([sample_density(problem, flow.isel(time=0), n, seed=np.random.default_rng([seed, run]))
                      for run in range(m)])
    every = max(1, math.gcd(*[s for s in steps if s] or [1]))
    distance: Callable[..., xr.DataArray] = sliced_wasserstein if "y" in flow.dims else wasserstein

    def simulated(dt: float, every: int, refinement: int) -> tuple[Array, Array]:
        run = simulate(problem, n_particles=n, n_runs=m, dt=dt, t_end=float(flow["time"][-1]), initial=start, seed=seed,
                       scheme=scheme, save_every=every, threads=threads, progress=progress, noise_refinement=refinement)
        run = run.sel(time=flow["time"].values, method="nearest")
        return distance(run, flow, order=p).transpose("run", "time").values, run["position"].values

    error, positions = simulated(dt, every, 2 if halve_step else 1)
    entry = {"error": error}
    if halve_step:
        entry["step_bias"] = error - simulated(dt / 2, 2 * every, 1)[0]
    if previous is not None:
        gap = problem.domain.displacement(positions[:, :, : previous.shape[2]], previous)
        entry["coupling_error"] = np.sqrt(np.square(gap).sum(axis=-1).mean(axis=-1))
    return entry, positions


def _dataset(problem: Problem, sizes: list[int], runs: list[int], flow: xr.Dataset, held: dict[str, list[Array]],
             settings: dict[str, Any]) -> xr.Dataset:
    mean, stderr = _means(held["error"])
    sup, sup_stderr = _means([e.max(axis=1, keepdims=True) for e in held["error"]])
    rates = [fit_rate(np.array(sizes), mean[:, i], stderr[:, i]) for i in range(mean.shape[1])]
    sup_rate = fit_rate(np.array(sizes), sup[:, 0], sup_stderr[:, 0])
    variables: dict[str, Any] = {
        "error": mean, "error_stderr": stderr, "sup_error": sup[:, 0], "sup_error_stderr": sup_stderr[:, 0],
        "rate": [r.slope for r in rates], "rate_stderr": [r.stderr for r in rates], "sup_rate": sup_rate.slope,
        "sup_rate_stderr": sup_rate.stderr, "n_runs": np.array(runs)}
    if held["step_bias"]:
        variables["step_bias"], variables["step_bias_stderr"] = _means(held["step_bias"])
    if held["coupling_error"]:  # of a size and the next larger one; none for the last
        values, errors = _means(held["coupling_error"])
        pad = np.full((1, values.shape[1]), np.nan)
        variables["coupling_error"] = np.concatenate([values, pad])
        variables["coupling_error_stderr"] = np.concatenate([errors, pad])
    return dataset("converge", variables, {"n_particles": np.array(sizes), "time": flow["time"].values}, settings=settings)


def _means(each: list[Array]) -> tuple[Array, Array]:
    """Mean over runs and its standard error, over (size, time)."""
    mean = np.array([e.mean(axis=0) for e in each])
    return mean, np.array([e.std(axis=0, ddof=1) / math.sqrt(len(e)) for e in each])


class _Store:
    """Finished sizes of one call, a file each, replaced whole; ``call.json`` says which call."""

    def __init__(self, folder: str | os.PathLike[str] | None, settings: dict[str, Any]) -> None:
        self._folder = Path(folder) if folder is not None else None
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        stored, wanted = self._folder / "call.json", json.loads(json.dumps(config(settings), sort_keys=True))
        if stored.exists():
            found = json.loads(stored.read_text())
            for name in sorted(set(found) | set(wanted)):
                if found.get(name) != wanted.get(name):
                    raise ValueError(f"folder {self._folder} holds results with {name}={found.get(name)!r}, this call has "
                                     f"{wanted.get(name)!r}; name another folder")
        else:
            stored.write_text(json.dumps(wanted, sort_keys=True))

    def read(self, n: int) -> dict[str, Array] | None:
        if self._folder is None or not (self._folder / f"{n}.npz").exists():
            return None
        with np.load(self._folder / f"{n}.npz", allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    def write(self, n: int, entry: dict[str, Array]) -> None:
        if self._folder is None:
            return
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **entry)  # type: ignore[arg-type]
        os.replace(name, self._folder / f"{n}.npz")
