"""Decay rates at a rest state: the spectrum of the McKean-Vlasov operator linearised there, as ``solve`` discretises it.

A small mass p = volume h put on a rest state rho decays by (to first order, exactly for the Scharfetter-Gummel fluxes)

    dp/dt = -K (T p / m + g p),   m = volume rho,

with K the Laplacian of the graph of cells whose faces conduct c B(z) rho_i, z = log rho_i - log rho_{i+1}. In y = p / q with
q = sqrt(m) that is dy/dt = -A S y with A = q^{-1} K q^{-1} (the Fokker-Planck operator made symmetric, times beta) and
S = T + q g q, the second derivative of F_beta. A S is self-adjoint in the metric of A^+, the linearised Wasserstein metric,
so its eigenvalues are real, and as many are negative as S has negative directions: stable is where F_beta is convex.

The slowest rates are the largest 1 / rate of A^+ y = (1 / rate) S y, found by Lanczos with a sparse factor of A.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import coo_array, csc_array
from scipy.sparse.linalg import LinearOperator, cg, eigsh, splu

from meanfield import _checks
from meanfield._checks import Array
from meanfield._numba import one_blas_thread
from meanfield.dataset import dataset
from meanfield.equilibrium.newton import DENSE, Linear, State
from meanfield.equilibrium.rest import accepted_rest, image_of
from meanfield.mesh import Grid, Mesh, mesh_of
from meanfield.problem import Problem

__all__ = ["Modes", "modes", "spectral_gap"]


Cells = NDArray[np.int64]
_SHIFTS = 30  # of the metric, each four times the last
_TOO_STIFF = ("the rates of this state differ by more than double precision can tell apart (a density as narrow as its "
              "cells); take more cells or a smaller inverse_temperature")
_NEUTRAL = 1e-6  # smallest part of the temperature that counts as a positive second derivative


class Modes(NamedTuple):
    """Decay rates in increasing order, and the densities h (mode, cells) that decay so."""

    rates: Array
    densities: Array


@one_blas_thread()
def spectral_gap(problem: Problem, grid: Grid, *, density: Any = None, n_modes: int = 1) -> xr.Dataset:
    """The slowest decay rates of small perturbations of a rest state: h(t) = h exp(-rate t).

    Without interaction they are the eigenvalues of the Fokker-Planck operator, and the first is its spectral gap, the rate
    at which every density comes to rest. With interaction they are those of the McKean-Vlasov operator linearised at rho,

        L h = div(rho grad(h / (beta rho) + g * h)),

    and a negative rate is that of a growing perturbation: the rest state is unstable.

    Args:
        problem: of finite inverse temperature.
        grid: cells.
        density: the rest state, as a Dataset of ``gibbs`` or as cell averages; default the one of ``gibbs``.
        n_modes: how many rates.

    Returns a Dataset with ``decay_rate`` over ``mode``, in increasing order, ``mode_density`` over (mode, cells), whose
    absolute value integrates to 1, and the ``density`` of the rest state. Second order in the cell width.

    Raises ValueError for an infinite inverse temperature or a density that is not at rest.

    Source: Risken, The Fokker-Planck Equation (1989), 5.4; method.md (7.4), (7.5).
    """
    mesh = mesh_of(problem, grid)
    if math.isinf(problem.inverse_temperature):
        raise ValueError("spectral_gap needs a finite inverse_temperature, got inf")
    n_modes = _checks.count("n_modes", n_modes)
    linear = Linear(mesh)
    now = accepted_rest(linear) if density is None else _given(mesh, density)
    found = modes(linear, now, n_modes)
    return dataset("spectral_gap", {"decay_rate": found.rates, "mode_density": found.densities, "density": now.density},
                   {"mode": np.arange(len(found.rates)), **dict(zip(mesh.names, mesh.centers, strict=True))},
                   settings={"problem": problem, "cells": grid.cells, "n_modes": n_modes})


def _given(mesh: Mesh, density: Any) -> State:
    values = density["density"] if isinstance(density, xr.Dataset) else density
    rho, _ = mesh.density(np.asarray(values))
    now = image_of(mesh, rho)
    if not now.residual <= 1e-6:
        raise ValueError(f"the density must be a rest state (of gibbs or stationary_states on the same grid), but one "
                         f"fixed-point map changes its logarithm by {now.residual:.3g}")
    return now


def modes(linear: Linear, now: State, count: int) -> Modes:
    """The slowest modes at a rest state."""
    mesh = linear.mesh
    inside = np.flatnonzero(mesh.volumes.ravel() > 0)
    q = np.sqrt(mesh.volumes * now.density).ravel()[inside]
    count = min(count, inside.size - 1)
    inverse = _pseudo_inverse(_laplacian(mesh, now.log_density, inside), q)
    n = inside.size
    first = np.random.default_rng(0).standard_normal(n)
    first -= q * (q @ first)
    options: dict[str, Any] = {"v0": first, "which": "LA", "ncv": min(n, max(2 * count + 1, 24))}
    largest = LinearOperator((n, n), matvec=inverse, dtype=np.float64)
    if count >= n - 1:  # Lanczos wants room
        return _whole(linear, now, inside, q, inverse, count)
    if mesh.convolution is None:
        theta, y = eigsh(largest, count, **options)
        shift, rates = 0.0, mesh.problem.temperature / theta
    else:
        metric = _Metric(linear, now, inside, q, inverse)
        theta, y = eigsh(largest, count, M=LinearOperator((n, n), matvec=metric.product, dtype=np.float64),
                         Minv=LinearOperator((n, n), matvec=metric.solve, dtype=np.float64), **options)
        shift = metric.shift
        rates = 1.0 / theta - shift
    return _sorted(linear, inside, q, rates, y)


def _sorted(linear: Linear, inside: Cells, q: Array, rates: Array, y: Array) -> Modes:
    order = np.argsort(rates)
    volumes = linear.volumes.ravel()[inside]
    densities = np.zeros((order.size, linear.volumes.size))
    for row, k in enumerate(order):
        mass = q * y[:, k]
        mass = mass * np.sign(mass[int(np.argmax(np.abs(mass)))]) / np.abs(mass).sum()
        densities[row, inside] = mass / volumes
    return Modes(rates[order], densities.reshape(order.size, *linear.mesh.shape))


def _whole(linear: Linear, now: State, inside: Cells, q: Array, inverse: Callable[[Array], Array], count: int) -> Modes:
    """All modes of a mesh of a few cells, by dense matrices."""
    unit = np.eye(inside.size)
    metric = np.array([inverse(row) for row in unit]) + np.outer(q, q)
    root = np.linalg.cholesky(metric)
    second = _second_derivative(linear, now, inside, q)
    second += float(np.abs(second).sum() / np.linalg.eigvalsh(metric)[0]) * np.outer(q, q)  # q last
    reduced = np.linalg.solve(root, np.linalg.solve(root, second).T)
    rates, y = np.linalg.eigh(0.5 * (reduced + reduced.T))
    y = np.linalg.solve(root.T, y)
    return _sorted(linear, inside, q, rates[:count], y[:, :count])


class _Metric:
    """P (S + shift A^+) P + q q^T, with the smallest shift that makes it positive: 0 where the rest state is stable."""

    def __init__(self, linear: Linear, now: State, inside: Cells, q: Array, inverse: Callable[[Array], Array]) -> None:
        self.linear, self.inside, self.q, self.inverse = linear, inside, q, inverse
        self.temperature = linear.mesh.problem.temperature
        self.shift = 0.0
        n = inside.size
        self._factor: Any = None
        probe = np.random.default_rng(1).standard_normal(n)
        trial = self.temperature * float(np.linalg.norm(probe) / np.linalg.norm(inverse(probe)))
        if n <= DENSE:
            dense = _second_derivative(linear, now, inside, q)
            pseudo = None
            for _ in range(_SHIFTS):
                try:
                    matrix = dense if pseudo is None else dense + self.shift * pseudo
                    factor = cho_factor(matrix, lower=True, check_finite=False)
                    # a neutral direction (a shift along a period) is no basis for an inverse either: its smallest eigenvalue
                    size, vector = 0.0, probe
                    for _power in range(12):
                        vector = cho_solve(factor, vector / np.linalg.norm(vector), check_finite=False)
                        size = 1.0 / float(np.linalg.norm(vector))
                    if size > _NEUTRAL * self.temperature:
                        self._factor = factor
                        return
                except LinAlgError:
                    pass
                pseudo = np.array([inverse(row) for row in np.eye(n)]) if pseudo is None else pseudo
                self.shift = 4.0 * self.shift or trial
            raise ArithmeticError(_TOO_STIFF)
        for _ in range(_SHIFTS):
            if eigsh(LinearOperator((n, n), matvec=self.product, dtype=np.float64), 1, which="SA", v0=probe,
                     return_eigenvectors=False, tol=1e-3)[0] > _NEUTRAL * self.temperature:
                return
            self.shift = 4.0 * self.shift or trial
        raise ArithmeticError(_TOO_STIFF)

    def product(self, y: Array) -> Array:
        """The metric's matrix times y."""
        part = y - self.q * (self.q @ y)
        pushed = _second(self.linear, self.inside, self.q, part)
        if self.shift:
            pushed = pushed + self.shift * self.inverse(part)
        result: Array = pushed - self.q * (self.q @ pushed) + self.q * (self.q @ y)
        return result

    def solve(self, y: Array) -> Array:
        """Its inverse times y."""
        if self._factor is not None:
            return np.asarray(cho_solve(self._factor, y, check_finite=False))
        n = y.size
        solution, info = cg(LinearOperator((n, n), matvec=self.product, dtype=np.float64), y, rtol=1e-12, maxiter=5000)
        if info:
            raise ArithmeticError("the linear solves of spectral_gap did not converge; take fewer cells or a smaller "
                                  "inverse_temperature")
        return np.asarray(solution)


