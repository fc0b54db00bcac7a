"""Domains without walls: ``Torus`` repeats itself, ``FreeSpace`` goes on for ever."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain.base import Domain, Seed, generator, sample_shape
from meanfield.registry import register

__all__ = ["FreeSpace", "Torus"]


@register
@dataclass(frozen=True)
class Torus(Domain):
    """[0, length)^dim with opposite faces glued together; ``project`` and ``reflect`` both wrap around.

    Pair forces and energies of ``simulate`` and ``hamiltonian`` use the displacement to the nearest image (minimum
    image): a Riesz kernel on the torus is that of the nearest image, not the Ewald sum over all of them, so its force
    jumps where a pair is half a length apart. A ``CosinePair`` is exactly periodic for length 2 pi (or a multiple). A
    potential is evaluated in the cell [0, length)^dim and is the user's to make periodic.
    ``clipped_fraction`` of ``simulate`` is here the share of steps that went around.
    """

    length: float
    dim: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", _checks.positive("length", self.length))
        object.__setattr__(self, "dim", _checks.count("dim", self.dim))

    @classmethod
    def example(cls, dim: int) -> Torus:
        return cls(1.7, dim)

    @property
    def period(self) -> float:
        return self.length

    @property
    def volume(self) -> float:
        return self.length**self.dim

    @property
    def diameter(self) -> float:
        return 0.5 * self.length * math.sqrt(self.dim)

    def contains(self, points: Array) -> NDArray[np.bool_]:
        inside = np.logical_and(points >= np.float64(0.0), points < np.float64(self.length))
        return np.asarray(inside.all(axis=-1))

    def project(self, points: Array) -> Array:
        wrapped = np.mod(np.asarray(points, dtype=np.float64), self.length)
        # -1e-20 is rounded up to the length itself, which is 0
        return np.where(wrapped >= self.length, 0.0, wrapped)

    def reflect(self, points: Array) -> Array:
        return self.project(points)

    def displacement(self, points: Array, origin: Array) -> Array:
        difference = np.subtract(points, origin)
        nearest: Array = difference - self.length * np.rint(difference / self.length)
        return nearest

    def boundary_distance(self, points: Array) -> Array:
        return np.full(np.shape(points)[:-1], math.inf)

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        return self.project(self.length * generator(seed).random(sample_shape(size, self.dim)))


@register
@dataclass(frozen=True)
class FreeSpace(Domain):
    """R^dim. There is no uniform start: give ``initial`` as an array.

    ``simulate`` has no diameter to measure a step against here and stops only where a drift is not a finite number.
    """

    dim: int
    bounded: ClassVar[bool] = False
    walls: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dim", _checks.count("dim", self.dim))

    @classmethod
    def example(cls, dim: int) -> FreeSpace:
        return cls(dim)

    @property
    def volume(self) -> float:
        return math.inf

    @property
    def diameter(self) -> float:
        return math.inf

    def contains(self, points: Array) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(points).all(axis=-1))

    def project(self, points: Array) -> Array:
        return np.array(points, dtype=np.float64)

    def reflect(self, points: Array) -> Array:
        return np.array(points, dtype=np.float64)

    def boundary_distance(self, points: Array) -> Array:
        return np.full(np.shape(points)[:-1], math.inf)

    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        raise ValueError("initial must be an array on FreeSpace")
