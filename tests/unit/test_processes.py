"""BUG-23: several Python threads, spawned workers, and a fork after threads were used; each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = '''
import multiprocessing, sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import meanfield as mf
from meanfield._numba import active_threads

class Flat(mf.Potential):
    formula = "V = 0"
    threads = set()

    def value(self, positions):
        return np.zeros(positions.shape[:-1])

    def gradient(self, positions):
        Flat.threads.add(active_threads())
        return np.zeros(positions.shape)

problem = mf.Problem(mf.Interval(0, 1), Flat(), mf.Log(), 10.0)

def sweep(seed):
    return mf.simulate(problem, n_particles=500, dt=1e-4, t_end=1e-3, seed=seed)["position"].values, Flat.threads

if __name__ == "__main__":
    points = range(int(sys.argv[2]))
    expected = [sweep(seed)[0] for seed in points]
    Flat.threads.clear()
    if sys.argv[1] == "threads":
        found = list(ThreadPoolExecutor(4).map(sweep, points))
    else:
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            try:
                found = pool.map(sweep, points)
            except RuntimeError as error:
                print("refused:", error)
                sys.exit(0)
    print("equal" if all(np.array_equal(a, b) for a, (b, _) in zip(expected, found)) else "different",
          *set().union(*(threads for _, threads in found)))
'''


def outcome(tmp_path, how, layer, points=4):
    program = tmp_path / "sweep.py"
    program.write_text(PROGRAM)
    environment = os.environ | ({"NUMBA_THREADING_LAYER": layer} if layer else {})
    done = subprocess.run([sys.executable, str(program), how, str(points)], capture_output=True, text=True, timeout=120,
                          env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("how", "layer"), [pytest.param("threads", "", marks=pytest.mark.full), ("threads", "workqueue"),
                                           ("spawn", "")])
def test_bug_23_concurrent_callers_finish_with_equal_results(tmp_path, how, layer):
    """And workers take one thread each: whoever started them has the cores."""
    assert outcome(tmp_path, how, layer) == "equal 1"


@pytest.mark.full
@pytest.mark.parametrize("how", ["threads", "spawn"])
def test_bug_23_a_sweep_of_sixteen_points(tmp_path, how):
    assert outcome(tmp_path, how, "", 16) == "equal 1"


def test_bug_23_fork_after_threads_works_or_is_refused_with_the_cure(tmp_path):
    """GNU OpenMP would kill the children and the pool would wait for ever; other layers can fork."""
    said = outcome(tmp_path, "fork", "")
    assert said == "equal 1" or (said.startswith("refused: compiled threads cannot run in a process forked after")
                               and "get_context('spawn')" in said)


@pytest.mark.full
def test_bug_23_fork_under_workqueue_works(tmp_path):
    assert outcome(tmp_path, "fork", "workqueue") == "equal 1"
