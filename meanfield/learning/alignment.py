"""Kernel-target alignment as an external potential: the hinge between the learner and the simulator.

The paper's objective (method.md 3.1) is linear in the empirical measure, E_N = mean_k V_D(omega_k), so V_D is a potential
like any other: ``simulate`` moves the particles, ``solve`` and ``gibbs`` take it in one dimension.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield import _checks, _rng
from meanfield._checks import Array
from meanfield.potentials import Potential
from meanfield.registry import register

__all__ = ["KernelAlignment"]

# elements of one block of frequencies times samples: cosines and sines of a block stay in the second-level cache
_BLOCK = 1 << 16


@register
@dataclass(frozen=True, eq=False)
class KernelAlignment(Potential):
    """Negative alignment of one random Fourier feature with the labels, the U-statistic of method.md (3.2):

        V(w) = -(1 / (n (n - 1))) sum_{i != j} y_i y_j phi_w(x_i) phi_w(x_j).

    Without ``phases`` it is averaged over the phase b ~ U[0, 2 pi] of phi = sqrt(2) cos(w x + b), (3.3):
    V(w) = -(|sum_i y_i exp(i w x_i)|^2 - sum_i y_i^2) / (n (n - 1)), a function of the frequency w alone. With ``phases``,
    one number a particle, particle k has the feature sqrt(2) cos(w_k x + b_k).

    Args:
        X: inputs (sample, component). y: labels (sample,), -1 and +1 in the paper, any real numbers.
        feature_map: "rff".
        phases: None, or one phase for each particle.
        center_labels: use y - mean(y), so that unbalanced labels do not reward constant features (method.md 3.1).
        batch_size: samples drawn anew for each step of ``simulate`` (unbiased); None takes all.
        seed: of the batches.

    Raises ValueError for shapes that do not fit, NaN, fewer than two samples, or labels that are all equal.
    """

    X: Array
    y: Array
    feature_map: str = "rff"
    phases: Array | None = None
    center_labels: bool = False
    batch_size: int | None = None
    seed: int = 0
    _weighted: Array = field(init=False, repr=False)

    @property
    def pointwise(self) -> bool:  # type: ignore[override]
        """Given phases belong to particles, so there is no V(x) then."""
        return self.phases is None

    def __post_init__(self) -> None:
        X = _checks.finite_array("X", self.X, ndim=2)
        y = _checks.finite_array("y", self.y, ndim=1)
        if len(X) != len(y) or len(X) < 2:
            raise ValueError(f"X and y must have the same number of samples, two or more, got {X.shape} and {y.shape}")
        if np.ptp(y) == 0:
            raise ValueError(f"y must have two different labels, got only {y[0]:g}")
        _checks.choice("feature_map", self.feature_map, ("rff",))
        if self.center_labels:
            y = y - y.mean()
        if self.phases is not None:
            object.__setattr__(self, "phases", _checks.finite_array("phases", self.phases, ndim=1))
        if self.batch_size is not None:
            size = _checks.count("batch_size", self.batch_size, least=2)
            object.__setattr__(self, "batch_size", min(size, len(X)))
        object.__setattr__(self, "seed", _checks.seed_int(self.seed))
        for name, array in (("X", X), ("y", y), ("_weighted", y[:, None] * X)):
            array = array.copy()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def example(cls, dim: int) -> KernelAlignment:
        rng = np.random.default_rng(dim)
        X = rng.standard_normal((12, dim))
        return cls(X, np.where(np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(12) > 0, 1.0, -1.0))

    @property
    def formula(self) -> str:
        how = "phase-averaged" if self.phases is None else "given phases"
        return f"V(w) = -alignment of sqrt(2) cos(w x + b) with {len(self.y)} labels ({how})"

    def value(self, positions: Array) -> Array:
        value, _ = self._evaluate(positions, self.X, self.y, self._weighted, gradient=False)
        return value

    def gradient(self, positions: Array) -> Array:
        _, gradient = self._evaluate(positions, self.X, self.y, self._weighted, gradient=True)
        return gradient

    def step_gradient(self, positions: Array, step: int) -> Array:
        if self.batch_size is None:
            return self.gradient(positions)
        rng = _rng.generator(self.seed, _rng.MINIBATCH, step)
        rows = rng.choice(len(self.y), self.batch_size, replace=False)
        _, gradient = self._evaluate(positions, self.X[rows], self.y[rows], self._weighted[rows], gradient=True)
        return gradient

    def _evaluate(self, positions: Array, X: Array, y: Array, weighted: Array, *, gradient: bool) -> tuple[Array, Array]:
        if positions.shape[-1] != X.shape[1]:
            raise ValueError(f"positions have {positions.shape[-1]} components, but the inputs X have {X.shape[1]}")
        flat = positions.reshape(-1, X.shape[1])
        phases = None
        if self.phases is not None:
            if positions.shape[-2] != self.phases.size:
                raise ValueError(f"there are {self.phases.size} phases for {positions.shape[-2]} particles")
            phases = np.tile(self.phases, len(flat) // self.phases.size)
        pairs = len(y) * (len(y) - 1)
        square = np.square(y)
        value, grad = np.empty(len(flat)), np.empty(flat.shape)
        rows = max(1, _BLOCK // len(y))
        for start in range(0, len(flat), rows):
            block = slice(start, start + rows)
            angle = flat[block] @ X.T
            if phases is not None:
                angle += phases[block, None]
            cos, sin = np.cos(angle), np.sin(angle)
            c = cos @ y
            if phases is None:
                s = sin @ y
                value[block] = -(c**2 + s**2 - square.sum()) / pairs
                if gradient:
                    grad[block] = 2.0 / pairs * (c[:, None] * (sin @ weighted) - s[:, None] * (cos @ weighted))
            else:
                value[block] = -2.0 * (c**2 - np.square(cos) @ square) / pairs
                if gradient:
                    grad[block] = 4.0 / pairs * (c[:, None] * (sin @ weighted) - (cos * sin) @ (square[:, None] * X))
        return value.reshape(positions.shape[:-1]), grad.reshape(positions.shape)
