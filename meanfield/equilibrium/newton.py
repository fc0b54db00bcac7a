"""Newton's method for rho = exp(-beta (V + g * rho)) / Z on a mesh: to any rest state, or down to a minimiser of F_beta.

With u = log rho and the defect d = u + beta (V + g * rho), Newton's equation along du is

    du + beta g * (rho du) - constant = -d,   sum_i volume_i rho_i du_i = 0,

and in y = q du, q = sqrt(volume rho) a unit vector, P (1 + beta q g q) P y = -P q d with P = 1 - q q^T: symmetric, and
positive exactly where F_beta is convex along the simplex. -q d is also the steepest descent of F_beta, which is why a
positive matrix gives a step downhill. A full step ends in the image exp(-beta (V + g * (rho + rho du))) / Z, taken by
logarithms: cells whose density underflows follow the others exactly, whatever beta is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve
from scipy.sparse.linalg import LinearOperator, gmres

from meanfield._checks import Array
from meanfield.mesh import Mesh

__all__ = ["DENSE", "TOLERANCE", "Linear", "State", "continued", "descend", "image", "newton", "state"]

TOLERANCE = 1e-12
_ITERATIONS = 60
DENSE = 1200  # cells up to which a direct solve (some 30 ms of a core at 1000) takes over where GMRES needs too long
_EMPTY = 1e-15  # share of the largest sqrt(mass) below which a cell has no part in the linear solve


@dataclass(frozen=True, eq=False)
class State:
    """A density, and how far it is from its image under the fixed-point map.

    log_density   log rho in the cells (-inf outside of the domain), of mass 1
    interaction   g * rho
    defect        log rho + beta (V + g * rho) less its mean under rho: the change of log rho under the map, negated
    residual      largest |defect|
    """

    beta: float
    log_density: Array
    density: Array
    interaction: Array
    defect: Array
    residual: float
    free_energy: float

    @property
    def roundoff(self) -> float:
        """Residual that the round-off of beta U alone makes: no iteration gets below."""
        return 4e-15 * (1.0 + self.beta * float(np.abs(self.interaction).max()))


def state(mesh: Mesh, beta: float, log_density: Array) -> State:
    """The state of a density, given by its logarithm up to a constant."""
    inside = mesh.volumes > 0
    log_density = np.where(inside, log_density, -np.inf)
    top = float(log_density.max())
    log_density = log_density - top - math.log(np.sum(mesh.volumes * np.exp(log_density - top)))
    rho = np.exp(log_density)
    mass = mesh.volumes * rho
    interaction = mesh.convolve(rho)
    logs = np.where(inside, log_density, 0.0)
    defect = np.where(inside, logs + beta * (mesh.potential + interaction), 0.0)
    defect = np.where(inside, defect - float(np.sum(mass * defect)), 0.0)
    energy = float(np.sum(mass * (mesh.potential + 0.5 * interaction)))
    return State(beta, log_density, rho, interaction, defect, float(np.abs(defect).max()),
                 energy + float(np.sum(mass * logs)) / beta)


def image(mesh: Mesh, beta: float, phi: Array) -> State:
    """The state of the density exp(-beta (V + phi)) / Z."""
    return state(mesh, beta, -beta * (mesh.potential + phi))


class Linear:
    """Newton's equation P (1 + shift + beta q g q) P y = -P q defect on one mesh.

    Where the mesh is small the matrix of g is kept and the equation is solved exactly. Elsewhere GMRES: the matrix is the
    identity and a compact operator, so that the number of products with g grows with beta and hardly with the cells.
    """

    def __init__(self, mesh: Mesh, matrix: Array | None = None) -> None:
        self.mesh = mesh
        self.volumes = np.where(mesh.volumes > 0, mesh.volumes, 1.0)
        self._matrix = matrix

    def matrix(self) -> Array:
        """g as a matrix that takes masses to g * rho in the cells, made column by column."""
        if self._matrix is None:
            unit = np.zeros(self.volumes.size)
            columns = np.empty((unit.size, unit.size))
            for i in range(unit.size):
                unit[i] = 1.0 / self.volumes.flat[i]
                columns[i] = self.mesh.convolve(unit.reshape(self.mesh.shape)).ravel()
                unit[i] = 0.0
            self._matrix = columns.T
        return self._matrix

    def solve(self, now: State, tolerance: float, shift: float = 0.0) -> tuple[Array, float]:
        """y, and the slope of F_beta along it (negative downhill)."""
        q = np.sqrt(self.mesh.volumes * now.density)
        right = -q * now.defect
        right = right - q * float(np.sum(q * right))
        small = q.size <= DENSE
        y, unfinished = self._iterated(now.beta, q, right, tolerance, shift, *((60, 1) if small else (150, 4)))
        if unfinished and small:
            y = self._direct(now.beta, q.ravel(), right.ravel(), shift)
        y = y.reshape(q.shape)
        y = y - q * float(np.sum(q * y))
        return y, float(-np.sum(right * y)) / now.beta

    def pushed(self, now: State, y: Array) -> Array:
        """g * (rho du) of du = y / q."""
        return self.mesh.convolve(np.sqrt(self.mesh.volumes * now.density) * y / self.volumes)

    def _direct(self, beta: float, q: Array, right: Array, shift: float) -> Array:
        held = q > _EMPTY * q.max()
        n = int(held.sum())
        system = np.empty((n + 1, n + 1))
        system[:n, :n] = beta * q[held, None] * self.matrix()[np.ix_(held, held)] * q[held]
        system[np.arange(n), np.arange(n)] += 1.0 + shift
        # the bordered form of the projection, which stays regular
        system[n, :n] = system[:n, n] = q[held]
        system[n, n] = 0.0
        y = np.zeros(q.size)
        y[held] = solve(system, np.append(right[held], 0.0), check_finite=False, overwrite_a=True)[:n]
        return y

    def _iterated(self, beta: float, q: Array, right: Array, tolerance: float, shift: float, restart: int,
                  rounds: int) -> tuple[Array, bool]:
        def product(y: Array) -> Array:
            y = y.reshape(q.shape)
            y = y - q * float(np.sum(q * y))
            pushed = (1.0 + shift) * y + beta * q * self.mesh.convolve(q * y / self.volumes)
            return (pushed - q * float(np.sum(q * pushed))).ravel()

        operator = LinearOperator((q.size, q.size), matvec=product, dtype=np.float64)
        # an unfinished solve still gives a direction; the line search judges it
        y, info = gmres(operator, right.ravel(), rtol=tolerance, atol=0.0, restart=restart, maxiter=rounds)
        return np.asarray(y), info != 0


def newton(linear: Linear, now: State, tolerance: float = TOLERANCE) -> State:
    """A rest state near the given one: damped Newton steps that lower the residual or, where they point downhill, F.

    The state returned may be short of the tolerance; its ``residual`` says so.
    """
    for _ in range(_ITERATIONS):
        if linear.mesh.convolution is None or now.residual <= max(tolerance, now.roundoff):
            break
        y, slope = linear.solve(now, 1e-6)
        after = _search(linear, now, y, slope)
        if after is None:
            break
        now = after
    return _polished(linear, now, tolerance)


def descend(linear: Linear, now: State, tolerance: float = TOLERANCE) -> State:
    """A local minimiser of F_beta below the given state: Newton steps whose matrix is shifted until they point downhill.

    Each step is an implicit step of pseudo-time 1 / shift of a gradient flow of F_beta; the shift falls as steps succeed.
    """
    shift = 1.0
    for _ in range(5 * _ITERATIONS):
        if linear.mesh.convolution is None or now.residual <= max(tolerance, now.roundoff):
            break
        y, slope = linear.solve(now, 1e-6, shift)
        after = _search(linear, now, y, slope, only_downhill=now.residual > 1e-7)
        if after is None:
            if shift > 1e12:
                break
            shift = max(4.0 * shift, 1e-3)
            continue
        now = after
        shift = 0.0 if shift < 1e-6 else 0.3 * shift
    return _polished(linear, now, tolerance)


def _search(linear: Linear, now: State, y: Array, slope: float, only_downhill: bool = False) -> State | None:
    """The first of the steps 1, 1/2, ... towards the image of g * (rho + rho du) that makes progress, or None."""
    mesh, step = linear.mesh, 1.0
    towards = linear.pushed(now, y)
    slack = 1e-15 * (1.0 + abs(now.free_energy))
    while step > 1e-6:
        trial = image(mesh, now.beta, now.interaction + towards) if step == 1.0 else state(
            mesh, now.beta, now.log_density + step * _change(mesh, now, towards))
        falls = slope < -1e3 * slack and trial.free_energy <= now.free_energy + 1e-4 * step * slope
        # near the end F is flat to round-off, and the residual alone decides
        nearer = trial.residual <= (1.0 - 1e-3 * step) * now.residual
        if falls or (nearer and not only_downhill):
            return trial
        step *= 0.5
    return None


def _change(mesh: Mesh, now: State, towards: Array) -> Array:
    """du = -defect - beta g * (rho du), up to a constant."""
    return np.where(mesh.volumes > 0, -now.defect - now.beta * towards, 0.0)


def _polished(linear: Linear, now: State, tolerance: float) -> State:
    """Newton steps in log rho itself: an image carries the round-off of g * rho times beta g, which at large beta is more
    than log rho needs to lose."""
    for _ in range(3):
        if linear.mesh.convolution is None or now.residual <= max(tolerance, 0.1 * now.roundoff) or now.residual > 1e-3:
            break
        y, _ = linear.solve(now, 1e-6)
        q = np.sqrt(linear.mesh.volumes * now.density)
        held = q > 1e-4 * q.max()
        change = _change(linear.mesh, now, linear.pushed(now, y))
        level = float(np.sum(q * q * change))  # du has mean 0 under rho
        change = np.where(held, y / np.where(held, q, 1.0), change - level)
        after = state(linear.mesh, now.beta, now.log_density + change)
        if after.residual >= now.residual:
            break
        now = after
    return now


def continued(linear: Linear, beta: float, tolerance: float = TOLERANCE) -> State:
    """The rest state at beta that is continued from high temperature, by steps in beta as long as Newton allows."""
    mesh = linear.mesh
    flat = mesh.flat()
    inside = mesh.volumes > 0
    phi = mesh.convolve(flat)
    if mesh.convolution is None:
        return image(mesh, beta, phi)
    span = float(np.ptp(mesh.potential[inside])) + float(np.abs(phi[inside]).max())
    reached = min(beta, 4.0 / max(span, 1e-300))
    now = newton(linear, image(mesh, reached, phi))
    factor = 4.0
    while reached < beta:
        target = min(beta, reached * factor)
        # log rho, not phi, is what hardly changes where the mass is: one Newton step from it at the new beta
        start = state(mesh, target, now.log_density)
        y, _ = linear.solve(start, 1e-4)
        after = newton(linear, image(mesh, target, start.interaction + linear.pushed(start, y)),
                       tolerance if target == beta else max(tolerance, 1e-6))
        if after.residual <= max(1e-6, 10 * after.roundoff):
            now, reached = after, target
            factor = min(4.0, factor * 1.5)
        elif factor > 1.02:
            factor = math.sqrt(factor)
        else:
            return after
    return now
