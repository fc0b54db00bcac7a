"""Particles against exact laws: fixed seeds, |z| < 5 from the estimator's own error."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meanfield as mf


def z_score(values, expected):
    return (np.mean(values) - expected) / (np.std(values, ddof=1) / math.sqrt(len(values)))


@pytest.mark.parametrize("dt", [0.1, 0.01, pytest.param(0.001, marks=pytest.mark.full)])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_bug_03_mean_squared_displacement_is_2_d_t_over_beta(dim, dt):
    """No force, walls far away: E|x(t) - x(0)|^2 = 2 d t / beta for every dt."""
    problem = mf.Problem(mf.Box(-50, 50, dim=dim), inverse_temperature=2.0)
    run = mf.simulate(problem, n_particles=20_000, dt=dt, t_end=1.0, initial=np.zeros((20_000, dim)), save_every=1000)
    squared = (run["position"].values[0, -1] ** 2).sum(axis=-1)
    assert abs(z_score(squared, dim)) < 4


def test_bug_03_bisected_steps_keep_the_mean_squared_displacement():
    """"adaptive", with a first particle whose steep descent has every step halved for all."""
    class Cliff(mf.Potential):
        formula = "V = 100 x of particle 0"

        def value(self, positions):
            return 100.0 * positions[..., 0] * (np.arange(positions.shape[-2]) == 0)

        def gradient(self, positions):
            gradient = np.zeros(positions.shape)
            gradient[..., 0, 0] = 100.0
            return gradient

    problem = mf.Problem(mf.Box(-20, 20, dim=2), Cliff(), inverse_temperature=2.0)
    start = np.zeros((5000, 2))
    start[0, 0] = 19.0
    run = mf.simulate(problem, n_particles=5000, dt=0.5, t_end=1.0, initial=start, scheme="adaptive", seed=1)
    assert int(run["n_substeps"].sum()) >= 8
    squared = (run["position"].values[0, -1, 1:] ** 2).sum(axis=-1)
    assert abs(z_score(squared, 2)) < 4


@pytest.mark.parametrize(("dt", "variance"), [(0.1, 0.52632), (0.01, 0.50251)])
def test_bug_03_ornstein_uhlenbeck_has_eulers_own_variance(dt, variance):
    problem = mf.Problem(mf.Interval(-50, 50), mf.Quadratic(), inverse_temperature=2.0)
    run = mf.simulate(problem, n_particles=20_000, dt=dt, t_end=8.0, initial=np.zeros((20_000, 1)), save_every=1000)
    assert abs(z_score(run["position"].values[0, -1, :, 0] ** 2, variance)) < 4


@pytest.mark.parametrize("h", [0.01, 0.0025])
def test_projection_has_its_exact_bias(truths, h):
    """Projected Euler for reflected Brownian motion from 0: the exact finite-h mean, weak order 1/2."""
    truth = truths["projected_euler_rbm"]["values"]
    problem = mf.Problem(mf.Interval(0, 50), inverse_temperature=2.0)
    n = 40_000
    run = mf.simulate(problem, n_particles=n, dt=h, t_end=1.0, initial=np.zeros((n, 1)), save_every=1000)
    x = run["position"].values[0, -1, :, 0]
    assert abs(z_score(x, truth[f"EX_h{h}_t1"])) < 5
    assert z_score(x, truth["exact"]) < -5  # the bias is there
    mirrored = mf.simulate(problem, n_particles=n, dt=h, t_end=1.0, initial=np.zeros((n, 1)), save_every=1000,
                           scheme="reflected")
    assert abs(z_score(mirrored["position"].values[0, -1, :, 0], truth["exact"])) < 5  # exact in law


@pytest.mark.parametrize("scheme", ["projected", "reflected"])
def test_stationary_mean_of_a_spring_at_a_wall(truths, scheme):
    """x^2 / 2 on [0, inf), h = 0.1: the exact stationary mean of either scheme (Nystroem; half-normal law)."""
    expected = (truths["projected_euler_reflected_ou"]["values"]["mean_h0.1"] if scheme == "projected"
                else truths["symmetrised_euler_reflected_ou"]["values"]["sym_mean_h0.1"])
    problem = mf.Problem(mf.Interval(0, 50), mf.Quadratic(), inverse_temperature=1.0)
    run = mf.simulate(problem, n_particles=40_000, dt=0.1, t_end=10.0, initial=np.full((40_000, 1), 0.7), scheme=scheme,
                      save_every=1000)
    assert abs(z_score(run["position"].values[0, -1, :, 0], expected)) < 5


def test_quadratic_attraction_at_finite_n():
    """Variances of the centre of mass and of one particle: linear SDE, with Euler's factor (1 - dt w) for exp(-w dt)."""
    n, beta, dt, steps, s0 = 10, 2.0, 0.01, 100, 0.25
    problem = mf.Problem(mf.Interval(-50, 50), mf.Quadratic(1.0), mf.QuadraticPair(0.5), beta)
    start = np.sqrt(s0) * np.random.default_rng(5).standard_normal((8000, n, 1))
    run = mf.simulate(problem, n_particles=n, dt=dt, t_end=1.0, n_runs=8000, initial=start, save_every=1000)
    x = run["position"].values[:, -1, :, 0]

    def variance(rate, initial, noise):
        factor = (1 - rate * dt) ** 2
        return initial * factor**steps + noise * (1 - factor**steps) / (1 - factor)

    noise = 2 * dt / beta
    centre = variance(1.0, s0 / n, noise / n)
    relative = variance(1.0 + 0.5 * n / (n - 1), s0 * (1 - 1 / n), noise * (1 - 1 / n))
    assert abs(z_score(x.mean(axis=1) ** 2, centre)) < 5
    assert abs(z_score(((x - x.mean(axis=1, keepdims=True)) ** 2).mean(axis=1), relative)) < 5


