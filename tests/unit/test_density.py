"""solve and gibbs: mass, positivity, decay, Gibbs states, exact stationary values, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import gammaln

import meanfield as mf

PROBLEMS = {
    "log gas": mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0),
    "Riesz in a well": mf.Problem(mf.Interval(-1, 2), mf.DoubleWell(), mf.Riesz(0.5), 4.0),
    "Coulomb, attraction": mf.Problem(mf.Interval(-1, 1), mf.Quadratic(2.0), (mf.Coulomb(1), mf.QuadraticPair(1.0)), 2.0),
    "soft Riesz, cold": mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Riesz(1.5, 0.1, 0.05), 100.0),
    "gradient flow": mf.Problem(mf.Interval(-2, 2), mf.Quadratic(), mf.Log(), float("inf")),
}


def off_centre(x):
    return np.exp(-8 * (x - 0.3) ** 2)


def start(problem, cells):
    low, high = problem.domain.low[0], problem.domain.high[0]
    total = quad(off_centre, low, high)[0]
    return lambda x: off_centre(x) / total


@pytest.mark.parametrize("name", PROBLEMS)
def test_mass_positivity_and_decay(name):
    problem = PROBLEMS[name]
    flow = mf.solve(problem, mf.Grid(120), t_end=1.0, initial=start(problem, 120))
    assert np.abs(flow["mass"] - 1).max() < 1e-12
    assert (flow["min_density"] >= 0).all()
    free_energy = flow["free_energy"].values
    assert np.diff(free_energy).max() <= 1e-12 * (1 + np.abs(free_energy).max())
    assert free_energy[0] - free_energy[-1] > 1e-2  # it did something
    assert (flow["dissipation"] >= -1e-10).all()


@given(seed=st.integers(0, 2**31), s=st.floats(-1.5, 0.9), strength=st.floats(-0.5, 3.0),
       beta=st.floats(math.log(0.1), math.log(1e4)).map(math.exp), t_end=st.sampled_from([1e-4, 0.1, 10.0]))
def test_structure_holds_for_random_problems(seed, s, strength, beta, t_end):
    """Mass, positivity and decay whatever the potential, exponent, sign, temperature and time scale."""
    rng = np.random.default_rng(seed)
    problem = mf.Problem(mf.Interval(-1, 1), mf.Quadratic(rng.normal() * 5, center=rng.uniform(-1, 1)),
                         mf.Riesz(s, strength), beta)
    rho = rng.exponential(size=24) + 1e-3
    flow = mf.solve(problem, mf.Grid(24), t_end=t_end, initial=rho / rho.mean() / 2, save_at=np.linspace(0, t_end, 7))
    assert np.abs(flow["mass"] - 1).max() < 1e-12
    assert (flow["min_density"] >= 0).all()
    scale = 1 + np.abs(flow["energy"]).max() + np.abs(flow["entropy"]).max() / beta
    assert np.diff(flow["free_energy"]).max() <= 1e-11 * scale


@pytest.mark.parametrize("name", [n for n in PROBLEMS if n != "gradient flow"])
def test_gibbs_density_is_where_the_flow_rests(name):
    problem = PROBLEMS[name]
    rest = mf.gibbs(problem, mf.Grid(100))
    assert float(rest["residual"]) < 1e-10
    flow = mf.solve(problem, mf.Grid(100), t_end=1.0, initial=rest["density"].values)
    assert_allclose(flow["density"].values[-1], rest["density"].values, rtol=1e-8)
    end = mf.solve(problem, mf.Grid(100), t_end=40.0, initial=start(problem, 100), save_at=[40.0])
    assert_allclose(end["density"].values[-1], rest["density"].values, rtol=2e-5)
    assert float(rest["free_energy"]) <= float(end["free_energy"][-1]) + 1e-12
    assert mf.free_energy(problem, rest) == pytest.approx(float(rest["free_energy"]), abs=1e-13)


def exact_log_gas(beta):
    """Limit of -log Z / (beta N) on [0, 1] from Selberg's integral (method.md 7.6)."""
    return -quad(lambda u: 3 * gammaln(1 + beta * u / 2) - gammaln(2 + beta * (1 + u) / 2), 0, 1, epsabs=1e-13)[0] / beta


@pytest.mark.parametrize(("beta", "six_digits"), [(1.0, 0.736900), (10.0, 0.708436)])
def test_log_gas_free_energy(beta, six_digits):
    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), beta)
    values = np.array([float(mf.gibbs(problem, mf.Grid(m))["free_energy"]) for m in (500, 1000, 2000)])
    assert round(values[-1], 6) == six_digits
    errors = values - exact_log_gas(beta)
    orders = np.log2(errors[:-1] / errors[1:])
    assert (errors > 0).all()
    assert ((orders > 1.7) & (orders < 2.1)).all()
    assert values[-1] + (values[-1] - values[-2]) / 3 == pytest.approx(exact_log_gas(beta), abs=3e-7)


