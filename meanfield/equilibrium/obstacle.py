"""The minimiser of the energy at infinite inverse temperature: a convex quadratic program over densities.

    E = sum_i V_i m_i + (1/2) sum_ij g_ij m_i m_j  ->  min   over masses m_i >= 0 with sum_i m_i = 1,

whose conditions are U = V + g m = mu where m > 0 and U >= mu where m = 0 (the obstacle problem of Frostman's theorem). The
set of cells with mass is found by block principal pivoting: solve with the cells that are held, drop those that came out
negative, take in those below mu, together while that helps and else one at a time, which cannot cycle (Portugal, Judice
and Vicente 1994). The solves are Cholesky's on small meshes and conjugate gradients with products by FFT elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from meanfield._checks import Array
from meanfield.equilibrium.newton import DENSE, Linear, continued

__all__ = ["Coldest", "coldest"]

_PATIENCE = 10  # exchanges of whole blocks without progress before single ones
_GUESS, _COLD = 8, 1e4  # after so many exchanges the guess is taken from this inverse temperature times the span of U
_LARGEST_MATRIX = 4000  # cells up to which a matrix is made where conjugate gradients are slow
_NOT_CONVEX = ("gibbs at an infinite inverse_temperature needs an interaction whose energy is strictly convex on these "
               "cells (singular and repulsive); take a large finite inverse_temperature, or let the gradient flow of solve "
               "come to rest")


class Coldest(NamedTuple):
    """Density, U - mu in every cell, and the largest violation of the conditions."""

    density: Array
    excess: Array
    residual: float


def coldest(linear: Linear) -> Coldest:
    """Minimise E over the cells.

    Raises ValueError where E is not strictly convex (attraction, no interaction, a smooth kernel on fine cells).
    """
    mesh = linear.mesh
    if mesh.convolution is None:
        raise ValueError(_NOT_CONVEX)
    inside = (mesh.volumes > 0).ravel()
    held = inside.copy()
    mass = np.where(held, 1.0 / held.sum(), 0.0)
    first = mesh.convolve(mass.reshape(mesh.shape) / linear.volumes).ravel()[inside]
    span = float(np.ptp(mesh.potential.ravel()[inside]) + np.ptp(first))
    fewest, patience = inside.size + 1, _PATIENCE
    for exchange in range(20 * inside.size):
        if exchange == _GUESS:
            # kernels with a local inverse (Coulomb) peel one layer of cells at a time: start near the end instead
            warm = continued(linear, _COLD / span, 1e-3).density.ravel()
            held = inside & (warm > 0.5 * np.median(warm[warm > 0.01 * warm.max()]))
        mass = _solved(linear, held, mass)
        potential = (mesh.potential + mesh.convolve(mass.reshape(mesh.shape) / linear.volumes)).ravel()
        level = float(np.mean(potential[held]))
        slack = 1e-12 * (1.0 + float(np.abs(potential[inside]).max()))
        wrong = (held & (mass < 0)) | (inside & ~held & (potential < level - slack))
        count = int(wrong.sum())
        if not count:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong[: int(np.flatnonzero(wrong)[-1])] = False
        held ^= wrong
    mass = np.maximum(mass, 0.0)
    mass /= mass.sum()
    density = mass.reshape(mesh.shape) / linear.volumes
    excess = mesh.potential + mesh.convolve(density)
    excess = np.where(mesh.volumes > 0, excess - float(np.sum(mass.reshape(mesh.shape) * excess)), 0.0)
    violation = np.where(density > 0, np.abs(excess), np.maximum(-excess, 0.0))
    return Coldest(density, excess, float(violation.max()))


def _solved(linear: Linear, held: NDArray[np.bool_], mass: Array) -> Array:
    """Masses on the held cells with V + g m constant there and sum 1."""
    if held.size > DENSE:
        small = held.size <= _LARGEST_MATRIX
        iterated, reached = _iterated(linear, held, mass, 600 if small else 20_000)
        if reached or not small:
            return iterated
    return _direct(linear, held)


def _direct(linear: Linear, held: NDArray[np.bool_]) -> Array:
    g = linear.matrix()[np.ix_(held, held)]
    potential = linear.mesh.potential.ravel()[held]
    mass = np.zeros(held.size)
    # the last of the held cells takes what the others leave: m = e + Z w, and Z^T g Z is positive
    reduced = g[:-1, :-1] - g[:-1, -1:] - g[-1:, :-1] + g[-1, -1]
    right = -(potential[:-1] - potential[-1] + g[:-1, -1] - g[-1, -1])
    try:
        factor = cho_factor(reduced, lower=True) if len(right) else None
    except LinAlgError:
        raise ValueError(_NOT_CONVEX) from None
    inner = np.zeros(0)
    if factor is not None:
        inner = cho_solve(factor, right)
        inner += cho_solve(factor, right - reduced @ inner)
    mass[held] = np.append(inner, 1.0 - inner.sum())
    return mass


def _iterated(linear: Linear, held: NDArray[np.bool_], start: Array, most: int) -> tuple[Array, bool]:
    mesh = linear.mesh
    count = held.sum()

    def centred(values: Array) -> Array:
        return np.where(held, values - values[held].sum() / count, 0.0)

    def product(masses: Array) -> Array:
        return mesh.convolve(masses.reshape(mesh.shape) / linear.volumes).ravel()

    mass = np.where(held, np.maximum(start, 0.0), 0.0)
    mass = np.where(held, mass + (1.0 - mass.sum()) / count, 0.0)
    potential = mesh.potential.ravel()
    remainder = -centred(potential + product(mass))
    scale = 1.0 + float(np.abs(potential[held]).max())
    direction, size = remainder, float(remainder @ remainder)
    for _ in range(most):
        if float(np.abs(remainder).max()) <= 1e-13 * scale:
            return mass, True
        pushed = centred(product(direction))
        curvature = float(direction @ pushed)
        if curvature <= 0:
            raise ValueError(_NOT_CONVEX)
        step = size / curvature
        mass = mass + step * direction
        remainder = remainder - step * pushed
        size, before = float(remainder @ remainder), size
        direction = remainder + size / before * direction
    return mass, False
