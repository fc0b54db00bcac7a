"""How good the probabilities of a binary classifier are: accuracy, MCC, F1, AUC, losses, calibration.

Use ``evaluate`` for everything at once. Three calibration errors are kept apart because papers mix them up:
``ece`` (top label: confidence against correctness), ``ece_positive`` (probability of class 1 against its
frequency), and ``ece_as_printed`` (probability of class 1 against correctness: not a calibration error, but
what some tables print).

The rules: class 1 is predicted where its probability is above one half (a tie is class 0). Probabilities up
to 1e-6 outside [0, 1] are rounding and are clipped; NaN and anything further out is refused. The probability
of class 0 is one minus that of class 1, so there are no rows that must sum to 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks
from meanfield._checks import Array

__all__ = ["ece", "ece_as_printed", "ece_positive", "evaluate", "wilson"]

Labels = NDArray[np.int64]


def evaluate(labels: Any, probability: Any) -> dict[str, float]:
    """Metrics of ``probability`` of class 1, shape (n,), against ``labels`` 0/1, shape (n,).

    ``accuracy`` and its Wilson 95 % interval ``accuracy_low``, ``accuracy_high``; ``mcc`` = (TP TN - FP FN) /
    sqrt((TP + FP)(TP + FN)(TN + FP)(TN + FN)), 0 where a factor is 0; ``f1`` of class 1, 0 where it is 0/0;
    ``roc_auc``, NaN where only one class occurs; ``log_loss`` in nats, of probabilities clipped to
    [eps, 1 - eps] with the float64 eps 2.2e-16, so that a certain error costs 36.04 and not infinity;
    ``brier``; ``ece``, ``ece_positive`` and ``ece_as_printed`` with 15 bins. ValueError for input that is
    empty, NaN, of unequal lengths or not 0/1.
    """
    from sklearn.metrics import log_loss, roc_auc_score

    y, p = _checked(labels, probability)
    predicted = p > 0.5
    # Python integers: the product of four counts does not overflow, and 0/0 is decided here, not by the
    # version of a library (scikit-learn warns, and has changed its mind)
    tp, fp = int((predicted & (y == 1)).sum()), int((predicted & (y == 0)).sum())
    fn, tn = int((~predicted & (y == 1)).sum()), int((~predicted & (y == 0)).sum())
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    low, high = wilson(tp + tn, y.size)
    return {
        "accuracy": (tp + tn) / y.size,
        "accuracy_low": low,
        "accuracy_high": high,
        "mcc": (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0,
        "f1": 2 * tp / (2 * tp + fp + fn) if tp else 0.0,
        "roc_auc": float(roc_auc_score(y, p)) if 0 < tp + fn < y.size else math.nan,
        "log_loss": float(log_loss(y, p, labels=[0, 1])),
        "brier": float(np.square(p - y).mean()),
        "ece": ece(y, p),
        "ece_positive": ece_positive(y, p),
        "ece_as_printed": ece_as_printed(y, p),
    }


def ece(labels: Any, probability: Any, bins: int = 15) -> float:
    """Expected calibration error sum_b |I_b| / n |acc(I_b) - conf(I_b)| with conf = max(p, 1 - p).

    Equal-width bins ((b - 1) / bins, b / bins], the first with 0: every sample is counted once, empty bins
    not at all. Source: Guo et al. 2017, "On calibration of modern neural networks".
    """
    y, p = _checked(labels, probability)
    return _gap(np.maximum(p, 1 - p), (p > 0.5) == (y == 1), bins)


def ece_positive(labels: Any, probability: Any, bins: int = 15) -> float:
    """The same sum for class 1: bins and averages p, against the frequency of y = 1. 0 for a calibrated p."""
    y, p = _checked(labels, probability)
    return _gap(p, y == 1, bins)


def ece_as_printed(labels: Any, probability: Any, bins: int = 15) -> float:
    """Bins and averages p of class 1 but compares it with correctness, as the numbers of published tables do.

    Not a calibration error: a classifier that is right and certain scores the share of class 0, and a lower
    value can mean less confident. For comparison with such tables only.
    """
    y, p = _checked(labels, probability)
    return _gap(p, (p > 0.5) == (y == 1), bins)


def wilson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share ``successes`` / ``n`` at confidence ``level`` (Wilson 1927)."""
    n = _checks.count("n", n)
    k = _checks.count("successes", successes, least=0)
    if k > n:
        raise ValueError(f"successes must be at most n={n}, got {k}")
    level = _checks.number("level", level)
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    from scipy.special import ndtri

    z = float(ndtri(0.5 + level / 2))
    center = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    # exact at the ends, where the formula leaves a rounding error on the wrong side
    return (center - half if k else 0.0), (center + half if k < n else 1.0)


def _gap(score: Array, hit: NDArray[np.bool_], bins: int) -> float:
    bins = _checks.count("bins", bins)
    # inner edges b / bins; "left" closes the bins on the right: a score on an edge belongs to the bin below
    which = np.searchsorted(np.arange(1, bins) / bins, score, side="left")
    # |I_b| |acc - conf| = |sum of hits - sum of scores|
    return float(np.abs(np.bincount(which, hit - score, bins)).sum() / score.size)


def _checked(labels: Any, probability: Any) -> tuple[Labels, Array]:
    y, p = np.asarray(labels), _checks.finite_array("probability", probability)
    if p.ndim != 1 or y.shape != p.shape:
        raise ValueError(f"labels and probability (of class 1) must have the same shape (n,), "
                         f"got {y.shape} and {p.shape}")
    if p.size == 0:
        raise ValueError("labels and probability must have at least one sample, got none")
    if y.dtype.kind not in "biuf":
        raise ValueError(f"labels must be 0 or 1, got {y.flat[0]!r}")
    if (y == -1).all():
        raise ValueError("labels must be 0 or 1, got -1 everywhere: the split has no labels")
    for name, array, wrong in (("labels must be 0 or 1", y, (y != 0) & (y != 1)),
                               ("probability must be in [0, 1]", p, (p < -1e-6) | (p > 1 + 1e-6))):
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(f"{name}, got {array[at]} at index {at}")
    return y.astype(np.int64), np.clip(p, 0.0, 1.0)
