"""The kernel that a law of frequencies makes: of particles, or of the density that they tend to."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield.learning.alignment import KernelAlignment

__all__ = ["feature_kernel"]

_BLOCK = 1 << 20  # elements of one block of frequencies times samples


def feature_kernel(alignment: KernelAlignment, measure: xr.Dataset | xr.DataArray, inputs: Any = None) -> xr.DataArray:
    """K_mu(x, x') = int phi_w(x) phi_w(x') mu(dw) = int cos(w (x - x')) mu(dw), averaged over the phases (method.md 3.3).

    Args:
        alignment: the potential whose features these are.
        measure: a Dataset of ``simulate``, for the particles' mu^N, or one of ``solve``, ``gibbs`` or ``stationary_states``
            on equal cells of a line or a plane; or its ``position`` or ``density``.
        inputs: x (sample, component); default the inputs of the alignment.

    Returns the kernel over (..., sample, other), with the run, time or state of the measure. By the law of large numbers
    K_{mu^N} tends to K_rho as N grows, with a standard deviation of at most 1 / sqrt(N) for independent particles.
    Raises ValueError for shapes that do not fit, and for phases that belong to particles.

    Source: method.md (3.1), (3.3); Rahimi and Recht (2007).
    """
    if alignment.phases is not None:
        raise ValueError("feature_kernel averages over the phases, got an alignment whose phases belong to particles")
    if isinstance(measure, xr.Dataset):
        measure = measure["position" if "position" in measure else "density"]
    x = alignment.X if inputs is None else _checks.finite_array("inputs", inputs, ndim=2)
    dim = alignment.X.shape[1]
    frequencies: Array
    weights: Array
    cells = [d for d in ("x", "y") if d in measure.dims]
    if "particle" in measure.dims:
        frequencies = measure.transpose(..., "particle", "component").values
        weights = np.full(frequencies.shape[:-1], 1.0 / frequencies.shape[-2])
        lead = [d for d in measure.dims if d not in ("particle", "component")]
    elif cells and not {"r", "angle"} & set(measure.dims):
        flat = measure.transpose(..., *cells)
        lead = [d for d in measure.dims if d not in cells]
        masses = flat.values.reshape(*flat.shape[: len(lead)], -1)
        weights = masses / masses.sum(axis=-1, keepdims=True)
        axes = np.meshgrid(*[measure[d].values for d in cells], indexing="ij")
        frequencies = np.broadcast_to(np.stack([a.ravel() for a in axes], axis=-1), (*weights.shape, len(cells)))
    else:
        raise ValueError(f"measure must have particles, or a density over x or (x, y), got dims {measure.dims}")
    if x.shape[1] != dim or frequencies.shape[-1] != dim:
        raise ValueError(f"frequencies and inputs must have the {dim} components of the alignment's X, got "
                         f"{frequencies.shape[-1]} and {x.shape[1]}")
    shape = tuple(measure.sizes[d] for d in lead)
    rows = zip(frequencies.reshape(-1, *frequencies.shape[-2:]), weights.reshape(-1, weights.shape[-1]), strict=True)
    values = np.array([_kernel(w, p, x) for w, p in rows]).reshape(*shape, len(x), len(x))
    coords = {d: measure[d] for d in lead if d in measure.coords}
    return xr.DataArray(values, dims=(*lead, "sample", "other"), coords=coords, name="feature_kernel",
                        attrs={"long_name": "kernel K_mu(x, x') of the features", "units": "1"})


def _kernel(frequencies: Array, weights: Array, x: Array) -> Array:
    total = np.zeros((len(x), len(x)))
    step = max(1, _BLOCK // len(x))
    for start in range(0, len(weights), step):
        angle = frequencies[start:start + step] @ x.T
        root = np.sqrt(weights[start:start + step])[:, None]
        for part in (root * np.cos(angle), root * np.sin(angle)):
            total += part.T @ part
    return total
