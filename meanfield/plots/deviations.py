"""Large deviations: the variational rate, particles with their errors, and what is exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from meanfield import _checks
from meanfield.plots.style import BLACK, BLUE, VERMILION, dress, label_y, legend

__all__ = ["rate"]


def rate(ax: Axes, variational: xr.Dataset | None = None, particles: xr.Dataset | Sequence[xr.Dataset] = (), *,
         exact: tuple[Any, Any] | None = None, xlabel: str = "value of the mean") -> None:
    """Rate against value: ``rate_function`` as a line, ``estimate_rate`` as points with 2 standard errors, one series for
    each Dataset, and ``exact`` (values, rates) dashed.

    Raises ValueError for Datasets without a rate over value.
    """
    several = [particles] if isinstance(particles, xr.Dataset) else list(particles)
    for given in (*([] if variational is None else [variational]), *several):
        if "rate" not in given or given["rate"].dims != ("value",):
            raise ValueError("a Dataset with rate over value is needed (of rate_function or estimate_rate), got "
                             f"{', '.join(map(str, given.data_vars)) or 'an empty one'}")
    dress(ax)
    if variational is not None:
        line = variational.sortby("value")
        line = line.isel(value=np.flatnonzero(np.isfinite(line["rate"].values)))
        ax.plot(line["value"], line["rate"], color=BLUE, label="variational, N → ∞")
    for i, points in enumerate(several):
        n = points.attrs.get("n_particles")
        ax.errorbar(points["value"], points["rate"], yerr=2.0 * points["rate_stderr"], fmt="os^Dv"[i % 5], markersize=4,
                    capsize=2.5, color=VERMILION if len(several) == 1 else None,
                    label="particles" if n is None else f"particles, N = {n}")
    if exact is not None:
        x, y = (_checks.finite_array("exact", e, ndim=1) for e in exact)
        ax.plot(x, y, color=BLACK, linestyle="--", linewidth=1, label="exact")
    ax.set(xlabel=xlabel)
    ax.set_ylim(bottom=0)
    label_y(ax, "rate $-\\log P\\, / N$")
    legend(ax, title="bars: 2 standard errors" if several else None)
