"""Problems on grids: ``mesh_of(problem, grid)`` chooses the geometry of the domain.

=====================================  =========================================================================
Interval, Box of dimension 2           equal cells, ``cartesian``
Torus of dimension 1 or 2              the same, periodic
FreeSpace of dimension 1 or 2          the same, on ``Grid(cells, window=...)``
Ball of dimension 2                    cut cells of its square, ``disc``; shells with ``Grid(cells, radial=True)``
Ball of dimension 3 and above          shells, ``radial``: densities of |x|
=====================================  =========================================================================

FreeSpace too may be taken in shells up to a radius R: ``Grid(cells, radial=True, window=(0, R))``.
"""

from __future__ import annotations

from meanfield.domain import Ball, Box, FreeSpace, Torus
from meanfield.mesh.base import MASS_TOLERANCE, TRUNCATION_TOLERANCE, Energies, Grid, Mesh, refuse_unsolvable
from meanfield.mesh.cartesian import cartesian
from meanfield.mesh.disc import disc
from meanfield.mesh.radial import radial
from meanfield.problem import Problem

__all__ = ["MASS_TOLERANCE", "TRUNCATION_TOLERANCE", "Energies", "Grid", "Mesh", "mesh_of"]


def mesh_of(problem: Problem, grid: Grid) -> Mesh:
    """The mesh of a problem.

    Raises ValueError where the problem has no density there: a domain without a mesh, a coupled objective, a kernel with
    infinite energy, a potential that is not finite or, for shells, not radial; FreeSpace without a window.
    """
    refuse_unsolvable(problem, grid)
    domain = problem.domain
    if isinstance(domain, (Ball, FreeSpace)) and problem.dim > 1 and (grid.radial or problem.dim > 2):
        return radial(problem, grid)
    if grid.radial:
        raise ValueError(f"a radial grid needs a Ball or FreeSpace of dimension 2 or more, got {domain!r}")
    if isinstance(domain, Ball) and problem.dim == 2:
        return disc(problem, grid)
    if isinstance(domain, (Box, Ball, Torus, FreeSpace)) and problem.dim <= 2:
        return cartesian(problem, grid)
    raise ValueError("densities are solved for on an Interval, a Box, Torus or FreeSpace of dimension up to 2, or a Ball, "
                     f"got {domain!r}")
