"""Layers as functions: ``layer(x, ...) -> (y, backprop)``, ``backprop(dy)`` gives the inputs' gradients.

Arrays are over (text, token, channel) in one float type, masks over (text, token), True for a token and False
for padding. Products are ``matmul`` on 2-D reshapes (a batched ``einsum`` without optimize is 31 times
slower). Use them through ``model.py``; each is checked against central differences in
``tests/unit/test_attention_layers.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Mask", "cross_entropy", "dense", "dropout", "embed", "gelu", "layer_norm", "mean_pool",
           "positions", "relu", "softmax"]

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Backprop = Callable[[Array], Array]
Backprop3 = Callable[[Array], tuple[Array, Array, Array]]
_GELU = 0.7978845608028654  # sqrt(2 / pi)


def positions(length: int, width: int) -> Array:
    """Positions (token, channel): sin and cos of t / 10000^(2 i / width) (Vaswani et al. 2017, 3.5)."""
    angle = np.arange(length)[:, None] / 10_000.0 ** (np.arange(0, width, 2) / width)
    table = np.zeros((length, width))
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle[:, : width // 2])
    return table


def embed(ids: NDArray[np.int32], mask: Mask, table: Array) -> tuple[Array, Backprop]:
    """Row ``ids`` of the table where the mask is True, exactly 0 elsewhere whatever the padding row holds."""
    y = np.where(mask[..., None], table[ids], table.dtype.type(0))

    def backprop(dy: Array) -> Array:
        dtable = np.zeros_like(table)
        flat = ids[mask]
        if flat.size:
            # sort and sum runs of equal ids: one order of additions, and faster than np.add.at
            order = np.argsort(flat, kind="stable")
            rows, starts = np.unique(flat[order], return_index=True)
            dtable[rows] = np.add.reduceat(dy[mask][order], starts, axis=0)
        return dtable

    return y, backprop


def dense(x: Array, weight: Array, bias: Array) -> tuple[Array, Backprop3]:
    """y = x weight + bias over the last axis; backprop gives (dx, dweight, dbias)."""
    flat = x.reshape(-1, x.shape[-1])
    y = flat @ weight
    y += bias

    def backprop(dy: Array) -> tuple[Array, Array, Array]:
        flat_dy = dy.reshape(-1, dy.shape[-1])
        return (flat_dy @ weight.T).reshape(x.shape), flat.T @ flat_dy, flat_dy.sum(axis=0)

    return y.reshape(*x.shape[:-1], -1), backprop


def layer_norm(x: Array, gain: Array, shift: Array, eps: float = 1e-5) -> tuple[Array, Backprop3]:
    """y = gain (x - mean) / sqrt(var + eps) + shift over the last axis; backprop gives (dx, dgain, dshift).

    Source: Ba, Kiros, Hinton 2016, with the biased variance.
    """
    unit = x - x.mean(axis=-1, keepdims=True)
    scale = 1.0 / np.sqrt(np.square(unit).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
    unit *= scale
    y = unit * gain
    y += shift

    def backprop(dy: Array) -> tuple[Array, Array, Array]:
        axes = tuple(range(dy.ndim - 1))
        dunit = dy * gain
        dx = dunit - dunit.mean(axis=-1, keepdims=True)
        dx -= unit * (dunit * unit).mean(axis=-1, keepdims=True)
        dx *= scale
        return dx, (dy * unit).sum(axis=axes), dy.sum(axis=axes)

    return y, backprop


def relu(x: Array) -> tuple[Array, Backprop]:
    """max(x, 0)."""
    positive = x > 0

    def backprop(dy: Array) -> Array:
        dx: Array = dy * positive
        return dx

    return x * positive, backprop


def gelu(x: Array) -> tuple[Array, Backprop]:
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 (Hendrycks, Gimpel 2016, the tanh form)."""
    square = x * x
    t = np.tanh(_GELU * x * (1.0 + 0.044715 * square))

    def backprop(dy: Array) -> Array:
        slope: Array = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * _GELU * (1.0 + 3.0 * 0.044715 * square)
        slope *= dy
        return slope

    y: Array = 0.5 * x * (1.0 + t)
    return y, backprop


def dropout(x: Array, rate: float, rng: np.random.Generator | None) -> tuple[Array, Backprop]:
    """Each entry kept with probability 1 - rate and divided by it; the identity without ``rng``."""
    if rng is None or rate == 0:
        return x, lambda dy: dy
    keep = (rng.random(x.shape, dtype=np.float32) >= rate) * x.dtype.type(1.0 / (1.0 - rate))

    def backprop(dy: Array) -> Array:
        dx: Array = dy * keep
        return dx

    return x * keep, backprop


def mean_pool(x: Array, mask: Mask) -> tuple[Array, Backprop]:
    """Mean over the tokens of each text, shape (text, channel); exactly 0 for a text without tokens."""
    n_tokens = mask.sum(axis=1, keepdims=True)
    weight = (mask / np.maximum(n_tokens, 1)).astype(x.dtype)[..., None]
    y = (np.where(mask[..., None], x, x.dtype.type(0)) * weight).sum(axis=1)

    def backprop(dy: Array) -> Array:
        dx: Array = weight * dy[:, None, :]
        return dx

    return y, backprop


def softmax(logits: Array) -> Array:
    """exp(logits) normalised over the last axis; the largest logit is taken off first, which cancels."""
    p: Array = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def cross_entropy(logits: Array, labels: NDArray[np.int64]) -> tuple[float, Callable[[], Array]]:
    """Mean over texts of -log softmax(logits)[label]; ``backprop()`` gives its gradient in the logits."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    rows = np.arange(labels.size)
    loss = float((np.log(np.exp(shifted).sum(axis=-1)) - shifted[rows, labels]).mean())

    def backprop() -> Array:
        dlogits = softmax(logits)
        dlogits[rows, labels] -= 1
        dlogits /= labels.size
        return dlogits

    return loss, backprop
