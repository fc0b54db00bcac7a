"""The entropy of particles, estimated, and with it their free energy F_beta beside that of the density.

Ent = int rho log rho is no function of an empirical measure, so it is estimated from distances to neighbours: spacings on
the line, k nearest neighbours above. What the estimators assume is independent points; what they cost is said below.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import xarray as xr
from scipy.spatial import cKDTree
from scipy.special import digamma

from meanfield import _checks
from meanfield._checks import Array
from meanfield.diagnostics.energy import hamiltonian
from meanfield.problem import Problem

__all__ = ["particle_entropy", "particle_free_energy"]


def particle_entropy(positions: Any, *, neighbours: int | None = None, period: float | None = None) -> Any:
    """Estimate of Ent = int rho log rho of the law of N particles, for each configuration.

    On the line, with sorted x and m = ``neighbours``: -mean_i log(x_(i+m) - x_(i)) + psi(m) - psi(N + 1), which is
    unbiased for independent uniform points. Above: -d mean_k log R_k - log c_d + psi(m) - psi(N), R_k the distance to the
    m-th neighbour, c_d the volume of the unit ball.

    ``neighbours`` defaults to about sqrt(N) / 2. Bias, to be weighed against F differences: of order (m / N)^2 where the
    density is smooth and (m / N) from walls (a neighbourhood that sticks out makes the density look lower), of order 1 / m
    from repulsion, which evens out the closest spacings. The standard deviation is about 1 / sqrt(N).

    ``positions`` over (..., particle, component) gives an array (...), a DataArray or a Dataset of ``simulate`` a
    DataArray; ``period`` is that of a Torus. Raises ValueError for fewer than two particles, and where m neighbours
    coincide (particles that were projected onto one point of a wall have no density: take the scheme "reflected").

    Source: Vasicek (1976); Kozachenko and Leonenko (1987).
    """
    if isinstance(positions, xr.Dataset):
        positions = positions["position"]
    if isinstance(positions, xr.DataArray):
        labelled = positions.transpose(..., "particle", "component")
        values = particle_entropy(labelled.values, neighbours=neighbours, period=period)
        dims = labelled.dims[:-2]
        return xr.DataArray(values, dims=dims, name="entropy", coords={d: labelled[d] for d in dims if d in labelled.coords},
                            attrs={"long_name": "estimated entropy int rho log rho", "units": "1"})
    x = _checks.finite_array("positions", positions)
    if x.ndim < 2 or x.shape[-2] < 2:
        raise ValueError(f"positions must have shape (..., particle, component) with two particles or more, got {x.shape}")
    n = x.shape[-2]
    m = max(1, round(0.5 * math.sqrt(n))) if neighbours is None else _checks.count("neighbours", neighbours)
    if m >= n:
        raise ValueError(f"neighbours must be below the number of particles {n}, got {m}")
    flat = x.reshape(-1, *x.shape[-2:])
    single = x.shape[-1] == 1 and period is None
    values = np.array([_spacings(c[:, 0], m) if single else _neighbours(c, m, period) for c in flat])
    return float(values[0]) if x.ndim == 2 else values.reshape(x.shape[:-2])


def _spacings(x: Array, m: int) -> float:
    order = np.sort(x)
    gaps = order[m:] - order[:-m]
    _refuse_coincident(gaps, m)
    return float(-np.mean(np.log(gaps)) + digamma(m) - digamma(x.size + 1))


def _neighbours(x: Array, m: int, period: float | None) -> float:
    n, dim = x.shape
    tree = cKDTree(np.mod(x, period) if period else x, boxsize=period)
    distance = tree.query(tree.data, k=[m + 1])[0][:, 0]
    _refuse_coincident(distance, m)
    ball = 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim + 1)
    return float(-dim * np.mean(np.log(distance)) - ball + digamma(m) - digamma(n))


def _refuse_coincident(gaps: Array, m: int) -> None:
    if not gaps.all():
        raise ValueError(f"{m + 1} particles coincide and have no density; use the scheme \"reflected\", or more neighbours "
                         f"than particles that coincide")


def particle_free_energy(problem: Problem, run: xr.Dataset, *, neighbours: int | None = None) -> xr.DataArray:
    """F_beta of particles: H_N + particle_entropy / beta over (run, time), to be drawn beside ``free_energy`` of a density.

    H_N (without the pairs of a particle with itself) estimates E with a bias of order 1 / N. Raises ValueError as
    ``particle_entropy`` does.
    """
    entropy = particle_entropy(run, neighbours=neighbours, period=problem.domain.period)
    total: xr.DataArray = hamiltonian(problem, run) + problem.temperature * entropy
    return total.rename("free_energy").assign_attrs(long_name="free energy of particles, entropy estimated", units="energy")
