"""rate_function against exact rates: Cramer without interaction, Selberg's integral, Gamma and Gaussian laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import gammaln

import meanfield as mf

LOG_GAS = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 2.0)


def log_x(positions):
    return np.log(positions[..., 0])


def first(positions):
    return positions[..., 0]


def square(positions):
    return np.square(positions).sum(axis=-1)


def legendre(cumulant, a, low, high):
    """sup over theta of theta a - cumulant(theta)."""
    return -minimize_scalar(lambda t: cumulant(t) - t * a, bounds=(low, high), method="bounded", options={"xatol": 1e-9}).fun


def selberg_rate(a, beta):
    """From the limit of log E exp(theta sum log x_k) / N, a ratio of Selberg integrals."""
    def cumulant(t):
        return quad(lambda u: gammaln(1 + t + u * beta / 2) - gammaln(1 + u * beta / 2) - gammaln(2 + t + (1 + u) * beta / 2)
                    + gammaln(2 + (1 + u) * beta / 2), 0, 1, epsabs=1e-13)[0]
    return legendre(cumulant, a, -1 + 1e-9, 60)


def gamma_rate(a, beta, dim):
    """Mean of |x|^2 of a log gas in |x|^2 / 2: beta N mean / 2 is Gamma with shape N (dim / 2 + beta / 4)."""
    shape = dim / 2 + beta / 4
    return beta * a / 2 - shape - shape * np.log(beta * a / 2 / shape)


@pytest.mark.parametrize("beta", [1.0, 5.0])
@pytest.mark.parametrize(("statistic", "f", "values"), [(first, lambda x: x, [-1.5, -0.4, 0.3, 1.9]),
                                                        (square, np.square, [0.05, 0.4, 1.5, 3.0])])
def test_cramer_without_interaction(beta, statistic, f, values):
    """Independent particles in a double well: the rate is the Legendre transform of a quadrature, on a coarse grid too."""
    well = mf.DoubleWell()

    def weight(x, t):
        return math.exp(-beta * (x**4 / 4 - x**2 / 2) + t * f(x))

    def cumulant(t):
        return math.log(quad(weight, -2, 2, args=(t,), epsabs=0, epsrel=1e-12, limit=200)[0]
                        / quad(weight, -2, 2, args=(0,))[0])

    found = mf.rate_function(mf.Problem(mf.Interval(-2, 2), well, inverse_temperature=beta), statistic, values, mf.Grid(30))
    assert_allclose(found["rate"], [legendre(cumulant, a, -80, 80) for a in values], rtol=1e-8, atol=1e-10)


def test_exponential_and_bernoulli_particles(truths):
    """-log x of a uniform x is exponential; the share in a half domain is binomial, whose extremes have a finite rate."""
    box = mf.Problem(mf.Interval(0, 1))
    found = mf.rate_function(box, lambda p: -np.log(p[..., 0]), [truths["cramer_gamma"]["params"]["x"], 0.01, 9.0],
                             mf.Grid(4))
    assert float(found["rate"][0]) == pytest.approx(truths["cramer_gamma"]["values"]["rate"], abs=1e-12)
    assert_allclose(found["rate"], [a - 1 - math.log(a) for a in found["value"].values], rtol=1e-11)
    half = mf.rate_function(box, lambda p: np.where(p[..., 0] > 0.5, 1.0, 0.0), [0.6, 0.0, 1.0, 1.5, -0.1], mf.Grid(4))
    relative = 0.6 * math.log(1.2) + 0.4 * math.log(0.8)
    assert_allclose(half["rate"], [relative, math.log(2), math.log(2), math.inf, math.inf], rtol=1e-12)
    assert_allclose(half["tilt"], [math.log(1.5), -math.inf, math.inf, math.inf, -math.inf], rtol=1e-9)


@pytest.mark.parametrize("interaction", [mf.QuadraticPair(0.7), mf.Log(), mf.QuadraticPair(-0.4)])
def test_the_mean_in_a_trap_is_gaussian_whatever_the_pairs(interaction, truths):
    beta, stiffness = 2.0, 1.0
    problem = mf.Problem(mf.Interval(-7, 7), mf.Quadratic(stiffness), interaction, beta)
    found = mf.rate_function(problem, first, [-1.0, 0.25, 0.5], mf.Grid(200), method="extrapolated")
    assert_allclose(found["rate"], beta * stiffness * found["value"].values**2 / 2, rtol=2e-5)
    assert_allclose(found["tilt"], beta * stiffness * found["value"].values, rtol=2e-5)
    assert float(found["rate"][2]) == pytest.approx(truths["centre_of_mass_gaussian"]["values"]["rate"], rel=2e-5)


def test_log_gas_has_selbergs_rate():
    """f = log x, unbounded at the wall: second order above the typical value; extrapolation gains two digits."""
    values = [-0.8, -0.6, -0.3]
    exact = np.array([selberg_rate(a, 2.0) for a in values])
    errors = np.array([mf.rate_function(LOG_GAS, log_x, values, mf.Grid(m))["rate"].values - exact for m in (50, 100)])
    orders = np.log2(errors[:-1] / errors[1:])[:, :2]  # at -0.3 parts of either sign cross
    assert ((orders > 1.7) & (orders < 2.3)).all()
    assert_allclose(mf.rate_function(LOG_GAS, log_x, values, mf.Grid(200), method="extrapolated")["rate"], exact, rtol=1e-5)
    below = [-2.0, -1.6]  # theta = -0.69 and -0.49: the density is unbounded at the wall
    assert_allclose(mf.rate_function(LOG_GAS, log_x, below, mf.Grid(200))["rate"], [selberg_rate(a, 2.0) for a in below],
                    rtol=7e-3)


@pytest.mark.full
def test_panels_give_many_digits():
    values = [-2.0, -0.6]
    found = mf.rate_function(LOG_GAS, log_x, values, mf.Grid(50), method="panels")
    assert_allclose(found["rate"], [selberg_rate(a, 2.0) for a in values], rtol=2e-7)
    assert float(found["rate"][1]) == pytest.approx(selberg_rate(-0.6, 2.0), rel=1e-9)


@pytest.mark.parametrize(("beta", "tolerance"), [(2.0, 2e-4), pytest.param(10.0, 1e-3, marks=pytest.mark.full)])
def test_mean_energy_of_the_log_gas_is_gamma_on_the_line(beta, tolerance):
    typical = 1 / beta + 0.5
    values = typical * np.array([0.3, 0.7, 1.4, 2.0])
    problem = mf.Problem(mf.Interval(-7, 7), mf.Quadratic(), mf.Log(), beta)
    found = mf.rate_function(problem, square, values, mf.Grid(300 if beta == 10 else 200), method="extrapolated")
    assert_allclose(found["rate"], gamma_rate(values, beta, 1), rtol=tolerance)
    assert_allclose(found.attrs["typical"], typical, rtol=1e-2)


def test_mean_energy_of_the_log_gas_is_gamma_in_the_plane(truths):
    values = 1.5 * np.array([0.4, 1.8])
    problem = mf.Problem(mf.FreeSpace(2), mf.Quadratic(), mf.Log(), 2.0)
    found = mf.rate_function(problem, square, values, mf.Grid(60, radial=True, window=(0, 8)), method="extrapolated")
    assert_allclose(found["rate"], gamma_rate(values, 2.0, 2), rtol=1e-3)
    with pytest.raises(ValueError, match="on a radial grid the statistic must depend on"):
        mf.rate_function(problem, first, [0.5], mf.Grid(20, radial=True, window=(0, 8)))


def test_gamma_rates_are_the_ones_of_the_truths(truths):
    values = truths["loggas_energy_exact_ldp"]["values"]
    assert gamma_rate(1.2, 2.0, 1) == pytest.approx(values["rate_b2_x1.2"], abs=1e-14)
    assert gamma_rate(0.8, 10.0, 1) == pytest.approx(values["rate_b10_x0.8"], abs=1e-14)


def test_without_temperature_the_rate_is_the_energy():
    """Speed beta_N: (y - 1 - log y) / 4 for the mean energy y / 2 of the cold log gas; the limit of rate / beta."""
    y = np.array([0.3, 0.6, 1.5, 2.0])
    exact = (y - 1 - np.log(y)) / 4
    cold = mf.Problem(mf.Interval(-4, 4), mf.Quadratic(), mf.Log(), math.inf)
    found = mf.rate_function(cold, square, y / 2, mf.Grid(60))
    assert_allclose(found["rate"], exact, rtol=4e-3)
    assert found.attrs["speed"] == "beta_N"
    gaps = [np.abs(gamma_rate(y / 2, beta, 1) / beta - exact).max() for beta in (1e2, 1e3, 1e4)]
    assert gaps[0] > 5 * gaps[1] > 25 * gaps[2]


def test_rate_is_the_free_energy_of_its_density_and_tilt_its_slope():
    values = np.array([-0.802, -0.8, -0.798, -0.5])
    found = mf.rate_function(LOG_GAS, log_x, values, mf.Grid(400))
    rest = mf.gibbs(LOG_GAS, mf.Grid(400))
    excess = 2.0 * (mf.free_energy(LOG_GAS, found["density"]) - float(rest["free_energy"]))
    assert_allclose(excess, found["rate"], rtol=1e-3)
    slope = (found["rate"][2] - found["rate"][0]) / 0.004
    assert float(slope) == pytest.approx(float(found["tilt"][1]), rel=2e-5)
    x = found["x"].values
    assert_allclose((found["density"] * np.log(x)).sum("x") / 400, values, rtol=2e-3)
    at_rest = mf.rate_function(LOG_GAS, log_x, float(found.attrs["typical"][0]), mf.Grid(400))
    assert at_rest["rate"].item() == pytest.approx(0.0, abs=1e-12)
    assert_allclose(at_rest["density"][0], rest["density"], rtol=2e-2)


def test_a_function_of_several_means():
    """The variance in a trap, independent or with springs: both Gaussian; a single mean through a function."""
    def both(positions):
        return np.stack([positions[..., 0], positions[..., 0] ** 2], axis=-1)

    def variance(means):
        return means[1] - means[0] ** 2

    values = np.array([0.2, 0.5, 0.8])
    for spring, tolerance in ((0.0, 1e-9), (0.7, 1e-2)):
        beta = 2.0 * (1 + spring)  # of the one-particle law about the mean
        problem = mf.Problem(mf.Interval(-7.5, 8.5), mf.Quadratic(1.0, 0.5), mf.QuadraticPair(spring), 2.0)
        found = mf.rate_function(problem, both, values, mf.Grid(100), function=variance)
        assert_allclose(found["rate"], (beta * values - 1 - np.log(beta * values)) / 2, rtol=tolerance, atol=1e-12)
    plain = mf.rate_function(LOG_GAS, log_x, [-0.8], mf.Grid(60))
    through = mf.rate_function(LOG_GAS, lambda p: np.log(p), [math.exp(-0.8)], mf.Grid(60),
                               function=lambda m: math.exp(m[0]))
    assert_allclose(through["rate"], plain["rate"], rtol=1e-8)


def test_a_jump_of_the_mean_is_said():
    """Strong attraction in a double well: two rest states, and no tilt for a mean between them."""
    problem = mf.Problem(mf.Interval(-3, 3), mf.DoubleWell(), mf.QuadraticPair(3.0), 6.0)
    with pytest.raises(ArithmeticError, match="no tilt gives the mean 0.3: it jumps over it"):
        mf.rate_function(problem, first, [0.3], mf.Grid(60))


@pytest.mark.parametrize(("change", "sentence"), [
    ({"statistic": lambda p: p}, r"statistic must map positions .* to shape"),
    ({"statistic": lambda p: np.sqrt(p[..., 0] - 0.5)}, "statistic must be a number everywhere in the domain, got nan"),
    ({"statistic": lambda p: np.where(p[..., 0] > 0.5, np.inf, 0.0)}, "statistic must be finite inside the domain, got inf"),
    ({"values": [[1.0]]}, r"values must be a number or one row of numbers, got shape \(1, 1\)"),
    ({"values": math.nan}, "values must be finite"),
    ({"method": "magic"}, "method must be one of"),
    ({"method": "extrapolated", "grid": mf.Grid(15)}, "needs an even number of cells a side"),
    ({"function": lambda m: m[0]}, r"statistic must map positions \(1, 1\) to \(1, m\)"),
])
def test_bad_input_is_one_sentence(change, sentence):
    arguments = {"statistic": log_x, "values": [-0.5], "grid": mf.Grid(20), **change}
    with pytest.raises(ValueError, match=sentence) as caught:
        mf.rate_function(LOG_GAS, **arguments)
    assert "\n" not in str(caught.value)


def test_datasets_round_trip(tmp_path):
    found = mf.rate_function(LOG_GAS, log_x, [-0.8, -0.5, 0.5], mf.Grid(20))
    found.to_netcdf(tmp_path / "rate.nc")
    assert_allclose(mf.load(tmp_path / "rate.nc")["rate"], found["rate"])
