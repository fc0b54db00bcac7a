"""Radial densities in a ball of any dimension: cells are shells, and the kernel is averaged over spheres first.

Everything is exact up to round-off but the cells themselves: the mean of g over the directions (``sphere_average``, with
closed forms for Riesz kernels), then its double averages over pairs of shells with the weights r^(dim-1).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from meanfield._checks import Array
from meanfield.domain import Ball
from meanfield.interactions import Interaction
from meanfield.interactions.averages import gauss, graded
from meanfield.mesh.base import Grid, Mesh, cell_potential
from meanfield.problem import Problem

__all__ = ["radial", "shell_averages"]

_NEAR = 8  # shells apart from which a plain Gauss rule is exact to round-off
_DIRECTIONS = 8  # in which V is compared


def radial(problem: Problem, grid: Grid) -> Mesh:
    """A Ball, or a ball-shaped window [0, R] of FreeSpace, for radial V, g and densities.

    Raises ValueError for a potential or an interaction that is not radial.
    """
    domain, dim = problem.domain, problem.dim
    (m,) = grid.shape(1)
    low, high = (0.0, domain.radius) if isinstance(domain, Ball) else grid.sides(1)[0]
    if low != 0.0:
        raise ValueError(f"the window of a radial grid must begin at r = 0, got {low:g}")
    for kernel in problem.interactions:
        if not kernel.radial:
            raise ValueError(f"a radial grid needs an interaction of |x - y| alone, got {kernel!r}")
    width = high / m
    r = width * (np.arange(m, dtype=np.float64) + 0.5)
    edges = np.append(r - 0.5 * width, high)
    edges[0] = 0.0
    sphere = 2.0 * math.pi ** (dim / 2) / math.gamma(dim / 2)
    volumes = sphere / dim * np.diff(edges**dim)
    conductance = sphere * edges[1:] ** (dim - 1) / width
    conductance[-1] = 0.0
    averages = [shell_averages(kernel, dim, edges) for kernel in problem.interactions]
    convolution = None
    if averages:
        weights = sum(averages[1:], averages[0]) * volumes

        def convolution(rho: Array) -> Array:
            product: Array = weights @ rho
            return product

    return Mesh(problem, ("r",), (r,), (edges,), volumes, (conductance,), _radial_potential(problem, r), convolution,
                weight=lambda places: places ** (dim - 1))


def _radial_potential(problem: Problem, r: Array) -> Array:
    """V at the radii; refused where it differs between directions."""
    direction = np.random.default_rng(0).standard_normal((_DIRECTIONS, problem.dim))
    direction[0] = np.eye(problem.dim)[0]
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    values = cell_potential(problem, direction[:, None] * r[:, None])
    spread = np.ptp(values, axis=0)
    worst = int(np.argmax(spread))
    if spread[worst] > 1e-9 * (1.0 + np.abs(values).max()):
        hint = "; Grid(cells) without radial=True solves on the disc" if problem.dim == 2 else ""
        raise ValueError(f"a radial grid needs a potential of |x| alone, got values that differ by {spread[worst]:.3g} "
                         f"at |x| = {r[worst]:.4g}{hint}")
    first: Array = values[0]
    return first


def shell_averages(kernel: Interaction, dim: int, edges: Array) -> Array:
    """The double averages of g over the shells between ``edges`` (equal widths, from 0), a symmetric matrix."""
    m = len(edges) - 1
    width = edges[-1] / m
    averages = np.empty((m, m))
    # far pairs: a product rule, row by row, the upper triangle
    node, share = gauss(4)
    place = (edges[:-1, None] + width * node).ravel()
    weight = place ** (dim - 1) * np.tile(share, m)
    weight = (weight.reshape(m, -1) / weight.reshape(m, -1).sum(axis=1, keepdims=True)).ravel()
    for i in range(m - _NEAR):
        r = place[len(node) * i:len(node) * (i + 1), None]
        others = slice(len(node) * (i + _NEAR), None)
        mean = kernel.sphere_average(r, place[others] - r, dim) * weight[others]
        averages[i, i + _NEAR:] = weight[len(node) * i:len(node) * (i + 1)] @ mean.reshape(len(node), -1, len(node)).sum(2)
    for k in range(min(_NEAR, m)):
        # the first shells have radii as small as the gap
        for first, last, rule in ((0, 1, graded(10, 0.25, 10)), (1, 4, gauss(10)), (4, m, gauss(5))):
            rows = np.arange(first, min(last, m - k))
            if rows.size:
                averages[rows, rows + k] = _near(kernel, dim, width, rows, k, rule)
    upper = np.triu_indices(m, 1)
    averages[upper[::-1]] = averages[upper]
    return averages


def _near(kernel: Interaction, dim: int, width: float, rows: NDArray[np.int_], k: int, rule: tuple[Array, Array]) -> Array:
    """Averages over shells i and i + k: first along r at a fixed gap r' - r = h t, then over t in [k - 1, k + 1]."""
    node, share = rule
    total, mass = np.zeros(len(rows)), np.zeros(len(rows))
    # t < k and t > k; for k = 0 one of the two mirror images
    for below in (True, False) if k else (False,):
        t, t_share = _gaps(kernel, dim) if k - below == 0 else gauss(12)
        t = t + (k - below)
        length = 1.0 - np.abs(t - k)
        start = np.maximum(k - t, 0.0)
        r = rows[:, None, None] + start[:, None] + length[:, None] * node  # (row, gap, node), in widths
        weight = (r * (r + t[:, None])) ** (dim - 1) * (t_share * length)[:, None] * share
        total += (weight * kernel.sphere_average(width * r, np.broadcast_to(width * t[:, None], r.shape), dim)).sum((1, 2))
        mass += weight.sum((1, 2))
    return total / mass


def _gaps(kernel: Interaction, dim: int) -> tuple[Array, Array]:
    """A rule for gaps in [0, 1] in powers of its nodes, which flatten log(gap), gap log(gap) and gap^(dim-1-s)."""
    law = kernel.law
    power = 5.0 / min(1.0, dim - law.s) if law is not None and not law.softening else 5.0
    node, share = gauss(min(max(24, math.ceil(1.5 * power)), 200))
    return np.maximum(node**power, 1e-250), share * power * node ** (power - 1.0)
