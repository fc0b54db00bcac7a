"""Exact laws under every scheme: the named examples, Dyson and Coulomb gases, ground states, beta-ensembles; |z| < 4."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.linalg import eigh_tridiagonal

import meanfield as mf

pytestmark = pytest.mark.full  # a minute; the same laws of "projected" are in test_exact_laws.py


def z_score(values, expected):
    return (np.mean(values) - expected) / (np.std(values, ddof=1) / math.sqrt(len(values)))


@pytest.mark.parametrize("name", mf.example_names())
def test_examples_show_their_known_answers(name):
    case = mf.example(name)
    run = case.run(threads=1)
    for fact in case.facts:
        values = np.asarray(fact.measure(run))
        if fact.tolerance:
            assert np.abs(values - fact.value).max() < fact.tolerance, fact.sentence
        else:
            assert abs(z_score(values, fact.value)) < 4, fact.sentence


def test_examples_agree_with_the_tables(truths):
    """The numbers of the examples against numbers that were derived elsewhere."""
    def value(name, k):
        return mf.example(name).facts[k].value

    dyson, walls = (truths[name]["values"] for name in ("dyson_finiteN_second_moment", "projected_euler_rbm"))
    assert value("dyson", 0) == pytest.approx(dyson["E_m2_N10_b2_t0.5"], abs=1e-14)
    assert value("reflected-brownian-motion", 0) == pytest.approx(walls["EX_h0.01_t1"], abs=1e-14)
    assert value("hermite", 0) == pytest.approx(0.3886256087899733, abs=1e-14)
    assert value("hermite", 1) == pytest.approx(1.086608921828444, abs=1e-14)
    assert value("fekete", 0) * 9 / 10 == pytest.approx(0.1594059960147773, abs=1e-14)  # divided by N there
    assert value("fekete", 1) == pytest.approx(0.9195339081664588, abs=1e-13)
    assert value("coulomb-line", 0) == pytest.approx(-0.165, abs=1e-14)


@pytest.mark.parametrize(("scheme", "n"), [
    ("projected", 2), ("projected", 5), ("projected", 20), pytest.param("projected", 50, marks=pytest.mark.full),
    ("adaptive", 2), pytest.param("adaptive", 10, marks=pytest.mark.full)])
def test_dyson_second_moments_have_their_one_over_n_term(scheme, n):
    """E m2(t) = m + (m2(0) - m) exp(-2 t), m = 1 / beta + (N - 1) / (2 N); the mean-field value is refused at small N."""
    beta, runs = 2.0, 4000 if n <= 10 else 1000
    start = np.linspace(-1, 1, n)[:, None]
    start *= math.sqrt(2.0 / np.mean(start**2))
    problem = mf.Problem(mf.Interval(-30, 30), mf.Quadratic(), mf.Log((n - 1) / n), beta)
    run = mf.simulate(problem, n_particles=n, dt=2e-3, t_end=0.5, n_runs=runs, initial=start, save_every=1000, threads=1,
                      scheme=scheme)
    m2 = np.square(run["position"].values[:, -1, :, 0]).mean(axis=1)
    exact = [rest + (2.0 - rest) * math.exp(-1.0) for rest in (1 / beta + (n - 1) / (2 * n), 1 / beta + 0.5)]
    assert abs(z_score(m2, exact[0])) < 4
    if n == 2:
        assert z_score(m2, exact[1]) < -4


def test_ground_states_to_1e_8():
    """Positions of all particles: Hermite zeros, Fekete points, equispaced charges, from random starts."""
    n = 10
    legendre = np.polynomial.Legendre.basis(n - 1).deriv().roots()
    for name, points in (("hermite", np.polynomial.hermite.hermgauss(n)[0] / math.sqrt(n)),
                         ("fekete", np.sort(np.concatenate([[-1], legendre, [1]]))),
                         ("coulomb-line", (2 * np.arange(1, n + 1) - n - 1) / n)):
        run = mf.example(name).run(n_runs=3, seed=4)
        found = np.sort(run["position"].values[:, -1, :, 0], axis=1)
        assert np.abs(found - points).max() < 1e-8, name


@pytest.mark.parametrize(("n", "points"), [(4, [-1, -0.4472136, 0.4472136, 1]), (5, [-1, -0.6546537, 0, 0.6546537, 1])])
def test_bug_47_cold_log_gas_rests_on_fekete_points(n, points):
    problem = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(), math.inf)
    run = mf.simulate(problem, n_particles=n, dt=0.5, t_end=20.0, scheme="flow", seed=2)
    assert np.sort(run["position"].values[0, -1, :, 0]) == pytest.approx(points, abs=1e-7)


def test_bug_47_support_of_the_large_log_gas():
    """N = 400 in a well |x|^2 / 2, pair sum over N - 1: the semicircle on +-sqrt(2), at index 2 (GUE) and cold."""
    n, beta = 400, 2.0
    for scheme, temperature in (("projected", beta * (n - 1)), ("flow", math.inf)):
        problem = mf.Problem(mf.Interval(-5, 5), mf.Quadratic(), mf.Log(), temperature)
        run = mf.simulate(problem, n_particles=n, dt=1e-3 if scheme == "projected" else 0.5, t_end=4.0, scheme=scheme,
                          initial=np.linspace(-2, 2, n)[:, None], save_every=10**4)
        x = run["position"].values[0, -1, :, 0]
        assert abs(x.max() / math.sqrt(2) - 1) < 0.05
        assert abs(x.min() / math.sqrt(2) + 1) < 0.05
        stored = json.loads(run.attrs["config"])
        assert (stored["n_particles"], stored["problem"]["interaction"]["strength"]) == (n, 1.0)


@pytest.mark.parametrize("scheme", ["projected", "reflected", "tamed", "adaptive", "flow", "metropolis"])
def test_bug_47_strength_zero_is_independence_under_every_scheme(scheme):
    beta = math.inf if scheme == "flow" else 5.0
    arguments = {"n_particles": 12, "dt": 1e-2, "t_end": 0.2, "n_runs": 2, "seed": 3, "scheme": scheme}
    free, silent = (mf.simulate(mf.Problem(mf.Interval(0, 1), mf.Quadratic(), g, beta), **arguments)
                    for g in (mf.NoInteraction(), mf.Log(0.0)))
    assert np.array_equal(free["position"].values, silent["position"].values)


def test_self_similar_spreading_at_zero_temperature(truths):
    """Scaled Hermite zeros stay scaled Hermite zeros: the semicircle's radius law holds exactly at finite N."""
    n, truth = 40, truths["zero_temperature_spreading"]["values"]
    zeros = np.polynomial.hermite.hermgauss(n)[0][:, None]
    free, confined = truth["R2_1d_t1_free"], truth["R_1d_conf_t1"] ** 2
    for potential, r0, known in ((mf.Zero(), 1.0, free), (mf.Quadratic(), 0.5, confined)):
        problem = mf.Problem(mf.Interval(-10, 10), potential, mf.Log((n - 1) / n), math.inf)
        run = mf.simulate(problem, n_particles=n, dt=0.1, t_end=1.0, scheme="flow", initial=zeros * r0 / math.sqrt(2 * n))
        radius2 = 2 * n * np.square(run["position"].values[0, -1] / zeros)
        assert radius2 == pytest.approx(known, rel=1e-8)
    # in the plane the second moment grows by exactly (N - 1) / N t
    problem = mf.Problem(mf.Ball(10.0, 2), mf.Zero(), mf.Log((n - 1) / n), math.inf)
    run = mf.simulate(problem, n_particles=n, dt=0.1, t_end=1.0, scheme="flow", initial=mf.Ball(1.0, 2).sample(n, 3))
    m2 = np.square(run["position"].values[0]).sum(axis=-1).mean(axis=-1)
    assert m2 - m2[0] == pytest.approx((n - 1) / n * run["time"].values, abs=1e-8)