def _second(linear: Linear, inside: Cells, q: Array, y: Array) -> Array:
    """S y = T y + q g (q y)."""
    mass = np.zeros(linear.volumes.size)
    mass[inside] = q * y
    phi = linear.mesh.convolve(mass.reshape(linear.mesh.shape) / linear.volumes).ravel()[inside]
    return linear.mesh.problem.temperature * y + q * phi


def _second_derivative(linear: Linear, now: State, inside: Cells, q: Array) -> Array:
    """P S P + q q^T as a matrix."""
    g = linear.matrix()[np.ix_(inside, inside)] if linear.mesh.convolution is not None else np.zeros((q.size, q.size))
    s = q[:, None] * (0.5 * (g + g.T)) * q
    s[np.arange(q.size), np.arange(q.size)] += linear.mesh.problem.temperature
    sq = s @ q
    s -= np.outer(q, sq) + np.outer(sq, q) - (q @ sq + 1.0) * np.outer(q, q)
    return np.asarray(s)


def _laplacian(mesh: Mesh, log_density: Array, inside: Cells) -> csc_array:
    """A: -c chi(z) / sqrt(v_i v_j) between neighbours, chi = (z / 2) / sinh(z / 2); sums of c B(+-z) / v on the diagonal."""
    size = mesh.volumes.size
    number = np.full(size, -1)
    number[inside] = np.arange(inside.size)
    index = np.arange(size).reshape(mesh.shape)
    volumes = mesh.volumes.ravel()
    logs = log_density.ravel()
    rows, columns, entries = [], [], []
    for axis, conductance in enumerate(mesh.conductances):
        i, j = index.ravel(), np.roll(index, -1, axis).ravel()
        c = conductance.ravel()
        faces = np.flatnonzero((c > 0) & (number[i] >= 0) & (number[j] >= 0) & (i != j))
        i, j, c = i[faces], j[faces], c[faces]
        z = logs[i] - logs[j]
        steep = np.clip(np.abs(z), 1e-3, 1400.0)
        with np.errstate(over="ignore"):
            small = np.where(np.abs(z) < 1e-3, 1.0 - 0.5 * np.abs(z) + z * z / 12.0, steep / np.expm1(steep))  # B(|z|)
            chi = np.where(np.abs(z) < 1e-3, 1.0 - z * z / 24.0, 0.5 * steep / np.sinh(0.5 * steep))
        rows += [number[i], number[j], number[i], number[j]]
        columns += [number[j], number[i], number[i], number[j]]
        cross = -c * chi / np.sqrt(volumes[i] * volumes[j])
        # mass leaves cell i at c B(z) / v_i, cell j at c B(-z) / v_j, and B(-z) = B(z) + z
        entries += [cross, cross, c * (small + np.maximum(-z, 0.0)) / volumes[i],
                    c * (small + np.maximum(z, 0.0)) / volumes[j]]
    n = inside.size
    triples = (np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns)))
    return csc_array(coo_array(triples, shape=(n, n)))


def _pseudo_inverse(laplacian: csc_array, q: Array) -> Callable[[Array], Array]:
    """A^+ on the complement of q, the null vector of A: solves with one cell held at 0, the heaviest."""
    held = int(np.argmax(q))
    rest = np.delete(np.arange(q.size), held)
    factor = splu(csc_array(laplacian[rest][:, rest]), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0,
                  options={"SymmetricMode": True})

    def apply(y: Array) -> Array:
        y = np.asarray(y, dtype=np.float64).ravel()
        right = y - q * (q @ y)
        result = np.zeros(q.size)
        result[rest] = factor.solve(right[rest])
        projected: Array = result - q * (q @ result)
        return projected

    return apply
