"""Chapter 3: linear attention learns from film reviews, real ones where a data folder is given."""

from __future__ import annotations

import time

import numpy as np
from matplotlib.figure import Figure

import meanfield as mf
from meanfield import plots
from meanfield._checks import Array
from meanfield.attention import baselines
from meanfield.attention.data import Split, TextData, load_text
from meanfield.attention.metrics import evaluate
from meanfield.attention.toy import toy_reviews
from meanfield.experiments.context import Context
from meanfield.report import CheckResult, FigureRef, Section, Table

__all__ = ["reviews"]

_SHOWN = ("accuracy", "log_loss", "brier", "ece", "mcc")


def reviews(context: Context) -> Section:
    """Train on the train split, stop on validation, look at test once; against the majority class and naive Bayes."""
    data = load_text("rotten_tomatoes", data_dir=context.data_dir) if context.data_dir else toy_reviews(context.seed)
    train, test = usable(data)
    started = time.perf_counter()
    models = {learned: _fit(learned, data, context) for learned in (True, False)}
    seconds = time.perf_counter() - started
    probability = {
        "majority class": baselines.majority(train, test),
        "naive Bayes, words and pairs": baselines.naive_bayes(train, test),
        "linear attention, random particles": models[False].predict_proba(list(test.texts))[:, 1],
        "linear attention, learnt particles": models[True].predict_proba(list(test.texts))[:, 1],
    }
    scores = {name: evaluate(test.labels, p) for name, p in probability.items()}
    ours, bayes, most = (
        scores[n] for n in ("linear attention, learnt particles", "naive Bayes, words and pairs", "majority class")
    )
    _figures(context, models[True], probability["linear attention, learnt particles"], test, scores)
    where = (
        "above"
        if ours["accuracy_low"] > bayes["accuracy"]
        else ("below" if ours["accuracy_high"] < bayes["accuracy"] else "not told apart from")
    )
    real = data.name == "rotten_tomatoes"
    return Section(
        "Film reviews" + ("" if real else " (generated corpus)"),
        (
            f"Data: {data.source}; {len(train.labels):,} training texts, {len(test.labels):,} test texts."
            + (
                ""
                if real
                else " No data folder was given, so these are not real sentences: run again with --data-dir for the "
                "Rotten Tomatoes corpus of Pang and Lee (2005)."
            ),
            "The classifier is one encoder block with linear attention over softmax features. Phase A moves its particles "
            "with simulate (alignment of pooled features, log repulsion), phase B trains the rest with hand-written "
            f"gradients. Nothing was chosen on the test split. Two fits took {seconds:.0f} s.",
            f"Test accuracy {ours['accuracy']:.3f} ({ours['accuracy_low']:.3f} .. {ours['accuracy_high']:.3f}) is {where} "
            f"naive Bayes at {bayes['accuracy']:.3f} on the same split; log-loss {ours['log_loss']:.3f} against "
            f"{bayes['log_loss']:.3f}. "
            "One seed: the row with random particles shows what phase A brings here, not whether it does in general.",
        ),
        (
            CheckResult(
                "linear attention beats the majority class on the test split",
                "method.md 10.2",
                ours["accuracy"],
                f"above {most['accuracy']:.3f}",
                "the 95 % interval is above it",
                ours["accuracy_low"] > most["accuracy"],
                (ours["accuracy_low"], ours["accuracy_high"]),
            ),
            CheckResult(
                "its log-loss is below that of the class shares",
                "method.md 10.3",
                ours["log_loss"],
                f"below {most['log_loss']:.3f}",
                "test split",
                ours["log_loss"] < most["log_loss"],
            ),
        ),
        (
            FigureRef(
                "text-accuracy",
                "Test accuracy of four methods with 95 % intervals",
                "Test accuracy with 95 % Wilson intervals; the dashed line is the majority class.",
            ),
            FigureRef(
                "text-training",
                "Loss and accuracy against epoch, and reliability of the test probabilities",
                "Left: training and validation curves of phase B. Right: reliability on the test split, 95 % bars.",
            ),
        ),
        (
            Table(
                "Test split",
                ("model", "accuracy (95 %)", "log-loss", "Brier", "ECE", "MCC"),
                tuple(
                    (
                        name,
                        f"{s['accuracy']:.3f} ({s['accuracy_low']:.3f} .. {s['accuracy_high']:.3f})",
                        *(f"{s[m]:.3f}" for m in _SHOWN[1:]),
                    )
                    for name, s in scores.items()
                ),
            ),
            Table("Content digests", ("split", "SHA-256"), tuple((k, v[:32]) for k, v in data.digests.items())),
        ),
    )


def usable(data: TextData) -> tuple[Split, Split]:
    """Train and test split. Raises ValueError in one sentence where one is missing or has one class only."""
    for name, split in (("train", data.train), ("test", data.test)):
        if split is None or np.unique(split.labels).size < 2:
            raise ValueError(f"{data.name} needs a {name} split with both classes, {data.source} has none")
    assert data.train is not None
    assert data.test is not None
    return data.train, data.test


def _fit(learned: bool, data: TextData, context: Context) -> mf.KernelAttentionClassifier:
    assert data.train is not None
    model = mf.KernelAttentionClassifier(learned=learned, random_state=context.seed, progress=context.progress)
    validation = (list(data.validation.texts), data.validation.labels) if data.validation is not None else None
    return model.fit(list(data.train.texts), data.train.labels, validation=validation)


def _figures(
    context: Context,
    model: mf.KernelAttentionClassifier,
    probability: Array,
    test: Split,
    scores: dict[str, dict[str, float]],
) -> None:
    figure = Figure(figsize=(6.8, 2.8))
    ax = figure.subplots()
    plots.bars(
        list(scores),
        [s["accuracy"] for s in scores.values()],
        [s["accuracy_low"] for s in scores.values()],
        [s["accuracy_high"] for s in scores.values()],
        ax,
        baseline=scores["majority class"]["accuracy"],
    )
    ax.set_ylabel("test accuracy")
    context.figure("text-accuracy", figure)
    figure = Figure(figsize=(6.8, 3.2))
    left, right = figure.subplots(1, 2)
    plots.learning_curve(model.learning_curve_, left)
    plots.reliability(test.labels, probability, right)
    context.figure("text-training", figure)
    if model.phase_a_ is not None:
        context.keep("text-phase-a", model.phase_a_)
