"""What a domain can do, and the mirror map of domains that only know their nearest points."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array

__all__ = ["Domain", "Seed", "dot", "dots", "generator", "mirrored", "norm", "sample_shape"]

Seed = int | np.random.Generator

# bounces after which a mirrored point is put on its nearest point; an interval or a square needs one or two
_BOUNCES = 32


class Domain(ABC):
    """A closed convex set Omega in R^dim, or a torus.

    ``bounded`` says whether volume and diameter are finite (and uniform samples exist), ``period`` is the length after
    which a Torus repeats itself, None for every other domain. A user's own domain derives from this class.
    """

    kind: ClassVar[str] = "domain"
    bounded: ClassVar[bool] = True
    walls: ClassVar[bool] = True
    dim: int

    @property
    def period(self) -> float | None:
        """Length after which each component repeats itself, or None."""
        return None

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
    def boundary_distance(self, points: Array) -> Array:
        """Distance of points inside to the boundary, shape (...); 0 on it (and outside), inf where there is none."""

    @abstractmethod
    def sample(self, size: int | tuple[int, ...], seed: Seed = 0) -> Array:
        """Independent uniform points, shape (*size, component)."""

    def displacement(self, points: Array, origin: Array) -> Array:
        """points - origin; on a Torus the shortest of the displacements between the images."""
        return np.subtract(points, origin)


def generator(seed: Seed) -> np.random.Generator:
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(_checks.seed_int(seed))


def sample_shape(size: int | tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*((size,) if isinstance(size, int) else size), dim)


def norm(points: Array) -> Array:
    """Euclidean norm over the last axis, scaled by the largest component: 1e300 does not overflow, 1e-310 not vanish."""
    points = np.ascontiguousarray(points, dtype=np.float64)  # one memory order, so one order of summation
    largest = np.abs(points).max(axis=-1, keepdims=True)
    scale = np.where(largest > 0, largest, 1.0)
    length: Array = scale[..., 0] * np.sqrt(np.square(points / scale).sum(axis=-1))
    return length


def dot(points: Array, row: Array) -> Array:
    """Sum over components in index order: the same bits for any shape and memory order, as ``contains`` needs."""
    with np.errstate(over="ignore", invalid="ignore"):
        total: Array = points[..., 0] * row[0]
        for a in range(1, len(row)):
            total = total + points[..., a] * row[a]
    return total


def dots(points: Array, rows: Array) -> Array:
    """``dot`` with each row: a matrix product whose bits do not depend on how many points there are."""
    return np.stack([dot(points, row) for row in rows], axis=-1)


def mirrored(domain: Domain, points: Array) -> Array:
    """2 P(x) - x, repeated while the image is outside (sharp corners, long jumps), at last P.

    The distance beyond the wall is first taken modulo twice the diameter, which is the fold map on an interval; so a
    long jump needs no more bounces than a short one. Points inside stay as they are, bit for bit.
    """
    image = np.array(points, dtype=np.float64)
    outside = ~domain.contains(image)
    for bounce in range(_BOUNCES):
        if not outside.any():
            return image
        x = image[outside]
        nearest = domain.project(x)
        beyond = x - nearest
        if bounce == 0:
            length = norm(beyond)
            far = length > 2.0 * domain.diameter
            beyond[far] *= (np.fmod(length[far], 2.0 * domain.diameter) / length[far])[:, None]
        image[outside] = nearest - beyond
        outside = ~domain.contains(image)
    return domain.project(image)
