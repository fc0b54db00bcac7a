"""The public originals of the text data: where they are, what they must contain, how they become rows.

Use ``data.load_text``; this is its way without a folder. An archive is downloaded once into the user's cache,
its members are read in memory under their exact names, and the rows are checked against the published counts
and content digests before anybody sees them. GLUE hides its test labels, so SST-2 and QQP have no test split.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanfield.attention.rows import Split, content_sha256, decode_lines, parse_rows, strip_ascii

__all__ = ["ORIGINALS", "Original", "archive_folder", "fetch", "read_original", "verify"]

_GLUE = "https://dl.fbaipublicfiles.com/glue/data"
_CORNELL = "https://www.cs.cornell.edu/people/pabo/movie-review-data"
# What a file can raise that is cut short, altered, or something else altogether (a login page saved as a zip)
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, KeyError, OSError, RuntimeError)


@dataclass(frozen=True)
class Original:
    """An archive and what its content must be; ``columns`` of the GLUE header: text(s) first, label last.

    ``content`` are the SHA-256 of the splits as ``rows.content_sha256`` writes them, ``sha256`` that of the
    archive.
    """

    archive: str
    base: str
    members: tuple[str, str]
    columns: tuple[str, ...]
    sha256: str
    rows: Mapping[str, int]
    content: Mapping[str, str]


# The archives' SHA-256 are those that Hugging Face datasets and Julia's TextDatasets publish for the same
# files. They tell a user what a broken file should have been; the content digests decide.
ORIGINALS: dict[str, Original] = {
    "sst2": Original(
        "SST-2.zip", _GLUE, ("SST-2/train.tsv", "SST-2/dev.tsv"), ("sentence", "label"),
        "d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",
        {"train": 67_349, "validation": 872},
        {"train": "c5abce3993c9c1d61c59dea128d479725048946bf0166a220796667cc2224c5e",
         "validation": "fdb21a491401989324087047283a5b5277124937d43f7bb90df4bd7c18b8cc96"}),
    "qqp": Original(
        "QQP-clean.zip", _GLUE, ("QQP/train.tsv", "QQP/dev.tsv"), ("question1", "question2", "is_duplicate"),
        "40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0",
        {"train": 363_846, "validation": 40_430}, {}),
    "rotten_tomatoes": Original(
        "rt-polaritydata.tar.gz", _CORNELL,
        ("rt-polaritydata/rt-polarity.pos", "rt-polaritydata/rt-polarity.neg"), (),
        "a05befe52aafda71d458d188a1c54506a998b1308613ba76bbda2e5029409ce9",
        {"train": 8_530, "validation": 1_066, "test": 1_066},
        {"train": "d32d7b7029a9ab0db63717497245e9ad42a5c0657d4c9c1355954aebf8d97459",
         "validation": "011b2fbd6eeb26a7804eb937e640aed22048899a734cd199c2cc2695e0f6f0e1",
         "test": "8c0df21b2d32aa60a93f862e47e4c07d7905315db8d9019a4366091853f0dac4"}),
}


def archive_folder(cache_dir: str | os.PathLike[str] | None) -> Path:
    """``cache_dir``, else MEANFIELD_CACHE/text, else ``text`` in the user's cache."""
    named = os.environ.get("MEANFIELD_CACHE")
    if cache_dir is not None or named:
        return (Path(cache_dir) if cache_dir is not None else Path(str(named)) / "text").expanduser()
    import pooch  # late: 0.1 s that a folder does not need

    return Path(pooch.os_cache("meanfield")) / "text"


def fetch(name: str, cache: Path, base_url: str | None, progress: bool) -> Path:
    """The archive in the cache; if it is not there yet, it is downloaded and moved into place whole."""
    original = ORIGINALS[name]
    path = cache / original.archive
    if path.is_file():
        return path
    base = base_url or os.environ.get("MEANFIELD_DATA_URL") or original.base
    if not base.startswith(("http://", "https://")):
        raise ValueError(f"base_url (or MEANFIELD_DATA_URL) must be an http or https address, got {base!r}")
    url = f"{base.rstrip('/')}/{original.archive}"
    advice = (f"name a folder with --data-dir DIR or MEANFIELD_DATA=DIR that holds DIR/{name}/train.tsv.gz "
              f"and validation.tsv.gz, or save {url} as {path}")
    if os.environ.get("MEANFIELD_OFFLINE", "") not in ("", "0"):
        raise FileNotFoundError(f"{name} is not in the cache and MEANFIELD_OFFLINE is set: {advice}")
    import pooch

    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"the cache {cache} cannot be written ({error.strerror}): set MEANFIELD_CACHE to a "
                      f"folder that can, or {advice}") from None
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("ERROR")  # pooch reports every download, and its digest, on the user's terminal
    try:
        pooch.retrieve(url, known_hash=None, fname=path.name, path=cache,
                       downloader=pooch.HTTPDownloader(progressbar=progress, timeout=30))
    except OSError as error:  # requests' exceptions are OSErrors
        raise FileNotFoundError(f"{name} is not in the cache and {url} gave {_reason(error)}: "
                                f"{advice}") from None
    finally:
        logger.setLevel(level)
    return path


