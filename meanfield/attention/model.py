"""The encoder, in one readable file: embedding -> linear attention -> FFN -> masked mean -> logits.

    x0 = table[ids] + position_scale * positions                    (padding: exactly 0)
    k  = norm(x0), split into heads;  Q = K = k, no projection      (method.md 8.2, "Q = K" rows)
    x1 = x0 + dropout(join(attend(k, k W_value)) W_out)
    x2 = x1 + dropout(gelu(norm(x1) W_up) W_down)
    logits = dropout(mean over tokens of norm(x2)) W_head + b       (an empty text pools to the zero vector)

Parameters are a flat dict from name to array; ``particles`` (head, particle, component) is one of them, so
its gradient comes out of the same ``backprop`` whether or not a training phase uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meanfield import _rng
from meanfield.attention import layers, linear
from meanfield.attention.layers import Array, Mask
from meanfield.attention.tokens import Ragged, batches, pad

__all__ = ["Encoder", "Parameters", "flat_keys", "forward", "initial_parameters", "initial_particles", "keys"]

Parameters = dict[str, Array]
Rng = Callable[[int], np.random.Generator]  # site in the model -> its generator for this step


@dataclass(frozen=True)
class Encoder:
    """Sizes and constants of the model; the numbers that are learnt are ``Parameters``."""

    n_words: int
    n_classes: int
    width: int = 64
    n_heads: int = 2
    n_particles: int = 64
    hidden: int = 128
    feature_map: str = "softmaxfeat"
    temperature: float = 1.0
    dropout: float = 0.1
    word_dropout: float = 0.0
    position_scale: float = 0.1

    @property
    def head_dim(self) -> int:
        """Components of a key, and of a particle."""
        return self.width // self.n_heads


def initial_particles(encoder: Encoder, radius: float, seed: int) -> NDArray[np.float64]:
    """Independent uniform directions of that radius, (head, particle, component), float64."""
    rng = _rng.generator(seed, _rng.INITIAL)
    x = rng.standard_normal((encoder.n_heads, encoder.n_particles, encoder.head_dim))
    directions: NDArray[np.float64] = radius * x / np.linalg.norm(x, axis=-1, keepdims=True)
    return directions


def initial_parameters(encoder: Encoder, table: Array, particles: Array, seed: int, dtype: str) -> Parameters:
    """Glorot-uniform weights from (seed, weight), zero biases, unit gains, in that float type.

    The residual branches end in weights that start at zero (W_out, W_down): the model starts as a bag of
    words.
    """
    d, hidden, classes = encoder.width, encoder.hidden, encoder.n_classes
    parameters: Parameters = {"table": table, "particles": particles}
    shapes = {"value": (d, d), "out": (d, d), "up": (d, hidden), "down": (hidden, d), "head": (d, classes)}
    for i, (name, shape) in enumerate(shapes.items()):
        limit = 0.0 if name in ("out", "down") else np.sqrt(6.0 / sum(shape))
        parameters[f"{name}.weight"] = _rng.generator(seed, _rng.WEIGHTS, i).uniform(-limit, limit, shape)
        parameters[f"{name}.bias"] = np.zeros(shape[1])
    for name in ("norm_attention", "norm_ffn", "norm_pool"):
        parameters[f"{name}.gain"] = np.ones(d)
        parameters[f"{name}.shift"] = np.zeros(d)
    return {name: np.array(value, dtype=dtype) for name, value in parameters.items()}


def _embed(encoder: Encoder, parameters: Parameters, ids: NDArray[np.int32],
           mask: Mask) -> tuple[Array, Callable[[Array], Array]]:
    x, backprop = layers.embed(ids, mask, parameters["table"])
    if encoder.position_scale:
        place = encoder.position_scale * layers.positions(ids.shape[1], encoder.width)
        x += place.astype(x.dtype) * mask[..., None]
    return x, backprop


def keys(encoder: Encoder, parameters: Parameters, ids: NDArray[np.int32], mask: Mask) -> Array:
    """What the particles of each head see: normalised embeddings over (head, text, token, component)."""
    x, _ = _embed(encoder, parameters, ids, mask)
    h, _ = layers.layer_norm(x, parameters["norm_attention.gain"], parameters["norm_attention.shift"])
    return linear.split_heads(h, encoder.n_heads)


def flat_keys(encoder: Encoder, parameters: Parameters, texts: Ragged) -> Array:
    """``keys`` of all tokens end to end, (head, token, component), in the order of ``texts.ids``."""
    out = np.empty((encoder.n_heads, texts.ids.size, encoder.head_dim), dtype=parameters["table"].dtype)
    for rows in batches(texts.lengths, 1024):
        ids, mask = pad(texts, rows)
        within = np.concatenate([np.arange(texts.offsets[i], texts.offsets[i + 1]) for i in rows])
        out[:, within] = keys(encoder, parameters, ids, mask)[:, mask]
    return out


def forward(encoder: Encoder, parameters: Parameters, ids: NDArray[np.int32], mask: Mask,
            rng: Rng | None = None) -> tuple[Array, Callable[[Array], Parameters]]:
    """Logits over (text, class), and backprop(dlogits) -> gradient of every parameter.

    ``rng`` gives each dropout site its generator; None is evaluation, without any randomness.
    """
    p, e = parameters, encoder

    def drop(x: Array, site: int) -> tuple[Array, Callable[[Array], Array]]:
        return layers.dropout(x, e.dropout, None if rng is None else rng(site))

    if rng is not None and e.word_dropout:  # whole words leave the text, as if they had not been written
        mask = mask & (rng(0).random(mask.shape) >= e.word_dropout)
    x0, back_embed = _embed(e, p, ids, mask)

    k, back_norm1 = layers.layer_norm(x0, p["norm_attention.gain"], p["norm_attention.shift"])
    v, back_value = layers.dense(k, p["value.weight"], p["value.bias"])
    a, back_attend = linear.attend(linear.split_heads(k, e.n_heads), linear.split_heads(v, e.n_heads), mask,
                                   p["particles"], e.feature_map, e.temperature)
    o, back_out = layers.dense(linear.join_heads(a), p["out.weight"], p["out.bias"])
    o, back_drop1 = drop(o, 1)
    x1 = x0 + o

    h, back_norm2 = layers.layer_norm(x1, p["norm_ffn.gain"], p["norm_ffn.shift"])
    h, back_up = layers.dense(h, p["up.weight"], p["up.bias"])
    h, back_gelu = layers.gelu(h)
    h, back_down = layers.dense(h, p["down.weight"], p["down.bias"])
    h, back_drop2 = drop(h, 2)
    x2 = x1 + h

    y, back_norm3 = layers.layer_norm(x2, p["norm_pool.gain"], p["norm_pool.shift"])
    pooled, back_pool = layers.mean_pool(y, mask)
    pooled, back_drop3 = drop(pooled, 3)
    logits, back_head = layers.dense(pooled, p["head.weight"], p["head.bias"])

    def backprop(dlogits: Array) -> Parameters:
        g: Parameters = {}

        def store(name: str, kinds: tuple[str, str], gradients: tuple[Array, Array, Array]) -> Array:
            g[f"{name}.{kinds[0]}"], g[f"{name}.{kinds[1]}"] = gradients[1:]
            return gradients[0]

        affine, norm = ("weight", "bias"), ("gain", "shift")
        dx = back_drop3(store("head", affine, back_head(dlogits)))
        dx2 = store("norm_pool", norm, back_norm3(back_pool(dx)))
        dh = back_gelu(store("down", affine, back_down(back_drop2(dx2))))
        dx1 = dx2 + store("norm_ffn", norm, back_norm2(store("up", affine, back_up(dh))))
        da = linear.split_heads(store("out", affine, back_out(back_drop1(dx1))), e.n_heads)
        dkeys, dvalues, g["particles"] = back_attend(da)
        dk = linear.join_heads(dkeys) + store("value", affine, back_value(linear.join_heads(dvalues)))
        g["table"] = back_embed(dx1 + store("norm_attention", norm, back_norm1(dk)))
        return g

    return logits, backprop
