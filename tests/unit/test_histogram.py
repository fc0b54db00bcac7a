"""Histograms that lose nothing (BUG-21)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanfield as mf


def cloud():
    inner = np.random.default_rng(0).uniform(0, 1, 500)
    return np.concatenate([inner, np.ones(300), np.zeros(200)])[:, None]


@pytest.mark.parametrize("bins", [7, 10, 20])
@pytest.mark.parametrize("make", [lambda n: np.linspace(0, 1, n + 1), lambda n: np.append(np.arange(n) / n, 1.0)])
def test_bug_21_atoms_on_the_walls_are_counted(bins, make):
    edges = make(bins)
    counts, density = mf.density_histogram(cloud(), edges)
    assert counts.sum() == 1000
    assert (density * np.diff(edges)).sum() == pytest.approx(1, abs=1e-14)
    assert counts[-1] >= 300
    assert counts[0] >= 200
    assert_array_equal(counts, np.histogram(cloud(), edges)[0])  # which closes the last bin too


@pytest.mark.parametrize("stray", [np.nextafter(1, 2), -5e-324, 1e300])
def test_bug_21_a_particle_outside_is_an_error(stray):
    x = cloud()
    x[17] = stray
    with pytest.raises(ValueError, match=r"within the edges \[0.0, 1.0\], got .* for particle 17"):
        mf.density_histogram(x, np.linspace(0, 1, 11))
    short = np.append(np.arange(10) / 10, np.nextafter(1, 0))  # an edge a few ulp below the wall
    with pytest.raises(ValueError, match="for particle 500; widen the edges"):
        mf.density_histogram(cloud(), short)


def test_bug_21_four_walls_and_corners():
    x = np.array([[a, b] for a in (0, 0.3, 1) for b in (0, 0.6, 2)] * 5, dtype=float)
    edges = (np.linspace(0, 1, 4), np.linspace(0, 2, 6))
    counts, density = mf.density_histogram(x, edges)
    assert counts.shape == (3, 5)
    assert counts.sum() == 45
    assert [counts[0, 0], counts[0, -1], counts[-1, 0], counts[-1, -1]] == [10, 10, 5, 5]
    assert (density / 15 * 2).sum() == pytest.approx(1)
    weighted, _ = mf.density_histogram(x, edges, weights=np.full(45, 0.5))
    assert_array_equal(weighted, counts / 2)


def test_bug_21_disc_and_leading_axes():
    problem = mf.Problem(mf.Ball(1.0, 2), mf.Quadratic(-20.0), inverse_temperature=1.0)
    run = mf.simulate(problem, n_particles=200, dt=1e-3, t_end=0.2, n_runs=3, save_every=100)
    assert run["clipped_fraction"].max() > 0.1
    edge = np.linspace(-1, 1, 8)
    counts, density = mf.density_histogram(run["position"], (edge, edge))
    assert counts.shape == (3, 3, 7, 7)
    assert_array_equal(counts.sum(axis=(2, 3)), 200)
    assert_allclose((density * (2 / 7) ** 2).sum(axis=(2, 3)), 1)
    alone, _ = mf.density_histogram(run["position"].values[1, 2], (edge, edge))
    assert_array_equal(alone, counts[1, 2])


@pytest.mark.parametrize(("x", "edges", "weights", "sentence"), [
    (np.zeros((4, 3)), [0, 1], None, "with 1 or 2 components"),
    (np.zeros(4), [0, 1], None, "positions must have shape"),
    (np.zeros((4, 1)), [0, 0, 1], None, "edges must be two or more increasing numbers"),
    (np.zeros((4, 2)), ([0, 1],), None, "edges must be a pair of arrays"),
    (np.zeros((4, 1)), [0, 1], np.ones(3), "weights must have shape"),
    (np.zeros((4, 1)), [0, 1], np.zeros(4), "not all zero"),
    (np.full((4, 1), np.nan), [0, 1], None, "positions must be finite"),
])
def test_bad_histograms(x, edges, weights, sentence):
    with pytest.raises(ValueError, match=sentence):
        mf.density_histogram(x, edges, weights=weights)