def _reason(error: OSError) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"HTTP {response.status_code}"
    known = {"ConnectionError": "no connection", "ProxyError": "no connection",
             "SSLError": "no trusted connection", "ConnectTimeout": "no answer in time",
             "ReadTimeout": "no answer in time", "ChunkedEncodingError": "only a part of the file"}
    return known.get(type(error).__name__, error.strerror or type(error).__name__)


def read_original(name: str, path: Path) -> tuple[dict[str, Split], list[str]]:
    """Splits and notes from the archive at ``path``, or a ValueError with path and digests."""
    original = ORIGINALS[name]
    archive = _sha256(path)
    try:
        raw = _members(path, original.members)
    except _BROKEN:
        raise ValueError(f"{path} must be a whole {original.archive} (SHA-256 {original.sha256}), got one "
                         f"that is cut short or altered (SHA-256 {archive}): delete the file and load "
                         f"again") from None
    try:
        splits, notes = _read_glue(raw, original) if original.columns else _read_polarity(raw, original)
    except ValueError as error:
        raise ValueError(f"{error}, in {path} (SHA-256 {archive}, the published archive has "
                         f"{original.sha256}): delete the file and load again") from None
    for which, split in splits.items():
        verify(which, split, original, str(path), "delete the file and load again")
    if not original.content and archive != original.sha256:
        # the counts are all that could be checked, so a report has to say which file it was
        notes.append(f"{path.name} has SHA-256 {archive}, not the published {original.sha256}, "
                     f"though as many rows.")
    return splits, notes


def _members(path: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The members under exactly these names, read in memory: nothing is ever unpacked to disk."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in names}
    found: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as tar:
        for name in names:
            member = tar.extractfile(name)
            if member is None:
                raise KeyError(name)
            with member:
                found[name] = member.read()
    return found


def _read_glue(raw: Mapping[str, bytes], original: Original) -> tuple[dict[str, Split], list[str]]:
    """Train and dev of a GLUE task, columns found by the header's names."""
    splits: dict[str, Split] = {}
    notes: list[str] = []
    for which, (member, content) in zip(("train", "validation"), raw.items(), strict=True):
        header, *lines = [line.removesuffix("\r") for line in decode_lines(content, member)] or [""]
        names = header.split("\t")
        if not set(original.columns) <= set(names):
            raise ValueError(f"{member} must begin with a header that has {', '.join(original.columns)}, "
                             f"got {header[:80]!r}")
        pairs = len(original.columns) == 3
        # Questions of QQP can hold a line break, and then a row is torn into shorter lines. GLUE's counts
        # leave those out; so do we, and lose nothing unseen, because the number of whole rows is checked.
        # SST-2 train ends each sentence with a blank, which the content digest does not have.
        picks = [names.index(name) for name in original.columns]
        splits[which], torn = parse_rows(lines, member, len(names), picks, first=2, torn=pairs,
                                         strip=not pairs)
        if torn:
            notes.append(f"{torn} lines of {member} are pieces of torn rows and are left out; "
                         f"the whole rows are as many as published.")
    return splits, notes


def _read_polarity(raw: Mapping[str, bytes], original: Original) -> tuple[dict[str, Split], list[str]]:
    """The usual split of the polarity sentences: 80, 10 and 10 % of either class's lines, positives first."""
    cut, end = original.rows["train"] // 2, (original.rows["train"] + original.rows["validation"]) // 2
    classes = [[strip_ascii(line) for line in decode_lines(content, member, "cp1252")]
               for member, content in raw.items()]
    parts = {"train": slice(0, cut), "validation": slice(cut, end), "test": slice(end, None)}
    splits = {which: Split(tuple(text for lines in classes for text in lines[part]),
                           np.repeat([1, 0], [len(lines[part]) for lines in classes]))
              for which, part in parts.items()}
    return splits, ["The originals were decoded as cp1252."]


def verify(which: str, split: Split, original: Original, where: str, remedy: str) -> None:
    """Refuse a split that has not the rows, or not the content, of the original."""
    rows, content, digest = original.rows[which], original.content.get(which), content_sha256(split)
    if len(split) != rows or (content is not None and digest != content):
        wanted = content or "(none is published)"
        raise ValueError(f"{where}: the {which} split must have {rows:,} rows and content SHA-256 {wanted}, "
                         f"got {len(split):,} rows and {digest}: {remedy}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
