"""Boxes, intervals and balls: closed forms for everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain.base import Domain, Seed, generator, norm, sample_shape
from meanfield.registry import register

__all__ = ["Ball", "Box", "Interval"]


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

    def boundary_distance(self, points: Array) -> Array:
        gap = np.minimum(points - np.array(self.low), np.array(self.high) - points)
        return np.asarray(np.maximum(gap.min(axis=-1), 0.0))

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        low, high = np.array(self.low), np.array(self.high)
        return self.project(low + (high - low) * generator(seed).random(sample_shape(size, self.dim)))


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

    def contains(self, points: Array) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = norm(points) <= self.radius
        return inside

    def project(self, points: Array) -> Array:
        return self._at_distance(points, np.full(points.shape[:-1], self.radius))

    def reflect(self, points: Array) -> Array:
        # along the ray through the origin: distance r beyond the wall goes to 2R - r, folded into [-R, R]
        period = 4.0 * self.radius
        folded = np.mod(norm(points) + self.radius, period)
        signed = np.where(folded > period / 2, period - folded, folded) - self.radius
        return self._at_distance(points, signed)

    def _at_distance(self, points: Array, distance: Array) -> Array:
        """Move outside points along their ray to that signed distance; inside ones stay bit for bit."""
        points = np.array(points, dtype=np.float64)
        if not np.isfinite(points).all():
            raise ValueError("points must be finite to be put back into a ball")
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

    def boundary_distance(self, points: Array) -> Array:
        return np.asarray(np.maximum(self.radius - norm(points), 0.0))

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        rng = generator(seed)
        x = rng.standard_normal(sample_shape(size, self.dim))
        x *= (self.radius * rng.random(x.shape[:-1]) ** (1.0 / self.dim) / norm(x))[..., None]
        return self.project(x)
