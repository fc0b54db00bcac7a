"""Wasserstein distances on the line, exact for any order p >= 1: sample or density against sample or density.

``transport_1d(atoms(x), cells(edges, density), order=2)``; ``distances.wasserstein`` takes the package's Datasets. Both
sides are monotone quantile functions (a sample's is a staircase, a piecewise constant density's is piecewise linear), so
the distance is one sort and one sweep; nothing is resampled or binned.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.kernels.transport import transport_cost
from meanfield.mesh import MASS_TOLERANCE

__all__ = ["Quantile", "atoms", "cells", "normalised", "order_of_distance", "transport_1d"]


class Quantile(NamedTuple):
    """A quantile function as segments sorted by position: each runs from ``left`` to ``right`` over its ``mass``."""

    mass: Array
    left: Array
    right: Array


def normalised(name: str, mass: Array) -> Array:
    """Masses divided by their sum; ValueError where that is not 1 within 1e-3 or a mass is below -1e-12."""
    lowest, total = float(mass.min()), float(mass.sum())
    if lowest < -1e-12:
        raise ValueError(f"{name} must be non-negative, got {lowest:.3g}")
    if abs(total - 1.0) > MASS_TOLERANCE:
        raise ValueError(f"{name} must have mass 1 (within {MASS_TOLERANCE:g}), got {total:.6g}; divide by the mass first")
    mass = np.maximum(mass, 0.0)  # -1e-18 of a softmax is a zero
    normal: Array = mass / mass.sum()
    return normal


def atoms(points: Array, *, weights: Array | None = None) -> Quantile:
    """A sample (particle,) with equal weights, or weights (particle,) of sum 1 (within 1e-3, then normalised)."""
    x = _checks.finite_array("points", points, ndim=1)
    if not x.size:
        raise ValueError("points must not be empty")
    if weights is None:
        x = np.sort(x)
        return Quantile(np.full(x.size, 1.0 / x.size), x, x)
    w = _checks.finite_array("weights", weights, ndim=1)
    if w.shape != x.shape:
        raise ValueError(f"weights must have the shape of points, got {w.shape} and {x.shape}")
    order = np.argsort(x)  # vectorised (AVX-512, 36 ms for a million), unlike a stable sort; ties may come in any order
    return Quantile(normalised("weights", w)[order], x[order], x[order])


def cells(edges: Array, density: Array) -> Quantile:
    """A piecewise constant density: increasing edges (cell + 1,) and cell averages (cell,) of mass 1 (within 1e-3)."""
    e = _checks.finite_array("edges", edges, ndim=1)
    rho = _checks.finite_array("density", density, ndim=1)
    if rho.size < 1 or e.size != rho.size + 1 or (np.diff(e) <= 0).any():
        raise ValueError("edges must increase and be one more than the cells of density, "
                         f"got shapes {e.shape} and {rho.shape}")
    return Quantile(normalised("density", rho * np.diff(e)), e[:-1], e[1:])


def transport_1d(a: Quantile, b: Quantile, *, order: float = 1) -> float:
    """W_p(a, b) = (int_0^1 |Q_a - Q_b|^p du)^(1/p), order p >= 1 (inf: the largest displacement).

    Source: Villani (2003), theorem 2.18.
    """
    p = order_of_distance(order)
    if a.left is a.right and b.left is b.right and np.array_equal(a.mass, b.mass):
        return _paired(a, b, p)
    # the power of a length near the largest displacement cannot underflow; at small orders the extent will do
    extent = float(max(a.right[-1], b.right[-1]) - min(a.left[0], b.left[0]))
    largest = extent if p <= 2 else float(transport_cost(*a, *b, math.inf, 1.0))
    if largest == 0.0 or math.isinf(p):
        return largest
    cost = float(transport_cost(*a, *b, p, largest))
    return float(largest * cost ** (1.0 / p))


def _paired(a: Quantile, b: Quantile, p: float) -> float:
    """Two samples with the same weights: the k-th smallest goes to the k-th smallest, which needs no sweep over pieces."""
    apart = np.abs(a.left - b.left)
    largest = float(apart.max(initial=0.0, where=a.mass > 0))
    if largest == 0.0 or math.isinf(p):
        return largest
    apart /= largest
    cost = float(a.mass @ (apart if p == 1 else np.square(apart) if p == 2 else apart**p))
    return float(largest * cost ** (1.0 / p))


def order_of_distance(order: float) -> float:
    """The order p of W_p: at least 1, or inf."""
    p = _checks.positive("order", order, infinite=True)
    if p < 1:
        raise ValueError(f"order must be at least 1, got {order!r}")
    return p
