"""Direct pair sums against the plain Numba loop, SciPy, NumPy, JAX and PyKeOps (where installed), one core, float64.

    python bench/pairs.py [--out pairs.json] [--quick]

Ordered pairs a second at N = 10,000 and ratios as medians over interleaved rounds of CPU time, all in one run. Peers sum
1,000 targets x 10,000 sources (PyKeOps all of them), which costs them nothing a pair. "of peak" counts 10 flop for an
ordered pair of the logarithm in the plane (and 5 d for d components, without the power) against the machine's peak of
fused multiply-adds, measured in the same rounds. Errors: 200 particles against long double, the worst, relative to the sum
of the magnitudes of that particle's pair forces. Then wall time: two threads against one, and small N with threads allowed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from fast_sums import errors, force
from peers import PEERS, available
from timing import fma_peak, medians, one_thread, report

from meanfield._numba import thread_count, with_threads

N, TARGETS = 10_000, 1_000
# (dim, s, {peer: ratio to be reached}); "best" is the best of cdist, jax and pykeops
CASES: list[tuple[int, float, dict[str, float]]] = [
    (1, 0.0, {"jax": 9}), (2, 0.0, {"naive numba": 13, "best": 7}), (3, 1.0, {"jax": 5, "cdist": 9}),
    (2, 1.37, {"naive numba": 15, "cdist": 5}), (8, 6.0, {"numpy product": 5.5}), (32, 0.0, {"numpy product": 1.8}),
    (32, 1.37, {"numpy product": 1.8})]
# PyKeOps compiles each formula for half a minute
KEOPS_CASES = {(2, 0.0), (2, 1.37), (3, 1.0)}


def against_peers(dim: int, s: float, wanted: dict[str, float], repeats: int) -> dict[str, object]:
    x = np.random.default_rng(dim).standard_normal((N, dim))
    result = force(s, x, "direct")
    calls = {"meanfield": lambda: force(s, x, "direct"), "peak": fma_peak()}
    pairs = {"meanfield": N * N}
    for name, (_, build) in PEERS.items():
        if not available(name) or (name == "pykeops" and (dim, s) not in KEOPS_CASES):
            continue
        targets = N if name == "pykeops" else TARGETS
        call = build(x, s, targets)
        if call is not None:
            # the same sum, up to the digits that the product form loses in close pairs, and PyKeOps in float32 exponents
            wrong = np.median(np.abs(call() - result[:targets])) / np.median(np.abs(result[:targets]))
            assert wrong < 1e-5, f"{name} gives other forces: {wrong}"
            calls[name], pairs[name] = call, targets * N
    seconds = medians(calls, repeats)
    speed = {name: pairs[name] / seconds[name] for name in pairs}
    peak = 2e9 / seconds["peak"]
    ratios = {name: speed["meanfield"] / speed[name] for name in speed if name != "meanfield"}
    ratios["best"] = min(ratios[name] for name in ("cdist", "jax", "pykeops") if name in ratios)
    share = 5 * dim * speed["meanfield"] / peak
    error = errors(s, x, result)["worst_error"]
    print(f"d = {dim:<2} s = {s:<5g} {speed['meanfield'] / 1e9:6.3f} G pairs/s  error {error:.1e}  {share:4.0%} of peak "
          f"({peak / 1e9:.1f} Gflop/s)")
    for name, ratio in ratios.items():
        target = wanted.get(name)
        verdict = "" if target is None else f"  target {target:g}: {'met' if ratio >= target else 'MISSED'}"
        print(f"    {name:14} {ratio:6.2f}x{verdict}", flush=True)
    return {"dim": dim, "s": s, "n": N, "pairs_per_second": speed, "ratios": ratios, "targets": wanted, "peak_flops": peak,
            "share_of_peak": share, "worst_error": error}


def threads(repeats: int) -> list[dict[str, object]]:
    """Wall seconds on one thread and with all of them allowed."""
    rows: list[dict[str, object]] = []
    for dim, s in ((1, 0.0), (2, 0.0), (3, 1.0), (32, 0.0)):
        for n in (16, 64, 256, 1_000, 3_000, 20_000):
            x = np.random.default_rng(n).standard_normal((n, dim))
            times = max(1, round(2e6 / n**2))

            def call(count: int | None, x: np.ndarray = x, s: float = s, times: int = times) -> None:
                with with_threads(count):
                    for _ in range(times):
                        force(s, x, "direct")

            seconds = medians({"one": lambda call=call: call(1), "all": lambda call=call: call(None)},
                              repeats, time.perf_counter)
            ratio = seconds["one"] / seconds["all"]
            print(f"d = {dim:<2} s = {s:<5g} N = {n:<6} {thread_count(None)} threads allowed: {ratio:.2f} times one thread",
                  flush=True)
            rows.append({"dim": dim, "s": s, "n": n, "threads": thread_count(None), "speedup": ratio,
                         "seconds": {name: value / times for name, value in seconds.items()}})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="three rounds, no threads")
    parser.add_argument("--case", type=int, action="append", help="only these of the cases, counted from 0")
    arguments = parser.parse_args()
    one_thread()
    with with_threads(1):
        rows = [against_peers(*case, 3 if arguments.quick else 9) for case in (
            CASES if arguments.case is None else [CASES[k] for k in arguments.case])]
    report(arguments.out, pairs=rows, threads=[] if arguments.quick else threads(9))


if __name__ == "__main__":
    main()