def test_circular_law_at_zero_temperature(truths):
    """2-D log gas, |x|^2 / 2: m2 exactly (N - 1) / (2 N) at rest; energy and radius within their finite-N corrections."""
    n, truth = 80, truths["loggas2d_quadratic_circular"]["values"]
    problem = mf.Problem(mf.Ball(5.0, 2), mf.Quadratic(), mf.Log((n - 1) / n), math.inf)
    run = mf.simulate(problem, n_particles=n, dt=1.0, t_end=60.0, scheme="flow", threads=1,
                      initial=mf.Ball(1.0, 2).sample(n, 3))
    x = run["position"].values[0, -1]
    assert np.square(x).sum(axis=1).mean() == pytest.approx((n - 1) / (2 * n), abs=1e-8)
    # H_N = 3 / 8 - log(N) / (4 N) + O(1 / N)
    assert mf.hamiltonian(problem, x) == pytest.approx(truth["energy"] - math.log(n) / (4 * n), abs=0.5 / n)
    assert np.linalg.norm(x, axis=1).max() == pytest.approx(truth["R"], abs=1 / math.sqrt(n))


def test_coulomb_ball_at_zero_temperature(truths):
    """3-D Coulomb, |x|^2 / 2: virial m2 = pair energy at rest, energy 9 / 10 up to the lattice term, order N^(-2/3)."""
    n, truth = 80, truths["coulomb3d_quadratic_and_wall"]["values"]
    problem = mf.Problem(mf.Ball(5.0, 3), mf.Quadratic(), mf.Coulomb(3, (n - 1) / n), math.inf)
    run = mf.simulate(problem, n_particles=n, dt=1.0, t_end=60.0, scheme="flow", threads=1,
                      initial=mf.Ball(1.0, 3).sample(n, 3))
    x = run["position"].values[0, -1]
    m2, energy = np.square(x).sum(axis=1).mean(), mf.hamiltonian(problem, x)
    assert m2 == pytest.approx(energy - m2 / 2, abs=1e-6)  # soft modes are slow
    assert truth["energy"] - 1.0 * n ** (-2 / 3) < energy < truth["energy"]
    assert energy == pytest.approx(truth["energy"] - 0.89 * n ** (-2 / 3), abs=0.004)
    assert np.linalg.norm(x, axis=1).max() == pytest.approx(1.0, abs=n ** (-1 / 3))


