"""Optimal transport between points in any dimension: exact (POT's network simplex), or a debiased Sinkhorn divergence.

What to use when: on the line ``transport_1d`` (one sort); above, ``exact_transport`` while the matrix of costs fits (some
10,000 points a side: 20 s), ``sinkhorn_divergence`` for a smooth stand-in, ``sliced_wasserstein`` for any size.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from meanfield import _checks
from meanfield._checks import Array
from meanfield.diagnostics.transport import atoms, normalised, order_of_distance, transport_1d

__all__ = ["LARGEST_COSTS", "Divergence", "exact_transport", "sinkhorn_divergence"]

# bytes of costs and plan that are taken without being asked: about 11,000 points a side
LARGEST_COSTS = 2 * 2**30
_ITERATIONS = 100_000_000  # POT's default of 1e5 stops early from 4,000 points on (PythonOT/POT issue 24)
_SINKHORN = 20_000


def exact_transport(x: Array, y: Array, *, x_weights: Array | None = None, y_weights: Array | None = None, order: float = 1,
                    largest: int = LARGEST_COSTS) -> float:
    """W_p = (min over plans of sum_ij pi_ij |x_i - y_j|^p)^(1/p) between points (particle, component), p finite.

    Weights default to equal ones and are divided by their sum, which must be 1 within 1e-3. The plan is proved optimal by
    its dual prices before the number is returned.

    Raises ValueError for shapes, weights or coordinates that make no sense, MemoryError, with the number of bytes, where
    costs and plan would take more than ``largest``, ArithmeticError where no optimal plan was found.

    Source: Bonneel, van de Panne, Paris and Heidrich (2011), as in POT.
    """
    a, b, p = _weighted("x", x, x_weights), _weighted("y", y, y_weights), order_of_distance(order)
    _same_dimension(a, b)
    if math.isinf(p):
        raise ValueError("order must be finite above one dimension, got inf")
    if a.points.shape[1] == 1:
        return transport_1d(atoms(a.points[:, 0], weights=a.mass), atoms(b.points[:, 0], weights=b.mass), order=p)
    _refuse_too_large(a, b, largest)
    import ot

    costs = cdist(a.points, b.points)
    scale = float(costs.max())
    if scale == 0.0:
        return 0.0
    np.power(costs / scale, p, out=costs)  # POT's tolerances are absolute
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the certificate below decides
        plan, log = ot.emd(a.mass, b.mass, costs, numItermax=_ITERATIONS, log=True, numThreads=1)
    value = float(np.sum(plan * costs))
    u, v = np.asarray(log["u"]), np.asarray(log["v"])
    slack = costs - u[:, None] - v[None, :]
    used = (a.mass > 0)[:, None] & (b.mass > 0)[None, :]
    gap = max(-float(slack[used].min()), abs(value - float(a.mass @ u + b.mass @ v)),
              float(np.abs(plan.sum(axis=1) - a.mass).max()), float(np.abs(plan.sum(axis=0) - b.mass).max()))
    if not gap <= 1e-9 * max(value, 1e-6):
        raise ArithmeticError(f"no optimal plan was found between {len(a.mass)} and {len(b.mass)} points: the prices leave "
                              f"a gap of {gap:.2g} of the largest cost; points very far from the others are a usual reason")
    return float(scale * value ** (1.0 / p))


class Divergence(NamedTuple):
    """A debiased Sinkhorn divergence: its value, the regularisation, the worst error of a marginal, iterations."""

    value: float
    regularisation: float
    marginal_error: float
    iterations: int


def sinkhorn_divergence(x: Array, y: Array, *, x_weights: Array | None = None, y_weights: Array | None = None,
                        order: float = 2, regularisation: float = 0.05, tolerance: float = 1e-7,
                        largest: int = LARGEST_COSTS) -> Divergence:
    """S_e = OT_e(x, y) - OT_e(x, x) / 2 - OT_e(y, y) / 2 with costs |x - y|^p, to the power 1 / p.

    OT_e is the entropic cost (with its entropy), in the logarithmic domain; ``regularisation`` e is in units of the largest
    cost between x and y. S_e is 0 for equal measures, tends to W_p^p as e falls, and is no upper or lower bound of it.

    Raises ValueError as ``exact_transport`` does, MemoryError for sizes beyond ``largest``, ArithmeticError where the
    iteration does not reach ``tolerance`` (worst error of a marginal).

    Source: Feydy, Sejourne, Vialard, Amari, Trouve and Peyre (2019).
    """
    a, b, p = _weighted("x", x, x_weights), _weighted("y", y, y_weights), order_of_distance(order)
    _same_dimension(a, b)
    eps, tolerance = _checks.positive("regularisation", regularisation), _checks.positive("tolerance", tolerance)
    _refuse_too_large(a, b, largest)
    _refuse_too_large(a, a, largest)
    _refuse_too_large(b, b, largest)
    scale = float(cdist(a.points, b.points).max()) ** p
    if scale == 0.0:
        return Divergence(0.0, eps, 0.0, 0)
    parts = [_entropic(s, t, p, scale, eps, tolerance) for s, t in ((a, b), (a, a), (b, b))]
    value = parts[0][0] - 0.5 * (parts[1][0] + parts[2][0])
    return Divergence(float((scale * max(value, 0.0)) ** (1.0 / p)), eps, max(part[1] for part in parts),
                      max(part[2] for part in parts))


class _Weighted(NamedTuple):
    points: Array
    mass: Array


def _weighted(name: str, points: Array, weights: Array | None) -> _Weighted:
    x = _checks.finite_array(name, points, ndim=2)
    if not x.size:
        raise ValueError(f"{name} must not be empty, got shape {x.shape}")
    mass = np.ones(len(x)) / len(x) if weights is None else _checks.finite_array(f"{name}_weights", weights, ndim=1)
    if mass.shape != x.shape[:1]:
        raise ValueError(f"{name}_weights must be one for each of {len(x)} points, got shape {mass.shape}")
    return _Weighted(x, normalised(f"{name}_weights", mass))


def _same_dimension(a: _Weighted, b: _Weighted) -> None:
    if a.points.shape[1] != b.points.shape[1]:
        raise ValueError(f"x and y must have the same components, got {a.points.shape[1]} and {b.points.shape[1]}")


def _refuse_too_large(a: _Weighted, b: _Weighted, largest: int) -> None:
    needed = 3 * 8 * len(a.mass) * len(b.mass)  # costs, plan, and one more on the way
    if needed > largest:
        raise MemoryError(f"exact transport between {len(a.mass)} and {len(b.mass)} points would take {needed:,} bytes, "
                          f"more than {largest:,}; take sliced_wasserstein, fewer points, or a larger limit")


def _entropic(a: _Weighted, b: _Weighted, p: float, scale: float, eps: float, tolerance: float) -> tuple[float, float, int]:
    """(dual value, worst error of a marginal, iterations), costs in units of ``scale``."""
    costs = cdist(a.points, b.points) ** p / scale
    keep_a, keep_b = a.mass > 0, b.mass > 0
    costs, mass_a, mass_b = costs[np.ix_(keep_a, keep_b)], a.mass[keep_a], b.mass[keep_b]
    log_a, log_b = np.log(mass_a), np.log(mass_b)
    f, g = np.zeros(mass_a.size), np.zeros(mass_b.size)
    same = a is b
    # regularisation halved on the way down: a few hundred iterations instead of 1 / e
    level, count, error = max(1.0, eps), 0, math.inf
    while True:
        for _ in range(_SINKHORN if level == eps else 20):
            count += 1
            new_f = -level * _log_sum(costs, g / level + log_b, level, 1)
            # a symmetric problem converges by averaging, in a fraction of the iterations
            f, g = (0.5 * (f + new_f), 0.5 * (f + new_f)) if same else (
                new_f, -level * _log_sum(costs, new_f / level + log_a, level, 0))
            if level == eps and count % 5 == 0:
                row = mass_a * np.exp((f + level * _log_sum(costs, g / level + log_b, level, 1)) / level)
                error = float(np.abs(row - mass_a).sum())
                if error <= tolerance:
                    return float(mass_a @ f + mass_b @ g), error, count
        if level == eps:
            raise ArithmeticError(f"the Sinkhorn iteration stopped at a marginal error of {error:.2g} after {count} "
                                  f"iterations (regularisation {eps:g}); take a larger regularisation or tolerance")
        level = max(level / 2.0, eps)


def _log_sum(costs: Array, weights: Array, level: float, axis: int) -> Any:
    """log sum exp(weights - costs / level) along an axis."""
    exponent = (weights[None, :] if axis == 1 else weights[:, None]) - costs / level
    top = exponent.max(axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.exp(exponent - top).sum(axis=axis))
