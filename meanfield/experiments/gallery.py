"""Particles beside their density in every geometry: the cases, their distances against the floor of sampling noise.

``meanfield figures`` draws them; ``measure`` is what a test or a report asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

import meanfield as mf
from meanfield._checks import Array
from meanfield.diagnostics.sampling import monte_carlo_floor, sample_density

__all__ = ["CASES", "Case", "Measured", "measure", "order_parameter"]


@dataclass(frozen=True)
class Case:
    """A problem with a start (a function of its coordinates up to a factor), a grid, times and a time step."""

    title: str
    problem: mf.Problem
    grid: mf.Grid
    start: Callable[..., Array]
    times: tuple[float, ...]
    dt: float

    def initial(self, *coordinates: Array) -> Array:
        """The start, not normalised."""
        return self.start(*coordinates)


@dataclass(frozen=True)
class Measured:
    """What came out: both Datasets, the distance at each saved time, the floor's mean and standard deviation there."""

    run: xr.Dataset
    flow: xr.Dataset
    distance: Array
    floor: Array
    spread: Array

    @property
    def excess(self) -> Array:
        """Distance above the floor in standard deviations of the floor, at each time."""
        excess: Array = (self.distance - self.floor) / self.spread
        return excess


def _bumps(x: Array) -> Array:
    return 0.7 * np.exp(-((x + 1) ** 2) / 0.18) + 0.3 * np.exp(-((x - 1) ** 2) / 0.18)


def _off_centre(x: Array, y: Array) -> Array:
    return np.exp(-((x - 0.3) ** 2 + (y + 0.2) ** 2) / 0.1)


CASES: dict[str, Case] = {
    "interval": Case("log gas, interval", mf.Problem(mf.Interval(-1.5, 1.5), mf.Quadratic(), mf.Log(), 10.0),
                     mf.Grid(600), _bumps, (0.0, 0.1, 0.4, 1.0), 1e-3),
    "line": Case("log gas, line", mf.Problem(mf.FreeSpace(1), mf.Quadratic(), mf.Log(), 4.0),
                 mf.Grid(800, window=(-6, 6)), _bumps, (0.0, 0.1, 0.4, 1.0), 1e-3),
    # below the transition, where fluctuations at rest are 1 / sqrt(1 - K / 2) = 1.4 times those of independent points;
    # above it they grow, and no N is at the floor
    "circle": Case("Kuramoto, K = 1", mf.Problem(mf.Torus(2 * math.pi, 1), mf.Zero(), mf.CosinePair(1.0), 1.0),
                   mf.Grid(400), lambda x: 1 + 0.8 * np.cos(x - 2), (0.0, 0.5, 1.0, 4.0), 5e-3),
    "box": Case("log gas, rectangle", mf.Problem(mf.Box([-1, -0.6], [1, 0.6]), mf.Quadratic(), mf.Log(), 5.0),
                mf.Grid((160, 96)), _off_centre, (0.0, 0.02, 0.1, 0.4), 1e-3),
    "square of angles": Case("rotors, K = 1", mf.Problem(mf.Torus(2 * math.pi, 2), mf.Zero(), mf.CosinePair(1.0), 1.0),
                             mf.Grid(128), lambda x, y: (1 + 0.8 * np.cos(x - 2)) * (1 + 0.8 * np.cos(y - 4)),
                             (0.0, 0.5, 1.0, 4.0), 5e-3),
    "disc": Case("log gas, disc", mf.Problem(mf.Ball(1.0, 2), mf.Quadratic(2.0, center=(0.5, 0.0)), mf.Log(), 5.0),
                 mf.Grid(128), _off_centre, (0.0, 0.02, 0.1, 0.4), 1e-3),
    "disc, radial": Case("log gas, disc, radii", mf.Problem(mf.Ball(1.0, 2), mf.Zero(), mf.Log(), 5.0),
                         mf.Grid(300, radial=True), lambda r: np.exp(-(r**2) / 0.1), (0.0, 0.02, 0.1, 0.4), 1e-3),
    "ball": Case("Coulomb, ball, radii", mf.Problem(mf.Ball(1.0, 3), mf.Zero(), mf.Coulomb(3), 5.0), mf.Grid(200),
                 lambda r: np.exp(-(r**2) / 0.1), (0.0, 0.01, 0.05), 1e-3),
}


def measure(case: Case, n_particles: int, *, seed: int = 0, threads: int | None = None, n_samples: int = 20,
            n_directions: int = 32, progress: bool = False) -> Measured:
    """Particles that start as independent points of the density's own start, and their distance from it afterwards.

    The distance is ``wasserstein`` on the line and for radii, ``sliced_wasserstein`` in the plane; the floor is that of
    ``n_samples`` draws of ``n_particles`` independent points from the density of that time.
    """
    mesh_start = _normalised(case)
    flow = mf.solve(case.problem, case.grid, t_end=case.times[-1], initial=mesh_start, save_at=case.times, progress=progress)
    points = sample_density(case.problem, flow.isel(time=0), n_particles, seed=seed)
    every = math.gcd(*[round(t / case.dt) for t in case.times[1:]])
    run = mf.simulate(case.problem, n_particles=n_particles, dt=case.dt, t_end=case.times[-1], initial=points, seed=seed,
                      scheme="reflected", save_every=every, threads=threads, progress=progress)
    run = run.sel(time=list(case.times), method="nearest")
    options: dict[str, Any] = {"n_directions": n_directions} if "y" in flow.dims else {}
    distances = (mf.sliced_wasserstein if options else mf.wasserstein)(run, flow, **options)
    floors = [monte_carlo_floor(case.problem, flow.isel(time=i), n_particles, n_samples=n_samples, seed=seed + 1,
                                n_directions=n_directions) for i in range(len(case.times))]
    return Measured(run, flow, distances.isel(run=0).values, np.array([f[0] for f in floors]),
                    np.array([f[1] for f in floors]))


def _normalised(case: Case) -> Array:
    """Cell averages of the start, of mass 1."""
    from meanfield.mesh import mesh_of

    mesh = mesh_of(case.problem, case.grid)
    rho = mesh.averages(case.initial)
    averages: Array = rho / mesh.mass(rho)
    return averages


def order_parameter(run: xr.Dataset) -> xr.DataArray:
    """|mean over particles of exp(i theta)| of angles, over (run, time)."""
    angle = run["position"].isel(component=0)
    wave = xr.apply_ufunc(lambda a: np.exp(1j * a), angle)
    size: xr.DataArray = abs(wave.mean("particle"))
    return size
