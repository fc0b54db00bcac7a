"""Layers and linear attention: every backprop against central differences, padding without influence."""

from __future__ import annotations

import numpy as np
import pytest

from meanfield import _rng
from meanfield.attention import layers, linear


def difference(f, x, direction, h=1e-5):
    """Central difference of f along a direction."""
    return (f(x + h * direction) - f(x - h * direction)) / (2 * h)


def check_gradient(f, gradient, x, rng, rtol=1e-6):
    """f is scalar, gradient its claimed gradient at x; three random directions."""
    assert gradient.shape == x.shape
    for _ in range(3):
        direction = rng.standard_normal(x.shape)
        expected = difference(f, x, direction)
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction) / np.sqrt(x.size)
        assert abs(np.vdot(gradient, direction) - expected) <= rtol * max(abs(expected), scale)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


MASK = np.array([[True, True, True, False], [True, False, False, False], [False] * 4])


@pytest.mark.parametrize("name", ["gelu", "relu", "mean_pool", "dropout"])
def test_backprop_of_layers_without_parameters(name, rng):
    x, w = rng.standard_normal((3, 4, 5)), rng.standard_normal((3, 4, 5))
    layer = {"gelu": layers.gelu, "relu": layers.relu, "mean_pool": lambda x: layers.mean_pool(x, MASK),
             "dropout": lambda x: layers.dropout(x, 0.4, _rng.generator(0, _rng.DROPOUT, 7))}[name]
    y, backprop = layer(x)
    w = w if y.ndim == 3 else w[:, 0]
    check_gradient(lambda x: float((layer(x)[0] * w).sum()), backprop(w), x, rng)


@pytest.mark.parametrize("name", ["dense", "layer_norm"])
def test_backprop_of_layers_with_parameters(name, rng):
    layer = getattr(layers, name)
    second = rng.standard_normal((5, 6)) if name == "dense" else rng.standard_normal(5)
    inputs = [rng.standard_normal((3, 4, 5)), second, rng.standard_normal(second.shape[-1])]
    y, backprop = layer(*inputs)
    w = rng.standard_normal(y.shape)
    for i, gradient in enumerate(backprop(w)):
        def f(x, i=i):
            return float((layer(*[x if j == i else v for j, v in enumerate(inputs)])[0] * w).sum())

        check_gradient(f, gradient, inputs[i], rng)


def test_backprop_of_embedding_and_cross_entropy(rng):
    ids = np.array([[3, 1, 3, 0], [2, 0, 0, 0], [0] * 4], dtype=np.int32)
    table, w = rng.standard_normal((6, 5)), rng.standard_normal((3, 4, 5))
    y, backprop = layers.embed(ids, MASK, table)
    assert (y[~MASK] == 0).all()
    check_gradient(lambda t: float((layers.embed(ids, MASK, t)[0] * w).sum()), backprop(w), table, rng)
    assert (backprop(w)[[0, 4, 5]] == 0).all()

    logits, labels = 3 * rng.standard_normal((7, 4)), rng.integers(0, 4, 7)
    loss, back = layers.cross_entropy(logits, labels)
    assert loss == pytest.approx(-np.log(layers.softmax(logits)[np.arange(7), labels]).mean(), rel=1e-13)
    check_gradient(lambda x: layers.cross_entropy(x, labels)[0], back(), logits, rng)
    assert np.isfinite(layers.cross_entropy(np.array([[1e4, -1e4]]), np.array([1]))[0])


def test_dropout_keeps_the_mean_and_is_the_identity_in_evaluation(rng):
    x = np.ones((40, 50, 10))
    y, _ = layers.dropout(x, 0.3, _rng.generator(1, _rng.DROPOUT, 0))
    assert set(np.unique(y)) == {0.0, 1 / (1 - 0.3)}
    assert abs(y.mean() - 1) < 5 * np.sqrt(0.3 / 0.7 / x.size)
    assert layers.dropout(x, 0.3, None)[0] is x
    again, _ = layers.dropout(x, 0.3, _rng.generator(1, _rng.DROPOUT, 0))
    np.testing.assert_array_equal(y, again)


def test_positions_are_sines_and_cosines():
    table = layers.positions(7, 6)
    assert table.shape == (7, 6)
    np.testing.assert_allclose(table[3, :2], [np.sin(3), np.cos(3)], rtol=1e-14)
    np.testing.assert_allclose(np.square(table).sum(axis=1), 3.0, rtol=1e-14)
    assert layers.positions(4, 5).shape == (4, 5)


def attention_inputs(rng, length=4, n_texts=3, n_heads=2, dim=5, n_particles=6):
    keys, values = rng.standard_normal((2, n_heads, n_texts, length, dim))
    return keys, values, rng.standard_normal((n_heads, n_particles, dim))


