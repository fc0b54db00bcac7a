"""All rungs of a ladder of tilts as one sample: cumulant function, tail probabilities, errors, and what they rest on.

Rung k samples the law proportional to exp(theta_k S) times the law at rest, S = N mean f. The best use of all of them
together (MBAR: Shirts, Chodera, J. Chem. Phys. 129 (2008), after Bennett 1976 and Geyer 1994) gives each sample the weight
exp(-D(S)), D(S) = log sum_k n_k exp(theta_k S - A_k), under the law at rest, where A_k = log E exp(theta_k S) solve
A_k = log sum exp(theta_k S - D(S)) up to a constant. S is all that is needed of a state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import logsumexp

from meanfield._checks import Array

__all__ = ["Ladder", "autocorrelation_time", "jackknife"]


@dataclass(frozen=True, eq=False)
class Ladder:
    """Solved weights: samples S in increasing order, their log weights under the law at rest (which sum to 1), and A_k."""

    tilts: Array
    cumulants: Array
    samples: Array
    log_weights: Array

    @classmethod
    def solve(cls, tilts: Array, rungs: list[Array], start: Array | None = None) -> Ladder:
        """``rungs`` are arrays of S, one a tilt; tilts increase, one of them is 0. Raises ArithmeticError if unsolvable."""
        counts = np.array([rung.size for rung in rungs], dtype=np.float64)
        samples = np.sort(np.concatenate([rung.ravel() for rung in rungs]))
        if start is None:  # thermodynamic integration: dA/dtheta = E_theta S
            means = np.array([rung.mean() for rung in rungs])
            start = np.concatenate([[0.0], np.cumsum(np.diff(tilts) * 0.5 * (means[1:] + means[:-1]))])
        cumulants = start - start[0]
        # Newton's method on the convex sum D(S) + sum n_k A_k; the first A is held
        value, shares = _objective(tilts, cumulants, counts, samples)
        for _ in range(100):
            gradient = counts - shares.sum(axis=1)
            if np.abs(gradient).max() < 1e-9 * counts.sum():
                break
            hessian = np.diag(shares.sum(axis=1)) - shares @ shares.T
            move = np.zeros(tilts.size)
            move[1:] = np.linalg.lstsq(hessian[1:, 1:], -gradient[1:], rcond=None)[0]
            damping = 1.0
            while damping > 1e-6:
                trial = _objective(tilts, cumulants + damping * move, counts, samples)
                if trial[0] <= value + 1e-12 * abs(value):
                    break
                damping /= 2
            cumulants = cumulants + damping * move
            value, shares = trial
        else:
            raise ArithmeticError("the weights of the rungs did not converge: they do not overlap; take a smaller spacing")
        log_weights = -logsumexp(_exponents(tilts, cumulants, counts, samples), axis=0)
        log_weights -= logsumexp(log_weights)
        return cls(tilts, cumulants - cumulants[np.flatnonzero(tilts == 0)[0]], samples, log_weights)

    def cumulant(self, theta: float) -> float:
        """log E exp(theta S)."""
        return float(logsumexp(self.log_weights + theta * self.samples))

    def mean(self, theta: float) -> float:
        """E_theta S, the derivative of the cumulant."""
        exponent = self.log_weights + theta * self.samples
        weights = np.exp(exponent - exponent.max())
        return float(weights @ self.samples / weights.sum())

    def spread(self, theta: float) -> float:
        """Standard deviation of S under theta."""
        exponent = self.log_weights + theta * self.samples
        weights = np.exp(exponent - exponent.max())
        weights /= weights.sum()
        return math.sqrt(float(weights @ np.square(self.samples - weights @ self.samples)))

    def tilt_of(self, total: float) -> float:
        """theta with E_theta S = ``total``; a standard deviation of S beyond the ladder's ends is allowed."""
        low, high = (float(end) + way / max(self.spread(float(end)), 1e-300)
                     for end, way in ((self.tilts[0], -1.0), (self.tilts[-1], 1.0)))
        if not self.mean(low) < total < self.mean(high):
            raise ArithmeticError(f"the ladder of tilts does not reach a mean sum of {total:.6g}")
        return float(brentq(lambda theta: self.mean(theta) - total, low, high, xtol=1e-12 * (high - low)))

    def log_tail(self, total: float, upper: bool) -> float:
        """log P(S >= total), or <=, under the law at rest; equality (of lattice statistics) up to round-off."""
        slack = 1e-9 * (abs(total) + float(np.abs(self.samples).max()))
        if upper:
            inside = self.log_weights[np.searchsorted(self.samples, total - slack, side="left"):]
        else:
            inside = self.log_weights[:np.searchsorted(self.samples, total + slack, side="right")]
        return float(logsumexp(inside)) if inside.size else -math.inf

    def overlap(self, k: int, rungs: list[Array]) -> float:
        """int 2 p q / (p + q) of the laws p, q of S on rungs k and k + 1: 1 where they agree, 0 where they are apart."""
        return float(np.mean([self._shared(k, rungs[k]).mean(), self._shared(k, rungs[k + 1]).mean()]))

    def _shared(self, k: int, samples: Array) -> Array:
        difference = ((self.tilts[k + 1] - self.tilts[k]) * samples - (self.cumulants[k + 1] - self.cumulants[k]))
        shared: Array = 1.0 / np.square(np.cosh(np.clip(0.5 * difference, -300, 300)))
        return shared


def _exponents(tilts: Array, cumulants: Array, counts: Array, samples: Array) -> Array:
    exponents: Array = tilts[:, None] * samples - cumulants[:, None] + np.log(counts)[:, None]
    return exponents


def _objective(tilts: Array, cumulants: Array, counts: Array, samples: Array) -> tuple[float, Array]:
    """sum D + sum n A, and the share of each rung in each sample, (rung, sample)."""
    exponents = _exponents(tilts, cumulants, counts, samples)
    top = exponents.max(axis=0)
    shares = np.exp(exponents - top)
    total = shares.sum(axis=0)
    shares /= total
    return float(np.sum(top + np.log(total)) + counts @ cumulants), shares


def autocorrelation_time(series: Array) -> float:
    """Integrated autocorrelation time of (run, time), in saved states: 1 for independent ones.

    Covariances are about the mean of all runs, so that runs that stay apart from one another count as correlated. Sums end
    at the window of Sokal (1997), five times the result. nan for a constant.
    """
    length = series.shape[1]
    centred = series - series.mean()
    power = np.abs(np.fft.rfft(centred, 2 * length, axis=1)) ** 2
    covariance = np.fft.irfft(power, axis=1)[:, :length].mean(axis=0) / np.arange(length, 0, -1)
    if not covariance[0] > 0:
        return math.nan
    times = 2.0 * np.cumsum(covariance / covariance[0]) - 1.0
    window = np.flatnonzero(np.arange(length) >= 5.0 * times)
    # without a window the run is too short to tell: all of it is one piece
    return max(float(times[window[0]]), 1.0) if window.size else float(length)


def jackknife(whole: Array, without: Array) -> Array:
    """Standard error from the estimates without one run each, (run, ...)."""
    runs = len(without)
    error: Array = np.sqrt((runs - 1) / runs * np.square(without - without.mean(axis=0)).sum(axis=0))
    return error
