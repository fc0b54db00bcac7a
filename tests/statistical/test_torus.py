"""Exact laws on the circle: free diffusion, and the order parameter of the noisy Kuramoto model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ive

import meanfield as mf


@pytest.mark.parametrize("dim", [1, 2])
def test_free_diffusion_on_the_torus(dim):
    """E cos(x(t) - x(0)) = exp(-t / beta) in each component, and uniform stays uniform: |z| < 5."""
    beta, t, n = 2.0, 1.5, 20_000
    torus = mf.Torus(2 * math.pi, dim)
    run = mf.simulate(mf.Problem(torus, inverse_temperature=beta), n_particles=n, dt=0.5, t_end=t, threads=1)
    x = run["position"].values[0]
    assert torus.contains(x).all()
    values = np.cos(x[-1] - x[0])
    z = (values.mean() - math.exp(-t / beta)) / (values.std(ddof=1) / math.sqrt(values.size))
    assert abs(z) < 5
    share = (x[-1] < math.pi / 2).mean()
    assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / (n * dim))


def test_kuramoto_order_parameter(truths):
    """r = I_1(beta K r) / I_0(beta K r) for g = -K cos r on the circle (Sakaguchi 1988), and its free energy by parts."""
    truth = truths["kuramoto_noisy_order"]
    beta, strength = truth["params"]["beta"], truth["params"]["K"]
    r = brentq(lambda r: ive(1, beta * strength * r) / ive(0, beta * strength * r) - r, 0.1, 1.0)
    normal = math.log(2 * math.pi * ive(0, beta * strength * r)) + beta * strength * r
    assert -normal / beta + strength * r * r / 2 == pytest.approx(float(truth["values"]["F"]), abs=1e-12)
    problem = mf.Problem(mf.Torus(2 * math.pi, 1), mf.Zero(), mf.CosinePair(strength), beta)
    n, runs = 1000, 16
    run = mf.simulate(problem, n_particles=n, dt=0.01, t_end=6.0, n_runs=runs, save_every=100, threads=1,
                      initial=np.full((n, 1), 1.0))
    angle = run["position"].values[:, -2:, :, 0]
    order = np.abs(np.exp(1j * angle).mean(axis=-1)).mean(axis=-1)
    stderr = order.std(ddof=1) / math.sqrt(runs)
    assert stderr < 0.005
    assert abs(order.mean() - r) < 5 * stderr
    energy = mf.hamiltonian(problem, run)[:, -1].values
    assert abs(energy.mean() + strength * r * r / 2) < 5 * energy.std(ddof=1) / math.sqrt(runs) + strength / (2 * n)
    below = mf.Problem(problem.domain, mf.Zero(), mf.CosinePair(0.5), beta)  # K < K_c = 2 / beta: incoherent
    run = mf.simulate(below, n_particles=n, dt=0.02, t_end=16.0, save_every=800, threads=1,
                      initial=np.full((n, 1), 1.0))
    assert abs(np.exp(1j * run["position"].values[0, -1, :, 0]).mean()) < 5 / math.sqrt(n)
