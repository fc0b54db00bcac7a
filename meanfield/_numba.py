"""The only place that says ``njit``: options and why, the cache, the threads.

fastmath: ``reassoc``, ``contract``, ``arcp`` and ``nsz`` let LLVM vectorise sums and divisions. Never ``nnan`` or
``ninf``: with them the compiler deletes the NaN guards (numba issue 2919).
error_model "numpy": the Python model puts a ZeroDivisionError branch into every division and the loop no longer
vectorises (measured: 0.66 against 2.6 billion pairs a second).

Cache: Numba's own index only looks at the file of the function itself, so editing a callee in another file would leave
stale machine code. Ours is keyed by one digest of every source that can be compiled, and it lives in the user's cache
(a read-only install works) or, where that cannot be written, in a temporary folder.

Threads: Python threads may call at the same time (Numba's "workqueue" layer would abort the process, so under it calls
take turns), and worker processes may be spawned. A call from a thread that is not the main one, or in a process that
``multiprocessing`` started, takes one thread unless it is told a number: whoever started the workers has the cores.
Fork is another matter: GNU OpenMP kills, or hangs, a child that was forked after its parent had used threads, so in such
a child ``with_threads`` raises instead.
"""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import caching, cgutils
from numba.extending import intrinsic
from threadpoolctl import ThreadpoolController

from meanfield import _checks

__all__ = ["Cache", "active_threads", "bits_to_float", "cache_folder", "call", "compiled", "fit_threads", "float_to_bits",
           "multiply_add", "njit", "one_blas_thread", "polynomial", "prange", "thread_count", "thread_id", "wide_vectors",
           "with_threads"]

compiled = not numba.config.DISABLE_JIT
prange = numba.prange
thread_id = numba.get_thread_id
_OPTIONS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "error_model": "numpy"}


