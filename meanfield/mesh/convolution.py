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
    *rows, length = [fft.next_fast_len(2 * m - 1, real=a == len(shape) - 1) for a, m in enumerate(shape)]
    sizes = [*rows, length]
    ring = np.zeros(sizes)
    offsets = [np.minimum(np.arange(n), n - np.arange(n)) for n in sizes]
    inside = np.ix_(*[o < m for o, m in zip(offsets, shape, strict=True)])
    ring[inside] = weights[np.ix_(*[o[o < m] for o, m in zip(offsets, shape, strict=True)])]
    # even weights have a real transform
    spectrum = np.ascontiguousarray(fft.rfftn(ring).real)

    def convolve(rho: Array) -> Array:
        # the padding of the other axes is zero on the way there and not wanted on the way back: their lines along the last
        # axis are never transformed (a quarter to a third of the time in 2-D)
        wave = fft.rfft(rho, length)
        for axis, n in enumerate(rows):
            wave = fft.fft(wave, n, axis=axis, overwrite_x=True)
        wave *= spectrum
        for axis in range(len(rows)):
            wave = fft.ifft(wave, axis=axis, overwrite_x=True)[(slice(None),) * axis + (slice(shape[axis]),)]
        product: Array = fft.irfft(wave, length, overwrite_x=True)[..., :shape[-1]]
        return product

    return convolve
