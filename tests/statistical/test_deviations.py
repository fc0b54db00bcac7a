"""estimate_rate against exact laws at finite N: fixed seeds, |z| < 4 from the estimator's own error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammainc, gammaincc, gammaln, log_ndtr, loggamma
from scipy.stats import binom

import meanfield as mf
from meanfield.diagnostics.reweighting import Ladder, autocorrelation_time, jackknife


def log_x(positions):
    return np.log(positions[..., 0])


def first(positions):
    return positions[..., 0]


def square(positions):
    return np.square(positions).sum(axis=-1)


class Selberg:
    """S = sum log x_k of the log gas on [0, 1]: log E exp(s S) is a ratio of Selberg integrals, also for complex s."""

    def __init__(self, n, beta):
        self.n, self.gamma, self.j = n, beta / (2 * (n - 1)), np.arange(n)

    def __call__(self, s):
        g, j, s = self.gamma, self.j, np.asarray(s)[..., None]
        return (loggamma(1 + s + j * g) - gammaln(1 + j * g) - loggamma(2 + s + (self.n + j - 1) * g)
                + gammaln(2 + (self.n + j - 1) * g)).sum(axis=-1)

    def slope(self, t):
        return float((self(t + 1e-5) - self(t - 1e-5)) / 2e-5)

    def exact(self, a):
        """log P(mean >= a) or <= a by inverse Laplace transform along the saddle, the rate and its tilt."""
        t = brentq(lambda t: self.slope(t) - self.n * a, -0.999, 80)
        peak = float(self(t)) - t * self.n * a
        width = math.sqrt((self.slope(t + 1e-3) - self.slope(t - 1e-3)) / 2e-3)
        y = np.arange(0, 200 / width, 0.02 / width)
        s = t + 1j * y
        values = (np.exp(self(s + 0j) - s * self.n * a - peak) / s).real
        integral = (values.sum() - values[0] / 2) * y[1] / math.pi
        return peak + math.log(abs(integral)), -peak / self.n, t


def gamma_tail(total, shape, upper):
    """log of the tail of a Gamma law, by the Legendre-corrected continued fraction where it underflows."""
    direct = (gammaincc if upper else gammainc)(shape, total)
    return math.log(direct) if direct > 1e-290 else math.nan


def check(found, log_probability, rate, limit=4.0):
    """Both numbers within ``limit`` of their own standard errors, which are small: 2 % or 0.25 in the logarithm."""
    for name, exact in (("log_probability", log_probability), ("rate", rate)):
        error = found[f"{name}_stderr"].values
        z = (found[name].values - exact) / error
        assert (np.abs(z) < limit).all(), (name, z)
        floor = 0.25 if name == "log_probability" else 0.25 / found.attrs["n_particles"]
        assert (error < 0.02 * np.abs(exact) + floor).all(), (name, error)
    counted = found["counted_log_probability"].values
    seen = np.isfinite(counted)
    z = (counted - found["log_probability"].values)[seen] / found["counted_log_probability_stderr"].values[seen]
    assert (np.abs(z) < limit).all(), z
    # Chernoff: P <= exp(-N rate)
    assert (found["log_probability"] <= -found.attrs["n_particles"] * found["rate"] + 1e-9).all()
    return seen


def test_ladder_of_gaussian_rungs():
    """Rungs of a Gaussian S are Gaussians moved by theta variance: cumulants, tails and errors are known."""
    rng, tilts, variance = np.random.default_rng(1), np.arange(-2.0, 8.0), 1.5
    series = [t * variance + math.sqrt(variance) * rng.standard_normal((12, 300)) for t in tilts]
    whole = Ladder.solve(tilts, series)

    def numbers(ladder):
        return np.array([*ladder.cumulants, ladder.cumulant(3.3), ladder.mean(3.3), ladder.tilt_of(9.0),
                         ladder.log_tail(9.0, True), ladder.log_tail(-2.0, False)])

    errors = jackknife(numbers(whole), np.array([numbers(Ladder.solve(tilts, [np.delete(s, r, axis=0) for s in series]))
                                                 for r in range(12)]))
    exact = [*(variance * tilts**2 / 2), variance * 3.3**2 / 2, 3.3 * variance, 6.0,
             log_ndtr(-9 / math.sqrt(variance)), log_ndtr(-2 / math.sqrt(variance))]
    moved = errors > 0
    assert moved.sum() == len(errors) - 1  # the cumulant at rest is 0
    assert (np.abs(numbers(whole) - exact)[moved] < 4 * errors[moved]).all()
    assert (errors < 0.1).all()
    overlaps = [whole.overlap(k, series) for k in range(len(tilts) - 1)]
    assert 0.6 < min(overlaps) <= max(overlaps) < 0.8


@pytest.mark.parametrize("memory", [0.0, 0.8, 0.95])
def test_autocorrelation_time_of_a_known_process(memory):
    """Autoregression of order one: (1 + a) / (1 - a); runs that stay apart count as one piece."""
    rng = np.random.default_rng(2)
    series = np.zeros((16, 4000))
    for k in range(1, 4000):
        series[:, k] = memory * series[:, k - 1] + rng.standard_normal(16)
    assert autocorrelation_time(series[:, 200:]) == pytest.approx((1 + memory) / (1 - memory), rel=0.12)
    apart = series[:, 200:] + 100 * np.arange(16)[:, None]
    assert autocorrelation_time(apart) > 500
    assert math.isnan(autocorrelation_time(np.ones((4, 10))))


def test_log_gas_has_selbergs_tails_at_finite_n():
    """f = log x: probabilities and cumulants at N = 8 against Selberg's integral, typical and rare, counted and tilted."""
    n, beta, values = 8, 2.0, [-1.25, -0.9, -0.5]
    exact = np.array([Selberg(n, beta).exact(a) for a in values])
    found = mf.estimate_rate(mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), beta), log_x, values, n_particles=n, seed=4,
                             effective_samples=200)
    seen = check(found, exact[:, 0], exact[:, 1])
    assert seen.tolist()[:2] == [True, True]
    assert not seen[-1]
    assert found["upper_tail"].values.tolist() == [False, True, True]
    cumulants = Selberg(n, beta)(found["rung_tilt"].values) / n
    moved = found["rung_tilt"].values != 0
    z = (found["cumulant"].values - cumulants)[moved] / found["cumulant_stderr"].values[moved]
    assert (np.abs(z) < 4).all()
    assert (found["overlap"].values[:-1] > 0.5).all()
    assert (found["effective_samples"] >= 200).all()


