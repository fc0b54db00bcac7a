"""Text data from caches and a local server; BUG-xx are symptoms from public trackers.

Nothing here needs the network. Where the real corpora are at hand (``MEANFIELD_DATA``, or ``shared/data``
beside the repository), the originals are rebuilt from them and must come back with their official digests.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import http.server
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from meanfield.attention.data import NAMES, content_sha256, load_text
from meanfield.attention.originals import ORIGINALS

REAL = Path(os.environ.get("MEANFIELD_DATA") or Path(__file__).parents[3] / "shared" / "data")
VARIABLES = ("MEANFIELD_DATA", "MEANFIELD_DATA_URL", "MEANFIELD_CACHE", "MEANFIELD_OFFLINE")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch, tmp_path):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MEANFIELD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def mirror(tmp_path):
    """A folder, its http address, and the paths that were asked for."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}", server.asked
    server.shutdown()
    thread.join()
    server.server_close()


# small originals

SST2 = {
    "train": b"sentence\tlabel\nhide new secretions \t0\na \"quoted start \t1\nclich\xc3\xa9s galore \t0\n",
    "validation": b"sentence\tlabel\nit 's a charming journey . \t1\n",
}
QQP = {
    "train": b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
             b"0\t1\t2\tWhy \"so?\tWhy?\t1\n1\t3\t4\tA question\n that was torn\t0\n2\t5\t6\tHow?\t\t0\n",
    "validation": b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t8\t9\tWho?\tWhen?\t0\n",
}
# 4 lines a class, split 2 / 1 / 1; the bytes are cp1252's ellipsis, en dash, em dash and e acute
POLARITY = {1: b"a caf\xe9 \nwait\x85 what \nfilm \x96 good\nwarm \x97 ", 0: b"bad\n \"dull\n grim \ncold\n"}


def glue_zip(path, folder, train, validation):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{folder}/train.tsv", train)
        archive.writestr(f"{folder}/dev.tsv", validation)
        archive.writestr(f"{folder}/test.tsv", b"index\tsentence\n0\thidden\n")


