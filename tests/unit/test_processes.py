"""BUG-23: several Python threads, spawned workers, and a fork after threads were used; each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = '''
import multiprocessing, sys, threading
import numpy as np
import meanfield as mf

problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)

def sweep(seed):
    return mf.simulate(problem, n_particles=500, dt=1e-4, t_end=1e-3, seed=seed)["position"].values

if __name__ == "__main__":
    expected = [sweep(seed) for seed in range(4)]
    if sys.argv[1] == "threads":
        found = [None] * 4
        workers = [threading.Thread(target=lambda i=i: found.__setitem__(i, sweep(i))) for i in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    else:
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            try:
                found = pool.map(sweep, range(4))
            except RuntimeError as error:
                print("refused:", error)
                sys.exit(0)
    print("equal" if all(np.array_equal(a, b) for a, b in zip(expected, found)) else "different")
'''


def outcome(tmp_path, how, layer):
    program = tmp_path / "sweep.py"
    program.write_text(PROGRAM)
    environment = os.environ | ({"NUMBA_THREADING_LAYER": layer} if layer else {})
    done = subprocess.run([sys.executable, str(program), how], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("how", "layer"), [pytest.param("threads", "", marks=pytest.mark.full), ("threads", "workqueue"),
                                           ("spawn", "")])
def test_bug_23_concurrent_callers_finish_with_equal_results(tmp_path, how, layer):
    assert outcome(tmp_path, how, layer) == "equal"


def test_bug_23_fork_after_threads_works_or_is_refused_with_the_cure(tmp_path):
    """GNU OpenMP would kill the children and the pool would wait for ever; other layers can fork."""
    said = outcome(tmp_path, "fork", "")
    assert said == "equal" or (said.startswith("refused: compiled threads cannot run in a process forked after")
                               and "get_context('spawn')" in said)


@pytest.mark.full
def test_bug_23_fork_under_workqueue_works(tmp_path):
    assert outcome(tmp_path, "fork", "workqueue") == "equal"