@pytest.mark.parametrize("n", [10, pytest.param(100, marks=pytest.mark.full)])
def test_independent_particles_and_a_lattice(n, truths):
    """Bernoulli particles, a statistic without a gradient: the exact binomial tail, equality included."""
    truth = truths["sanov_binomial"]
    values = [0.6, 0.7]
    exact = [math.log(binom.sf(round(a * n) - 1, n, 0.5)) for a in values]
    if n == truth["params"]["N"]:
        assert exact[0] == pytest.approx(math.log(truth["values"]["P"]), abs=1e-12)
    found = mf.estimate_rate(mf.Problem(mf.Interval(0, 1)), lambda p: np.where(p[..., 0] > 0.5, 1.0, 0.0), values,
                             n_particles=n, seed=1, effective_samples=200)
    check(found, exact, [a * math.log(2 * a) + (1 - a) * math.log(2 - 2 * a) for a in values])


def test_numbers_are_functions_of_the_seed(tmp_path):
    arguments = {"n_particles": 4, "effective_samples": 20, "n_runs": 4}
    problem = mf.Problem(mf.Interval(0, 1))
    a, b = (mf.estimate_rate(problem, first, [0.55], seed=3, threads=t, **arguments) for t in (1, 2))
    assert a.equals(b)
    other = mf.estimate_rate(problem, first, [0.55], seed=4, **arguments)
    assert float(other["log_probability"][0]) != float(a["log_probability"][0])
    a.to_netcdf(tmp_path / "a.nc")
    assert mf.load(tmp_path / "a.nc").equals(a)


