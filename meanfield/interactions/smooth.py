"""Bounded pair energies: the cosine of the Kuramoto model, and Gaussians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gamma, ive

from meanfield import _checks
from meanfield._checks import Array
from meanfield.interactions.base import Interaction
from meanfield.registry import register

__all__ = ["CosinePair", "GaussianPair"]


@register
@dataclass(frozen=True)
class CosinePair(Interaction):
    """g(x - y) = -strength sum_a cos(x_a - y_a): attraction of angles (strength > 0), each component for itself.

    On the line, and between points that differ in one component, it is -strength cos r up to a constant; ``value`` and
    ``derivative`` are those of dimension 1. With angles on ``Torus(2 pi, 1)`` it is the noisy Kuramoto model, whose order
    parameter is I_1(beta K r) / I_0(beta K r) = r for K = strength (Sakaguchi 1988). Its pair sums cost O(N), exactly.
    """

    strength: float = 1.0
    radial: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", _checks.number("strength", self.strength))

    @classmethod
    def example(cls, dim: int) -> CosinePair:
        return cls(0.9)

    @property
    def formula(self) -> str:
        return f"g(r) = -{self.strength:g} sum_a cos(r_a)"

    def value(self, r: Array) -> Array:
        return -self.strength * np.cos(r)

    def derivative(self, r: Array) -> Array:
        return self.strength * np.sin(r)

    def energy(self, displacement: Array) -> Array:
        return np.asarray(-self.strength * np.cos(displacement).sum(axis=-1))

    def gradient(self, displacement: Array) -> Array:
        return self.strength * np.sin(displacement)


@register
@dataclass(frozen=True)
class GaussianPair(Interaction):
    """g(r) = strength exp(-r^2 / (2 width^2)): soft repulsion of a given range (strength > 0), or attraction (< 0)."""

    strength: float = 1.0
    width: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", _checks.number("strength", self.strength))
        object.__setattr__(self, "width", _checks.positive("width", self.width))

    @classmethod
    def example(cls, dim: int) -> GaussianPair:
        return cls(1.2, 0.6)

    @property
    def formula(self) -> str:
        return f"g(r) = {self.strength:g} exp(-r^2 / (2 {self.width:g}^2))"

    def value(self, r: Array) -> Array:
        return np.asarray(self.strength * np.exp(-0.5 * np.square(np.divide(r, self.width))))

    def derivative(self, r: Array) -> Array:
        return np.asarray(-np.divide(r, self.width**2) * self.value(r))

    def sphere_average(self, r: Array, gap: Array, dim: int) -> Array:
        """strength exp(-gap^2 / (2 width^2)) Gamma(nu + 1) (2 / kappa)^nu e^-kappa I_nu(kappa), nu = dim / 2 - 1,
        kappa = r (r + gap) / width^2 (DLMF 10.32.2)."""
        kappa, order = np.multiply(r, r + gap) / self.width**2, 0.5 * dim - 1.0
        small = kappa < 1e-8  # where the power and the Bessel function would be 0 times inf
        safe = np.where(small, 1.0, kappa)
        bessel = gamma(order + 1.0) * (2.0 / safe) ** order * ive(order, safe)
        return np.asarray(self.strength * np.exp(-0.5 * np.square(gap / self.width)) * np.where(small, 1.0 - kappa, bessel))
