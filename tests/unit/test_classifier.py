"""``KernelAttentionClassifier`` on a small synthetic corpus: contract, labels, determinism, bad input."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_info, threadpool_limits

from meanfield.attention.classifier import KernelAttentionClassifier

SMALL = {"n_particles": 8, "width": 16, "hidden": 16, "n_epochs": 3, "batch_size": 16, "phase_a_steps": 10,
         "phase_a_batch": 64, "min_count": 1, "random_state": 0, "learning_rate": 0.01}


def corpus(n=160, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    topics = ["good fine great lovely warm", "bad dull poor awful cold", "blue green red black white"]
    common = ["the", "a", "film", "it", "is", "was", "of", ",", "."]
    y = np.arange(n) % n_classes
    texts = []
    for label in y:
        own = rng.choice(topics[label].split(), rng.integers(1, 4))
        texts.append(" ".join(rng.permutation([*own, *rng.choice(common, rng.integers(1, 12))])))
    return texts, y


@pytest.fixture(scope="module")
def fitted():
    return KernelAttentionClassifier(**SMALL).fit(*corpus())


def test_learns_and_shows_what_it_learnt(fitted):
    texts, y = corpus(seed=1)
    assert fitted.score(texts, y) > 0.95
    assert fitted.particles_.shape == (2, 8, 8)
    assert fitted.phase_a_["position"].dims == ("run", "time", "particle", "component")
    last = fitted.phase_a_["position"].isel(time=-1).to_numpy()
    np.testing.assert_array_equal(fitted.particles_, last.astype(np.float32))
    first = fitted.phase_a_["position"].isel(time=0).to_numpy()
    assert not np.array_equal(first, last)
    assert fitted.n_iter_ == len(fitted.learning_curve_) <= 3
    assert {"epoch", "train_log_loss", "validation_log_loss"} <= fitted.learning_curve_[0].keys()
    vanilla = KernelAttentionClassifier(**SMALL, learned=False).fit(*corpus())
    assert vanilla.phase_a_ is None
    np.testing.assert_array_equal(vanilla.particles_, first.astype(np.float32))  # both start alike


def test_scikit_learn_conventions():
    model = KernelAttentionClassifier(**SMALL, feature_map="softplus")
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(width=32).width == 32
    assert not any(name.endswith("_") and not name.startswith("_") for name in vars(model))
    with pytest.raises(NotFittedError):
        model.predict(["a"])
    assert clone(model).fit(*corpus()).score(*corpus(seed=1)) > 0.9
    again = KernelAttentionClassifier(**SMALL, embedding="random", alignment="linear", radius=0.3,
                                      validation_fraction=0.0)
    assert "validation_log_loss" not in again.fit(*corpus()).learning_curve_[0]


@pytest.mark.parametrize("names", [["neg", "pos"], [0, 1], [-1, 1], [False, True], [2.0, 7.0],
                                   ["b", "a", "c"]])
def test_bug_27_labels_come_back_as_they_came(names):
    texts, y = corpus(n=90, n_classes=len(names))
    labels = [names[i] for i in y]
    model = KernelAttentionClassifier(**SMALL, learned=False).fit(texts, labels)
    assert model.classes_.tolist() == sorted(names)
    predicted = model.predict(texts)
    assert predicted.dtype == np.asarray(labels).dtype
    assert model.score(texts, labels) > 0.8
    p = model.predict_proba(texts)
    assert p.shape == (90, len(names))
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], predicted)


def test_bug_27_bad_labels():
    texts, y = corpus(n=20)
    model = KernelAttentionClassifier(**SMALL)
    for labels, message in [
        (np.zeros(20), r"labels must hold at least two classes, got only"),
        (-np.ones(20, int), r"labels must hold at least two classes, got only"),
        (y[:-1], r"texts and labels must have one length, got 20 texts and 19 labels"),
        (np.where(y, np.nan, 1.0), r"labels must not be missing, got .*nan.* in row 1"),
        ([None, *y[1:]], r"labels must not be missing, got None in row 0"),
        (np.eye(20), r"labels must be one a text"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(texts, labels)
    with pytest.raises(TypeError, match=r"labels must be of one kind that can be sorted, got int, str"):
        model.fit(texts, np.array(["a", 1] * 10, dtype=object))
    with pytest.raises(ValueError, match=r"among the training labels .* got 'neutral' in row 1"):
        model.fit(texts, np.array(["neg", "pos"])[y], validation=(["a", "b"], ["neg", "neutral"]))


def test_bad_texts_and_settings():
    texts, y = corpus(n=20)
    model = KernelAttentionClassifier(**SMALL)
    for bad, error, message in [
        ("a text", TypeError, r"texts must be a list of strings or of pairs of strings, got str"),
        (3, TypeError, r"texts must be a list of strings"),
        ([*texts[:-1], 5.0], TypeError, r"texts must be strings or pairs of strings, got float in row 19"),
        ([None, *texts[1:]], TypeError, r"got NoneType in row 0"),
        ([*texts[:-1], b"x"], TypeError, r"got bytes in row 19"),
        ([*texts[:-1], ("a", "b")], ValueError, r"texts must all be single texts, got a pair in row 19"),
        ([*texts[:-1], ("a", "b", "c")], TypeError, r"in row 19"),
        (["  "] * 20, ValueError, r"texts must hold at least one word, got 1. texts without any"),
    ]:
        with pytest.raises(error, match=message):
            model.fit(bad, y)
    with pytest.raises(ValueError, match=r"at least one text of each of two classes, got none"):
        model.fit([], [])
    for name, value, message in [
        ("feature_map", "favour", r"feature_map must be one of 'softmaxfeat', 'softplus', got 'favour'"),
        ("n_heads", 3, r"width must be a multiple of n_heads=3, got 16"),
        ("dropout", 1.0, r"dropout must be at least 0 and below 1, got 1.0"),
        ("radius", -1.0, r"radius must be positive and finite, got -1.0"),
        ("random_state", "x", r"None, a non-negative integer or a numpy Generator, got 'x'"),
        ("dtype", "float16", r"dtype must be one of 'float32', 'float64', got 'float16'"),
    ]:
        with pytest.raises(ValueError, match=message):
            KernelAttentionClassifier(**{**SMALL, name: value}).fit(texts, y)
    fitted = KernelAttentionClassifier(**SMALL, learned=False).fit([(t, "x") for t in texts], y)
    with pytest.raises(ValueError, match=r"texts must all be pairs of texts, got a single text in row 0"):
        fitted.predict(texts)


def test_pairs_of_texts():
    texts, y = corpus()
    pairs = [(t, "it was") if i % 3 else [t, "of the film"] for i, t in enumerate(texts)]
    model = KernelAttentionClassifier(**SMALL).fit(pairs, y)
    assert model.score(pairs, y) > 0.95
    p = model.predict_proba([("", ""), ("", "good"), ("good", "")])
    assert np.isfinite(p).all()


@pytest.mark.parametrize("learned", [False, True])
def test_bug_26_texts_without_known_words(learned):
    texts, y = corpus()
    texts = ["", " ", "!!!", "zzz", *texts[4:]]  # rows without words may be in the training set too
    model = KernelAttentionClassifier(**{**SMALL, "min_count": 2}, learned=learned).fit(texts, y)
    odd = ["", " ", "\t\n", "!!!", "zzz yyy", "good", "good " * 10_000]
    p = model.predict_proba(odd)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert all(np.isfinite(v).all() for v in model.parameters_.values())
    bias = model.parameters_["head.bias"].astype(float)
    prior = np.exp(bias) / np.exp(bias).sum()
    np.testing.assert_allclose(p[:3], np.tile(prior, (3, 1)), rtol=0, atol=1e-12)
    for i, text in enumerate(odd):
        np.testing.assert_allclose(model.predict_proba([text])[0], p[i], rtol=0, atol=1e-12)
    cut = model.predict_proba(["good " * 10_000])
    np.testing.assert_array_equal(cut, model.predict_proba(["good " * 128]))
    assert model.predict_proba([]).shape == (0, 2)
    assert model.predict([]).shape == (0,)


def test_bug_11_a_text_alone_and_in_any_batch(fitted):
    texts, _ = corpus(n=60, seed=2)
    p = fitted.predict_proba(texts)
    assert p.dtype == np.float64
    order = np.random.default_rng(0).permutation(60)
    np.testing.assert_allclose(fitted.predict_proba([texts[i] for i in order]), p[order], rtol=0, atol=1e-12)
    alone = np.concatenate([fitted.predict_proba([t]) for t in texts])
    np.testing.assert_allclose(alone, p, rtol=0, atol=1e-12)
    longer = fitted.predict_proba([*texts, "good " * 128])[:-1]
    np.testing.assert_allclose(longer, p, rtol=0, atol=1e-12)


def test_bug_34_prediction_is_frozen(fitted):
    texts, _ = corpus(n=60, seed=2)
    p = fitted.predict_proba(texts)
    fitted.predict(["something else"])
    np.testing.assert_array_equal(fitted.predict_proba(texts), p)
    loaded = pickle.loads(pickle.dumps(fitted))
    assert loaded.seed_ == 0
    np.testing.assert_array_equal(loaded.predict_proba(texts), p)
    results = {}

    def work(i):
        results[i] = fitted.predict_proba(texts)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for q in results.values():
        np.testing.assert_array_equal(q, p)


def test_blas_limit_is_lifted_again(fitted):
    with threadpool_limits(2, user_api="blas"):
        before = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        fitted.predict(["good"])
        assert before == [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_bug_56_global_random_state_is_left_alone():
    texts, y = corpus(n=40)

    def fit(random_state):
        return KernelAttentionClassifier(**{**SMALL, "random_state": random_state}).fit(texts, y)

    state, python_state = np.random.get_state(), random.getstate()
    first = fit(0).predict_proba(texts)
    assert random.getstate() == python_state
    after = np.random.get_state()
    assert all(np.array_equal(a, b) for a, b in zip(state, after, strict=True))
    np.testing.assert_array_equal(fit(0).predict_proba(texts), first)
    generator = np.random.default_rng(0)
    assert fit(generator).seed_ != fit(generator).seed_
    fresh = fit(None)
    again = fit(fresh.seed_)
    np.testing.assert_array_equal(fresh.predict_proba(texts), again.predict_proba(texts))


def digest():
    """Bits of a fit whose products are large enough for BLAS to share among threads."""
    model = KernelAttentionClassifier(**{**SMALL, "width": 64, "n_particles": 64}).fit(*corpus(n=300))
    bits = b"".join(model.parameters_[name].tobytes() for name in sorted(model.parameters_))
    return hashlib.sha256(bits + model.predict_proba(corpus()[0]).tobytes()).hexdigest()


def test_same_bits_in_processes_of_one_and_two_threads():
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    script = f"import sys; sys.path[:0] = {paths}; import test_classifier; print(test_classifier.digest())"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    with threadpool_limits(2):
        assert done.stdout.strip() == digest(), done.stderr


def test_explicit_validation_and_float64():
    texts, y = corpus()
    names = np.array(["no", "yes"])[y]
    model = KernelAttentionClassifier(**{**SMALL, "dtype": "float64"})
    model.fit(texts, names, validation=(texts[:30], names[:30]))
    assert model.particles_.dtype == np.float64
    p = np.maximum(model.predict_proba(texts[:30])[np.arange(30), y[:30]], 1e-300)
    best = min(record["validation_log_loss"] for record in model.learning_curve_)
    assert -np.log(p).mean() == pytest.approx(best, rel=1e-12)
    assert len(model.vocabulary_) > len(KernelAttentionClassifier(**{**SMALL, "max_vocabulary": 5}).fit(
        texts, names).vocabulary_)
