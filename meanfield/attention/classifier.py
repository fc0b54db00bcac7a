"""``KernelAttentionClassifier``: texts (or pairs) to classes, by linear attention with a learnt kernel.

Use it as any scikit-learn classifier, on raw strings. ``learned=False`` skips phase A and keeps the random
particles: the comparison that tells what the learnt kernel is worth. On short sentences expect a linear model
of TF-IDF word pairs to be as good; what this one offers is cost linear in the length, and particles to look
at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from meanfield import _checks
from meanfield._numba import one_blas_thread
from meanfield.attention import embeddings, model, phase_a, training
from meanfield.attention.labels import known_labels, seed_of, stratified_split, training_labels
from meanfield.attention.linear import FEATURE_MAPS
from meanfield.attention.tokens import Ragged, Text, Vocabulary, check_texts

__all__ = ["KernelAttentionClassifier"]

class KernelAttentionClassifier(ClassifierMixin, BaseEstimator):
    """Text classifier in two phases (method.md 8.3): particles by alignment, the rest by cross-entropy.

    Parameters
    ----------
    feature_map : "softmaxfeat" or "softplus", see ``meanfield.attention.linear``.
    learned : phase A if True; the initial random particles if False.
    random_state : int, ``numpy.random.Generator`` (advanced by one draw), or None (fresh entropy); kept in
        ``seed_``.
    n_particles, n_heads, width, hidden : particles a head, heads, channels (a multiple of n_heads), FFN
        channels.
    temperature : tau of the feature map.
    embedding : "ppmi" (from the training texts) or "random".
    max_length : tokens a text; the rest of a longer text is dropped (for pairs the longer half is cut first).
    min_count, max_vocabulary : a word enters the vocabulary if seen that often, the commonest so many.
    alignment : "normalized" (3.6) or "linear" (3.1 with centred labels) objective of phase A.
    radius, strength, softening, inverse_temperature, phase_a_dt, phase_a_steps, phase_a_batch,
    phase_a_clip : phase A: radius of the ball, in which random particles start on the sphere of radius 1 (or
        just inside the ball if that is smaller); log repulsion; beta; Langevin step and how many; texts a
        step; longest alignment gradient of a particle.
    n_epochs, batch_size, learning_rate, weight_decay, dropout, word_dropout, patience : phase B.
    validation_fraction : share of each class held out of the training texts for early stopping, unless
        ``fit`` is given ``validation``; 0 for none.
    dtype : "float32" or "float64" for both phases; prediction is always float64.
    progress : show progress bars.

    Attributes
    ----------
    classes_, seed_, vocabulary_, encoder_, parameters_ : labels sorted, seed used, words, sizes, arrays by
        name.
    particles_ : (head, particle, component), frozen after phase A.
    phase_a_ : the ``simulate`` Dataset of phase A (run = head), None if ``learned=False``.
    learning_curve_, n_iter_ : a dict an epoch (see ``meanfield.attention.training.train``), epochs run.

    Notes
    -----
    A text without words pools to the zero vector: its probabilities are the softmax of the head's bias, a
    learnt prior, the same for every such text. Words that training never saw share one vector. The same seed
    gives the same bits for any number of threads (one BLAS thread is used), and a text the same probabilities
    in any batch, to 1e-12.
    """

    def __init__(self, feature_map: str = "softmaxfeat", learned: bool = True, random_state: Any = None, *,
                 n_particles: int = 64, n_heads: int = 2, width: int = 64, hidden: int = 128,
                 temperature: float = 1.0, embedding: str = "ppmi", max_length: int = 128, min_count: int = 2,
                 max_vocabulary: int = 20_000, alignment: str = "normalized", radius: float = 3.0,
                 strength: float = 1e-3, softening: float = 1e-3, inverse_temperature: float = 1e4,
                 phase_a_dt: float = 0.1, phase_a_steps: int = 80, phase_a_batch: int = 1024,
                 phase_a_clip: float = 2.0, n_epochs: int = 4, batch_size: int = 64,
                 learning_rate: float = 3e-3, weight_decay: float = 0.01, dropout: float = 0.2,
                 word_dropout: float = 0.4, patience: int = 2, validation_fraction: float = 0.1,
                 dtype: str = "float32", progress: bool = False) -> None:
        self.feature_map = feature_map
        self.learned = learned
        self.random_state = random_state
        self.n_particles = n_particles
        self.n_heads = n_heads
        self.width = width
        self.hidden = hidden
        self.temperature = temperature
        self.embedding = embedding
        self.max_length = max_length
        self.min_count = min_count
        self.max_vocabulary = max_vocabulary
        self.alignment = alignment
        self.radius = radius
        self.strength = strength
        self.softening = softening
        self.inverse_temperature = inverse_temperature
        self.phase_a_dt = phase_a_dt
        self.phase_a_steps = phase_a_steps
        self.phase_a_batch = phase_a_batch
        self.phase_a_clip = phase_a_clip
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.word_dropout = word_dropout
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.dtype = dtype
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, texts: Any, labels: Any,
            validation: tuple[Any, Any] | None = None) -> KernelAttentionClassifier:
        """Learn from a list of texts (or of pairs) and one label each.

        ``validation=(texts, labels)`` steers early stopping. Raises TypeError for what is not text, and
        ValueError for empty data, lengths that differ, missing labels, a single class, labels in
        ``validation`` that the training labels lack, and settings out of range.
        """
        self._check_settings()
        checked, pairs = check_texts(texts)
        classes, y = training_labels(labels, len(checked))
        if validation is None:
            seed = seed_of(self.random_state)
            train_rows, held_rows = stratified_split(y, self.validation_fraction, seed)
            held = [checked[i] for i in held_rows], y[held_rows]
            checked, y = [checked[i] for i in train_rows], y[train_rows]
        else:
            held_texts, _ = check_texts(validation[0], pairs=pairs)
            held = held_texts, known_labels(validation[1], len(held_texts), classes)
            seed = seed_of(self.random_state)
        self.classes_, self.pairs_, self.seed_ = classes, pairs, seed
        with one_blas_thread():
            self._fit(checked, y, *held)
        return self

    def _fit(self, texts: list[Text], y: NDArray[np.int64], held_texts: list[Text],
             held_y: NDArray[np.int64]) -> None:
        seed = self.seed_
        self.vocabulary_ = Vocabulary.build(texts, min_count=self.min_count, max_size=self.max_vocabulary)
        ragged = self.vocabulary_.encode(texts, self.max_length)
        if not ragged.ids.size:
            raise ValueError(f"texts must hold at least one word, got {len(texts)} texts without any")
        self.encoder_ = model.Encoder(
            n_words=len(self.vocabulary_), n_classes=self.classes_.size, width=self.width,
            n_heads=self.n_heads, n_particles=self.n_particles, hidden=self.hidden,
            feature_map=self.feature_map, temperature=float(self.temperature), dropout=float(self.dropout),
            word_dropout=float(self.word_dropout))
        n_words = len(self.vocabulary_)
        table = (embeddings.ppmi_table(ragged, n_words, self.width, seed) if self.embedding == "ppmi"
                 else embeddings.random_table(n_words, self.width, seed))
        start = model.initial_particles(self.encoder_, min(1.0, 0.99 * self.radius), seed)
        parameters = model.initial_parameters(self.encoder_, table, start, seed, self.dtype)
        self.phase_a_ = None
        if self.learned:
            self.phase_a_ = self._learn_particles(parameters, ragged, y, start)
            parameters["particles"] = self.phase_a_["position"].isel(time=-1).to_numpy().astype(self.dtype)
        validation = (self.vocabulary_.encode(held_texts, self.max_length), held_y) if held_texts else None
        recipe = training.Recipe(n_epochs=self.n_epochs, batch_size=self.batch_size,
                                 learning_rate=self.learning_rate, weight_decay=self.weight_decay,
                                 patience=self.patience)
        self.parameters_, self.learning_curve_, self.n_iter_ = training.train(
            self.encoder_, parameters, ragged, y, validation, recipe, seed, progress=self.progress)
        self.particles_ = self.parameters_["particles"]

    def _learn_particles(self, parameters: model.Parameters, ragged: Ragged, y: NDArray[np.int64],
                         start: NDArray[np.float64]) -> Any:
        rows = np.flatnonzero(ragged.lengths)
        if rows.size < 2 or np.unique(y[rows]).size < 2:
            raise ValueError("phase A needs texts with words in at least two classes, got words in "
                             f"{np.unique(y[rows]).size} class; give more text or set learned=False")
        kept = ragged.take(rows)
        tokens = model.flat_keys(self.encoder_, parameters, kept)
        potential = phase_a.FeatureAlignment(
            tokens, kept.offsets, y[rows], self.feature_map, float(self.temperature), self.alignment,
            self.phase_a_batch, self.phase_a_clip, self.seed_)
        schedule = phase_a.Schedule(self.radius, self.strength, self.softening, self.inverse_temperature,
                                    self.phase_a_dt, self.phase_a_steps)
        return phase_a.learn(potential, start, schedule, self.seed_, progress=self.progress)

    def predict_proba(self, texts: Any) -> NDArray[np.float64]:
        """Probabilities over (text, class), columns in the order of ``classes_``, float64."""
        check_is_fitted(self)
        checked, _ = check_texts(texts, pairs=self.pairs_)
        with one_blas_thread():
            wide = {name: p.astype(np.float64) for name, p in self.parameters_.items()}
            return training.predict(self.encoder_, wide, self.vocabulary_.encode(checked, self.max_length))

    def predict(self, texts: Any) -> NDArray[Any]:
        """The most probable label of each text, in the type of the training labels."""
        best = self.predict_proba(texts).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def _check_settings(self) -> None:
        _checks.choice("feature_map", self.feature_map, tuple(FEATURE_MAPS))
        _checks.choice("embedding", self.embedding, ("ppmi", "random"))
        _checks.choice("alignment", self.alignment, ("normalized", "linear"))
        _checks.choice("dtype", self.dtype, ("float32", "float64"))
        for name in ("n_particles", "n_heads", "width", "hidden", "max_length", "min_count", "max_vocabulary",
                     "phase_a_steps", "n_epochs", "batch_size", "patience"):
            _checks.count(name, getattr(self, name))
        _checks.count("phase_a_batch", self.phase_a_batch, least=2)
        for name in ("temperature", "radius", "phase_a_dt", "phase_a_clip", "learning_rate"):
            _checks.positive(name, getattr(self, name))
        for name in ("strength", "softening", "weight_decay"):
            _checks.non_negative(name, getattr(self, name))
        _checks.positive("inverse_temperature", self.inverse_temperature, infinite=True)
        for name in ("dropout", "word_dropout", "validation_fraction"):
            if not _checks.non_negative(name, getattr(self, name)) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)!r}")
        if self.width % self.n_heads:
            raise ValueError(f"width must be a multiple of n_heads={self.n_heads}, got {self.width}")
