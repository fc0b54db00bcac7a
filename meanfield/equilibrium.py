"""``gibbs``: the self-consistent Gibbs density, a rest state of the particles and of the density.

    rho = exp(-beta (V + g * rho)) / Z     (method.md 7.5),

by Newton's method on log rho with the convolution by FFT and GMRES inside, warmed up from high temperature. For repulsive
kernels F_beta is strictly convex and this is its only minimiser. Where the kernel attracts there can be several rest states,
or none of least energy (a singular attraction may collapse into one cell): what is returned is the one continued from high
temperature, which may be a saddle of F_beta; compare with ``solve``.
"""

from __future__ import annotations

import math

import numpy as np
import xarray as xr
from scipy.sparse.linalg import LinearOperator, gmres

from meanfield._checks import Array
from meanfield.dataset import dataset
from meanfield.mesh import Grid, Mesh, mesh_of
from meanfield.problem import Problem

__all__ = ["gibbs"]

_TOLERANCE = 1e-12
_LARGEST_STEP = 3.0  # of log rho in one Newton step; beyond, the linearisation of exp means nothing


def gibbs(problem: Problem, grid: Grid) -> xr.Dataset:
    """The self-consistent Gibbs density on an interval.

    Returns a Dataset with ``density`` over x and the scalars ``free_energy``, ``energy``, ``entropy`` and ``residual``
    (largest |log rho - log of its image| under the fixed-point map).

    The free energy converges with the square of the cell width (a logarithm more where the density bends at a wall).

    Raises ValueError for an infinite inverse temperature and where the problem has no density on a line,
    ArithmeticError if the iteration does not converge.

    Source: method.md (7.5), 7.3.
    """
    mesh = mesh_of(problem, grid)
    beta = problem.inverse_temperature
    if math.isinf(beta):
        raise ValueError("gibbs needs a finite inverse_temperature, got inf; the gradient flow comes to rest under solve")
    # continuation: from where log rho changes by about 1, doubling beta
    flat = mesh.flat()
    inside = mesh.volumes > 0
    span = float(np.ptp(mesh.potential[inside])) + float(np.abs(mesh.convolve(flat)).max())
    stages = max(0, math.ceil(math.log2(max(beta * span, 1.0) / 4.0)))
    log_rho = np.log(np.where(inside, flat, 1.0))
    for stage in range(stages, -1, -1):
        log_rho, residual = _newton(mesh, beta / 2.0**stage, log_rho, _TOLERANCE if stage == 0 else 1e-3)
    rho = np.where(inside, np.exp(log_rho), 0.0)
    rho /= mesh.mass(rho)
    parts = mesh.energies(rho)
    result = dataset("gibbs", {"density": rho, "free_energy": parts.free_energy, "energy": parts.energy,
                                "entropy": parts.entropy, "residual": residual},
                     dict(zip(mesh.names, mesh.centers, strict=True)), settings={"problem": problem, "cells": grid.cells})
    result.attrs.update(mesh.recorded([rho]))
    return result


def _image(mesh: Mesh, beta: float, log_rho: Array) -> tuple[Array, Array]:
    """log of the fixed-point map of rho, and its weights volume times rho (which sum to 1); 0 in cells without volume."""
    inside = mesh.volumes > 0
    exponent = -beta * (mesh.potential + mesh.convolve(np.exp(log_rho)))
    top = exponent[inside].max()
    weights = mesh.volumes * np.exp(np.where(inside, exponent - top, 0.0))
    total = weights.sum()
    return np.where(inside, exponent - top - math.log(total), 0.0), weights / total


def _newton(mesh: Mesh, beta: float, log_rho: Array, tolerance: float) -> tuple[Array, float]:
    """Solve log rho - log image(rho) = 0. The derivative of the left side along d is
    d + beta (g * (rho d) - mean of it under the image)."""
    image, weights = _image(mesh, beta, log_rho)
    defect = log_rho - image
    size = float(np.abs(defect).max())
    # round-off of beta U, below which no iteration gets
    floor = 1e-14 * (1.0 + float(np.abs(image).max()))
    for _ in range(60):
        if size <= max(tolerance, floor):
            break
        if mesh.convolution is None:
            log_rho = image
        else:
            rho = np.exp(log_rho)

            def derivative(d: Array, rho: Array = rho, weights: Array = weights) -> Array:
                d = d.reshape(mesh.shape)
                pushed = beta * mesh.convolve(rho * d)
                return np.where(mesh.volumes > 0, d + pushed - float(np.sum(weights * pushed)), d).ravel()

            operator = LinearOperator((rho.size, rho.size), matvec=derivative, dtype=np.float64)
            # an unfinished solve still gives a direction; the damping below judges it
            step, _ = gmres(operator, -defect.ravel(), rtol=min(1e-3, max(0.1 * size, 1e-8)), restart=200, maxiter=10)
            step = step.reshape(mesh.shape)
            step *= min(1.0, _LARGEST_STEP / max(float(np.abs(step).max()), 1e-300))
            damping = 1.0
            while damping > 1e-4:
                trial = _image(mesh, beta, log_rho + damping * step)
                if float(np.abs(log_rho + damping * step - trial[0]).max()) < size:
                    break
                damping /= 2
            log_rho = log_rho + damping * step
        image, weights = _image(mesh, beta, log_rho)
        defect = log_rho - image
        previous, size = size, float(np.abs(defect).max())
        if size >= previous and size <= 100 * max(tolerance, floor):
            break  # round-off reached
    if not size <= 1e3 * max(tolerance, floor):
        raise ArithmeticError(f"the Gibbs iteration stopped at a residual of {size:.3g} (inverse temperature {beta:g}); "
                              "try more cells or a smaller inverse temperature")
    return image, size
