"""Orders of convergence, fitted: |slope - theory| small and the last error capped."""

from __future__ import annotations

import numpy as np
import pytest

import meanfield as mf
from meanfield.mesh import mesh_of
from meanfield.stepping import Stepper


def test_solve_is_second_order_in_space(truths):
    """Ornstein-Uhlenbeck with quadratic attraction: a Gaussian with exact mean and variance (Dawson 1983)."""
    truth = truths["ou_quadratic_mv_moments"]
    problem = mf.Problem(mf.Interval(-6, 6), mf.Quadratic(1.0), mf.QuadraticPair(0.5), 2.0)

    def gaussian(x, mean=1.0, variance=0.25):
        return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)

    cells, errors = np.array([100, 200, 400, 800]), []
    for m in cells:
        flow = mf.solve(problem, mf.Grid(m), t_end=1.0, initial=gaussian, save_at=[0, 0.5, 1.0], tolerance=1e-8)
        edges = np.linspace(-6, 6, m + 1)
        from scipy.stats import norm

        exact = norm(truth["values"]["mean_t1"], np.sqrt(truth["values"]["var_t1"])).cdf(edges)
        errors.append(np.abs(flow["density"].values[-1] * 12 / m - np.diff(exact)).sum())
    rate = mf.fit_rate(cells, np.array(errors))
    assert abs(rate.slope + 2) < max(4 * rate.stderr, 0.03)
    assert errors[-1] < 2e-4
    h, x, rho = 12 / 800, flow["x"], flow["density"]
    mean = (rho * x).sum("x") * h
    variance = (rho * x**2).sum("x") * h - mean**2
    assert mean.values[1:] == pytest.approx([truth["values"][f"mean_t{t}"] for t in ("0.5", "1")], abs=1e-4)
    assert variance.values[1:] == pytest.approx([truth["values"][f"var_t{t}"] for t in ("0.5", "1")], abs=1e-4)


def test_solve_is_second_order_in_time():
    """Fixed steps on one grid against a run with steps sixteen times finer than the finest."""
    problem = mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), mf.Log(), 10.0)
    mesh = mesh_of(problem, mf.Grid(200))
    rho, _ = mesh.density(lambda x: (0.7 * np.exp(-((x + 1) ** 2) / 0.18) + 0.3 * np.exp(-((x - 1) ** 2) / 0.18))
                          / np.sqrt(0.18 * np.pi))

    def advance(n):
        stepper = Stepper(mesh, 1.0, rho)
        for _ in range(n):
            stepper.step(0.5 / n)
        return stepper.density

    reference = advance(5120)
    n = np.array([40, 80, 160, 320])
    errors = np.array([mesh.mass(np.abs(advance(k) - reference)) for k in n])
    rate = mf.fit_rate(n, errors)
    assert abs(rate.slope + 2) < max(4 * rate.stderr, 0.1)
    assert errors[-1] < 1e-5


def test_log_gas_on_the_line_follows_its_moment_hierarchy(truths):
    """Exact moments of the McKean-Vlasov flow at all times: a check that no scheme owns."""
    truth = truths["loggas1d_moment_hierarchy"]["values"]
    problem = mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), mf.Log(), 10.0)
    flow = mf.solve(problem, mf.Grid(1000), t_end=2.0, save_at=[0.5, 2.0], tolerance=1e-7,
                    initial=lambda x: (0.7 * np.exp(-((x + 1) ** 2) / 0.18) + 0.3 * np.exp(-((x - 1) ** 2) / 0.18))
                    / np.sqrt(0.18 * np.pi))
    for k in range(1, 7):
        moment = (flow["density"] * flow["x"] ** k).sum("x").values * 6 / 1000
        for t, value in zip((0.5, 2), moment, strict=True):
            if f"m{k}_t{t}" in truth:
                assert value == pytest.approx(truth[f"m{k}_t{t}"], abs=1e-4 if k > 2 else 1e-5)


def test_heat_from_a_ramp_is_second_order(truths):
    """rho_0 = 2 x on [0, 1]: cell averages of the exact series, t = 0.1."""
    truth = truths["heat_linear_initial"]["values"]
    k = np.arange(1, 40, 2)[:, None]

    def primitive(x):  # of 1 - (8 / pi^2) sum_k cos(k pi x) exp(-k^2 pi^2 t) / k^2
        return x - (8 / np.pi**3 * np.sin(k * np.pi * x) * np.exp(-(k**2) * np.pi**2 * 0.1) / k**3).sum(axis=0)

    cells, errors = np.array([25, 50, 100, 200]), []
    for m in cells:
        flow = mf.solve(mf.Problem(mf.Interval(0, 1)), mf.Grid(m), t_end=0.1, initial=lambda x: 2 * x, save_at=[0.1],
                        tolerance=1e-10)
        errors.append(np.abs(flow["density"].values[0] - np.diff(primitive(np.linspace(0, 1, m + 1))) * m).mean())
    rate = mf.fit_rate(cells, np.array(errors))
    assert abs(rate.slope + 2) < max(4 * rate.stderr, 0.03)
    assert errors[-1] < 1e-5
    assert float((flow["density"] * flow["x"]).sum() / 200) == pytest.approx(truth["mean(0.1)"], abs=1e-6)


def test_fit_rate_against_a_known_line():
    n = np.array([10, 20, 40, 80])
    noise = np.array([0.01, -0.02, 0.015, -0.005])
    rate = mf.fit_rate(n, 3 * n**-0.5 * np.exp(noise))
    slope, intercept = np.polyfit(np.log(n), np.log(3) - 0.5 * np.log(n) + noise, 1)
    assert (rate.slope, rate.intercept) == pytest.approx((slope, intercept))
    residual = np.log(3) - 0.5 * np.log(n) + noise - intercept - slope * np.log(n)
    assert rate.stderr == pytest.approx(np.sqrt((residual**2).sum() / 2 / np.square(np.log(n) - np.log(n).mean()).sum()))
    given = mf.fit_rate(n, 3 * n**-0.5, stderr=0.1 * 3 * n**-0.5)
    assert given.stderr == pytest.approx(0.1 / np.sqrt(np.square(np.log(n) - np.log(n).mean()).sum()))
    with pytest.raises(ValueError, match="a rate needs positive errors at 3 or more different scales"):
        mf.fit_rate([1, 2], [1, 2])
