"""Phase B: train everything but the particles by cross-entropy, and keep the best checkpoint.

``train`` is AdamW with linear warm-up and cosine decay, gradient clipping, and early stopping on held-out
texts. ``predict`` is the evaluation pass. Both are functions of (parameters, texts, seed): the dropout of a
step comes from (seed, step, site), the order of an epoch from (seed, epoch).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meanfield import _rng
from meanfield.attention import layers
from meanfield.attention.layers import Array
from meanfield.attention.model import Encoder, Parameters, forward
from meanfield.attention.tokens import Ragged, batches, pad

__all__ = ["AdamW", "Recipe", "predict", "train"]

Curve = list[dict[str, float]]


@dataclass(frozen=True)
class Recipe:
    """Constants of phase B."""

    n_epochs: int = 3
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    warmup: float = 0.1  # share of the steps
    clip: float = 1.0  # largest global norm of a gradient
    patience: int = 2  # epochs without a better validation log-loss


class AdamW:
    """Adam with decoupled weight decay (Loshchilov, Hutter 2019, Algorithm 2), in place on a dict of arrays.

    Decay acts on weights (``*.weight``) only: not on biases, norms, or the rows of an embedding that a step
    never saw.
    """

    def __init__(self, parameters: Parameters, weight_decay: float, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8) -> None:
        self.weight_decay, self.betas, self.eps = weight_decay, betas, eps
        self.mean = {name: np.zeros_like(p) for name, p in parameters.items()}
        self.square = {name: np.zeros_like(p) for name, p in parameters.items()}
        self.step = 0

    def update(self, parameters: Parameters, gradients: Parameters, learning_rate: float) -> None:
        """One step on every name in ``gradients``."""
        self.step += 1
        first, second = self.betas
        rate = learning_rate / (1.0 - first**self.step)
        root = 1.0 / math.sqrt(1.0 - second**self.step)
        for name, g in gradients.items():
            m, s = self.mean[name], self.square[name]
            m *= first
            m += (1.0 - first) * g
            s *= second
            s += (1.0 - second) * np.square(g)
            if name.endswith(".weight"):
                parameters[name] *= 1.0 - learning_rate * self.weight_decay
            update = np.sqrt(s)
            update *= root
            update += self.eps
            np.divide(m, update, out=update)
            update *= rate
            parameters[name] -= update


def _learning_rate(recipe: Recipe, step: int, n_steps: int) -> float:
    """Linear warm-up to ``learning_rate``, then half a cosine down to 0."""
    warm = max(1, round(recipe.warmup * n_steps))
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    return recipe.learning_rate * 0.5 * (1.0 + math.cos(math.pi * (step - warm) / max(1, n_steps - warm)))


def _clip(gradients: Parameters, largest: float) -> None:
    norm = math.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values()))
    if norm > largest:
        for g in gradients.values():
            g *= g.dtype.type(largest / norm)


def predict(encoder: Encoder, parameters: Parameters, texts: Ragged, batch_size: int = 256) -> Array:
    """Class probabilities over (text, class), in the float type of the parameters."""
    out = np.empty((len(texts), encoder.n_classes), dtype=parameters["table"].dtype)
    for rows in batches(texts.lengths, batch_size):
        logits, _ = forward(encoder, parameters, *pad(texts, rows))
        out[rows] = layers.softmax(logits)
    return out


def _evaluate(encoder: Encoder, parameters: Parameters, texts: Ragged,
              labels: NDArray[np.int64]) -> tuple[float, float]:
    p = predict(encoder, parameters, texts)
    own = np.maximum(p[np.arange(labels.size), labels], np.finfo(p.dtype).tiny)
    return float(-np.log(own, dtype=np.float64).mean()), float((p.argmax(axis=1) == labels).mean())


def train(encoder: Encoder, parameters: Parameters, texts: Ragged, labels: NDArray[np.int64],
          validation: tuple[Ragged, NDArray[np.int64]] | None, recipe: Recipe, seed: int, *,
          frozen: tuple[str, ...] = ("particles",), progress: bool = False) -> tuple[Parameters, Curve, int]:
    """Best parameters by validation log-loss, the learning curve, and the number of epochs run.

    Without validation texts the last epoch is kept. The curve holds a dict an epoch: ``epoch``,
    ``train_log_loss`` (running, with dropout), ``learning_rate``, and with validation ``validation_log_loss``
    and ``validation_accuracy``.
    """
    parameters = {name: p.copy() for name, p in parameters.items()}
    best, best_loss, best_epoch = parameters, math.inf, 0
    optimizer = AdamW(parameters, recipe.weight_decay)
    n_batches = math.ceil(len(texts) / recipe.batch_size)
    n_steps = recipe.n_epochs * n_batches
    tick, close = _bar(n_steps, progress)
    curve: Curve = []
    for epoch in range(1, recipe.n_epochs + 1):
        total = 0.0
        for rows in batches(texts.lengths, recipe.batch_size, _rng.generator(seed, _rng.SHUFFLE, epoch)):
            step = optimizer.step
            noise = partial(_rng.generator, seed, _rng.DROPOUT, step)
            logits, backprop = forward(encoder, parameters, *pad(texts, rows), rng=noise)
            loss, back_loss = layers.cross_entropy(logits, labels[rows])
            gradients = {k: g for k, g in backprop(back_loss()).items() if k not in frozen}
            _clip(gradients, recipe.clip)
            optimizer.update(parameters, gradients, _learning_rate(recipe, step, n_steps))
            total += loss * rows.size
            tick(1)
        record = {"epoch": float(epoch), "train_log_loss": total / len(texts),
                  "learning_rate": _learning_rate(recipe, optimizer.step - 1, n_steps)}
        curve.append(record)
        if validation is None:
            continue
        loss, accuracy = _evaluate(encoder, parameters, *validation)
        record |= {"validation_log_loss": loss, "validation_accuracy": accuracy}
        if loss < best_loss:
            best, best_loss, best_epoch = {k: p.copy() for k, p in parameters.items()}, loss, epoch
        elif epoch - best_epoch >= recipe.patience:
            break
    close()
    return best, curve, len(curve)


def _bar(n_steps: int, progress: bool) -> tuple[Callable[[int], Any], Callable[[], Any]]:
    if not progress:
        return lambda n: None, lambda: None
    from tqdm.auto import tqdm

    bar = tqdm(total=n_steps, desc="phase B", unit="step")
    return bar.update, bar.close
