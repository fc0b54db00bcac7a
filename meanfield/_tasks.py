"""Compiled functions that are compiled once: called by symbol, and shared out over threads by one common loop.

Numba compiles a function that compiled functions call on its own, then again inside each of its callers, and a parallel
loop around it once more; the fast sums took 20 to 27 s of compiling that way and take a third of it this way. And as
there is one copy of each function, no number depends on whether the cache was warm.

``alone``: a function that returns nothing; compiled functions call it with ``_numba.call(function, (arguments))``.
``task``: a function of a number and arrays; Python calls it with ``share(function, count, arguments)`` for the numbers
0 to count - 1, on the threads that ``with_threads`` allows. Both name their argument types, and both are compiled, or
loaded, when they are first needed. Options and cache are those of ``_numba``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from llvmlite import binding
from numba import carray, types
from numba.core import config, sigutils
from numba.core.datamodel.models import OpaqueModel
from numba.extending import intrinsic, register_model, typeof_impl

from meanfield._numba import active_threads, bits_to_float, call, compile_alone, generated, njit, prange

__all__ = ["alone", "share", "task"]


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
        address = self._compile()
        binding.add_symbol(self.symbol, address)
        return address

    def _compile(self) -> int:
        address: int = compile_alone(self.function, self.arguments)
        return address


class _Task(_Alone):
    """A function that finds its arguments in an array of integers: so one parallel loop does for all of them."""

    def _compile(self) -> int:
        unpacked, at = [], 0
        for kind in self.types[1:]:
            if isinstance(kind, types.Array):
                shape = ", ".join(f"p[{at + 1 + k}]" for k in range(kind.ndim))
                unpacked.append(f"carray(pointer(p[{at}]), ({shape},), np.{kind.dtype.name})")
                at += kind.ndim
            else:
                unpacked.append(f"bits_to_float(p[{at}])" if isinstance(kind, types.Float) else f"p[{at}]")
            at += 1
        values = "".join(f"    a{k} = {text}\n" for k, text in enumerate(unpacked))
        names = ", ".join(f"a{k}" for k in range(len(unpacked)))
        name = self.symbol.replace(".", "_")
        source = (f"def {name}(first, last, packed):\n    p = carray(pointer(packed), ({max(at, 1)},), np.int64)\n{values}"
                  f"    for task in range(first, last):\n        body(task, {names})\n")
        space = {"np": np, "carray": carray, "pointer": _pointer, "bits_to_float": bits_to_float,
                 "body": njit(inline=True)(self.function)}
        address: int = compile_alone(generated(name, source, space), "int64, int64, int64")
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
                packed += [value.ctypes.data, *value.shape]
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
def _pointer(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.int64), codegen


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
    return lambda function: _Task(function, "int64, " + arguments)


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
