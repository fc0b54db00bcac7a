"""Where particles live: convex sets with the nearest-point map, the mirror map, volume and uniform samples.

``Interval(a, b)`` and ``Box`` for the theory in one and more dimensions, ``Ball`` for the paper's norm constraint.
All maps act on the last axis (component) and take any leading axes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array
from meanfield.registry import register

__all__ = ["Ball", "Box", "Domain", "Interval"]

Seed = int | np.random.Generator


def _rng(seed: Seed) -> np.random.Generator:
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(_checks.seed_int(seed))


class Domain(ABC):
    """A closed convex set Omega in R^dim."""

    kind: ClassVar[str] = "domain"
    dim: int

    @property
    @abstractmethod
    def volume(self) -> float:
        """Lebesgue measure of the domain."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest distance between two of its points."""

    @abstractmethod
    def contains(self, points: Array) -> NDArray[np.bool_]:
        """Whether each point (..., component) lies in the closed domain; shape (...)."""

    @abstractmethod
    def project(self, points: Array) -> Array:
        """Nearest point of the domain, P_Omega of Algorithm 1; idempotent bit for bit, never outside."""

    @abstractmethod
    def reflect(self, points: Array) -> Array:
        """Mirror a proposed point back through the wall, folding as often as needed.

        Source: the symmetrised Euler scheme of Bossy, Gobet and Talay (2004), weak order 1 where projection has 1/2.
        """

    @abstractmethod
    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        """Independent uniform points, shape (*size, component)."""


def _shape(size: int | tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*((size,) if isinstance(size, int) else size), dim)


@register
@dataclass(frozen=True, init=False, repr=False)
class Box(Domain):
    """The box prod_a [low_a, high_a]. ``low`` and ``high`` are numbers or one number a component.

    Raises ValueError for bounds that are not finite, not ordered, or of unequal length.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __init__(self, low: float | Sequence[float], high: float | Sequence[float], dim: int | None = None) -> None:
        lo, hi = np.atleast_1d(_checks.finite_array("low", low)), np.atleast_1d(_checks.finite_array("high", high))
        n = max(lo.size, hi.size) if dim is None else _checks.count("dim", dim)
        if lo.ndim > 1 or hi.ndim > 1 or not {lo.size, hi.size} <= {1, n}:
            raise ValueError(f"low and high must be numbers or have one entry for each of {n} components, "
                             f"got shapes {lo.shape} and {hi.shape}")
        lo, hi = np.broadcast_to(lo, n), np.broadcast_to(hi, n)
        if not (lo < hi).all():
            raise ValueError(f"low must be below high in every component, got low={low!r}, high={high!r}")
        object.__setattr__(self, "low", tuple(float(v) for v in lo))
        object.__setattr__(self, "high", tuple(float(v) for v in hi))

    @classmethod
    def example(cls, dim: int) -> Box:
        return cls(-1.0, [1.0 + a / 2 for a in range(dim)])

    @property
    def dim(self) -> int:  # type: ignore[override]
        return len(self.low)

    def __repr__(self) -> str:
        if self.dim == 1:
            return f"Interval({self.low[0]}, {self.high[0]})"
        if len(set(self.low)) == len(set(self.high)) == 1:
            return f"Box({self.low[0]}, {self.high[0]}, dim={self.dim})"
        return f"Box({list(self.low)}, {list(self.high)})"

    @property
    def volume(self) -> float:
        return math.prod(h - l for l, h in zip(self.low, self.high, strict=True))

    @property
    def diameter(self) -> float:
        return math.hypot(*(h - l for l, h in zip(self.low, self.high, strict=True)))

    def contains(self, points: Array) -> NDArray[np.bool_]:
        inside = np.logical_and(points >= np.array(self.low), points <= np.array(self.high))
        return np.asarray(inside.all(axis=-1))

    def project(self, points: Array) -> Array:
        return np.clip(points, self.low, self.high)

    def reflect(self, points: Array) -> Array:
        low, high = np.array(self.low), np.array(self.high)
        width = high - low
        folded = np.mod(points - low, 2.0 * width)
        mirrored = low + np.where(folded > width, 2.0 * width - folded, folded)
        # points that need no mirror stay as they are, bit for bit; the clip removes the last rounding
        return np.where((points >= low) & (points <= high), points, np.clip(mirrored, low, high))

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        low, high = np.array(self.low), np.array(self.high)
        return self.project(low + (high - low) * _rng(seed).random(_shape(size, self.dim)))


def Interval(a: float, b: float) -> Box:
    """The interval [a, b], a Box of dimension 1."""
    return Box(_checks.number("a", a), _checks.number("b", b))


@register
@dataclass(frozen=True)
class Ball(Domain):
    """The centred Euclidean ball {|x| <= radius} in R^dim."""

    radius: float
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", _checks.positive("radius", self.radius))
        object.__setattr__(self, "dim", _checks.count("dim", self.dim))

    @classmethod
    def example(cls, dim: int) -> Ball:
        return cls(1.5, dim)

    @property
    def volume(self) -> float:
        half = self.dim / 2
        return math.exp(half * math.log(math.pi) + self.dim * math.log(self.radius) - math.lgamma(half + 1))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    @staticmethod
    def _norm(points: Array) -> Array:
        # scaled by the largest component, so that 1e300 and denormals neither overflow nor vanish
        largest = np.abs(points).max(axis=-1, keepdims=True)
        scale = np.where(largest > 0, largest, 1.0)
        norm: Array = scale[..., 0] * np.sqrt(np.square(points / scale).sum(axis=-1))
        return norm

    def contains(self, points: Array) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = self._norm(points) <= self.radius
        return inside

    def project(self, points: Array) -> Array:
        return self._at_distance(points, np.full(points.shape[:-1], self.radius))

    def reflect(self, points: Array) -> Array:
        # along the ray through the origin: distance r beyond the wall goes to 2R - r, folded into [-R, R]
        period = 4.0 * self.radius
        folded = np.mod(self._norm(points) + self.radius, period)
        signed = np.where(folded > period / 2, period - folded, folded) - self.radius
        return self._at_distance(points, signed)

    def _at_distance(self, points: Array, distance: Array) -> Array:
        """Move outside points along their ray to that signed distance; inside ones stay bit for bit."""
        points = np.array(points, dtype=np.float64)
        outside = ~self.contains(points)
        if outside.any():
            x = points[outside]
            x /= np.abs(x).max(axis=-1, keepdims=True)
            x *= (distance[outside] / np.sqrt(np.square(x).sum(axis=-1)))[..., None]
            over = np.asarray(~self.contains(x))
            while over.any():  # one rounding beyond the wall: step inwards by single units in the last place
                x[over] *= 1.0 - 2.0**-53
                over = np.asarray(~self.contains(x))
            points[outside] = x
        return points

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        rng = _rng(seed)
        x = rng.standard_normal(_shape(size, self.dim))
        x *= (self.radius * rng.random(x.shape[:-1]) ** (1.0 / self.dim) / self._norm(x))[..., None]
        return self.project(x)
