"""Tokens, embeddings, the whole encoder and the alignment potential: exact values and central differences."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from meanfield.attention import embeddings, model, phase_a, training
from meanfield.attention.layers import cross_entropy
from meanfield.attention.tokens import Ragged, Vocabulary, batches, pad, words

ENCODER = model.Encoder(n_words=9, n_classes=3, width=8, n_heads=2, n_particles=5, hidden=6, dropout=0.3)


def ragged(*texts):
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    return Ragged(np.array([i for t in texts for i in t], dtype=np.int32), offsets)


TEXTS = ragged([3, 4, 5, 3], [1], [], [6, 7, 8])
LABELS = np.array([0, 2, 1, 1])


def parameters(encoder=ENCODER, seed=0, dtype="float64"):
    start = model.initial_particles(encoder, 1.0, seed)
    p = model.initial_parameters(encoder, embeddings.random_table(9, 8, seed), start, seed, dtype)
    rng = np.random.default_rng(seed)  # W_out and W_down start at zero, which would hide half of the backprop
    return {k: v + 0.3 * rng.standard_normal(v.shape).astype(dtype) for k, v in p.items()}


def test_words_and_vocabulary():
    assert words("It's GOOD -- really, good!") == ["it's", "good", "-", "-", "really", ",", "good", "!"]
    assert words(" \t\n") == []
    v = Vocabulary.build(["b a b", ("c b", "a d")], min_count=2)
    assert v.words == ("b", "a")
    assert len(v) == 5
    assert v.encode(["a zzz b", ""], 10).ids.tolist() == [4, 1, 3]
    assert Vocabulary.build(["b a b c"], max_size=2).words == ("b", "a")


def test_pairs_are_cut_longest_first():
    v = Vocabulary.build(["a b"])
    encode = lambda pair, n: v.encode([pair], n).ids.tolist()  # noqa: E731
    assert encode(("a a", "b"), 10) == [3, 3, 2, 4]
    assert encode(("a " * 20, "b"), 6) == [3, 3, 3, 3, 2, 4]
    assert encode(("a", "b " * 20), 6) == [3, 2, 4, 4, 4, 4]
    assert len(encode(("a " * 20, "b " * 20), 7)) == 7
    assert encode(("", ""), 5) == []
    assert encode(("a " * 9, "b"), 1) == [2]


def test_batches_hold_every_row_once_with_exact_masks():
    lengths = np.random.default_rng(0).integers(0, 30, 101)
    for rng in (None, np.random.default_rng(1)):
        groups = batches(lengths, 8, rng)
        assert sorted(np.concatenate(groups).tolist()) == list(range(101))
    ids, mask = pad(TEXTS, np.array([1, 0, 2]))
    assert mask.sum(axis=1).tolist() == [1, 4, 0]
    assert ids[1].tolist() == [3, 4, 5, 3]
    assert (ids[~mask] == 0).all()
    assert pad(TEXTS, np.array([2]))[0].shape == (1, 1)


def test_ppmi_vectors_put_words_of_one_topic_together():
    rng = np.random.default_rng(0)
    topics = [rng.integers(3 + 10 * t, 13 + 10 * t, 12).tolist() for t in rng.integers(0, 2, 200)]
    table = embeddings.ppmi_table(ragged(*topics), 24, 4, seed=0)
    np.testing.assert_array_equal(table, embeddings.ppmi_table(ragged(*topics), 24, 4, seed=0))
    unit = table[3:23] / np.linalg.norm(table[3:23], axis=1, keepdims=True)
    cosine = unit @ unit.T
    assert cosine[:10, :10].mean() > cosine[:10, 10:].mean() + 0.5
    assert (table[0] == 0).all()
    assert np.sqrt(np.square(table[3:23]).mean()) == pytest.approx(0.3)
    assert np.isfinite(embeddings.ppmi_table(ragged([3], []), 5, 4, seed=0)).all()  # nothing co-occurs
    assert np.isfinite(embeddings.ppmi_table(ragged([3, 4]), 5, 64, seed=0)).all()  # rank below the width


def test_svd_matches_the_exact_one():
    from scipy import sparse

    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((60, 5)) @ rng.standard_normal((5, 60))
    ours = embeddings._truncated(sparse.csr_array(matrix), 5, seed=0)
    u, s, _ = np.linalg.svd(matrix)
    expected = u[:, :5] * np.sqrt(s[:5])
    np.testing.assert_allclose(ours @ ours.T, expected @ expected.T, atol=1e-9 * s[0])


@pytest.mark.parametrize("feature_map", ["softmaxfeat", "softplus"])
@pytest.mark.parametrize("train", [False, True])
def test_backprop_of_the_whole_model(feature_map, train):
    encoder = dataclasses.replace(ENCODER, feature_map=feature_map, word_dropout=0.2)
    p = parameters(encoder)
    ids, mask = pad(TEXTS, np.arange(4))
    rng = (lambda site: np.random.default_rng(site)) if train else None

    def loss(p):
        logits, backprop = model.forward(encoder, p, ids, mask, rng)
        value, back = cross_entropy(logits, LABELS)
        return value, lambda: backprop(back())

    gradients = loss(p)[1]()
    assert gradients.keys() == p.keys()
    assert (gradients["table"][0] == 0).all()
    directions = np.random.default_rng(1)
    for name, x in p.items():
        d = directions.standard_normal(x.shape)
        h = 1e-5
        expected = (loss({**p, name: x + h * d})[0] - loss({**p, name: x - h * d})[0]) / (2 * h)
        scale = np.linalg.norm(gradients[name]) * np.linalg.norm(d) / np.sqrt(x.size)
        assert abs(np.vdot(gradients[name], d) - expected) <= 1e-6 * max(scale, abs(expected)), name


@pytest.mark.parametrize("fill", [0.0, 1e6, np.nan])
def test_bug_11_a_text_alone_equals_the_text_in_any_padded_batch(fill):
    p = parameters()
    p["table"][0] = fill
    w = np.array([[0.3, -1.0, 0.7]])
    alone, back_alone = model.forward(ENCODER, p, *pad(TEXTS, np.array([0])))
    expected = back_alone(w)
    for length in (6, 50, 512):
        for n_texts in (1, 32):
            ids, mask = np.zeros((n_texts, length), np.int32), np.zeros((n_texts, length), bool)
            ids[:, :4], mask[:, :4] = TEXTS[0], True
            logits, backprop = model.forward(ENCODER, p, ids, mask)
            np.testing.assert_allclose(logits, np.repeat(alone, n_texts, axis=0), rtol=0, atol=1e-12)
            dlogits = np.zeros((n_texts, 3))
            dlogits[0] = w
            gradients = backprop(dlogits)
            for name, g in gradients.items():
                np.testing.assert_allclose(g, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_bug_26_empty_text_pools_to_the_bias():
    p = parameters()
    logits, backprop = model.forward(ENCODER, p, *pad(TEXTS, np.array([2])))
    np.testing.assert_array_equal(logits[0], p["head.bias"])
    assert all(np.isfinite(g).all() for g in backprop(np.ones((1, 3))).values())


def test_flat_keys_are_the_keys():
    p = parameters()
    ids, mask = pad(TEXTS, np.arange(4))
    expected = model.keys(ENCODER, p, ids, mask)[:, mask]
    np.testing.assert_allclose(model.flat_keys(ENCODER, p, TEXTS), expected, atol=1e-14)


def potential(alignment="normalized", feature_map="softmaxfeat", **changes):
    rng = np.random.default_rng(5)
    lengths = rng.integers(1, 6, 30)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.standard_normal((2, offsets[-1], 4))
    labels = rng.integers(0, 3, 30)
    p = phase_a.FeatureAlignment(tokens, offsets, labels, feature_map, 0.8, alignment)
    return dataclasses.replace(p, **changes), rng.standard_normal((2, 7, 4))


def explicit_features(p, x, head):
    u = p.tokens[head] @ x[head].T / p.temperature
    h = np.exp(u) if p.feature_map == "softmaxfeat" else np.log1p(np.exp(u)) + 1e-4
    phi = np.sqrt(x.shape[1]) * h / h.sum(axis=1, keepdims=True)
    return np.stack([phi[a:b].mean(axis=0) for a, b in zip(p.offsets[:-1], p.offsets[1:], strict=True)])


@pytest.mark.parametrize("feature_map", ["softmaxfeat", "softplus"])
@pytest.mark.parametrize("alignment", ["normalized", "linear"])
def test_alignment_value_and_gradient(alignment, feature_map):
    p, x = potential(alignment, feature_map)
    value = p.value(x)
    assert value.shape == (2, 7)
    for head in range(2):
        z = explicit_features(p, x, head)
        k, same = z @ z.T, np.equal.outer(p.labels, p.labels).astype(float)
        n = len(k)
        centre = np.eye(n) - 1 / n
        if alignment == "normalized":
            kc, yc = centre @ k @ centre, centre @ same @ centre
            expected = -(kc * yc).sum() / np.linalg.norm(kc) / np.linalg.norm(yc)
        else:
            yy = 1.5 * centre @ same @ centre
            expected = -((yy * k).sum() - np.trace(yy * k)) / (n * (n - 1))
        np.testing.assert_allclose(value[head], expected, rtol=1e-10)
    for g in (p.gradient(x), p.step_gradient(x, 3)):
        for seed in range(3):
            d, h = np.random.default_rng(seed).standard_normal(x.shape), 1e-5
            change = (p.value(x + h * d)[:, 0] - p.value(x - h * d)[:, 0]) / (2 * h)
            np.testing.assert_allclose((g * d).sum(axis=(1, 2)) / 7, change, rtol=1e-6)


def test_two_class_linear_alignment_is_3_1_with_centred_signs():
    p, x = potential("linear", labels=np.arange(30) % 3 % 2)
    y = 2.0 * p.labels - 1
    y -= y.mean()
    for head in range(2):
        z = explicit_features(p, x, head)
        pairs = np.outer(y, y) * (z @ z.T)
        np.testing.assert_allclose(p.value(x)[head], -(pairs.sum() - np.trace(pairs)) / (30 * 29), rtol=1e-10)


def test_minibatch_depends_on_seed_and_step_only(monkeypatch):
    p, x = potential(batch_size=12, seed=4)
    first = p.step_gradient(x, 9)
    p.step_gradient(x, 10)
    np.testing.assert_array_equal(first, p.step_gradient(x, 9))
    clipped = dataclasses.replace(p, clip=0.05).step_gradient(x, 9)
    lengths = np.linalg.norm(first, axis=-1, keepdims=True)
    np.testing.assert_allclose(clipped, first * np.minimum(1, 0.05 / lengths), rtol=1e-12)
    assert lengths.min() < 0.05 < lengths.max()
    assert not np.array_equal(first, p.step_gradient(x, 10))
    assert not np.array_equal(first, dataclasses.replace(p, seed=5).step_gradient(x, 9))
    whole, _ = potential()
    monkeypatch.setattr(phase_a, "_CHUNK", 7)  # many blocks of tokens give what one block gives
    np.testing.assert_allclose(potential()[0].gradient(x), whole.gradient(x), rtol=1e-12)
    with pytest.raises(ValueError, match=r"positions must have shape \(head=2, particle, component=4\)"):
        p.gradient(x[0])


def test_a_batch_of_one_class_says_nothing():
    p, x = potential(labels=np.zeros(30, dtype=int))
    assert (p.value(x) == 0).all()
    assert (p.gradient(x) == 0).all()


def test_phase_a_raises_the_alignment_inside_the_ball():
    p, x = potential()
    x *= 0.5 / np.linalg.norm(x, axis=-1, keepdims=True)
    schedule = phase_a.Schedule(radius=2.0, strength=1e-3, softening=1e-3, inverse_temperature=1e4, dt=0.5,
                                n_steps=40)
    run = phase_a.learn(p, x, schedule, seed=0)
    last = run["position"].isel(time=-1).to_numpy()
    assert run["position"].dims == ("run", "time", "particle", "component")
    assert (p.value(last) < p.value(x) - 0.02).all()
    assert (np.linalg.norm(last, axis=-1) <= 2.0 + 1e-12).all()


def test_adamw_by_hand():
    p = {"a.weight": np.array([1.0]), "a.bias": np.array([1.0])}
    optimizer = training.AdamW(p, weight_decay=0.1)
    for g in (2.0, -1.0):
        optimizer.update(p, {k: np.array([g]) for k in p}, 0.01)
    m, s = 0.1 * -1 + 0.9 * 0.1 * 2, 0.001 * 1 + 0.999 * 0.001 * 4
    second = 0.01 * (m / (1 - 0.9**2)) / (np.sqrt(s / (1 - 0.999**2)) + 1e-8)
    np.testing.assert_allclose(p["a.bias"], 1 - 0.01 - second, rtol=1e-6)
    np.testing.assert_allclose(p["a.weight"], (0.999 * 1 - 0.01) * 0.999 - second, rtol=1e-6)


def test_training_keeps_the_best_checkpoint_and_the_particles():
    p = parameters(dtype="float32")
    recipe = training.Recipe(n_epochs=30, batch_size=2, learning_rate=0.05, patience=2)
    best, curve, n = training.train(ENCODER, p, TEXTS, LABELS, (TEXTS, (LABELS + 1) % 3), recipe, seed=0)
    losses = [r["validation_log_loss"] for r in curve]
    assert n == len(curve) == int(np.argmin(losses)) + 3 < 30
    loss, _ = training._evaluate(ENCODER, best, TEXTS, (LABELS + 1) % 3)
    assert loss == min(losses)
    np.testing.assert_array_equal(best["particles"], p["particles"])