def test_what_cannot_be_claimed_is_refused():
    box = mf.Problem(mf.Interval(0, 1))
    few = {"n_particles": 6, "n_runs": 8, "effective_samples": 60}
    with pytest.raises(ArithmeticError, match=r"effective|worth .* independent samples after \d+ steps, 500 and"):
        mf.estimate_rate(box, first, [0.9], n_particles=6, n_runs=8, effective_samples=500, max_steps=500)
    with pytest.raises(ArithmeticError, match="overlap by .*, 0.15 is needed; take a smaller spacing"):
        mf.estimate_rate(box, first, [0.95], spacing=12.0, **few)
    with pytest.raises(ArithmeticError, match="the statistic is constant"):
        mf.estimate_rate(box, lambda p: np.ones(p.shape[:-1]), [2.0], **few)
    for change, sentence in (({"values": []}, "values must be a number or one row"),
                             ({"n_runs": 2}, "n_runs must be a whole number of at least 4"),
                             ({"spacing": 0}, "spacing must be positive"),
                             ({"problem": mf.Problem(mf.Interval(0, 1), inverse_temperature=math.inf)}, "at rest nothing"),
                             ({"problem": mf.Problem(mf.FreeSpace(1), mf.Quadratic())}, "initial must be positions")):
        arguments = {"problem": box, "values": [0.7], **few, **change}
        with pytest.raises(ValueError, match=sentence):
            mf.estimate_rate(arguments.pop("problem"), first, arguments.pop("values"), **arguments)


@pytest.mark.full
def test_log_gas_down_to_1e_30():
    """N = 64: particles, Selberg's integral at that N and the variational rate of the limit, to 1e-32."""
    n, beta, values = 64, 2.0, [-1.3, -0.9, -0.6, -0.4, -0.3]
    exact = np.array([Selberg(n, beta).exact(a) for a in values])
    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), beta)
    # with fewer samples 2 % of the rate at -0.6 would be but two of its standard errors
    found = mf.estimate_rate(problem, log_x, values, n_particles=n, seed=4)
    check(found, exact[:, 0], exact[:, 1])
    assert exact[-1, 0] < -30 * math.log(10)
    limit = mf.rate_function(problem, log_x, values, mf.Grid(400), method="extrapolated")
    tolerance = np.maximum(0.02 * limit["rate"].values, 2 * found["rate_stderr"].values)
    assert (np.abs(found["rate"].values - limit["rate"].values) < tolerance).all()


@pytest.mark.full
@pytest.mark.parametrize("dim", [1, 2])
def test_mean_energy_of_the_log_gas_is_gamma(dim, truths):
    """In |x|^2 / 2: beta N mean |x|^2 / 2 is Gamma with shape N (dim / 2 + beta strength / 4), at every N, both tails."""
    n, beta = 10, 2.0
    strength = (n - 1) / n  # the truths divide by N
    shape = n * (dim / 2 + beta * strength / 4)
    typical = 2 * shape / (beta * n)
    values = np.array([0.15, 0.4, 0.7, 1.4, 2.0, 3.0]) * typical
    truth = truths["loggas_energy_exact_ldp"]["values"]
    known, a = ("P_N10_b2_m2>1.2", 1.2) if dim == 1 else ("P2d_N10_b2_m2>2", 2.0)
    assert gammaincc(shape, beta * n * a / 2) == pytest.approx(truth[known], rel=1e-12)
    exact = [gamma_tail(beta * n * v / 2, shape, v > typical) for v in values]
    rates = beta * values / 2 - shape / n * (1 + np.log(beta * n * values / (2 * shape)))
    start = np.random.default_rng(0).standard_normal((n, dim))
    problem = mf.Problem(mf.FreeSpace(dim), mf.Quadratic(), mf.Log(strength), beta)
    found = mf.estimate_rate(problem, square, values, n_particles=n, seed=2, initial=start, effective_samples=800,
                             gradient=lambda x: 2 * x)
    check(found, exact, rates)


