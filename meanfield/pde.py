"""``solve``: the McKean-Vlasov equation by finite volumes that keep its structure.

    d rho/dt = div(rho grad U) + (1 / beta) Laplace rho,   U = V + g * rho,   no flux through the walls (method.md 7.1).

Fluxes: Scharfetter-Gummel, exact on discrete Gibbs states and second order where a cell sees little drift; scaled by a limited
reconstruction where drift dominates, so that it stays second order at any temperature, 0 included, with the same rest states
(kernels/flux.py). Time: the L-stable SDIRK2 rule with g * rho frozen at the middle of the step, or implicit in it too where
the interaction is stiff (coupling.py); steps as long as the tolerance allows (stepping.py). Mass is kept to round-off, the
density never gets negative, and a step after which the free energy is higher is refused and shortened.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from meanfield import _checks
from meanfield._checks import Array
from meanfield.checkpoint import Checkpoint
from meanfield.dataset import dataset
from meanfield.mesh import Grid, Mesh, mesh_of
from meanfield.problem import Problem
from meanfield.stepping import Stepper

__all__ = ["solve"]


def solve(problem: Problem, grid: Grid, *, t_end: float, initial: str | Array | Callable[..., Array] = "uniform",
          save_at: Sequence[float] | Array | None = None, progress: bool = False, tolerance: float = 1e-6,
          checkpoint: str | os.PathLike[str] | None = None) -> xr.Dataset:
    """Solve the McKean-Vlasov equation up to ``t_end``.

    Args:
        problem: on an Interval, a Box, Torus or FreeSpace of dimension up to 2, or a Ball; the kernel integrable there
            (Riesz s < dim, or softened).
        grid: the cells, and the window of a FreeSpace; with ``radial=True`` shells of a Ball.
        t_end: final time.
        initial: "uniform", a function of the coordinates (x), (x, y) or (r), or cell averages; non-negative with mass 1
            (within 1e-3, then normalised; the mass given is in the attribute ``initial_mass``).
        save_at: increasing times in [0, t_end]; default 101 equally spaced ones.
        progress: show a progress bar in physical time.
        tolerance: largest L1 error a time step may add, estimated from its defect in a third-order rule.
        checkpoint: a file written now and then and at the end. If it holds the same problem, grid, start and tolerance, the
            run goes on from there to ``t_end`` and gives the numbers of an uninterrupted run; if it holds another, it is
            refused. Give ``save_at`` where ``t_end`` may grow later: its default depends on ``t_end``.

    Returns a Dataset with ``density``, ``drift_potential`` and ``flux`` over time and the cells and, over time,
    ``free_energy``, ``energy``, ``entropy``, ``dissipation``, ``mass``, ``min_density``, ``n_steps`` and ``n_rejected``.

    Raises ValueError for arguments that make no sense and where the problem has no density; ArithmeticError if the
    tolerance is below what round-off allows, so that no step is short enough.

    Source: Scharfetter and Gummel (1969); for aggregation-diffusion equations Schlichting and Seis (2022); Carrillo, Chertock
    and Huang (2015) for the reconstruction.
    """
    t_end, tolerance = _checks.positive("t_end", t_end), _checks.positive("tolerance", tolerance)
    times = _times(save_at, t_end)
    mesh = mesh_of(problem, grid)
    rho, initial_mass = mesh.density(initial)
    settings = {"problem": problem, "cells": grid.cells, "tolerance": tolerance}
    store = Checkpoint(checkpoint, {**settings, "initial": rho}) if checkpoint is not None else None
    stepper = Stepper(mesh, tolerance, rho)
    saved: list[dict[str, Any]] = []
    t = 0.0
    if store is not None and store.exists():
        t, saved = _restore(store, stepper, times)

    def memory() -> dict[str, Array]:
        columns = {f"saved_{name}": np.array([s[name] for s in saved]) for name in (saved[0] if saved else ())}
        return {**stepper.memory(), **columns, "time": np.array(t), "save_at": times[:len(saved)]}

    try:
        with tqdm(total=t_end, initial=t, unit="time", desc="solve", disable=not progress, leave=False) as bar:
            for target in times[len(saved):]:
                while t < target:
                    taken = stepper.advance(target - t)
                    # the last step before a saved time ends on it bit for bit
                    t = target if taken >= target - t else t + taken
                    bar.update(taken)
                    if store is not None:
                        store.offer(stepper.accepted, memory)
                saved.append(_columns(mesh, stepper))
    finally:  # whatever stopped the run, the last good state is kept
        if store is not None:
            store.write(stepper.accepted, memory())
    coords = dict(zip(mesh.names, mesh.centers, strict=True))
    if len(mesh.names) > 1:
        coords["component"] = np.arange(len(mesh.names))
    variables = {name: np.array([s[name] for s in saved]) for name in saved[0]}
    result = dataset("solve", {**variables, "cell_volume": mesh.volumes}, {"time": times, **coords},
                     settings={**settings, "t_end": t_end,
                               "initial": initial if isinstance(initial, str) else rho if times[0] == 0 else repr(initial)})
    result.attrs["initial_mass"] = initial_mass
    result.attrs.update(mesh.recorded(result["density"].values))
    return result


def _times(save_at: Sequence[float] | Array | None, t_end: float) -> Array:
    if save_at is None:
        return np.append(t_end / 100 * np.arange(100), t_end)
    times = np.atleast_1d(_checks.finite_array("save_at", save_at))
    if times.ndim != 1 or not times.size or times[0] < 0 or times[-1] > t_end or (np.diff(times) <= 0).any():
        raise ValueError(f"save_at must be increasing times in [0, t_end={t_end:g}], got {save_at!r}")
    return times


def _restore(store: Checkpoint, stepper: Stepper, times: Array) -> tuple[float, list[dict[str, Any]]]:
    """Time and saved columns of a checkpoint; the stepper goes on from there."""
    _, memory = store.read()
    t, before = float(memory.pop("time")), memory.pop("save_at")
    if t > times[-1]:
        raise ValueError(f"checkpoint {store.path} is at time {t:g}, beyond this call's {times[-1]:g}")
    wanted = times[times <= t]
    if not np.array_equal(before, wanted):
        raise ValueError(f"checkpoint {store.path} was made with other save_at up to its time {t:g}; use another file or the "
                         "same times")
    columns = {name.removeprefix("saved_"): memory.pop(name) for name in list(memory) if name.startswith("saved_")}
    stepper.recall(memory)
    return t, [{name: values[i] for name, values in columns.items()} for i in range(before.size)]


def _columns(mesh: Mesh, stepper: Stepper) -> dict[str, Any]:
    """What is saved of the stepper's state, by variable."""
    rho, drift_potential = stepper.density, stepper.state.drift.copy()
    parts = mesh.energies(rho, drift_potential - mesh.potential)
    dissipation, flux = _flows(mesh, stepper)
    return {"density": rho, "drift_potential": drift_potential, "flux": flux, **parts._asdict(),
            "dissipation": dissipation, "mass": mesh.mass(rho), "min_density": float(rho[mesh.volumes > 0].min()),
            "n_steps": stepper.accepted, "n_rejected": stepper.rejected}


