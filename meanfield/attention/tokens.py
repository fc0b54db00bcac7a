"""Words to numbers: a vocabulary from the training texts, ragged token ids, batches of similar length.

Use ``Vocabulary.build`` once on the training texts, ``encode`` on any texts, ``pad`` to get a rectangular
batch with its exact mask. ``batches`` groups texts of similar length: padding Rotten Tomatoes to 128 tokens
costs five times the work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PADDING", "SEPARATOR", "UNKNOWN", "Ragged", "Text", "Vocabulary", "batches", "check_texts", "pad",
           "words"]

PADDING, UNKNOWN, SEPARATOR = 0, 1, 2
_N_SPECIAL = 3
# a word with its inner apostrophes ("it's"), or one sign that is neither a word character nor white space
_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")

Text = str | tuple[str, str]
Ids = NDArray[np.int32]


def words(text: str) -> list[str]:
    """Lower-case words and single punctuation signs, in order; [] for an empty or blank text."""
    return _WORD.findall(text.lower())


def check_texts(texts: Any, *, pairs: bool | None = None) -> tuple[list[Text], bool]:
    """A list of strings or of pairs of strings, and whether it holds pairs.

    ``pairs`` is what is needed (None: either). Raises TypeError for anything that is not text, ValueError for
    a mixture of texts and pairs or for the kind that is not needed; both name the first row at fault.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise TypeError(f"texts must be a list of strings or of pairs of strings, got {type(texts).__name__}")
    checked: list[Text] = []
    for row, text in enumerate(texts):
        is_pair = isinstance(text, (tuple, list, np.ndarray)) and len(text) == 2
        if not isinstance(text, str) and not (is_pair and all(isinstance(part, str) for part in text)):
            what = type(text).__name__ if np.isscalar(text) or text is None else repr(text)[:60]
            raise TypeError(f"texts must be strings or pairs of strings, got {what} in row {row}")
        if pairs is None:
            pairs = is_pair
        if is_pair != pairs:
            needed, given = ("pairs of texts", "a single text") if pairs else ("single texts", "a pair")
            raise ValueError(f"texts must all be {needed}, got {given} in row {row}")
        checked.append((str(text[0]), str(text[1])) if is_pair else str(text))
    return checked, bool(pairs)


@dataclass(frozen=True, eq=False)
class Ragged:
    """Token ids of many texts end to end: text i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: Ids
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, i: int) -> Ids:
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens a text."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> Ragged:
        """The texts of those rows, in that order."""
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])])
        pieces = [self[i] for i in rows]
        return Ragged(np.concatenate(pieces) if pieces else self.ids[:0], offsets)


@dataclass(frozen=True)
class Vocabulary:
    """The known words; id 0 is padding, 1 an unknown word, 2 the separator of a pair, then ``words``."""

    words: tuple[str, ...]
    _index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {word: i + _N_SPECIAL for i, word in enumerate(self.words)})

    @classmethod
    def build(cls, texts: Iterable[Text], *, min_count: int = 1, max_size: int = 20_000) -> Vocabulary:
        """The ``max_size`` commonest words seen ``min_count`` times, commonest first, ties by alphabet."""
        counts: Counter[str] = Counter()
        for text in texts:
            for part in (text,) if isinstance(text, str) else text:
                counts.update(words(part))
        kept = sorted((w for w, c in counts.items() if c >= min_count), key=lambda w: (-counts[w], w))
        return cls(tuple(kept[:max_size]))

    def __len__(self) -> int:
        return len(self.words) + _N_SPECIAL

    def encode(self, texts: Sequence[Text], max_length: int) -> Ragged:
        """Token ids, at most ``max_length`` a text.

        A longer text keeps its beginning. A pair becomes first + separator + second; where that is too long
        the longer half is cut first. A text without words is an empty sequence, and so is a pair of two such
        texts.
        """
        rows = [self._one(text, max_length) for text in texts]
        offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64)
        return Ragged(np.array([i for row in rows for i in row], dtype=np.int32), offsets)

    def _ids(self, text: str) -> list[int]:
        return [self._index.get(word, UNKNOWN) for word in words(text)]

    def _one(self, text: Text, max_length: int) -> list[int]:
        if isinstance(text, str):
            return self._ids(text)[:max_length]
        first, second = self._ids(text[0]), self._ids(text[1])
        if not first and not second:
            return []
        room = max_length - 1
        first = first[: max(room // 2, room - len(second))]
        return [*first, SEPARATOR, *second[: room - len(first)]]


def pad(ragged: Ragged, rows: NDArray[np.int64]) -> tuple[Ids, NDArray[np.bool_]]:
    """Ids and mask over (text, token) of those rows, padded on the right to the longest (at least 1)."""
    lengths = ragged.lengths[rows]
    mask = np.arange(max(1, int(lengths.max(initial=0)))) < lengths[:, None]
    ids = np.full(mask.shape, PADDING, dtype=np.int32)
    ids[mask] = np.concatenate([ragged[i] for i in rows])
    return ids, mask


def batches(lengths: NDArray[np.int64], batch_size: int, rng: np.random.Generator | None = None,
            pool: int = 16) -> list[NDArray[np.int64]]:
    """Rows grouped into batches of similar length.

    Without ``rng`` rows are sorted by length, for prediction. With it they are shuffled, sorted inside pools
    of ``pool`` batches only, and the batches shuffled: an epoch stays random while padding stays small.
    """
    if rng is None:
        order = np.argsort(lengths, kind="stable")
        return [order[i : i + batch_size] for i in range(0, order.size, batch_size)]
    order = rng.permutation(lengths.size)
    pools = [order[i : i + pool * batch_size] for i in range(0, order.size, pool * batch_size)]
    order = np.concatenate([p[np.argsort(lengths[p], kind="stable")] for p in pools])
    groups = [order[i : i + batch_size] for i in range(0, order.size, batch_size)]
    return [groups[i] for i in rng.permutation(len(groups))]
