"""Linear attention with particles as its features: cost linear in the length, closed-form gradients.

Use ``features`` for phi (also by itself, as phase A does) and ``attend`` for the attention of one layer.
Maps, with u = omega . x / temperature for the M particles omega of a head (method.md 8.2):

- ``softmaxfeat``: phi = sqrt(M) softmax(u), sharp and cheap (one exp);
- ``softplus``: phi = sqrt(M) h / sum(h), h = log(1 + e^u) + floor, flatter and slower (exp and log1p).

Both are positive and sum to sqrt(M). With Q = K a token is among its own keys, so its normaliser is at least
|phi|^2 >= 1: nothing to guard, except that a padding query has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from meanfield.attention.layers import Array, Mask

__all__ = ["FEATURE_MAPS", "attend", "features", "join_heads", "split_heads"]

FLOOR = 1e-4


def _softmaxfeat(u: Array) -> tuple[Array, Callable[[Array], Array]]:
    root = math.sqrt(u.shape[-1])
    phi = np.exp(u - u.max(axis=-1, keepdims=True))  # a shift of one token's logits cancels in its own sum
    phi *= root / phi.sum(axis=-1, keepdims=True)

    def backprop(dphi: Array) -> Array:  # (5.4), left
        du: Array = dphi - (dphi * phi).sum(axis=-1, keepdims=True) / root
        du *= phi
        return du

    return phi, backprop


def _softplus(u: Array) -> tuple[Array, Callable[[Array], Array]]:
    root = math.sqrt(u.shape[-1])
    small = np.exp(-np.abs(u))
    phi = np.maximum(u, 0)
    phi += np.log1p(small)  # np.logaddexp costs eleven times as much
    phi += FLOOR
    scale = root / phi.sum(axis=-1, keepdims=True)
    phi *= scale

    def backprop(dphi: Array) -> Array:  # (5.4), right
        du: Array = dphi - (dphi * phi).sum(axis=-1, keepdims=True) / root
        du *= scale
        du *= np.where(u >= 0, 1, small) / (1 + small)
        return du

    return phi, backprop


FEATURE_MAPS: dict[str, Callable[[Array], tuple[Array, Callable[[Array], Array]]]] = {
    "softmaxfeat": _softmaxfeat,
    "softplus": _softplus,
}


def features(x: Array, particles: Array, feature_map: str,
             temperature: float) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """phi over (head, token, particle) of x (head, token, component).

    particles over (head, particle, component). backprop(dphi) gives (dx, dparticles).
    """
    scaled = particles / particles.dtype.type(temperature)
    phi, back_map = FEATURE_MAPS[feature_map](x @ scaled.swapaxes(-1, -2))

    def backprop(dphi: Array) -> tuple[Array, Array]:
        du = back_map(dphi)
        return du @ scaled, (du.swapaxes(-1, -2) @ x) / particles.dtype.type(temperature)

    return phi, backprop


def split_heads(x: Array, n_heads: int) -> Array:
    """(text, token, channel) to (head, text, token, channel of the head)."""
    n_texts, length, width = x.shape
    return np.ascontiguousarray(x.reshape(n_texts, length, n_heads, width // n_heads).transpose(2, 0, 1, 3))


def join_heads(x: Array) -> Array:
    """The inverse of ``split_heads``."""
    n_heads, n_texts, length, width = x.shape
    return x.transpose(1, 2, 0, 3).reshape(n_texts, length, n_heads * width)


def attend(keys: Array, values: Array, mask: Mask, particles: Array, feature_map: str,
           temperature: float) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Linear attention with Q = K (8.1): a_t = phi_t^T G / phi_t^T z, G = sum_j phi_j v_j^T, z = sum_j phi_j.

    keys and values over (head, text, token, component), mask over (text, token), particles over (head,
    particle, component). The sums run over tokens alone. Padding is cut off at the door, before the map:
    these maps send 0 to something positive, and a NaN times 0 is a NaN. At padding the output and both
    gradients are exactly 0. backprop(da) gives (dkeys, dvalues, dparticles) by (8.2).
    """
    n_heads, n_texts, length, dim = keys.shape
    n_values = values.shape[-1]
    real = mask[..., None]
    zero = keys.dtype.type(0)
    clean = np.where(real, keys, zero).reshape(n_heads, -1, dim)
    phi, back_features = features(clean, particles, feature_map, temperature)
    phi = phi.reshape(n_heads, n_texts, length, -1)
    phi *= real
    # one column of ones beside the values: its sum is z, so numerator and normaliser are one product each way
    v = np.ones((n_heads, n_texts, length, n_values + 1), dtype=keys.dtype)
    v[..., :n_values] = np.where(real, values, zero)
    sums = phi.swapaxes(-1, -2) @ v  # [G, z]
    both = phi @ sums
    inverse = 1 / np.where(real, both[..., n_values:], keys.dtype.type(1))
    a = both[..., :n_values] * inverse

    def backprop(da: Array) -> tuple[Array, Array, Array]:
        dboth = np.empty_like(both)
        dboth[..., :n_values] = da * inverse
        dboth[..., n_values:] = -(a * dboth[..., :n_values]).sum(axis=-1, keepdims=True)
        dboth *= real
        dsums = phi.swapaxes(-1, -2) @ dboth  # [G bar, z bar]
        dphi = dboth @ sums.swapaxes(-1, -2)  # query role
        dphi += v @ dsums.swapaxes(-1, -2)  # key role
        dphi *= real
        dkeys, dparticles = back_features(dphi.reshape(n_heads, n_texts * length, -1))
        dvalues = (phi @ dsums)[..., :n_values]
        return dkeys.reshape(keys.shape), dvalues, dparticles

    return a, backprop
