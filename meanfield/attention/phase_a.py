"""Phase A: learn the particles of each head by kernel-target alignment, with the one Langevin engine.

``FeatureAlignment`` is a ``Potential`` that couples the particles: the alignment with the labels of the
kernel Phi Phi^T of mean-pooled features Phi(x) = mean_t phi(k_t). ``learn`` hands it to
``meanfield.particles.simulate``, one run a head, since each head sees its own slice of the tokens. Pooled
features, not pooled attention outputs, and the normalised form: with raw alignment all particles settle on
the same function, and alignment of the attention output gained nothing in our trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from meanfield import _rng
from meanfield.attention import linear
from meanfield.learning.normalized import normalized_alignment
from meanfield.potentials import Potential

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["FeatureAlignment", "Schedule", "learn"]

Array64 = NDArray[np.float64]
_CHUNK = 16_384  # tokens whose features are held together by the map; bounds the temporaries


@dataclass(frozen=True, eq=False)
class FeatureAlignment(Potential):
    """E_N = -alignment of the pooled-feature kernel with the labels, for every head (= run) separately.

    ``tokens`` (head, token, component) holds the keys of all texts end to end, text i at
    ``offsets[i]:offsets[i + 1]`` (no text is empty); ``labels`` are class numbers. With Z = H Phi (text,
    particle) and L = H (one-hot labels):

    - ``normalized``: E_N = -|Z^T L|^2 / (|Z^T Z| |L^T L|), Frobenius norms, which is -(3.6) for K = Phi
      Phi^T;
    - ``linear``: E_N = -c / (n (n - 1)) sum_{i != j} (L_i . L_j) (Phi_i . Phi_j), c = C / (C - 1) for C
      classes; for two it is (3.1) with labels -1, 1 centred.

    ``value`` and ``gradient`` use all texts, ``step_gradient`` those that (seed, step) alone pick,
    ``batch_size`` of them, and shortens each particle's N grad_k E_N to the length ``clip`` (method.md 13.4),
    so that no data can make a step unstable.
    """

    pointwise: ClassVar[bool] = False

    tokens: NDArray[Any] = field(repr=False)
    offsets: NDArray[np.int64] = field(repr=False)
    labels: NDArray[np.int64] = field(repr=False)
    feature_map: str = "softmaxfeat"
    temperature: float = 1.0
    alignment: str = "normalized"
    batch_size: int = 1024
    clip: float = math.inf
    seed: int = 0

    @classmethod
    def example(cls, dim: int) -> FeatureAlignment:
        """Two heads on five short random texts."""
        rng = _rng.generator(0, _rng.INITIAL, dim)
        offsets = np.array([0, 2, 3, 6, 8, 11])
        return cls(rng.standard_normal((2, 11, dim)), offsets, np.array([0, 1, 1, 0, 1]))

    @property
    def formula(self) -> str:
        return (f"E_N = -{self.alignment} alignment of mean-pooled {self.feature_map} features with "
                f"{self.labels.size} labels")

    def value(self, positions: Array64) -> Array64:
        """E_N of the head, the same for each of its particles, over (head, particle)."""
        value, _ = self._objective(positions, np.arange(self.labels.size), gradient=False)
        return np.repeat(value[:, None], positions.shape[-2], axis=1)

    def gradient(self, positions: Array64) -> Array64:
        """N grad_k E_N over (head, particle, component)."""
        return self._objective(positions, np.arange(self.labels.size))[1]

    def step_gradient(self, positions: Array64, step: int) -> Array64:
        n = self.labels.size
        rows = np.arange(n)
        if self.batch_size < n:
            rng = _rng.generator(self.seed, _rng.MINIBATCH, step)
            rows = np.sort(rng.choice(n, self.batch_size, replace=False))
        gradient = self._objective(positions, rows)[1]
        if math.isfinite(self.clip):
            length = np.linalg.norm(gradient, axis=-1, keepdims=True)
            gradient *= self.clip / np.maximum(length, self.clip)
        return gradient

    def _objective(self, positions: Array64, rows: NDArray[np.int64],
                   gradient: bool = True) -> tuple[Array64, Array64]:
        needed = (self.tokens.shape[0], self.tokens.shape[2])
        if positions.ndim != 3 or (positions.shape[0], positions.shape[2]) != needed:
            raise ValueError(f"positions must have shape (head={needed[0]}, particle, "
                             f"component={needed[1]}), got {positions.shape}")
        particles = positions.astype(self.tokens.dtype)
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        ends = np.cumsum(lengths)
        # every token of the rows, without a Python loop over texts
        where = np.arange(ends[-1]) + np.repeat(self.offsets[rows] - (ends - lengths), lengths)
        cuts = 1 + np.searchsorted(ends, np.arange(_CHUNK, ends[-1], _CHUNK))
        pooled, backward = [], []
        for block in np.split(np.arange(rows.size), np.unique(cuts[cuts < rows.size])):
            start = ends[block[0]] - lengths[block[0]]
            tokens = self.tokens[:, where[start : ends[block[-1]]]]
            phi, back = linear.features(tokens, particles, self.feature_map, self.temperature)
            mean = _mean_of_segments(lengths[block], self.tokens.dtype)
            pooled.append(np.stack([mean @ head for head in phi]))
            backward.append((block, mean, back))
        value, dfeatures = self._align(np.concatenate(pooled, axis=1, dtype=np.float64), self.labels[rows])
        total = np.zeros(positions.shape)
        for block, mean, back in backward if gradient else ():
            each = dfeatures[:, block].astype(self.tokens.dtype)
            total += back(np.stack([mean.T @ head for head in each]))[1]
        return value, positions.shape[1] * total

    def _align(self, features: Array64, labels: NDArray[np.int64]) -> tuple[Array64, Array64]:
        """E_N over (head,) and its gradient in the features (head, text, particle)."""
        n, n_classes = labels.size, int(self.labels.max()) + 1
        one_hot = np.eye(n_classes)[labels]
        if self.alignment == "normalized":
            # a batch of one class, or features that are equal for all texts, says nothing: value and gradient 0
            alignment, slope = normalized_alignment(features, one_hot)
            return -alignment, -slope
        target = one_hot - one_hot.mean(axis=0)
        pairs = target.T @ features  # (head, class, particle)
        own = np.square(target).sum(axis=1)[:, None]
        factor = n_classes / ((n_classes - 1) * n * (n - 1))
        diagonal = (own * np.square(features)).sum(axis=(1, 2))
        value = -factor * (np.square(pairs).sum(axis=(1, 2)) - diagonal)
        return value, -2.0 * factor * (target @ pairs - own * features)


def _mean_of_segments(lengths: NDArray[np.int64], dtype: Any) -> sparse.csr_array:
    """The matrix (text, token) that takes each text's mean; twice as fast as np.add.reduceat."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    weights = np.repeat(1.0 / lengths, lengths).astype(dtype)
    return sparse.csr_array((weights, np.arange(ends[-1]), ends), shape=(lengths.size, ends[-1]))


@dataclass(frozen=True)
class Schedule:
    """Constants of phase A: ball radius, log repulsion, Langevin temperature and step."""

    radius: float
    strength: float
    softening: float
    inverse_temperature: float
    dt: float
    n_steps: int


def learn(potential: FeatureAlignment, initial: Array64, schedule: Schedule, seed: int, *,
          progress: bool = False) -> xr.Dataset:
    """The ``simulate`` Dataset of projected Langevin (6.1) on H_N = E_N + log repulsion (4.1), run = head."""
    from meanfield.domain import Ball
    from meanfield.interactions import Log
    from meanfield.particles import simulate
    from meanfield.problem import Problem

    problem = Problem(Ball(schedule.radius, dim=initial.shape[-1]), potential=potential,
                      interaction=Log(schedule.strength, schedule.softening),
                      inverse_temperature=schedule.inverse_temperature)
    run: xr.Dataset = simulate(problem, n_particles=initial.shape[1], dt=schedule.dt,
                               t_end=schedule.n_steps * schedule.dt, n_runs=initial.shape[0], initial=initial,
                               seed=seed, progress=progress)
    return run
