"""Cast and check at the door: every public function calls these, the loops behind them never check again.

One message style: what was given and what is needed, in one sentence - "dt must be positive and finite, got -0.1".
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

__all__ = ["Array", "UnstableStepError", "choice", "count", "finite_array", "non_negative", "number", "positions",
           "positive", "seed_int"]


class UnstableStepError(ArithmeticError):
    """A step carried a particle further than the dynamics can mean.

    Attributes: ``step`` (index of the step that failed), ``time`` (at its start), ``run``, ``particle``.
    """

    def __init__(self, message: str, *, step: int, time: float, run: int, particle: int) -> None:
        super().__init__(message)
        self.step = step
        self.time = time
        self.run = run
        self.particle = particle

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_unstable, (self.args[0], self.step, self.time, self.run, self.particle)


def _rebuild_unstable(message: str, step: int, time: float, run: int, particle: int) -> UnstableStepError:
    return UnstableStepError(message, step=step, time=time, run=run, particle=particle)


def number(name: str, value: Any) -> float:
    """A finite real number (bool and strings are refused)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def positive(name: str, value: Any, *, infinite: bool = False) -> float:
    """A number > 0; ``infinite=True`` allows inf (an inverse temperature may be)."""
    bad = isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real)
    if bad or not value > 0 or (math.isinf(value) and not infinite):
        raise ValueError(f"{name} must be positive{'' if infinite else ' and finite'}, got {value!r}")
    return float(value)


def non_negative(name: str, value: Any) -> float:
    """A finite number >= 0."""
    bad = isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real)
    if bad or not value >= 0 or math.isinf(value):
        raise ValueError(f"{name} must be non-negative and finite, got {value!r}")
    return float(value)


def count(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number of at least ``least`` (1e3 is accepted, 1.5 and True are not)."""
    whole = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_)) and math.isfinite(value)
    if not whole or int(value) != value or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def seed_int(value: Any) -> int:
    """A non-negative integer seed of any size."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral) or value < 0:
        raise ValueError(f"seed must be a non-negative integer, got {value!r}")
    return int(value)


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    """One of the named options."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def finite_array(name: str, value: Any, *, ndim: int | None = None) -> Array:
    """A float64 C-ordered array without NaN or inf (complex, text and ragged input are refused)."""
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "fiu":
            raise TypeError
        array = np.ascontiguousarray(raw, dtype=np.float64).reshape(raw.shape)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers, got {type(value).__name__}") from None
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {array.shape}")
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")
    return array


def positions(name: str, value: Any, dim: int) -> Array:
    """Positions over (..., particle, component=dim), finite, at least one particle."""
    array = finite_array(name, value)
    if array.ndim < 2 or array.shape[-1] != dim or array.shape[-2] < 1:
        raise ValueError(f"{name} must have shape (..., particle, component={dim}), got {array.shape}")
    return array
