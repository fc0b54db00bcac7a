"""Pair interactions g(|x - y|): repulsion of Riesz, logarithmic and Coulomb type, and attraction by springs.

``strength`` is the paper's lambda and is part of g here, so that the pair energy is (1 / (2 N (N - 1))) sum_{k != l}
g(x_k - x_l). Unsoftened kernels are singular at r = 0: the force of a coincident pair has no direction and counts as
zero, its energy as +inf, and ``simulate`` refuses such a start.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.registry import register

__all__ = ["Coulomb", "Interaction", "Log", "NoInteraction", "PairLaw", "QuadraticPair", "Riesz"]

# Families of compiled pair loops (kernels/pairs.py): what a pair at squared distance q feels.
LOGARITHM, POWER, SPRING = 0, 1, 2


@dataclass(frozen=True)
class PairLaw:
    """How the compiled loops see an interaction: with q = r^2 + softening^2 the energy is

    -coupling / 2 log q (LOGARITHM), sign(s) coupling q^(-s/2) (POWER), coupling / 2 r^2 (SPRING).
    """

    family: int
    coupling: float
    s: float = 0.0
    softening: float = 0.0


class Interaction(ABC):
    """A radial pair energy g(r), strength included."""

    kind: ClassVar[str] = "interaction"

    @property
    @abstractmethod
    def formula(self) -> str:
        """The formula with this instance's numbers."""

    @property
    @abstractmethod
    def law(self) -> PairLaw | None:
        """The compiled form; None if no pair feels anything."""

    @abstractmethod
    def value(self, r: Array) -> Array:
        """g at distances r >= 0; a singular kernel is +-inf at 0, never NaN."""

    @abstractmethod
    def derivative(self, r: Array) -> Array:
        """g' at distances r; 0 at r = 0 by the rule for coincident pairs."""

    def gradient(self, displacement: Array) -> Array:
        """grad g at displacements (..., component)."""
        r = np.sqrt(np.square(displacement).sum(axis=-1, keepdims=True))
        return self.derivative(r) * displacement / np.where(r > 0, r, 1.0)

    @property
    def singular(self) -> bool:
        """Whether g or its force is unbounded (or has no direction) at r = 0."""
        return False

    def integrable(self, dim: int) -> bool:
        """Whether the energy of some density is finite in that dimension."""
        return True

    def cell_averages(self, width: float, count: int) -> Array:
        """Exact double averages over two cells of the line, (1 / h^2) iint g(|x - y|) dx dy, for offsets 0 .. count - 1.

        The double average at offset k is int_{-1}^{1} (1 - |t|) g(h |k + t|) dt. Far cells (k >= 8) take 12-point
        Gauss rules on both halves (exact to round-off there); near ones take panels graded towards r = 0.
        """
        offsets = np.arange(count)
        averages = np.empty(count)
        node, weight = np.polynomial.legendre.leggauss(12)
        t, w = (node + 1) / 2, weight / 2
        far = offsets >= min(8, count)
        k = offsets[far, None]
        averages[far] = ((self.value(width * (k + 1 - t)) + self.value(width * (k - 1 + t))) * (t * w)).sum(axis=1)
        near = int((~far).sum())
        averages[:near] = self._near_averages(width, near)
        return averages

    def _near_averages(self, width: float, count: int) -> Array:
        node, weight = np.polynomial.legendre.leggauss(20)
        # panels [2^-j-1, 2^-j] towards the origin resolve any softening; the rest below 2^-60 is nothing
        edge = np.concatenate([[0.0], 2.0 ** np.arange(-60, 1)])
        half = np.diff(edge)[:, None] / 2
        t, w = (edge[:-1, None] + half * (node + 1)).ravel(), (half * weight).ravel()
        first = 2.0 * np.sum(w * (1 - t) * self.value(width * t))
        rest = [np.sum(w * (t * self.value(width * (k - 1 + t)) + (1 - t) * self.value(width * (k + t))))
                for k in range(1, count)]
        return np.array([first, *rest])[:count]


