"""The entropy of particles: exact laws, its bias and its rate; the free energy of particles beside that of the density."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meanfield as mf


def z_score(values, exact):
    return (values.mean() - exact) / (values.std(ddof=1) / math.sqrt(values.size))


@pytest.mark.parametrize("neighbours", [1, 3, 10])
def test_spacings_of_uniform_points_are_unbiased(neighbours):
    points = np.random.default_rng(0).uniform(0, 2, (400, 200, 1))
    estimate = mf.particle_entropy(points, neighbours=neighbours)
    assert estimate.shape == (400,)
    assert abs(z_score(estimate, -math.log(2))) < 4


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_gaussian_points(dim):
    """Ent = -d / 2 log(2 pi e), with a bias that falls with N."""
    rng, exact = np.random.default_rng(dim), -0.5 * dim * math.log(2 * math.pi * math.e)
    errors = []
    for n in (200, 3200):
        estimate = mf.particle_entropy(rng.standard_normal((60, n, dim)), neighbours=4)
        errors.append(abs(estimate.mean() - exact))
        assert estimate.std() < 2.5 * math.sqrt(dim) / math.sqrt(n)
    assert errors[1] < 0.02 * dim
    assert errors[1] < errors[0] + 0.005


def test_points_on_a_torus_have_no_walls():
    points = np.random.default_rng(1).uniform(0, 3, (200, 300, 2))
    inside = mf.particle_entropy(points, neighbours=5)
    around = mf.particle_entropy(points, neighbours=5, period=3.0)
    assert abs(z_score(around, -2 * math.log(3))) < 4
    assert z_score(inside, -2 * math.log(3)) < -20  # balls that stick out of the walls


def test_free_energy_of_particles_approaches_that_of_the_density():
    """sup over t of |F(mu^N_t) - F(rho_t)| shrinks with N."""
    problem = mf.Problem(mf.Interval(0, 1), mf.Quadratic(4.0), mf.Log(), 5.0)
    times = np.linspace(0, 0.1, 6)
    flow = mf.solve(problem, mf.Grid(400), t_end=0.1, save_at=times)
    sups = []
    for n, runs in ((100, 64), (400, 16), (1600, 4)):
        run = mf.simulate(problem, n_particles=n, n_runs=runs, dt=1e-3, t_end=0.1, save_every=20, scheme="reflected", seed=n)
        gap = np.abs(mf.particle_free_energy(problem, run) - flow["free_energy"].values)
        assert gap.dims == ("run", "time")
        sups.append(float(gap.max("time").mean()))
    rate = mf.fit_rate(np.array([100, 400, 1600]), np.array(sups))
    assert rate.slope < -0.25
    assert sups[-1] < 0.03 * abs(float(flow["free_energy"][0]))


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="with two particles or more, got"):
        mf.particle_entropy(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="2 particles coincide and have no density"):
        mf.particle_entropy(np.array([[0.0], [0.0], [1.0]]), neighbours=1)
    with pytest.raises(ValueError, match="below the number of particles 3, got 3"):
        mf.particle_entropy(np.random.default_rng(0).uniform(size=(3, 2)), neighbours=3)
