"""Chapter 1, continued: the density keeps its structure, and the numbers their bits."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys

import numpy as np
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.special import gammaln

import meanfield as mf
from meanfield import plots
from meanfield.experiments.context import Context
from meanfield.experiments.density import CELLS, log_gas
from meanfield.report import CheckResult, FigureRef, Section, Table

__all__ = ["equilibrium", "moments", "same_bits"]

_RUNS = 60  # of the exact moments


def exact_free_energy(beta: float) -> float:
    """inf F_beta of the log gas on [0, 1] with V = 0: the limit of Selberg's integral (method.md 7.6)."""
    value, _ = quad(lambda u: 3 * gammaln(1 + beta * u / 2) - gammaln(2 + beta * (1 + u) / 2), 0, 1, epsabs=1e-13)
    return -float(value) / beta


def equilibrium(context: Context) -> Section:
    """Free energy along the flow and at rest, with grid refinement."""
    checks: list[CheckResult] = []
    rows: list[tuple[str, ...]] = []
    decay = Figure(figsize=(6.8, 3.0))
    fine = Figure(figsize=(6.8, 3.0))
    for beta, printed, ax, axis in zip(
        (1.0, 10.0), (0.736900, 0.708436), decay.subplots(1, 2), fine.subplots(1, 2), strict=True
    ):
        problem, exact = log_gas(beta), exact_free_energy(beta)
        cells = np.array([250, 500, 1000, 2000])
        at_rest = [mf.gibbs(problem, mf.Grid(int(m))) for m in cells]
        values = np.array([float(g["free_energy"]) for g in at_rest])
        context.keep(f"log-gas-beta{beta:g}-gibbs", at_rest[-1])
        extrapolated = values[-1] + (values[-1] - values[-2]) / 3
        rows += [
            (f"{beta:g}", f"{m}", f"{v:.9f}", f"{v - exact:.2e}", f"{float(g['residual']):.1e}")
            for m, v, g in zip(cells, values, at_rest, strict=True)
        ]
        rows.append((f"{beta:g}", "extrapolated", f"{extrapolated:.9f}", f"{extrapolated - exact:.2e}", ""))
        rows.append((f"{beta:g}", "exact (Selberg)", f"{exact:.9f}", "0", ""))
        checks += [
            CheckResult(
                f"free energy at rest on 2000 cells, beta = {beta:g}",
                "method.md 7.5.5",
                round(values[-1], 6),
                printed,
                "equal to six digits",
                round(values[-1], 6) == printed,
            ),
            CheckResult(
                f"free energy at rest for ever finer grids: the limit of Selberg's integral, beta = {beta:g}",
                "method.md (7.6)",
                extrapolated,
                exact,
                3e-7,
                abs(extrapolated - exact) < 3e-7,
                note="extrapolated from 1000 and 2000 cells; to six digits the limit itself is "
                f"{exact:.6f}"
                + ("" if round(exact, 6) == printed else f", the printed {printed:.6f} is the value of 2000 cells"),
            ),
        ]
        flow = mf.solve(problem, mf.Grid(CELLS), t_end=2.0, initial=lambda x: 2 * x, progress=context.progress)
        context.keep(f"log-gas-beta{beta:g}-from-ramp", flow)
        f = flow["free_energy"].values
        checks += [
            CheckResult(
                f"the free energy never rises along solve (from 2x, beta = {beta:g})",
                "method.md (7.4)",
                float(np.diff(f).max()),
                "at most 0",
                1e-12,
                bool(np.diff(f).max() <= 1e-12),
            ),
            CheckResult(
                f"mass is kept along solve (beta = {beta:g})",
                "method.md (7.1)",
                float(np.abs(flow["mass"] - 1).max()),
                0.0,
                1e-12,
                bool(np.abs(flow["mass"] - 1).max() < 1e-12),
            ),
            CheckResult(
                f"the density of solve is never negative (beta = {beta:g})",
                "method.md 7.4",
                float(flow["min_density"].min()),
                "at least 0",
                0.0,
                bool((flow["min_density"] >= 0).all()),
            ),
        ]
        plots.free_energy_over_time(flow, ax, equilibrium=float(mf.gibbs(problem, mf.Grid(CELLS))["free_energy"]))
        ax.set_title(f"beta = {beta:g}")
        plots.refinement(cells, values, exact, axis)
        axis.set_title(f"beta = {beta:g}")
    context.figure("free-energy-decay", decay)
    context.figure("free-energy-refinement", fine)
    figures = [
        FigureRef(
            "free-energy-decay",
            "Free energy above its minimum against time, two temperatures",
            "F_beta(rho_t) above its value at rest on the same grid (log gas from rho_0 = 2x): it only falls.",
        ),
        FigureRef(
            "free-energy-refinement",
            "Error of the free energy at rest against the number of cells",
            "gibbs: error of the free energy against the exact limit for 250 to 2000 cells, with the fitted order.",
        ),
    ]
    return Section(
        "Free energy and equilibrium",
        (
            "The equation is the Wasserstein gradient flow of F_beta, so F_beta falls until the self-consistent "
            "Gibbs density is reached (method.md 7.3). For the log gas on [0, 1] the value there is known exactly.",
        ),
        tuple(checks),
        tuple(figures),
        (Table("Free energy of gibbs against the grid", ("beta", "cells", "F", "F - exact", "residual"), tuple(rows)),),
    )


