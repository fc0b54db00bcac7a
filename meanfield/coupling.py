"""Steps that are implicit in the interaction too, for kernels so stiff that a frozen g * rho would need tiny ones.

Each stage of the SDIRK2 rule solves (1 + tau L[V + g * rho]) q = rhs for q: with q = S(phi) the positive, conservative linear
solve at a given phi = g * rho, it is the fixed point phi = g * S(phi), found by Newton's method, so that every iterate is
positive and keeps mass. For implicit Euler steps the free energy falls whatever tau where g is positive definite: F is
convex and the flow of each face runs down xi = U + T log rho (method.md 7.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from meanfield._checks import Array
from meanfield.kernels.cells import add_inflow, blend_to_positive
from meanfield.mesh import Mesh
from meanfield.sweeps import GAMMA, Faces, Sweep

if TYPE_CHECKING:
    from meanfield.stepping import State

__all__ = ["Coupling", "gmres"]

_NEWTON = 40
_LEAST_DAMPING = 0.01
_LIMITER_UPDATES = 2  # Newton steps after which the limiter's factors stay as they are
_KRYLOV = 60
_FLOOR = 1e-300


def gmres(apply: Callable[[Array], Array], rhs: Array, tolerance: float, most: int = _KRYLOV) -> Array:
    """x with |apply(x) - rhs| <= tolerance |rhs|, or the best after ``most`` steps (Saad and Schultz 1986)."""
    size = math.sqrt(float(np.square(rhs).sum()))
    if size == 0.0:
        return np.zeros_like(rhs)
    # Givens rotations keep the triangle of the least squares problem up to date, and its residual is |target_{k+1}|
    basis, triangle, target = [rhs / size], np.zeros((most + 1, most)), np.zeros(most + 1)
    turns: list[tuple[float, float]] = []
    target[0] = size
    for k in range(most):
        new = apply(basis[k])
        column = triangle[:, k]
        for i in range(k + 1):
            column[i] = float((basis[i] * new).sum())
            new = new - column[i] * basis[i]
        left = math.sqrt(float(np.square(new).sum()))
        for i, (cosine, sine) in enumerate(turns):
            column[i], column[i + 1] = cosine * column[i] + sine * column[i + 1], cosine * column[i + 1] - sine * column[i]
        length = math.hypot(column[k], left)
        if length == 0.0:
            break
        turns.append((column[k] / length, left / length))
        column[k] = length
        target[k], target[k + 1] = turns[k][0] * target[k], -turns[k][1] * target[k]
        if abs(target[k + 1]) <= tolerance * size or left <= 1e-14 * length:
            break
        basis.append(new / left)
    n = len(turns)
    weights = solve_triangular(triangle[:n, :n], target[:n])
    result = np.zeros_like(rhs)
    for weight, direction in zip(weights, basis, strict=False):
        result += weight * direction
    return result


class Coupling:
    """How stiff the interaction is, and steps that are implicit in it."""

    def __init__(self, mesh: Mesh, sweeps: list[Sweep], weights: Array) -> None:
        self.mesh, self.sweeps, self.weights = mesh, sweeps, weights
        self.temperature = mesh.problem.temperature
        self._potential = np.ascontiguousarray(mesh.potential, dtype=np.float64)
        self._symbols = [_symbol(mesh, sweep, axis) for axis, sweep in enumerate(sweeps)]
        # the kernel between neighbouring cells, read as a multiple of the identity: what the preconditioner knows of g
        self._local = [max(float(symbol[-1]), 0.0) for symbol, _ in self._symbols]
        self._faces = [Faces(sweep.shape) for sweep in sweeps]
        self.solves = 0

    def frozen_limit(self, peak: float) -> float:
        """About the longest step that a frozen interaction stands on a density that reaches ``peak``.

        A wave of the density decays at the rate kappa (T + peak ghat), the second part taken at the middle of the step from
        an implicit Euler step: stable for dt kappa (peak ghat - T) up to about 2.
        """
        fastest = sum(max(float((rate * (peak * symbol - 0.8 * self.temperature)).max()), 0.0)
                      for symbol, rate in self._symbols)
        return 1.6 / fastest if fastest > 0 else np.inf

    def step(self, now: State, dt: float, limited: bool, tolerance: float, out: Array) -> bool:
        """One step of length dt into ``out``; False if Newton's method does not converge to ``tolerance`` (sum of |q|)."""
        q, drift = now.q, now.drift
        order = [(0, dt)] if len(self.sweeps) == 1 else [(0, 0.5 * dt), (1, dt), (0, 0.5 * dt)]
        for axis, tau in order:
            found = self._sdirk2(axis, q, tau, drift, limited, tolerance)
            if found is None:
                return False
            q, drift = found
        out[:] = q
        return True

    def _sdirk2(self, axis: int, start: Array, tau: float, drift: Array, limited: bool,
                tolerance: float) -> tuple[Array, Array] | None:
        first = self._stage(axis, start, start, GAMMA * tau, drift, limited, tolerance)
        if first is None:
            return None
        rhs = start + (1.0 - GAMMA) / GAMMA * (first[0] - start)
        if rhs.min() < 0.0:
            # an extrapolation of flows: cut where they would empty a cell
            sweep = self.sweeps[axis]
            low, high = (sweep.enter(a, np.empty(sweep.shape)) for a in (first[0], rhs))
            lines = np.empty(sweep.shape)
            blend_to_positive(low, high, lines)
            rhs = sweep.leave(lines, np.empty(self.mesh.shape))
        ahead = np.maximum(start + (first[0] - start) / GAMMA, 0.0)  # a straight line in time as first guess
        drift = self._potential + self.mesh.convolve(ahead / self.weights)
        return self._stage(axis, ahead, rhs, GAMMA * tau, drift, limited, tolerance)

    def damp(self, state: State, error: Array, step: float) -> Array:
        """(1 + step L)^{-1} error along each axis, the local part of the interaction in L."""
        for axis, sweep in enumerate(self.sweeps):
            up, down = self._local_coefficients(axis, state.faces[axis], sweep.enter(state.q, np.empty(sweep.shape)))
            lines = np.empty(sweep.shape)
            sweep.solve(up, down, step, sweep.enter(error, np.empty(sweep.shape)), lines)
            error = sweep.leave(lines, np.empty(self.mesh.shape))
        return error

    def _local_coefficients(self, axis: int, faces: Faces, lines: Array) -> tuple[Array, Array]:
        """Coefficients of L with the local part of the interaction: up and down grow by c mobility / weight."""
        sweep = self.sweeps[axis]
        mobile = np.empty(sweep.shape)
        sweep.mobility(faces, lines, mobile)
        weights = sweep.enter(self.weights, np.empty(sweep.shape))
        c = self._local[axis]
        return faces.up + c * mobile / weights, faces.down + c * mobile / np.roll(weights, -1, axis=0)

    def _stage(self, axis: int, guess: Array, rhs: Array, step: float, drift: Array, limited: bool,
               tolerance: float) -> tuple[Array, Array] | None:
        """q and U = V + g * rho with (1 + step L[U]) q = rhs, from a first guess of both; None without convergence."""
        sweep, faces, shape = self.sweeps[axis], self._faces[axis], self.mesh.shape
        total = float(rhs.sum())
        q = guess * (total / float(guess.sum()))
        right = sweep.enter(rhs, np.empty(sweep.shape)).copy()
        weights = sweep.enter(self.weights, np.empty(sweep.shape))
        mobile, theta = np.empty(sweep.shape), None
        c = self._local[axis]
        for iteration in range(_NEWTON):
            if limited and iteration < _LIMITER_UPDATES:
                theta = self._limiter(axis, drift, q)
            rest, lines = self._rest(axis, q, drift, right, step, theta)
            defect = float(np.abs(rest).sum())
            sweep.mobility(faces, lines, mobile)
            up = faces.up + c * mobile / weights
            down = faces.down + c * mobile / np.roll(weights, -1, axis=0)
            change, answer = self._correction(axis, up, down, mobile, weights, step, rest)
            size = float(np.abs(change).sum())
            change = sweep.leave(change, np.empty(shape))
            damping = 1.0
            while True:
                trial, trial_drift = q + damping * change, drift + damping * answer
                if trial.min() < 0.0:
                    # what is negative is of the size of the change still to come; flows need what is not
                    trial = np.maximum(trial, 0.0)
                    trial *= total / float(trial.sum())
                    trial_drift = self._potential + self.mesh.convolve(trial / self.weights)
                if size <= tolerance:
                    break
                left = float(np.abs(self._rest(axis, trial, trial_drift, right, step, theta)[0]).sum())
                if left <= (1.0 - 0.1 * damping) * defect:
                    break
                damping *= 0.5
                if damping < _LEAST_DAMPING:
                    return None
            q, drift = trial, trial_drift
            if size <= tolerance and iteration >= (_LIMITER_UPDATES if limited else 0):
                return self._polish(axis, q, drift, right, step, theta, tolerance), drift
        return None

    def _rest(self, axis: int, q: Array, drift: Array, right: Array, step: float,
              theta: Array | None) -> tuple[Array, Array]:
        """rhs - (1 + step L[U]) q and q in lines; leaves the coefficients in the axis's faces."""
        sweep, faces = self.sweeps[axis], self._faces[axis]
        lines = sweep.enter(q, np.empty(sweep.shape))
        sweep.freeze(faces, drift)
        if theta is not None:
            faces.up *= theta
            faces.down *= theta
        inflow = np.zeros(sweep.shape)
        add_inflow(faces.up, faces.down, lines, inflow)
        return right - lines + step * inflow, lines

    def _polish(self, axis: int, q: Array, drift: Array, right: Array, step: float, theta: Array | None,
                tolerance: float) -> Array:
        """The linear solve at the U found, positive to the last cell, where it agrees with q; else q."""
        sweep, faces, lines = self.sweeps[axis], self._faces[axis], np.empty(self.sweeps[axis].shape)
        sweep.freeze(faces, drift)
        if theta is not None:
            faces.up *= theta
            faces.down *= theta
        sweep.solve(faces.up, faces.down, step, right, lines)
        found = sweep.leave(lines, np.empty(self.mesh.shape))
        return found if float(np.abs(found - q).sum()) <= 2.0 * tolerance else q

    def _limiter(self, axis: int, drift: Array, q: Array) -> Array:
        """Factors of the second-order flow at q."""
        sweep = self.sweeps[axis]
        rho = np.maximum(q / self.weights, 0.0)
        plain, scaled = Faces(sweep.shape), Faces(sweep.shape)
        sweep.freeze(plain, drift)
        sweep.freeze(scaled, drift, rho, np.log(np.maximum(rho, _FLOOR)))
        larger = plain.up > plain.down
        ratio: Array = np.divide(np.where(larger, scaled.up, scaled.down), np.where(larger, plain.up, plain.down),
                                 out=np.ones(sweep.shape), where=np.maximum(plain.up, plain.down) > 0)
        return ratio

    def _correction(self, axis: int, up: Array, down: Array, mobile: Array, weights: Array, step: float,
                    rhs: Array) -> tuple[Array, Array]:
        """The Newton change d of q, (1 + step L) d + step dL[g * d] q = rhs in lines, and g * d over cells."""
        sweep, shape = self.sweeps[axis], self.mesh.shape
        c = self._local[axis]
        first = np.empty(sweep.shape)
        sweep.solve(up, down, step, rhs, first)

        def inverse(y: Array) -> Array:
            d = np.empty(sweep.shape)
            sweep.solve_again(up, down, step, y, y, 0.0, d)
            return d

        def interaction(d: Array) -> Array:
            rho = sweep.leave(d, np.empty(shape)) / self.weights
            self.solves += 1
            return self.mesh.convolve(rho)

        def apply(y: Array) -> Array:
            d = inverse(y)
            rest = sweep.enter(interaction(d), np.empty(sweep.shape)) - c * d / weights
            image = y.copy()
            sweep.add_response(mobile, rest, step, image)
            return image

        change = inverse(gmres(apply, rhs, 1e-2))
        return change, interaction(change)


def _symbol(mesh: Mesh, sweep: Sweep, axis: int) -> tuple[Array, Array]:
    """ghat at wave numbers up to pi / h along the axis, and kappa = 4 c / volume sin^2(k h / 2).

    Read off the answer to one full cell in the middle, summed over the other axis; a Hann window hides where the domain ends.
    """
    middle = tuple(m // 2 for m in mesh.shape)
    rho = np.zeros(mesh.shape)
    rho[middle] = 1.0
    response = mesh.convolve(rho)
    if response.ndim == 2:
        response = response.sum(axis=1 - axis)
    m = response.size
    count = max(m // 2, 1)
    offset = np.arange(m) - middle[axis]
    window = np.where(np.abs(offset) <= count, np.square(np.cos(0.5 * np.pi * offset / (count + 1.0))), 0.0)
    k = np.pi * np.unique(np.geomspace(1, count, 24).round()) / count
    symbol = (response * window) @ np.cos(np.outer(offset, k))
    open_faces = sweep.rate_up[sweep.rate_up > 0]
    rate = float(np.median(open_faces)) if open_faces.size else 0.0
    return symbol, 4.0 * rate * np.square(np.sin(0.5 * k))
