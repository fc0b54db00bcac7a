"""The report: one page, one JSON file, a folder that is whole or not there."""

from __future__ import annotations

import json
import math
import os
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from meanfield.report import CheckResult, FigureRef, Section, Table, Workspace, write_report

PNG = (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (1360).to_bytes(4, "big") + (600).to_bytes(4, "big")
       + b"\x08\x06\x00\x00\x00")
CHECK = CheckResult("mass is kept", "method.md (7.1)", np.float64(3e-16), 0.0, 1e-12, np.bool_(True), (0.0, math.inf))


def sections(**figure: str) -> list[Section]:
    failing = CheckResult("a < b & <script>alert(1)</script>", "nowhere", math.nan, "above 0", "95 %", False, None, "'note'")
    return [Section("First", ("One & two.",), (CHECK, failing), tuple(FigureRef(**figure) for _ in figure and [1]),
                    (Table("T", ("a", "b"), (("1", "<2>"),)),), "meanfield reproduce --quick", 1.25),
            Section("Second", ())]


def write(folder: Path, **figure: str) -> dict:
    write_report(folder, "A <title>", "Lead.", sections(**figure),
                 {"seed": 0, "versions": {"numpy": "2"}, "odd": np.float32(0.5), "path": Path("x")})
    return json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)


