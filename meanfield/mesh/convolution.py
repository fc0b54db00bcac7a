"""g * rho on equal cells, by FFT: (g * rho)_i = sum_j weight_{i-j} rho_j, the transform of the weights kept.

The weights are the exact double averages of g over two cells, times the cells' volume: second order for densities that are
smooth, and finite for singular g (method.md 7.4). A pair energy is even, g(d) = g(-d), so the transform of the weights is
real.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from meanfield._checks import Array
from meanfield.mesh.base import Convolution

__all__ = ["circulant", "toeplitz"]


def toeplitz(weights: Array) -> Convolution:
    """Convolution on a box of cells with walls; ``weights`` over offsets -(cells - 1) .. cells - 1 along each axis."""
    shape = tuple((n + 1) // 2 for n in weights.shape)
    sizes = tuple(fft.next_fast_len(n, real=True) for n in weights.shape)
    ring = np.zeros(sizes)
    ring[np.ix_(*[np.arange(1 - m, m) % n for m, n in zip(shape, sizes, strict=True)])] = weights
    return _by_spectrum(ring, shape)


def circulant(weights: Array) -> Convolution:
    """Convolution on a torus; ``weights`` over offsets 0 .. cells - 1 along each axis."""
    return _by_spectrum(weights, weights.shape)


def _by_spectrum(ring: Array, shape: tuple[int, ...]) -> Convolution:
    spectrum = np.ascontiguousarray(fft.rfftn(ring).real)
    *others, last = range(ring.ndim)
    sizes = ring.shape

    def convolve(rho: Array) -> Array:
        # axis by axis: rows of padding are never transformed (a quarter of the work in the plane)
        modes = fft.rfft(rho, sizes[last], axis=last)
        for a in others:
            modes = fft.fft(modes, sizes[a], axis=a, overwrite_x=True)
        modes *= spectrum
        for a in others:
            modes = fft.ifft(modes, axis=a, overwrite_x=True)[(slice(None),) * a + (slice(shape[a]),)]
        product: Array = fft.irfft(modes, sizes[last], axis=last)[..., :shape[last]]
        return np.ascontiguousarray(product)

    return convolve
