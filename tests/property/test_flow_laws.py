"""Laws of ``solve`` for random problems: mass, positivity, a free energy that never rises, and an end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meanfield as mf


class Waves(mf.Potential):
    """A few cosines and a parabola."""

    formula = "V(x) = sum a cos(k x + c) + b x^2 / 2"

    def __init__(self, amplitudes, numbers, phases, stiffness):
        self.waves, self.stiffness = list(zip(amplitudes, numbers, phases, strict=True)), stiffness

    def value(self, positions):
        x = positions[..., 0]
        return sum(a * np.cos(k * x + c) for a, k, c in self.waves) + 0.5 * self.stiffness * x**2

    def gradient(self, positions):
        return self.stiffness * positions - sum(a * k * np.sin(k * positions + c) for a, k, c in self.waves)


CELLS = 24
EXAMPLES = {
    "seed": st.integers(0, 2**31),
    "s": st.floats(-1.99, 0.95),
    "strength": st.tuples(st.sampled_from([-1.0, 1.0]), st.floats(-2, 1)).map(lambda p: p[0] * 10 ** p[1]),
    "beta": st.one_of(st.floats(math.log(0.1), math.log(1e4)).map(math.exp), st.just(math.inf)),
    "t_end": st.floats(-4, 0).map(lambda e: 10**e),
    "shape": st.sampled_from(["rough", "flat", "one cell", "narrow"]),
}


def check(seed, s, strength, beta, t_end, shape):
    rng = np.random.default_rng(seed)
    potential = Waves(rng.normal(size=3) * rng.choice([0.1, 1.0, 5.0]), rng.integers(1, 6, 3) * np.pi / 2,
                      rng.uniform(0, 6, 3), 3 * rng.normal())
    x = np.linspace(-1, 1, CELLS)
    rho = {"rough": rng.exponential(size=CELLS), "flat": np.ones(CELLS), "one cell": np.eye(CELLS)[rng.integers(CELLS)],
           "narrow": np.exp(-200 * (x - rng.uniform(-1, 1)) ** 2)}[shape]
    problem = mf.Problem(mf.Interval(-1, 1), potential, mf.Riesz(s, strength), beta)
    flow = mf.solve(problem, mf.Grid(CELLS), t_end=t_end, initial=rho / rho.mean() / 2, save_at=np.linspace(0, t_end, 5),
                    tolerance=1e-4)
    assert np.abs(flow["mass"] - 1).max() <= 1e-13
    assert (flow["min_density"] >= 0).all()
    scale = 1 + np.abs(flow["energy"]).max() + np.abs(flow["entropy"]).max() / beta
    # each of up to some thousand steps may be off by the round-off of F
    assert np.diff(flow["free_energy"]).max() <= 1e-12 * scale
    assert int(flow["n_steps"][-1] + flow["n_rejected"][-1]) < 20_000


@given(**EXAMPLES)
@settings(max_examples=60)
def test_structure_whatever_the_problem(seed, s, strength, beta, t_end, shape):
    check(seed, s, strength, beta, t_end, shape)


@pytest.mark.full
@given(**EXAMPLES)
@settings(max_examples=10_000)
def test_structure_whatever_the_problem_ten_thousand_times(seed, s, strength, beta, t_end, shape):
    check(seed, s, strength, beta, t_end, shape)


def test_flows_near_underflow_are_numbers():
    """A narrow start at zero temperature: densities of 1e-163 beside nothing once made 0 times inf."""
    check(1791, 0.5, 1.0, math.inf, 1.0, "narrow")
