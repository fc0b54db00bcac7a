"""``estimate_rate``: large deviations of N particles at rest, from simulations that make the rare typical.

The mean fbar of a statistic f is pushed to the improbable value by tilting the law at rest, proportional to
exp(-beta N H_N), to exp(-beta N H_N + theta N fbar), in rungs of theta that overlap; each is sampled by ``simulate`` with
scheme "metropolis" (exact for every step), and all are reweighted together (``reweighting``). ``rate_function`` is the limit
of large N. A ladder that does not overlap or chains too short to tell are errors here, never small error bars.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from tqdm import tqdm

from meanfield import _checks
from meanfield._checks import Array
from meanfield.dataset import dataset
from meanfield.diagnostics.reweighting import Ladder, autocorrelation_time, jackknife
from meanfield.diagnostics.tilt import Statistic, Tilt, evaluate
from meanfield.particles import simulate
from meanfield.problem import Problem

__all__ = ["estimate_rate"]

_ACCEPTED = 0.57  # best for this sampler (Roberts, Rosenthal 1998)
_TUNE_STEPS, _TUNE_FIRST, _TUNE_NEXT = 60, 24, 5  # blocks of steps in which dt is adapted, on the first rung and the next
_BLOCK = 500  # steps of the first piece of a chain; the whole is doubled until it is long enough
_SAVE = 5  # steps between looks at the statistic, to begin with
_LONGEST = 512  # looks kept of each chain; every other one is dropped beyond
_BURN_IN = 0.2  # share of a rung's chain that is not used
_LENGTH = 20.0  # autocorrelation times that each chain must have
_LEAST_OVERLAP = 0.15
_MOST_RUNGS = 120
_LEAST_EVENTS = 10.0  # independent events below which a count says nothing


@dataclass
class _Rung:
    """One tilt: what the chains of all runs saw there."""

    tilt: float
    dt: float
    series: Array  # N mean f over (run, time), burn-in cut
    acceptance: float
    effective: float
    last: Array = field(repr=False)  # positions at the end

    @property
    def spread(self) -> float:
        return float(self.series.std())

    @property
    def mean(self) -> float:
        return float(self.series.mean())


def estimate_rate(problem: Problem, statistic: Statistic, values: Any, *, n_particles: int, seed: int = 0, n_runs: int = 16,
                  effective_samples: int = 400, max_steps: int = 50_000, spacing: float = 1.2,
                  gradient: Callable[[Array], Array] | None = None, initial: str | Array = "uniform",
                  threads: int | None = None, progress: bool = False) -> xr.Dataset:
    """Probabilities of large deviations of the mean of ``statistic`` over N particles at rest, with standard errors.

    Args:
        problem: beta finite; any domain, potential and interaction that ``simulate`` takes.
        statistic: f, maps positions (..., component) to (...).
        values: a; the probability is of a mean of at least a where a is above the typical value (the mean at rest), of at
            most a below it.
        n_particles: N.
        seed: of all chains.
        n_runs: independent replicas of the whole ladder; standard errors are jackknives over them.
        effective_samples: independent samples that each rung must be worth, all runs together.
        max_steps: of a chain on one rung.
        spacing: standard deviations of N fbar between rungs.
        gradient: of f, (..., component) to the same shape; default: a central difference. It shapes proposals only.
        initial: positions to start from, as in ``simulate``.
        threads: as in ``simulate``. progress: show a bar with the rung reached.

    Returns a Dataset over ``value``:
        log_probability, log_probability_stderr  log P(fbar >= a) (or <= a): the tail itself, with its prefactor
        counted_log_probability, .._stderr       the same as a plain count at rest; nan for fewer than 10 independent events
        rate, rate_stderr                        theta a - Lambda_N(theta) at the best theta, the Legendre transform of
                                                 Lambda_N(theta) = log E exp(theta N fbar) / N. It tends to I(a) faster than
                                                 -log P / N, which has a logarithm of N more, and P <= exp(-N rate)
        tilt                                     that theta
    and over ``rung``: tilt as ``rung_tilt``, rung_mean, cumulant (Lambda_N), effective_samples, overlap (with the next),
    acceptance, time_step. The first fifth of each chain is burn-in; dt is adapted before that.

    The ladder chooses itself from the measured means and spreads, from rest outwards; nothing of ``rate_function`` enters.

    Raises ValueError for arguments that make no sense; ArithmeticError where a rung cannot reach ``effective_samples`` (or
    20 autocorrelation times a chain) in ``max_steps`` steps, neighbours overlap by less than 0.15, or the values are out of
    reach.
    """
    targets = np.atleast_1d(_checks.finite_array("values", values))
    if targets.ndim != 1 or not targets.size:
        raise ValueError(f"values must be a number or one row of numbers, got shape {targets.shape}")
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {problem!r}")
    if math.isinf(problem.inverse_temperature):
        raise ValueError("estimate_rate needs a finite inverse_temperature, got inf: at rest nothing fluctuates")
    sampler = _Sampler(problem, statistic, gradient, _checks.count("n_particles", n_particles),
                       _checks.count("n_runs", n_runs, least=4), _checks.seed_int(seed),
                       _checks.count("effective_samples", effective_samples), _checks.count("max_steps", max_steps),
                       threads)
    spacing = _checks.positive("spacing", spacing)
    with tqdm(desc="estimate_rate", unit="rung", disable=not progress, leave=False) as bar:
        rest = sampler.first(initial)
        bar.update()
        totals = targets * sampler.n_particles
        above = [sampler.climb(rest, float(totals.max()), spacing, bar)] if totals.max() > rest.mean else []
        below = [sampler.climb(rest, float(totals.min()), spacing, bar)] if totals.min() < rest.mean else []
    rungs = [*(r for side in below for r in reversed(side)), rest, *(r for side in above for r in side)]
    return _read(sampler, rungs, rest, targets, {
        "problem": problem, "statistic": getattr(statistic, "__qualname__", repr(statistic)), "n_particles": n_particles,
        "seed": seed, "n_runs": n_runs, "effective_samples": effective_samples, "spacing": spacing, "initial": initial})


@dataclass
class _Sampler:
    """Chains of one problem under any tilt."""

    problem: Problem
    statistic: Statistic
    gradient: Statistic | None
    n_particles: int
    n_runs: int
    seed: int
    effective: int
    max_steps: int
    threads: int | None
    calls: int = 0

    def _simulate(self, tilt: float, dt: float, steps: int, every: int, initial: Any) -> xr.Dataset:
        beta = self.problem.inverse_temperature
        pushed = self.problem
        if tilt:
            size = float(np.abs(np.asarray(initial)).max())
            push = Tilt(self.statistic, tilt / beta, math.sqrt(2.0 / (beta * dt)), 1e-6 * size, self.gradient)
            pushed = dataclasses.replace(pushed, potential=(*pushed.potentials, push))
        seed = int(np.random.SeedSequence([self.seed, self.calls]).generate_state(1, np.uint64)[0])
        self.calls += 1
        return simulate(pushed, n_particles=self.n_particles, dt=dt, t_end=steps * dt, n_runs=self.n_runs, initial=initial,
                        scheme="metropolis", save_every=every, seed=seed, threads=self.threads)

    def first(self, initial: Any) -> _Rung:
        """The rung at rest."""
        diameter = self.problem.domain.diameter
        if not math.isfinite(diameter):
            if isinstance(initial, str):
                raise ValueError("initial must be positions on an unbounded domain, got 'uniform'")
            diameter = float(np.ptp(np.asarray(initial))) or 1.0
        # a proposal of a tenth of the distance between particles, from where the adaption finds its way
        dt = 0.5 * self.problem.inverse_temperature * (0.1 * diameter / self.n_particles) ** 2
        return self._rung(0.0, dt, initial, _TUNE_FIRST)

    def climb(self, rest: _Rung, total: float, spacing: float, bar: Any) -> list[_Rung]:
        """Rungs from rest outwards until the mean of N fbar has come to ``total``."""
        sign, rungs, now = math.copysign(1.0, total - rest.mean), list[_Rung](), rest
        while sign * (total - now.mean) > 0.2 * now.spread:
            if len(rungs) == _MOST_RUNGS or not now.spread > 0:
                raise ArithmeticError(f"value {total / self.n_particles:g} is out of reach: after {len(rungs)} rungs the "
                                      f"mean is {now.mean / self.n_particles:.6g} at a tilt of {now.tilt:.4g}")
            newton = sign * (total - now.mean) / now.spread**2
            step = min(spacing / now.spread, max(newton, 0.25 * spacing / now.spread))
            now = self._rung(now.tilt + sign * step, now.dt, now.last, _TUNE_NEXT)
            rungs.append(now)
            bar.update()
            bar.set_postfix_str(f"mean {now.mean / self.n_particles:.4g}")
        return rungs

    def _rung(self, tilt: float, dt: float, initial: Any, tunings: int) -> _Rung:
        start = initial
        for _ in range(tunings):
            run = self._simulate(tilt, dt, _TUNE_STEPS, _TUNE_STEPS, start)
            start = run["position"].values[:, -1]
            share = float(run["acceptance_fraction"].values[:, -1].mean())
            dt *= math.exp(float(np.clip(4.0 * (share - _ACCEPTED), -1.5, 1.0)))
        pieces, steps, every, accepted = list[Array](), _BLOCK, _SAVE, 0.0
        done, effective = 0, 0.0
        while True:
            run = self._simulate(tilt, dt, steps, every, start)
            start = run["position"].values[:, -1]
            accepted += float(np.nanmean(run["acceptance_fraction"].values)) * steps
            pieces.append(evaluate(self.statistic, run["position"].values[:, 1:]).sum(axis=-1))
            done += steps
            series = np.concatenate(pieces, axis=1)
            if series.shape[1] > _LONGEST:
                series = series[:, 1::2]
                every *= 2
            pieces = [series]
            used = series[:, int(_BURN_IN * series.shape[1]):]
            time = autocorrelation_time(used)
            if math.isnan(time):
                raise ArithmeticError(f"the statistic is constant under the tilt {tilt:.4g}: its mean cannot be "
                                      "moved further")
            effective = used.size / time
            if effective >= self.effective and used.shape[1] >= _LENGTH * time:
                # three looks a correlation time hold all there is to know, and the reweighting is that much faster
                return _Rung(tilt, dt, used[:, ::max(1, int(time / 3.0))], accepted / done, effective, start)
            if done >= self.max_steps:
                raise ArithmeticError(f"the chains under the tilt {tilt:.4g} are worth {effective:.0f} independent samples "
                                      f"after {done} steps, {self.effective} and {_LENGTH:g} autocorrelation times a run "
                                      "are needed; raise max_steps or look whether the runs stay apart")
            steps = min(done, 4 * _BLOCK * every // _SAVE)
            steps -= steps % every


def _read(sampler: _Sampler, rungs: list[_Rung], rest: _Rung, targets: Array, settings: dict[str, Any]) -> xr.Dataset:
    n, tilts = sampler.n_particles, np.array([r.tilt for r in rungs])
    series = [r.series for r in rungs]
    ladder = Ladder.solve(tilts, series)
    overlap = np.array([*(ladder.overlap(k, series) for k in range(len(rungs) - 1)), math.nan])
    if len(rungs) > 1 and not overlap[:-1].min() >= _LEAST_OVERLAP:
        k = int(np.nanargmin(overlap))
        raise ArithmeticError(f"the rungs at tilts {tilts[k]:.4g} and {tilts[k + 1]:.4g} overlap by {overlap[k]:.2g}, "
                              f"{_LEAST_OVERLAP:g} is needed; take a smaller spacing")
    upper: NDArray[np.bool_] = targets >= rest.mean / n

    def numbers(solved: Ladder) -> Array:
        """(log P, rate, tilt) of each value, then the cumulants."""
        tails = [solved.log_tail(a * n, bool(u)) for a, u in zip(targets, upper, strict=True)]
        thetas = [solved.tilt_of(a * n) for a in targets]
        rates = [t * a - solved.cumulant(t) / n for t, a in zip(thetas, targets, strict=True)]
        return np.concatenate([tails, rates, thetas, solved.cumulants / n])

    whole = numbers(ladder)
    fewer = [numbers(Ladder.solve(tilts, [np.delete(s, r, axis=0) for s in series], ladder.cumulants))
             for r in range(sampler.n_runs)]
    errors = jackknife(whole, np.array(fewer))
    m = targets.size
    counted, counted_error = _count(rest, targets * n, upper)
    result = dataset("estimate_rate", {
        "log_probability": whole[:m], "log_probability_stderr": errors[:m], "rate": np.maximum(whole[m:2 * m], 0.0),
        "rate_stderr": errors[m:2 * m], "tilt": whole[2 * m:3 * m], "counted_log_probability": counted,
        "counted_log_probability_stderr": counted_error, "upper_tail": upper, "rung_tilt": tilts,
        "rung_mean": np.array([r.mean for r in rungs]) / n, "cumulant": whole[3 * m:], "cumulant_stderr": errors[3 * m:],
        "effective_samples": np.array([r.effective for r in rungs]), "overlap": overlap,
        "acceptance": np.array([r.acceptance for r in rungs]), "time_step": np.array([r.dt for r in rungs])},
        {"value": targets, "rung": np.arange(len(rungs))}, settings=settings)
    return result.assign_attrs(n_particles=n, speed="N", typical=rest.mean / n,
                               typical_stderr=float(rest.series.mean(axis=1).std(ddof=1)) / math.sqrt(sampler.n_runs) / n)


def _count(rest: _Rung, totals: Array, upper: NDArray[np.bool_]) -> tuple[Array, Array]:
    """log of the share of events at rest and its jackknife error."""
    found, error = np.full(totals.size, math.nan), np.full(totals.size, math.nan)
    for i, (total, above) in enumerate(zip(totals, upper, strict=True)):
        slack = 1e-9 * (abs(total) + float(np.abs(rest.series).max()))
        events = rest.series >= total - slack if above else rest.series <= total + slack
        shares = events.mean(axis=1)
        rest_shares = (shares.sum() - shares) / (shares.size - 1)
        if shares.mean() * rest.effective >= _LEAST_EVENTS and (rest_shares > 0).all():
            found[i] = math.log(shares.mean())
            error[i] = float(jackknife(found[i:i + 1], np.log(rest_shares)[:, None])[0])
    return found, error
