"""Energies: H_N of particles and F_beta of densities, one formula each (method.md 5.1 and 7.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield._numba import with_threads
from meanfield.mesh import Grid, Mesh, mesh_of
from meanfield.pairforces import add_energies
from meanfield.problem import Problem

__all__ = ["free_energy", "hamiltonian"]


def hamiltonian(problem: Problem, positions: Any) -> Any:
    """H_N = mean_k V(x_k) + (1 / (2 N (N - 1))) sum_{k != l} g(x_k - x_l).

    ``positions`` over (..., particle, component) gives an array (...) (a float for one configuration); a DataArray, or a
    Dataset of ``simulate``, gives a DataArray. With one particle the pair term is 0; coincident particles under a
    singular kernel (s >= 0) give +inf. On a Torus pairs are taken at their minimum image. Raises ValueError for a wrong
    shape or values that are not finite.
    """
    if isinstance(positions, xr.Dataset):
        positions = positions["position"]
    if isinstance(positions, xr.DataArray):
        labelled = positions.transpose(..., "particle", "component")
        dims = labelled.dims[:-2]
        return xr.DataArray(hamiltonian(problem, labelled.values), dims=dims, name="hamiltonian",
                            coords={d: labelled[d] for d in dims if d in labelled.coords},
                            attrs={"long_name": "Hamiltonian H_N", "units": "energy"})
    x = _checks.positions("positions", positions, problem.dim)
    n = x.shape[-2]
    flat = np.ascontiguousarray(x.reshape(-1, n, problem.dim))
    total = problem.potential_value(flat).mean(axis=-1)
    if n > 1:
        sums, rows = np.zeros(len(flat)), np.empty((len(flat), n))
        with with_threads(), np.errstate(divide="ignore"):
            for term in problem.interactions:
                add_energies(term, flat, problem.domain.period, rows, sums)
        total = total + sums / (n * (n - 1))
    return float(total[0]) if x.ndim == 2 else total.reshape(x.shape[:-2])


def free_energy(problem: Problem, density: Any) -> Any:
    """F_beta(rho) = int V rho + (1/2) iint g rho rho + (1 / beta) int rho log rho of cell averages.

    ``density`` is an array (..., cell) or, in the plane, (..., cell, cell) on the equal cells that ``solve`` uses for the
    problem's domain (a float for one density), or a DataArray over x, (x, y) or r, or a Dataset of ``solve`` or ``gibbs``.
    Shells of a disc need their coordinate r, and FreeSpace its coordinates, which say where the window is. Second order in
    the cell width. Raises ValueError for cells that are not those of the domain, for negative or non-finite values or a
    mass further from 1 than 1e-3; the density is taken as it is, not normalised.
    """
    if isinstance(density, xr.Dataset):
        density = density["density"]
    if isinstance(density, xr.DataArray):
        names = ("r",) if "r" in density.dims else ("x", "y")[:problem.dim]
        labelled = density.transpose(..., *names)
        mesh = _mesh_of_labels(problem, labelled, names)
        dims = labelled.dims[:-len(names)]
        return xr.DataArray(_free_energies(mesh, labelled.values), dims=dims, name="free_energy",
                            coords={d: labelled[d] for d in dims if d in labelled.coords},
                            attrs={"long_name": "free energy F_beta", "units": "energy"})
    rho: Array = _checks.finite_array("density", density)
    if not problem.domain.bounded:
        raise ValueError("density must be a DataArray on FreeSpace, whose coordinates say where its window is, got an array")
    axes = 2 if problem.dim == 2 else 1
    if rho.ndim < axes or min(rho.shape[-axes:]) < 2:
        raise ValueError(f"density must have shape (..., {', '.join(['cell'] * axes)}) with at least 2 cells"
                         f"{' a side' if axes > 1 else ''}, got {rho.shape}")
    values = _free_energies(mesh_of(problem, Grid(rho.shape[-axes:])), rho)
    return float(values) if rho.ndim == axes else values


def _free_energies(mesh: Mesh, rho: Array) -> Array:
    """F_beta over the leading axes."""
    over = rho.shape[:rho.ndim - len(mesh.shape)]
    rows = rho.reshape(-1, *mesh.shape)
    for row in rows:
        mesh.density(row)  # refuses what is no density
    return np.array([mesh.energies(row).free_energy for row in rows]).reshape(over)


def _mesh_of_labels(problem: Problem, labelled: xr.DataArray, names: tuple[str, ...]) -> Mesh:
    """The mesh whose cells the coordinates are; refused where they are not equal cells of the domain."""
    places = [labelled[n].values if n in labelled.coords else None for n in names]
    window = None
    if not problem.domain.bounded:
        if any(p is None or p.size < 2 for p in places):
            raise ValueError(f"density must have coordinates {', '.join(names)} on FreeSpace: they say where its window is")
        halves = [0.5 * float(p[1] - p[0]) for p in places if p is not None]
        window = tuple((0.0 if n == "r" else float(p[0]) - h, float(p[-1]) + h)
                       for n, p, h in zip(names, places, halves, strict=True) if p is not None)
    mesh = mesh_of(problem, Grid(labelled.shape[-len(names):], window=window, radial=names == ("r",)))
    for name, place, center in zip(names, places, mesh.centers, strict=True):
        if place is not None and not np.allclose(place, center, rtol=0, atol=1e-6 * (center[-1] - center[0])):
            raise ValueError(f"density must be on equal cells of {problem.domain!r}, in order, got {name} from "
                             f"{float(place[0]):g} to {float(place[-1]):g}")
    return mesh
