"""The exact log gas: partition functions to all digits, samples against Selberg's and Mehta's averages and `gibbs`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import gammaln

import meanfield as mf


def interval(n, beta, strength=None, low=0.0, high=1.0):
    return mf.Problem(mf.Interval(low, high), mf.Zero(), mf.Log((n - 1) / n if strength is None else strength), beta)


def trap(n, beta, stiffness=1.0, center=0.0):
    return mf.Problem(mf.FreeSpace(1), mf.Quadratic(stiffness, center), mf.Log((n - 1) / n), beta)


def z_score(values, exact):
    return (values.mean() - exact) / (values.std(ddof=1) / math.sqrt(values.size))


def test_partition_functions_are_the_exact_ones(truths):
    """The truths divide the coupling by N, so strength = (N - 1) / N here."""
    found = 0
    for name, make in (("selberg_interval_partition", lambda n, b: interval(n, b, low=-1.0)),
                       ("mehta_gaussian_partition", trap)):
        for key, value in truths[name]["values"].items():
            n = [int(k[1:]) for k in key.split("_") if k.startswith("N") and k[1:].isdigit()]
            beta = [float(k[1:]) for k in key.split("_") if k.startswith("b") and k[1:].isdigit()]
            if n and beta and key.startswith("logZ"):
                assert mf.log_partition(make(n[0], beta[0]), n[0]) == pytest.approx(value, rel=1e-12)
                found += 1
    assert found >= 8


def test_two_particles_by_quadrature():
    beta, strength = 3.0, 0.8
    problem = interval(2, beta, strength, 0.5, 2.5)
    exact = 2 * dblquad(lambda y, x: abs(x - y) ** (beta * strength), 0.5, 2.5, 0.5, lambda x: x, epsabs=1e-12)[0]
    assert mf.log_partition(problem, 2) == pytest.approx(math.log(exact), abs=1e-8)


@pytest.mark.parametrize(("beta", "limit"), [(1.0, 0.736900), (10.0, 0.708436)])
def test_free_energies_tend_to_that_of_the_density(beta, limit):
    """method.md 7.5.5: the digits printed there, and the limit from gibbs."""
    printed = {1.0: (0.711607, 0.734537, 0.736666, 0.736877), 10.0: (0.613937, 0.698599, 0.707446, 0.708336)}[beta]
    sizes = np.array([10, 100, 1000, 10_000])
    values = np.array([-mf.log_partition(interval(n, beta, 1.0), int(n)) / (beta * n) for n in sizes])
    assert [round(v, 6) for v in values] == list(printed)
    assert float(mf.gibbs(interval(2, beta, 1.0), mf.Grid(1000))["free_energy"]) == pytest.approx(limit, abs=5e-6)
    rate = mf.fit_rate(sizes, limit + 0.5e-7 - values)
    assert abs(rate.slope + 1) < 0.05
    cold = [-mf.log_partition(interval(n, float(n), 1.0), n) / n**2 for n in (10, 100, 1000)]  # beta_N = N^2
    assert [round(v, 5) for v in cold] == [0.61394, 0.67587, 0.69031]
    assert 0 < 0.5 * math.log(4) - cold[-1] < 0.003


@pytest.mark.parametrize(("n", "beta"), [(2, 1.0), (5, 3.0), (16, 10.0), (16, 200.0)])
def test_samples_between_walls_have_selbergs_averages(n, beta):
    gamma, j = beta / (2 * (n - 1)), np.arange(n)

    def selberg(a, g):
        return np.sum(gammaln(a + j * g) + gammaln(1 + j * g) + gammaln(1 + (j + 1) * g) - gammaln(a + 1 + (n + j - 1) * g)
                      - gammaln(1 + g))

    h = 1e-5
    x = mf.sample_log_gas(interval(n, beta, 1.0), n, 4000, seed=n)[:, :, 0]
    assert x.shape == (4000, n)
    assert (np.diff(x, axis=1) >= 0).all()
    assert x.min() >= 0
    assert x.max() <= 1
    pairs = np.abs(x[:, :, None] - x[:, None])[:, *np.triu_indices(n, 1)]
    assert abs(z_score(np.log(x).sum(axis=1), (selberg(1 + h, gamma) - selberg(1 - h, gamma)) / (2 * h))) < 4
    assert abs(z_score(np.log(1 - x).sum(axis=1), (selberg(1 + h, gamma) - selberg(1 - h, gamma)) / (2 * h))) < 4
    assert abs(z_score(2 * np.log(pairs).sum(axis=1), (selberg(1, gamma + h) - selberg(1, gamma - h)) / (2 * h))) < 4


@pytest.mark.parametrize(("n", "beta"), [(3, 2.0), (20, 8.0)])
def test_samples_in_a_trap_have_the_exact_moments(n, beta):
    """N m2 kappa beta / 2 is a Gamma variable of shape (N + beta (N - 1) / 2) / 2 in the truths' convention."""
    x = mf.sample_log_gas(trap(n, beta, 2.0, 0.7), n, 6000, seed=1)[:, :, 0]
    shape = (n + 0.5 * beta * (n - 1)) / 2
    energy = 0.5 * beta * 2.0 * np.square(x - 0.7).sum(axis=1)
    assert abs(z_score(energy, shape)) < 4
    assert energy.var(ddof=1) == pytest.approx(shape, rel=0.1)
    assert abs(z_score(x.mean(axis=1), 0.7)) < 4


