"""``solve`` against py-pde and FiPy (where installed), and a step against its own FFTs and tridiagonal solves.

    python bench/pde.py [--out pde.json] [--quick]     # about ten minutes; --quick: about one, without the peers' long runs

CPU time on one core, all in one run. The job: V = |x|^2 / 2, logarithmic repulsion of strength 1, beta = 10, no flux through
the walls of [-3, 3]^d, from two Gaussian bumps, up to t = 2. Errors are L1 at t = 0.5 against a Richardson extrapolation of
our own finer runs, whose first and second moments are compared with the exact ones (dm_1/dt = -m_1; m_2 relaxes at rate 2).

The peers run as a competent user would write it: py-pde with its finite differences, its scipy solver (RK45) and our FFT
convolution (it has none of its own); FiPy with exponential convection, the convolution lagged by one step, which makes it
of first order in time. Their runs to t = 0.5 are timed, times four for t = 2. At equal error: ours on the coarsest grid and
at the largest tolerance that reach py-pde's error; FiPy's time extrapolated to our error by its order. Set-up and
compilation are left out on all sides.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import meanfield as mf
from meanfield._numba import with_threads
from meanfield.mesh import Mesh, mesh_of
from meanfield.stepping import Stepper

BETA, T_ERROR, T_END = 10.0, 0.5, 2.0


def bumps(*x: np.ndarray) -> np.ndarray:
    """0.7 N((-1, 0), 0.09) + 0.3 N((1, 0.5), 0.09), on the line its first coordinate."""
    total = 0.0
    for share, centre in ((0.7, (-1.0, 0.0)), (0.3, (1.0, 0.5))):
        q = sum((a - c) ** 2 for a, c in zip(x, centre, strict=False))
        total = total + share * np.exp(-q / 0.18) / (0.18 * np.pi) ** (len(x) / 2)
    return total


def problem(dim: int) -> mf.Problem:
    domain = mf.Interval(-3, 3) if dim == 1 else mf.Box(-3, 3, dim=2)
    return mf.Problem(domain, mf.Quadratic(), mf.Log(), BETA)


def cpu(call: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        result = call()
        spent.append(time.process_time() - start)
    return result, float(np.median(spent))


class Job:
    """The job on so many cells a side."""

    def __init__(self, dim: int, cells: int) -> None:
        self.dim, self.cells = dim, cells
        self.mesh: Mesh = mesh_of(problem(dim), mf.Grid(cells))
        self.rho = self.mesh.density(bumps)[0]

    def run(self, t_end: float, tolerance: float) -> Stepper:
        stepper, t = Stepper(self.mesh, tolerance, self.rho), 0.0
        while t < t_end:
            t += stepper.advance(t_end - t)
        return stepper

    def coarse(self, fine: np.ndarray) -> np.ndarray:
        """Cell averages on this job's cells of those on a refinement."""
        k = fine.shape[0] // self.cells
        shape = [n for _ in range(self.dim) for n in (self.cells, k)]
        return fine.reshape(shape).mean(axis=tuple(range(1, 2 * self.dim, 2)))

    def error(self, rho: np.ndarray, reference: np.ndarray) -> float:
        return self.mesh.mass(np.abs(rho - self.coarse(reference)))


