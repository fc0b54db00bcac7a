"""Text data: SST-2, QQP and Rotten Tomatoes, the same rows wherever they are read from.

``load_text("rotten_tomatoes")`` reads the folder named by ``data_dir`` or ``MEANFIELD_DATA``
(``DIR/<name>/train.tsv.gz``, also ``.tsv``: UTF-8, ``text<TAB>label``, no header, no quoting). Without one it
fetches the public original, once, into the user's cache. What is read either has the row counts and the
content digest of the original, or is refused, or (in a folder of your own) says in ``notes`` that it is not
the complete set. ``toy.toy_reviews`` needs neither disk nor net.

Environment: ``MEANFIELD_DATA`` (folder), ``MEANFIELD_DATA_URL`` (a mirror that holds the archives under their
own names), ``MEANFIELD_CACHE`` (archives are kept in its ``text``), ``MEANFIELD_OFFLINE=1`` (never connect).
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from meanfield import _checks
from meanfield.attention.originals import ORIGINALS, archive_folder, fetch, read_original, verify
from meanfield.attention.rows import Split, content_sha256, decode_lines, parse_rows

__all__ = ["NAMES", "Split", "TextData", "content_sha256", "load_text"]

NAMES = ("sst2", "qqp", "rotten_tomatoes")
SPLITS = ("train", "validation", "test")
_QQP_SUBSET = 58_150


@dataclass(frozen=True, eq=False)
class TextData:
    """A corpus; ``digests`` are the SHA-256 of the splits' contents, ``source`` and ``notes`` for reports."""

    name: str
    train: Split | None
    validation: Split | None
    test: Split | None
    source: str
    digests: dict[str, str]
    notes: tuple[str, ...] = ()


def load_text(name: str, *, data_dir: str | os.PathLike[str] | None = None,
              cache_dir: str | os.PathLike[str] | None = None, base_url: str | None = None,
              progress: bool = False) -> TextData:
    """``name`` ("sst2", "qqp" or "rotten_tomatoes") from a folder, else from the cache, else from the net.

    ``data_dir`` goes before ``MEANFIELD_DATA``, ``cache_dir`` before ``MEANFIELD_CACHE``/text, ``base_url``
    before ``MEANFIELD_DATA_URL``. A folder that is named is the only place looked at. Errors:
    FileNotFoundError where nothing can be had (it says what to put where), OSError for a cache that cannot be
    written, ValueError for content that is not what it should be, with path and both digests. Data that fail
    a check are never returned.
    """
    _checks.choice("name", name, NAMES)
    folder = data_dir if data_dir is not None else os.environ.get("MEANFIELD_DATA") or None
    if folder is not None:
        option = "--data-dir" if data_dir is not None else "MEANFIELD_DATA"
        splits, notes = _read_folder(name, Path(folder).expanduser(), option)
        source = f"the folder given by {option}"
    else:
        splits, notes = read_original(name, fetch(name, archive_folder(cache_dir), base_url, progress))
        source = "downloaded originals"
    if "test" not in splits and name != "rotten_tomatoes":
        notes.append("There is no test split: GLUE hides its test labels.")
    digests = {which: content_sha256(split) for which, split in splits.items()}
    return TextData(name, splits.get("train"), splits.get("validation"), splits.get("test"), source, digests,
                    tuple(notes))


def _read_folder(name: str, folder: Path, option: str) -> tuple[dict[str, Split], list[str]]:
    """The splits of DIR/name; one with as many rows as the original must be the original."""
    original = ORIGINALS[name]
    width = 3 if name == "qqp" else 2
    splits: dict[str, Split] = {}
    notes: list[str] = []
    for which in SPLITS:
        path = _file(folder / name, which)
        if path is None:
            continue
        split, _ = parse_rows(decode_lines(_plain(path), str(path)), str(path), width, range(width))
        splits[which] = split
        complete = original.rows.get(which, 0)
        if which in original.content and len(split) == complete:
            verify(which, split, original, str(path), "put the complete original file back")
        elif which in original.content:
            notes.append(f"The {which} split has {len(split):,} rows, the complete set has {complete:,}.")
    if "train" not in splits or len(splits) < 2:
        missing = "train" if "train" not in splits else "validation"
        raise FileNotFoundError(f"{folder / name / missing}.tsv.gz (or .tsv) must be in the folder given by "
                                f"{option}, and is not there")
    if name == "qqp" and len(splits["train"]) == _QQP_SUBSET:
        notes.append(f"QQP is the 58k subset: train has {_QQP_SUBSET:,} labelled pairs, "
                     f"the public original {original.rows['train']:,}.")
    return splits, notes


def _file(folder: Path, which: str) -> Path | None:
    found = [path for path in (folder / f"{which}.tsv.gz", folder / f"{which}.tsv") if path.is_file()]
    if len(found) > 1:
        raise ValueError(f"{folder} must hold one of {which}.tsv.gz and {which}.tsv, got both")
    return found[0] if found else None


def _plain(path: Path) -> bytes:
    raw = path.read_bytes()
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error):
        raise ValueError(f"{path} must be a whole gzip file, got one that is cut short or altered "
                         f"(SHA-256 {hashlib.sha256(raw).hexdigest()})") from None
