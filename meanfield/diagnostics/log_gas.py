"""The log gas on the line at rest, exactly and without simulation: independent samples and partition functions at finite N.

Two problems are solved (Dyson index b = beta strength / (N - 1), at rest exp(-beta N H_N)):

    Interval(a, b), no potential        Jacobi ensemble, Selberg's integral
    FreeSpace(1), Quadratic             Hermite ensemble, Mehta's integral
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import eigvalsh_tridiagonal
from scipy.special import gammaln

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain import Box, FreeSpace
from meanfield.domain.base import Seed, generator
from meanfield.potentials import Quadratic, Zero
from meanfield.problem import Problem

__all__ = ["log_partition", "sample_log_gas"]


def sample_log_gas(problem: Problem, n_particles: int, size: int, *, seed: Seed = 0) -> Array:
    """``size`` independent samples of the law exp(-beta N H_N) / Z, shape (sample, particle, 1), each in increasing order.

    Eigenvalues of random tridiagonal matrices, O(N^2) each. Raises ValueError for a problem that is none of the two of
    this module or has an infinite inverse temperature.

    Source: Dumitriu and Edelman (2002) for the trap, Edelman and Sutton (2008) for the interval.
    """
    n, index = _checks.count("n_particles", n_particles, least=2), _index(problem, n_particles)
    size, rng = _checks.count("size", size), generator(seed)
    down = np.arange(n - 1, 0, -1)
    if isinstance(problem.domain, FreeSpace):
        (well,) = problem.potentials
        assert isinstance(well, Quadratic)
        diagonal = rng.standard_normal((size, n))
        beside = np.sqrt(rng.chisquare(index * down, (size, n - 1)) / 2)
        scale = 1.0 / math.sqrt(problem.inverse_temperature * well.stiffness)
        centre = float(np.ravel(well.center)[0])
        values = [centre + scale * eigvalsh_tridiagonal(d, e) for d, e in zip(diagonal, beside, strict=True)]
        return np.array(values)[:, :, None]
    assert isinstance(problem.domain, Box)
    # no weight at the walls: both exponents a of Edelman and Sutton have index / 2 (a + 1) = 1
    k = np.arange(n, 0, -1)
    wall = 1.0 + 0.5 * index * (k - 1)
    c = rng.beta(wall, wall, (size, n))  # squares of the cosines
    inner = rng.beta(0.5 * index * down, 2.0 + 0.5 * index * (down - 1), (size, n - 1))
    # B is bidiagonal; the squares of its singular values are the eigenvalues of B^T B, which is tridiagonal
    diagonal = np.sqrt(c)
    diagonal[:, 1:] *= np.sqrt(1.0 - inner)
    beside = -np.sqrt((1.0 - c[:, :-1]) * inner)
    square = np.square(diagonal)
    square[:, 1:] += np.square(beside)
    cross = diagonal[:, :-1] * beside
    low, high = problem.domain.low[0], problem.domain.high[0]
    values = [low + (high - low) * np.clip(eigvalsh_tridiagonal(d, e), 0.0, 1.0) for d, e in zip(square, cross, strict=True)]
    return np.array(values)[:, :, None]


def log_partition(problem: Problem, n_particles: int) -> float:
    """log of Z_N = int exp(-beta N H_N(x)) dx over all N positions, to round-off.

    -log Z_N / (beta N) tends to inf F_beta as N grows (method.md 7.6). Raises ValueError as ``sample_log_gas`` does.

    Source: Selberg (1944) and Mehta, Dyson (1963); Forrester (2010), chapter 4.
    """
    n = _checks.count("n_particles", n_particles, least=2)
    gamma, j = 0.5 * _index(problem, n), np.arange(n)
    pairs = gamma * n * (n - 1)  # the power of a length in the product over pairs
    if isinstance(problem.domain, FreeSpace):
        (well,) = problem.potentials
        assert isinstance(well, Quadratic)
        stiffness = problem.inverse_temperature * well.stiffness
        value = np.sum(gammaln(1 + (j + 1) * gamma) - gammaln(1 + gamma)) + 0.5 * n * math.log(2 * math.pi)
        return float(value - 0.5 * (n + pairs) * math.log(stiffness))
    assert isinstance(problem.domain, Box)
    value = np.sum(2 * gammaln(1 + j * gamma) + gammaln(1 + (j + 1) * gamma) - gammaln(2 + (n + j - 1) * gamma)
                   - gammaln(1 + gamma))
    return float(value + (n + pairs) * math.log(problem.domain.high[0] - problem.domain.low[0]))


def _index(problem: Problem, n: int) -> float:
    """Dyson index, for the two problems that are solved."""
    beta, laws = problem.inverse_temperature, problem.laws
    log = (len(problem.interactions) == 1 == len(laws) and laws[0].s == 0 and laws[0].softening == 0
           and laws[0].family == 0 and laws[0].coupling > 0)
    well = problem.potentials[0] if len(problem.potentials) == 1 else None
    box = isinstance(problem.domain, Box) and isinstance(well, Zero)
    trap = isinstance(problem.domain, FreeSpace) and isinstance(well, Quadratic) and well.stiffness > 0
    if not isinstance(problem, Problem) or problem.dim != 1 or not log or not (box or trap) or math.isinf(beta):
        raise ValueError("exact samples exist for a repulsive unsoftened Log at finite temperature on an Interval without a "
                         f"potential or on FreeSpace(1) with Quadratic, got {problem.formula}")
    return beta * laws[0].coupling / (n - 1)
