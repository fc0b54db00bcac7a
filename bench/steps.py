"""Steps of ``simulate`` against a plain Numba loop, JAX and OpenMM (where installed), and against the force alone.

    python bench/steps.py [--out steps.json] [--quick]

CPU time on one thread, medians over interleaved rounds. N = 2,000 in the plane, logarithmic repulsion, quadratic trap:
1,000 steps through the public ``simulate`` (noise, checks and saved states included); peers run 10 to 30 steps of the same
equation and are extrapolated per step. OpenMM's Reference platform moves in space: a stiff spring holds it to the plane.
"force" is the pair sum alone, at the same positions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers import jax_forces, naive_log
from timing import medians, one_thread, report

import meanfield as mf
from meanfield._numba import with_threads
from meanfield.pairsum import PairSum

N, DT = 2_000, 1e-4
Call = Callable[[], object]


def problem(dim: int, strength: float = 1.0) -> mf.Problem:
    return mf.Problem(mf.FreeSpace(dim), mf.Quadratic(), mf.Log(strength), 4.0)


def steps(n: int, dim: int, count: int, runs: int = 1) -> Call:
    """``count`` steps from uniform positions in the cube of side 2."""
    x = np.random.default_rng(n).uniform(-1, 1, (runs, n, dim))
    return lambda: mf.simulate(problem(dim), n_particles=n, dt=DT, t_end=count * DT, n_runs=runs, initial=x, threads=1)


def force(n: int, dim: int, runs: int = 1) -> Call:
    """The pair sum of those positions."""
    x = np.random.default_rng(n).uniform(-1, 1, (runs, n, dim))
    plan = PairSum.plan(problem(dim).interactions, [1e-6], n_particles=n, dim=dim)
    out = np.zeros_like(x)
    return lambda: plan.add_forces(x, out)


def naive(x: np.ndarray, count: int) -> Call:
    f, sigma = np.empty_like(x), math.sqrt(2 * DT / 4)
    rng = np.random.default_rng(0)

    def call() -> None:
        y = x
        for _ in range(count):
            naive_log(y, len(y), f)
            y = y + DT * (f / (len(y) - 1) - y) + sigma * rng.standard_normal(y.shape)

    return call


def by_jax(x: np.ndarray, count: int) -> Call:
    import jax

    forces, sigma = jax_forces(0.0), math.sqrt(2 * DT / 4)

    @jax.jit
    def run(start, key):  # type: ignore[no-untyped-def]
        def one(y, key):  # type: ignore[no-untyped-def]
            f = forces(y, y)
            noise = jax.random.normal(key, (2, len(x)), dtype="float64")
            return tuple(a + DT * (b / (len(x) - 1) - a) + sigma * w for a, b, w in zip(y, f, noise, strict=True)), None

        return jax.lax.scan(one, start, jax.random.split(key, count))[0]

    start = tuple(jax.numpy.asarray(column) for column in x.T)
    return lambda: jax.block_until_ready(run(start, jax.random.key(0)))


def by_openmm(x: np.ndarray, count: int) -> Call:
    """Brownian dynamics with mobility 1: friction times mass is 1; kT = 1 / beta."""
    import openmm
    from openmm import unit

    n = len(x)
    system = openmm.System()
    pair = openmm.CustomNonbondedForce(f"-log(r)/{n - 1}")
    pair.setNonbondedMethod(openmm.CustomNonbondedForce.NoCutoff)
    trap = openmm.CustomExternalForce("0.5*(x*x+y*y)+0.5*1000*z*z")
    for k in range(n):
        system.addParticle(1.0)
        pair.addParticle([])
        trap.addParticle(k, [])
    system.addForce(pair)
    system.addForce(trap)
    temperature = 0.25 / unit.MOLAR_GAS_CONSTANT_R.value_in_unit(unit.kilojoule_per_mole / unit.kelvin)
    integrator = openmm.BrownianIntegrator(temperature, 1.0, DT)
    context = openmm.Context(system, integrator, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(np.column_stack([x, np.zeros(n)]))

    def call() -> None:
        context.getIntegrator()  # the context must outlive this function
        integrator.step(count)

    return call


def against_peers(repeats: int) -> dict[str, object]:
    x = np.random.default_rng(N).uniform(-1, 1, (N, 2))
    counts, calls = {"meanfield": 1_000}, {"meanfield": steps(N, 2, 1_000)}
    for name, build, count in (("naive numba", naive, 30), ("jax", by_jax, 30), ("openmm", by_openmm, 10)):
        try:
            calls[name], counts[name] = build(x, count), count
        except ImportError:
            continue
    seconds = {name: value / counts[name] for name, value in medians(calls, repeats).items()}
    ratios = {name: value / seconds["meanfield"] for name, value in seconds.items() if name != "meanfield"}
    wanted = {"naive numba": 7, "jax": 12, "openmm": 35}
    print(f"N = {N}, plane: {1 / seconds['meanfield']:.0f} steps/s")
    for name, ratio in ratios.items():
        verdict = "met" if ratio >= wanted[name] else "MISSED"
        print(f"    {name:12} {ratio:6.1f}x  target {wanted[name]}: {verdict}", flush=True)
    return {"n": N, "dim": 2, "seconds_per_step": seconds, "ratios": ratios, "targets": wanted}


def overhead(repeats: int) -> list[dict[str, object]]:
    """A step over its force: no more than 1.3 for one large run."""
    rows: list[dict[str, object]] = []
    for n, dim, count in ((2_000, 2, 100), (10_000, 2, 10), (100_000, 1, 10), (100_000, 2, 5)):
        one = force(n, dim)

        def forces(one: Call = one, count: int = count) -> None:
            for _ in range(count):
                one()

        seconds = medians({"steps": steps(n, dim, count), "force": forces, "start": steps(n, dim, 1)}, repeats)
        # what a call costs once is the cost of one step more than a step
        step = (seconds["steps"] - seconds["start"]) / (count - 1)
        ratio = step / (seconds["force"] / count)
        verdict = "met" if ratio <= 1.3 else "MISSED"
        print(f"N = {n:<7} {dim}-D: a step costs {ratio:.2f} forces  target 1.3: {verdict}", flush=True)
        rows.append({"n": n, "dim": dim, "ratio": ratio, "step_seconds": step, "force_seconds": seconds["force"] / count})
    return rows


def small_runs(repeats: int) -> dict[str, float]:
    """Cost a pair of the forces, and of the steps, of 10,000 runs of 16 against one run of 10,000."""
    found = {}
    for what, many, one, pairs in (
            ("force", force(16, 2, 10_000), force(10_000, 2), 1),
            ("step", steps(16, 2, 10, 10_000), steps(10_000, 2, 10), 10)):
        seconds = medians({"many": many, "one": one}, repeats)
        found[what] = (seconds["many"] / (pairs * 10_000 * 16 * 15)) / (seconds["one"] / (pairs * 10_000 * 9_999))
        print(f"10,000 runs of N = 16: a pair of the {what} costs {found[what]:.2f} times one of N = 10,000  target 1.5: "
              f"{'met' if found[what] <= 1.5 else 'MISSED'}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    arguments = parser.parse_args()
    one_thread()
    repeats = 3 if arguments.quick else 7
    with with_threads(1):
        report(arguments.out, peers=against_peers(repeats), overhead=overhead(repeats), small_runs=small_runs(repeats))


if __name__ == "__main__":
    main()
