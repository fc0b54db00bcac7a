"""Fitted rates with standard errors: how fast an error falls with N, with dt or with the cell width."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from meanfield import _checks
from meanfield._checks import Array

__all__ = ["Rate", "fit_rate"]


class Rate(NamedTuple):
    """error ~ exp(intercept) scale^slope; ``stderr`` is the standard error of the slope."""

    slope: float
    stderr: float
    intercept: float


def fit_rate(scale: Array, error: Array, stderr: Array | None = None) -> Rate:
    """Slope of log error against log scale, by weighted least squares.

    With ``stderr`` (of each error) the slope's standard error propagates them, enlarged by sqrt(chi^2 / dof) where the
    points scatter more than they should; without, it comes from the scatter alone (three points at least).
    """
    x, y = np.log(_checks.finite_array("scale", scale, ndim=1)), np.log(_checks.finite_array("error", error, ndim=1))
    if x.shape != y.shape or x.size < (3 if stderr is None else 2) or np.ptp(x) == 0 or not np.isfinite(x + y).all():
        raise ValueError(f"a rate needs positive errors at {3 if stderr is None else 2} or more different scales, "
                         f"got {list(scale)} and {list(error)}")
    sigma = np.ones(x.size) if stderr is None else np.asarray(stderr) / np.asarray(error)
    weight = 1.0 / np.square(sigma)
    center = np.average(x, weights=weight)
    spread = float(np.sum(weight * np.square(x - center)))
    slope = float(np.sum(weight * (x - center) * y)) / spread
    intercept = float(np.average(y, weights=weight)) - slope * float(center)
    chi2 = float(np.sum(weight * np.square(y - intercept - slope * x)))
    dof = x.size - 2
    excess = chi2 / dof if dof else 1.0
    return Rate(slope, math.sqrt((excess if stderr is None else max(1.0, excess)) / spread), intercept)
