"""Rows of text and label: bytes become a ``Split`` without one row lost to quoting, encoding or line ends.

Use ``data.load_text`` for the named corpora; these are the parts that its two ways (a folder, the public
originals) share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Split", "content_sha256", "decode_lines", "parse_rows", "strip_ascii"]

Texts = tuple[str, ...] | tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Split:
    """``texts`` (str, or pairs of str) and ``labels`` (0/1, int64, read-only), one label a text."""

    texts: Texts
    labels: NDArray[np.int64]

    def __post_init__(self) -> None:
        labels = np.array(self.labels, dtype=np.int64)
        if labels.shape != (len(self.texts),):
            raise ValueError(f"labels must have shape ({len(self.texts)},), one a text, got {labels.shape}")
        labels.flags.writeable = False
        object.__setattr__(self, "texts", tuple(self.texts))
        object.__setattr__(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.texts)


def content_sha256(split: Split) -> str:
    """SHA-256 of the rows as UTF-8 ``text<TAB>label<LF>`` (pairs: ``text1<TAB>text2<TAB>label<LF>``)."""
    digest = hashlib.sha256()
    for text, label in zip(split.texts, split.labels.tolist(), strict=True):
        columns = (text,) if isinstance(text, str) else text
        digest.update("\t".join((*columns, f"{label}\n")).encode())
    return digest.hexdigest()


def decode_lines(raw: bytes, where: str, encoding: Literal["utf-8", "cp1252"] = "utf-8",
                 errors: str = "strict") -> list[str]:
    """The lines of ``raw``, split at the byte 0x0a alone; undecodable bytes raise with line and offset.

    Never the platform's codec and never ``str.splitlines``: 0x85 (an ellipsis in cp1252) and U+2028 are not
    line ends.
    """
    try:
        lines = raw.decode(encoding, errors).split("\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{where}, line {line}: the text must be {encoding}, got byte "
                         f"0x{raw[error.start]:02x} at offset {error.start}") from None
    return lines[:-1] if lines[-1] == "" else lines


def strip_ascii(text: str) -> str:
    """``text`` without ASCII's white space at its ends; str.strip() would take U+0085 and U+00A0 as well."""
    return text.strip(" \t\n\r\v\f")


def parse_rows(lines: Iterable[str], where: str, width: int, picks: Iterable[int], *, first: int = 1,
               torn: bool = False, strip: bool = False) -> tuple[Split, int]:
    """Rows of ``width`` columns, text(s) and label at ``picks``; how many shorter lines ``torn`` left out."""
    *columns, last = picks
    texts: list[tuple[str, ...]] = []
    labels: list[int] = []
    left_out = 0
    for number, line in enumerate(lines, first):
        fields = line.split("\t")
        if torn and len(fields) < width:
            left_out += 1
            continue
        if len(fields) != width:
            raise ValueError(f"{where}, line {number}: a row must have {width} tab-separated columns, "
                             f"got {len(fields)}")
        if fields[last] not in ("0", "1"):
            raise ValueError(f"{where}, line {number}: a label must be 0 or 1, got {fields[last]!r}")
        texts.append(tuple(strip_ascii(fields[column]) if strip else fields[column] for column in columns))
        labels.append(int(fields[last]))
    if not texts:
        raise ValueError(f"{where} must have at least one row, got none")
    if len(columns) == 2:
        return Split(tuple((text[0], text[1]) for text in texts), np.array(labels)), left_out
    return Split(tuple(text[0] for text in texts), np.array(labels)), left_out
