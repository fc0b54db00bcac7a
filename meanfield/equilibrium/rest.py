"""``gibbs``: the self-consistent Gibbs density on cells, on panels, and at infinite inverse temperature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield._numba import one_blas_thread
from meanfield.dataset import dataset
from meanfield.equilibrium.newton import TOLERANCE, Linear, State, continued, descend, image, newton, state
from meanfield.equilibrium.obstacle import coldest
from meanfield.equilibrium.panels import Panels, first_panels
from meanfield.interactions import Riesz
from meanfield.mesh import Grid, Mesh, mesh_of
from meanfield.mesh.base import refuse_unsolvable
from meanfield.problem import Problem

__all__ = ["accepted_rest", "gibbs", "image_of", "refuse_collapse", "start"]

_ORDER, _LOWER_ORDER = 12, 9  # nodes of a panel, and of the solution that the errors are estimated from
_RESOLVED = 1e-10  # largest last coefficient of a panel's density, as a share of the largest density
_MOST_PANELS = 120


@one_blas_thread()
def gibbs(problem: Problem, grid: Grid, *, method: str = "cells",
          initial: str | Array | Callable[..., Array] | None = None) -> xr.Dataset:
    """The self-consistent Gibbs density rho = exp(-beta (V + g * rho)) / Z, a rest state of ``simulate`` and ``solve``.

    Args:
        problem: with attraction there can be several rest states; what is returned is the one continued from high
            temperature, which may be a saddle of F_beta (``stationary_states`` finds the others and tells them apart).
        grid: cells of the density.
        method: "cells": the fixed point of the cell averages, which is where ``solve`` comes to rest; Newton's method, to a
            residual of 1e-12 or the round-off of beta U. Its free energy converges with the square of the cell width (a
            logarithm more where the density bends at a wall). "panels": the equation itself on an Interval (or on a Ball
            with its Coulomb kernel), by product integration on Gauss-Legendre panels graded towards the walls, from which
            the cell averages are exact integrals.
        initial: a density ("uniform", a function of x, cell averages) to descend from instead, for cells at finite beta.

    Returns a Dataset with ``density`` over the cells and the scalars ``free_energy``, ``energy``, ``entropy`` and
    ``residual`` (largest |log rho - log of its image| under the fixed-point map). With panels also ``wall_density`` over
    ``wall``, ``node_place``, ``node_density`` and ``node_weight`` over ``node`` (for integrals of one's own: the sum of
    node_weight node_density f(node_place) is int f rho, with all digits) and the estimated errors ``free_energy_error``,
    ``density_error`` and ``wall_error``, differences from the solution with three nodes less a panel.

    At inverse_temperature inf the density minimises the energy (method "cells"): U = V + g * rho is constant where there is
    mass and no less elsewhere, and ``residual`` is the largest violation of that. Mass that piles up at a wall is in the
    last cell. The energy must be strictly convex.

    Raises ValueError where the problem has no density on the grid, for an energy that is not strictly convex at
    inverse_temperature inf, and for panels on a domain or a kernel that they cannot do; ArithmeticError where the density
    collapses into a cell (a singular attraction below its critical temperature: there is no rest state), or no rest state is
    found.

    Source: method.md (7.5), 7.3; Frostman's conditions at infinite inverse temperature.
    """
    _checks.choice("method", method, ("cells", "panels"))
    settings = {"problem": problem, "cells": getattr(grid, "cells", grid), "method": method}
    if method == "panels":
        if initial is not None:
            raise ValueError("initial is for method='cells', got it with method='panels'")
        return _on_panels(problem, grid, settings)
    mesh = mesh_of(problem, grid)
    beta = problem.inverse_temperature
    linear = Linear(mesh)
    if math.isinf(beta):
        cold = coldest(linear)
        rho, residual = cold.density, cold.residual
    else:
        now = accepted_rest(linear, initial)
        rho, residual = now.density, now.residual
    parts = mesh.energies(rho)
    result = dataset("gibbs", {"density": rho, "cell_volume": mesh.volumes, "free_energy": parts.free_energy,
                               "energy": parts.energy, "entropy": parts.entropy, "residual": residual},
                     dict(zip(mesh.names, mesh.centers, strict=True)), settings=settings)
    result.attrs.update(mesh.recorded([rho]))
    return result


def start(mesh: Mesh, beta: float, initial: str | Array | Callable[..., Array]) -> State:
    """The state of an initial density; empty cells hold next to nothing."""
    rho, _ = mesh.density(initial)
    return state(mesh, beta, np.log(np.maximum(rho, 1e-30 * rho.max())))


def image_of(mesh: Mesh, rho: Array) -> State:
    """The state of a density, the logarithms of cells that underflow taken from the fixed-point map."""
    beta = mesh.problem.inverse_temperature
    mapped = image(mesh, beta, mesh.convolve(rho))
    return state(mesh, beta, np.where(rho > 1e-290, np.log(np.maximum(rho, 1e-290)), mapped.log_density))


def accepted_rest(linear: Linear, initial: str | Array | Callable[..., Array] | None = None) -> State:
    """The rest state that ``gibbs`` returns, or its ArithmeticError."""
    mesh, problem = linear.mesh, linear.mesh.problem
    beta = problem.inverse_temperature
    now = _at_rest(linear, beta) if initial is None else descend(linear, start(mesh, beta, initial))
    refuse_collapse(problem, mesh.volumes * now.density)
    _accept(now)
    return now


def _at_rest(linear: Linear, beta: float) -> State:
    """The state continued from high temperature; where Newton's method loses it, a minimiser of F_beta below."""
    now = continued(linear, beta)
    if now.residual > 10 * max(TOLERANCE, now.roundoff):
        now = descend(linear, state(linear.mesh, beta, now.log_density))
    return now


