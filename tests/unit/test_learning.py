"""Alignment: the U-statistic, its gradient, its phase average; KernelFeatures as a scikit-learn transformer."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from oracles import finite_difference
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import meanfield as mf
from meanfield.learning.normalized import normalized_alignment
from meanfield.learning.synthetic import logit_task, radial_task

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3))
Y = np.where(X[:, 0] * X[:, 1] + 0.2 * RNG.standard_normal(30) > 0, 1.0, -1.0)
W = RNG.standard_normal((5, 3))


def u_statistic(features, y):
    """method.md (3.2), the double sum."""
    n = len(y)
    total = sum(y[i] * y[j] * features[i] * features[j] for i in range(n) for j in range(n) if i != j)
    return -total / (n * (n - 1))


@pytest.mark.parametrize("center", [False, True])
def test_value_is_the_u_statistic_for_given_phases(center):
    phases = RNG.uniform(0, 2 * np.pi, 5)
    potential = mf.KernelAlignment(X, Y, phases=phases, center_labels=center)
    y = Y - Y.mean() if center else Y
    for k in range(5):
        features = np.sqrt(2) * np.cos(X @ W[k] + phases[k])
        assert potential.value(W)[k] == pytest.approx(u_statistic(features, y), rel=1e-12)


def test_value_without_phases_is_their_average():
    """Lemma 3 with the constant made explicit (method.md 3.3), against 64 equally spaced phases (exact for cosines)."""
    potential = mf.KernelAlignment(X, Y)
    phases = 2 * np.pi * np.arange(64) / 64
    averaged = np.mean([mf.KernelAlignment(X, Y, phases=np.full(5, b)).value(W) for b in phases], axis=0)
    assert_allclose(potential.value(W), averaged, rtol=1e-12)
    assert_allclose(potential.gradient(W),
                    np.mean([mf.KernelAlignment(X, Y, phases=np.full(5, b)).gradient(W) for b in phases], axis=0),
                    atol=1e-14)
    n = 30
    closed = -np.abs(np.exp(1j * W @ X.T) @ Y) ** 2 / (n * (n - 1)) + 1 / (n - 1)
    assert_allclose(potential.value(W), closed, rtol=1e-12)


@pytest.mark.parametrize("phases", [None, np.arange(5.0)])
def test_gradient_is_the_derivative(phases):
    potential = mf.KernelAlignment(X, Y, phases=phases, center_labels=True)
    assert_allclose(potential.gradient(W), finite_difference(lambda w: potential.value(w).sum(), W), rtol=1e-6, atol=1e-9)


def test_blocks_change_nothing():
    many = RNG.standard_normal((7, 900, 3))
    potential = mf.KernelAlignment(X, Y)
    assert_allclose(potential.value(many)[3], potential.value(many[3]), rtol=1e-12)


def test_minibatch_gradient_is_unbiased_and_a_function_of_the_step():
    potential = mf.KernelAlignment(X, Y, batch_size=8, seed=4)
    draws = np.array([potential.step_gradient(W, step) for step in range(4000)])
    error = (draws.mean(axis=0) - potential.gradient(W)) / (draws.std(axis=0) / np.sqrt(4000))
    assert np.abs(error).max() < 5
    assert_array_equal(potential.step_gradient(W, 17), draws[17])


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: mf.KernelAlignment(X, Y[:-1]), r"same number of samples, two or more, got \(30, 3\) and \(29,\)"),
    (lambda: mf.KernelAlignment(X, np.ones(30)), "y must have two different labels, got only 1"),
    (lambda: mf.KernelAlignment(X[:, 0], Y), "X must have 2 dimension"),
    (lambda: mf.KernelAlignment(X, Y, feature_map="rbf"), "feature_map must be one of 'rff', got 'rbf'"),
    (lambda: mf.KernelAlignment(X, Y).value(np.zeros((2, 4))), "positions have 4 components, but the inputs X have 3"),
    (lambda: mf.KernelAlignment(X, Y, phases=np.zeros(3)).value(W), "there are 3 phases for 5 particles"),
    (lambda: mf.NormalizedAlignment(X, np.ones(30)), "y must have two different labels, got only 1"),
])
def test_bad_input(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


def test_normalised_alignment_is_the_formula():
    """<K_c, Y_c> / (|K_c| |Y_c|) with n x n matrices (method.md 3.6)."""
    features, targets = RNG.standard_normal((2, 20, 6)), np.eye(3)[RNG.integers(0, 3, 20)]
    H = np.eye(20) - 1 / 20
    value, gradient = normalized_alignment(features, targets)
    for z, a, g in zip(features, value, gradient, strict=True):
        K, L = H @ z @ z.T @ H, H @ targets @ targets.T @ H
        assert a == pytest.approx((K * L).sum() / np.linalg.norm(K) / np.linalg.norm(L), rel=1e-12)
        assert_allclose(g, finite_difference(lambda u: float(normalized_alignment(u, targets)[0]), z), rtol=1e-6, atol=1e-9)
    value, gradient = normalized_alignment(np.ones((20, 6)), targets)
    assert value == 0
    assert not gradient.any()


def test_synthetic_tasks_are_reproducible_and_as_described():
    a, b, other = logit_task(1.0, 0), logit_task(1.0, 0), logit_task(1.0, 1)
    assert_array_equal(a.y, b.y)
    assert_array_equal(a.X, other.X)  # trials resample labels only
    assert (a.y != other.y).any()
    assert a.X.shape == (400, 10)
    quiet = np.mean([(logit_task(0.0, k).y + 1) / 2 for k in range(400)], axis=0)
    error = (quiet - a.probability) / np.sqrt(a.probability * (1 - a.probability) / 400)
    assert np.abs(error).max() < 5
    x, y = radial_task(100, 4, 0)
    assert_array_equal(y, np.where((x**2).sum(axis=1) > 4, 1, -1))


def test_kernel_features_learn_and_behave():
    x, y = radial_task(600, 4, 1)
    learnt = mf.KernelFeatures(17, random_state=3).fit(x, y)
    assert learnt.particles_.shape == (9, 4)
    assert learnt.transform(x).shape == (600, 17)
    assert learnt.alignment_[1] > 2 * learnt.alignment_[0]
    assert learnt.run_.sizes["particle"] == 9
    again = clone(learnt).fit(x, np.where(y > 0, "yes", "no"))
    assert_array_equal(again.particles_, learnt.particles_)
    fixed = mf.KernelFeatures(16, learned=False, random_state=3).fit(x, y)
    assert fixed.run_ is None
    gram = fixed.transform(x) @ fixed.transform(x).T
    delta = x[:5, None] - x[None, :5]
    assert_allclose(gram[:5, :5], np.cos(delta @ fixed.particles_.T).mean(axis=-1), atol=1e-12)
    score = make_pipeline(mf.KernelFeatures(16, random_state=0), LogisticRegression()).fit(x, y).score(x, y)
    assert score > 0.7
    assert list(learnt.get_feature_names_out())[:2] == ["kernelfeatures0", "kernelfeatures1"]


@pytest.mark.parametrize(("change", "sentence"), [
    ({"y": np.ones(600)}, "KernelFeatures aligns with two classes so far, got 1 class"),
    ({"y": np.arange(600) % 3}, "KernelFeatures aligns with two classes so far, got 3 class"),
    ({"X": np.full((600, 4), np.nan)}, "contains NaN"),
    ({"n_features": 0}, "n_features must be a whole number of at least 1, got 0"),
    ({"feature_map": "sine"}, "feature_map must be one of 'rff', got 'sine'"),
    ({"step": -1}, "step must be positive and finite, got -1"),
])
def test_kernel_features_refuse(change, sentence):
    x, y = radial_task(600, 4, 1)
    X, labels = change.pop("X", x), change.pop("y", y)
    with pytest.raises(ValueError, match=sentence):
        mf.KernelFeatures(**change).fit(X, labels)


def test_learning_is_the_simulator():
    """The particles of fit are those of simulate on the same problem, bit for bit."""
    import json

    x, y = radial_task(300, 2, 1)
    model = mf.KernelFeatures(12, alignment="linear", random_state=5, n_steps=30).fit(x, y)
    config = json.loads(model.run_.attrs["config"])
    problem = mf.Problem(mf.Ball(config["problem"]["domain"]["radius"], 2), model.potential_,
                         mf.Riesz(0.0, 1e-2, config["problem"]["interaction"]["softening"]), 1e4)
    run = mf.simulate(problem, n_particles=6, dt=config["dt"], t_end=30 * config["dt"], seed=5,
                      initial=model.run_["position"].values[0, 0], save_every=1)
    assert_array_equal(run["position"].values[0, -1], model.particles_)


def test_the_kernel_of_particles_tends_to_that_of_the_density():
    """K_{mu^N} of N independent draws from the Gibbs density errs like N^(-1/2), with the variance of the cosines."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((12, 1))
    potential = mf.KernelAlignment(X, np.where(np.sin(2 * X[:, 0]) > 0, 1.0, -1.0))
    problem = mf.Problem(mf.Interval(-5, 5), potential, mf.Log(0.05), 20.0)
    rest = mf.gibbs(problem, mf.Grid(400))
    limit = mf.feature_kernel(potential, rest)
    assert limit.dims == ("sample", "other")
    np.testing.assert_allclose(np.diag(limit), 1, atol=1e-12)
    # int cos(w d) rho from the panels, all digits
    exact = mf.gibbs(problem, mf.Grid(10), method="panels")
    cosines = np.cos(exact["node_place"].values[:, None, None] * (X - X[:, 0]))
    masses = (exact["node_weight"] * exact["node_density"]).values
    np.testing.assert_allclose(limit, np.einsum("k,kij->ij", masses, cosines), atol=2e-4)
    # draws by inversion of the cells' distribution
    h = 10 / 400
    cumulative = np.append(0.0, np.cumsum(rest["density"].values * h))
    variance = np.einsum("k,kij->ij", masses, cosines**2) - np.einsum("k,kij->ij", masses, cosines) ** 2
    spread = np.sqrt(np.maximum(variance, 0.0))
    for n in (400, 40_000):
        draws = np.interp(rng.random((1, n, 1)), cumulative, np.linspace(-5, 5, 401))
        particles = xr.DataArray(draws, dims=("run", "particle", "component"))
        kernel = mf.feature_kernel(potential, particles)
        assert kernel.dims == ("run", "sample", "other")
        error = np.abs(kernel.isel(run=0).values - limit.values)
        assert (error <= 5 * spread / np.sqrt(n) + 3e-4).all()
        assert error.max() > 0.1 * spread.max() / np.sqrt(n)


def test_feature_kernels_need_fitting_shapes():
    potential = mf.KernelAlignment.example(2)
    line = mf.gibbs(mf.Problem(mf.Interval(-1, 1)), mf.Grid(10))
    with pytest.raises(ValueError, match="must have the 2 components of the alignment's X, got 1 and 2"):
        mf.feature_kernel(potential, line)
    with pytest.raises(ValueError, match="phases belong to particles"):
        mf.feature_kernel(mf.KernelAlignment(potential.X, potential.y, phases=np.zeros(3)), line)
    plane = xr.DataArray(np.ones((4, 3, 3)), dims=("time", "x", "y"), coords={"x": [-1.0, 0, 1], "y": [-2.0, 0, 2]})
    kernel = mf.feature_kernel(potential, plane)
    d = potential.X[0] - potential.X[1]
    assert float(kernel[2, 0, 1]) == pytest.approx((1 + 2 * np.cos(d[0])) * (1 + 2 * np.cos(2 * d[1])) / 9, abs=1e-14)
