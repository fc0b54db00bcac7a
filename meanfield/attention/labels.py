"""Labels of any type to class numbers, the held-out part, the seed: the classifier's checks at the door."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from meanfield import _checks, _rng

__all__ = ["known_labels", "seed_of", "stratified_split", "training_labels"]


def seed_of(random_state: Any) -> int:
    """An int as it is, one draw of a Generator (or legacy RandomState), or fresh entropy."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0] >> np.uint64(1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    try:
        return _checks.seed_int(random_state)
    except ValueError:
        raise ValueError("random_state must be None, a non-negative integer or a numpy Generator, "
                         f"got {random_state!r}") from None


def _differs_from_itself(label: Any) -> bool:
    try:
        return bool(label != label)  # NaN and NaT do
    except TypeError:  # pandas.NA has no truth value
        return True


def _labels(labels: Any, n_texts: int) -> NDArray[Any]:
    array = np.asarray(labels)
    if array.ndim != 1:
        raise ValueError(f"labels must be one a text, got an array of shape {array.shape}")
    if array.size != n_texts:
        raise ValueError(f"texts and labels must have one length, got {n_texts} texts and "
                         f"{array.size} labels")
    for row, label in enumerate(array):
        if label is None or _differs_from_itself(label):
            raise ValueError(f"labels must not be missing, got {label!r} in row {row}")
    return array


def training_labels(labels: Any, n_texts: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Sorted classes and the class number of each text; refuses missing labels and a single class."""
    array = _labels(labels, n_texts)
    if n_texts == 0:
        raise ValueError("texts must hold at least one text of each of two classes, got none")
    try:
        classes, y = np.unique(array, return_inverse=True)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in array})
        raise TypeError(f"labels must be of one kind that can be sorted, got {', '.join(kinds)}") from None
    if classes.size < 2:
        raise ValueError(f"labels must hold at least two classes, got only {classes[0]!r}")
    return classes, y


def known_labels(labels: Any, n_texts: int, classes: NDArray[Any]) -> NDArray[np.int64]:
    """Class numbers of labels that must be among ``classes``."""
    array = _labels(labels, n_texts)
    index = {label: i for i, label in enumerate(classes.tolist())}
    for row, label in enumerate(array.tolist()):
        if label not in index:
            raise ValueError(f"validation labels must be among the training labels {list(index)}, "
                             f"got {label!r} in row {row}")
    return np.array([index[label] for label in array.tolist()], dtype=np.int64)


def stratified_split(y: NDArray[np.int64], fraction: float,
                     seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Training and held-out rows: of each class the rounded share, never its last text."""
    rng = _rng.generator(seed, _rng.SHUFFLE, 0)
    held = []
    for label in range(int(y.max()) + 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        held.append(rows[: min(round(fraction * rows.size), rows.size - 1)])
    out = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(y.size), out), out