def _accept(now: State) -> None:
    if not now.residual <= 100 * max(TOLERANCE, now.roundoff):
        raise ArithmeticError(f"no rest state was found: the residual stopped at {now.residual:.3g} at inverse temperature "
                              f"{now.beta:g}; try other cells, a smaller inverse_temperature or an initial density")


def refuse_collapse(problem: Problem, masses: Array) -> None:
    """ArithmeticError where a singular attraction has drawn half of the mass into so few cells as are neighbours."""
    attractive = [t for t in problem.interactions if isinstance(t, Riesz) and not t.softening and t.s >= 0 > t.coupling]
    if not attractive:
        return
    few = 3**masses.ndim
    share = float(np.sort(masses.ravel())[-few:].sum())
    if share < 0.5 or masses.size < 20 * few:  # a coarse grid cannot tell
        return
    when = "always possible for s > 0"
    if all(t.s == 0 for t in attractive):
        critical = 2 * problem.dim / -sum(t.coupling for t in attractive)
        when = f"for inverse_temperature above 2 dim / strength = {critical:.4g}"
    raise ArithmeticError(f"there is no rest state: the attraction draws {share:.2g} of the mass into {few} cells "
                          f"(collapse, {when}); lower the inverse_temperature, now {problem.inverse_temperature:g}, or "
                          "soften the kernel")


