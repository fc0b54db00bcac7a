"""Means with intervals: no claim without an error bar."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy.stats import t as student

from meanfield import _checks
from meanfield._checks import Array

__all__ = ["Estimate", "mean_interval"]


class Estimate(NamedTuple):
    """A mean, its standard error and its interval."""

    mean: float
    stderr: float
    low: float
    high: float


def mean_interval(values: Array, level: float = 0.95) -> Estimate:
    """Mean of independent values with its Student interval; paired comparisons pass their differences.

    Raises ValueError for fewer than two values.
    """
    x = _checks.finite_array("values", values, ndim=1)
    if x.size < 2:
        raise ValueError(f"an interval needs two values or more, got {x.size}")
    mean, stderr = float(x.mean()), float(x.std(ddof=1) / math.sqrt(x.size))
    half = float(student.ppf(0.5 + level / 2, x.size - 1)) * stderr
    return Estimate(mean, stderr, mean - half, mean + half)
