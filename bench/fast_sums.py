"""Fast pair sums against the direct sum, pyfmmlib and fmm3dpy (where installed): CPU time on one thread in one run.

    python bench/fast_sums.py [--out fast_sums.json] [--quick]     # about ten minutes
    python bench/fast_sums.py --crossover                          # the table pairsum.CROSSOVER

Every ratio is a median over interleaved repeats. From N = 1e5 on the direct sum is that of 2e4 particles in the same round,
times (N / 2e4)^2. Errors are those of 200 particles against a long double sum: the worst, relative to the sum of the
magnitudes of that particle's pair forces (as stated by pairsum.py), and root mean square over root mean square.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import medians, report

import meanfield as mf
from meanfield._numba import with_threads
from meanfield.pairsum import PairSum

KINDS = ("uniform", "gaussian", "clustered")
DIRECT = 20_000  # particles of the direct sum that stands for larger ones


def points(kind: str, n: int, dim: int) -> np.ndarray:
    rng = np.random.default_rng(n)
    if kind == "uniform":
        return rng.uniform(-1, 1, (n, dim))
    if kind == "gaussian":
        return rng.standard_normal((n, dim))
    # twenty clusters of widths 1e-7 to 1e-2
    which = rng.integers(0, 20, n)
    width = 10.0 ** rng.uniform(-7, -2, 20)[which, None]
    return rng.uniform(-1, 1, (20, dim))[which] + width * rng.standard_normal((n, dim))


def law(s: float, n: int) -> mf.Riesz:
    """A law whose forces on a particle are the plain sums of r_vec r^(-s-2)."""
    return mf.Riesz(s, (n - 1) / (abs(s) or 1.0))


def force(s: float, x: np.ndarray, method: str, accuracy: float = 1e-12) -> np.ndarray:
    n, dim = x.shape
    out = np.zeros((1, n, dim))
    PairSum.plan([law(s, n)], [0.0], n_particles=n, dim=dim, method=method, accuracy=accuracy).add_forces(x[None], out)
    return out[0]


def errors(s: float, x: np.ndarray, result: np.ndarray) -> dict[str, float]:
    chosen = np.random.default_rng(1).choice(len(x), min(200, len(x)), replace=False)
    worst, square, size = 0.0, 0.0, 0.0
    for k in chosen:
        d = (x[k] - x).astype(np.longdouble)
        q = np.square(d).sum(axis=1)
        q[q == 0] = 1.0
        pair = d * q[:, None] ** (-s / 2 - 1)
        exact = pair.sum(axis=0)
        error = float(np.sqrt(np.square(result[k] - exact).sum()))
        worst = max(worst, error / float(np.sqrt(np.square(pair).sum(axis=1)).sum()))
        square, size = square + error**2, size + float(np.square(exact).sum())
    return {"worst_error": worst, "rms_error": (square / size) ** 0.5}


def peers(x: np.ndarray, accuracy: float) -> dict[str, Callable[[], np.ndarray]]:
    """Library calls for the same sum, where installed."""
    found: dict[str, Callable[[], np.ndarray]] = {}
    try:
        if x.shape[1] == 2:
            from pyfmmlib import LaplaceKernel, fmm_part  # type: ignore[import-not-found]

            def pyfmmlib() -> np.ndarray:
                # iprec 2 is its class of 1e-10
                return np.real(fmm_part("g", iprec=2, kernel=LaplaceKernel(), sources=x, mop_charge=np.ones(len(x))))

            found["pyfmmlib"] = pyfmmlib
    except ImportError:
        pass
    return found


def three_dimensions(repeats: int) -> list[dict[str, object]]:
    """Coulomb in space: fmm3dpy through PairSum against the direct sum."""
    try:
        importlib.import_module("fmm3dpy")
    except ImportError:
        return []
    rows: list[dict[str, object]] = []
    for accuracy in (1e-3, 1e-6, 1e-9):
        for n in (20_000, 50_000, 100_000):
            x = points("gaussian", n, 3)
            t = medians({"direct": lambda x=x: force(1.0, x, "direct"),
                         "library": lambda x=x, a=accuracy: force(1.0, x, "library", a)}, repeats)
            row = {"kernel": "s = 1", "dim": 3, "n": n, "points": "gaussian", "accuracy": accuracy, "seconds": t,
                   "ratios": {"direct": t["direct"] / t["library"]}, **errors(1.0, x, force(1.0, x, "library", accuracy))}
            print(f"s = 1    3-D  N = {n:<8} accuracy {accuracy:.0e} error {row['worst_error']:.1e}  direct "
                  f"{t['direct'] / t['library']:.2f}x", flush=True)
            rows.append(row)
    return rows


def compare(s: float, dim: int, n: int, accuracy: float, repeats: int, direct: bool) -> list[dict[str, object]]:
    rows = []
    for kind in KINDS:
        x = points(kind, n, dim)
        calls: dict[str, Callable[[], object]] = {"fast": lambda x=x: force(s, x, "multipole", accuracy)}
        few = points(kind, min(n, DIRECT), dim)
        if direct:
            calls["direct"] = lambda few=few: force(s, few, "direct")
        calls |= peers(x, accuracy)
        seconds = medians(calls, repeats)
        if direct:
            seconds["direct"] *= (n / len(few)) ** 2
        row = {"kernel": "log" if s == 0 else f"s = {s:g}", "dim": dim, "n": n, "points": kind, "accuracy": accuracy,
               "seconds": seconds, "ratios": {k: v / seconds["fast"] for k, v in seconds.items() if k != "fast"},
               **errors(s, x, force(s, x, "multipole", accuracy))}
        ratios = ", ".join(f"{k} {v:.1f}x" for k, v in row["ratios"].items())
        print(f"{row['kernel']:8} {dim}-D  N = {n:<8} {kind:10} {seconds['fast']:.4f} s  error {row['worst_error']:.1e} "
              f"(rms {row['rms_error']:.1e})  {ratios}", flush=True)
        rows.append(row)
    return rows


def memory(dim: int, accuracy: float) -> float:
    """Peak memory in GiB of one sum at N = 1e6, in a process of its own."""
    code = (f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fast_sums as bench; "
            f"bench.force(0, bench.points('gaussian', 10**6, {dim}), 'multipole', {accuracy}); bench.peak()")
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def peak() -> None:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def crossover() -> None:
    """Smallest N of a geometric scale from which the fast sum wins on all kinds of points."""
    cases = [("line logarithm", 1, 0.0, "multipole"), ("line power", 1, 0.5, "multipole"), ("sorted", 1, -1.0, "sorted"),
             ("plane logarithm", 2, 0.0, "multipole")]
    for name, dim, s, method in cases:
        found = None
        for n in (16, 32, 64, 125, 250, 500, 1000, 2000, 4000, 8000):
            ratio = np.inf
            for kind in KINDS:
                x = points(kind, n, dim)
                t = medians({"direct": lambda s=s, x=x: force(s, x, "direct"),
                             "fast": lambda s=s, x=x, method=method: force(s, x, method)}, 21)
                ratio = min(ratio, t["direct"] / t["fast"])
            print(f"{name:16} N = {n:<6} direct / fast = {ratio:.2f}", flush=True)
            found = None if ratio < 1 else found or n
        print(f"{name}: {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="N up to 1e4")
    parser.add_argument("--crossover", action="store_true")
    arguments = parser.parse_args()
    with with_threads(1):
        if arguments.crossover:
            crossover()
            return
        rows = []
        for s, dim, accuracy in ((0.0, 1, 1e-12), (0.5, 1, 1e-12), (0.0, 2, 1e-10)):
            rows += compare(s, dim, 10_000, accuracy, 5, True)
            if not arguments.quick:
                rows += compare(s, dim, 100_000, accuracy, 3, True) + compare(s, dim, 1_000_000, accuracy, 3, False)
        rows += [] if arguments.quick else three_dimensions(1)
        peaks = {} if arguments.quick else {f"{dim}-D": memory(dim, 1e-12 if dim == 1 else 1e-10) for dim in (1, 2)}
    for name, value in peaks.items():
        print(f"peak memory {name}, N = 1e6: {value:.2f} GiB")
    report(arguments.out, rows=rows, peak_memory_gib=peaks)


if __name__ == "__main__":
    main()