def _flows(mesh: Mesh, stepper: Stepper) -> tuple[float, Array]:
    """D = - sum over faces of J (xi_{i+1} - xi_i), xi = U + log(rho) / beta (inf where mass meets a vacuum), and the flux
    averaged over cells: the integral of J over a cell is the sum over its faces of flow times (face - centre)."""
    state = stepper.state
    xi = state.drift
    if mesh.problem.temperature:
        with np.errstate(divide="ignore"):
            xi = xi + mesh.problem.temperature * np.log(state.rho)
    total, parts = 0.0, []
    volumes = np.where(mesh.volumes > 0, mesh.volumes, 1.0)
    for axis, (sweep, faces) in enumerate(zip(stepper.sweeps, state.faces, strict=True)):
        flow = stepper.volume * sweep.flow(faces, state.q)
        flows = flow != 0
        rise = np.roll(xi, -1, axis)[flows] - xi[flows]
        total += -float(np.sum(flow[flows] * rise)) if np.isfinite(rise).all() else math.inf
        form = [1] * len(mesh.shape)
        form[axis] = -1
        ahead = (mesh.edges[axis][1:] - mesh.centers[axis]).reshape(form)
        behind = (mesh.centers[axis] - mesh.edges[axis][:-1]).reshape(form)
        parts.append((ahead * flow + behind * np.roll(flow, 1, axis)) / volumes)
    return total, parts[0] if len(parts) == 1 else np.array(parts)
