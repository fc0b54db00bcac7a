"""Real powers without a call to libm: loops around ``power`` vectorise (about ten times ``**``)."""

from __future__ import annotations

import math

import numpy as np

from meanfield._numba import bits_to_float, float_to_bits, njit

__all__ = ["power"]

_SQRT_HALF = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
# Taylor coefficients of log2((1 + u) / (1 - u)) in odd powers of u, |u| < 0.1716: the tenth term is below 2^-56
_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7, _A8, _A9 = (2.0 / (math.log(2.0) * (2 * k + 1)) for k in range(10))
# and of 2^f, |f| <= 1/2: the thirteenth is below 2^-56
_E1, _E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12 = (
    math.log(2.0) ** k / math.factorial(k) for k in range(1, 13))


@njit(inline=True)
def power(q, exponent):  # type: ignore[no-untyped-def]
    """q^exponent for normal q > 0 and a normal result; relative error about 2^-53 (4 + |exponent log2 q|)."""
    bits = float_to_bits(q)
    whole = (bits - _SQRT_HALF) >> 52
    mantissa = bits_to_float(bits - (whole << 52))  # in [sqrt(1/2), sqrt(2))
    u = (mantissa - 1.0) / (mantissa + 1.0)
    z = u * u
    series = _A0 + z * (_A1 + z * (_A2 + z * (_A3 + z * (_A4 + z * (_A5 + z * (_A6 + z * (_A7 + z * (_A8 + z * _A9))))))))
    t = exponent * (np.float64(whole) + u * series)
    n = np.rint(t)
    f = t - n
    tail = _E7 + f * (_E8 + f * (_E9 + f * (_E10 + f * (_E11 + f * _E12))))
    h = 1.0 + f * (_E1 + f * (_E2 + f * (_E3 + f * (_E4 + f * (_E5 + f * (_E6 + f * tail))))))
    return bits_to_float(float_to_bits(h) + (np.int64(n) << 52))  # type: ignore[arg-type]
