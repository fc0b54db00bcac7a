"""``meanfield doctor``: is this machine set up right? Each probe is one ``Finding``; ``examine`` runs them all.

A probe that raises is a finding too: it is what the command is for.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finding", "examine"]

_PACKAGES = ("numpy", "scipy", "numba", "xarray", "matplotlib", "scikit-learn", "h5netcdf", "meanfield")
_LEAST_DISK = 0.2  # GB; a report with its Datasets takes a tenth of it


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, whether it is as it should be."""

    name: str
    text: str
    sound: bool = True


def examine() -> Iterator[Finding]:
    """All findings, one at a time as they are made."""
    probes: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("python", _python), *((name, lambda name=name: _version(name)) for name in _PACKAGES),
        ("smoke test", _smoke_test), ("threads", _threads), ("BLAS", _blas), ("cache", _cache), ("memory", _memory),
        ("disk", _disk), ("netCDF", _netcdf))
    for name, probe in probes:
        try:
            yield probe()
        except Exception as error:
            yield Finding(name, f"BROKEN: {type(error).__name__}: {' '.join(str(error).split())}", False)


def _python() -> Finding:
    return Finding("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _version(name: str) -> Finding:
    return Finding(name, importlib.metadata.version(name))


def _smoke_test() -> Finding:
    begun = time.perf_counter()
    import meanfield as mf

    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)
    run = mf.simulate(problem, n_particles=100, dt=1e-3, t_end=0.05, n_runs=4, scheme="reflected", seed=0)
    flow = mf.solve(problem, mf.Grid(100), t_end=0.05)
    distance = float(mf.wasserstein(run, flow, order=1).isel(time=-1).mean())
    mass = float(abs(flow["mass"] - 1).max())
    # 100 independent points are 0.031 away on average; a repulsive gas is nearer
    sound = 0.0 < distance < 0.06 and mass < 1e-12
    return Finding("smoke test", f"{'ok' if sound else 'BROKEN'}: W_1 = {distance:.4f}, mass kept to {mass:.0e}, "
                   f"{time.perf_counter() - begun:.1f} s (the first time compiles for some more)", sound)


def _threads() -> Finding:
    numba = importlib.import_module("numba")
    try:
        layer = numba.threading_layer()
    except ValueError:
        layer = "none started yet"  # small systems use one thread
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding("threads", f"{cpus} CPUs, Numba uses {numba.config.NUMBA_NUM_THREADS}, threading layer: {layer}")


def _blas() -> Finding:
    import numpy  # noqa: F401  (loads its BLAS)
    from threadpoolctl import threadpool_info

    found = {f"{i['internal_api']} {i['version']} with {i['num_threads']} thread(s)"
             for i in threadpool_info() if i["user_api"] == "blas"}
    return Finding("BLAS", "; ".join(sorted(found)) or "none that threadpoolctl knows")


def _cache() -> Finding:
    from meanfield._numba import cache_folder

    folder = cache_folder()
    with tempfile.TemporaryFile(dir=folder):
        pass
    kept = Path(os.path.expanduser("~")) in folder.parents or "MEANFIELD_CACHE" in os.environ or (
        "XDG_CACHE_HOME" in os.environ)
    return Finding("cache", f"{folder}, writable" + ("" if kept else "; temporary: every reboot compiles again, set "
                                                     "MEANFIELD_CACHE to a folder that stays"))


def _memory() -> Finding:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return Finding("memory", "not known on this system")
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in meminfo.read_text().splitlines()}
    return Finding("memory", f"{kilobytes['MemAvailable'] / 1e6:.1f} GB available of {kilobytes['MemTotal'] / 1e6:.1f} GB")


def _disk() -> Finding:
    free = shutil.disk_usage(".").free / 1e9
    sound = free > _LEAST_DISK
    return Finding("disk", f"{free:.1f} GB free in the current folder" + ("" if sound else ": BROKEN, too little"), sound)


def _netcdf() -> Finding:
    import meanfield as mf

    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.NoInteraction(), 1.0)
    written = mf.simulate(problem, n_particles=3, dt=0.1, t_end=0.2)
    with tempfile.TemporaryDirectory() as folder:
        written.to_netcdf(Path(folder) / "run.nc")
        read = mf.load(Path(folder) / "run.nc")
    sound = read.identical(written)
    return Finding("netCDF", "ok: written and read back the same" if sound else "BROKEN: not the same after a round trip",
                   sound)
