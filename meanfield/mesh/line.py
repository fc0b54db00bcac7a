"""An interval as a mesh of equal cells."""

from __future__ import annotations

import numpy as np

from meanfield.domain import Ball, Box
from meanfield.mesh.base import Grid, Mesh, cell_potential
from meanfield.mesh.convolution import toeplitz
from meanfield.problem import Problem

__all__ = ["interval"]


def interval(problem: Problem, grid: Grid) -> Mesh:
    """An Interval (a Box or a Ball of dimension one)."""
    domain = problem.domain
    assert isinstance(domain, (Box, Ball))
    low, high = (domain.low[0], domain.high[0]) if isinstance(domain, Box) else (-domain.radius, domain.radius)
    m = grid.cells
    width = (high - low) / m
    x = low + width * (np.arange(m, dtype=np.float64) + 0.5)
    conductance = np.full(m, 1.0 / width)
    conductance[-1] = 0.0
    averages = sum((np.asarray(k.cell_averages(width, m), dtype=np.float64) for k in problem.interactions), np.zeros(m))
    return Mesh(problem, ("x",), (x,), (np.append(x - 0.5 * width, high),), np.full(m, width), (conductance,),
                cell_potential(problem, x[:, None]), toeplitz(averages * width) if problem.interactions else None)