def hermite_ensemble(n, index, size, seed):
    """Points with density prod |x_i - x_j|^index exp(-sum x^2 / 2) (Dumitriu, Edelman 2002)."""
    rng = np.random.default_rng(seed)
    return np.array([eigh_tridiagonal(rng.standard_normal(n), np.sqrt(rng.chisquare(index * np.arange(n - 1, 0, -1)) / 2),
                                      eigvals_only=True) for _ in range(size)])


def ten_statistics(x):
    x = np.sort(x, axis=-1)
    gaps, n = np.diff(x, axis=-1), x.shape[-1]
    distance = np.abs(x[:, :, None] - x[:, None])[:, *np.triu_indices(n, 1)]
    return {"mean": x.mean(-1), "mean square": (x**2).mean(-1), "fourth moment": (x**4).mean(-1), "largest": x[:, -1],
            "smallest": x[:, 0], "width": x[:, -1] - x[:, 0], "mean |x|": np.abs(x).mean(-1), "smallest gap": gaps.min(-1),
            "middle gap": gaps[:, n // 2 - 1], "log distance": np.log(distance).mean(-1)}


@pytest.mark.parametrize(("n", "index", "dt", "t_end"), [(2, 1.0, 0.3, 15.0), (8, 0.2, 0.05, 8.0), (8, 2.0, 0.04, 8.0),
                                                        (16, 1.0, 0.02, 8.0)])
def test_metropolis_samples_the_beta_ensemble(n, index, dt, t_end):
    """Ten statistics of the unsoftened log gas against the tridiagonal ensemble; index = beta strength / (N - 1)."""
    # 8,000 draws, so that the reference's own scatter counts little beside the runs'; its second moment is known
    reference = hermite_ensemble(n, index, 8000, 3)
    assert abs(z_score(np.square(reference).mean(axis=1), 1 + index * (n - 1) / 2)) < 4
    beta = 2.0
    problem = mf.Problem(mf.Interval(-40, 40), mf.Quadratic(), mf.Log(index * (n - 1) / beta), beta)
    start = np.linspace(-2, 2, n)[:, None]
    run = mf.simulate(problem, n_particles=n, dt=dt, t_end=t_end, n_runs=1500 if n < 16 else 400, initial=start,
                      scheme="metropolis", save_every=10**4, threads=1)
    assert 0.4 < float(run["acceptance_fraction"][:, -1].mean()) < 0.95
    ours, theirs = ten_statistics(run["position"].values[:, -1, :, 0]), ten_statistics(reference / math.sqrt(beta))
    assert abs(z_score(ours["mean square"], (1 + index * (n - 1) / 2) / beta)) < 4
    for name, a in ours.items():
        b = theirs[name]
        z = (a.mean() - b.mean()) / math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        assert abs(z) < 4, (name, z)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["projected", "adaptive"])
def test_dynamics_at_rest_sample_the_beta_ensemble(scheme):
    """The same ten statistics from the discretised dynamics, dt = 1e-3, colliding particles (index 0.3)."""
    n, index, beta = 8, 0.3, 2.0
    problem = mf.Problem(mf.Interval(-40, 40), mf.Quadratic(), mf.Log(index * (n - 1) / beta), beta)
    run = mf.simulate(problem, n_particles=n, dt=1e-3, t_end=3.0, n_runs=1000 if scheme == "projected" else 300,
                      initial=np.linspace(-2, 2, n)[:, None], scheme=scheme, save_every=10**4, threads=1)
    ours = ten_statistics(run["position"].values[:, -1, :, 0])
    theirs = ten_statistics(hermite_ensemble(n, index, 3000, 1) / math.sqrt(beta))
    for name, a in ours.items():
        b = theirs[name]
        z = (a.mean() - b.mean()) / math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        assert abs(z) < 4, (name, z)


@pytest.mark.parametrize(("n", "dt", "steps"), [(2, 0.05, 200), (4, 0.01, 300), (16, 5e-4, 900)])
def test_metropolis_has_selbergs_averages(n, dt, steps):
    """Log gas on [0, 1], unsoftened: averages of log x and of log |x_k - x_l| are derivatives of Selberg's integral."""
    from scipy.special import gammaln

    beta = float(n)
    gamma, j = beta / (2 * (n - 1)), np.arange(n)

    def selberg(a, g):
        return np.sum(gammaln(a + j * g) + gammaln(1 + j * g) + gammaln(1 + (j + 1) * g) - gammaln(a + 1 + (n + j - 1) * g)
                      - gammaln(1 + g))

    h = 1e-5
    log_x = (selberg(1 + h, gamma) - selberg(1 - h, gamma)) / (2 * h)
    log_square = (selberg(1, gamma + h) - selberg(1, gamma - h)) / (2 * h)
    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), beta)
    run = mf.simulate(problem, n_particles=n, dt=dt, t_end=dt * steps, n_runs=1000 if n < 16 else 200, scheme="metropolis",
                      save_every=10**4, threads=1, initial=np.linspace(0.05, 0.95, n)[:, None])
    x = run["position"].values[:, -1, :, 0]
    pairs = np.abs(x[:, :, None] - x[:, None])[:, *np.triu_indices(n, 1)]
    assert abs(z_score(np.log(x).sum(axis=1), log_x)) < 4
    assert abs(z_score(2 * np.log(pairs).sum(axis=1), log_square)) < 4
    assert abs(z_score(x.mean(axis=1), 0.5)) < 4
