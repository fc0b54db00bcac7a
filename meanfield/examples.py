"""Named problems with known answers, ready to run: for notebooks, for a first look, and for the tests.

    case = mf.example("dyson")
    run = case.run(seed=3)                       # simulate(case.problem, **case.arguments, seed=3)
    [(fact.sentence, fact.value, fact.measure(run).mean()) for fact in case.facts]

``example_names()`` lists them. A fact is either the exact mean of a statistic over runs (``tolerance`` 0: judge it by the
standard error) or a number that every run must show to ``tolerance``. The pair sum is divided by N - 1 here; where a
formula divides by N, the strength is (N - 1) / N.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import digamma

from meanfield import _checks
from meanfield._checks import Array
from meanfield.domain import Ball, Interval
from meanfield.forces import total_energy
from meanfield.interactions import Coulomb, Log, QuadraticPair
from meanfield.particles import simulate
from meanfield.potentials import Quadratic, Zero
from meanfield.problem import Problem

__all__ = ["Example", "Fact", "example", "example_names"]


@dataclass(frozen=True)
class Fact:
    """One exact number: ``measure`` maps a run of the example to one number a run (or one an independent particle)."""

    sentence: str
    value: float
    measure: Callable[[xr.Dataset], Array]
    tolerance: float = 0.0


@dataclass(frozen=True)
class Example:
    """A problem, the arguments of ``simulate`` that show it, and what is known exactly."""

    name: str
    sentence: str
    problem: Problem
    arguments: Mapping[str, Any]
    facts: tuple[Fact, ...]
    citation: str

    def run(self, **changes: Any) -> xr.Dataset:
        """``simulate`` with these arguments; ``changes`` replace or add some."""
        result: xr.Dataset = simulate(self.problem, **{**self.arguments, **changes})
        return result


_BUILD: dict[str, Callable[[], Example]] = {}


def _named(build: Callable[[], Example]) -> Callable[[], Example]:
    _BUILD[build.__name__.strip("_").replace("_", "-")] = build
    return build


def example_names() -> list[str]:
    """Names that ``example`` knows."""
    return sorted(_BUILD)


def example(name: str) -> Example:
    """The example of that name. Raises ValueError with the known names."""
    return _BUILD[_checks.choice("name", name, example_names())]()


def _last(run: xr.Dataset) -> Array:
    x: Array = run["position"].values[:, -1]
    return x


def _second_moment(run: xr.Dataset) -> Array:
    m2: Array = np.square(_last(run)).sum(axis=-1).mean(axis=-1)
    return m2


def _energy(problem: Problem) -> Callable[[xr.Dataset], Array]:
    return lambda run: total_energy(problem, np.ascontiguousarray(_last(run))) / run.sizes["particle"]


def _largest(run: xr.Dataset) -> Array:
    top: Array = _last(run)[..., 0].max(axis=-1)
    return top


def _spread(n: int, width: float) -> Array:
    return np.linspace(-width, width, n)[:, None]


@_named
def _ornstein_uhlenbeck() -> Example:
    beta, dt, steps = 2.0, 0.02, 200
    variance = 2 * dt / beta * (1 - (1 - dt) ** (2 * steps)) / (1 - (1 - dt) ** 2)
    return Example("ornstein-uhlenbeck", "independent particles in a quadratic trap, from the origin",
                   Problem(Interval(-50, 50), Quadratic(), inverse_temperature=beta),
                   {"n_particles": 100, "n_runs": 300, "dt": dt, "t_end": dt * steps, "initial": np.zeros((100, 1)),
                    "save_every": steps},
                   (Fact("second moment of the Euler chain", variance, _second_moment),
                    Fact("mean", 0.0, lambda run: _last(run).mean(axis=(1, 2)))), "elementary")


@_named
def _quadratic_attraction() -> Example:
    n, beta, dt, steps, kappa = 10, 2.0, 0.01, 100, 0.5
    noise, w = 2 * dt / beta, 1.0 + kappa * n / (n - 1)

    def variance(rate: float, share: float) -> float:
        return noise * share * (1 - (1 - rate * dt) ** (2 * steps)) / (1 - (1 - rate * dt) ** 2)

    return Example("quadratic-attraction", "particles that attract each other in a quadratic trap, from the origin",
                   Problem(Interval(-50, 50), Quadratic(), QuadraticPair(kappa), beta),
                   {"n_particles": n, "n_runs": 2000, "dt": dt, "t_end": dt * steps, "initial": np.zeros((n, 1)),
                    "save_every": steps},
                   (Fact("second moment of the centre of mass", variance(1.0, 1 / n),
                         lambda run: np.square(_last(run).mean(axis=(1, 2)))),
                    Fact("variance about it", variance(w, 1 - 1 / n), lambda run: _last(run)[..., 0].var(axis=1))),
                   "Dawson (1983); Malrieu (2001), with Euler's factors")


@_named
def _reflected_brownian_motion() -> Example:
    dt, steps = 0.01, 100
    mean = math.sqrt(dt / (2 * math.pi)) * float(np.sum(np.arange(1, steps + 1) ** -0.5))
    return Example("reflected-brownian-motion", "from a wall, by projection: the exact bias of its weak order 1/2",
                   Problem(Interval(0, 50), inverse_temperature=2.0),
                   {"n_particles": 100, "n_runs": 400, "dt": dt, "t_end": dt * steps, "initial": np.zeros((100, 1)),
                    "save_every": steps},
                   (Fact("mean of the projected chain", mean, lambda run: _last(run).mean(axis=(1, 2))),),
                   "Asmussen, Glynn, Pitman (1995)")


@_named
def _dyson() -> Example:
    n, beta, t, m2 = 10, 2.0, 0.5, 2.0
    rest = 1 / beta + (n - 1) / (2 * n)
    start = _spread(n, 1.0)
    return Example("dyson", "log gas in a quadratic trap whose particles collide (Dyson index 0.2)",
                   Problem(Interval(-30, 30), Quadratic(), Log((n - 1) / n), beta),
                   {"n_particles": n, "n_runs": 2000, "dt": 2e-3, "t_end": t, "save_every": 250,
                    "initial": start * math.sqrt(m2 / float(np.mean(start**2)))},
                   (Fact("second moment at t = 1/2", rest + (m2 - rest) * math.exp(-2 * t), _second_moment),),
                   "Rogers, Shi (1993): N m2 is a CIR process")


@_named
def _gaussian_ensemble() -> Example:
    n, beta = 8, 8.0
    shape = (n + beta * (n - 1) / 2) / 2  # beta N m2 / 2 is Gamma(shape)
    mean = 2 * shape / (beta * n)
    return Example("gaussian-ensemble", "log gas in a quadratic trap at rest: beta-Hermite ensemble of index beta / N",
                   Problem(Interval(-30, 30), Quadratic(), Log((n - 1) / n), beta),
                   {"n_particles": n, "n_runs": 1500, "dt": 0.04, "t_end": 8.0, "scheme": "metropolis", "save_every": 200,
                    "initial": _spread(n, 1.2)},
                   (Fact("second moment", mean, _second_moment),
                    Fact("its square", mean**2 * (1 + 1 / shape), lambda run: _second_moment(run) ** 2),
                    Fact("square of the centre of mass", 1 / (n * beta),
                         lambda run: np.square(_last(run).mean(axis=(1, 2))))), "Dumitriu, Edelman (2002)")


@_named
def _log_gas_interval() -> Example:
    n, beta = 6, 10.0
    gamma, j = beta / (2 * (n - 1)), np.arange(6)
    wall = float(np.mean(digamma(1 + j * gamma) - digamma(2 + (n + j - 1) * gamma)))
    pairs = 2 * float(np.sum(2 * j * digamma(1 + j * gamma) + (j + 1) * digamma(1 + (j + 1) * gamma) - digamma(1 + gamma)
                             - (n + j - 1) * digamma(2 + (n + j - 1) * gamma))) / (2 * n * (n - 1))
    upper = np.triu_indices(n, 1)

    def log_distance(run: xr.Dataset) -> Array:
        x = _last(run)[..., 0]
        mean: Array = np.log(np.abs(x[:, :, None] - x[:, None, :])[:, *upper]).mean(axis=-1)
        return mean

    return Example("log-gas-interval", "log gas between two walls at rest (Selberg's integral)",
                   Problem(Interval(0, 1), Zero(), Log(), beta),
                   {"n_particles": n, "n_runs": 800, "dt": 3e-3, "t_end": 1.5, "scheme": "metropolis", "save_every": 500},
                   (Fact("mean of log x", wall, lambda run: np.log(_last(run)).mean(axis=(1, 2))),
                    Fact("mean of log |x_k - x_l| over pairs", pairs, log_distance)),
                   "Selberg (1944); Forrester, Warnaar (2008)")


@_named
def _plasma_disc() -> Example:
    n, beta = 10, 4.0
    return Example("plasma-disc", "two-dimensional log gas in a quadratic trap at rest (circular law as N grows)",
                   Problem(Ball(20.0, 2), Quadratic(), Log((n - 1) / n), beta),
                   {"n_particles": n, "n_runs": 600, "dt": 0.08, "t_end": 8.0, "scheme": "metropolis", "save_every": 100,
                    "initial": Ball(1.0, 2).sample(n, 1)},
                   (Fact("second moment", 2 / beta + (n - 1) / (2 * n), _second_moment),), "Bolley, Chafai, Fontbona (2018)")


@_named
def _hermite() -> Example:
    n = 10
    k = np.arange(1, n + 1)
    discriminant = n * (n - 1) / 2 * math.log(2) - float(np.sum(k * np.log(k)))
    energy = (n - 1) / (4 * n) * (1 + math.log(n)) + discriminant / (2 * n**2)
    problem = Problem(Interval(-8, 8), Quadratic(), Log((n - 1) / n), math.inf)
    return Example("hermite", "ground state of the log gas in a quadratic trap: zeros of a Hermite polynomial",
                   problem, {"n_particles": n, "dt": 0.5, "t_end": 20.0, "scheme": "flow"},
                   (Fact("energy", energy, _energy(problem), 1e-12),
                    Fact("largest position", float(np.polynomial.hermite.hermgauss(n)[0].max()) / n**0.5, _largest, 1e-8)),
                   "Stieltjes (1885)")


@_named
def _fekete() -> Example:
    n = 10
    problem = Problem(Interval(-1, 1), Zero(), Log(), math.inf)
    legendre = np.polynomial.Legendre.basis(n - 1)
    x = np.sort(np.concatenate([[-1.0], legendre.deriv().roots(), [1.0]]))[:, None]
    second = float(x[-2, 0])
    return Example("fekete", "ground state of the log gas between walls: Fekete points (Fejer: Legendre)",
                   problem, {"n_particles": n, "dt": 0.5, "t_end": 20.0, "scheme": "flow"},
                   (Fact("energy", float(total_energy(problem, x[None])[0]) / n, _energy(problem), 1e-12),
                    Fact("second largest position", second, lambda run: np.sort(_last(run)[..., 0])[:, -2], 1e-8)),
                   "Fejer (1932)")


@_named
def _coulomb_line() -> Example:
    n = 10
    problem = Problem(Interval(-8, 8), Quadratic(), Coulomb(1, (n - 1) / n), math.inf)
    return Example("coulomb-line", "ground state of one-dimensional Coulomb charges in a quadratic trap: equispaced",
                   problem, {"n_particles": n, "dt": 0.5, "t_end": 30.0, "scheme": "flow"},
                   (Fact("energy", -(1 - 1 / n**2) / 6, _energy(problem), 1e-12),
                    Fact("largest position", (n - 1) / n, _largest, 1e-10)), "Baxter (1963)")


@_named
def _disc() -> Example:
    n = 7
    problem = Problem(Ball(1.0, 2), Zero(), Log(), math.inf)
    return Example("disc", "cold log gas in a disc: everybody at the wall, a regular polygon", problem,
                   {"n_particles": n, "dt": 0.5, "t_end": 25.0, "scheme": "flow"},
                   (Fact("energy", -math.log(n) / (2 * (n - 1)), _energy(problem), 1e-12),
                    Fact("smallest radius", 1.0, lambda run: np.linalg.norm(_last(run), axis=2).min(axis=1), 1e-12)),
                   "Frostman (1935); roots of unity are Fekete points of the circle")


@_named
def _icosahedron() -> Example:
    problem = Problem(Ball(1.0, 3), Zero(), Coulomb(3), math.inf)
    return Example("icosahedron", "twelve Coulomb charges in a ball: Thomson's problem", problem,
                   {"n_particles": 12, "dt": 1.0, "t_end": 200.0, "scheme": "flow"},
                   (Fact("energy", 49.165253057629 / 132, _energy(problem), 1e-9),), "Thomson (1904); Andreev (1996)")
