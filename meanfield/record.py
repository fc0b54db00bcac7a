"""What a run of ``simulate`` is going to do (``Plan``), what it needs in memory, and what it keeps (``Record``)."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import dataset

__all__ = ["Move", "Plan", "Record", "make_plan", "refuse_too_large"]


@dataclass(frozen=True)
class Plan:
    """Sizes and times of one call, checked."""

    n_particles: int
    n_runs: int
    dt: float
    t_end: float
    n_steps: int
    save_every: int
    method: str = "auto"  # of the pair sums, and the largest error that they may have (pairsum.py)
    accuracy: float = 1e-12

    @property
    def pairs(self) -> int:
        """Pair terms of one force."""
        return self.n_runs * self.n_particles**2

    @property
    def saved_steps(self) -> list[int]:
        """Step numbers whose state is kept: every ``save_every``-th and the last."""
        return [*range(0, self.n_steps, self.save_every), self.n_steps]


def make_plan(n_particles: int, dt: float, t_end: float, n_runs: int, save_every: int | None, method: str = "auto",
              accuracy: float = 1e-12) -> Plan:
    """Check and complete the sizes. Raises ValueError where ``t_end`` is no whole number of steps."""
    dt, t_end = _checks.positive("dt", dt), _checks.positive("t_end", t_end)
    ratio = t_end / dt
    n_steps = max(round(ratio), 1)
    # t_end and dt are rounded decimals: their ratio is whole up to a few units in the last place
    if not math.isclose(ratio, n_steps, rel_tol=1e-9):
        raise ValueError(f"t_end must be a whole number of steps dt, got t_end / dt = {ratio:.6g}; "
                         f"dt = {t_end / math.ceil(ratio):.6g} would do")
    every = math.ceil(n_steps / 100) if save_every is None else _checks.count("save_every", save_every)
    return Plan(_checks.count("n_particles", n_particles), _checks.count("n_runs", n_runs), dt, t_end, n_steps, every,
                method, accuracy)


def available_bytes() -> float:
    """Memory that can still be taken, as far as the system says (inf where it does not)."""
    found = [math.inf]
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found += [1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    if len(found) == 1:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            found.append(float(os.sysconf("SC_AVPHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE"))
    return min(found)


def refuse_too_large(plan: Plan, dim: int, arrays: int) -> None:
    """Raise MemoryError before anything is allocated; ``arrays`` is how many states the scheme works with at once."""
    state = 8 * plan.n_runs * plan.n_particles * dim
    saved = 1 + math.ceil(plan.n_steps / plan.save_every)
    there = available_bytes()
    if (saved + arrays) * state <= there:
        return
    room = int(there // state) - arrays - 1
    if room >= 1:
        cure = f"take save_every >= {math.ceil(plan.n_steps / room)} (it is {plan.save_every})"
    else:
        cure = "take fewer particles or runs, save_every alone cannot help"
    raise MemoryError(f"{saved} saved states of {plan.n_runs} x {plan.n_particles} x {dim} numbers need {saved * state} "
                      f"bytes and the step {arrays * state} more, but {there:.0f} bytes of memory are available; {cure}")


class Move(NamedTuple):
    """One step of all runs: where they are now and, for each run, what happened on the way."""

    position: Array
    clipped: Array  # particles whose proposal left the domain
    longest2: Array  # square of the longest displacement of a particle before it was put back
    substeps: Array | int = 1
    accepted: Array | int = 1


# Variables beside the position: how each is made of what was counted since the last saved time.
_DTYPE = {"n_substeps": np.int64}


class Record:
    """What is saved, and what has been counted since it was last saved."""

    def __init__(self, plan: Plan, x: Array, extra: Sequence[str] = ()) -> None:
        self.plan, self.steps = plan, plan.saved_steps
        runs, saved = x.shape[0], len(self.steps)
        self.position = np.empty((runs, saved, *x.shape[1:]))
        self.series = {name: np.zeros((runs, saved), dtype=_DTYPE.get(name, np.float64))
                       for name in ("clipped_fraction", "max_displacement", *extra)}
        self.position[:, 0] = x
        if "acceptance_fraction" in self.series:
            self.series["acceptance_fraction"][:, 0] = np.nan  # no step has been proposed yet
        self.filled = 1
        self._count = {name: np.zeros(runs) for name in ("clipped", "longest2", "substeps", "accepted")}
        self._before_last: dict[str, Array] | None = None

    def note(self, move: Move) -> None:
        """Count one step."""
        count = self._count
        count["clipped"] += move.clipped
        count["substeps"] += move.substeps
        count["accepted"] += move.accepted
        np.maximum(count["longest2"], move.longest2, out=count["longest2"])

    def save(self, step: int, x: Array) -> None:
        """Keep the state after that many steps if it is one of the saved ones."""
        if self.filled == len(self.steps) or step != self.steps[self.filled]:
            return
        i, count = self.filled, self._count
        self.position[:, i] = x
        made = {"clipped_fraction": count["clipped"] / (np.maximum(count["substeps"], 1.0) * self.plan.n_particles),
                "max_displacement": np.sqrt(count["longest2"]),
                "acceptance_fraction": count["accepted"] / (step - self.steps[i - 1]),
                "n_substeps": count["substeps"]}
        for name, values in self.series.items():
            values[:, i] = made[name]
        if step % self.plan.save_every:  # a longer run would not stop to save here: it needs the counts as they were
            self._before_last = {name: values.copy() for name, values in count.items()}
        for counted in count.values():
            counted[:] = 0.0
        self.filled += 1

    def state(self, x: Array) -> dict[str, Array]:
        """All that going on needs; a last state that is no multiple of ``save_every`` is not part of it."""
        unfinished = self._before_last is not None
        keep = self.filled - 1 if unfinished else self.filled
        count = self._before_last if self._before_last is not None else self._count
        return {"x": x, "position": self.position[:, :keep],
                **{name: values[:, :keep] for name, values in self.series.items()},
                **{f"count_{name}": values for name, values in count.items()}}

    def restore(self, step: int, state: dict[str, Array]) -> Array:
        """Take up the state of a checkpoint and give back the positions."""
        self.filled = state["position"].shape[1]
        self.position[:, :self.filled] = state["position"]
        for name, values in self.series.items():
            values[:, :self.filled] = state[name]
        self._count = {name: state[f"count_{name}"] for name in self._count}
        self.save(step, state["x"])  # where the run ends at the checkpoint itself
        return state["x"]

    def dataset(self, settings: dict[str, Any], more: dict[str, Any]) -> xr.Dataset:
        """The Dataset; ``more`` are variables that depend on time alone."""
        plan = self.plan
        time = np.array(self.steps) * plan.dt
        time[-1] = plan.t_end
        return dataset("simulate", {"position": self.position, **self.series, **more},
                       {"run": np.arange(plan.n_runs), "time": time, "particle": np.arange(plan.n_particles),
                        "component": np.arange(self.position.shape[-1])}, settings=settings)
