"""Which loop sums the pair forces: direct for few particles, a fast sum with a stated error for many.

=============  =======================================  ==========================  ==============================
method         for                                      cost                        error
=============  =======================================  ==========================  ==============================
"direct"       everything                               N^2                         round-off
"mean"         springs (chosen for them by all          N                           round-off
               methods but "direct")
"sorted"       s = -1 on the line, not softened         N log N                     round-off
"multipole"    every kernel on the line; the logarithm  N after a sort              at most ``accuracy``
               in the plane
"library"      Coulomb in space (s = 1, not softened)   N log N                     about ``accuracy``
=============  =======================================  ==========================  ==============================

The error of a fast sum is stated relative to the sum of the magnitudes of a particle's pair forces: |error of force k| <=
error sum_l |f_kl|. "auto" takes the fast sum where it was measured to be the faster one (CROSSOVER). "library" needs fmm3dpy
(``pip install meanfield[fast3d]``), whose own error is a mean over particles; "auto" takes it where it is installed, and
which sum was taken is in ``method``.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from meanfield import _checks
from meanfield._checks import Array
from meanfield.interactions import LOGARITHM, POWER, SPRING, Interaction, PairLaw
from meanfield.kernels import line_sums, plane_sums
from meanfield.kernels.plane_expansions import binomials
from meanfield.kernels.sorted_sums import add_sorted_forces
from meanfield.kernels.trees import forest_lists, tree_depth
from meanfield.pairforces import add_forces

__all__ = ["CROSSOVER", "METHODS", "PairSum"]

METHODS = ("auto", "direct", "sorted", "multipole", "library")
# Particles beyond which the fast sum is the faster one, from ``python bench/fast_sums.py --crossover``.
CROSSOVER = {"mean": 2, "sorted": 32, "line logarithm": 1000, "line power": 400, "plane logarithm": 3000}
# The library's depends on the accuracy asked for: (accuracy, particles), from ``bench/fast_sums.py`` in three dimensions.
LIBRARY_CROSSOVER = ((1e-3, 50_000), (1e-6, 120_000), (1e-9, 350_000), (0.0, 1_000_000))
# particles per leaf where the near and the far work balance
_LEAF = {"line logarithm": 36, "line power": 36, "plane logarithm": 48}
_MOST_TOGETHER = 1 << 19  # particles of several runs that are worked on at once: bounds the memory
_LARGEST_ORDER = 64
# far discs of the plane: (r_A + r_B) / distance at most this
_PLANE_RATIO = 0.6
# The bound of plane_expansions.py takes all particles on the rims of their discs and in phase; the error was never above a
# twentieth of it, so pairs are given this much more: the bound that holds for any points is so many times the stated error.
_PLANE_SLACK = 8.0


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
            near = x - x[:, :1]  # about the first particle: a narrow cloud far from the origin keeps its digits
            out -= self.scale * x.shape[1] * (near - near.mean(axis=1, keepdims=True))
        elif self.method == "sorted":
            order = np.argsort(x[..., 0], axis=1)  # ties: the same position, the same force
            add_sorted_forces(x, order, self.scale, self.core, out)
        elif self.method == "library":
            for run in range(x.shape[0]):
                out[run] += self.scale * _library_forces(x[run], self.core, self.error)
        elif self.method == "direct" or not self._add_multipole(x, out):
            add_forces(self.interaction, x, self.divisor, self.core**2, self.period, out)

    def _add_multipole(self, x: Array, out: Array) -> bool:
        """False where the points are such that no tree helps; nothing has been added then."""
        depth = tree_depth(x.shape[1], _LEAF[_case(self.law, x.shape[2])])
        return (self._add_on_line if x.shape[2] == 1 else self._add_in_plane)(x, depth, out)

    def _add_on_line(self, x: Array, depth: int, out: Array) -> bool:
        n_runs, n_nodes, law = x.shape[0], (2 << depth) - 1, self.law
        order = np.argsort(x[..., 0], axis=1)  # ties: the same position, the same force
        xs = np.take_along_axis(x[..., 0], order, axis=1)
        centre, radius = np.empty((n_runs, n_nodes, 1)), np.empty((n_runs, n_nodes))
        line_sums.plant(xs, depth, centre, radius)
        far_start, far, near_start, near, longest_far, longest_near = forest_lists(
            centre, radius, depth, self.spread, 1.0, self.core)
        if longest_far < 0:
            return False
        pair = (law.family, -0.5 * law.s - 1.0, law.softening**2, self.core**2)
        points, matrix = _chebyshev(self.order)
        up, local = np.zeros((2, n_runs, n_nodes, self.order))
        line_sums.rise(xs, depth, centre, radius, points, matrix, up)
        line_sums.cross(centre, radius, points, up, far_start, far, longest_far, pair, local)
        line_sums.fall(xs, order, depth, centre, radius, points, matrix, near_start, near, longest_near, pair, self.scale,
                       local, out)
        return True

    def _add_in_plane(self, x: Array, depth: int, out: Array) -> bool:
        n_runs, n, _ = x.shape
        n_nodes, law = (2 << depth) - 1, self.law
        px, py = x[..., 0].copy(), x[..., 1].copy()
        order = np.broadcast_to(np.arange(n), (n_runs, n)).copy()
        centre, radius = np.empty((n_runs, n_nodes, 2)), np.empty((n_runs, n_nodes))
        plane_sums.plant(px, py, order, depth, centre, radius)
        # half of the error for the far pairs' missing softening, (softening / distance)^2, half for their expansions
        clearance = max(self.core, law.softening / math.sqrt(0.5 * self.error))
        far_start, far, near_start, near, longest_far, longest_near = forest_lists(
            centre, radius, depth, 0.0, _PLANE_RATIO, clearance)
        if longest_far < 0:
            return False
        table, factorial = _binomials(self.order)
        up, local = np.zeros((2, n_runs, n_nodes, 2, self.order))
        plane_sums.rise(px, py, depth, centre, radius, factorial, up)
        plane_sums.cross(centre, radius, table, up, far_start, far, math.log(0.5 * _PLANE_SLACK * self.error), local)
        plane_sums.fall(px, py, order, depth, centre, radius, factorial, near_start, near, longest_near,
                        (law.softening**2, self.core**2), self.scale, local, out)
        return True


@dataclass(frozen=True)
class PairSum:
    """The pair forces of all interactions of a problem, with the method of each and its stated error."""

    terms: tuple[_Term, ...]

    @classmethod
    def plan(cls, interactions: Sequence[Interaction], cores: Sequence[float], *, n_particles: int, dim: int,
             period: float | None = None, method: str = "auto", accuracy: float = 1e-12) -> PairSum:
        """Choose a method for each interaction. ``cores``: radii below which forces are linear (docs/decisions/0002).

        Forces are divided by n_particles - 1 (method.md 4). On a torus (``period``) sums are direct. Raises ValueError for a
        method that an interaction does not have.
        """
        _checks.choice("method", method, METHODS)
        accuracy = _checks.number("accuracy", accuracy)
        if not 1e-13 <= accuracy <= 0.1:
            raise ValueError(f"accuracy must be between 1e-13 and 0.1 (method=\"direct\" has round-off), got {accuracy!r}")
        if n_particles == 1:
            return cls(())
        terms = []
        for interaction, core in zip(interactions, cores, strict=True):
            law = None if period is not None else interaction.law
            chosen = _choose(law, n_particles, dim, method, accuracy)
            if chosen in ("multipole", "library") and law is not None:
                order, spread, error = line_order(law.s, accuracy) if dim == 1 else plane_order(accuracy)
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


def _case(law: PairLaw, dim: int) -> str:
    """The row of CROSSOVER that a law falls into; "none" if it has no fast sum."""
    if law.family == SPRING:
        return "mean"
    if dim == 2 and law.family == LOGARITHM:
        return "plane logarithm"
    if dim == 3 and law.family == POWER and law.s == 1 and law.softening == 0:
        return "library"
    if dim != 1:
        return "none"
    if law.s == -1 and law.softening == 0:
        return "sorted"
    return "line logarithm" if law.family == LOGARITHM else "line power"


def _choose(law: PairLaw | None, n: int, dim: int, method: str, accuracy: float) -> str:
    if law is None:
        if method in ("auto", "direct"):
            return "direct"
        raise ValueError(f"method {method!r} is for Riesz kernels and springs without a period; take 'auto' or 'direct'")
    case = _case(law, dim)
    if case == "mean" and method != "direct":
        return "mean" if method != "auto" or n >= CROSSOVER["mean"] else "direct"
    fast = {"none": "direct", "sorted": "sorted", "library": "library"}.get(case, "multipole")
    if case.startswith("line") and line_order(law.s, accuracy)[0] > _LARGEST_ORDER:
        fast = "direct"
    if method == "auto":
        if fast == "library":
            least = next(count for bound, count in LIBRARY_CROSSOVER if accuracy >= bound)
            return "library" if n >= least and importlib.util.find_spec("fmm3dpy") else "direct"
        return fast if fast == "direct" or n >= CROSSOVER[case] else "direct"
    sums = {"sorted": "s = -1 without softening on the line",
            "multipole": "kernels on the line and the logarithm in the plane",
            "library": "s = 1 without softening in space"}
    # without softening s = -1 is a kernel on the line as any other
    if method not in ("direct", fast) and not (method == "multipole" and case == "sorted"):
        raise ValueError(f"method {method!r} is for {sums[method]}, got s = {law.s:g}, softening = {law.softening:g} in "
                         f"{dim} dimension(s)")
    if method == "library" and not importlib.util.find_spec("fmm3dpy"):
        raise ValueError("method 'library' needs fmm3dpy, which is not installed; pip install meanfield[fast3d]")
    return method


def line_order(s: float, accuracy: float) -> tuple[int, float, float]:
    """Chebyshev points a node, the spread of far nodes (trees.py) and the stated error on the line.

    Interpolation converges like rho^-p, rho = z + sqrt(z^2 - 1), z = 1 + spread: the kernel's singularity lies at z in
    units of the node. The constant 4 8^s is fitted: it holds for uniform, normal, clustered, Cauchy, two-scale, lattice
    and repeated points (tests/unit/test_fast_sums.py); steeper kernels vary more over a node. The order is the least
    multiple of four (the loops' stride) with spread <= 1.6, where both kinds of work balance.
    """
    constant = 4.0 * 8.0 ** max(s, 0.0)
    for order in range(4, 4 * _LARGEST_ORDER, 4):
        rho = max((constant / accuracy) ** (1.0 / order), 2.0 + math.sqrt(3.0))
        spread = 0.5 * (rho + 1.0 / rho) - 1.0
        if spread <= 1.6:
            break
    return order, spread, constant * rho**-order


def plane_order(accuracy: float) -> tuple[int, float, float]:
    """Most terms that a far pair of the plane can need, no spread, and the stated error."""
    bound = 0.5 * _PLANE_SLACK * accuracy * (1.0 - _PLANE_RATIO) / (1.0 + _PLANE_RATIO)
    return max(2, math.ceil(math.log(bound) / math.log(_PLANE_RATIO))), 0.0, accuracy


@functools.cache
def _binomials(order: int) -> tuple[Array, Array]:
    table, factorial = binomials(order)
    return table, factorial


@functools.cache
def _chebyshev(order: int) -> tuple[Array, Array]:
    points, matrix = line_sums.chebyshev(order)
    return points, matrix


def _library_forces(x: Array, core: float, accuracy: float) -> Array:
    """sum_l (x_k - x_l) / max(|x_k - x_l|, core)^3 over (particle, component=3) by fmm3dpy."""
    import fmm3dpy

    # the gradient of sum_l 1 / (4 pi r); close pairs leave the library's sum and come back with the core's linear force
    gradient = fmm3dpy.lfmm3d(eps=accuracy, sources=np.ascontiguousarray(x.T), charges=np.ones(len(x)), pg=2).grad
    total: Array = -4.0 * math.pi * gradient.T
    pairs = cKDTree(x).query_pairs(core, output_type="ndarray") if core > 0 else np.empty((0, 2), dtype=np.intp)
    d = x[pairs[:, 0]] - x[pairs[:, 1]]
    r = np.sqrt(np.square(d).sum(axis=1))
    change = d * (core**-3.0 - np.divide(1.0, r**3, out=np.zeros_like(r), where=r > 0))[:, None] if len(pairs) else d
    np.add.at(total, pairs[:, 0], change)
    np.subtract.at(total, pairs[:, 1], change)
    return total
