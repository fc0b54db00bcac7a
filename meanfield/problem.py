"""A problem: domain, potential, interaction and inverse temperature - all that ``simulate``, ``solve`` and ``gibbs`` need.

Energy (method.md 5.1, 7.3): H_N = mean_k V(x_k) + (1 / (2 N (N - 1))) sum_{k != l} g(x_k - x_l) for particles,
F_beta(rho) = int V rho + (1/2) iint g rho rho + (1 / beta) int rho log rho for densities.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain import Domain
from meanfield.interactions import Interaction, NoInteraction, PairLaw
from meanfield.potentials import Potential, Zero

__all__ = ["Problem", "config"]


_ZERO, _NONE = Zero(), NoInteraction()


@dataclass(frozen=True)
class Problem:
    """Domain Omega, potential V, pair interaction g and inverse temperature beta.

    ``potential`` and ``interaction`` may be tuples: they add up. ``inverse_temperature`` is the beta of the noise
    sqrt(2 dt / beta); inf is the gradient flow. Raises TypeError or ValueError naming the argument.
    """

    domain: Domain
    potential: Potential | tuple[Potential, ...] = _ZERO
    interaction: Interaction | tuple[Interaction, ...] = _NONE
    inverse_temperature: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise TypeError(f"domain must be a Domain such as Interval(0, 1), got {self.domain!r}")
        for name, kind in (("potential", Potential), ("interaction", Interaction)):
            given = getattr(self, name)
            terms = given if isinstance(given, tuple) else (given,)
            if not terms or not all(isinstance(term, kind) for term in terms):
                raise TypeError(f"{name} must be one {kind.__name__} or a tuple of them, got {given!r}")
        beta = _checks.positive("inverse_temperature", self.inverse_temperature, infinite=True)
        object.__setattr__(self, "inverse_temperature", beta)

    @property
    def dim(self) -> int:
        """Dimension of the domain."""
        return self.domain.dim

    @property
    def temperature(self) -> float:
        """1 / beta, 0 for the gradient flow."""
        return 1.0 / self.inverse_temperature

    @property
    def potentials(self) -> tuple[Potential, ...]:
        """The terms of V."""
        return self.potential if isinstance(self.potential, tuple) else (self.potential,)

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """The terms of g that do something."""
        terms = self.interaction if isinstance(self.interaction, tuple) else (self.interaction,)
        # a coupling of 0 does nothing; times an infinite energy it would be NaN
        return tuple(term for term in terms if not isinstance(term, NoInteraction)
                     and not (term.law is not None and term.law.coupling == 0))

    @property
    def laws(self) -> tuple[PairLaw, ...]:
        """The compiled forms of the interactions that have one."""
        return tuple(term.law for term in self.interactions if term.law is not None)

    @property
    def formula(self) -> str:
        """All terms in one line."""
        beta = "inf" if math.isinf(self.inverse_temperature) else f"{self.inverse_temperature:g}"
        terms = [p.formula for p in self.potentials] + [g.formula for g in self.interactions]
        return "; ".join([repr(self.domain), *terms, f"beta = {beta}"])

    def potential_value(self, positions: Array) -> Array:
        """V at positions (..., particle, component), all terms; shape (..., particle)."""
        first, *rest = self.potentials
        total = _checked(first, first.value(positions), positions.shape[:-1], "value")
        for term in rest:
            total = total + _checked(term, term.value(positions), positions.shape[:-1], "value")
        return total

    def potential_gradient(self, positions: Array, step: int) -> Array:
        """What step number ``step`` feels of V, all terms; shape of positions."""
        first, *rest = self.potentials
        total = _checked(first, first.step_gradient(positions, step), positions.shape, "gradient")
        for term in rest:
            total = total + _checked(term, term.step_gradient(positions, step), positions.shape, "gradient")
        return total


def _checked(term: Potential, result: Array, shape: tuple[int, ...], what: str) -> Array:
    array = np.asarray(result, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{type(term).__name__}.{what} must return shape {shape}, got {array.shape}")
    return array


def config(value: Any) -> Any:
    """A JSON-ready description of a problem and of everything in it; arrays become shape and digest."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: config(getattr(value, f.name)) for f in dataclasses.fields(value) if f.repr}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "sha256": hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}
    if isinstance(value, dict):
        return {str(k): config(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [config(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
