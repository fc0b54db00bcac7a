"""The only place that says ``njit``: options and why, the cache, the threads.

fastmath: ``reassoc``, ``contract``, ``arcp`` and ``nsz`` let LLVM vectorise sums and divisions. Never ``nnan`` or
``ninf``: with them the compiler deletes the NaN guards (numba issue 2919).
error_model "numpy": the Python model puts a ZeroDivisionError branch into every division and the loop no longer
vectorises (measured: 0.66 against 2.6 billion pairs a second).

Cache: Numba's own index only looks at the file of the function itself, so editing a callee in another file would leave
stale machine code. Ours is keyed by one digest of every source that can be compiled, and it lives in the user's cache
(a read-only install works) or, where that cannot be written, in a temporary folder.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import caching
from numba.extending import intrinsic
from threadpoolctl import ThreadpoolController

from meanfield import _checks

__all__ = ["bits_to_float", "cache_folder", "float_to_bits", "njit", "one_blas_thread", "prange", "thread_count",
           "wide_vectors", "with_threads"]

prange = numba.prange
_FASTMATH = {"reassoc", "contract", "arcp", "nsz"}


@functools.cache
def _source_digest() -> str:
    """Digest of all sources that may be compiled into a kernel."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in (Path(__file__), here / "_rng.py", *sorted((here / "kernels").glob("*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def cache_folder() -> Path:
    """Where compiled kernels are kept: MEANFIELD_CACHE, else the user's cache, else a temporary folder."""
    named = os.environ.get("MEANFIELD_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    # expanduser leaves "~" standing when there is no home; such a path must not be made in the working folder
    home = os.path.expanduser("~")
    user = Path(base) if base else Path(home) / ".cache" if os.path.isabs(home) else None
    wanted = [Path(named)] if named else [user / "meanfield"] if user else []
    for folder in wanted:
        try:
            (folder / "numba").mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder / "numba").close()
        except OSError:
            continue
        return folder
    uid = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"meanfield-{uid}"
    (folder / "numba").mkdir(parents=True, exist_ok=True)
    return folder


class _Locator(caching._CacheLocator):  # type: ignore[misc]
    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        self._py_file = py_file
        self._lineno = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder() / "numba" / f"{_source_digest()}-{numba.__version__}")

    def get_source_stamp(self) -> str:
        return _source_digest()

    def get_disambiguator(self) -> str:
        return f"{Path(self._py_file).stem}{self._lineno}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        self = cls(py_func, py_file)
        self.ensure_cache_path()
        return self


class _CacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl


def njit(*, parallel: bool = False, inline: bool = False, part: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with the package's options; plain Python under NUMBA_DISABLE_JIT=1.

    ``part=True`` is for functions with float arithmetic that other compiled functions call: LLVM then always puts them into
    their callers. A call that stays a call goes to whichever copy of the function the process met first, and copies differ
    in their last bits, so that a number would depend on whether the cache was warm (seen). ``inline=True`` does the same
    before types are known, for the smallest ones.
    """

    def wrap(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(parallel=parallel, fastmath=_FASTMATH, error_model="numpy",
                              inline="always" if inline else "never", forceinline=part, nogil=True)(function)
        if not numba.config.DISABLE_JIT:
            compiled._cache = _Cache(function)
        return compiled

    return wrap


def thread_count(requested: int | None) -> int:
    """The number of threads a call will use: ``requested``, or all that Numba was started with."""
    if requested is None:
        return int(numba.config.NUMBA_NUM_THREADS)
    return min(_checks.count("threads", requested), int(numba.config.NUMBA_NUM_THREADS))


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # scanning the loaded libraries takes milliseconds: once


_lock = threading.Lock()
_users: list[object] = []
_limits: list[Any] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """One BLAS thread inside: a product split over more rounds differently, so numbers would depend on the machine.

    The limit belongs to the process, so nested and concurrent users count: the first sets it, the last lifts it.
    """
    me = object()
    with _lock:
        if not _users:
            _limits.append(_blas().limit(limits=1, user_api="blas"))
        _users.append(me)
    try:
        yield
    finally:
        with _lock:
            _users.remove(me)
            if not _users:
                _limits.pop().restore_original_limits()


@contextmanager
def with_threads(requested: int | None = None) -> Iterator[None]:
    """Run a block with that many Numba threads and one BLAS thread, and give back the caller's settings."""
    before = numba.get_num_threads()
    numba.set_num_threads(thread_count(requested))
    try:
        with one_blas_thread():
            yield
    finally:
        numba.set_num_threads(before)


if numba.config.DISABLE_JIT:

    def wide_vectors() -> None:
        """Nothing to do for the interpreter."""

    def float_to_bits(x: Any) -> Any:
        """The 64 bits of a float as an integer."""
        return np.float64(x).view(np.int64)

    def bits_to_float(i: Any) -> Any:
        """The float with these 64 bits."""
        return np.int64(i).view(np.float64)

else:

    @intrinsic
    def wide_vectors(context):  # type: ignore[no-untyped-def]
        """Inside a kernel: prefer 512-bit vectors there (LLVM prefers 256 on CPUs that have both; measured 1.5x)."""

        def codegen(target, builder, signature, arguments):  # type: ignore[no-untyped-def]
            # llvmlite knows no attributes with values; its set of names is written out as it is
            set.add(builder.function.attributes, '"prefer-vector-width"="512"')
            set.add(builder.function.attributes, '"min-legal-vector-width"="512"')
            return target.get_dummy_value()

        return numba.types.void(), codegen

    @intrinsic
    def float_to_bits(context, x):  # type: ignore[no-untyped-def]
        """The 64 bits of a float as an integer."""
        return numba.types.int64(numba.types.float64), lambda target, builder, signature, arguments: builder.bitcast(
            arguments[0], ir.IntType(64))

    @intrinsic
    def bits_to_float(context, i):  # type: ignore[no-untyped-def]
        """The float with these 64 bits."""
        return numba.types.float64(numba.types.int64), lambda target, builder, signature, arguments: builder.bitcast(
            arguments[0], ir.DoubleType())
