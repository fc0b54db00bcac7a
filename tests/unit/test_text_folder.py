"""Text data from folders, the parsing of rows, the toy corpus and the baselines; no network is needed.

BUG-xx are symptoms from public trackers. The two tests on real corpora run where those are at hand.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from meanfield.attention.baselines import majority, naive_bayes
from meanfield.attention.data import NAMES, Split, content_sha256, load_text
from meanfield.attention.originals import ORIGINALS
from meanfield.attention.rows import decode_lines, parse_rows
from meanfield.attention.toy import toy_reviews

REAL = Path(os.environ.get("MEANFIELD_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_real = pytest.mark.skipif(not all((REAL / name / "train.tsv.gz").is_file() for name in NAMES),
                                reason="the real corpora are not in MEANFIELD_DATA")


@pytest.fixture(autouse=True)
def _no_folder_and_no_network(monkeypatch):
    monkeypatch.delenv("MEANFIELD_DATA", raising=False)
    monkeypatch.setenv("MEANFIELD_OFFLINE", "1")


def sha(*rows):
    return hashlib.sha256("".join(f"{row}\n" for row in rows).encode()).hexdigest()


def write_folder(folder, name, **splits):
    (folder / name).mkdir(parents=True)
    for which, content in splits.items():
        (folder / name / f"{which}.tsv.gz").write_bytes(gzip.compress(content))
    return folder


def test_bug_43_cp1252_lines():
    raw = b"a \x97 b\nc \x96 d\ne \x85 f\ncaf\xe9 \n"
    assert decode_lines(raw, "file", "cp1252") == ["a — b", "c – d", "e … f", "café "]
    utf8 = "a — b\ne … f\x85\u2028\ncafé ".encode()
    assert decode_lines(utf8, "file") == ["a — b", "e … f\x85\u2028", "café "]
    with pytest.raises(ValueError, match="file, line 1: the text must be utf-8, got byte 0x97 at offset 2"):
        decode_lines(raw, "file")
    with pytest.raises(ValueError, match="file, line 2: the text must be cp1252, got byte 0x81 at offset 5"):
        decode_lines(b"fine\n\x81\n", "file", "cp1252")
    assert decode_lines(b"fine\n\x81\n", "file", "cp1252", errors="replace") == ["fine", "�"]


def test_bug_29_a_folder_is_used_as_is_and_its_digest_recorded(tmp_path, monkeypatch):
    train, validation = 'a "b\t1\nc\x85d\t0\n'.encode(), b"e\t1"  # the last line end may be missing
    folder = write_folder(tmp_path, "rotten_tomatoes", train=train, validation=validation)
    monkeypatch.setenv("MEANFIELD_DATA", str(folder))
    data = load_text("rotten_tomatoes")
    assert data.source == "the folder given by MEANFIELD_DATA"
    assert data.train.texts == ('a "b', "c\x85d")
    assert data.digests == {"train": hashlib.sha256(train).hexdigest(), "validation": sha("e\t1")}
    assert data.test is None
    assert data.notes == ("The train split has 2 rows, the complete set has 8,530.",
                          "The validation split has 1 rows, the complete set has 1,066.")


def test_bug_29_a_changed_complete_set_in_a_folder_is_refused(tmp_path, monkeypatch):
    small = dataclasses.replace(ORIGINALS["sst2"], rows={"train": 3, "validation": 1})
    monkeypatch.setitem(ORIGINALS, "sst2", small)
    folder = write_folder(tmp_path, "sst2", train=b"a\t0\nb\t1\nc\t0\n", validation=b"d\t1\n")
    with pytest.raises(ValueError, match="put the complete original file back") as caught:
        load_text("sst2", data_dir=folder)
    assert str(folder / "sst2" / "train.tsv.gz") in str(caught.value)
    assert sha("a\t0", "b\t1", "c\t0") in str(caught.value)
    assert ORIGINALS["sst2"].content["train"] in str(caught.value)


def test_a_folder_with_plain_files_and_pairs(tmp_path):
    (tmp_path / "qqp").mkdir()
    (tmp_path / "qqp" / "train.tsv").write_bytes(b"a\tb\t1\nc\td\t0\n")
    (tmp_path / "qqp" / "test.tsv").write_bytes(b"e\tf\t0\n")
    data = load_text("qqp", data_dir=tmp_path)
    assert data.train.texts == (("a", "b"), ("c", "d"))
    assert data.digests["train"] == sha("a\tb\t1", "c\td\t0")
    assert (len(data.test), data.validation, data.notes) == (1, None, ())
    (tmp_path / "qqp" / "test.tsv.gz").write_bytes(gzip.compress(b"e\tf\t0\n"))
    with pytest.raises(ValueError, match=r"must hold one of test\.tsv\.gz and test\.tsv, got both"):
        load_text("qqp", data_dir=tmp_path)


def test_the_58k_subset_says_so(tmp_path):
    rows = b"".join(b"q%d\tr\t%d\n" % (i, i % 2) for i in range(58_150))
    data = load_text("qqp", data_dir=write_folder(tmp_path, "qqp", train=rows, validation=b"a\tb\t1\n"))
    assert any("58k subset" in note for note in data.notes)


@pytest.mark.parametrize(("train", "message"), [
    (b"good\t1\n\nbad\t0\n", "train.tsv.gz, line 2: a row must have 2 tab-separated columns, got 1"),
    (b"good\tfilm\t1\n", "line 1: a row must have 2 tab-separated columns, got 3"),
    (b"good\tpos\n", "line 1: a label must be 0 or 1, got 'pos'"),
    (b"good\t1\r\n", r"line 1: a label must be 0 or 1, got '1\\r'"),
    (b"good\t1\ncaf\xe9\t0\n", "line 2: the text must be utf-8, got byte 0xe9 at offset 10"),
    (b"", "must have at least one row, got none"),
])
def test_a_folder_row_that_is_wrong_is_named(tmp_path, train, message):
    folder = write_folder(tmp_path, "rotten_tomatoes", train=train, validation=b"good\t1\n")
    with pytest.raises(ValueError, match=message) as caught:
        load_text("rotten_tomatoes", data_dir=folder)
    assert str(folder) in str(caught.value)


def test_a_folder_file_that_is_cut_short(tmp_path):
    folder = write_folder(tmp_path, "sst2", train=b"good\t1\n" * 50, validation=b"good\t1\n")
    path = folder / "sst2" / "train.tsv.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="must be a whole gzip file") as caught:
        load_text("sst2", data_dir=folder)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in str(caught.value)


def test_a_folder_without_the_data(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"sst2/train\.tsv\.gz .* in the folder given by --data-dir"):
        load_text("sst2", data_dir=tmp_path)
    monkeypatch.setenv("MEANFIELD_DATA", str(write_folder(tmp_path / "x", "sst2", train=b"good\t1\n")))
    with pytest.raises(FileNotFoundError, match=r"validation\.tsv\.gz .* given by MEANFIELD_DATA"):
        load_text("sst2")
    with pytest.raises(ValueError, match="name must be one of 'sst2', 'qqp', 'rotten_tomatoes', got 'imdb'"):
        load_text("imdb")


def test_a_split_is_immutable_and_survives_a_pickle():
    labels = np.array([0, 1])
    split = Split(["a", "b"], labels)
    labels[0] = 1
    assert split.labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        split.labels[0] = 1
    assert split.texts == ("a", "b")
    assert content_sha256(pickle.loads(pickle.dumps(split))) == content_sha256(split) == sha("a\t0", "b\t1")
    with pytest.raises(ValueError, match=r"labels must have shape \(2,\)"):
        Split(("a", "b"), np.array([1]))


def test_parse_rows_keeps_every_row_that_is_whole():
    split, left_out = parse_rows(['"\t1', "'\t0", "\t1"], "file", 2, (0, 1))
    assert (split.texts, left_out) == (('"', "'", ""), 0)


def test_toy_reviews():
    data, again = toy_reviews(), toy_reviews(0)
    assert [len(split) for split in (data.train, data.validation, data.test)] == [1200, 300, 300]
    assert data.digests == again.digests != toy_reviews(1).digests
    assert data.digests["test"] == "9c27542bd48dce26333a16fd9fc2e35d2c8f6092ea4b277bd16fc1761e7fbef2"
    everything = [*data.train.texts, *data.validation.texts, *data.test.texts]
    assert len(set(everything)) == len(everything)
    assert all(split.labels.mean() == 0.5 for split in (data.train, data.validation, data.test))
    assert "generated by the package" in data.source


def test_baselines():
    data = toy_reviews()
    assert majority(data.train, data.test).tolist() == [0.5] * 300
    probability = naive_bayes(data.train, data.test)
    assert probability.shape == (300,)
    assert 0.8 < ((probability > 0.5) == data.test.labels).mean() < 0.92
    pairs = Split((("is it good ?", "good !"), ("is it good ?", "bad !")), np.array([1, 0]))
    assert (naive_bayes(pairs, pairs) > 0.5).tolist() == [True, False]
    one_class = Split(("a", "b"), np.array([1, 1]))
    assert naive_bayes(one_class, data.test).tolist() == [1.0] * 300


@needs_real
def test_the_real_qqp_folder_is_the_58k_subset():
    data = load_text("qqp", data_dir=REAL)
    assert [len(data.train), len(data.validation), len(data.test)] == [58_150, 10_000, 10_000]
    assert any("58k subset" in note for note in data.notes)


@needs_real
def test_naive_bayes_on_rotten_tomatoes():
    data = load_text("rotten_tomatoes", data_dir=REAL)
    accuracy = ((naive_bayes(data.train, data.test) > 0.5) == data.test.labels).mean()
    assert accuracy == pytest.approx(0.7974, abs=0.002)
