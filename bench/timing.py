"""What the benches share: interleaved medians of CPU or wall time, versions, JSON, and the machine's FMA peak."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numba
import numpy as np
from llvmlite import binding, ir
from numba.core import cgutils
from numba.extending import intrinsic

from meanfield._numba import wide_vectors

__all__ = ["PACKAGES", "fma_peak", "medians", "one_thread", "report", "versions"]

PACKAGES = ("numpy", "scipy", "numba", "jax", "pykeops", "openmm", "pyfmmlib", "fmm3dpy")
Calls = Mapping[str, Callable[[], object]]


def one_thread() -> None:
    """Keep the peers to one thread; to be called before they are imported."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["OPENMM_CPU_THREADS"] = "1"


def medians(calls: Calls, repeats: int, clock: Callable[[], float] = time.process_time) -> dict[str, float]:
    """Median seconds of each call, one after the other in each round; a first round is not counted."""
    for call in calls.values():
        call()
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = clock()
            call()
            spent[name].append(clock() - start)
    return {name: float(np.median(values)) for name, values in spent.items()}


def versions() -> dict[str, str]:
    """Versions of everything that is compared, where installed, and the machine."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "cpu": binding.get_host_cpu_name()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def report(path: Path | None, **content: Any) -> None:
    """Write what was measured, with versions, if a path was given."""
    if path is not None:
        path.write_text(json.dumps({"versions": versions(), **content}, indent=1) + "\n")


_LANES = 8 if binding.get_host_cpu_features().get("avx512f") else 4
_CHAINS = 10  # independent sums: more than the four cycles of latency on two ports need


@intrinsic
def _multiply_add(typingctx: Any, count: Any) -> Any:
    """``count`` fused multiply-adds in each of _CHAINS registers; the sum of their first lanes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.DoubleType(), _LANES)
        fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fma.v{_LANES}f64")
        factor, term = (ir.Constant(vector, [value] * _LANES) for value in (0.999, 1e-3))
        before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        index = builder.phi(ir.IntType(64))
        sums = [builder.phi(vector) for _ in range(_CHAINS)]
        index.add_incoming(ir.Constant(ir.IntType(64), 0), before)
        following = builder.add(index, ir.Constant(ir.IntType(64), 1))
        index.add_incoming(following, loop)
        results = [builder.call(fma, [value, factor, term]) for value in sums]
        for chain, (value, result) in enumerate(zip(sums, results, strict=True)):
            value.add_incoming(ir.Constant(vector, [float(chain)] * _LANES), before)
            value.add_incoming(result, loop)
        builder.cbranch(builder.icmp_signed("<", following, args[0]), loop, after)
        builder.position_at_end(after)
        total = ir.Constant(ir.DoubleType(), 0.0)
        for result in results:
            total = builder.fadd(total, builder.extract_element(result, ir.Constant(ir.IntType(32), 0)))
        return total

    return numba.float64(numba.int64), codegen


@numba.njit
def _spin(count: int) -> float:
    wide_vectors()
    return _multiply_add(count)


def fma_peak() -> Callable[[], float]:
    """A call that runs 2e9 flop of fused multiply-adds in registers, on one core: 2e9 / its seconds is the peak."""
    flop = 2 * _LANES * _CHAINS
    return lambda: float(_spin(int(2e9) // flop))
