"""Sliced Wasserstein distances above one dimension: the mean over directions of the exact distance of the projections.

``sliced_wasserstein`` takes the package's Datasets. Nothing is sampled or binned: the projection of a density on equal
rectangular cells is known exactly (a sum of trapezoids), and each projected pair goes through ``transport_1d``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import VARIABLES
from meanfield.diagnostics.distances import dimension, matched, measure_of, over_other_dims
from meanfield.diagnostics.transport import Quantile, atoms, cells, order_of_distance, transport_1d

__all__ = ["directions", "projected_cells", "sliced_wasserstein"]

_PIECES = 4096  # a linear density cut into this many constant pieces: W_1 to 4e-6 of a single cell


def directions(count: int, dim: int, seed: int = 0) -> Array:
    """Unit vectors (direction, component): equally spaced half turns in the plane, else independent uniform ones.

    In the plane the angles are pi (k + 1/2) / count, which is exact for directional integrands that are trigonometric
    polynomials of a degree below 2 count; none lies on an axis.
    """
    if dim == 2:
        angle = math.pi * (np.arange(count) + 0.5) / count
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    vector = np.random.default_rng(seed).standard_normal((count, dim))
    unit: Array = vector / np.sqrt(np.square(vector).sum(axis=1, keepdims=True))
    return unit


def projected_cells(centers: tuple[Array, Array], mass: Array, direction: Array) -> Quantile:
    """The law of <direction, x> where each of equal rectangles holds its ``mass``, evenly spread, as a quantile function.

    A cell projects to a trapezoid, so the projected density is continuous and piecewise linear. Between its knots (four a
    cell, split up into a few thousand pieces where there are less) it is taken constant with the exact mass.
    ``direction`` must not lie on an axis.
    """
    full = mass > 0
    widths = [float(c[-1] - c[0]) / (c.size - 1) for c in centers]
    x, y = np.meshgrid(*centers, indexing="ij")
    share = mass[full] / mass[full].sum()
    middle = direction[0] * x[full] + direction[1] * y[full]
    a, b = 0.5 * abs(direction[0]) * widths[0], 0.5 * abs(direction[1]) * widths[1]
    # the slope of a trapezoid of half bases a + b and |a - b| and of mass 1 changes by +-1 / (4 a b) at its four knots
    knots = np.concatenate([middle - (a + b), middle - abs(a - b), middle + abs(a - b), middle + (a + b)])
    change = np.concatenate([share, -share, -share, share]) / (4.0 * a * b)
    order = np.argsort(knots, kind="stable")
    knots, slope = knots[order], np.cumsum(change[order])
    length = np.diff(knots)
    height = np.concatenate([[0.0], np.cumsum(slope[:-1] * length)])
    split = -(-_PIECES // length.size)
    step = np.arange(split) / split
    height = np.append((height[:-1, None] + slope[:-1, None] * length[:, None] * step).ravel(), height[-1])
    edges = np.append((knots[:-1, None] + length[:, None] * step).ravel(), knots[-1])
    length = np.diff(edges)
    piece = np.maximum(0.5 * (height[1:] + height[:-1]) * length, 0.0)
    keep = length > 0
    edges = np.append(edges[:-1][keep], edges[-1])
    return cells(edges, piece[keep] / np.diff(edges) / piece[keep].sum())


def sliced_wasserstein(a: xr.Dataset, b: xr.Dataset, *, order: float = 1, n_directions: int = 64,
                       seed: int = 0) -> xr.DataArray:
    """SW_p(a, b) = (mean over directions theta of W_p^p(<theta, a>, <theta, b>))^(1/p) over the other dims (time, run).

    ``a`` and ``b`` are Datasets of ``simulate`` with two or more components, or of ``solve`` or ``gibbs`` with a density
    over x and y. Times and runs are matched as ``wasserstein`` does. SW_p <= W_p. In the plane the directions are equally
    spaced; in higher dimensions they are random, drawn from ``seed``.

    Returns a DataArray in units of length. Raises ValueError for one-dimensional or radial Datasets, other dimensions on
    either side, and times that do not match.

    Source: Bonneel, Rabin, Peyre and Pfister (2015).
    """
    p = order_of_distance(order)
    count = _checks.count("n_directions", n_directions, least=1)
    mu, nu = _measure("a", a), _measure("b", b)
    if dimension(mu) != dimension(nu):
        raise ValueError(f"a and b must have the same dimension, got {dimension(mu)} and {dimension(nu)}")
    mu, nu = matched(mu, nu)
    thetas = directions(count, dimension(mu), _checks.seed_int(seed))
    left, right = _Projections(mu, thetas, a), _Projections(nu, thetas, b)

    def distance(at: dict[Any, int]) -> float:
        each = np.array([transport_1d(s, t, order=p) for s, t in zip(left.at(at), right.at(at), strict=True)])
        return float(each.max()) if math.isinf(p) else float(np.mean(each**p) ** (1.0 / p))

    return over_other_dims(mu, nu, distance, name="sliced_wasserstein",
                           attrs={"long_name": f"sliced Wasserstein distance SW_{p:g}", "order": p,
                                  "units": VARIABLES["wasserstein"].units, "n_directions": count})


def _measure(name: str, value: Any) -> xr.DataArray:
    measure = measure_of(name, value)
    fits = measure.sizes.get("component", 1) > 1 if measure.name == "position" else {"x", "y"} <= set(measure.dims)
    if not fits:
        raise ValueError(f"sliced_wasserstein needs two or more components or a density over x and y, got {name} over "
                         f"{measure.dims}; wasserstein is exact on the line and for radii")
    return measure


class _Projections:
    """The projections of one entry of the other dims at a time; entries are asked for in order, so the last one is kept."""

    def __init__(self, measure: xr.DataArray, thetas: Array, data: xr.Dataset) -> None:
        self._measure, self._thetas = measure, thetas
        # cells that the boundary cuts hold less than their rectangle would
        self._volume = data["cell_volume"].transpose("x", "y").values if "cell_volume" in data else 1.0
        self._own: dict[Any, int] | None = None
        self._last: list[Quantile] = []

    def at(self, index: dict[Any, int]) -> list[Quantile]:
        own = {d: i for d, i in index.items() if d in self._measure.dims}
        if own != self._own:
            entry = self._measure.isel(own)
            if entry.name == "position":
                points = entry.transpose("particle", "component").values
                self._last = [atoms(points @ theta) for theta in self._thetas]
            else:
                centers = (entry["x"].values, entry["y"].values)
                values = entry.transpose("x", "y").values * self._volume
                self._last = [projected_cells(centers, values, theta) for theta in self._thetas]
            self._own = own
        return self._last
