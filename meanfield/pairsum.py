"""Which loop sums the pair forces: direct for few particles, a fast sum with a stated error for many.

=============  =======================================  ==========================  ==============================
method         for                                      cost                        error
=============  =======================================  ==========================  ==============================
"direct"       everything                               N^2                         round-off
"mean"         springs (chosen for them by all          N                           round-off
               methods but "direct")
"sorted"       s = -1 on the line, not softened         N log N                     round-off
"multipole"    every kernel on the line                 N after a sort              at most ``accuracy``
=============  =======================================  ==========================  ==============================

The error of a fast sum is stated relative to the sum of the magnitudes of a particle's pair forces: |error of force k| <= error
sum_l |f_kl|. "auto" takes the fast sum where it was measured to be the faster one (CROSSOVER).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meanfield import _checks
from meanfield._checks import Array
from meanfield.interactions import LOGARITHM, SPRING, Interaction, PairLaw
from meanfield.kernels import line_sums
from meanfield.kernels.trees import forest_lists, tree_depth
from meanfield.pairforces import add_forces

__all__ = ["CROSSOVER", "METHODS", "PairSum"]

METHODS = ("auto", "direct", "sorted", "multipole")
# Particles beyond which the fast sum is the faster one, from ``python bench/fast_sums.py --crossover``.
CROSSOVER = {"mean": 2, "sorted": 32, "line logarithm": 1000, "line power": 400}
# particles per leaf where the near and the far work balance
_LEAF = {"line logarithm": 36, "line power": 36}
_MOST_TOGETHER = 1 << 19  # particles of several runs that are worked on at once: bounds the memory
_LARGEST_ORDER = 64


@dataclass(frozen=True)
class _Term:
    """One interaction, its core, and how it is summed."""

    interaction: Interaction
    divisor: int
    core: float
    period: float | None
    method: str
    error: float = 0.0
    order: int = 0
    spread: float = 0.0

    @property
    def law(self) -> PairLaw:
        """The compiled form; every method but "direct" has one."""
        assert self.interaction.law is not None
        return self.interaction.law

    @property
    def scale(self) -> float:
        """Coupling of the force: |s| of -grad g = |s| r^(-s-2) r_vec belongs to it."""
        law = self.law
        return law.coupling / self.divisor * (abs(law.s) if law.family not in (LOGARITHM, SPRING) else 1.0)

    def add_forces(self, x: Array, out: Array) -> None:
        if self.method == "mean":
            out -= self.scale * x.shape[1] * (x - x.mean(axis=1, keepdims=True))
        elif self.method == "sorted":
            order = np.argsort(x[..., 0], axis=1, kind="stable")
            line_sums.add_sorted_forces(x, order, self.scale, self.core, out)
        elif self.method == "direct" or not self._add_multipole(x, out):
            add_forces(self.interaction, x, self.divisor, self.core**2, self.period, out)

    def _add_multipole(self, x: Array, out: Array) -> bool:
        """False where the points are such that no tree helps; nothing has been added then."""
        n_runs, n, dim = x.shape
        depth = tree_depth(n, _LEAF[_case(self.law, dim)])
        order = np.argsort(x[..., 0], axis=1, kind="stable")
        xs = np.take_along_axis(x[..., 0], order, axis=1)
        n_nodes = (2 << depth) - 1
        centre, radius = np.empty((n_runs, n_nodes, 1)), np.empty((n_runs, n_nodes))
        line_sums.plant(xs, depth, centre, radius)
        far_start, far, near_start, near, longest_far, longest_near = forest_lists(
            centre, radius, depth, self.spread, 1.0, self.core)
        if longest_far < 0:
            return False
        law = (self.law.family, -0.5 * self.law.s - 1.0, self.law.softening**2, self.core**2)
        points, matrix = _chebyshev(self.order)
        up, local = np.zeros((2, n_runs, n_nodes, self.order))
        line_sums.rise(xs, depth, centre, radius, points, matrix, up)
        line_sums.cross(centre, radius, points, up, far_start, far, longest_far, law, local)
        line_sums.fall(xs, order, depth, centre, radius, points, matrix, near_start, near, longest_near, law, self.scale,
                       local, out)
        return True


@dataclass(frozen=True)
class PairSum:
    """The pair forces of all interactions of a problem, with the method of each and its stated error."""

    terms: tuple[_Term, ...]

    @classmethod
    def plan(cls, interactions: Sequence[Interaction], cores: Sequence[float], *, n_particles: int, dim: int,
             period: float | None = None, method: str = "auto", accuracy: float = 1e-12) -> PairSum:
        """Choose a method for each interaction. ``cores`` are the radii below which forces are linear (docs/decisions/0002).

        Forces are divided by n_particles - 1 (method.md 4). On a torus (``period``) sums are direct. Raises ValueError for a
        method that an interaction does not have.
        """
        _checks.choice("method", method, METHODS)
        accuracy = _checks.number("accuracy", accuracy)
        if not 1e-13 <= accuracy <= 0.1:
            raise ValueError(f"accuracy must be between 1e-13 and 0.1 (take method=\"direct\" for round-off), got {accuracy!r}")
        if n_particles == 1:
            return cls(())
        terms = []
        for interaction, core in zip(interactions, cores, strict=True):
            law = None if period is not None else interaction.law
            chosen = _choose(law, n_particles, dim, method, accuracy)
            if chosen == "multipole" and law is not None:
                order, spread, error = line_order(law.s, accuracy)
                terms.append(_Term(interaction, n_particles - 1, core, period, chosen, error, order, spread))
            else:
                terms.append(_Term(interaction, n_particles - 1, core, period, chosen))
        return cls(tuple(terms))

    @property
    def method(self) -> str:
        """Names of the methods, one for each law."""
        return ", ".join(term.method for term in self.terms) or "none"

    @property
    def errors(self) -> tuple[float, ...]:
        """Stated error of each law, 0 for sums that are exact up to round-off."""
        return tuple(term.error for term in self.terms)

    def add_forces(self, x: Array, out: Array) -> None:
        """out[r, k] += sum_{l != k} of the pair forces / (N - 1), for x over (run, particle, component)."""
        together = max(1, _MOST_TOGETHER // x.shape[1])
        for term in self.terms:
            if term.method != "multipole":
                term.add_forces(x, out)
                continue
            for first in range(0, x.shape[0], together):
                term.add_forces(x[first:first + together], out[first:first + together])


def _case(law: PairLaw, dim: int) -> str | None:
    """The row of CROSSOVER that a law falls into; None if it has no fast sum."""
    if law.family == SPRING:
        return "mean"
    if dim != 1:
        return None
    if law.s == -1 and law.softening == 0:
        return "sorted"
    return "line logarithm" if law.family == LOGARITHM else "line power"


def _choose(law: PairLaw | None, n: int, dim: int, method: str, accuracy: float) -> str:
    if law is None:
        if method in ("auto", "direct"):
            return "direct"
        raise ValueError(f"method {method!r} is for Riesz kernels and springs without a period; take \"auto\" or \"direct\"")
    case = _case(law, dim)
    if method == "direct" or (method == "auto" and (case is None or n < CROSSOVER[case])):
        return "direct"
    if case == "mean":
        return "mean"
    possible = case is not None and (case == "sorted" or line_order(law.s, accuracy)[0] <= _LARGEST_ORDER)
    if method == "auto":
        return ("sorted" if case == "sorted" else "multipole") if possible else "direct"
    if method == "sorted" and case != "sorted":
        raise ValueError(f"method 'sorted' is for s = -1 without softening on the line, got s = {law.s:g}, softening = "
                         f"{law.softening:g} in {dim} dimension(s)")
    if method == "multipole" and not possible:
        raise ValueError(f"method 'multipole' is for kernels on the line, got s = {law.s:g} in {dim} dimension(s)")
    return method


def line_order(s: float, accuracy: float) -> tuple[int, float, float]:
    """Chebyshev points a node, the spread of far nodes (trees.py) and the stated error on the line.

    Interpolation converges like rho^-p, rho = z + sqrt(z^2 - 1), z = 1 + spread: the kernel's singularity lies at z in units of
    the node. The constant 3 7^s holds for uniform, normal, clustered, Cauchy, two-scale, lattice and repeated points
    (tests/unit/test_fast_sums.py); steeper kernels vary more over a node. The order is the least multiple of four (the loops'
    stride) with spread <= 2.5, where both kinds of work balance.
    """
    constant = 3.0 * 7.0 ** max(s, 0.0)
    for order in range(4, 4 * _LARGEST_ORDER, 4):
        rho = max((constant / accuracy) ** (1.0 / order), 2.0 + math.sqrt(3.0))
        spread = 0.5 * (rho + 1.0 / rho) - 1.0
        if spread <= 2.5:
            break
    return order, spread, constant * rho**-order


@functools.cache
def _chebyshev(order: int) -> tuple[Array, Array]:
    points, matrix = line_sums.chebyshev(order)
    return points, matrix