def polarity_tar(path, positive, negative):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in (("rt-polaritydata/rt-polarity.pos", positive),
                              ("rt-polaritydata/rt-polarity.neg", negative)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def sha(*rows):
    return hashlib.sha256("".join(f"{row}\n" for row in rows).encode()).hexdigest()


@pytest.fixture
def small(monkeypatch):
    """The originals cut down to a few rows: the path that accepts can be walked without the real corpora."""
    expected = {
        "sst2": ({"train": 3, "validation": 1}, {
            "train": sha("hide new secretions\t0", 'a "quoted start\t1', "clichés galore\t0"),
            "validation": sha("it 's a charming journey .\t1")}),
        "qqp": ({"train": 2, "validation": 1}, {}),
        "rotten_tomatoes": ({"train": 4, "validation": 2, "test": 2}, {
            "train": sha("a café\t1", "wait… what\t1", "bad\t0", '"dull\t0'),
            "validation": sha("film – good\t1", "grim\t0"), "test": sha("warm —\t1", "cold\t0")}),
    }
    for name, (counts, content) in expected.items():
        small = dataclasses.replace(ORIGINALS[name], rows=counts, content=content)
        monkeypatch.setitem(ORIGINALS, name, small)


def rows(split, end=""):
    return b"".join(f"{t}{end}\t{y}\n".encode() for t, y in zip(split.texts, split.labels, strict=True))


def put(folder, name):
    path = folder / ORIGINALS[name].archive
    folder.mkdir(parents=True, exist_ok=True)
    if name == "rotten_tomatoes":
        polarity_tar(path, POLARITY[1], POLARITY[0])
    elif name == "sst2":
        glue_zip(path, "SST-2", **SST2)
    else:
        glue_zip(path, "QQP", **QQP)
    return path


# the download


@pytest.mark.parametrize("name", NAMES)
def test_download_gives_the_rows_of_the_folder(small, mirror, tmp_path, name):
    folder, address, asked = mirror
    put(folder, name)
    data = load_text(name, base_url=address)
    assert data.source == "downloaded originals"
    assert asked == [f"/{ORIGINALS[name].archive}"]
    assert (data.test is None) == (name != "rotten_tomatoes")
    assert {which: content_sha256(getattr(data, which)) for which in data.digests} == data.digests
    if name == "qqp":
        assert data.train.texts == (('Why "so?', "Why?"), ("How?", ""))
        assert data.train.labels.tolist() == [1, 0]
        assert any("2 lines of QQP/train.tsv are pieces of torn rows" in note for note in data.notes)
        assert any(ORIGINALS[name].sha256 in note for note in data.notes)
        return
    assert data.digests == ORIGINALS[name].content
    (tmp_path / "own" / name).mkdir(parents=True)
    for which in data.digests:
        (tmp_path / "own" / name / f"{which}.tsv").write_bytes(rows(getattr(data, which)))
    own = load_text(name, data_dir=tmp_path / "own")
    assert own.digests == data.digests
    assert own.train.texts == data.train.texts
    assert own.source == "the folder given by --data-dir"


def test_bug_29_a_good_cache_needs_no_connection(small, tmp_path, no_network, monkeypatch):
    put(tmp_path / "cache" / "text", "sst2")
    assert len(load_text("sst2").train) == 3
    monkeypatch.setenv("MEANFIELD_OFFLINE", "1")
    assert len(load_text("sst2").train) == 3
    put(tmp_path / "elsewhere", "rotten_tomatoes")
    assert len(load_text("rotten_tomatoes", cache_dir=tmp_path / "elsewhere").test) == 2


def test_bug_29_downloaded_once_and_silently(small, mirror, capfd, monkeypatch):
    folder, address, asked = mirror
    put(folder, "rotten_tomatoes")
    monkeypatch.setenv("MEANFIELD_DATA_URL", address + "/")
    first, second = load_text("rotten_tomatoes"), load_text("rotten_tomatoes")
    assert len(asked) == 1
    assert first.digests == second.digests
    assert capfd.readouterr() == ("", "")


def test_bug_29_no_cache_and_no_network(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(FileNotFoundError, match="gave no connection: name a folder") as caught:
            load_text("rotten_tomatoes", base_url=address)
    message = str(caught.value)
    assert "--data-dir DIR" in message
    assert "DIR/rotten_tomatoes/train.tsv.gz" in message
    assert "MEANFIELD_DATA" in message
    assert str(tmp_path / "cache" / "text" / "rt-polaritydata.tar.gz") in message
    assert "\n" not in message
    assert caught.value.__suppress_context__
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_bug_29_offline_variable_forbids_a_connection(monkeypatch, no_network):
    monkeypatch.setenv("MEANFIELD_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="MEANFIELD_OFFLINE is set: name a folder with --data-dir"):
        load_text("sst2")


def test_bug_29_a_server_without_the_file(mirror):
    with pytest.raises(FileNotFoundError, match="gave HTTP 404: name a folder"):
        load_text("qqp", base_url=mirror[1])


def test_bug_29_a_download_that_breaks_off_leaves_nothing(tmp_path):
    def serve(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        with pytest.raises(FileNotFoundError, match="only a part of the file"):
            load_text("sst2", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", ["truncated", "empty", "a web page", "one byte"])
def test_bug_29_a_damaged_archive_is_refused(small, tmp_path, no_network, name, damage):
    path = put(tmp_path / "cache" / "text", name)
    raw = path.read_bytes()
    middle = len(raw) // 3
    flipped = raw[:middle] + bytes([raw[middle] ^ 0x10]) + raw[middle + 1 :]
    page = b"<html>please log in</html>"
    path.write_bytes({"truncated": raw[: 2 * middle], "empty": b"", "a web page": page,
                      "one byte": flipped}[damage])
    with pytest.raises(ValueError, match="delete the file and load again") as caught:
        load_text(name)
    message = str(caught.value)
    assert str(path) in message
    assert hashlib.sha256(path.read_bytes()).hexdigest() in message
    assert ORIGINALS[name].sha256 in message


def test_bug_29_other_content_is_refused_with_both_digests(small, tmp_path, no_network):
    path = put(tmp_path / "cache" / "text", "sst2")
    glue_zip(path, "SST-2", SST2["train"].replace(b"galore \t0", b"galore \t1"), SST2["validation"])
    with pytest.raises(ValueError, match="the train split must have 3 rows and content SHA-256") as caught:
        load_text("sst2")
    assert str(path) in str(caught.value)
    assert ORIGINALS["sst2"].content["train"] in str(caught.value)
    assert sha("hide new secretions\t0", 'a "quoted start\t1', "clichés galore\t1") in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_bug_29_the_official_counts_are_checked(tmp_path, no_network, name):
    path = put(tmp_path / "cache" / "text", name)  # a few rows, against the real counts
    with pytest.raises(ValueError, match=r"the train split must have [0-9,]+ rows") as caught:
        load_text(name)
    assert str(path) in str(caught.value)
    assert f"{ORIGINALS[name].rows['train']:,} rows" in str(caught.value)


@pytest.mark.parametrize(("train", "message"), [
    (b"sentence\tlabel\nfine \t1\nno label\n", "line 3: a row must have 2 tab-separated columns, got 1"),
    (b"sentence\tlabel\nfine \t1\ttwice\n", "SST-2/train.tsv, line 2: a row must have 2 .* columns, got 3"),
    (b"sentence\tlabel\nfine \t-1\n", "line 2: a label must be 0 or 1, got '-1'"),
    (b"sentence\tlabel\nfine \t1\nno\xff \t1\n", "line 3: the text must be utf-8, got byte 0xff at offset"),
    (b"fine \t1\n", "must begin with a header that has sentence, label, got"),
    (b"sentence\tlabel\n", "must have at least one row, got none"),
])
def test_a_row_that_is_wrong_is_named(small, tmp_path, no_network, train, message):
    path = tmp_path / "cache" / "text" / "SST-2.zip"
    path.parent.mkdir(parents=True)
    glue_zip(path, "SST-2", train, SST2["validation"])
    with pytest.raises(ValueError, match=message) as caught:
        load_text("sst2")
    assert str(path) in str(caught.value)


def test_archives_are_read_by_exact_names_and_never_unpacked(small, tmp_path, no_network):
    path = tmp_path / "cache" / "text" / "SST-2.zip"
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../train.tsv", SST2["train"])
        archive.writestr("SST-2/train.tsv/../dev.tsv", SST2["validation"])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=r"must be a whole SST-2\.zip"):
        load_text("sst2")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"cannot be written .*: set MEANFIELD_CACHE to a folder"):
        load_text("sst2", cache_dir=tmp_path / "file" / "below")
    with pytest.raises(ValueError, match="must be an http or https address, got 'ftp://host'"):
        load_text("sst2", base_url="ftp://host")


def test_bug_43_the_originals_codec_is_in_the_notes(small, tmp_path, no_network):
    put(tmp_path / "cache" / "text", "rotten_tomatoes")
    assert load_text("rotten_tomatoes").notes == ("The originals were decoded as cp1252.",)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bug_43_the_locale_does_not_matter(tmp_path, locale):
    path = tmp_path / "rt-polaritydata.tar.gz"
    polarity_tar(path, POLARITY[1], POLARITY[0])
    code = ("import sys; from pathlib import Path; from meanfield.attention.rows import decode_lines; "
            "from meanfield.attention.originals import ORIGINALS, _members; "
            "raw = _members(Path(sys.argv[1]), ORIGINALS['rotten_tomatoes'].members); "
            "print(ascii([decode_lines(c, m, 'cp1252') for m, c in raw.items()]))")
    environment = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    found = subprocess.run([sys.executable, "-c", code, str(path)], env=environment, capture_output=True,
                           check=True, cwd=Path(__file__).parents[2])
    assert found.stdout.decode().strip() == ascii([["a café ", "wait… what ", "film – good", "warm — "],
                                                   ["bad", ' "dull', " grim ", "cold"]])


# the real corpora, where they are at hand

needs_real = pytest.mark.skipif(not all((REAL / name / "train.tsv.gz").is_file() for name in NAMES),
                                reason="the real corpora are not in MEANFIELD_DATA")


@needs_real
@pytest.mark.parametrize("name", ["sst2", "rotten_tomatoes"])
def test_rebuilt_originals_have_the_official_digests(mirror, name):
    folder, address, _ = mirror
    real = load_text(name, data_dir=REAL)
    assert real.digests == ORIGINALS[name].content
    path = folder / ORIGINALS[name].archive
    if name == "sst2":  # GLUE: a header, and a blank after each sentence
        glue_zip(path, "SST-2", *(b"sentence\tlabel\n" + rows(s, " ") for s in (real.train, real.validation)))
    else:  # Cornell: one file a class, cp1252, a blank at the end of each line
        lines = {0: b"", 1: b""}
        for split in (real.train, real.validation, real.test):
            for label, content in lines.items():
                own = np.array(split.texts, dtype=object)[split.labels == label]
                lines[label] = content + "".join(f"{text} \n" for text in own).encode("cp1252")
        assert [content.count(b"\n") for content in lines.values()] == [5331, 5331]
        assert all(byte in lines[0] + lines[1] for byte in (b"\x85", b"\x96", b"\x97", b"\xe9"))
        polarity_tar(path, lines[1], lines[0])
    data = load_text(name, base_url=address)
    assert data.digests == ORIGINALS[name].content
    assert data.train.texts == real.train.texts
    assert all(len(getattr(data, which)) == count for which, count in ORIGINALS[name].rows.items())
