"""The same pair sums as others would write them, for the benches: plain Numba, SciPy, NumPy, JAX, PyKeOps.

Each builder takes positions (particle, component), s and a number of targets m, and returns a call that gives the forces
sum_l r_vec r^(-s-2) on the first m particles, shape (m, component). Missing packages are left out.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy.spatial.distance import cdist

__all__ = ["PEERS", "available", "jax_forces", "naive_log", "naive_power"]

Call = Callable[[], np.ndarray]
_ROWS = 100  # targets in a block of the pair matrix: 8 MB at 10,000 sources


def weight(q: Any, s: float, root: Callable[[Any], Any], out: Any = None) -> Any:
    """r^(-s-2) of q = r^2 without a general power where there is a cheaper way; in place for NumPy."""
    keywords = {} if out is None else {"out": out}
    if s == 0:
        return np.divide(1.0, q, **keywords) if keywords else 1.0 / q
    if s == 1:
        return np.divide(1.0, np.multiply(q, root(q), **keywords), **keywords) if keywords else 1.0 / (q * root(q))
    if s == 6:
        if keywords:
            return np.divide(1.0, np.square(np.square(q, **keywords), **keywords), **keywords)
        return 1.0 / ((q * q) * (q * q))
    return np.power(q, -0.5 * s - 1.0, **keywords) if keywords else q ** (-0.5 * s - 1.0)


@numba.njit(fastmath=True)
def naive_log(x, m, f):  # type: ignore[no-untyped-def]
    """The plain loop in the plane: (particle, component), a branch, a division, sums in the array of forces."""
    f[:] = 0.0
    for i in range(m):
        for j in range(x.shape[0]):
            if i != j:
                d0 = x[i, 0] - x[j, 0]
                d1 = x[i, 1] - x[j, 1]
                w = 1.0 / (d0 * d0 + d1 * d1)
                f[i, 0] += w * d0
                f[i, 1] += w * d1


@numba.njit(fastmath=True)
def tidy_log(x, m, f):  # type: ignore[no-untyped-def]
    """The same with the sums in local variables."""
    for i in range(m):
        f0 = f1 = 0.0
        for j in range(x.shape[0]):
            if i != j:
                d0 = x[i, 0] - x[j, 0]
                d1 = x[i, 1] - x[j, 1]
                w = 1.0 / (d0 * d0 + d1 * d1)
                f0 += w * d0
                f1 += w * d1
        f[i, 0] = f0
        f[i, 1] = f1


@numba.njit(fastmath=True)
def naive_power(x, m, power, f):  # type: ignore[no-untyped-def]
    """The plain loop with q ** power."""
    f[:] = 0.0
    for i in range(m):
        for j in range(x.shape[0]):
            if i != j:
                d0 = x[i, 0] - x[j, 0]
                d1 = x[i, 1] - x[j, 1]
                w = (d0 * d0 + d1 * d1) ** power
                f[i, 0] += w * d0
                f[i, 1] += w * d1


def naive(x: np.ndarray, s: float, m: int) -> Call | None:
    if x.shape[1] != 2:
        return None
    f = np.empty((m, 2))

    def call() -> np.ndarray:
        if s == 0:
            naive_log(x, m, f)
        else:
            naive_power(x, m, -0.5 * s - 1.0, f)
        return f

    return call


def tidy(x: np.ndarray, s: float, m: int) -> Call | None:
    f = np.empty((m, 2))

    def call() -> np.ndarray:
        tidy_log(x, m, f)
        return f

    return call if x.shape[1] == 2 and s == 0 else None


def _by_matrix(squares: Callable[[slice], np.ndarray], x: np.ndarray, s: float, m: int) -> Call:
    f = np.empty((m, x.shape[1]))

    def call() -> np.ndarray:
        for first in range(0, m, _ROWS):
            rows = slice(first, min(first + _ROWS, m))
            q = squares(rows)
            own = np.arange(rows.start, rows.stop)
            q[own - first, own] = 1.0
            w = weight(q, s, np.sqrt, q)
            w[own - first, own] = 0.0
            f[rows] = x[rows] * w.sum(axis=1, keepdims=True) - w @ x
        return f

    return call


def scipy_cdist(x: np.ndarray, s: float, m: int) -> Call:
    return _by_matrix(lambda rows: cdist(x[rows], x, "sqeuclidean"), x, s, m)


def numpy_product(x: np.ndarray, s: float, m: int) -> Call:
    """q = x^2 + y^2 - 2 x y: loses the digits of close pairs."""
    square = np.square(x).sum(axis=1)

    def squares(rows: slice) -> np.ndarray:
        q = x[rows] @ x.T
        q *= -2.0
        q += square
        q += square[rows, None]
        return q

    return _by_matrix(squares, x, s, m)


def jax_forces(s: float) -> Callable[[Any, Any], Any]:
    """Forces of sources (tuple of components) on targets, mapped over targets (broadcasting is slower)."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def forces(targets: Any, sources: Any) -> Any:
        def one(target: Any) -> Any:
            d = [a - b for a, b in zip(target, sources, strict=True)]
            q = sum(v * v for v in d)
            w = weight(jnp.where(q > 0, q, 1.0), s, jnp.sqrt)
            return tuple((w * v).sum() for v in d)

        return jax.lax.map(one, targets)

    return forces


def jax_soa(x: np.ndarray, s: float, m: int) -> Call:
    jax = importlib.import_module("jax")
    compiled = jax.jit(jax_forces(s))
    sources = tuple(jax.numpy.asarray(column) for column in x.T)
    targets = tuple(column[:m] for column in sources)
    return lambda: np.stack(jax.block_until_ready(compiled(targets, sources)), axis=1)


def pykeops(x: np.ndarray, s: float, m: int) -> Call:
    lazy = importlib.import_module("pykeops.numpy").LazyTensor
    d = lazy(x[:m, None, :]) - lazy(x[None, :, :])
    q = (d**2).sum(-1) + 1e-20  # a particle itself: finite times zero
    if s == 0:
        w = 1 / q
    elif s == 1:
        w = (q.rsqrt()) ** 3
    else:
        w = q ** (-0.5 * s - 1.0)
    return lambda: np.asarray((w * d).sum(axis=1))


PEERS: dict[str, tuple[str, Callable[[np.ndarray, float, int], Call | None]]] = {
    "naive numba": ("numba", naive), "tidy numba": ("numba", tidy), "cdist": ("scipy", scipy_cdist),
    "numpy product": ("numpy", numpy_product), "jax": ("jax", jax_soa), "pykeops": ("pykeops", pykeops)}


def available(name: str) -> bool:
    """Whether the package of a peer can be imported."""
    try:
        importlib.import_module(PEERS[name][0])
    except ImportError:
        return False
    return True
