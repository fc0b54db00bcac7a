"""Histograms that lose nothing: every particle is in a cell, or there is an error.

For plots and comparisons of ``simulate`` with densities. A projected cloud has particles exactly on the walls, which a
half-open last bin would drop and a density divided by the counted particles would hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array

__all__ = ["Histogram", "density_histogram"]


class Histogram(NamedTuple):
    """Counts (or sums of weights) in each cell, and the density: counts over their total and the cell's volume."""

    counts: Array
    density: Array


def density_histogram(positions: Any, edges: Array | Sequence[Array], *, weights: Array | None = None) -> Histogram:
    """Counts of particles in the cells of one or two components, and their density, which integrates to 1.

    Args:
        positions: (..., particle, component) with one or two components, an array or a DataArray; the leading axes (run,
            time) stay.
        edges: increasing edges (cell + 1,) for one component; a pair of them for two.
        weights: (..., particle), not negative; default 1 each.

    Cells are [left, right), the last is [left, right]: both ends count, and counts add up to the number of particles.
    Returns ``counts`` and ``density`` over (..., cell) or (..., cell, cell). A mesh that covers a disc is a rectangle
    around it: cells cut by the circle are divided by their whole area.

    Raises ValueError for a particle outside the edges, however little, and for edges that do not increase.
    """
    if isinstance(positions, xr.DataArray):
        positions = positions.transpose(..., "particle", "component").values
    x = _checks.finite_array("positions", positions)
    if x.ndim < 2 or x.shape[-1] not in (1, 2) or x.shape[-2] < 1:
        raise ValueError(f"positions must have shape (..., particle, component) with 1 or 2 components, got {x.shape}")
    given = [edges] if x.shape[-1] == 1 else list(edges)
    if len(given) != x.shape[-1]:
        raise ValueError(f"edges must be a pair of arrays for 2 components, got {len(given)} of them")
    walls = [_checks.finite_array("edges", e, ndim=1) for e in given]
    for e in walls:
        if e.size < 2 or (np.diff(e) <= 0).any():
            raise ValueError(f"edges must be two or more increasing numbers, got {e.tolist()}")
    share = np.ones(x.shape[:-1]) if weights is None else _checks.finite_array("weights", weights)
    if share.shape != x.shape[:-1] or (share < 0).any() or not (share.sum(axis=-1) > 0).all():
        raise ValueError(f"weights must have shape {x.shape[:-1]}, be non-negative and not all zero, got {share.shape}")
    cells = [_cell(x[..., a], e) for a, e in enumerate(walls)]
    shape = tuple(e.size - 1 for e in walls)
    flat = np.ravel_multi_index(tuple(cells), shape).reshape(-1, x.shape[-2])
    size = int(np.prod(shape))
    groups = np.arange(len(flat))[:, None] * size + flat
    counts: Any = np.bincount(groups.ravel(), share.ravel(), len(flat) * size).reshape(*x.shape[:-2], *shape)
    volume = np.diff(walls[0])
    if len(walls) == 2:
        volume = volume[:, None] * np.diff(walls[1])
    total = share.sum(axis=-1).reshape(*x.shape[:-2], *[1] * len(shape))
    return Histogram(counts, counts / total / volume)


def _cell(x: Array, edges: Array) -> Any:
    """Index of each number's cell."""
    outside = (x < edges[0]) | (x > edges[-1])
    if outside.any():
        where = tuple(int(i) for i in np.argwhere(outside)[0])
        raise ValueError(f"every particle must lie within the edges [{float(edges[0])!r}, {float(edges[-1])!r}], got "
                         f"{float(x[where])!r} for particle {where[-1]}; widen the edges")
    return np.minimum(np.searchsorted(edges, x, side="right") - 1, edges.size - 2)
