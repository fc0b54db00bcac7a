"""Riesz, logarithmic and Coulomb kernels, and the spring."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.interactions.averages import power_corner, power_sphere_average
from meanfield.interactions.base import LOGARITHM, POWER, SPRING, Interaction, PairLaw
from meanfield.registry import register

__all__ = ["Coulomb", "Log", "QuadraticPair", "Riesz"]


@register
@dataclass(frozen=True)
class QuadraticPair(Interaction):
    """g(r) = stiffness / 2 r^2: attraction towards the centre of mass (stiffness > 0)."""

    stiffness: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "stiffness", _checks.number("stiffness", self.stiffness))

    @classmethod
    def example(cls, dim: int) -> QuadraticPair:
        return cls(0.7)

    @property
    def formula(self) -> str:
        return f"g(r) = {self.stiffness:g} / 2 r^2"

    @property
    def law(self) -> PairLaw:
        return PairLaw(SPRING, self.stiffness)

    def value(self, r: Array) -> Array:
        return 0.5 * self.stiffness * np.square(r)

    def derivative(self, r: Array) -> Array:
        return self.stiffness * np.asarray(r, dtype=np.float64)

    def sphere_average(self, r: Array, gap: Array, dim: int) -> Array:
        return 0.5 * self.stiffness * (np.square(r) + np.square(r + gap))


@register
@dataclass(frozen=True)
class Riesz(Interaction):
    """Riesz kernel of exponent s > -2, method.md (4.1), with Plummer softening q = r^2 + softening^2:

    g = strength q^(-s/2) (s > 0), -strength / 2 log q (s = 0), -strength q^(|s|/2) (-2 < s < 0).

    Repulsive for strength > 0. The force is |s| strength r q^(-s/2-1) (strength r / q at s = 0), which jumps as s -> 0.
    ``normalized=True`` divides the coupling by |s| (s != 0): g = (strength / s) q^(-s/2), of force strength r q^(-s/2-1)
    for every s, so that exponents compare; the energies then differ from those of s = 0 by a constant near strength / s.
    Only s < d has densities of finite energy (method.md 4 and 9.2).
    """

    s: float
    strength: float = 1.0
    softening: float = 0.0
    normalized: bool = False

    def __post_init__(self) -> None:
        s = _checks.number("s", self.s)
        if s <= -2:
            raise ValueError(f"s must be above -2 (the kernel is not positive definite below), got {self.s!r}")
        object.__setattr__(self, "s", s)
        object.__setattr__(self, "strength", _checks.number("strength", self.strength))
        object.__setattr__(self, "softening", _checks.non_negative("softening", self.softening))
        if not isinstance(self.normalized, (bool, np.bool_)):
            raise ValueError(f"normalized must be True or False, got {self.normalized!r}")
        object.__setattr__(self, "normalized", bool(self.normalized))

    @property
    def coupling(self) -> float:
        """What multiplies sign(s) q^(-s/2): the strength, over |s| if normalized."""
        return self.strength / abs(self.s) if self.normalized and self.s else self.strength

    @classmethod
    def example(cls, dim: int) -> Riesz:
        return cls(0.6, 1.1)

    @property
    def formula(self) -> str:
        r = f"sqrt(r^2 + {self.softening:g}^2)" if self.softening else "r"
        if self.s == 0:
            return f"g(r) = -{self.coupling:g} log {r}"
        sign = "-" if self.s < 0 else ""
        return f"g(r) = {sign}{self.coupling:g} {r}^{-self.s:g}"

    @property
    def law(self) -> PairLaw:
        return PairLaw(LOGARITHM if self.s == 0 else POWER, self.coupling, self.s, self.softening)

    @property
    def singular(self) -> bool:
        return self.softening == 0 and self.s > -2 and self.strength != 0

    def integrable(self, dim: int) -> bool:
        return self.softening > 0 or self.s < dim

    def value(self, r: Array) -> Array:
        q = np.square(r) + self.softening**2
        with np.errstate(divide="ignore"):
            if self.s == 0:
                base = -0.5 * np.log(q)
            else:
                base = math.copysign(1.0, self.s) * np.power(q, -self.s / 2)
        energy: Array = self.coupling * base if self.strength else np.zeros(np.shape(q))
        return energy

    def derivative(self, r: Array) -> Array:
        r = np.asarray(r, dtype=np.float64)
        q = np.square(r) + self.softening**2
        scale = self.strength * (abs(self.s) if self.s and not self.normalized else 1.0)
        force: Array = np.where(r > 0, -scale * r * np.power(np.where(r > 0, q, 1.0), -self.s / 2 - 1), 0.0)
        return force

    def corner_moments(self, widths: tuple[float, ...]) -> Array | None:
        if self.softening:
            return None
        if not self.integrable(len(widths)):
            raise ValueError(f"a Riesz kernel with s = {self.s:g} has infinite energy for every density in dimension "
                             f"{len(widths)}; give it a softening or take s < {len(widths)}")
        sign = math.copysign(1.0, self.s) if self.s else 1.0
        return self.coupling * sign * power_corner(self.s, widths)

    def sphere_average(self, r: Array, gap: Array, dim: int) -> Array:
        average = power_sphere_average(self.s, r, gap, self.softening, dim)
        if average is None:
            return super().sphere_average(r, gap, dim)
        return self.coupling * (math.copysign(1.0, self.s) if self.s else 1.0) * average


def Log(strength: float = 1.0, softening: float = 0.0) -> Riesz:
    """The logarithmic kernel -strength log r: ``Riesz`` with s = 0, where normalized or not is the same."""
    return Riesz(0.0, strength, softening)


def Coulomb(dim: int, strength: float = 1.0, softening: float = 0.0, normalized: bool = False) -> Riesz:
    """The Coulomb kernel of that dimension: s = dim - 2, so -|x| on the line and -log r in the plane.

    ``normalized=True`` makes the force strength r^(1 - dim) in every dimension (see ``Riesz``).
    """
    return Riesz(_checks.count("dim", dim) - 2.0, strength, softening, normalized)
