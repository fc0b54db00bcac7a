"""Particles, densities, distances and rates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator
from scipy.special import stdtrit

from meanfield import _checks
from meanfield._checks import Array
from meanfield.diagnostics.rates import Rate, fit_rate
from meanfield.plots.style import BLACK, BLUE, GREY, SKY, SMALL, TEXT, VERMILION, dress, label_y, legend

__all__ = ["at_time", "cell_edges", "convergence", "curve_with_points", "density_with_particles", "distance_over_time",
           "free_energy_over_time", "refinement", "spacetime"]


def density_with_particles(run: xr.Dataset, flow: xr.Dataset, times: Sequence[float], axes: Any, *,
                           bins: int = 40) -> None:
    """Histogram of the particles of all runs (bars) and rho_t (line), one Axes for each of ``times``.

    The bins divide the density's domain; a particle on either wall counts. Raises ValueError for particles outside it
    and for a time further from a saved one than half a saving interval.
    """
    panels = _axes(axes)
    if len(panels) != len(times):
        raise ValueError(f"axes must be as many as times, got {len(panels)} and {len(times)}")
    low, high = _domain(flow)
    edges = np.linspace(low, high, _checks.count("bins", bins) + 1)
    for ax, time in zip(panels, times, strict=True):
        dress(ax)
        x = at_time(run, time)["position"].values
        if x.shape[-1] != 1:
            raise ValueError(f"position must have one component for a histogram, got {x.shape[-1]}")
        x, slack = x.ravel(), 1e-9 * (high - low)  # walls computed from cell centres are off by round-off
        if x.min() < low - slack or x.max() > high + slack:
            raise ValueError(f"particles must lie in the density's domain [{low:g}, {high:g}], "
                             f"got {x.min():g} .. {x.max():g}")
        counts, _ = np.histogram(np.clip(x, low, high), edges)
        ax.stairs(counts / (x.size * np.diff(edges)), edges, fill=True, color=SKY, alpha=0.55, label="particles")
        ax.plot(flow["x"], at_time(flow, time)["density"], color=BLUE, label="density")
        ax.set(title=f"t = {time:g}", xlabel="position x (length)", xlim=(low, high))
        ax.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        label_y(ax, "density (1 / length)")
    for ax in panels:  # after all: a limit set on one of shared Axes would cut off what the next one draws
        ax.set_ylim(bottom=0)
    legend(panels[0])


def spacetime(flow: xr.Dataset, ax: Axes, *, run: xr.Dataset | None = None, n_paths: int = 20) -> None:
    """The density over (time, x) with its colour bar; ``run`` adds the paths of its first particles.

    Colours end at the 99th percentile (an arrow on the bar shows it), or a narrow start would leave the rest pale.
    """
    dress(ax, grid=False)
    time, x, density = flow["time"].values, flow["x"].values, flow["density"].values
    top, largest = float(np.quantile(density, 0.99)), float(density.max())
    cut = largest > 1.05 * top > 0
    # rasterized: 400 x 100 cells are one picture in an SVG, not 40,000 paths
    image = ax.pcolormesh(cell_edges(time), cell_edges(x), density.T, cmap="Blues", vmin=0, vmax=top if cut else largest,
                          rasterized=True)
    bar = ax.figure.colorbar(image, ax=ax, extend="max" if cut else "neither")
    bar.set_label("density (1 / length)", fontsize=TEXT)
    bar.ax.tick_params(labelsize=SMALL)
    if run is not None:
        paths = run["position"].isel(run=0, component=0).transpose("time", "particle").values
        ax.plot(run["time"], paths[:, : _checks.count("n_paths", n_paths)], color=VERMILION, linewidth=0.6, alpha=0.8)
    ax.set(xlabel="time t (time)", ylabel="position x (length)", xlim=(time[0], time[-1]), ylim=_domain(flow))


def convergence(n_particles: Any, error: Any, stderr: Any, rate: Rate, ax: Axes, label: str = "measured", *,
                ylabel: str = "distance $W_1$ (length)") -> None:
    """Error against N on logarithmic axes with standard errors, the fitted line and a reference of slope -1/2."""
    n, e, s = (_checks.finite_array(name, v, ndim=1) for name, v in
               (("n_particles", n_particles), ("error", error), ("stderr", stderr)))
    dress(ax)
    ax.set(xscale="log", yscale="log", xlabel="number of particles N")
    label_y(ax, ylabel)
    points = ax.errorbar(n, e, yerr=s, fmt="o", markersize=4, capsize=2.5,
                         label=f"{label}: slope {_minus(rate.slope)} ± {rate.stderr:.3f}")
    ends = np.array([n.min(), n.max()])
    ax.plot(ends, np.exp(rate.intercept) * ends**rate.slope, color=points[0].get_color())
    if all(line.get_gid() != "reference" for line in ax.lines):
        ax.plot(ends, 0.8 * e[np.argmin(n)] * (ends / ends[0]) ** -0.5, color=GREY, linestyle=":", linewidth=1,
                label="slope −1/2", gid="reference")
    _ticks_at(ax, n)
    legend(ax, title="bars: 1 standard error")


def distance_over_time(distances: Mapping[str, xr.DataArray], ax: Axes) -> None:
    """Distances over (run, time): mean over runs and its 95 % Student band; logarithmic where all is positive."""
    dress(ax)
    orders = {f"{d.attrs['order']:g}" if "order" in d.attrs else "p" for d in distances.values()}
    order = orders.pop() if len(orders) == 1 else "p"
    positive = all(bool((d > 0).all()) for d in distances.values())
    for label, distance in distances.items():
        values = (distance if "run" in distance.dims else distance.expand_dims("run")).transpose("run", "time").values
        mean, runs = values.mean(axis=0), values.shape[0]
        (line,) = ax.plot(distance["time"], mean, label=label)
        if runs > 1:
            half = float(stdtrit(runs - 1, 0.975)) * values.std(axis=0, ddof=1) / math.sqrt(runs)
            # on a logarithmic axis a band that reaches 0 ends at the smallest distance seen
            low = np.maximum(mean - half, values.min()) if positive else mean - half
            ax.fill_between(distance["time"], low, mean + half, color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set(xlabel="time t (time)", yscale="log" if positive else "linear")
    label_y(ax, f"distance $W_{{{order}}}$ (length)")
    legend(ax)


def free_energy_over_time(flow: xr.Dataset, ax: Axes, equilibrium: float | None = None, *,
                          dissipation: bool = False) -> None:
    """F_beta along the flow: above ``equilibrium`` on a logarithmic axis (its positive part), or as it is.

    ``dissipation=True`` adds D = -dF/dt, on the same axis.
    """
    dress(ax)
    time, free_energy = flow["time"].values, flow["free_energy"].values
    gap = free_energy if equilibrium is None else free_energy - equilibrium
    shown = np.isfinite(gap) if equilibrium is None else gap > 0
    ax.plot(time[shown], gap[shown], color=BLUE,
            label="free energy F" if equilibrium is None else "free energy above equilibrium")
    # all of the time, also where the gap has reached round-off and the line ends
    ax.set_xlim(time[0], time[-1])
    ax.set(xlabel="time t (time)", ylabel="F (energy)" if equilibrium is None else "F - F at rest (energy)")
    if equilibrium is not None:
        ax.set_yscale("log")
    if dissipation:
        rate = flow["dissipation"].values
        kept = np.isfinite(rate) & ((rate > 0) | (equilibrium is None))
        ax.plot(time[kept], rate[kept], color=VERMILION, linestyle="--", label="dissipation D = -dF/dt")
        ax.set_ylabel("energy; energy / time")
        if ax.get_yscale() == "log":  # room for the legend: both curves begin at the top
            low, high = ax.get_ylim()
            ax.set_ylim(low, high * (high / low) ** 0.3)
        legend(ax)


def refinement(cells: Any, values: Any, exact: float, ax: Axes) -> None:
    """|F_M - F| against the number of cells M on logarithmic axes, with the fitted order (three errors > 0 or more)."""
    m, f = _checks.finite_array("cells", cells, ndim=1), _checks.finite_array("values", values, ndim=1)
    error = np.abs(f - exact)
    m, error = m[error > 0], error[error > 0]
    dress(ax)
    ax.set(xscale="log", yscale="log", xlabel="number of cells M", ylabel="error $|F_M - F|$ (energy)")
    ax.plot(m, error, "o", color=BLUE, markersize=4, label="gibbs")
    if m.size >= 3:
        rate = fit_rate(m, error)
        ax.plot(m, np.exp(rate.intercept) * m**rate.slope, color=BLUE, linewidth=1,
                label=f"order {-rate.slope:.3f} ± {rate.stderr:.3f}")
    _ticks_at(ax, m)
    legend(ax)


def curve_with_points(time: Any, curve: Any, times: Any, mean: Any, stderr: Any, ax: Axes, *, exact: Any = None,
                      ylabel: str = "value") -> None:
    """A quantity of ``solve`` (line) and of particles (points with standard errors); ``exact`` over ``time`` too."""
    dress(ax)
    ax.plot(time, curve, color=BLUE, label="density")
    if exact is not None:
        ax.plot(time, exact, color=BLACK, linestyle="--", linewidth=1, label="exact")
    ax.errorbar(times, mean, yerr=stderr, fmt="o", markersize=3.5, capsize=2, color=VERMILION, label="particles")
    ax.set(xlabel="time t (time)", ylabel=ylabel)
    legend(ax)


def _axes(axes: Any) -> list[Axes]:
    if isinstance(axes, Iterable):
        return list(np.asarray(axes, dtype=object).ravel())
    return [axes]


def _ticks_at(ax: Axes, values: Array) -> None:
    """Few sizes are their own ticks: a logarithmic axis over one decade labels 10^2 and nothing else."""
    places = np.unique(values)
    if places.size <= 6:
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xticks(places, [f"{v:g}" for v in places])


def _minus(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def cell_edges(centres: Array) -> Array:
    """Edges around increasing cell centres, the ends by reflection."""
    inner = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - inner[0]], inner, [2 * centres[-1] - inner[-1]]])


def _domain(flow: xr.Dataset) -> tuple[float, float]:
    edges = cell_edges(flow["x"].values)
    return float(edges[0]), float(edges[-1])


def at_time(data: xr.Dataset, time: float) -> xr.Dataset:
    """The saved state nearest to a time, refused if that is further away than half a saving interval."""
    if "time" not in data.dims:
        return data
    saved = data["time"].values
    i = int(np.argmin(np.abs(saved - time)))
    interval = float(np.diff(saved).max()) if saved.size > 1 else 0.0
    if abs(saved[i] - time) > 0.5 * interval * (1 + 1e-9) + 1e-12:
        raise ValueError(f"time must be near a saved time, got {time:g}; the nearest is {saved[i]:g}")
    return data.isel(time=i)
