"""A plain 2-D box of cells made by hand, so that the time steps are tested on two axes without the package's own meshes."""

from __future__ import annotations

import numpy as np
from scipy.signal import fftconvolve

from meanfield.mesh import Mesh


def box(problem, cells, kernel=None, half=3.0):
    """Cells over [-half, half]^2; ``kernel`` takes the distance of two cells' centres (and 0.4 of a cell for itself)."""
    m, n = cells
    edges = [np.linspace(-half, half, k + 1) for k in cells]
    x, y = (0.5 * (e[1:] + e[:-1]) for e in edges)
    hx, hy = 2 * half / m, 2 * half / n
    conductances = np.full(cells, hy / hx), np.full(cells, hx / hy)
    conductances[0][-1], conductances[1][:, -1] = 0.0, 0.0
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    convolution = None
    if kernel is not None:
        r = np.hypot(hx * np.arange(1 - m, m)[:, None], hy * np.arange(1 - n, n))
        weights = kernel(np.maximum(r, 0.4 * np.sqrt(hx * hy))) * hx * hy

        def convolution(rho):
            return fftconvolve(rho, weights, mode="full")[m - 1:2 * m - 1, n - 1:2 * n - 1]

    return Mesh(problem=problem, names=("x", "y"), centers=(x, y), edges=tuple(edges), volumes=np.full(cells, hx * hy),
                conductances=conductances, potential=problem.potential_value(points), convolution=convolution)


def two_bumps(x, y):
    def gaussian(a, b):
        return np.exp(-((x - a) ** 2 + (y - b) ** 2) / 0.18) / (0.18 * np.pi)

    return 0.7 * gaussian(-1, 0) + 0.3 * gaussian(1, 0.5)