def _on_panels(problem: Problem, grid: Grid, settings: dict[str, Any]) -> xr.Dataset:
    refuse_unsolvable(problem, grid)
    beta = problem.inverse_temperature
    if math.isinf(beta):
        raise ValueError("method='panels' needs a finite inverse_temperature, got inf; take method='cells'")
    panels, fine = _refined(problem, beta)
    coarse_panels = panels.of_order(_LOWER_ORDER)
    coarse = _solved(coarse_panels, beta, panels, fine)
    low, high = panels.span
    edges = np.linspace(low, high, grid.shape(1)[0] + 1)
    densities = [_cells(p, s, edges) for p, s in ((panels, fine), (coarse_panels, coarse))]
    volumes = _volumes(panels, edges)
    refuse_collapse(problem, densities[0] * volumes)
    ends = [1] if panels.radial else [0, 1]
    walls = [_at_walls(p, s) for p, s in ((panels, fine), (coarse_panels, coarse))]
    wall_error = np.abs(walls[0] - walls[1])
    # next to a wall that the panels do not resolve (s near 1) that says too little
    if panels.unresolved(fine.density, _RESOLVED)[panels.wall_panels(ends)].any():
        polynomial = panels.evaluate(fine.density, np.array(ends), np.zeros(len(ends)))
        wall_error = np.maximum(wall_error, np.abs(walls[0] - polynomial))
    mesh = panels.mesh[0]
    order = np.argsort(mesh.centers[0])
    parts = mesh.energies(fine.density, fine.interaction)
    return dataset("gibbs", {
        "density": densities[0], "cell_volume": volumes, "free_energy": parts.free_energy, "energy": parts.energy,
        "entropy": parts.entropy, "residual": fine.residual, "wall_density": walls[0], "node_density": fine.density[order],
        "node_weight": mesh.volumes[order], "node_place": mesh.centers[0][order],
        "free_energy_error": abs(fine.free_energy - coarse.free_energy),
        "density_error": float(np.abs(densities[0] - densities[1]).max()), "wall_error": wall_error,
    }, {mesh.names[0]: 0.5 * (edges[1:] + edges[:-1]), "node": np.arange(order.size),
        "wall": np.array([low, high])[ends]}, settings=settings)


def _refined(problem: Problem, beta: float) -> tuple[Panels, State]:
    panels = first_panels(problem, _ORDER)
    mesh, matrix = panels.mesh
    now = _at_rest(Linear(mesh, matrix), beta)
    while True:
        flags = panels.unresolved(now.density, _RESOLVED)
        if not flags.any() or panels.side.size > _MOST_PANELS:
            _accept(now)
            return panels, now
        finer = panels.refined(flags)
        panels, now = finer, _solved(finer, beta, panels, now)


def _solved(panels: Panels, beta: float, known: Panels, guess: State) -> State:
    mesh, matrix = panels.mesh
    side, t, _ = panels.nodes
    linear = Linear(mesh, matrix)
    now = newton(linear, state(mesh, beta, known.evaluate(guess.log_density, side, t)))
    return now if now.residual <= 100 * max(TOLERANCE, now.roundoff) else _at_rest(linear, beta)


def _cells(panels: Panels, now: State, edges: Array) -> Array:
    """Cell averages: integrals of the polynomials."""
    side, t, _ = panels.nodes
    weighted = now.density * panels.weight(panels.place(side, t))
    volumes = _volumes(panels, edges)
    averages = np.maximum(np.diff(panels.cumulative(weighted, edges)), 0.0) / volumes
    result: Array = averages / np.sum(averages * volumes)
    return result


def _at_walls(panels: Panels, now: State) -> Array:
    """The density at the walls from its own equation: an integral is less in error than the polynomial's end."""
    mesh = panels.mesh[0]
    problem, mass = panels.problem, mesh.volumes * now.density
    places = np.array(panels.span)[[1] if panels.radial else [0, 1]]
    points = np.zeros((places.size, problem.dim))
    points[:, 0] = places
    drift = problem.potential_value(points)
    for term in problem.interactions:
        drift = drift + panels.at_walls(term.value) @ now.density
    log_z = float(np.sum(mass * (now.log_density + now.beta * (mesh.potential + now.interaction))))
    return np.asarray(np.exp(log_z - now.beta * drift))


def _volumes(panels: Panels, edges: Array) -> Array:
    d = panels.problem.dim
    return np.diff(edges) if not panels.radial else panels.weight(np.ones(1)) / d * np.diff(edges**d)
