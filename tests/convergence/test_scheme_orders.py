"""Orders of the schemes: weak at walls with their exact biases, strong on nested noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

import meanfield as mf


def estimate(values):
    return np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))


def test_projection_has_weak_order_one_half(truths):
    """Reflected Brownian motion from 0: every bias is the exact one, and the slope is 1/2 (exactly, as h falls)."""
    problem, n = mf.Problem(mf.Interval(0, 50), inverse_temperature=2.0), 40_000
    h, errors, stderr = np.array([0.04, 0.01, 0.0025]), [], []
    for dt in h:
        run = mf.simulate(problem, n_particles=n, dt=float(dt), t_end=1.0, initial=np.zeros((n, 1)), save_every=10**4,
                          threads=1)
        mean, se = estimate(run["position"].values[0, -1, :, 0])
        exact = math.sqrt(dt / (2 * math.pi)) * np.sum(np.arange(1, round(1 / dt) + 1) ** -0.5)
        assert abs(mean - exact) < 4 * se
        errors.append(truths["projected_euler_rbm"]["values"]["exact"] - mean)
        stderr.append(se)
    rate = mf.fit_rate(h, np.array(errors), np.array(stderr))
    assert abs(rate.slope - 0.5) < 4 * rate.stderr < 0.15
    assert errors[-1] == pytest.approx(0.5825971579390107 * math.sqrt(h[-1]), abs=0.2 * h[-1] ** 0.5)


@pytest.mark.parametrize("scheme", ["projected", "reflected"])
def test_stationary_bias_of_a_spring_at_a_wall(truths, scheme):
    """x^2 / 2 on [0, inf): biases of the projected chain by Nystroem, of the mirrored one in closed form (order 1)."""
    exact = math.sqrt(2 / math.pi)
    if scheme == "projected":
        table = truths["projected_euler_reflected_ou"]["values"]
        known, order = {float(k[6:]): v for k, v in table.items() if k.startswith("mean_h")}, 0.5
        h = np.array([0.1, 0.05, 0.025])
    else:
        h, order = np.array([0.4, 0.2, 0.1]), 1.0
        known = {float(dt): exact * math.sqrt(2 / (2 - dt)) for dt in h}
        assert known[0.1] == pytest.approx(truths["symmetrised_euler_reflected_ou"]["values"]["sym_mean_h0.1"], abs=1e-14)
    problem = mf.Problem(mf.Interval(0, 50), mf.Quadratic(), inverse_temperature=1.0)
    errors, stderr, n = [], [], 12_000
    for dt in h:
        # saved every 3 units of time: nearly independent states of each particle, averaged
        run = mf.simulate(problem, n_particles=n, dt=float(dt), t_end=24.0, initial=np.full((n, 1), 0.7), scheme=scheme,
                          save_every=round(3 / dt), threads=1)
        mean, se = estimate(run["position"].values[0, 3:, :, 0].mean(axis=0))
        assert abs(mean - known[float(dt)]) < 4 * se
        errors.append(abs(mean - exact))
        stderr.append(se)
    rate = mf.fit_rate(h, np.array(errors), np.array(stderr))
    local = math.log(abs(known[h[0]] - exact) / abs(known[h[-1]] - exact)) / math.log(h[0] / h[-1])
    assert abs(rate.slope - local) < 4 * rate.stderr
    assert abs(local - order) < 0.1  # what the exact biases themselves give at these steps


def test_drifted_projection_has_spitzers_mean(truths):
    """Reflected Brownian motion with drift -1: the exact stationary mean, bias -0.58 sqrt(h) + h / 4."""
    class Slope(mf.Potential):
        formula = "V = x"

        def value(self, positions):
            return positions[..., 0]

        def gradient(self, positions):
            return np.ones(positions.shape)

    truth = truths["projected_euler_drift_stationary"]["values"]
    problem, n = mf.Problem(mf.Interval(0, 50), Slope(), inverse_temperature=2.0), 8_000
    for h in (0.1, 0.01):
        run = mf.simulate(problem, n_particles=n, dt=h, t_end=15.0, initial=np.full((n, 1), 0.4), save_every=round(3 / h),
                          threads=1)
        mean, se = estimate(run["position"].values[0, 3:, :, 0].mean(axis=0))
        assert abs(mean - truth[f"EM_h{h}"]) < 4 * se
        assert mean < truth["exact"] - 4 * se


class Quartic(mf.Potential):
    formula = "V = 5 |x|^4"

    def __repr__(self):
        return "Quartic()"

    def value(self, positions):
        return 5 * np.square(np.square(positions).sum(axis=-1))

    def gradient(self, positions):
        return 20 * np.square(positions).sum(axis=-1, keepdims=True) * positions


SMOOTH = mf.Problem(mf.Box(-6, 6, dim=2), mf.DoubleWell(), (mf.Log(1.0, 0.5), mf.QuadraticPair(0.5)), 4.0)
STEEP = mf.Problem(mf.Box(-6, 6, dim=2), Quartic(), mf.QuadraticPair(0.5), 4.0)
LOG_GAS = mf.Problem(mf.Interval(-10, 10), mf.Quadratic(), mf.Log(3.0), 4.0)  # Dyson index 4: particles never meet
PLANE = np.random.default_rng(0).uniform(-1, 1, (6, 2))


@pytest.mark.parametrize(("problem", "scheme", "start", "levels"), [
    (SMOOTH, "projected", PLANE, range(5, 11)), (SMOOTH, "reflected", PLANE, range(5, 11)),
    (SMOOTH, "tamed", PLANE, range(5, 11)), (SMOOTH, "adaptive", PLANE, range(5, 11)),
    (STEEP, "tamed", PLANE, range(8, 12)), (LOG_GAS, "adaptive", np.linspace(-1, 1, 4)[:, None], range(4, 9)),
], ids=lambda v: v if isinstance(v, str) else "")
def test_strong_order_is_one_for_additive_noise(problem, scheme, start, levels):
    """Mean distance between paths at dt and dt / 2 that share their Brownian motion (noise_refinement)."""
    finest, runs, last = levels[-1], 100, None
    steps, errors, stderr = [], [], []
    for k in levels:
        x = mf.simulate(problem, n_particles=len(start), dt=2.0**-k, t_end=0.5, n_runs=runs, initial=start, scheme=scheme,
                        noise_refinement=2 ** (finest - k), save_every=10**4, threads=1, seed=5)["position"].values[:, -1]
        if last is not None:
            mean, se = estimate(np.linalg.norm(x - last, axis=-1).mean(axis=-1))
            steps.append(2.0 ** (1 - k))
            errors.append(mean)
            stderr.append(se)
        last = x
    rate = mf.fit_rate(np.array(steps), np.array(errors), np.array(stderr))
    print(f"strong order {scheme}: {rate.slope:.3f} +- {rate.stderr:.3f}, errors {errors}")
    assert abs(rate.slope - 1.0) < 4 * rate.stderr < 0.4
    assert errors[-1] < 0.01
