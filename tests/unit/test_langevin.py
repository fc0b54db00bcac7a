"""The two compiled passes of a step against NumPy, for any number of components, threads and company."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanfield as mf
from meanfield import schemes
from meanfield._numba import with_threads
from meanfield.kernels import langevin

RNG = np.random.default_rng(0)


def arrays(count, shape):
    return [RNG.standard_normal(shape) for _ in range(count)]


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize(("sigma", "taming"), [(0.3, 0.0), (0.0, 0.0), (0.3, 2.0)])
def test_propose_is_the_formula(dim, sigma, taming):
    x, drift, noise = arrays(3, (5, 37, dim))
    out = np.empty_like(x)
    longest2 = langevin.propose(x, drift, noise, 0.1, sigma, taming, out)
    length = 0.1 * np.linalg.norm(drift, axis=-1, keepdims=True)
    assert_allclose(out, x + 0.1 * drift / (1 + taming * length) + sigma * noise, rtol=0, atol=1e-14)
    assert_allclose(longest2, np.square(length).max(axis=(1, 2)), rtol=1e-14)
    alone = np.empty_like(x)
    for run in range(5):
        langevin.propose(*(a[run:run + 1] for a in (x, drift, noise)), 0.1, sigma, taming, alone[run:run + 1])
    assert_array_equal(alone, out)
    several = langevin.propose(x[:, :11].copy(), drift[:, :11].copy(), noise[:, :11].copy(), 0.1, sigma, taming,
                               shorter := np.empty((5, 11, dim)))
    assert_array_equal(shorter, out[:, :11])
    assert (several <= longest2).all()


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_wins_the_maximum_of_its_run_only(bad):
    x, drift, noise = arrays(3, (6, 20, 2))
    drift[3, 19, 1] = bad
    longest2 = langevin.propose(x, drift, noise, 0.1, 0.0, 0.0, np.empty_like(x))
    assert_array_equal(np.isfinite(longest2), np.arange(6) != 3)
    assert np.isnan(longest2[3]) == np.isnan(bad)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_observe_counts_particles_and_finds_the_longest_way(dim):
    before, proposal = arrays(2, (7, 23, dim))
    moved = np.clip(proposal, -1, 1)
    changed, longest2 = langevin.observe(before, proposal, np.asfortranarray(moved))
    assert_array_equal(changed, (moved != proposal).any(axis=-1).sum(axis=-1))
    assert_allclose(longest2, np.square(proposal - before).sum(axis=-1).max(axis=-1), rtol=1e-14)


def test_threads_change_no_bit():
    x, drift, noise = arrays(3, (3_000, 16, 2))
    found = []
    for threads in (1, 2):
        with with_threads(threads):
            out = np.empty_like(x)
            found.append([out, langevin.propose(x, drift, noise, 0.1, 0.5, 0.0, out), *langevin.observe(x, out, drift)])
    for one, two in zip(*found, strict=True):
        assert_array_equal(one, two)


@pytest.mark.parametrize("domain", [mf.FreeSpace(2), mf.Box(-1, 1, dim=2), mf.Ball(1.5, 2), mf.Torus(2.0, 2)])
@pytest.mark.parametrize("refinement", [1, 2])
def test_runs_that_go_a_few_at_a_time_are_the_runs_together(monkeypatch, domain, refinement):
    problem = mf.Problem(domain, mf.Quadratic(), mf.Log(0.5), 2.0)
    start = RNG.uniform(0.1, 0.9, (11, 8, 2))
    call = {"n_particles": 8, "n_runs": 11, "dt": 1e-2, "t_end": 0.05, "initial": start, "noise_refinement": refinement}
    together = mf.simulate(problem, **call)
    monkeypatch.setattr(schemes, "_TOGETHER", 3 * 16)
    assert together.identical(mf.simulate(problem, **call))
    monkeypatch.setattr(schemes, "_TOGETHER", 1)
    assert together.identical(mf.simulate(problem, **call))


def test_an_unstable_step_names_the_run_wherever_it_is(monkeypatch):
    monkeypatch.setattr(schemes, "_TOGETHER", 8)
    start = np.full((5, 4, 2), 0.1) + 0.01 * np.arange(4)[:, None]
    start[3, 2] = 0.9
    problem = mf.Problem(mf.Box(-1, 1, dim=2), mf.Quadratic(40.0))
    with pytest.raises(mf.UnstableStepError, match="particle 2 of run 3"):
        mf.simulate(problem, n_particles=4, n_runs=5, dt=0.1, t_end=0.1, initial=start)


def test_a_domain_that_changes_the_shape_is_refused():
    class Odd(mf.Box):
        def project(self, points):
            return points[:1]

    problem = mf.Problem(Odd(-1, 1, 2), inverse_temperature=1.0)
    with pytest.raises(ValueError, match=r"Odd must put .* \(2, 3, 2\) back into the same shape, got \(1, 3, 2\)"):
        mf.simulate(problem, n_particles=3, n_runs=2, dt=0.1, t_end=0.1, initial=np.zeros((3, 2)))