@pytest.mark.full
@pytest.mark.parametrize("beta", [1.0, 4.0])
@pytest.mark.parametrize("interaction", [mf.NoInteraction(), mf.QuadraticPair(0.7), mf.Log()])
def test_the_mean_in_a_trap_is_gaussian_whatever_the_pairs(beta, interaction, truths):
    """Centre of mass: variance 1 / (N beta) exactly, down to 1e-30."""
    n = 20
    truth = truths["centre_of_mass_gaussian"]
    tail = log_ndtr(-truth["params"]["a"] * math.sqrt(n * truth["params"]["beta"]))
    assert tail == pytest.approx(math.log(truth["values"]["P_N20_b2_mean>0.5"]), abs=1e-9)
    scale = 1 / math.sqrt(n * beta)
    values = scale * np.array([-4.0, 1.0, 5.0, 11.5])
    start = np.random.default_rng(0).standard_normal((n, 1)) / math.sqrt(beta)
    found = mf.estimate_rate(mf.Problem(mf.FreeSpace(1), mf.Quadratic(), interaction, beta), first, values, n_particles=n,
                             seed=5, initial=start)
    check(found, log_ndtr(-np.abs(values) / scale), beta * values**2 / 2)


@pytest.mark.full
@pytest.mark.parametrize("beta", [1.0, 3.0])
@pytest.mark.parametrize(("statistic", "values"), [(first, [0.4, 0.8]), (square, [0.15, 1.2])])
def test_cramer_without_interaction(beta, statistic, values):
    """Independent particles in a double well, N = 30: the Legendre transform at finite N is Cramer's rate itself."""
    problem = mf.Problem(mf.Interval(-2, 2), mf.DoubleWell(), inverse_temperature=beta)
    exact = mf.rate_function(problem, statistic, values, mf.Grid(20))["rate"].values
    found = mf.estimate_rate(problem, statistic, values, n_particles=30, seed=6)
    z = (found["rate"].values - exact) / found["rate_stderr"].values
    assert (np.abs(z) < 4).all(), z
    assert (found["rate_stderr"] < 0.02 * exact + 0.005).all()


@pytest.mark.full
def test_the_learnt_kernel_concentrates_in_n_and_in_beta():
    """P(|K(x, x') - K*| > eps) of features learnt by alignment, d = 1: -log P - log(N) / 2 is linear in N with the slope of
    the variational rate, and -log P is linear in beta where beta is large."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((16, 1))
    potential = mf.KernelAlignment(X, np.where(np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(16) > 0, 1.0, -1.0))
    apart, eps = 1.3, 0.2

    def kernel(positions):  # E over phases of 2 cos(w x + b) cos(w x' + b)
        return np.cos(positions[..., 0] * apart)

    def measured(beta, n):
        """The variational rate, -log P of both sides together and its standard error."""
        problem = mf.Problem(mf.Interval(-4, 4), potential, mf.Log(0.5), beta)
        rest = mf.rate_function(problem, kernel, [0.0], mf.Grid(200)).attrs["typical"][0]
        sides = [rest - eps, rest + eps]
        limit = float(mf.rate_function(problem, kernel, sides, mf.Grid(200), method="extrapolated")["rate"].min())
        found = mf.estimate_rate(problem, kernel, sides, n_particles=n, seed=n, n_runs=12, effective_samples=300)
        both = np.logaddexp.reduce(found["log_probability"].values)
        share = np.exp(found["log_probability"].values - both)
        return limit, -both, math.hypot(*(share * found["log_probability_stderr"].values))

    sizes = np.array([16, 32, 48, 64])
    limits, costs, errors = np.array([measured(4.0, n) for n in sizes]).T
    costs = costs - 0.5 * np.log(sizes)
    line, covariance = np.polyfit(sizes, costs, 1, w=1 / errors, cov="unscaled")
    # what is left of the prefactor and of Lambda_N is of first order in 1 / N
    assert abs(line[0] - limits[0]) < 4 * math.sqrt(covariance[0, 0]) + 0.02 * limits[0]
    assert (np.abs(costs - np.polyval(line, sizes)) < 4 * errors + 0.05).all()

    betas, n = np.array([8.0, 16.0, 32.0]), 32
    limits, costs, errors = np.array([measured(beta, n) for beta in betas]).T
    line, covariance = np.polyfit(betas, costs, 1, w=1 / errors, cov="unscaled")
    expected = n * np.polyfit(betas, limits, 1, w=1 / errors)[0]
    assert abs(line[0] - expected) < 4 * math.sqrt(covariance[0, 0]) + 0.05 * expected
    assert (np.abs(costs - np.polyval(line, betas)) < 4 * errors + 0.05 * costs).all()