def moments(context: Context) -> Section:
    """Quadratic potential and quadratic attraction: a Gaussian whose mean and variance are exact at all times."""
    a, kappa, beta, m0, s0, n = 1.0, 0.5, 2.0, 1.0, 0.25, 200
    problem = mf.Problem(mf.Interval(-6, 6), mf.Quadratic(a), mf.QuadraticPair(kappa), beta)
    flow = mf.solve(
        problem,
        mf.Grid(1500),
        t_end=2.0,
        progress=context.progress,
        initial=lambda x: np.exp(-((x - m0) ** 2) / (2 * s0)) / math.sqrt(2 * math.pi * s0),
    )
    start = m0 + math.sqrt(s0) * np.random.default_rng(context.seed).standard_normal((_RUNS, n, 1))
    run = mf.simulate(
        problem,
        n_particles=n,
        dt=4e-3,
        t_end=2.0,
        n_runs=_RUNS,
        initial=start,
        save_every=50,
        seed=context.seed,
        threads=context.threads,
        progress=context.progress,
    )
    h, t = 12 / 1500, flow["time"].values
    mean = (flow["density"] * flow["x"]).sum("x") * h
    variance = ((flow["density"] * flow["x"] ** 2).sum("x") * h - mean**2).values

    def exact(at: np.ndarray) -> np.ndarray:
        rest = 1 / (beta * (a + kappa))
        return np.asarray(rest + (s0 - rest) * np.exp(-2 * (a + kappa) * at))

    x = run["position"].values[..., 0]
    # unbiased for the variance of the limit up to 1/N: the centre of mass is that of the run
    spread = x.var(axis=2, ddof=1)
    z = [
        (v.mean() - exact(np.array(u))) / (v.std(ddof=1) / math.sqrt(len(v)))
        for u, v in zip(run["time"].values, spread.T, strict=True)
    ]
    figure = Figure(figsize=(4.5, 3.0))
    ax = figure.subplots()
    plots.curve_with_points(
        t,
        variance,
        run["time"].values,
        spread.mean(axis=0),
        spread.std(axis=0, ddof=1) / math.sqrt(_RUNS),
        ax,
        exact=exact(t),
        ylabel="variance (length^2)",
    )
    context.figure("variance", figure)
    worst = float(np.abs(variance - exact(t)).max())
    return Section(
        "Exact moments",
        (
            "With a quadratic potential and quadratic attraction the density stays Gaussian, and its variance "
            "follows sigma^2 = s + (s_0 - s) exp(-2 (a + kappa) t), s = 1 / (beta (a + kappa)) (Dawson 1983).",
        ),
        (
            CheckResult(
                "the variance of solve follows its exact curve",
                "Dawson 1983",
                worst,
                0.0,
                1e-4,
                worst < 1e-4,
                note="largest error over 101 times in [0, 2], 1500 cells",
            ),
            CheckResult(
                "the variance of the particles follows it",
                "Dawson 1983",
                float(np.abs(z).max()),
                "|z| below 5",
                "5 standard errors",
                bool(np.abs(z).max() < 5),
                note=f"largest |z| over {len(z)} times, {_RUNS} runs of N = {n}; time step and 1/N biases included",
            ),
        ),
        (
            FigureRef(
                "variance",
                "Variance of the density and of the particles against time, with the exact curve",
                "Variance against time: solve, particles (standard errors are smaller than the marks) and the exact curve.",
            ),
        ),
    )


def same_bits(context: Context) -> Section:
    """The same numbers for 1 and 2 threads and in another process."""
    program = (
        "import hashlib, sys, meanfield as mf\n"
        "p = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)\n"
        f"r = mf.simulate(p, n_particles=500, dt=1e-3, t_end=0.05, n_runs=4, seed={context.seed}, "
        "threads=int(sys.argv[1]))\n"
        "f = mf.solve(p, mf.Grid(200), t_end=0.05)\n"
        "w = mf.wasserstein(r, f)\n"
        "print(hashlib.sha256(r['position'].values.tobytes() + f['density'].values.tobytes() + "
        "w.values.tobytes()).hexdigest())\n"
    )
    digests = {
        f"{threads} thread(s), a process of its own": subprocess.run(
            [sys.executable, "-c", program, str(threads)], capture_output=True, text=True, check=True
        ).stdout
        for threads in (1, 2)
    }
    problem = log_gas(10.0)
    run = mf.simulate(problem, n_particles=500, dt=1e-3, t_end=0.05, n_runs=4, seed=context.seed)
    flow = mf.solve(problem, mf.Grid(200), t_end=0.05)
    digests["all threads, this process"] = hashlib.sha256(
        run["position"].values.tobytes() + flow["density"].values.tobytes() + mf.wasserstein(run, flow).values.tobytes()
    ).hexdigest()
    same = len({d.strip() for d in digests.values()}) == 1
    return Section(
        "The same bits",
        (
            "A number is a function of the problem, the arguments and the seed. Digests of positions, "
            "densities and distances, computed anew:",
        ),
        (
            CheckResult(
                "simulate, solve and wasserstein give the same bits for 1 and 2 threads and in two processes",
                "design",
                "equal" if same else "different",
                "equal",
                "bit for bit",
                same,
            ),
        ),
        tables=(Table("SHA-256", ("where", "digest"), tuple((k, v.strip()[:32]) for k, v in digests.items())),),
    )
