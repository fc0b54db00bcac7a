"""The command line: exit statuses, one line of error, nothing heavy for --help."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from meanfield import cli
from meanfield.report import Workspace

HEAVY = ("numba", "scipy", "xarray", "sklearn", "matplotlib", "pandas", "numpy", "rich")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in this process, in an empty folder: (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        return stop.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def chapters(monkeypatch):
    """A stand-in for the experiments: what ``reproduce`` is asked, and what it answers."""
    module = types.ModuleType("meanfield.experiments.reproduce")
    module.asked, module.failed = {}, []

    def reproduce(**arguments):
        module.asked.update(arguments)
        if isinstance(module.failed, BaseException):
            raise module.failed
        return types.SimpleNamespace(n_checks=5, failed=module.failed, passed=not module.failed)

    module.reproduce = reproduce
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def one_line(error: str) -> str:
    assert error.startswith("meanfield: ")
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize("module", ["meanfield", "meanfield.cli"])
def test_import_loads_nothing_heavy(module):
    program = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_help_and_version(run):
    for arguments in ((), ("-h",), ("--help",)):
        status, out, err = run(*arguments)
        assert (status, err) == (0, "")
        assert all(word in out for word in ("reproduce", "doctor", "data", "--version"))
    status, out, _ = run("reproduce", "-h")
    assert status == 0
    assert all(word in out for word in ("--quick", "--data-dir", "--out", "--overwrite", "--seed", "--threads"))
    status, out, _ = run("--version")
    assert status == 0
    assert out.startswith("meanfield 0")


@pytest.mark.parametrize("arguments", [
    ("frobnicate",), ("--frobnicate",), ("doctor", "--deep"), ("reproduce",), ("reproduce", "--quick", "--seed", "-1"),
    ("reproduce", "--quick", "--seed", "1.5"), ("reproduce", "--quick", "--threads", "0"), ("reproduce", "--quick", "extra"),
    ("reproduce", "--quick", "--out", "missing/report"), ("reproduce", "--quick", "--out", "."),
    ("reproduce", "--quick", "--data-dir", "missing"), ("data",), ("data", "imdb"),
    ("data", "sst2", "--data-dir", "missing"),
], ids=" ".join)
def test_bug_39_wrong_usage_is_2_with_one_line_and_nothing_written(run, chapters, tmp_path, arguments):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    one_line(err)
    assert not chapters.asked
    assert list(tmp_path.iterdir()) == []


def test_bug_46_unknown_options_come_with_a_hint(run):
    assert "--quick" in run("reproduce", "--quik")[2]


def test_bug_18_other_peoples_folders_are_refused_unless_overwrite(run, chapters, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years")
    status, _, err = run("reproduce", "--quick", "--out", "out")
    assert status == 2
    assert "thesis.tex" in one_line(err)
    assert run("reproduce", "--quick", "--out", "out", "--overwrite")[0] == 0
    assert chapters.asked["overwrite"] is True


def test_reproduce_passes_its_options_on(run, chapters, tmp_path):
    status, out, err = run("reproduce", "--quick", "--seed", "7", "--threads", "1", "--out", "there")
    assert (status, err) == (0, "")
    assert str(Path("there") / "index.html") in out
    assert "5 of 5" in out
    assert {k: chapters.asked[k] for k in ("out", "data_dir", "quick", "seed", "threads", "overwrite")} == {
        "out": Path("there"), "data_dir": None, "quick": True, "seed": 7, "threads": 1, "overwrite": False}


def test_bug_39_failed_checks_are_1_and_listed(run, chapters):
    chapters.failed = ["mass is kept", "the rate is -1/2"]
    status, out, err = run("reproduce", "--quick")
    assert status == 1
    assert "3 of 5" in out
    assert err.splitlines() == ["meanfield: check failed: mass is kept", "meanfield: check failed: the rate is -1/2"]


def test_bug_39_runs_that_fail_are_1_and_interrupted_ones_130(run, chapters):
    chapters.failed = ArithmeticError("at step 3 the drift\nmoves particle 0")
    status, out, err = run("reproduce", "--quick")
    assert (status, out, err) == (1, "", "meanfield: at step 3 the drift moves particle 0\n")
    chapters.failed = KeyError("density")
    assert run("reproduce", "--quick")[2] == "meanfield: KeyError: 'density'\n"
    status, _, err = run("reproduce", "--quick", "--debug")
    assert status == 1
    assert "Traceback" in err
    chapters.failed = OSError(28, "No space left on device")
    status, _, err = run("reproduce", "--quick")
    assert (status, err) == (1, "meanfield: No space left on device\n")
    chapters.failed = KeyboardInterrupt()
    status, _, err = run("reproduce", "--quick")
    assert status == 130
    assert err.strip() == "meanfield: interrupted"


def test_data_prints_rows_balance_and_digest(run, tmp_path):
    folder = tmp_path / "data" / "rotten_tomatoes"
    folder.mkdir(parents=True)
    (folder / "train.tsv").write_text("good\t1\nbad\t0\nfine\t1\nwell\t1\n", encoding="utf-8")
    (folder / "test.tsv").write_text("good\t1\nbad\t0\n", encoding="utf-8")
    status, out, err = run("data", "rotten_tomatoes", "--data-dir", str(tmp_path / "data"))
    assert (status, err) == (0, "")
    train = next(line for line in out.splitlines() if line.startswith("train"))
    assert "4 rows" in train
    assert "class 0: 0.250, class 1: 0.750" in train
    assert "sha256" in train
    assert "none" in next(line for line in out.splitlines() if line.startswith("validation"))


def test_doctor_is_well_here_and_says_1_when_something_is_broken(run, monkeypatch):
    status, out, err = run("doctor")
    assert (status, err) == (0, "")
    for word in ("numba", "threads", "BLAS", "cache", "smoke test", "netCDF", "all is well"):
        assert word in out
    monkeypatch.setenv("MEANFIELD_CACHE", "unused")
    monkeypatch.setattr("meanfield.load", lambda path: 1 / 0)
    status, out, err = run("doctor")
    assert status == 1
    assert "BROKEN: ZeroDivisionError" in out
    one_line(err)


def command(program: str, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **options)


def test_bug_39_a_closed_pipe_is_quiet():
    # the reader goes away before the first line is written
    program = ("import sys, time, meanfield.cli as c\n"
               "time.sleep(0.5)\n"
               "c.main(['--version'])\n")
    with command(program) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 1


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_bug_39_signals_end_a_run_without_leavings(tmp_path, number, status):
    # a shell that starts the tests in the background has its children ignore SIGINT: take the default back
    program = ("import signal, sys, time, types, meanfield.cli as c\n"
               "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
               "from meanfield.report import Workspace\n"
               "def reproduce(out, **_):\n"
               "    with Workspace(out) as folder:\n"
               "        (folder / 'half').touch()\n"
               "        print('begun', flush=True)\n"
               "        time.sleep(60)\n"
               "m = types.ModuleType('meanfield.experiments.reproduce'); m.reproduce = reproduce\n"
               "sys.modules[m.__name__] = m\n"
               "c.main(['reproduce', '--quick'])\n")
    process = command(program, cwd=tmp_path)
    assert process.stdout.readline() == "begun\n"
    assert len(list(tmp_path.iterdir())) == 1
    time.sleep(0.1)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_bug_24_provenance_of_any_type_is_valid_json(tmp_path):
    from enum import Enum

    import numpy as np

    from meanfield.report import write_report

    kind = Enum("kind", ["A"])
    with Workspace(tmp_path / "r") as folder:
        write_report(folder, "t", "l", [], {"seed": None, "adaptive": False, "kernel": {"type": "riesz", "s": np.int64(1)},
                                            "bounds": (0, 1), "flag": np.bool_(True), "enum": kind.A, "path": Path("p"),
                                            "array": np.arange(2), "inf": -np.inf})
    found = json.loads((tmp_path / "r" / "report.json").read_text(), parse_constant=pytest.fail)["provenance"]
    assert found == {"seed": None, "adaptive": False, "kernel": {"type": "riesz", "s": 1}, "bounds": [0, 1], "flag": True,
                     "enum": "kind.A", "path": "p", "array": [0, 1], "inf": "-Infinity"}
