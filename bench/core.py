"""Time-step bias of an unsoftened log gas with colliding particles, with the pair core and without (decision 0002).

    python bench/core.py            # about five minutes on two cores

Exact value: N m2 of the log gas in a quadratic trap is a CIR process, E m2(t) = m + (m2(0) - m) exp(-2 t) with
m = 1 / beta + 1/2 - 1 / (2 N).
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import meanfield as mf
from meanfield import forces, schemes
from meanfield.diagnostics.intervals import mean_interval


def second_moment(dt: float, runs: int, literal: bool) -> np.ndarray:
    n, beta = 10, 2.0
    start = np.linspace(-1, 1, n)[:, None]
    start *= math.sqrt(2.0 / np.mean(start**2))
    problem = mf.Problem(mf.Interval(-30, 30), mf.Quadratic(), mf.Log((n - 1) / n), beta)
    core, unstable = forces.core_radius, schemes.refuse_unstable
    if literal:  # the letter of Algorithm 1: no core, and whatever it throws out is projected
        forces.core_radius = lambda law, n_particles, dt: 0.0
        schemes.refuse_unstable = lambda *arguments: None
    try:
        run = mf.simulate(problem, n_particles=n, dt=dt, t_end=0.5, n_runs=runs, initial=start, save_every=10**6)
    finally:
        forces.core_radius, schemes.refuse_unstable = core, unstable
    return np.square(run["position"].values[:, -1, :, 0]).mean(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40_000)
    arguments = parser.parse_args()
    rest = 0.5 + 0.5 - 1 / 20
    exact = rest + (2.0 - rest) * math.exp(-1.0)
    print(f"exact {exact:.6f}")
    for literal in (False, True):
        for dt in (4e-3, 2e-3, 1e-3, 5e-4):
            e = mean_interval(second_moment(dt, arguments.runs, literal))
            name = "literal" if literal else "core"
            print(f"{name:8} dt {dt:.0e}  error {e.mean - exact:+.5f} +- {e.stderr:.5f}", flush=True)


if __name__ == "__main__":
    main()
