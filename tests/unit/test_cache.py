"""The cache of compiled kernels (BUG-38): right after an edit, with nowhere to write, with many first compiles at once."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "meanfield"
PROGRAM = ("import numpy as np, meanfield as mf, meanfield._numba as n; "
           "flow = mf.solve(mf.Problem(mf.Interval(0, 1), inverse_temperature=3.0), mf.Grid(8), t_end=0.1, "
           "initial=lambda x: 2 * x); print(n.cache_folder()); print(flow['density'].values.tobytes().hex())")


def run(program=PROGRAM, path=PACKAGE.parent, **environment):
    own = {name: value for name, value in os.environ.items() if name != "MEANFIELD_CACHE"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=path,
                          env={**own, "PYTHONPATH": str(path), **environment})
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    return done.stdout.split()


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "site" / "meanfield", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "site"


def test_bug_38_editing_a_callee_is_seen(copy, tmp_path):
    cache = {"MEANFIELD_CACHE": str(tmp_path / "cache")}
    before = run(path=copy, **cache)
    assert run(path=copy, **cache) == before
    flux = copy / "meanfield" / "kernels" / "flux.py"
    source = flux.read_text()
    changed = source.replace("b = temperature * _bernoulli(", "b = 2.0 * temperature * _bernoulli(")
    assert changed != source
    flux.write_text(changed)
    assert run(path=copy, **cache)[1] != before[1]
    flux.write_text(source)
    assert run(path=copy, **cache) == before


def test_bug_38_read_only_install_without_a_home(copy):
    for folder in [copy, *[p for p in copy.rglob("*") if p.is_dir()]]:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        where, density = run(path=copy, HOME="/nonexistent", XDG_CACHE_HOME="", PYTHONDONTWRITEBYTECODE="1")
        assert "meanfield" in where
        assert density == run()[1]
    finally:
        for folder in [copy, *[p for p in copy.rglob("*") if p.is_dir()]]:
            folder.chmod(stat.S_IRWXU)


def start(cache, count):
    environment = {**os.environ, "MEANFIELD_CACHE": str(cache), "PYTHONPATH": str(PACKAGE.parent)}
    return [subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for _ in range(count)]


@pytest.mark.full
def test_bug_38_a_process_that_dies_while_compiling_leaves_a_cache_that_works(tmp_path):
    before = run(MEANFIELD_CACHE=str(tmp_path / "whole"))[1]
    for entries in (1, 3):
        cache = tmp_path / f"cache{entries}"
        job = start(cache, 1)[0]
        while len([*cache.rglob("*.nb*")]) < entries:
            assert job.poll() is None
            time.sleep(0.001)
        job.kill()
        job.communicate()
        assert run(MEANFIELD_CACHE=str(cache))[1] == before


@pytest.mark.parametrize("count", [4, pytest.param(9, marks=pytest.mark.full)])
def test_bug_38_first_compiles_at_once(tmp_path, count):
    jobs = start(tmp_path / "cache", count)
    jobs[0].kill()  # one of them dies in the middle
    outputs = [job.communicate() for job in jobs]
    assert [job.returncode for job in jobs[1:]] == [0] * (count - 1), [error for _, error in outputs]
    assert len({out for out, _ in outputs[1:]}) == 1
    assert run(MEANFIELD_CACHE=str(tmp_path / "cache"))[1] == outputs[1][0].split()[1]
