"""gibbs: residuals, exact free energies and wall densities on panels, coldest states, collapse."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.special import betainc

import meanfield as mf
from meanfield.equilibrium.newton import Linear
from meanfield.equilibrium.obstacle import coldest
from meanfield.mesh import Mesh, mesh_of

INF = float("inf")


DAWSON = mf.DoubleWell()


def well(beta, stiffness=1.0, potential=DAWSON):
    return mf.Problem(mf.Interval(-4, 4), potential, mf.QuadraticPair(stiffness), beta)


@pytest.mark.parametrize("problem", [
    *(well(beta) for beta in (2.0, 8.0, 20.0, 1e3, 1e4)),
    well(100.0, potential=(mf.DoubleWell(), mf.Quadratic(0.1, center=0.3))),
    *(mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), kernel, 1e4)
      for kernel in (mf.Log(), mf.Riesz(0.9), mf.Riesz(-1.5), mf.Coulomb(1), mf.GaussianPair(1.0, 0.3))),
    mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(), 1e4),
    mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(-1.0), 1.9),
], ids=lambda p: p.formula)
def test_residuals_are_round_off(problem):
    """Through the transition of the double well, and where log rho spans thousands."""
    rest = mf.gibbs(problem, mf.Grid(200))
    mesh = mesh_of(problem, mf.Grid(200))
    rho = rest["density"].values
    scale = 1 + problem.inverse_temperature * np.abs(mesh.convolve(rho)).max()
    assert float(rest["residual"]) <= max(1e-12, 4e-15 * scale)
    # the equation itself, where the density is a number
    held = rho > 1e-200
    u = np.log(rho[held]) + problem.inverse_temperature * (mesh.potential + mesh.convolve(rho))[held]
    assert np.ptp(u) <= max(4e-12, 2e-14 * scale)
    assert mesh.mass(rho) == pytest.approx(1, abs=1e-13)


def test_cold_log_gas_on_the_line_has_its_second_moment():
    """m_2 = 1 / beta + 1 / 2 for V = x^2 / 2 at every temperature (virial)."""
    problem = mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), mf.Log(), 1e4)
    errors = []
    for cells in (150, 300):
        rest = mf.gibbs(problem, mf.Grid(cells))
        errors.append(abs(float((rest["density"] * rest["x"] ** 2).sum() * 6 / cells) - 0.5 - 1e-4))
    assert errors[1] < 1.5e-5
    assert errors[0] > 10 * errors[1]


@pytest.mark.parametrize("beta", [1, 5, 20])
def test_panels_give_the_log_gas_all_digits(beta, truths):
    values = truths["loggas_interval_finite_beta"]["values"]
    problem = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(), beta)
    rest = mf.gibbs(problem, mf.Grid(500), method="panels")
    assert float(rest["free_energy"]) == pytest.approx(values[f"F_b{beta}"], abs=1e-12)
    assert_allclose(rest["wall_density"], (2 + beta) / 4, rtol=1e-11)
    m2 = float((rest["node_weight"] * rest["node_density"] * rest["node_place"] ** 2).sum())
    m4 = float((rest["node_weight"] * rest["node_density"] * rest["node_place"] ** 4).sum())
    assert m2 == pytest.approx((2 + beta) / (2 * (3 + beta)), abs=1e-12)
    assert m4 == pytest.approx(((3 / beta + 1) * m2 - m2**2 / 2) / (5 / beta + 1), abs=1e-12)
    assert np.abs(rest["wall_density"] - (2 + beta) / 4).max() <= rest["wall_error"].max()
    # the cell averages: a probability density, which the scheme's own fixed point tends to
    assert float(rest["density"].sum() * 2 / 500) == pytest.approx(1, abs=1e-13)
    if beta == 5:
        errors = []
        for cells in (125, 250, 500):
            exact = rest["density"].values.reshape(cells, -1).mean(axis=1)
            errors.append(float(np.abs(mf.gibbs(problem, mf.Grid(cells))["density"].values - exact).mean()))
        orders = np.log2(np.divide(errors[:-1], errors[1:]))
        assert ((orders > 1.3) & (orders < 2.2)).all()
        assert errors[-1] < 1e-4


@pytest.mark.parametrize(("s", "rtol"), [(-0.5, 1e-12), pytest.param(0.25, 1e-12, marks=pytest.mark.full), (0.5, 1e-11)])
def test_panels_keep_the_contact_theorem_of_riesz_gases(s, rtol):
    """Virial: rho(1) + rho(-1) = 1 + beta |s| times the pair energy, s > 0 positive (V = 0 on [-1, 1])."""
    rest = mf.gibbs(mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Riesz(s), 5.0), mf.Grid(50), method="panels")
    assert float(rest["wall_density"].sum()) == pytest.approx(1 + 5.0 * s * float(rest["energy"]), rel=rtol)


@pytest.mark.full
def test_panels_say_where_a_wall_is_beyond_them():
    """At s = 3/4 log rho goes like the fourth root of the distance from the wall: F has its digits, the wall has not."""
    rest = mf.gibbs(mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Riesz(0.75), 5.0), mf.Grid(50), method="panels")
    contact = (1 + 5.0 * 0.75 * float(rest["energy"])) / 2
    error = np.abs(rest["wall_density"].values - contact)
    assert (error < 2e-3).all()
    assert (error <= rest["wall_error"].values).all()
    assert float(rest["free_energy_error"]) < 1e-10


@pytest.mark.parametrize("beta", [1, 5, 20])
def test_panels_on_the_radius_of_a_disc(beta, truths):
    """The Liouville solution of the log gas in a disc: rho = (4 a / (pi beta)) (1 - a r^2)^-2, a = beta / (4 + beta)."""
    rest = mf.gibbs(mf.Problem(mf.Ball(1.0, 2), mf.Zero(), mf.Log(), beta), mf.Grid(40), method="panels")
    free_energy = truths["loggas2d_disc_finite_beta"]["values"][f"F_b{beta}"]
    assert float(rest["free_energy"]) == pytest.approx(free_energy, abs=1e-12)
    a = beta / (4 + beta)
    exact = 4 * a / (math.pi * beta) * (1 - a * rest["node_place"].values ** 2) ** -2
    assert_allclose(rest["node_density"], exact, rtol=1e-11)
    assert_allclose(rest["wall_density"], [(4 + beta) / (4 * math.pi)], rtol=1e-12)
    edges = np.linspace(0, 1, 41)
    mass = 4 / beta / (1 - a * edges**2)  # int 2 pi r rho
    assert_allclose(rest["density"].values * math.pi * np.diff(edges**2), np.diff(mass), rtol=1e-11)


@pytest.mark.parametrize("beta", [2, 10])
def test_panels_on_a_wide_window_of_the_line(beta, truths):
    values = truths["loggas1d_quadratic_finite_beta"]["values"]
    rest = mf.gibbs(mf.Problem(mf.Interval(-9, 9), mf.Quadratic(), mf.Log(), beta), mf.Grid(100), method="panels")
    assert float(rest["free_energy"]) == pytest.approx(values[f"F_b{beta}"], abs=1e-12)
    m2 = float((rest["node_weight"] * rest["node_density"] * rest["node_place"] ** 2).sum())
    assert m2 == pytest.approx(1 / beta + 0.5, abs=1e-12)


def test_panels_for_kernels_without_a_singularity():
    """A narrow Gaussian, and the Coulomb gas between walls (whose kernel has a kink), against exact and extrapolated F."""
    problem = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.GaussianPair(1.0, 0.05), 5.0)
    coarse, fine = (float(mf.gibbs(problem, mf.Grid(m))["free_energy"]) for m in (1000, 2000))
    assert abs(coarse - fine) > 1e-10
    assert float(mf.gibbs(problem, mf.Grid(50), method="panels")["free_energy"]) == pytest.approx((4 * fine - coarse) / 3,
                                                                                                 abs=1e-12)


@pytest.mark.parametrize("beta", [1, 5, 20])
def test_panels_for_the_coulomb_gas(beta, truths):
    values = truths["coulomb1d_hardwall_finite_beta"]["values"]
    rest = mf.gibbs(mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Coulomb(1), beta), mf.Grid(50), method="panels")
    assert float(rest["free_energy"]) == pytest.approx(values[f"F_b{beta}"], abs=1e-12)
    # k1 tan k1 = beta / 2, A = 2 k1 / beta, wall density (beta / 4)(A^2 + 1)
    k = brentq(lambda k: k * math.tan(k) - beta / 2, 1e-9, math.pi / 2 - 1e-9, xtol=1e-15)
    assert_allclose(rest["wall_density"], beta / 4 * ((2 * k / beta) ** 2 + 1), rtol=1e-11)


COLD = {
    "arcsine": (mf.Interval(-1, 1), mf.Zero(), mf.Log(), lambda x: np.arcsin(x) / math.pi, 0.5),
    **{f"Riesz {s}": (mf.Interval(-1, 1), mf.Zero(), mf.Riesz(s),
                      lambda x, s=s: betainc((1 + s) / 2, (1 + s) / 2, (1 + x) / 2), (1 + s) / 2)
       for s in (0.25, 0.5, 0.75)},
    "semicircle": (mf.Interval(-2, 2), mf.Quadratic(), mf.Log(),
                   lambda x: betainc(1.5, 1.5, np.clip((1 + x / math.sqrt(2)) / 2, 0, 1)), None),
    "Riesz in a well": (mf.Interval(-2, 2), mf.Quadratic(), mf.Riesz(0.5),
                        lambda x: betainc(1.75, 1.75, np.clip((1 + x / 1.399635322367733) / 2, 0, 1)), None),
    "Coulomb": (mf.Interval(-2.1, 2), mf.Quadratic(), mf.Coulomb(1), lambda x: np.clip((1 + x) / 2, 0, 1), None),
}


def cold_energy(name, truths):
    if name.startswith("Riesz 0"):
        return truths["riesz1d_hardwall"]["values"][f"I_s{name.split()[1]}"] / 2
    return {"arcsine": truths["loggas1d_hardwall_arcsine"]["values"]["energy_double"] / 2,
            "semicircle": truths["loggas1d_quadratic_semicircle"]["values"]["energy"],
            "Riesz in a well": truths["riesz_quadratic"]["values"]["energy_d1s0.5"],
            "Coulomb": truths["coulomb1d_quadratic_zeroT"]["values"]["energy"]}[name]


@pytest.mark.parametrize("name", COLD)
def test_coldest_states(name, truths):
    """beta = inf: exact energies, and the orders in L1 that the walls allow: h^((1 + s) / 2) for s at a hard wall."""
    domain, potential, kernel, distribution, order = COLD[name]
    problem = mf.Problem(domain, potential, kernel, INF)
    cells, energies, errors = np.array([100, 200, 400] if order is None else [400, 800, 1600]), [], []
    for m in cells:
        rest = mf.gibbs(problem, mf.Grid(int(m)))
        assert float(rest["residual"]) < 1e-12
        assert float(rest["free_energy"]) == float(rest["energy"])
        mesh = mesh_of(problem, mf.Grid(int(m)))
        energies.append(float(rest["energy"]) - cold_energy(name, truths))
        errors.append(float(np.abs(rest["density"].values * mesh.volumes - np.diff(distribution(mesh.edges[0]))).sum()))
    energies = np.abs(energies)
    if order is None:  # the support ends inside: second order in the energy
        assert energies[-1] < 5e-6
        assert energies[0] > 3.5 * energies[1] > 12 * energies[2]
        assert errors[-1] < 4e-3
    else:
        assert energies[-1] < 8e-5
        assert energies[0] > 1.9 * energies[1] > 3.6 * energies[2]
        assert abs(mf.fit_rate(cells, np.array(errors)).slope + order) < 0.03


def test_coldest_state_obeys_frostman():
    """U = V + g * rho is constant where there is mass and no less elsewhere, whatever the potential."""
    problem = mf.Problem(mf.Interval(-2, 2), (mf.DoubleWell(4.0, 6.0), mf.Quadratic(0.3, center=0.5)), mf.Log(0.3), INF)
    rest = mf.gibbs(problem, mf.Grid(300))
    mesh = mesh_of(problem, mf.Grid(300))
    u = mesh.potential + mesh.convolve(rest["density"].values)
    held = rest["density"].values > 0
    level = u[held].mean()
    assert np.abs(np.diff(held.astype(int))).sum() == 4  # two intervals of support between gaps
    assert np.abs(u[held] - level).max() < 1e-12
    assert (u[~held] >= level - 1e-12).all()


def test_coldest_state_by_conjugate_gradients():
    """More cells than are solved by a matrix: the same conditions."""
    rest = mf.gibbs(mf.Problem(mf.Interval(-2, 2), mf.Quadratic(), mf.Log(), INF), mf.Grid(2000))
    assert float(rest["residual"]) < 1e-11
    assert float(rest["energy"]) == pytest.approx(3 / 8 + math.log(2) / 4, abs=2e-7)


def test_coldest_log_gas_in_a_disc_lies_on_the_circle(truths):
    m = 60
    edges = np.linspace(0, 1, m + 1)
    r = 0.5 * (edges[1:] + edges[:-1])
    volumes = math.pi * np.diff(edges**2)
    kernel = -np.log(np.maximum(r[:, None], r))
    mesh = Mesh(mf.Problem(mf.Ball(1.0, 2), mf.Zero(), mf.Log(), INF), ("r",), (r,), (edges,), volumes, (np.zeros(m),),
                np.zeros(m), lambda rho: kernel @ (volumes * rho))
    cold = coldest(Linear(mesh))
    assert cold.density[-1] * volumes[-1] == 1.0
    assert cold.residual == 0.0
    energy = truths["coulomb2d_disc_hardwall"]["values"]["energy_double_R1"] / 2
    assert mesh.energies(cold.density).energy == pytest.approx(energy, abs=1 / m)


@pytest.mark.parametrize("interaction", [mf.QuadraticPair(1.0), mf.Log(-1.0), mf.NoInteraction(), mf.GaussianPair(1.0, 0.5)])
def test_coldest_states_need_convexity(interaction):
    with pytest.raises(ValueError, match="needs an interaction whose energy is strictly convex on these cells"):
        mf.gibbs(mf.Problem(mf.Interval(-2, 2), mf.DoubleWell(), interaction, INF), mf.Grid(100))


def test_collapse_is_said():
    """Attractive logarithm: a rest state below beta = 2 dim / strength, with rho(1) = (2 - beta) / 4, and none above."""
    rest = mf.gibbs(mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(-1.0), 1.5), mf.Grid(50), method="panels")
    assert_allclose(rest["wall_density"], 0.125, rtol=1e-10)
    for kernel, beta, when in ((mf.Log(-1.0), 2.2, "above 2 dim / strength = 2"),
                               (mf.Riesz(0.5, -1.0), 4.0, "always possible")):
        with pytest.raises(ArithmeticError, match=f"there is no rest state: the attraction draws .* {when}"):
            mf.gibbs(mf.Problem(mf.Interval(-1, 1), mf.Zero(), kernel, beta), mf.Grid(200))


@pytest.mark.full
def test_collapse_leaves_no_stationary_states():
    problem = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(-1.0), 3.0)
    with pytest.raises(ArithmeticError, match="there is no rest state"):
        mf.gibbs(problem, mf.Grid(200), method="panels")
    with pytest.raises(ArithmeticError, match="there is no rest state"):
        mf.stationary_states(problem, mf.Grid(200))


def test_gibbs_descends_from_an_initial_density():
    rest = mf.gibbs(well(4.0), mf.Grid(200), initial=lambda x: np.exp(-((x - 1) ** 2)) / math.sqrt(math.pi))
    assert float(rest["residual"]) < 2e-12
    assert float((rest["density"] * rest["x"]).sum() * 8 / 200) == pytest.approx(0.78755, abs=1e-5)


def test_datasets_of_equilibria_round_trip(tmp_path):
    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)
    for name, data in (("panels", mf.gibbs(problem, mf.Grid(20), method="panels")),
                       ("states", mf.stationary_states(problem, mf.Grid(20))),
                       ("gap", mf.spectral_gap(problem, mf.Grid(20)))):
        data.to_netcdf(tmp_path / f"{name}.nc")
        assert mf.load(tmp_path / f"{name}.nc").identical(data)


@pytest.mark.parametrize(("call", "sentence"), [
    (lambda: mf.gibbs(well(1.0), mf.Grid(20), method="spectral"), "method must be one of 'cells', 'panels', got 'spectral'"),
    (lambda: mf.gibbs(well(INF), mf.Grid(20), method="panels"), "method='panels' needs a finite inverse_temperature"),
    (lambda: mf.gibbs(well(1.0), mf.Grid(20), method="panels", initial="uniform"), "initial is for method='cells'"),
    (lambda: mf.gibbs(mf.Problem(mf.Box(0, 1, dim=2)), mf.Grid(20), method="panels"), "panels are for an Interval"),
    (lambda: mf.gibbs(mf.Problem(mf.Ball(1.0, 2), mf.Zero(), mf.Riesz(0.5)), mf.Grid(20), method="panels"),
     "panels along the radius of a Ball take its Coulomb kernel, Riesz s = 0"),
    (lambda: mf.stationary_states(well(INF), mf.Grid(20)), "stationary_states needs a finite inverse_temperature, got inf"),
    (lambda: mf.spectral_gap(well(INF), mf.Grid(20)), "spectral_gap needs a finite inverse_temperature, got inf"),
    (lambda: mf.spectral_gap(well(1.0), mf.Grid(20), density=np.full(20, 1 / 8)), "the density must be a rest state"),
    (lambda: mf.spectral_gap(well(1.0), mf.Grid(20), n_modes=0), "n_modes must be"),
])
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
