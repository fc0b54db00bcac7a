"""W_p on the line, N = 1e6, against SciPy and POT: CPU time on one thread in one run.

    python bench/transport.py [--out transport.json] [--quick]

Equal weights, unequal weights, and a sample against a density on 1,000 cells (which SciPy and POT can only have as a
second sample: they are given the cells' centres with their masses). Ratios are medians over interleaved repeats.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.stats import wasserstein_distance
from timing import medians, report

from meanfield._numba import with_threads
from meanfield.diagnostics.transport import atoms, cells, transport_1d


def cases(n: int) -> dict[str, dict[str, Callable[[], object]]]:
    import ot

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(n), 1.1 * rng.standard_normal(n) + 0.1
    v, w = (u / u.sum() for u in rng.random((2, n)))
    edges = np.linspace(-6, 6, 1001)
    centers = 0.5 * (edges[1:] + edges[:-1])
    mass = np.exp(-(centers**2) / 2)
    mass /= mass.sum()
    return {
        "equal weights": {"meanfield": lambda: transport_1d(atoms(x), atoms(y)),
                          "scipy": lambda: wasserstein_distance(x, y),
                          "pot": lambda: ot.emd2_1d(x, y, metric="euclidean")},
        "unequal weights": {"meanfield": lambda: transport_1d(atoms(x, weights=v), atoms(y, weights=w)),
                            "scipy": lambda: wasserstein_distance(x, y, v, w),
                            "pot": lambda: ot.emd2_1d(x, y, v, w, metric="euclidean")},
        "against a density": {"meanfield": lambda: transport_1d(atoms(x), cells(edges, mass / 0.012)),
                              "scipy": lambda: wasserstein_distance(x, centers, None, mass),
                              "pot": lambda: ot.emd2_1d(x, centers, None, mass, metric="euclidean")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="N = 1e5")
    arguments = parser.parse_args()
    n, rows = 10**5 if arguments.quick else 10**6, []
    with with_threads(1):
        for name, calls in cases(n).items():
            values = {who: float(call()) for who, call in calls.items()}
            seconds = medians(calls, 7)
            ratios = {who: s / seconds["meanfield"] for who, s in seconds.items() if who != "meanfield"}
            apart = max(abs(values[who] - values["meanfield"]) / values["meanfield"] for who in ratios)
            print(f"{name:18} N = {n}: {seconds['meanfield'] * 1e3:.1f} ms, " + ", ".join(
                f"{who} {r:.1f} times that" for who, r in ratios.items()) + f"; values differ by {apart:.1e}", flush=True)
            rows.append({"case": name, "n": n, "seconds": seconds, "ratios": ratios, "difference": apart})
    report(arguments.out, rows=rows)


if __name__ == "__main__":
    main()
