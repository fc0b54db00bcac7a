"""Energies: H_N of particles and F_beta of densities, one formula each (method.md 5.1 and 7.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield._numba import with_threads
from meanfield.mesh import Grid, mesh_of
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

    ``density`` is an array (..., cell) on equal cells of the problem's interval (a float for one density), or a
    DataArray over x, or a Dataset of ``solve`` or ``gibbs``. Second order in the cell width. Raises ValueError for
    negative or non-finite values or a mass further from 1 than 1e-3; the density is taken as it is, not normalised.
    """
    if isinstance(density, xr.Dataset):
        density = density["density"]
    if isinstance(density, xr.DataArray):
        labelled = density.transpose(..., "x")
        if "x" in labelled.coords and labelled.sizes["x"] > 1:
            x = mesh_of(problem, Grid(labelled.sizes["x"])).centers[0]
            if not np.allclose(labelled["x"].values, x, rtol=0, atol=1e-6 * (x[-1] - x[0])):
                raise ValueError(f"density must be on equal cells of {problem.domain!r}, in order, got x from "
                                 f"{float(labelled['x'][0]):g} to {float(labelled['x'][-1]):g}")
        dims = labelled.dims[:-1]
        return xr.DataArray(free_energy(problem, labelled.values), dims=dims, name="free_energy",
                            coords={d: labelled[d] for d in dims if d in labelled.coords},
                            attrs={"long_name": "free energy F_beta", "units": "energy"})
    rho: Array = _checks.finite_array("density", density)
    if rho.ndim < 1 or rho.shape[-1] < 2:
        raise ValueError(f"density must have shape (..., cell) with at least 2 cells, got {rho.shape}")
    mesh = mesh_of(problem, Grid(rho.shape[-1]))
    rows = rho.reshape(-1, *mesh.shape)
    for row in rows:
        mesh.density(row)  # refuses what is no density
    values = np.array([mesh.energies(row).free_energy for row in rows])
    return float(values[0]) if rho.ndim == 1 else values.reshape(rho.shape[:-1])
