"""Binary metrics against scikit-learn, SciPy and small cases; BUG-xx are symptoms from public trackers."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics as oracle

from meanfield.attention.metrics import ece, ece_as_printed, ece_positive, evaluate, wilson


def sample(n=997, seed=3):
    generator = np.random.default_rng(seed)
    p = generator.beta(0.7, 0.9, n)
    return (generator.random(n) < p**1.3).astype(int), p


def naive_gap(score, hit, bins):
    """The definition, bin by bin."""
    total, counted = 0.0, 0
    for b in range(1, bins + 1):
        inside = (score <= b / bins) & ((score > (b - 1) / bins) | (b == 1))
        counted += inside.sum()
        if inside.any():
            total += inside.mean() * abs(hit[inside].mean() - score[inside].mean())
    assert counted == len(score)
    return total


def test_agrees_with_scikit_learn():
    y, p = sample()
    found = evaluate(y, p)
    predicted = (p > 0.5).astype(int)
    assert found == pytest.approx({
        "accuracy": oracle.accuracy_score(y, predicted), "mcc": oracle.matthews_corrcoef(y, predicted),
        "f1": oracle.f1_score(y, predicted), "roc_auc": oracle.roc_auc_score(y, p),
        "log_loss": oracle.log_loss(y, p), "brier": oracle.brier_score_loss(y, p),
        "accuracy_low": found["accuracy_low"], "accuracy_high": found["accuracy_high"],
        "ece": naive_gap(np.maximum(p, 1 - p), predicted == y, 15), "ece_positive": naive_gap(p, y, 15),
        "ece_as_printed": naive_gap(p, predicted == y, 15),
    }, rel=1e-12)
    assert all(type(value) is float for value in found.values())


def test_ece_is_below_the_root_of_brier_and_the_printed_one_is_not():
    # Jensen: |acc - conf| <= sqrt(mean (conf - correct)^2), and conf - correct = +-(p - y)
    y, p = sample()
    found = evaluate(y, p)
    assert found["ece"] <= math.sqrt(found["brier"]) < found["ece_as_printed"]


@pytest.mark.parametrize(("k", "n", "level"), [(0, 7, 0.95), (7, 7, 0.95), (1, 2, 0.5), (850, 1066, 0.95),
                                               (3, 872, 0.99)])
def test_wilson_is_scipys(k, n, level):
    low, high = wilson(k, n, level)
    assert (low, high) == pytest.approx(tuple(binomtest(k, n).proportion_ci(level, "wilson")), abs=1e-12)
    assert 0 <= low <= k / n <= high <= 1


@pytest.mark.parametrize(("arguments", "message"), [
    ((1, 0), "n must be"), ((3, 2), "successes must be at most n=2"), ((-1, 2), "successes must be"),
    ((1, 2, 1.0), "level must be"),
])
def test_wilson_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        wilson(*arguments)


def test_bug_27_labels_of_an_unlabelled_split():
    with pytest.raises(ValueError, match="the split has no labels"):
        evaluate([-1, -1, -1], [0.2, 0.5, 0.9])
    with pytest.raises(ValueError, match="labels must be 0 or 1, got -1 at index 1"):
        evaluate([1, -1, 0], [0.2, 0.5, 0.9])
    with pytest.raises(ValueError, match="labels must be 0 or 1, got"):
        evaluate(["pos", "neg"], [0.2, 0.5])
    assert evaluate([True, False], [0.9, 0.2])["accuracy"] == 1.0


def test_bug_28_ece_edges():
    # (a) a confidence of exactly 1 is in the last bin, not in one of its own (which would give 0.525)
    assert ece([1, 0], [0.95, 1.0], bins=10) == pytest.approx(0.475, abs=1e-15)
    # (b) exactly 0 is in the first bin; top label and class 1 are two functions
    p, y = [1.0, 1.0, 1.0, 1.0, 0.0], [0, 0, 1, 1, 1]
    assert ece(y, p, bins=2) == pytest.approx(0.6, abs=1e-15)
    assert ece_positive(y, p, bins=2) == pytest.approx(0.6, abs=1e-15)
    assert ece_as_printed(y, p, bins=2) == pytest.approx(0.4, abs=1e-15)
    # (c) one bin alone
    assert ece([1] * 4 + [0] * 6, [0.7] * 10) == pytest.approx(0.3, abs=1e-15)


@pytest.mark.parametrize("bins", [1, 2, 10, 15, 49])
def test_bug_28_every_sample_counts_once_on_every_edge(bins):
    edges = np.arange(bins + 1) / bins
    # an edge belongs to the bin below it, so moving all of them down by a little changes next to nothing
    inside = np.clip(edges - 1e-9, 0.0, 1.0)
    labels = np.arange(bins + 1) % 2
    for measure in (ece_positive, ece_as_printed):
        assert measure(labels, edges, bins) == pytest.approx(measure(labels, inside, bins), abs=1e-7)
    assert ece_positive(labels, edges, bins) == pytest.approx(naive_gap(edges, labels, bins), abs=1e-14)


@pytest.mark.parametrize(("labels", "probability", "message"), [
    ([], [], "at least one sample, got none"),
    ([0, 1], [0.5, math.nan], "probability must be finite, got nan"),
    ([0, 1], [0.5, math.inf], "probability must be finite, got inf"),
    ([0, 1], [0.5, 1.1], r"probability must be in \[0, 1\], got 1.1 at index 1"),
    ([0, 1], [-2e-6, 1.0], r"probability must be in \[0, 1\], got -2e-06 at index 0"),
    ([0, 1, 1], [0.5, 0.1], r"the same shape \(n,\), got \(3,\) and \(2,\)"),
    ([0, 1], [[0.5, 0.5], [0.1, 0.9]], r"the same shape \(n,\), got \(2,\) and \(2, 2\)"),
    ([0, 2], [0.5, 0.1], "labels must be 0 or 1, got 2 at index 1"),
    ([0, math.nan], [0.5, 0.1], "labels must be 0 or 1, got nan at index 1"),
])
def test_bug_28_input_that_is_refused(labels, probability, message):
    for measure in (evaluate, ece, ece_positive, ece_as_printed):
        with pytest.raises(ValueError, match=message):
            measure(labels, probability)


def test_bug_28_rounding_outside_the_interval_is_clipped():
    assert evaluate([0, 1], [-1e-9, 1 + 1e-9]) == evaluate([0, 1], [0.0, 1.0])


def test_bug_53_mcc_of_one_class_is_zero_without_a_warning():
    # warnings are errors in this suite
    assert evaluate([1, 0, 1, 1, 0], [0.1] * 5)["mcc"] == 0.0
    for labels in ([0, 0, 0], [1, 1, 1]):
        for probability in ([0.1] * 3, [0.9] * 3):
            found = evaluate(labels, probability)
            assert found["mcc"] == 0.0
            assert found["accuracy"] in (0.0, 1.0)
            assert math.isnan(found.pop("roc_auc"))
            json.dumps(found, allow_nan=False)


def test_bug_53_large_counts_do_not_overflow():
    y = np.repeat([0, 0, 1, 1], 200_000)
    p = np.tile(np.repeat([0.1, 0.9], 200_000), 2)
    assert evaluate(y, p)["mcc"] == 0.0
    assert evaluate([0, 1, 1], [0.0, 1.0, 1.0])["mcc"] == 1.0
    assert evaluate([0, 1, 1], [1.0, 0.0, 0.0])["mcc"] == -1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bug_54_log_loss_of_certain_probabilities(dtype):
    assert evaluate([1, 0], np.array([1, 0], dtype))["log_loss"] == pytest.approx(0.0, abs=1e-6)
    wrong = evaluate([0, 1], np.array([1, 0], dtype))["log_loss"]
    assert wrong == pytest.approx(-math.log(np.finfo(np.float64).eps), rel=1e-12)
    # a split with one class only
    assert evaluate([1, 1], np.array([0.5, 0.5], dtype))["log_loss"] == pytest.approx(math.log(2))
    # a float32 softmax is above 1 by rounding
    assert math.isfinite(evaluate([1, 0], np.array([1 + 2e-7, 0.5], dtype))["log_loss"])
