"""Seconds of the first call of each kind of kernel in a fresh process: with an empty cache, then with the warm one.

    python bench/first_call.py [--out first_call.json] [--only NAME]

Each case runs in two processes of its own that share a new MEANFIELD_CACHE. "import" is the CPU time of importing the
package and what the case needs; the others are the call itself on one thread; targets: below 3 s cold and 0.3 s warm (CPU).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import report

COLD, WARM = 3.0, 0.3
_SUM = """
from meanfield.pairsum import PairSum
x = np.random.default_rng(0).uniform(0.1, 0.9, (1, {n}, {dim}))
terms = [{interaction}]
def call():
    plan = PairSum.plan(terms, [0.0], n_particles={n}, dim={dim}, method="{method}", period={period})
    plan.add_forces(x, np.zeros_like(x))
"""


def pair_sum(interaction: str, dim: int, n: int = 200, method: str = "direct", period: object = None) -> str:
    return _SUM.format(interaction=interaction, dim=dim, n=n, method=method, period=period)


CASES = {
    **{f"direct d={dim} s={s:g}": pair_sum(f"mf.Riesz({s})", dim)
       for dim, s in ((1, 0.0), (2, 0.0), (3, 1.0), (8, 6.0), (1, -1.0), (2, 1.37), (3, 1.37), (8, 1.37))},
    "direct, matrix products d=32 s=0": pair_sum("mf.Riesz(0.0)", 32, 2_000),
    "direct, very close points": pair_sum("mf.Riesz(0.0)", 2).replace("terms =", "x *= 1e-30\nterms ="),
    **{f"periodic d={dim} s={s:g}": pair_sum(f"mf.Riesz({s})", dim, period=1.0) for dim, s in ((1, 0.0), (2, 1.37))},
    **{f"Gaussian d={dim}": pair_sum("mf.GaussianPair(1.0, 0.1)", dim) for dim in (1, 2)},
    "line multipole s=0": pair_sum("mf.Riesz(0.0)", 1, 2_000, "multipole"),
    "line multipole s=0.5": pair_sum("mf.Riesz(0.5)", 1, 2_000, "multipole"),
    "plane multipole": pair_sum("mf.Riesz(0.0)", 2, 4_000, "multipole"),
    "sorted sums": pair_sum("mf.Riesz(-1.0)", 1, 200, "sorted"),
    "energy d=2 s=0": """
problem = mf.Problem(mf.Box([0.0, 0.0], [1.0, 1.0]), mf.Zero(), mf.Log(1.0), 1.0)
x = np.random.default_rng(0).uniform(size=(50, 2))
call = lambda: mf.hamiltonian(problem, x)
""",
    "noise and a step": """
problem = mf.Problem(mf.Box([0.0, 0.0], [1.0, 1.0]), mf.Quadratic(), mf.NoInteraction(), 1.0)
call = lambda: mf.simulate(problem, n_particles=50, dt=0.01, t_end=0.02)
""",
    "solve (flux)": """
problem = mf.Problem(mf.Interval(-1.0, 1.0), mf.Quadratic(), mf.Log(1.0), 1.0)
call = lambda: mf.solve(problem, mf.Grid(50), t_end=0.02)
""",
    "transport on the line": """
from meanfield.diagnostics.transport import atoms, transport_1d
a, b = np.random.default_rng(0).uniform(size=(2, 100))
call = lambda: transport_1d(atoms(a), atoms(b[:70]))
""",
}

_TEMPLATE = """
import json, time
start = time.process_time(), time.perf_counter()
import numpy as np
import meanfield as mf
from meanfield._numba import with_threads
{setup}
imported = time.process_time(), time.perf_counter()
with with_threads(1):
    call()
first = time.process_time(), time.perf_counter()
print(json.dumps({{"import": imported[0] - start[0], "cpu": first[0] - imported[0], "wall": first[1] - imported[1]}}))
"""


def measure(setup: str, cache: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", _TEMPLATE.format(setup=setup)], capture_output=True, text=True,
                          env=os.environ | {"MEANFIELD_CACHE": cache})
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", help="cases whose name contains this")
    arguments = parser.parse_args()
    rows = []
    for name, setup in CASES.items():
        if arguments.only and arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as cache:
            cold, warm = measure(setup, cache), measure(setup, cache)
        verdict = "met" if cold["cpu"] <= COLD and warm["cpu"] <= WARM else "MISSED"
        print(f"{name:34} cold {cold['cpu']:6.2f} s (wall {cold['wall']:6.2f})  warm {warm['cpu']:5.2f} s (wall "
              f"{warm['wall']:5.2f})  import {warm['import']:.2f} s  {verdict}", flush=True)
        rows.append({"case": name, "cold": cold, "warm": warm})
    report(arguments.out, rows=rows, targets={"cold": COLD, "warm": WARM})


if __name__ == "__main__":
    main()
