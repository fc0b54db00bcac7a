"""stationary_states and spectral_gap: transitions with exact critical points, and exact rates of decay and growth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.special import ive

import meanfield as mf
from meanfield.equilibrium.branches import states_of
from meanfield.equilibrium.newton import Linear
from meanfield.equilibrium.spectrum import modes
from meanfield.mesh import Mesh

DAWSON = mf.DoubleWell()


def well(beta, stiffness=1.0, potential=DAWSON):
    return mf.Problem(mf.Interval(-4, 4), potential, mf.QuadraticPair(stiffness), beta)


def torus(strength, beta, cells):
    """Angles: a mesh by hand, whose last conductance closes the circle."""
    h = 2 * math.pi / cells
    x = h * (np.arange(cells) + 0.5)
    kernel = np.fft.rfft(-strength * np.cos(x - x[0]) * (2 * math.sin(h / 2) / h) ** 2 * h)
    problem = mf.Problem(mf.Torus(2 * math.pi, 1), mf.Zero(), mf.CosinePair(strength), beta)
    edges = np.linspace(0, 2 * math.pi, cells + 1)
    return Mesh(problem, ("x",), (x,), (edges,), np.full(cells, h), (np.full(cells, 1 / h),), np.zeros(cells),
                lambda rho: np.fft.irfft(np.fft.rfft(rho) * kernel, cells))


def square(beta, cells):
    """[-3, 3]^2 with a double well and a spring, a mesh by hand: the sum of two problems on the line."""
    h = 6.0 / cells
    x = -3.0 + h * (np.arange(cells) + 0.5)
    points = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    problem = mf.Problem(mf.Box(-3, 3, dim=2), mf.DoubleWell(), mf.QuadraticPair(1.0), beta)
    square_norm = np.square(points).sum(axis=-1)

    def spring(rho):  # int |x - y|^2 / 2 rho(y) dy by moments
        mass, mean = rho.sum() * h * h, np.einsum("ij,ija->a", rho, points) * h * h
        return 0.5 * square_norm * mass - points @ mean + 0.5 * (square_norm * rho).sum() * h * h

    open_faces = np.ones((cells, cells))
    open_faces[-1] = 0.0
    edges = np.linspace(-3, 3, cells + 1)
    return Mesh(problem, ("x", "y"), (x, x), (edges, edges), np.full((cells, cells), h * h),
                (open_faces, open_faces.T.copy()), mf.DoubleWell().value(points), spring)


def test_dawson_transition(truths):
    """One state above the critical temperature, three below: magnetisation, critical point, stability."""
    values = truths["dawson_phase_transition"]["values"]

    def growth(beta):
        rest = mf.gibbs(well(beta), mf.Grid(200))
        return -float(mf.spectral_gap(well(beta), mf.Grid(200), density=rest)["decay_rate"][0])

    assert brentq(growth, 2.0, 2.4, xtol=1e-11) == pytest.approx(values["beta_c_theta1"], abs=1e-9)
    found = {beta: mf.stationary_states(well(beta), mf.Grid(200)) for beta in (2.0, 4.0)}
    assert found[2.0].sizes["state"] == 1
    assert found[2.0]["stable"].all()
    cold = found[4.0]
    magnetisation = (cold["density"] * cold["x"]).sum("x").values * 8 / 200
    m = values["m_beta4_theta1"]
    assert_allclose(np.sort(magnetisation), [-m, 0.0, m], atol=1e-9)
    assert_allclose(np.abs(magnetisation), [m, m, 0.0], atol=1e-9)  # the symmetric one has the largest free energy
    assert cold["stable"].values.tolist() == [True, True, False]
    assert (cold["residual"] < 1e-12).all()


def test_unstable_states_are_left_at_their_growth_rate():
    """solve from the symmetric state with the growing mode put on it."""
    problem = well(3.0)
    rest = mf.gibbs(problem, mf.Grid(100))
    gap = mf.spectral_gap(problem, mf.Grid(100), density=rest)
    rate = float(gap["decay_rate"][0])
    assert rate < -0.1
    start = np.maximum(rest["density"].values + 1e-3 * gap["mode_density"].values[0], 0.0)
    flow = mf.solve(problem, mf.Grid(100), t_end=4.0, initial=start, save_at=[1.0, 4.0], tolerance=1e-9)
    size = np.abs(flow["density"].values - rest["density"].values).sum(axis=1)
    assert math.log(size[1] / size[0]) / 3.0 == pytest.approx(-rate, rel=1e-3)


def test_states_continue_from_one_temperature_to_the_next():
    """An asymmetric well, whose second minimiser is born away from the first: handed on, it is followed."""
    known: list = []
    counts = []
    for beta in (4.0, 6.0, 9.0):
        problem = well(beta, stiffness=0.5, potential=(mf.DoubleWell(), mf.Quadratic(0.05, center=1.0)))
        states = mf.stationary_states(problem, mf.Grid(100), initial=known)
        known = list(states["density"].values)
        counts.append((states.sizes["state"], int(states["stable"].sum())))
        assert (np.diff(states["free_energy"]) >= 0).all()
    assert counts[-1] == (3, 2)


@pytest.mark.parametrize("strength", [0.5, 1.5])
def test_kuramoto(strength, truths):
    """The incoherent state and, above K_c = 2 / beta, the coherent one with r = I_1(beta K r) / I_0(beta K r)."""
    beta, cells = 2.0, 256
    mesh = torus(strength, beta, cells)
    linear = Linear(mesh)
    states = states_of(linear)
    incoherent = states[-1]
    assert_allclose(incoherent.density, 1 / (2 * math.pi), rtol=1e-12)
    rates = modes(linear, incoherent, 4).rates
    assert_allclose(rates, np.sort([1 / beta - strength / 2] * 2 + [4 / beta] * 2), atol=5e-4)
    if strength < 2 / beta:
        assert len(states) == 1
        return
    coherent, _ = states
    r = brentq(lambda r: ive(1, beta * strength * r) / ive(0, beta * strength * r) - r, 0.1, 1.0)
    order = abs(np.sum(mesh.volumes * coherent.density * np.exp(1j * mesh.centers[0])))
    assert order == pytest.approx(r, abs=2e-4)
    assert coherent.free_energy == pytest.approx(truths["kuramoto_noisy_order"]["values"]["F"], abs=1e-4)
    shift, slowest = modes(linear, coherent, 2).rates
    assert abs(shift) < 1e-9  # the whole family of shifted states
    assert slowest > 0.1


def test_nine_states_in_two_dimensions():
    """Double wells and springs along x and y apart: the products of the three states on the line."""
    mesh = square(4.0, 16)
    states = states_of(Linear(mesh))
    x = mesh.centers[0]
    means = {(round(float(np.sum(mesh.volumes * s.density * x[:, None])), 2),
              round(float(np.sum(mesh.volumes * s.density * x)), 2)) for s in states}
    assert means == {(a, b) for a in (-0.79, 0.0, 0.79) for b in (-0.79, 0.0, 0.79)}
    growing = [int((modes(Linear(mesh), s, 3).rates < 0).sum()) for s in states]
    assert growing == [0, 0, 0, 0, 1, 1, 1, 1, 2]


def test_spectral_gaps_without_interaction(truths):
    """No flux on an interval: (pi / l)^2 / beta; reflected Ornstein-Uhlenbeck: 2, 4, 6; second order in the cell width."""
    cells, flat, half = np.array([50, 100, 200]), [], []
    for m in cells:
        rate = mf.spectral_gap(mf.Problem(mf.Interval(0, 2), inverse_temperature=3.0), mf.Grid(int(m)))["decay_rate"]
        flat.append(truths["no_flux_spectral_gaps"]["values"]["box2"] / 3 - float(rate[0]))
        ornstein = mf.Problem(mf.Interval(0, 8), mf.Quadratic(), inverse_temperature=2.0)
        half.append(mf.spectral_gap(ornstein, mf.Grid(int(m)), n_modes=3)["decay_rate"].values)
    assert abs(mf.fit_rate(cells, np.array(flat)).slope + 2) < 0.01
    assert abs(mf.fit_rate(cells, 2 - np.array(half)[:, 0]).slope + 2) < 0.02
    assert_allclose(half[-1], [2, 4, 6], rtol=3e-3)
    # cells wide: h^2-exact eigenvalue 4 sin^2(pi / 8) / (beta h^2) of four of them
    four = mf.spectral_gap(mf.Problem(mf.Interval(0, 2), inverse_temperature=3.0), mf.Grid(4), n_modes=3)
    assert_allclose(four["decay_rate"], 16 / 3 * np.sin(np.pi * np.arange(1, 4) / 8) ** 2, rtol=1e-12)


def test_a_rare_crossing_keeps_its_digits():
    """Barrier 1 at beta = 30, a gap of 1e-13 beside rates of 1e5: Kramers' rate, up to its correction of order 1 / beta."""
    problem = mf.Problem(mf.Interval(-2, 2), mf.DoubleWell(4.0, 4.0), inverse_temperature=30.0)
    gap = float(mf.spectral_gap(problem, mf.Grid(400))["decay_rate"][0])
    kramers = 2 * math.sqrt(8 * 4) / (2 * math.pi) * math.exp(-30.0)
    assert gap == pytest.approx(kramers, rel=0.05)


