"""External potentials V: NumPy functions of all positions at once, value and gradient.

Your own potential is a frozen dataclass that derives from ``Potential`` and has ``value`` and ``gradient``; pass an
instance to ``Problem``, and add ``@register`` to have the package's laws run on it. No Numba is needed: a potential
costs O(N) beside the O(N^2) pair sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.registry import register

__all__ = ["DoubleWell", "Potential", "Quadratic", "Zero"]


class Potential(ABC):
    """A function that every particle feels, or an objective that couples them.

    ``pointwise`` potentials have a V(x): ``value`` depends on each position alone, and ``solve`` and ``gibbs`` can use
    them. An objective E_N that couples the particles sets ``pointwise = False``: its ``value`` returns anything whose
    mean over particles is E_N, its ``gradient`` returns N grad_k E_N, and only ``simulate`` can use it.
    """

    kind: ClassVar[str] = "potential"
    pointwise: ClassVar[bool] = True

    @property
    @abstractmethod
    def formula(self) -> str:
        """The formula with this instance's numbers."""

    @abstractmethod
    def value(self, positions: Array) -> Array:
        """V at positions (..., particle, component); shape (..., particle)."""

    @abstractmethod
    def gradient(self, positions: Array) -> Array:
        """grad V at positions (..., particle, component); same shape."""

    def step_gradient(self, positions: Array, step: int) -> Array:
        """The gradient that step number ``step`` of ``simulate`` uses, positions (run, particle, component).

        Override it to draw a minibatch from a stream of your own; it must depend on (positions, step) alone.
        """
        return self.gradient(positions)


@register
@dataclass(frozen=True)
class Zero(Potential):
    """V(x) = 0."""

    @classmethod
    def example(cls, dim: int) -> Zero:
        return cls()

    @property
    def formula(self) -> str:
        return "V(x) = 0"

    def value(self, positions: Array) -> Array:
        return np.zeros(positions.shape[:-1])

    def gradient(self, positions: Array) -> Array:
        return np.zeros(positions.shape)


@register
@dataclass(frozen=True)
class Quadratic(Potential):
    """V(x) = stiffness / 2 |x - center|^2; ``center`` is a number or one number a component."""

    stiffness: float = 1.0
    center: float | tuple[float, ...] = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "stiffness", _checks.number("stiffness", self.stiffness))
        if isinstance(self.center, (Sequence, np.ndarray)):
            object.__setattr__(self, "center", tuple(_checks.finite_array("center", self.center, ndim=1).tolist()))
        else:
            object.__setattr__(self, "center", _checks.number("center", self.center))

    @classmethod
    def example(cls, dim: int) -> Quadratic:
        return cls(1.7, tuple(0.1 * (a + 1) for a in range(dim)))

    @property
    def formula(self) -> str:
        return f"V(x) = {self.stiffness:g} / 2 |x - {self.center}|^2"

    def _shifted(self, positions: Array) -> Array:
        center = np.asarray(self.center)
        if center.ndim and center.shape[0] != positions.shape[-1]:
            raise ValueError(f"Quadratic has a center of {center.shape[0]} components, "
                             f"but positions have {positions.shape[-1]}")
        shifted: Array = positions - center
        return shifted

    def value(self, positions: Array) -> Array:
        value: Array = 0.5 * self.stiffness * np.square(self._shifted(positions)).sum(axis=-1)
        return value

    def gradient(self, positions: Array) -> Array:
        shifted = self._shifted(positions)
        shifted *= self.stiffness  # in place: fresh memory for 320,000 numbers costs more than the product
        return shifted


@register
@dataclass(frozen=True)
class DoubleWell(Potential):
    """V(x) = sum_a (quartic x_a^4 / 4 - quadratic x_a^2 / 2): minima at +-sqrt(quadratic / quartic) in each component.

    Source: Dawson, J. Stat. Phys. 31 (1983), with its x^4 / 4 - x^2 / 2 as the default.
    """

    quartic: float = 1.0
    quadratic: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "quartic", _checks.positive("quartic", self.quartic))
        object.__setattr__(self, "quadratic", _checks.number("quadratic", self.quadratic))

    @classmethod
    def example(cls, dim: int) -> DoubleWell:
        return cls(1.3, 0.8)

    @property
    def formula(self) -> str:
        return f"V(x) = sum_a ({self.quartic:g} x_a^4 / 4 - {self.quadratic:g} x_a^2 / 2)"

    def value(self, positions: Array) -> Array:
        square = np.square(positions)
        value: Array = (square * (0.25 * self.quartic * square - 0.5 * self.quadratic)).sum(axis=-1)
        return value

    def gradient(self, positions: Array) -> Array:
        return positions * (self.quartic * np.square(positions) - self.quadratic)