def test_log_gas_on_the_symmetric_interval(truths):
    values = truths["loggas_interval_finite_beta"]["values"]
    for beta in (1, 5, 20):
        rest = mf.gibbs(mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(), beta), mf.Grid(2000))
        h = 2 / 2000
        assert float(rest["free_energy"]) == pytest.approx(values[f"F_b{beta}"], abs=5e-6)
        assert float((rest["density"] * rest["x"] ** 2).sum() * h) == pytest.approx(values[f"m2_b{beta}"], abs=5e-5)


def test_coulomb_gas_between_hard_walls(truths):
    values = truths["coulomb1d_hardwall_finite_beta"]["values"]
    for beta in (1, 5, 20):
        rest = mf.gibbs(mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Coulomb(1), beta), mf.Grid(1000))
        assert float(rest["free_energy"]) == pytest.approx(values[f"F_b{beta}"], abs=1e-5)
        if beta > 1:
            m2 = float((rest["density"] * rest["x"] ** 2).sum() * 2 / 1000)
            assert m2 == pytest.approx(values[f"m2_b{beta}"], abs=2e-5)


def test_double_well_without_interaction(truths):
    truth = truths["gibbs_double_well_box"]
    rest = mf.gibbs(mf.Problem(mf.Interval(-2, 2), mf.DoubleWell(), inverse_temperature=3.0), mf.Grid(4000))
    assert float(rest["free_energy"]) == pytest.approx(-math.log(truth["values"]["Z"]) / 3, abs=1e-6)
    cells = np.exp(-3 * mf.DoubleWell().value(rest["x"].values[:, None]))
    assert_allclose(rest["density"].values, cells / (cells.sum() * 4 / 4000), rtol=1e-12)  # nodewise Gibbs, exactly


def test_scharfetter_gummel_keeps_the_gibbs_ratio():
    """BUG-06: with V = x and D = 0.2 neighbouring cells differ by exp(-h / D), mass stays 1."""
    class Slope(mf.Potential):
        formula = "V(x) = x"

        def value(self, positions):
            return positions[..., 0]

        def gradient(self, positions):
            return np.ones(positions.shape)

    for n in (10, 100, 101):
        flow = mf.solve(mf.Problem(mf.Interval(0, 1), Slope(), inverse_temperature=5.0), mf.Grid(n), t_end=20.0)
        rho = flow["density"].values[-1]
        assert_allclose(rho[1:] / rho[:-1], np.exp(-1 / n / 0.2), rtol=1e-10)
        assert np.abs(flow["mass"] - 1).max() < 1e-12


@pytest.mark.parametrize("beta", [1.0, 1e2, 1e4, float("inf")])
def test_bug_35_mirror_symmetry_and_no_oscillation(beta):
    class Slope(mf.Potential):
        formula = "V(x) = +-10 x"

        def __init__(self, sign):
            self.sign = sign

        def value(self, positions):
            return 10 * self.sign * positions[..., 0]

        def gradient(self, positions):
            return np.full(positions.shape, 10.0 * self.sign)

    rho = np.maximum(0.0, 9.0 - (np.arange(20) - 13.0) ** 2)  # a bump that has not reached a wall by t_end
    rho /= rho.mean()
    flows = [mf.solve(mf.Problem(mf.Interval(0, 1), Slope(sign), inverse_temperature=beta), mf.Grid(20), t_end=0.02,
                      initial=rho[::sign]) for sign in (1, -1)]
    assert_allclose(flows[0]["density"].values, flows[1]["density"].values[:, ::-1], rtol=1e-11, atol=1e-13)
    density = flows[0]["density"].values
    assert density.max() <= rho.max() * (1 + 1e-12)
    variation = np.abs(np.diff(density, axis=1)).sum(axis=1)
    assert np.diff(variation).max() <= 1e-9


def test_two_cells_by_hand():
    """Two cells, V = 0, g = 0: d rho/dt = -+ (rho_1 - rho_2) / (beta h^2), so rho_1 - rho_2 ~ exp(-2 t / (beta h^2))."""
    flow = mf.solve(mf.Problem(mf.Interval(0, 1), inverse_temperature=2.0), mf.Grid(2), t_end=0.1,
                    initial=np.array([1.5, 0.5]), tolerance=1e-10)
    difference = flow["density"].values[:, 0] - flow["density"].values[:, 1]
    assert_allclose(difference, np.exp(-2 * flow["time"].values / (2.0 * 0.25)), rtol=1e-6)


def test_dissipation_is_minus_the_slope_of_the_free_energy():
    problem = PROBLEMS["log gas"]
    flow = mf.solve(problem, mf.Grid(200), t_end=0.2, initial=lambda x: 1 + 0.5 * np.cos(np.pi * x),
                    save_at=np.linspace(0, 0.2, 401), tolerance=1e-9)
    slope = np.gradient(flow["free_energy"].values, flow["time"].values)
    assert_allclose(-slope[5:-5], flow["dissipation"].values[5:-5], rtol=5e-3)


