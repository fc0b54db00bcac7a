"""``wasserstein``: distances between the package's Datasets, over their other dims (time, run).

On the line and for radii it is exact for any order and size (``transport``); above one dimension it is exact while the
matrix of costs fits (``exact_transport``), and ``sliced_wasserstein`` goes on from there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from meanfield._checks import Array
from meanfield.dataset import VARIABLES
from meanfield.diagnostics.exact_transport import exact_transport
from meanfield.diagnostics.transport import Quantile, atoms, cells, order_of_distance, transport_1d

__all__ = ["dimension", "matched", "measure_of", "over_other_dims", "wasserstein"]

_CORE = ("particle", "component", "x", "y", "r")  # dims of a measure itself


def wasserstein(a: xr.Dataset, b: xr.Dataset, *, order: float = 1) -> xr.DataArray:
    """W_p between the measures of two Datasets of ``simulate``, ``solve`` or ``gibbs``, over their other dims.

    The other dims are ``time`` and ``run``; one that only one side has broadcasts. Two time axes: the shorter is kept
    (``a``'s, if they are equally long), each of its times is matched to the other's nearest, and refused if that is
    further away than half a saving interval. Two run axes are matched by their labels, and refused if those differ.

    Where a density is radial (over r), both sides are the laws of |x|: for two measures that are symmetric under rotations
    this is W_p itself, else a lower bound. Above one dimension an optimal plan is found for each entry: some 10,000 points
    a side are possible (``sliced_wasserstein`` takes any number), and a density on a plane grid is taken as points at its
    cells' centres, which moves W_p by at most half a cell's diagonal.

    Returns a DataArray in units of length, the order p in its attributes. Raises ValueError for Datasets without
    ``position`` or ``density``, different dimensions, and times that do not match, MemoryError for more points than can be
    taken.
    """
    p = order_of_distance(order)
    radial = any("r" in value["density"].dims for value in (a, b) if isinstance(value, xr.Dataset) and "density" in value)
    mu, nu = matched(_measure("a", a, radial), _measure("b", b, radial))
    if dimension(mu) != dimension(nu):
        raise ValueError(f"a and b must have the same dimension, got {dimension(mu)} and {dimension(nu)}")
    if dimension(mu) > 1:
        volumes = [value.get("cell_volume") for value in (a, b)]
        clouds = [_Clouds(measure, volume) for measure, volume in zip((mu, nu), volumes, strict=True)]

        def distance(at: dict[Any, int]) -> float:
            (x, v), (y, w) = (cloud.at(at) for cloud in clouds)
            return exact_transport(x, y, x_weights=v, y_weights=w, order=p)
    else:
        left, right = _quantiles(mu), _quantiles(nu)

        def distance(at: dict[Any, int]) -> float:
            return transport_1d(left.at(at), right.at(at), order=p)

    return over_other_dims(mu, nu, distance, name="wasserstein",
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


def _measure(name: str, value: Any, radial: bool) -> xr.DataArray:
    measure = measure_of(name, value)
    if radial and measure.name == "position":
        length: xr.DataArray = (measure**2).sum("component") ** 0.5
        return length.rename("position")
    if radial:
        if "r" not in measure.dims:
            raise ValueError(f"a density over r is compared with particles or with another one, got {name} over "
                             f"{measure.dims}")
        edges = _cell_edges(measure["r"].values)
        # the density of the radius
        return (measure * xr.DataArray(_shell_means(edges, _radial_dim(value)), dims="r")).rename("density")
    if "component" in measure.dims and measure.sizes["component"] == 1:
        return measure.isel(component=0, drop=True)
    return measure


def dimension(measure: xr.DataArray) -> int:
    """Components of a measure."""
    return int(measure.sizes["component"]) if "component" in measure.dims else 2 if "y" in measure.dims else 1


class _Clouds:
    """Each entry of the other dims as points with weights: particles, or the centres of cells."""

    def __init__(self, measure: xr.DataArray, volume: xr.DataArray | None) -> None:
        self._measure, self._volume = measure, volume

    def at(self, index: dict[Any, int]) -> tuple[Array, Array | None]:
        entry = self._measure.isel({d: i for d, i in index.items() if d in self._measure.dims})
        if entry.name == "position":
            return entry.transpose("particle", "component").values, None
        x, y = np.meshgrid(entry["x"].values, entry["y"].values, indexing="ij")
        rho = entry.transpose("x", "y").values
        if self._volume is None:
            volume: Any = (x[1, 0] - x[0, 0]) * (y[0, 1] - y[0, 0])
        else:
            volume = self._volume.transpose("x", "y").values
        mass, full = rho * volume, rho > 0
        return np.stack([x[full], y[full]], axis=1), mass[full]


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
