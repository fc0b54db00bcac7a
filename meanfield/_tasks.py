"""Compiled functions that are compiled once: called by symbol, and shared out over threads by one common loop.

Numba compiles a function that compiled functions call on its own, then again inside each of its callers, and a parallel
loop around it once more; the fast sums took 20 to 27 s of compiling that way and take 7 to 11 s this way. And as
there is one copy of each function, no number depends on whether the cache was warm.

``alone``: a function that returns nothing; compiled functions call it with ``_numba.call(function, (arguments))``.
``task``: a function of a number and arrays; Python calls it with ``share(function, count, arguments)`` for the numbers
0 to count - 1, on the threads that ``with_threads`` allows. ``kernel``: generated source, called by address. All of them
name their argument types; ``alone`` and ``task`` are compiled, or loaded, when they are first needed. Options and cache are
those of ``_numba``.
"""

from __future__ import annotations

import ctypes
import functools
import linecache
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config, sigutils
from numba.core.ccallback import CFunc
from numba.core.datamodel.models import OpaqueModel
from numba.extending import intrinsic, register_model, typeof_impl

from meanfield._numba import _OPTIONS, Cache, active_threads, call, njit, prange

__all__ = ["alone", "kernel", "share", "task"]

_kernels: list[Any] = []


def kernel(name: str, source: str, names: dict[str, Any], arguments: str) -> Any:
    """The function ``name`` of generated ``source`` (which sees ``names``), compiled on its own, as an address for ``call``.

    ``arguments`` are its argument types. It must return nothing and call no other compiled function: Numba links callees
    into each caller and optimises them there once more, and of several copies of a function a process uses the one that it
    met first, so that the last bits would depend on what ran before (seen: another number after a cold start). ``name``
    must be unique, it also keys the cache; tracebacks show the generated lines.
    """
    return compile_alone(generated(name, source, names), arguments)


def generated(name: str, source: str, names: dict[str, Any]) -> Callable[..., None]:
    """The Python function ``name`` of ``source``."""
    file = f"<meanfield {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space = {"__name__": __name__, **names}
    exec(compile(source, file, "exec"), space)
    function: Callable[..., None] = space[name]
    return function


def compile_alone(function: Callable[..., None], arguments: str) -> Any:
    """The address of a function that is compiled on its own (see ``kernel``)."""
    if config.DISABLE_JIT:
        return function
    compiled = CFunc(function, sigutils.normalize_signature(f"void({arguments})"), locals={}, options=_OPTIONS)
    compiled._cache = Cache(function)  # type: ignore[attr-defined]
    compiled.compile()
    _kernels.append(compiled)  # the address is good as long as its owner lives
    return compiled.address


class _Alone:
    """A function under a symbol of its own; plain Python where it is called from Python."""

    def __init__(self, function: Callable[..., None], arguments: str) -> None:
        functools.update_wrapper(self, function)
        self.function, self.arguments = function, arguments
        self.symbol = f"{function.__module__}.{function.__qualname__}"

    def __call__(self, *arguments: Any) -> None:
        self.function(*arguments)

    @functools.cached_property
    def types(self) -> tuple[Any, ...]:
        return tuple(sigutils.normalize_signature(f"void({self.arguments})")[0])

    @functools.cached_property
    def address(self) -> int:
        # the linker ends the process over a symbol that it does not know, and code from the cache asks for it as well
        for callee in _callees(self.function):
            callee.address  # noqa: B018
        address: int = compile_alone(self.function, self.arguments)
        binding.add_symbol(self.symbol, address)
        return address


class _Task(_Alone):
    """A function that is called with its arguments as they lie in memory: so one parallel loop does for all of them."""

    def __init__(self, function: Callable[..., None], arguments: str) -> None:
        super().__init__(function, "int64, " + arguments)
        self._body = _Alone(function, self.arguments)

    @functools.cached_property
    def address(self) -> int:
        self._body.address  # noqa: B018
        name = self.symbol.replace(".", "_")
        source = (f"def {name}(first, last, packed):\n    for number in range(first, last):\n"
                  "        call_packed(body, number, packed)\n")
        loop = generated(name, source, {"call_packed": _call_packed, "body": self._body})
        address: int = compile_alone(loop, "int64, int64, int64")
        return address

    @functools.cached_property
    def run(self) -> Any:
        return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(self.address)

    def pack(self, arguments: tuple[Any, ...]) -> Any:
        packed: list[int] = []
        for kind, value in zip(self.types[1:], arguments, strict=True):
            if isinstance(kind, types.Array):
                if value.dtype != kind.dtype.name or value.ndim != kind.ndim or not value.flags.c_contiguous:
                    raise TypeError(f"{self.symbol} wants {kind}, got {value.dtype} with shape {value.shape}, "
                                    f"strides {value.strides}")
                # as Numba lays out an array: two owners (none), items, their size, place, shape, strides
                packed += [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]
            else:
                packed.append(int(np.float64(value).view(np.int64)) if isinstance(kind, types.Float) else int(value))
        return np.array(packed, np.int64)


class _AloneType(types.Opaque):  # type: ignore[misc]
    def __init__(self, function: _Alone) -> None:
        self.function = function
        super().__init__(f"alone({function.symbol})")


register_model(_AloneType)(OpaqueModel)


@typeof_impl.register(_Alone)  # type: ignore[untyped-decorator]
def _typeof(function: _Alone, context: Any) -> _AloneType:
    function.address  # noqa: B018
    return _AloneType(function)


@intrinsic  # type: ignore[untyped-decorator]
def _call_packed(typingctx: Any, function: Any, number: Any, packed: Any) -> Any:
    wanted = function.function.types

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = [context.get_value_type(t) for t in wanted]
        place = builder.inttoptr(args[2], ir.LiteralStructType(kinds[1:]).as_pointer())
        given = [args[1], *(builder.extract_value(builder.load(place), k) for k in range(len(kinds) - 1))]
        kind = ir.FunctionType(context.get_value_type(types.none), kinds)
        builder.call(cgutils.get_or_insert_function(builder.module, kind, function.function.symbol), given)
        return context.get_dummy_value()

    return types.void(function, types.int64, types.int64), codegen


def _callees(function: Any) -> Iterator[_Alone]:
    """The functions of this kind that a function, or one that it takes in, names."""
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, _Alone):
            yield value
        elif hasattr(value, "py_func"):
            yield from _callees(value.py_func)


def alone(arguments: str) -> Callable[[Callable[..., None]], _Alone]:
    """A function that compiled functions reach with ``call``, its argument types as Numba writes them."""
    return lambda function: _Alone(function, arguments)


def task(arguments: str) -> Callable[[Callable[..., None]], _Task]:
    """A function for ``share``: its number first, then C-contiguous arrays, int64 and float64."""
    return lambda function: _Task(function, arguments)


@njit(parallel=True)
def _each(address, count, packed):  # type: ignore[no-untyped-def]
    for index in prange(count):
        number = np.int64(index)
        call(address, (number, number + 1, packed))


def share(function: _Task, count: int, *arguments: Any) -> None:
    """function(i, *arguments) for i = 0 .. count - 1, in any order."""
    if config.DISABLE_JIT:
        for number in range(count):
            function(number, *arguments)
        return
    packed = function.pack(arguments)  # lives until all are done
    if count == 1 or active_threads() == 1:
        function.run(0, count, packed.ctypes.data)
    else:
        _each(function.address, count, packed.ctypes.data)