def test_dyson_second_moment_at_finite_n(truths):
    """N = 10 log gas with colliding particles (Dyson index 0.2): E m2 at t = 0.5 against its exact value."""
    truth = truths["dyson_finiteN_second_moment"]
    n = truth["params"]["N"]
    start = np.linspace(-1, 1, n)[:, None]
    start *= math.sqrt(truth["params"]["m2_0"] / np.mean(start**2))
    # the truths divide the pair sum by N, we by N - 1
    problem = mf.Problem(mf.Interval(-30, 30), mf.Quadratic(), mf.Log((n - 1) / n), truth["params"]["beta"])
    run = mf.simulate(problem, n_particles=n, dt=2e-3, t_end=0.5, n_runs=6000, initial=start, save_every=1000)
    m2 = (run["position"].values[:, -1, :, 0] ** 2).mean(axis=1)
    assert abs(z_score(m2, truth["values"]["E_m2_N10_b2_t0.5"])) < 5


@pytest.mark.parametrize("n", [10, 100])
def test_iid_uniforms_are_at_their_exact_distance(truths, n):
    """E W_1 and E W_2^2 between N uniform points and the uniform density: both exact."""
    problem = mf.Problem(mf.Interval(0, 1))
    run = mf.simulate(problem, n_particles=n, dt=1.0, t_end=1.0, n_runs=3000, scheme="reflected").isel(time=0, drop=True)
    flat = mf.gibbs(problem, mf.Grid(2))
    assert abs(z_score(mf.wasserstein(run, flat), truths["wasserstein1_uniform"]["values"][f"EW1_N{n}"])) < 5
    assert abs(z_score(mf.wasserstein(run, flat, order=2) ** 2, truths["wasserstein2_uniform"]["values"][f"N{n}"])) < 5


def test_bug_47_zero_temperature_ground_states():
    """The cold log gas on [-1, 1] comes to rest on Fekete points."""
    for n, expected in ((4, [1, 0.4472136]), (5, [1, 0.6546537, 0])):
        problem = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(), float("inf"))
        run = mf.simulate(problem, n_particles=n, dt=2e-3, t_end=20.0, seed=2, save_every=10_000)
        found = np.sort(np.abs(run["position"].values[0, -1, :, 0]))[::-1]
        rest = np.repeat(expected, 2)[:n] if n % 2 == 0 else np.append(np.repeat(expected[:-1], 2), 0)
        assert found == pytest.approx(rest, abs=1e-6)


def test_bug_47_strength_zero_is_independence():
    """No strength, no change, bit for bit."""
    arguments = {"n_particles": 12, "dt": 1e-2, "t_end": 0.5, "n_runs": 2, "seed": 3}
    free = mf.simulate(mf.Problem(mf.Interval(0, 1), mf.Zero()), **arguments)
    silent = mf.simulate(mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(0.0)), **arguments)
    assert np.array_equal(free["position"].values, silent["position"].values)