class Page(HTMLParser):
    """Tags, their attributes and the text of a page; unclosed tags are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_json_holds_every_check_and_is_valid_without_nan(tmp_path):
    found = write(tmp_path)
    assert found["made_by"] == "meanfield.report"
    assert (found["passed"], found["n_checks"], found["failed"]) == (False, 2, ["a < b & <script>alert(1)</script>"])
    assert found["checks"][0] == {"section": "First", "claim": "mass is kept", "source": "method.md (7.1)",
                                  "measured": 3e-16, "expected": 0.0, "tolerance": 1e-12, "passed": True,
                                  "interval": [0.0, "Infinity"], "note": ""}
    assert found["checks"][1]["measured"] == "NaN"
    assert found["provenance"] == {"seed": 0, "versions": {"numpy": "2"}, "odd": 0.5, "path": "x"}
    assert found["sections"][0]["seconds"] == 1.25
    assert found["files"] == ["index.html", "report.json"]


def test_page_is_whole_escaped_and_loads_nothing(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "f.png").write_bytes(PNG)
    write(tmp_path, stem="f", alt='bars "and" <lines>', caption="A & B")
    page = Page((tmp_path / "index.html").read_text())
    assert not [a for tag, a in page.tags if tag in ("script", "link", "iframe", "b")]
    (image,) = [a for tag, a in page.tags if tag == "img"]
    assert image["src"].startswith("data:image/png;base64,")
    assert (image["alt"], image["width"], image["height"]) == ('bars "and" <lines>', "680", "300")
    assert not [a for _, a in page.tags if str(a.get("src", a.get("href", ""))).startswith(("http", "//"))]
    assert "1 of 2 checks passed, 1 failed" in page.text
    assert "alert(1)" in page.text
    assert page.text.index("All checks") < page.text.index("1. First")
    ids = {a["id"] for _, a in page.tags if "id" in a}
    assert {a["href"][1:] for _, a in page.tags if a.get("href", "").startswith("#")} <= ids


def test_numbers_that_differ_look_different(tmp_path):
    near = CheckResult("close", "s", 0.73689981, 0.73689979, 3e-7, True)
    write_report(tmp_path, "t", "l", [Section("S", (), (near,))], {})
    text = (tmp_path / "index.html").read_text()
    assert "0.73689981" in text
    assert "0.73689979" in text


def test_what_cannot_be_true_is_refused(tmp_path):
    with pytest.raises(ValueError, match="NaN must not pass"):
        CheckResult("c", "s", math.nan, 0.0, 0.0, True)
    with pytest.raises(ValueError, match="must have 2 cells, got 1"):
        Table("T", ("a", "b"), (("1",),))
    with pytest.raises(FileNotFoundError, match="not made"):
        write(tmp_path, stem="f", alt="a", caption="c")
    assert list(tmp_path.iterdir()) == []


def test_lone_surrogates_do_not_break_the_end_of_a_run(tmp_path):
    write_report(tmp_path, "t\udcff", "l", [], {"folder": "caf\udce9"})
    assert json.loads((tmp_path / "report.json").read_text())["title"] == "t\udcff"


def report(folder: Path) -> None:
    folder.mkdir()
    write(folder)


def test_new_empty_and_earlier_folders_are_replaced(tmp_path):
    target = tmp_path / "report"
    for _ in range(2):
        with Workspace(target) as folder:
            assert folder.parent == tmp_path
            (folder / "data").mkdir()
            (folder / "data" / "a.nc").write_bytes(b"1")
            write(folder)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["report"]
        assert (target / "data" / "a.nc").read_bytes() == b"1"
    (tmp_path / "empty").mkdir()
    with Workspace(tmp_path / "empty") as folder:
        (folder / "x").write_text("1")
    assert [p.name for p in (tmp_path / "empty").iterdir()] == ["x"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_bug_18_a_crash_leaves_the_old_report_whole_and_no_temporary_folder(tmp_path, error):
    target = tmp_path / "report"
    report(target)
    before = {p.name: p.read_bytes() for p in target.iterdir()}
    with pytest.raises(error), Workspace(target) as folder:  # noqa: PT012
        (folder / "index.html").write_text("half")
        raise error
    assert {p.name: p.read_bytes() for p in target.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_bug_18_a_failed_move_puts_the_old_report_back(tmp_path, monkeypatch):
    target = tmp_path / "report"
    report(target)
    rename, calls = Path.rename, []

    def failing(self: Path, to: Path) -> Path:
        calls.append(self)
        if len(calls) == 2:
            raise OSError("disk full")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="disk full"), Workspace(target):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["report"]
    assert (target / "report.json").exists()


def test_bug_18_folders_with_anything_else_are_refused_before_computing(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years")
    ours = tmp_path / "ours"
    report(ours)
    (ours / "notes.txt").write_text("mine")
    alien = tmp_path / "alien"
    alien.mkdir()
    (alien / "report.json").write_text('{"made_by": "somebody else", "files": ["report.json"]}')
    for folder, held in ((other, "thesis.tex"), (ours, "notes.txt"), (alien, "report.json")):
        with pytest.raises(FileExistsError, match=f"holds {held}"), Workspace(folder):
            pytest.fail("computed")
    with pytest.raises(FileExistsError, match="is a file"), Workspace(other / "thesis.tex", overwrite=True):
        pytest.fail("computed")
    with Workspace(ours, overwrite=True) as folder:
        (folder / "new").touch()
    assert [p.name for p in ours.iterdir()] == ["new"]
    assert (other / "thesis.tex").read_text() == "years"


def test_bug_18_what_must_never_be_replaced(tmp_path, monkeypatch):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for target in (".", "..", "/", "", "~"):
        with pytest.raises(ValueError, match="must not be the current folder"):
            Workspace(target, overwrite=True).check()


def test_bug_18_missing_and_unwritable_places_are_found_before_the_run(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        Workspace(tmp_path / "missing" / "report").check()
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        Workspace(tmp_path / "file" / "report").check()

    def denied(self: Path, *arguments: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", denied)  # who runs the tests may be allowed everything
    with pytest.raises(PermissionError, match=f"cannot write in {tmp_path} \\(Permission denied\\)"):
        Workspace(tmp_path / "report").check()


def test_bug_18_what_came_into_the_folder_during_the_run_is_kept(tmp_path):
    target = tmp_path / "report"
    with pytest.raises(FileExistsError, match="finished report is in"), Workspace(target) as folder:  # noqa: PT012
        (folder / "new").touch()
        target.mkdir()
        (target / "notes.txt").write_text("mine")
    assert (target / "notes.txt").read_text() == "mine"
    (kept,) = [p for p in tmp_path.iterdir() if p != target]
    assert (kept / "new").exists()


def test_a_link_stays_and_the_folder_behind_it_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    try:
        (tmp_path / "link").symlink_to(tmp_path / "real")
    except OSError:  # pragma: no cover
        shutil.rmtree(tmp_path / "real")
        return
    with Workspace(tmp_path / "link") as folder:
        (folder / "x").touch()
    assert os.path.islink(tmp_path / "link")
    assert (tmp_path / "real" / "x").exists()
