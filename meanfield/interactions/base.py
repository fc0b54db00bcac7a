"""What a pair interaction is, how a user writes his own, and ``NoInteraction``.

A Morse interaction of one's own, ten lines of NumPy (add ``@mf.register`` and ``example(dim)`` to have the laws run on it)::

    @dataclass(frozen=True)
    class Morse(mf.Interaction):
        depth: float = 1.0
        formula = "g(r) = depth (exp(-2 r) - 2 exp(-r))"

        def value(self, r):
            return self.depth * (np.exp(-2 * r) - 2 * np.exp(-r))

        def derivative(self, r):
            return self.depth * (2 * np.exp(-r) - 2 * np.exp(-2 * r))

Its pair sums run in NumPy blocks of the pair matrix, some 7-15 ns a pair on one core. A few more lines buy a compiled
force loop: 3-6 ns a pair for a weight of sums, products and divisions, 8-12 (little gained) for one with ``exp``, which
Numba does not vectorise::

    @numba.njit
    def morse_weight(q, p):  # -g'(r) / r at q = r^2 > 0, p = parameters
        r = math.sqrt(q)
        return p[0] * (2 * math.exp(-2 * r) - 2 * math.exp(-r)) / r

    class Morse(mf.Interaction):
        ...
        weight = staticmethod(morse_weight)

        @property
        def parameters(self):
            return (self.depth,)

Numba cannot cache a loop that takes a function of the user's, so the first step of every process compiles it (one to
two seconds); instances with other parameters share it. ``weight`` is compared with ``derivative`` at two distances.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from meanfield._checks import Array
from meanfield.interactions.averages import double_averages, graded_sphere_average
from meanfield.registry import register

__all__ = ["LOGARITHM", "POWER", "SPRING", "Interaction", "NoInteraction", "PairLaw"]

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
    """A pair energy g(x - y), strength included; radial, g(|x - y|), unless a class says otherwise.

    A subclass has ``formula``, ``value`` and ``derivative`` (NumPy functions of an array of distances); the rest is
    here. Without a ``law`` the pair sums of ``simulate`` and ``hamiltonian`` go through ``gradient`` and ``energy`` in
    blocks of the pair matrix, or, where the class has a ``weight``, the forces through a compiled loop.
    """

    kind: ClassVar[str] = "interaction"
    radial: ClassVar[bool] = True
    # or the user's jitted function (q, parameters) -> -g'(r) / r at q = r^2 > 0, with the instance's ``parameters``
    weight: ClassVar[Any] = None

    @property
    @abstractmethod
    def formula(self) -> str:
        """The formula with this instance's numbers."""

    @property
    def law(self) -> PairLaw | None:
        """The form that the package's compiled loops know, or None."""
        return None

    @property
    def parameters(self) -> tuple[float, ...]:
        """The numbers that ``weight`` is told."""
        return ()

    @abstractmethod
    def value(self, r: Array) -> Array:
        """g at distances r >= 0; a singular kernel is +-inf at 0, never NaN."""

    @abstractmethod
    def derivative(self, r: Array) -> Array:
        """g' at distances r; 0 at r = 0 by the rule for coincident pairs."""

    def energy(self, displacement: Array) -> Array:
        """g at displacements (..., component); shape (...)."""
        return self.value(np.sqrt(np.square(displacement).sum(axis=-1)))

    def gradient(self, displacement: Array) -> Array:
        """grad g at displacements (..., component), 0 at 0; same shape."""
        r = np.sqrt(np.square(displacement).sum(axis=-1, keepdims=True))
        r = np.where(r > 0, r, 1.0)  # a displacement of 0 times any finite number is 0: g' at 0 is never asked for
        return self.derivative(r) / r * displacement

    @property
    def singular(self) -> bool:
        """Whether g or its force is unbounded (or has no direction) at r = 0."""
        return False

    def integrable(self, dim: int) -> bool:
        """Whether the energy of some density is finite in that dimension."""
        return True

    def cell_averages(self, width: float, count: int) -> Array:
        """Exact double averages over two cells of the line, (1 / h^2) iint g(|x - y|) dx dy, at offsets 0 .. count - 1."""
        return double_averages(self, (width,), (count,))[count - 1:]

    def corner_moments(self, widths: tuple[float, ...]) -> Array | None:
        """Closed forms for the cell at the singularity (``averages.double_averages``), or None for graded quadrature."""
        return None

    def sphere_average(self, r: Array, gap: Array, dim: int) -> Array:
        """The mean of g(|x - y|) over the directions of y for |x| = r and |y| = r + gap, gap >= 0, in dim >= 2."""
        return graded_sphere_average(self, r, gap, dim)


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

    def value(self, r: Array) -> Array:
        return np.zeros(np.shape(r))

    def derivative(self, r: Array) -> Array:
        return np.zeros(np.shape(r))
