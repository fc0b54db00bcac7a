"""``KernelFeatures``: learn the frequencies of a random Fourier kernel by simulating them.

A scikit-learn transformer. ``fit`` puts the frequencies into the potential of their alignment with the labels, with Riesz
repulsion among them, and lets ``simulate`` move them; ``transform`` returns the cosines and sines. Use it before a linear
model where a kernel is needed and few features are allowed: the gain over fixed features is at few features.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from meanfield import _checks, _rng
from meanfield._checks import Array
from meanfield.domain import Ball
from meanfield.interactions import Riesz
from meanfield.learning.alignment import KernelAlignment
from meanfield.learning.normalized import NormalizedAlignment
from meanfield.particles import simulate
from meanfield.problem import Problem

__all__ = ["KernelFeatures"]


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Random Fourier features whose frequencies are learnt by kernel-target alignment.

    The frequencies are ``n_features / 2`` particles w_k that follow Algorithm 1 (method.md 6.1) down the negative
    alignment of their kernel mean_k cos(w_k (x - x')) with the labels. Feature pairs are cos(w x) and sin(w x), divided by
    the root of the number of particles. Inputs should be standardised.

    Args:
        n_features: columns of the output; rounded up to whole pairs, then cut.
        feature_map: "rff".
        alignment: "normalized" (3.6), the default, which couples the frequencies; or the paper's "linear" (3.1), which
            drives all of them towards one function (docs/decisions/0003).
        strength: of the repulsion between frequencies (method.md 4.1), in units of the alignment.
        s: Riesz exponent of the repulsion, 0 for the logarithm.
        inverse_temperature: beta of the noise. Alignments are of order 0.01 to 0.1, so 1e3 and more follow them.
        bandwidth: standard deviation of the first frequencies, in units of 1 / (median distance of the inputs).
        radius: largest norm of a frequency, in units of the typical first norm, bandwidth sqrt(d) / (median distance).
        n_steps: Langevin steps.
        step: time step in units of bandwidth^2 / (median distance)^2.
        learned: False leaves the first frequencies as they are: plain random Fourier features, the fair control.
        random_state: an int, or None for fresh entropy (kept in ``seed_``).

    Attributes: ``particles_`` (particle, component), ``run_`` (the Dataset of ``simulate`` or None), ``potential_``,
    ``alignment_`` (mean alignment at first and at last), ``seed_``, ``n_features_in_``.

    Raises ValueError in scikit-learn's words for NaN, one class, or fewer than two samples.
    """

    def __init__(self, n_features: int = 100, feature_map: str = "rff", alignment: str = "normalized",
                 strength: float = 1e-2, s: float = 0.0, inverse_temperature: float = 1e4, bandwidth: float = 1.0,
                 radius: float = 3.0, n_steps: int = 200, step: float = 0.3, learned: bool = True,
                 random_state: int | None = None) -> None:
        self.n_features = n_features
        self.feature_map = feature_map
        self.alignment = alignment
        self.strength = strength
        self.s = s
        self.inverse_temperature = inverse_temperature
        self.bandwidth = bandwidth
        self.radius = radius
        self.n_steps = n_steps
        self.step = step
        self.learned = learned
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> KernelFeatures:
        """Learn the frequencies from inputs (sample, component) and two classes of labels."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        classes = np.unique(y)
        if classes.size != 2:
            raise ValueError(f"KernelFeatures aligns with two classes so far, got {classes.size} class(es)")
        labels = np.where(y == classes[1], 1.0, -1.0)
        n_particles = -(-_checks.count("n_features", self.n_features) // 2)
        self.seed_ = _checks.seed_int(secrets.randbits(64) if self.random_state is None else self.random_state)
        _checks.choice("feature_map", self.feature_map, ("rff",))
        _checks.choice("alignment", self.alignment, ("normalized", "linear"))
        self.potential_ = (KernelAlignment(X, labels, center_labels=True) if self.alignment == "linear"
                           else NormalizedAlignment(X, labels))
        distance = _median_distance(X, self.seed_)
        # frequencies in units of 1 / distance: steps then mean the same for any inputs, and for s = 0 strengths too
        width = _checks.positive("bandwidth", self.bandwidth) / distance
        ball = Ball(_checks.positive("radius", self.radius) * width * np.sqrt(X.shape[1]), X.shape[1])
        rng = _rng.generator(self.seed_, _rng.INITIAL)
        first = ball.project(width * rng.standard_normal((n_particles, X.shape[1])))
        self.run_ = None
        self.particles_ = first
        if self.learned:
            problem = Problem(ball, self.potential_, Riesz(self.s, self.strength, softening=1e-3 * ball.radius),
                              self.inverse_temperature)
            dt = _checks.positive("step", self.step) * width**2
            n_steps = _checks.count("n_steps", self.n_steps)
            self.run_ = simulate(problem, n_particles=n_particles, dt=dt, t_end=n_steps * dt, initial=first,
                                 save_every=max(1, n_steps // 20), seed=self.seed_)
            self.particles_ = self.run_["position"].values[0, -1]
        self.alignment_ = tuple(-float(self.potential_.value(w).mean()) for w in (first, self.particles_))
        self._n_features_out = int(self.n_features)
        return self

    def transform(self, X: Any) -> Array:
        """Features (sample, n_features): cosines, then sines."""
        check_is_fitted(self, "particles_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        angle = X @ self.particles_.T
        features: Array = np.hstack([np.cos(angle), np.sin(angle)]) / np.sqrt(len(self.particles_))
        return features[:, : self._n_features_out]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.classifier_tags = None
        return tags


def _median_distance(X: Array, seed: int) -> float:
    """Median distance of (at most a thousand of) the inputs; 1 where they all coincide."""
    rows = _rng.generator(seed, _rng.SHUFFLE).choice(len(X), min(len(X), 1000), replace=False)
    return float(np.median(pdist(X[rows]))) or 1.0

