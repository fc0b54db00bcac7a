"""The synthetic classification tasks of the paper and of its lineage, as arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from meanfield import _checks, _rng
from meanfield._checks import Array

__all__ = ["LogitTask", "logit_task", "radial_task"]


class LogitTask(NamedTuple):
    """Inputs (sample, component), labels in {-1, +1}, and the noise-free probability of +1."""

    X: Array
    y: Array
    probability: Array


def logit_task(sigma: float, trial: int = 0, *, n: int = 400, p: int = 10, seed: int = 42) -> LogitTask:
    """Method.md 10.1: X ~ N(0, I_p), logit 1.5 sin(pi x1) + 0.8 x2^2 - x3 x4 + 0.5 sin(3 x5) + w . x_{6:p}, w ~ N(0, 0.3^2),

    y ~ Bernoulli(sigmoid(logit + N(0, sigma^2))). X and w depend on ``seed`` alone; labels on (seed, trial, sigma).
    p = 10 is our choice, the paper gives none (method.md 13.3).
    """
    _checks.count("p", p, least=5)
    rng = np.random.default_rng(_checks.seed_int(seed))
    X = rng.standard_normal((_checks.count("n", n, least=2), p))
    w = 0.3 * rng.standard_normal(p - 5)
    logit = (1.5 * np.sin(np.pi * X[:, 0]) + 0.8 * X[:, 1] ** 2 - X[:, 2] * X[:, 3] + 0.5 * np.sin(3 * X[:, 4])
             + X[:, 5:] @ w)
    noise = _rng.generator(seed, _rng.WEIGHTS, trial, int(np.float64(sigma).view(np.uint64)))
    noisy = logit + _checks.non_negative("sigma", sigma) * noise.standard_normal(n)
    y = np.where(noise.random(n) < expit(noisy), 1.0, -1.0)
    return LogitTask(X, y, expit(logit))


def radial_task(n: int, d: int, seed: int) -> tuple[Array, Array]:
    """Sinha and Duchi (2016): x ~ N(0, I_d), y = sign(|x| - sqrt(d)) (method.md 11)."""
    rng = np.random.default_rng(_checks.seed_int(seed))
    X = rng.standard_normal((_checks.count("n", n, least=2), _checks.count("d", d)))
    return X, np.where(np.linalg.norm(X, axis=1) > np.sqrt(d), 1.0, -1.0)
