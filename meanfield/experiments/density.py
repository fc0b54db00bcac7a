"""Chapter 1: particles meet their McKean-Vlasov density."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import meanfield as mf
from meanfield import plots
from meanfield.diagnostics.intervals import mean_interval
from meanfield.diagnostics.rates import Rate, fit_rate
from meanfield.experiments.context import Context
from meanfield.report import CheckResult, FigureRef, Section, Table

__all__ = ["CELLS", "log_gas", "particles_meet_density"]

SIZES = {100: 64, 400: 24, 1600: 10}  # particles: runs, so that each size takes a like share of the time
T_END, DT, CELLS = 0.5, 1e-3, 400


def log_gas(beta: float) -> mf.Problem:
    """The log gas on [0, 1] without a potential, strength 1."""
    return mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), beta)


def particles_meet_density(context: Context) -> Section:
    """W_1 between particles and density over time, for growing N, at two temperatures."""
    checks: list[CheckResult] = []
    figures: list[FigureRef] = []
    rows: list[tuple[str, ...]] = []
    curves = Figure(figsize=(6.8, 3.0))
    fits = Figure(figsize=(6.8, 3.0))
    for column, (beta, left, right) in enumerate(
        zip((1.0, 10.0), curves.subplots(1, 2, sharey=True), fits.subplots(1, 2, sharey=True), strict=True)
    ):
        problem = log_gas(beta)
        flow = mf.solve(problem, mf.Grid(CELLS), t_end=T_END, progress=context.progress)
        context.keep(f"log-gas-beta{beta:g}-density", flow)
        distances: dict[str, xr.DataArray] = {}
        for n, runs in SIZES.items():
            run = mf.simulate(
                problem,
                n_particles=n,
                dt=DT,
                t_end=T_END,
                n_runs=runs,
                scheme="reflected",
                save_every=25,
                seed=context.seed,
                threads=context.threads,
                progress=context.progress,
            )
            distances[f"N = {n}"] = mf.wasserstein(run, flow, order=1)
            if n == 400:
                context.keep(f"log-gas-beta{beta:g}-particles", run)
                density = Figure(figsize=(6.8, 3.0))
                times = [0.0, 0.05, T_END]
                plots.density_with_particles(run, flow, times, density.subplots(1, 3, sharey=True))
                stem = f"particles-density-beta{beta:g}"
                context.figure(stem, density)
                figures.append(
                    FigureRef(
                        stem,
                        f"Histograms of particles against the density at three times, beta = {beta:g}",
                        f"Log gas on [0, 1], beta = {beta:g}: {runs} runs of N = {n} particles (bars) and "
                        "the density of solve (line).",
                    )
                )
        sizes = np.array(list(SIZES))
        estimates = [mean_interval(d.isel(time=-1).values) for d in distances.values()]
        rate = fit_rate(sizes, np.array([e.mean for e in estimates]), np.array([e.stderr for e in estimates]))
        checks += _rate_checks(beta, rate, estimates[-1].mean)
        plots.distance_over_time(distances, left)
        left.set_title(f"beta = {beta:g}")
        plots.convergence(sizes, [e.mean for e in estimates], [e.stderr for e in estimates], rate, right)
        right.set_title(f"beta = {beta:g}, t = {T_END:g}")
        rows += [
            (f"{beta:g}", f"{n}", f"{SIZES[n]}", f"{e.mean:.5f}", f"{e.low:.5f} .. {e.high:.5f}")
            for n, e in zip(SIZES, estimates, strict=True)
        ]
        if column:
            rows.append(_projection_row(context, problem, flow))
    context.figure("distance-over-time", curves)
    context.figure("rate-in-n", fits)
    figures += [
        FigureRef(
            "distance-over-time",
            "W1 between particles and density against time for three N and two temperatures",
            "W_1(mu^N_t, rho_t): mean over runs with its 95 % band. The start is N independent uniform points; "
            "repulsion then evens them out, and the distance falls.",
        ),
        FigureRef(
            "rate-in-n",
            "W1 at the last time against N on logarithmic axes with fitted slopes",
            "W_1 at t = 0.5 against N with standard errors and the fitted rate; the thin line has slope -1/2.",
        ),
    ]
    return Section(
        "Particles meet their density",
        (
            "The empirical measure of N interacting particles approaches the McKean-Vlasov density as N grows "
            "(method.md 7.2). Here the interaction is logarithmic, unsoftened, and there is no potential.",
            "Particles use the reflected scheme. The last row of the table is the paper's projected scheme: its atom at the "
            "walls, of order sqrt(dt), stays however many particles there are (weak order 1/2).",
        ),
        tuple(checks),
        tuple(figures),
        (
            Table(
                "W_1 between particles and density at t = 0.5, mean over runs with 95 % interval",
                ("beta", "N", "runs", "W_1", "95 % interval"),
                tuple(rows),
            ),
        ),
    )


def _rate_checks(beta: float, rate: Rate, last: float) -> list[CheckResult]:
    interval = (rate.slope - 1.96 * rate.stderr, rate.slope + 1.96 * rate.stderr)
    return [
        CheckResult(
            f"W_1 between particles and density falls with N (log gas, beta = {beta:g})",
            "method.md (7.2)",
            rate.slope,
            "below 0",
            "the 95 % interval of the slope is below 0",
            interval[1] < 0,
            interval,
            f"slope over N = 100, 400, 1600, standard error {rate.stderr:.3f}; W_1 = {last:.4f} at N = 1600",
        ),
        CheckResult(
            f"the rate in one dimension is -1/2 (log gas, beta = {beta:g})",
            "method.md 7.2, Fournier-Guillin",
            rate.slope,
            -0.5,
            "4 standard errors",
            abs(rate.slope + 0.5) < 4 * rate.stderr,
            interval,
        ),
    ]


def _projection_row(context: Context, problem: mf.Problem, flow: xr.Dataset) -> tuple[str, ...]:
    run = mf.simulate(
        problem,
        n_particles=1600,
        dt=DT,
        t_end=T_END,
        n_runs=4,
        scheme="projected",
        save_every=500,
        seed=context.seed,
        threads=context.threads,
        progress=context.progress,
    )
    e = mean_interval(mf.wasserstein(run, flow).isel(time=-1).values)
    return (f"{problem.inverse_temperature:g}, projected", "1600", "4", f"{e.mean:.5f}", f"{e.low:.5f} .. {e.high:.5f}")