@pytest.mark.parametrize("feature_map", sorted(linear.FEATURE_MAPS))
def test_features_are_positive_and_sum_to_root_m(feature_map, rng):
    x, _, particles = attention_inputs(rng)
    for scale in (1.0, 100.0):
        phi, _ = linear.features(scale * x.reshape(2, -1, 5), particles, feature_map, 0.7)
        assert (phi >= 0).all()
        np.testing.assert_allclose(phi.sum(axis=-1), np.sqrt(6), rtol=1e-13)
    u = x.reshape(2, -1, 5)[0] @ particles[0].T / 0.7
    h = np.exp(u) if feature_map == "softmaxfeat" else np.log1p(np.exp(u)) + linear.FLOOR
    phi, _ = linear.features(x.reshape(2, -1, 5), particles, feature_map, 0.7)
    np.testing.assert_allclose(phi[0], np.sqrt(6) * h / h.sum(axis=-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("feature_map", sorted(linear.FEATURE_MAPS))
def test_attention_is_the_explicit_kernel_smoother(feature_map, rng):
    keys, values, particles = attention_inputs(rng)
    a, _ = linear.attend(keys, values, MASK, particles, feature_map, 0.7)
    for head in range(2):
        for text in range(2):
            n = int(MASK[text].sum())
            one = slice(head, head + 1)
            phi, _ = linear.features(keys[one, text, :n], particles[one], feature_map, 0.7)
            kernel = phi[0] @ phi[0].T
            assert (np.diag(kernel) >= 1 - 1e-12).all()
            expected = kernel @ values[head, text, :n] / kernel.sum(axis=1, keepdims=True)
            np.testing.assert_allclose(a[head, text, :n], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("feature_map", sorted(linear.FEATURE_MAPS))
def test_backprop_of_attention_in_keys_values_and_particles(feature_map, rng):
    inputs = list(attention_inputs(rng))
    w = rng.standard_normal(inputs[0].shape)

    def forward(keys, values, particles):
        return linear.attend(keys, values, MASK, particles, feature_map, 0.7)

    a, backprop = forward(*inputs)
    for i, gradient in enumerate(backprop(w)):
        def f(x, i=i):
            return float((forward(*[x if j == i else v for j, v in enumerate(inputs)])[0] * w).sum())

        check_gradient(f, gradient, inputs[i], rng)
    assert (a[:, ~MASK] == 0).all()


@pytest.mark.parametrize("feature_map", sorted(linear.FEATURE_MAPS))
@pytest.mark.parametrize("fill", [0.0, 1e6, np.nan])
def test_bug_11_padding_has_no_influence(feature_map, fill, rng):
    keys, values, particles = attention_inputs(rng, length=5, n_texts=1)
    w = rng.standard_normal(keys.shape)
    alone, back_alone = linear.attend(keys, values, np.ones((1, 5), dtype=bool), particles, feature_map, 1.0)
    gradients_alone = back_alone(w)
    for length in (6, 50, 512):
        for side in ("left", "right"):
            where = slice(length - 5, None) if side == "left" else slice(5)
            mask = np.zeros((1, length), dtype=bool)
            mask[:, where] = True
            padded = []
            for x in (keys, values, w):
                big = np.full((2, 1, length, 5), 1.0 if x is w else fill)
                big[:, :, where] = x
                padded.append(big)
            a, backprop = linear.attend(*padded[:2], mask, particles, feature_map, 1.0)
            np.testing.assert_allclose(a[:, :, where], alone, rtol=0, atol=1e-12)
            dkeys, dvalues, dparticles = backprop(padded[2])
            for d, expected in zip((dkeys, dvalues), gradients_alone, strict=False):
                np.testing.assert_allclose(d[:, :, where], expected, rtol=0, atol=1e-12)
                assert (d[:, ~mask] == 0).all()
            np.testing.assert_allclose(dparticles, gradients_alone[2], rtol=0, atol=1e-12)


def test_bug_11_pooling_ignores_padding():
    x = np.full((3, 4, 2), np.nan)
    x[MASK] = 2.0
    y, backprop = layers.mean_pool(x, MASK)
    np.testing.assert_array_equal(y, [[2, 2], [2, 2], [0, 0]])
    assert (backprop(np.ones((3, 2)))[~MASK] == 0).all()


@pytest.mark.parametrize("feature_map", sorted(linear.FEATURE_MAPS))
def test_bug_26_normaliser_of_extreme_and_of_absent_tokens(feature_map, rng):
    keys, values, particles = attention_inputs(rng)
    a, backprop = linear.attend(1e3 * keys, values, MASK, particles, feature_map, 1.0)
    assert np.isfinite(a).all()
    assert (a[:, 2] == 0).all()  # a text without tokens
    assert all(np.isfinite(g).all() for g in backprop(np.ones_like(a)))
    ones, _ = linear.attend(1e3 * keys, np.ones_like(values), MASK, particles, feature_map, 1.0)
    np.testing.assert_allclose(ones[:, MASK], 1.0, rtol=1e-12)
