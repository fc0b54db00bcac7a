"""Problems on grids: ``mesh_of(problem, grid)`` chooses the geometry of the domain."""

from __future__ import annotations

from meanfield.domain import Ball, Box
from meanfield.mesh.base import MASS_TOLERANCE, Energies, Grid, Mesh, refuse_unsolvable
from meanfield.mesh.line import interval
from meanfield.problem import Problem

__all__ = ["MASS_TOLERANCE", "Energies", "Grid", "Mesh", "mesh_of"]


def mesh_of(problem: Problem, grid: Grid) -> Mesh:
    """The mesh of a problem.

    Raises ValueError where the problem has no density there: a domain without a mesh, a coupled objective, a kernel with
    infinite energy, a potential that is not finite.
    """
    refuse_unsolvable(problem, grid)
    domain = problem.domain
    if problem.dim == 1 and isinstance(domain, (Box, Ball)):
        return interval(problem, grid)
    raise ValueError(f"densities are solved for on an Interval so far, got {domain!r}")