def reference(dim: int, cells: int, tolerance: float) -> tuple[np.ndarray, dict[str, float]]:
    """(4 rho_h - rho_2h) / 3 at t = 0.5, and its moments against the exact ones."""
    coarse, fine = Job(dim, cells // 2), Job(dim, cells)
    low, high = (job.run(T_ERROR, tolerance).density for job in (coarse, fine))
    result = coarse.coarse(high) + (coarse.coarse(high) - low) / 3.0
    # cell averages of x^2 rho are those of rho at the centres up to h^2 / 12 (1 - 2) an axis
    x = np.stack(np.meshgrid(*coarse.mesh.centers, indexing="ij"))
    weight = coarse.mesh.volumes * result
    h = coarse.mesh.edges[0][1] - coarse.mesh.edges[0][0]
    first, second = float((weight * x[0]).sum()), float((weight * (np.square(x).sum(axis=0) - dim * h**2 / 12)).sum())
    rest, start = dim / BETA + 0.5, 1.0 + 0.09 * dim + (0.3 * 0.25 if dim == 2 else 0.0)
    return result, {"m1": first + 0.4 * math.exp(-T_ERROR), "m2": second - rest - (start - rest) * math.exp(-2 * T_ERROR)}


def py_pde(job: Job, t_end: float, tolerance: float) -> np.ndarray:
    """py-pde: finite differences on cell centres, RK45 with error control."""
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [p for p in sys.path if p != here]  # this file is called pde too
    import pde

    potential, convolve = job.mesh.potential, job.mesh.convolve

    class McKeanVlasov(pde.PDEBase):  # type: ignore[misc]
        def evolution_rate(self, state: Any, t: float = 0) -> Any:
            drift = pde.ScalarField(state.grid, potential + convolve(state.data))
            flux = drift.gradient({"derivative": 0}) * state
            return flux.divergence({"value": 0}) + state.laplace({"derivative": 0}) / BETA

    grid = pde.CartesianGrid([[-3, 3]] * job.dim, job.cells)
    state = pde.ScalarField(grid, job.rho)
    equation = McKeanVlasov()
    solver = pde.ScipySolver(equation, method="RK45", rtol=tolerance, atol=1e-3 * tolerance, backend="numpy")
    return np.asarray(pde.Controller(solver, t_range=t_end, tracker=None).run(state, dt=1e-4).data)


def fipy(job: Job, t_end: float, steps: int) -> np.ndarray:
    """FiPy: exponential convection, implicit, the interaction of the last step."""
    import fipy as fp

    h = 6.0 / job.cells
    mesh = fp.Grid1D(nx=job.cells, dx=h) if job.dim == 1 else fp.Grid2D(nx=job.cells, ny=job.cells, dx=h, dy=h)
    rho = fp.CellVariable(mesh=mesh, value=job.rho.T.ravel())
    drift = fp.CellVariable(mesh=mesh)
    equation = fp.TransientTerm() == fp.DiffusionTerm(1 / BETA) + fp.ExponentialConvectionTerm(drift.faceGrad)
    for _ in range(steps):
        cells = rho.value.reshape(job.rho.shape).T
        drift.setValue((job.mesh.potential + job.mesh.convolve(cells)).T.ravel())
        equation.solve(rho, dt=t_end / steps)
    return np.array(rho.value.reshape(job.rho.shape).T)


def installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def against_peers(dim: int, cells: int, target: float, quick: bool) -> dict[str, Any]:
    """CPU seconds of the job up to t = 2 at an L1 error of at most ``target`` at t = 0.5, ours and theirs."""
    finest = {1: 4000 if quick else 8000, 2: 768}[dim]  # half of it is a multiple of all grids below
    exact, moments = reference(dim, finest, 3e-8 if dim == 1 else 3e-7)
    print(f"{dim}-D reference: error of m1 {moments['m1']:.1e}, of m2 {moments['m2']:.1e}", flush=True)
    job = Job(dim, cells)
    ours = ours_at(dim, [cells], target, exact)
    rows: list[dict[str, Any]] = [ours]
    if installed("py-pde"):
        # its error on these cells does not fall with its tolerance, as its steps are as short as stability asks: at equal
        # error we may take fewer cells too
        py_pde(Job(dim, 16), 0.01, 1e-4)
        state, short = cpu(lambda: py_pde(job, T_ERROR, 1e-5))
        error = job.error(state, exact)
        equal = ours_at(dim, [500, 800, 1000] if dim == 1 else [64, 96, 128], error, exact)
        rows.append(row("py-pde RK45", error, short * T_END / T_ERROR, ours, equal["seconds"], f"ours on {equal['cells']} "
                        f"cells, error {equal['error']:.1e}"))
        rows[-1]["ours_at_equal_error"] = equal
    if installed("fipy"):
        steps = (25 if quick else 100) if dim == 1 else (12 if quick else 25)
        fipy(Job(dim, 16), 0.1, 2)
        state, short = cpu(lambda: fipy(job, T_ERROR, steps))
        error = job.error(state, exact)
        rows.append(row(f"FiPy, {steps} steps", error, short * T_END / T_ERROR, ours,
                        ours["seconds"] / max(error / target, 1.0), "its time extrapolated by order 1"))
    return {"dim": dim, "cells": cells, "target": target, "reference_moments": moments, "rows": rows}


def ours_at(dim: int, choices: list[int], target: float, exact: np.ndarray) -> dict[str, Any]:
    """The coarsest of the grids, and on it the largest tolerance, that reach an error; its time up to t = 2."""
    best = math.inf
    for cells in choices:
        job = Job(dim, cells)
        for tolerance in 10.0 ** -np.arange(4.0, 7.6, 0.25):
            error = job.error(job.run(T_ERROR, tolerance).density, exact)
            best = min(best, error)
            if error <= target:
                stepper, seconds = cpu(lambda job=job, tolerance=tolerance: job.run(T_END, tolerance), 9)
                found = {"code": "meanfield", "cells": cells, "tolerance": tolerance, "error": error, "seconds": seconds,
                         "steps": stepper.accepted + stepper.rejected}
                print(f"{dim}-D {cells} cells a side  meanfield  error {error:.2e}  {seconds:.4f} s "
                      f"({found['steps']} steps)", flush=True)
                return found
    raise SystemExit(f"{choices} cells do not reach an error of {target:g}: the best is {best:.2e}")


def row(code: str, error: float, seconds: float, ours: dict[str, Any], equal: float, how: str) -> dict[str, Any]:
    """A peer's time over ours on the same cells, and over ``equal``, our time at its error (or scaled to our error)."""
    made = {"code": code, "error": error, "seconds": seconds, "ratio": seconds / ours["seconds"],
            "ratio_at_equal_error": seconds / equal, "how": how}
    print(f"    {code:18} error {error:.2e}  {seconds:.3f} s  {made['ratio']:.0f}x; at equal error "
          f"{made['ratio_at_equal_error']:.0f}x ({how})", flush=True)
    return made


def step_cost(dim: int, cells: int, repeats: int) -> dict[str, Any]:
    """A step against two convolutions and its tridiagonal solves alone, interleaved."""
    job = Job(dim, cells)
    stepper = Stepper(job.mesh, 1e-4, job.rho)
    for _ in range(3):
        stepper.advance(1.0)
    q, out = stepper.density, np.empty(job.mesh.shape)

    def step() -> None:
        stepper.trial(1e-3)
        stepper._error(1e-3, False)

    def alone() -> None:
        for _ in range(2):
            job.mesh.convolve(q)

    def solves() -> None:
        for sweep, faces in zip(stepper.sweeps, stepper.state.faces, strict=True):
            for _ in range(2):  # predictor and error
                sweep.euler(faces, q, 1e-3, out)
        for axis in ((0,) if dim == 1 else (0, 1, 0)):
            stepper.sweeps[axis].sdirk2(stepper.state.faces[axis], q, 1e-3, out)

    spent: dict[str, list[float]] = {"step": [], "fft": [], "solves": []}
    for _ in range(repeats):
        for name, call in (("step", step), ("fft", alone), ("solves", solves)):
            spent[name].append(cpu(call)[1])
    medians = {name: float(np.median(values)) for name, values in spent.items()}
    ratio = medians["step"] / (medians["fft"] + medians["solves"])
    print(f"{dim}-D {cells:5} a side  step {1e6 * medians['step']:.0f} us = {ratio:.2f} times its FFTs "
          f"({1e6 * medians['fft']:.0f}) and solves ({1e6 * medians['solves']:.0f})", flush=True)
    return {"dim": dim, "cells": cells, "seconds": medians, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # the peers' deprecations
    with with_threads(1):
        costs = [step_cost(1, 1000, 2000)]
        costs += [step_cost(2, m, max(5, min(500, 2 * 10**7 // m**2)))
                  for m in ((64, 128, 256) if arguments.quick else (64, 128, 256, 512, 1024))]
        jobs = [against_peers(1, 1000, 1e-5, arguments.quick), against_peers(2, 128, 1.2e-3, arguments.quick)]
    if arguments.out:
        versions = {"python": platform.python_version(), "machine": platform.machine()}
        for package in ("numpy", "scipy", "numba", "py-pde", "fipy"):
            if installed(package):
                versions[package] = importlib.metadata.version(package)
        arguments.out.write_text(json.dumps({"versions": versions, "steps": costs, "jobs": jobs}, indent=1))


if __name__ == "__main__":
    main()