@register
@dataclass(frozen=True)
class NoInteraction(Interaction):
    """Independent particles."""

    @classmethod
    def example(cls, dim: int) -> NoInteraction:
        return cls()

    @property
    def formula(self) -> str:
        return "g(r) = 0"

    @property
    def law(self) -> None:
        return None

    def value(self, r: Array) -> Array:
        return np.zeros(np.shape(r))

    def derivative(self, r: Array) -> Array:
        return np.zeros(np.shape(r))


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


@register
@dataclass(frozen=True)
class Riesz(Interaction):
    """Riesz kernel of exponent s > -2, method.md (4.1), with Plummer softening q = r^2 + softening^2:

    g = strength q^(-s/2) (s > 0), -strength / 2 log q (s = 0), -strength q^(|s|/2) (-2 < s < 0).

    Repulsive for strength > 0. The force is |s| strength r q^(-s/2-1) (strength r / q at s = 0), which jumps as s -> 0:
    scale the strength by 1 / |s| to compare exponents. Only s < d has densities of finite energy (method.md 9.2).
    """

    s: float
    strength: float = 1.0
    softening: float = 0.0

    def __post_init__(self) -> None:
        s = _checks.number("s", self.s)
        if s <= -2:
            raise ValueError(f"s must be above -2 (the kernel is not positive definite below), got {self.s!r}")
        object.__setattr__(self, "s", s)
        object.__setattr__(self, "strength", _checks.number("strength", self.strength))
        object.__setattr__(self, "softening", _checks.non_negative("softening", self.softening))

    @classmethod
    def example(cls, dim: int) -> Riesz:
        return cls(0.6, 1.1)

    @property
    def formula(self) -> str:
        r = f"sqrt(r^2 + {self.softening:g}^2)" if self.softening else "r"
        if self.s == 0:
            return f"g(r) = -{self.strength:g} log {r}"
        sign = "-" if self.s < 0 else ""
        return f"g(r) = {sign}{self.strength:g} {r}^{-self.s:g}"

    @property
    def law(self) -> PairLaw:
        return PairLaw(LOGARITHM if self.s == 0 else POWER, self.strength, self.s, self.softening)

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
        energy: Array = self.strength * base if self.strength else np.zeros(np.shape(q))
        return energy

    def derivative(self, r: Array) -> Array:
        r = np.asarray(r, dtype=np.float64)
        q = np.square(r) + self.softening**2
        scale = self.strength * (abs(self.s) if self.s else 1.0)
        force: Array = np.where(r > 0, -scale * r * np.power(np.where(r > 0, q, 1.0), -self.s / 2 - 1), 0.0)
        return force

    def _near_averages(self, width: float, count: int) -> Array:
        if self.softening:
            return super()._near_averages(width, count)
        if not self.integrable(1):
            raise ValueError(f"a Riesz kernel with s = {self.s:g} >= 1 has infinite energy for every density on a line; "
                             "give it a softening or take s < 1")
        # closed form: second differences of G, G'' = g, in units of the cell (method.md 7.4), k = 0 .. 8 apart at most
        k = np.arange(-1, count + 1, dtype=np.float64)
        if self.s == 0:
            square = np.square(k)
            antiderivative = -0.5 * square * (np.log(np.where(k == 0, 1.0, np.abs(k))) - 1.5)
            return self.strength * (np.diff(antiderivative, 2) - math.log(width))
        power = np.abs(k) ** (2 - self.s)
        sign = math.copysign(1.0, self.s)
        scale = self.strength * sign / ((1 - self.s) * (2 - self.s)) * width**-self.s
        averages: Array = scale * np.diff(power, 2)
        return averages


def Log(strength: float = 1.0, softening: float = 0.0) -> Riesz:
    """The logarithmic kernel -strength log r: ``Riesz`` with s = 0."""
    return Riesz(0.0, strength, softening)


def Coulomb(dim: int, strength: float = 1.0, softening: float = 0.0) -> Riesz:
    """The Coulomb kernel of that dimension: s = dim - 2, so -|x| on the line and -log r in the plane."""
    return Riesz(_checks.count("dim", dim) - 2.0, strength, softening)