def test_save_at_is_what_is_saved():
    times = [0.0, 0.013, 0.1, 0.25]
    flow = mf.solve(PROBLEMS["log gas"], mf.Grid(50), t_end=0.25, save_at=times)
    assert flow["time"].values.tolist() == times
    flow = mf.solve(PROBLEMS["log gas"], mf.Grid(50), t_end=0.3)
    assert flow.sizes["time"] == 101
    assert flow["time"].values[-1] == 0.3


def test_datasets_round_trip(tmp_path):
    for name, data in (("flow", mf.solve(PROBLEMS["log gas"], mf.Grid(20), t_end=0.1)),
                       ("rest", mf.gibbs(PROBLEMS["log gas"], mf.Grid(20)))):
        data.to_netcdf(tmp_path / f"{name}.nc")
        assert mf.load(tmp_path / f"{name}.nc").identical(data)
        for variable in data.variables.values():
            assert variable.attrs["units"]


class NotANumber(mf.Potential):
    formula = "V = nan"

    def value(self, positions):
        return np.full(positions.shape[:-1], np.nan)

    def gradient(self, positions):
        return np.full(positions.shape, np.nan)


@pytest.mark.parametrize(("change", "sentence"), [
    ({"t_end": -1}, "t_end must be positive and finite, got -1"),
    ({"initial": np.full(50, -1.0)}, "initial must be non-negative, got -1 in the cell at x = 0.01"),
    ({"initial": np.full(50, 1.5)}, r"initial must have mass 1 \(within 0.001\), got 1.5; divide it by its mass"),
    ({"initial": np.full(49, 1.0)}, "initial must be a name, a function of x or 50 cell averages"),
    ({"initial": lambda x: x * np.nan}, "must be finite, got nan"),
    ({"initial": "delta"}, "initial must be one of 'uniform', got 'delta'"),
    ({"save_at": [0.2, 0.1]}, "save_at must be increasing times in"),
    ({"save_at": [0.0, 5.0]}, "save_at must be increasing times in"),
    ({"problem": mf.Problem(mf.Interval(0, 1), NotANumber())},
     "the potential must be finite in every cell, got nan at x = 0.01"),
    ({"problem": mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Riesz(1.0))},
     "has infinite energy for every density in dimension 1"),
    ({"problem": mf.Problem(mf.Box(0, 1, dim=3))},
     "densities are solved for on an Interval, a Box, Torus or FreeSpace of dimension"),
])
def test_bad_input_is_one_sentence(change, sentence):
    arguments = {"problem": PROBLEMS["log gas"], "t_end": 0.1, **change}
    with pytest.raises(ValueError, match=sentence) as caught:
        mf.solve(arguments.pop("problem"), mf.Grid(50), **arguments)
    assert "\n" not in str(caught.value)


def test_objectives_without_a_potential_are_refused():
    objective = mf.NormalizedAlignment.example(1)
    with pytest.raises(ValueError, match="NormalizedAlignment couples the particles and has no V"):
        mf.solve(mf.Problem(mf.Interval(-1, 1), objective), mf.Grid(20), t_end=0.1)


def test_nearly_normalised_start_is_normalised_and_said():
    flow = mf.solve(PROBLEMS["log gas"], mf.Grid(50), t_end=0.1, initial=np.full(50, 1.0005))
    assert flow.attrs["initial_mass"] == pytest.approx(1.0005)
    assert float(flow["mass"][0]) == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("beta", [100.0, 1000.0, float("inf")])
@pytest.mark.parametrize("cell", [0, 50])
def test_a_peak_in_one_cell_is_no_rest_state(beta, cell):
    """A long first step could swap the peak back and forth through the frozen interaction and call it converged."""
    rho = np.zeros(100)
    rho[cell] = 100.0
    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), beta)
    flow = mf.solve(problem, mf.Grid(100), t_end=1.0, initial=rho)
    assert float(flow["free_energy"][-1]) < 0.8
    assert np.diff(flow["free_energy"]).max() <= 1e-12
    assert float(flow["density"][-1].max()) < 50


def test_free_energy_reads_the_coordinate():
    problem = PROBLEMS["Riesz in a well"]
    flow = mf.solve(problem, mf.Grid(40), t_end=0.1)
    with pytest.raises(ValueError, match="density must be on equal cells of Interval"):
        mf.free_energy(problem, flow["density"].isel(x=slice(None, None, -1)))


def test_phases_leave_no_potential_of_position():
    X = np.random.default_rng(0).standard_normal((20, 1))
    potential = mf.KernelAlignment(X, np.where(X[:, 0] > 0, 1.0, -1.0), phases=np.zeros(20))
    with pytest.raises(ValueError, match="KernelAlignment couples the particles and has no V"):
        mf.gibbs(mf.Problem(mf.Interval(-1, 1), potential), mf.Grid(20))


def test_no_strength_times_an_infinite_energy_is_nothing():
    assert mf.hamiltonian(mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(0.0)), [[0.5], [0.5]]) == 0.0
