"""Centred, normalised kernel alignment: couples the particles, and so keeps them from learning one and the same feature.

The linear objective of ``alignment`` is separable: every particle runs to the same best frequency, and repulsion in
frequency space cannot tell that two frequencies of equal norm are the same function. The norm of the kernel in the
denominator can. Measured on y = sign(|x| - sqrt(5)) with 16 features: see docs/decisions/0003.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.potentials import Potential
from meanfield.registry import register

__all__ = ["NormalizedAlignment", "normalized_alignment"]


def normalized_alignment(features: Array, targets: Array) -> tuple[Array, Array]:
    """A = <K_c, Y_c> / (|K_c| |Y_c|) for K = features features^T, Y = targets targets^T, and its gradient dA/dfeatures.

    ``features`` (..., sample, column), ``targets`` (sample, class); the index c is centring over samples. With Z, T the
    centred matrices, A = |Z^T T|^2 / (|Z^T Z| |T^T T|) in Frobenius norms: nothing of size sample x sample is made.
    Returns A over (...) and the gradient in the shape of ``features``. A kernel or labels that are constant on the samples
    have A = 0 and gradient 0. Source: Cortes, Mohri, Rostamizadeh (2012); method.md (3.6).
    """
    z, t = features - features.mean(axis=-2, keepdims=True), targets - targets.mean(axis=0)
    cross, gram = z.swapaxes(-1, -2) @ t, z.swapaxes(-1, -2) @ z
    kernel_norm = np.sqrt(np.square(gram).sum(axis=(-2, -1), keepdims=True))
    scale = kernel_norm * np.linalg.norm(t.T @ t)
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    alignment = np.square(cross).sum(axis=(-2, -1), keepdims=True) * inverse
    curvature = alignment * np.divide(1.0, kernel_norm**2, out=np.zeros_like(scale), where=scale > 0)
    # both terms are centred already, so the derivative of centring changes nothing
    gradient: Array = 2.0 * (inverse * (t @ cross.swapaxes(-1, -2)) - curvature * (z @ gram))
    return alignment[..., 0, 0], gradient


@register
@dataclass(frozen=True, eq=False)
class NormalizedAlignment(Potential):
    """E_N = -A of the kernel mean_k cos(w_k (x - x')) with the labels (method.md 3.6): an objective, not a V(x).

    Args: inputs X (sample, component), labels y (sample,). Raises ValueError for shapes that do not fit, NaN, fewer than
    two samples, or labels that are all equal.
    """

    X: Array
    y: Array
    _targets: Array = field(init=False, repr=False)
    pointwise = False

    def __post_init__(self) -> None:
        X, y = _checks.finite_array("X", self.X, ndim=2), _checks.finite_array("y", self.y, ndim=1)
        if len(X) != len(y) or len(X) < 2:
            raise ValueError(f"X and y must have the same number of samples, two or more, got {X.shape} and {y.shape}")
        if np.ptp(y) == 0:
            raise ValueError(f"y must have two different labels, got only {y[0]:g}")
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "_targets", y[:, None])

    @classmethod
    def example(cls, dim: int) -> NormalizedAlignment:
        rng = np.random.default_rng(dim)
        X = rng.standard_normal((12, dim))
        return cls(X, np.where(np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(12) > 0, 1.0, -1.0))

    @property
    def formula(self) -> str:
        return f"E_N = -<K_c, Y_c> / (|K_c| |Y_c|) with {len(self.y)} labels, K = mean_k cos(w_k (x - x'))"

    def value(self, positions: Array) -> Array:
        return self._evaluate(positions)[0]

    def gradient(self, positions: Array) -> Array:
        return self._evaluate(positions)[1]

    def _evaluate(self, positions: Array) -> tuple[Array, Array]:
        if positions.shape[-1] != self.X.shape[1]:
            raise ValueError(f"positions have {positions.shape[-1]} components, but the inputs X have {self.X.shape[1]}")
        n = positions.shape[-2]
        value, gradient = np.empty(positions.shape[:-1]), np.empty(positions.shape)
        for index in np.ndindex(positions.shape[:-2]):
            angle = self.X @ positions[index].T
            cos, sin = np.cos(angle), np.sin(angle)
            alignment, slope = normalized_alignment(np.hstack([cos, sin]), self._targets)
            value[index] = -alignment
            # N grad_k: the mean over particles of ``value`` is E_N
            gradient[index] = -n * ((slope[:, n:] * cos - slope[:, :n] * sin).T @ self.X)
        return value, gradient
