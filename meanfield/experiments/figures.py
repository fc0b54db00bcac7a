"""The standing figures: ``meanfield figures [NAME]`` makes them, each with a JSON file of its numbers beside it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy.optimize import brentq
from scipy.special import ive

import meanfield as mf
from meanfield import plots
from meanfield._checks import Array
from meanfield.dataset import versions
from meanfield.experiments.gallery import CASES, Measured, measure, order_parameter
from meanfield.plots.style import BLACK, BLUE, COLOURS, SKY, VERMILION, dress, legend

__all__ = ["FIGURES", "make_figures"]

Numbers = dict[str, Any]


def make_figures(out: Path, names: Sequence[str] = (), *, quick: bool = False, seed: int = 0, threads: int | None = None,
                 progress: bool = False) -> list[Path]:
    """Draw the named figures (default: all) into ``out``: PNG, SVG and JSON each. Returns the PNG files.

    ``quick`` takes fewer particles. Raises ValueError for a name that is not in ``FIGURES``.
    """
    unknown = [n for n in names if n not in FIGURES]
    if unknown:
        raise ValueError(f"no figure is called {unknown[0]!r}; there are {', '.join(FIGURES)}")
    out.mkdir(parents=True, exist_ok=True)
    made = []
    for name in names or FIGURES:
        command = f"meanfield figures {name}" + (" --quick" if quick else "") + (f" --seed {seed}" if seed else "")
        begun = time.perf_counter()
        figure, numbers = FIGURES[name](quick, seed, threads, progress)
        plots.save(figure, out, name, command)
        record = {"command": command, "seed": seed, "versions": versions(), "seconds": round(time.perf_counter() - begun, 1),
                  **numbers}
        (out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        made.append(out / f"{name}.png")
    return made


def _log_gas(quick: bool, seed: int, threads: int | None, progress: bool) -> tuple[Figure, Numbers]:
    """Two bumps of a log gas on an interval merge: density and particles over time."""
    case = CASES["interval"]
    found = measure(case, 2000 if quick else 100_000, seed=seed, threads=threads, progress=progress)
    figure = Figure(figsize=(6.8, 4.6))
    top, bottom = figure.subfigures(2, 1, squeeze=False)[:, 0]
    plots.density_with_particles(found.run, found.flow, case.times, top.subplots(1, len(case.times), sharey=True), bins=60)
    left, right = bottom.subplots(1, 2)
    flow = mf.solve(case.problem, case.grid, t_end=case.times[-1], initial=found.flow["density"].values[0])
    plots.spacetime(flow, left, run=mf.simulate(
        case.problem, n_particles=40, dt=case.dt, t_end=case.times[-1], scheme="reflected", save_every=10, seed=seed,
        initial=mf.sample_density(case.problem, flow.isel(time=0), 40, seed=seed)))
    plots.free_energy_over_time(flow, right, equilibrium=float(mf.gibbs(case.problem, case.grid)["free_energy"]),
                                dissipation=True)
    return figure, _numbers(found)


def _disc(quick: bool, seed: int, threads: int | None, progress: bool) -> tuple[Figure, Numbers]:
    """A log gas spreads in a disc and leans to one side."""
    case = CASES["disc"]
    found = measure(case, 2000 if quick else 100_000, seed=seed, threads=threads, progress=progress)
    figure = Figure(figsize=(6.8, 5.4))
    for ax, t in zip(figure.subplots(2, 2).ravel(), case.times, strict=True):
        plots.density_image(found.flow, ax, time=t, run=found.run)
    return figure, _numbers(found)


def _kuramoto(quick: bool, seed: int, threads: int | None, progress: bool) -> tuple[Figure, Numbers]:
    """The noisy Kuramoto model through its transition at K = 2 / beta."""
    # Euler's bias at rest is about 0.35 dt at K = 4; near K = 2 the last half of the time is not quite rest
    n, runs, t_end, dt = (1000, 2, 10.0, 0.01) if quick else (10_000, 4, 30.0, 0.005)
    couplings = np.array([1.0, 1.5, 2.0, 2.25, 2.5, 3.0, 4.0])
    figure = Figure(figsize=(6.8, 3.0))
    left, right = figure.subplots(1, 2)
    dress(left)
    dress(right)
    rows = []
    for number, coupling in enumerate(couplings):
        problem = mf.Problem(mf.Torus(2 * math.pi, 1), mf.Zero(), mf.CosinePair(float(coupling)), 1.0)
        flow = mf.solve(problem, mf.Grid(200), t_end=t_end, initial=lambda x: (1 + 0.1 * np.cos(x - 2)) / (2 * math.pi))
        start = mf.sample_density(problem, flow.isel(time=0), runs * n, seed=seed + number).reshape(runs, n, 1)
        run = mf.simulate(problem, n_particles=n, n_runs=runs, dt=dt, t_end=t_end, initial=start, seed=seed + number,
                          save_every=round(0.5 / dt), threads=threads, progress=progress)
        of_density, of_particles = _order_of_density(flow), order_parameter(run)
        exact = _exact_order(float(coupling))
        late = of_particles.isel(time=slice(of_particles.sizes["time"] // 2, None)).mean("time").values
        rows.append({"K": float(coupling), "exact": exact, "solve": float(of_density[-1]), "particles": float(late.mean()),
                     "stderr": float(late.std(ddof=1) / math.sqrt(runs))})
        if coupling in (1.0, 2.0, 2.5, 4.0):
            colour = COLOURS[number % len(COLOURS)]
            left.plot(flow["time"], of_density, color=colour, label=f"K = {coupling:g}")
            left.plot(run["time"], of_particles.isel(run=0), ".", color=colour, markersize=3)
    left.set(xlabel="time t (time)", ylabel="order parameter r", ylim=(0, 1))
    legend(left, title="line: density; dots: one run", loc=(0.42, 0.14))
    fine = np.linspace(1.0, 4.0, 301)
    right.plot(fine, [_exact_order(float(k)) for k in fine], color=BLACK, linewidth=1, label="exact: $I_1/I_0$")
    right.plot([r["K"] for r in rows], [r["solve"] for r in rows], "s", color=BLUE, markersize=5, fillstyle="none",
               label=f"density, t = {t_end:g}")
    right.errorbar([r["K"] for r in rows], [r["particles"] for r in rows], yerr=[r["stderr"] for r in rows], fmt="o",
                   color=VERMILION, markersize=3, capsize=2, label=f"{runs} runs, N = {n:,}")
    right.axvline(2.0, color=SKY, linewidth=1, linestyle=":")
    right.set(xlabel=r"coupling K (with $\beta$ = 1)", ylabel=f"mean r from t = {t_end / 2:g} to {t_end:g}", ylim=(-0.03, 1))
    legend(right, loc="lower right")
    return figure, {"beta": 1.0, "n_particles": n, "runs": runs, "t_end": t_end, "dt": dt, "rows": rows}


def _order_of_density(flow: xr.Dataset) -> Array:
    wave = np.exp(1j * flow["x"].values)
    size: Array = np.abs(flow["density"].values @ wave) / flow["density"].values.sum(axis=1)
    return size


def _exact_order(coupling: float) -> float:
    """r = I_1(K r) / I_0(K r) at beta = 1, the positive root where there is one (Sakaguchi 1988)."""
    if coupling <= 2.0:
        return 0.0
    return float(brentq(lambda r: ive(1, coupling * r) / ive(0, coupling * r) - r, 1e-6, 1.0))


def _geometries(quick: bool, seed: int, threads: int | None, progress: bool) -> tuple[Figure, Numbers]:
    """W_1 between particles and density in every geometry, against the floor that independent points set."""
    n = 2000 if quick else 100_000
    figure = Figure(figsize=(6.8, 4.2))
    axes = figure.subplots(2, 4).ravel()
    numbers: Numbers = {"n_particles": n, "cases": {}}
    for ax, (name, case) in zip(axes, CASES.items(), strict=True):
        # every pair of the space is summed: fewer particles in the quick form only
        found = measure(case, n, seed=seed, threads=threads, progress=progress)
        dress(ax)
        places = np.arange(len(case.times))
        ax.fill_between(places, 1e3 * (found.floor - 2 * found.spread), 1e3 * (found.floor + 2 * found.spread), color=SKY,
                        alpha=0.5, linewidth=0, label="independent points: mean ± 2 standard deviations")
        ax.plot(places, 1e3 * found.distance, "o", color=VERMILION, markersize=4, label="particles")
        ax.set_xticks(places, [f"{t:g}" for t in case.times])
        ax.set_title(case.title, fontsize=7.5)
        ax.set_xlabel("time t (time)")
        ax.set_ylim(0, None)
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("distance ($10^{-3}$ length)")
        numbers["cases"][name] = _numbers(found)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure, numbers


def _numbers(found: Measured) -> Numbers:
    return {"times": [float(t) for t in found.flow["time"].values], "distance": found.distance.tolist(),
            "floor": found.floor.tolist(), "floor_stddev": found.spread.tolist(), "excess": found.excess.tolist()}


FIGURES: dict[str, Callable[[bool, int, int | None, bool], tuple[Figure, Numbers]]] = {
    "log-gas-over-time": _log_gas,
    "disc-over-time": _disc,
    "kuramoto-transition": _kuramoto,
    "particles-at-the-floor": _geometries,
}
