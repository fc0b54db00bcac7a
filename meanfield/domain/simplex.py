"""``Simplex``: weights that are not negative and add up to at most one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain.base import Domain, Seed, dot, generator, mirrored, sample_shape
from meanfield.registry import register

__all__ = ["Simplex"]


@register
@dataclass(frozen=True)
class Simplex(Domain):
    """The solid simplex {x_a >= 0, sum_a x_a <= 1} in R^dim, of volume 1 / dim!.

    It is the probability simplex of dim + 1 weights without the last one. The nearest point is exact: cut off what is
    negative, or sort and shift (Held, Wolfe and Crowder 1974). ``reflect`` mirrors about the nearest point, repeatedly.
    """

    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _checks.count("dim", self.dim))

    @classmethod
    def example(cls, dim: int) -> Simplex:
        return cls(dim)

    @property
    def volume(self) -> float:
        return math.exp(-math.lgamma(self.dim + 1))

    @property
    def diameter(self) -> float:
        return math.sqrt(min(self.dim, 2))

    def _total(self, points: Array) -> Array:
        return dot(points, np.ones(self.dim))

    def contains(self, points: Array) -> NDArray[np.bool_]:
        points = np.asarray(points, dtype=np.float64)
        return np.asarray((points >= 0).all(axis=-1) & (self._total(points) <= 1.0))

    def project(self, points: Array) -> Array:
        points = np.asarray(points, dtype=np.float64)
        x = np.maximum(points, 0.0)
        over = self._total(x) > 1.0
        if over.any():
            # shifting all components does not move the nearest point of {x >= 0, sum x = 1}; components more than 1
            # below the largest are 0 there, so the shifted ones lose no digits however large x is
            y = np.maximum(points[over] - points[over].max(axis=-1, keepdims=True), -2.0)
            ordered = -np.sort(-y, axis=-1)
            count = np.arange(1, self.dim + 1)
            level = (np.cumsum(ordered, axis=-1) - 1.0) / count
            kept = (ordered > level).sum(axis=-1, keepdims=True)
            y = np.maximum(y - np.take_along_axis(level, kept - 1, axis=-1), 0.0)
            beyond = self._total(y) > 1.0
            while beyond.any():  # one rounding outside: inwards by single units in the last place
                y[beyond] *= 1.0 - 2.0**-53
                beyond = self._total(y) > 1.0
            x[over] = y
        return x

    def reflect(self, points: Array) -> Array:
        return mirrored(self, points)

    def boundary_distance(self, points: Array) -> Array:
        slope = (1.0 - self._total(points)) / math.sqrt(self.dim)
        return np.asarray(np.maximum(np.minimum(points.min(axis=-1), slope), 0.0))

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        gaps = generator(seed).standard_exponential((*sample_shape(size, self.dim)[:-1], self.dim + 1))
        return self.project(gaps[..., :-1] / gaps.sum(axis=-1, keepdims=True))
