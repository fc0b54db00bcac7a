"""Wasserstein distances on the line, exact for any order p >= 1: sample or density against sample or density.

``wasserstein`` takes the package's Datasets. For arrays: ``transport_1d(atoms(x), cells(edges, density), order=2)``. Both
sides are monotone quantile functions (a sample's is a staircase, a piecewise constant density's is piecewise linear), so
the distance is one sort and one sweep; nothing is resampled or binned.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import VARIABLES
from meanfield.kernels.transport import transport_cost
from meanfield.mesh import MASS_TOLERANCE

__all__ = ["Quantile", "atoms", "cells", "matched", "measure_of", "order_of_distance", "over_other_dims", "transport_1d",
           "wasserstein"]

_CORE = ("particle", "component", "x", "y", "r")  # dims of a measure itself


class Quantile(NamedTuple):
    """A quantile function as segments sorted by position: each runs from ``left`` to ``right`` over its ``mass``."""

    mass: Array
    left: Array
    right: Array


def _normalised(name: str, mass: Array) -> Array:
    lowest, total = float(mass.min()), float(mass.sum())
    if lowest < -1e-12:
        raise ValueError(f"{name} must be non-negative, got {lowest:.3g}")
    if abs(total - 1.0) > MASS_TOLERANCE:
        raise ValueError(f"{name} must have mass 1 (within {MASS_TOLERANCE:g}), got {total:.6g}; divide by the mass first")
    mass = np.maximum(mass, 0.0)  # -1e-18 of a softmax is a zero
    normal: Array = mass / mass.sum()
    return normal


def atoms(points: Array, *, weights: Array | None = None) -> Quantile:
    """A sample (particle,) with equal weights, or weights (particle,) of sum 1 (within 1e-3, then normalised)."""
    x = _checks.finite_array("points", points, ndim=1)
    if not x.size:
        raise ValueError("points must not be empty")
    if weights is None:
        x = np.sort(x)
        return Quantile(np.full(x.size, 1.0 / x.size), x, x)
    w = _checks.finite_array("weights", weights, ndim=1)
    if w.shape != x.shape:
        raise ValueError(f"weights must have the shape of points, got {w.shape} and {x.shape}")
    order = np.argsort(x, kind="stable")
    return Quantile(_normalised("weights", w)[order], x[order], x[order])


def cells(edges: Array, density: Array) -> Quantile:
    """A piecewise constant density: increasing edges (cell + 1,) and cell averages (cell,) of mass 1 (within 1e-3)."""
    e = _checks.finite_array("edges", edges, ndim=1)
    rho = _checks.finite_array("density", density, ndim=1)
    if rho.size < 1 or e.size != rho.size + 1 or (np.diff(e) <= 0).any():
        raise ValueError("edges must increase and be one more than the cells of density, "
                         f"got shapes {e.shape} and {rho.shape}")
    return Quantile(_normalised("density", rho * np.diff(e)), e[:-1], e[1:])


def transport_1d(a: Quantile, b: Quantile, *, order: float = 1) -> float:
    """W_p(a, b) = (int_0^1 |Q_a - Q_b|^p du)^(1/p), order p >= 1 (inf: the largest displacement).

    Source: Villani (2003), theorem 2.18.
    """
    p = order_of_distance(order)
    largest = float(transport_cost(*a, *b, math.inf, 1.0))
    if largest == 0.0 or math.isinf(p):
        return largest
    cost = float(transport_cost(*a, *b, p, largest))
    return float(largest * cost ** (1.0 / p))


def wasserstein(a: xr.Dataset, b: xr.Dataset, *, order: float = 1) -> xr.DataArray:
    """W_p between the measures of two Datasets of ``simulate``, ``solve`` or ``gibbs``, over their other dims.

    The other dims are ``time`` and ``run``; one that only one side has broadcasts. Two time axes: the shorter is kept
    (``a``'s, if they are equally long), each of its times is matched to the other's nearest, and refused if that is
    further away than half a saving interval. Two run axes are matched by their labels, and refused if those differ.

    Where a density is radial (over r), both sides are the laws of |x|: for two measures that are symmetric under rotations
    this is W_p itself, else a lower bound. Above one dimension ``sliced_wasserstein`` compares positions and densities.

    Returns a DataArray in units of length, the order p in its attributes. Raises ValueError for Datasets without
    ``position`` or ``density``, dimensions above 1, and times that do not match.
    """
    p = order_of_distance(order)
    radial = any("r" in value["density"].dims for value in (a, b) if isinstance(value, xr.Dataset) and "density" in value)
    mu, nu = matched(_measure("a", a, radial), _measure("b", b, radial))
    left, right = _quantiles(mu), _quantiles(nu)
    return over_other_dims(mu, nu, lambda at: transport_1d(left.at(at), right.at(at), order=p), name="wasserstein",
                           attrs={"long_name": f"Wasserstein distance W_{p:g}" + (" of the radii" if radial else ""),
                                  "units": VARIABLES["wasserstein"].units, "order": p})


def over_other_dims(mu: xr.DataArray, nu: xr.DataArray, distance: Callable[[dict[Any, int]], float], *, name: str,
                    attrs: dict[str, Any]) -> xr.DataArray:
    """``distance`` at every entry of the dims that are not the measures' own (run and time first)."""
    sizes = {d: n for m in (nu, mu) for d, n in m.sizes.items() if d not in _CORE}
    dims = [d for d in ("run", "time") if d in sizes] + [d for d in sizes if d not in ("run", "time")]
    values = np.empty([sizes[d] for d in dims])
    for index in np.ndindex(values.shape):
        values[index] = distance(dict(zip(dims, index, strict=True)))
    coords = {d: m[d] for m in (nu, mu) for d in dims if d in m.coords}
    return xr.DataArray(values, dims=dims, coords=coords, name=name, attrs=attrs)


def matched(mu: xr.DataArray, nu: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """The two measures with their times and runs matched, as ``wasserstein`` describes."""
    if "time" in mu.dims and "time" in nu.dims:
        mu, nu = _same_times(mu, nu)
    if "run" in mu.dims and "run" in nu.dims:
        nu = _same_runs(mu, nu)
    return mu, nu


def order_of_distance(order: float) -> float:
    """The order p of W_p: at least 1, or inf."""
    p = _checks.positive("order", order, infinite=True)
    if p < 1:
        raise ValueError(f"order must be at least 1, got {order!r}")
    return p


def _measure(name: str, value: Any, radial: bool) -> xr.DataArray:
    measure = measure_of(name, value)
    if measure.name == "position":
        if radial:
            length: xr.DataArray = (measure**2).sum("component") ** 0.5
            return length.rename("position")
        if measure.sizes.get("component", 1) != 1:
            raise ValueError(f"wasserstein is exact in one dimension, but {name} has positions of "
                             f"{measure.sizes['component']} components; take sliced_wasserstein")
        return measure.isel(component=0, drop=True) if "component" in measure.dims else measure
    if ("r" if radial else "x") not in measure.dims or "y" in measure.dims:
        raise ValueError(f"wasserstein is exact in one dimension, but the density of {name} is over {measure.dims}; "
                         "take sliced_wasserstein")
    if radial:  # the density of the radius
        edges = _cell_edges(measure["r"].values)
        measure = measure * xr.DataArray(_shell_means(edges, _radial_dim(value)), dims="r")
        return measure.rename("density")
    return measure


def measure_of(name: str, value: Any) -> xr.DataArray:
    """The positions or the density of a Dataset."""
    found = [v for v in ("position", "density") if isinstance(value, xr.Dataset) and v in value]
    if len(found) != 1:
        raise ValueError(f"{name} must be a Dataset with a position or a density, got {type(value).__name__}")
    measure: xr.DataArray = value[found[0]]
    return measure


def _radial_dim(value: xr.Dataset) -> int:
    """Dimension of the ball of a radial density."""
    return int(json.loads(value.attrs["config"])["problem"]["domain"]["dim"])


def _same_runs(a: xr.DataArray, b: xr.DataArray) -> xr.DataArray:
    """b with its runs in the order of a's; runs are matched by their labels."""
    ours, theirs = a["run"].values, b["run"].values
    if sorted(ours.tolist()) != sorted(theirs.tolist()):
        raise ValueError(f"both Datasets must have the same runs, got {ours.size} and {theirs.size}; "
                         "choose them with .isel(run=...)")
    return b.sel(run=ours)


def _same_times(a: xr.DataArray, b: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    if b.sizes["time"] < a.sizes["time"]:
        b, a = _same_times(b, a)
        return a, b
    wanted, saved = a["time"].values, b["time"].values
    nearest = np.abs(saved[None, :] - wanted[:, None]).argmin(axis=1)
    apart = np.abs(saved[nearest] - wanted)
    interval = float(np.diff(saved).max()) if saved.size > 1 else 0.0
    allowed = 0.5 * interval + 1e-9 * max(1.0, float(np.abs(wanted).max()))
    if (apart > allowed).any():
        i = int(apart.argmax())
        raise ValueError(f"times do not match: {wanted[i]:g} is {apart[i]:.3g} away from the nearest saved time "
                         f"{saved[nearest[i]]:g} of the other, more than half its saving interval {interval:.3g}")
    return a, b.isel(time=nearest).assign_coords(time=wanted)


class _Quantiles(NamedTuple):
    """The Quantile of each entry of the other dims."""

    dims: tuple[Any, ...]
    entries: dict[tuple[int, ...], Quantile]

    def at(self, index: dict[Any, int]) -> Quantile:
        return self.entries[tuple(index[d] for d in self.dims)]


def _quantiles(measure: xr.DataArray) -> _Quantiles:
    core = "particle" if measure.name == "position" else "r" if "r" in measure.dims else "x"
    dims = tuple(d for d in measure.dims if d != core)
    values = measure.transpose(*dims, core).values
    if core == "particle":
        return _Quantiles(dims, {i: atoms(values[i]) for i in np.ndindex(values.shape[:-1])})
    edges = _cell_edges(measure[core].values)
    return _Quantiles(dims, {i: cells(edges, values[i]) for i in np.ndindex(values.shape[:-1])})


def _cell_edges(centers: Array) -> Array:
    """Edges of equal cells."""
    half = 0.5 * float(centers[-1] - centers[0]) / (centers.size - 1)
    return np.append(centers - half, centers[-1] + half)


def _shell_means(edges: Array, dim: int) -> Array:
    """Mean of |S^(d-1)| r^(d-1) over each cell, which turns a density in space into that of the radius."""
    area = 2.0 * math.pi ** (dim / 2) / math.gamma(dim / 2)
    means: Array = area * np.diff(np.maximum(edges, 0.0)**dim) / (dim * np.diff(edges))
    return means