@functools.cache
def _source_digest() -> str:
    """Digest of all sources that may be compiled into a kernel."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in (Path(__file__), here / "_tasks.py", here / "_rng.py", *sorted((here / "kernels").glob("*.py"))):
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
        name = "".join(c if c.isalnum() else "-" for c in Path(self._py_file).name.removesuffix(".py"))
        return f"{name}{self._lineno}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        self = cls(py_func, py_file)
        self.ensure_cache_path()
        return self


class _CacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class Cache(caching.FunctionCache):  # type: ignore[misc]
    _impl_class = _CacheImpl


def njit(*, parallel: bool = False, inline: bool = False, part: bool = False,
         cache: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` with the package's options; plain Python under NUMBA_DISABLE_JIT=1.

    ``part=True`` is for functions with float arithmetic that other compiled functions call: LLVM then always puts them into
    their callers. A call that stays a call goes to whichever copy of the function the process met first, and copies differ
    in their last bits, so that a number would depend on whether the cache was warm (seen). ``inline=True`` does the same
    before types are known, for the smallest ones; ``_tasks`` for those too large to be copied.
    ``cache=False`` is for a loop that takes a function of the user's: it would never be a cache hit, only fill the folder.
    """

    def wrap(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(parallel=parallel, inline="always" if inline else "never", forceinline=part, nogil=True,
                              **_OPTIONS)(function)
        if cache and not numba.config.DISABLE_JIT:
            compiled._cache = Cache(function)
        return compiled

    return wrap


if numba.config.DISABLE_JIT:

    def call(function: Any, arguments: tuple[Any, ...]) -> None:
        """Call a kernel."""
        function(*arguments)

    def wide_vectors() -> None:
        """Nothing to widen."""

    def multiply_add(a: float, b: float, c: float) -> float:
        """a b + c."""
        return a * b + c

    def polynomial(x: float, coefficients: tuple[float, ...]) -> float:
        """The polynomial with these coefficients, the highest power first."""
        value = coefficients[0]
        for c in coefficients[1:]:
            value = c + x * value
        return value

    def float_to_bits(x: float) -> int:
        """The float64 x read as an int64."""
        return int(struct.unpack("<q", struct.pack("<d", x))[0])

    def bits_to_float(i: int) -> float:
        """The int64 i read as a float64 (the low 64 bits of it, as a shift in a register would leave them)."""
        return float(struct.unpack("<d", struct.pack("<Q", int(i) & 0xFFFFFFFFFFFFFFFF))[0])

else:

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typingctx: Any, address: Any, arguments: Any) -> Any:
        """Call a kernel by its address, or a function of ``_tasks.alone`` by its symbol."""
        known = getattr(address, "function", None)
        wanted = [numba.int64 if isinstance(t, numba.types.Integer) else t for t in arguments.types]
        if known is not None:
            if len(wanted) != len(known.types) or any(isinstance(t, numba.types.Array) and (
                    (t.ndim, t.dtype, t.layout) != (k.ndim, k.dtype, k.layout)) for t, k in
                    zip(wanted, known.types, strict=False)):
                raise numba.TypingError(f"{known.symbol} wants {known.types}, got {arguments.types}")
            wanted = known.types

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = [builder.extract_value(args[1], i) for i in range(len(wanted))]
            given = [item[0] if isinstance(item[1], numba.types.Array) else context.cast(builder, *item)
                     for item in zip(given, arguments.types, wanted, strict=True)]
            function = ir.FunctionType(context.get_value_type(numba.types.none), [context.get_value_type(t) for t in wanted])
            builder.call(cgutils.get_or_insert_function(builder.module, function, known.symbol) if known is not None
                         else builder.inttoptr(args[0], function.as_pointer()), given)
            return context.get_dummy_value()

        return numba.types.void(address, arguments), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def wide_vectors(typingctx: Any) -> Any:
        """Let the calling function use 512-bit registers where there are any; LLVM prefers 256 bits on its own.

        Measured on the pair sum in the plane: 1.2 to 1.35 times faster. It also forbids inlining into a caller, which
        would drop the wish.
        """

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            for attribute in ('"prefer-vector-width"="512"', '"min-legal-vector-width"="512"'):
                # llvmlite has no public door for string attributes; its set takes only names that it knows
                set.add(builder.function.attributes, attribute)
            return context.get_dummy_value()

        return numba.types.void(), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def multiply_add(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
        """a b + c in one instruction where there is one.

        Where a product is used twice, LLVM computes it once and adds it twice: 53 operations a turn instead of 45 in the
        pair loop of the plane (measured: 4.5 against 4.9 billion pairs a second).
        """

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number = ir.DoubleType()
            kind = ir.FunctionType(number, [number] * 3)
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.f64")
            return builder.call(function, args, fastmath=sorted(_OPTIONS["fastmath"]))

        return numba.float64(numba.float64, numba.float64, numba.float64), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def polynomial(typingctx: Any, x: Any, coefficients: Any) -> Any:
        """The polynomial with these coefficients, the highest power first."""
        flags = sorted(_OPTIONS["fastmath"])

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value, *rest = [builder.extract_value(args[1], k) for k in range(len(coefficients))]
            for c in rest:
                value = builder.fadd(c, builder.fmul(args[0], value, flags=flags), flags=flags)
            return value

        return numba.float64(numba.float64, coefficients), codegen

    def _cast(source: Any, target: Any, register: Any) -> Any:
        def cast(typingctx: Any, x: Any) -> Any:
            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return builder.bitcast(args[0], register)

            return target(source), codegen

        return cast

    float_to_bits = intrinsic(_cast(numba.float64, numba.int64, ir.IntType(64)))
    bits_to_float = intrinsic(_cast(numba.int64, numba.float64, ir.DoubleType()))


def active_threads() -> int:
    """The number of threads that a parallel loop would use now."""
    return int(numba.get_num_threads())


def thread_count(requested: int | None) -> int:
    """The number of threads a call will use: ``requested``, or all that Numba was started with (one in a worker)."""
    if requested is None:
        worker = threading.current_thread() is not threading.main_thread() or multiprocessing.parent_process() is not None
        return 1 if worker else int(numba.config.NUMBA_NUM_THREADS)
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


# below this many pair terms, waking a second thread costs more than it brings (9 us against 20 ms at N = 16)
_ONE_THREAD_BELOW = 200_000
_turn = threading.RLock()
_in_late_fork = False


def _layer() -> str:
    """Numba's threading layer, empty until the first parallel loop has run."""
    try:
        return str(numba.threading_layer())
    except ValueError:
        return ""


def _after_fork() -> None:
    global _in_late_fork
    _in_late_fork = _layer() == "omp"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def fit_threads(pairs: int, most: int) -> None:
    """Inside ``with_threads``: one thread for a small piece of work, ``most`` for a large one."""
    numba.set_num_threads(1 if pairs < _ONE_THREAD_BELOW else most)


@contextmanager
def with_threads(requested: int | None = None) -> Iterator[None]:
    """Run a block with that many Numba threads and one BLAS thread, and give back the caller's settings.

    Raises RuntimeError in a process that was forked after its parent had used threads (see the module).
    """
    if _in_late_fork:
        raise RuntimeError("compiled threads cannot run in a process forked after they were first used; start workers with "
                           "multiprocessing.get_context('spawn') or 'forkserver'")
    before = numba.get_num_threads()
    with _turn if _layer() in ("", "workqueue") else nullcontext():
        numba.set_num_threads(thread_count(requested))
        try:
            with one_blas_thread():
                yield
        finally:
            numba.set_num_threads(before)