@pytest.mark.parametrize("beta", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("n", [16, pytest.param(64, marks=pytest.mark.full), pytest.param(256, marks=pytest.mark.full)])
def test_simulate_stays_in_the_exact_law(n, beta):
    """Particles that start as exact samples are exact samples ever after ("metropolis"): three statistics, z < 4."""
    # about half of the proposals are accepted
    dt, runs = 0.02 / n**1.5 * {1.0: 0.7, 10.0: 0.2, 100.0: 0.06}[beta], 400 if n == 16 else 100
    start = mf.sample_log_gas(interval(n, beta, 1.0), n, runs, seed=n)
    run = mf.simulate(interval(n, beta, 1.0), n_particles=n, dt=dt, t_end=dt * 200, n_runs=runs, initial=start,
                      scheme="metropolis", save_every=10**4, seed=5)
    assert float(run["acceptance_fraction"].values[:, -1].mean()) > 0.2
    end, fresh = run["position"].values[:, -1], mf.sample_log_gas(interval(n, beta, 1.0), n, 4000, seed=n + 1)
    assert np.abs(np.sort(end, axis=1) - start).max() > 0.2 / n  # they moved
    for statistic in (lambda x: np.square(x - 0.5).mean(axis=(1, 2)), lambda x: np.log(x).mean(axis=(1, 2)),
                      lambda x: x.max(axis=(1, 2))):
        ours, exact = statistic(end), statistic(fresh)
        assert abs(ours.mean() - exact.mean()) < 4 * math.hypot(ours.std() / math.sqrt(runs), exact.std() / math.sqrt(4000))


@pytest.mark.parametrize("beta", [10.0, *(pytest.param(b, marks=pytest.mark.full) for b in (1.0, 100.0))])
def test_exact_statistics_approach_the_density(beta):
    """E m2 of N = 16 .. 256 against gibbs: the bias falls like 1 / N."""
    rest = mf.gibbs(interval(2, beta, 1.0), mf.Grid(1000))
    limit = float((rest["density"] * (rest["x"] - 0.5) ** 2).sum()) / 1000
    bias, stderr = [], []
    for n in (16, 64, 256):
        m2 = np.square(mf.sample_log_gas(interval(n, beta, 1.0), n, 400, seed=n)[:, :, 0] - 0.5).mean(axis=1)
        bias.append(m2.mean() - limit)
        stderr.append(m2.std(ddof=1) / math.sqrt(m2.size))
    assert abs(bias[2]) < max(4 * stderr[2], abs(bias[0]) / 8)
    assert abs(bias[2]) < 2e-3


def test_other_problems_are_refused_in_one_sentence():
    for problem in (mf.Problem(mf.Interval(0, 1)), mf.Problem(mf.Interval(0, 1), mf.Quadratic(), mf.Log(), 1.0),
                    mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), math.inf),
                    mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(1.0, 0.1), 1.0),
                    mf.Problem(mf.Ball(1.0, 2), mf.Zero(), mf.Log(), 1.0)):
        for call in (lambda p: mf.log_partition(p, 5), lambda p: mf.sample_log_gas(p, 5, 2)):
            with pytest.raises(ValueError, match="exact samples exist for a repulsive unsoftened Log at finite temperature"):
                call(problem)
