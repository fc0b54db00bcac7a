"""Independent points drawn from a density of ``solve`` or ``gibbs``: starts for particles, and the floor of sampling noise.

No N particles can be closer to a density, on average, than the fluctuations that remain between them allow; independent
points are the yardstick: ``monte_carlo_floor`` is their mean distance and its spread.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array
from meanfield.diagnostics.distances import measure_of, wasserstein
from meanfield.diagnostics.sliced import sliced_wasserstein
from meanfield.domain.base import Seed, generator
from meanfield.problem import Problem

__all__ = ["monte_carlo_floor", "sample_density"]


def sample_density(problem: Problem, density: xr.Dataset, size: int, *, seed: Seed = 0) -> Array:
    """Independent points from a piecewise constant density, shape (particle, component).

    ``density`` is a Dataset of ``gibbs``, or one time of ``solve``: over x, over x and y, or over r (then directions are
    uniform). Points of cells that the boundary cuts are drawn anew until they lie in the domain. With one seed, a larger
    sample begins with the smaller one. Raises ValueError for a density that still has other dims.
    """
    rho = measure_of("density", density)
    size, rng = _checks.count("size", size), generator(seed)
    names = [n for n in ("x", "y", "r") if n in rho.dims]
    if len(names) != rho.ndim or rho.name != "density":
        raise ValueError(f"density must be one density over x, x and y or r, got dims {rho.dims}; choose a time with .isel")
    values = rho.transpose(*names).values
    centers = [rho[n].values for n in names]
    widths = [float(c[-1] - c[0]) / (c.size - 1) for c in centers]
    if names == ["r"]:
        return _shells(values, centers[0], widths[0], problem.dim, size, rng)
    mass = values * (density["cell_volume"].transpose(*names).values if "cell_volume" in density else 1.0)
    share, points, todo = np.cumsum(mass.ravel()), np.empty((size, len(names))), np.arange(size)
    while todo.size:
        # one row of numbers a particle and a stream a try, so that a larger sample begins with the smaller one
        numbers = rng.spawn(1)[0].uniform(size=(size, 1 + len(names)))[todo]
        places = np.unravel_index(_drawn(share, numbers[:, 0]), values.shape)
        for a, (center, width, place) in enumerate(zip(centers, widths, places, strict=True)):
            points[todo, a] = center[place] + width * (numbers[:, 1 + a] - 0.5)
        todo = todo[~problem.domain.contains(points[todo])]
    return points


def _drawn(share: Array, numbers: Array) -> NDArray[np.intp]:
    """Cells that the numbers in [0, 1) fall into, by the cumulative shares."""
    cells: NDArray[np.intp] = np.minimum(np.searchsorted(share, share[-1] * numbers, side="right"), share.size - 1)
    return cells


def _shells(values: Array, r: Array, width: float, dim: int, size: int, rng: np.random.Generator) -> Array:
    edges = np.maximum(np.append(r - 0.5 * width, r[-1] + 0.5 * width), 0.0) ** dim
    numbers = rng.uniform(size=(size, 2))
    cell = _drawn(np.cumsum(values * np.diff(edges)), numbers[:, 0])
    radius = (edges[cell] + numbers[:, 1] * (edges[cell + 1] - edges[cell])) ** (1.0 / dim)
    direction = rng.spawn(1)[0].standard_normal((size, dim))
    points: Array = direction * (radius / np.sqrt(np.square(direction).sum(axis=1)))[:, None]
    return points


def monte_carlo_floor(problem: Problem, density: xr.Dataset, n_particles: int, *, order: float = 1, n_samples: int = 20,
                      n_directions: int = 64, seed: int = 0) -> tuple[float, float]:
    """Mean and standard deviation of W_p between ``n_particles`` independent points of a density and that density.

    The distance is ``wasserstein`` on the line and for radial densities, ``sliced_wasserstein`` in the plane.
    """
    rng = generator(seed)
    found: list[float] = []
    for _ in range(_checks.count("n_samples", n_samples, least=2)):
        points = sample_density(problem, density, n_particles, seed=rng)
        sample = xr.Dataset({"position": (("particle", "component"), points)})
        found.append(float(_distance(sample, density, order, n_directions)))
    return float(np.mean(found)), float(np.std(found, ddof=1))


def _distance(sample: xr.Dataset, density: xr.Dataset, order: float, n_directions: int) -> Any:
    if "y" in density["density"].dims:
        return sliced_wasserstein(sample, density, order=order, n_directions=n_directions)
    return wasserstein(sample, density, order=order)