@pytest.mark.parametrize(("beta", "names"), [(1, ("gap_b1",)), (20, ("gap_b20", "gap_even_b20"))])
def test_spectral_gap_of_the_coulomb_gas(beta, names, truths):
    """With interaction, exact by the Cole-Hopf transform of Burgers' equation."""
    exact = [truths["coulomb1d_hardwall_finite_beta"]["values"][name] for name in names]
    problem = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Coulomb(1), beta)
    errors = np.array([mf.spectral_gap(problem, mf.Grid(m), n_modes=len(names))["decay_rate"].values - exact
                       for m in (100, 200, 400)])
    assert np.abs(errors[-1]).max() < 1e-5
    assert ((errors[:-1] / errors[1:] > 3.5) & (errors[:-1] / errors[1:] < 4.6)).all()


def test_spectral_gap_of_the_log_gas_on_the_line():
    """V = x^2 / 2: the mean decays at 1, the second moment at 2 (exact moments of the flow)."""
    problem = mf.Problem(mf.Interval(-5, 5), mf.Quadratic(), mf.Log(), 10.0)
    gap = mf.spectral_gap(problem, mf.Grid(400), n_modes=2)
    assert_allclose(gap["decay_rate"], [1, 2], rtol=1e-3)
    assert_allclose(np.abs(gap["mode_density"]).sum("x") * 10 / 400, 1, rtol=1e-12)
    assert_allclose(gap["mode_density"].sum("x"), 0, atol=1e-10)
    assert mf.spectral_gap(problem, mf.Grid(1500))["decay_rate"][0] == pytest.approx(1, rel=1e-4)  # conjugate gradients
