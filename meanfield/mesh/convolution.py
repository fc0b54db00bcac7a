"""g * rho on equal cells, by FFT: (g * rho)_i = sum_j weight_{|i-j|} rho_j, the transform of the weights kept.

The weights are the exact double averages of g over two cells, times the cells' volume: second order for densities that are
smooth, and finite for singular g (method.md 7.4).
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from meanfield._checks import Array
from meanfield.mesh.base import Convolution

__all__ = ["toeplitz"]


def toeplitz(weights: Array) -> Convolution:
    """Convolution on a box of cells with walls; ``weights`` over offsets 0 .. cells - 1 along each axis, even in each."""
    shape = weights.shape
    sizes = [fft.next_fast_len(2 * m - 1, real=True) for m in shape]
    ring = np.zeros(sizes)
    offsets = [np.minimum(np.arange(n), n - np.arange(n)) for n in sizes]
    inside = np.ix_(*[o < m for o, m in zip(offsets, shape, strict=True)])
    ring[inside] = weights[np.ix_(*[o[o < m] for o, m in zip(offsets, shape, strict=True)])]
    spectrum = fft.rfftn(ring)
    keep = tuple(slice(m) for m in shape)

    def convolve(rho: Array) -> Array:
        product: Array = fft.irfftn(fft.rfftn(rho, sizes) * spectrum, sizes)[keep]
        return product

    return convolve
