"""The parts of a time step: Bernoulli's function, tridiagonal solves, limited flows, implicit coupling, step control."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from handmade import box, two_bumps
from numpy.testing import assert_allclose, assert_array_equal

import meanfield as mf
from meanfield.coupling import gmres
from meanfield.kernels import cells, flux
from meanfield.mesh import mesh_of
from meanfield.stepping import Stepper


def coefficients(rise, temperature=1.0):
    """up and down on one face for each rise of U."""
    drift = np.stack([np.zeros_like(rise), rise])
    rate, up, down = np.ones_like(drift), np.empty_like(drift), np.empty_like(drift)
    flux.face_coefficients(drift, temperature, rate, rate, up, down)
    return up[0], down[0]


def test_bernoulli_function():
    z = np.concatenate([[0.0, 1e-300, 1e-17], np.geomspace(1e-12, 700, 3001)])
    exact = np.array([x / math.expm1(x) if x > 1e-15 else 1.0 for x in z])
    up, down = coefficients(z)
    assert_allclose(up, exact, rtol=3e-14)
    assert_allclose(up[z < 30], exact[z < 30], rtol=3e-15)
    assert_allclose(down, exact + z, rtol=5e-16)
    assert_array_equal(coefficients(-z), (down, up))
    far = np.array([800.0, 1e6, 1e300])
    up, down = coefficients(far)
    assert (up >= 0).all()
    assert (up < 1e-300).all()
    assert_array_equal(down, far)
    assert_array_equal(coefficients(np.array([-2.0, 0.0, 3.0]), 0.0), ([2, 0, 0], [0, 0, 3]))  # upwind
    up, down = coefficients(z[z < 600])
    assert_allclose(np.log(down / up), z[z < 600], rtol=2e-13, atol=1e-14)  # rest states to round-off


@pytest.mark.parametrize(("m", "lines"), [(2, 1), (3, 1), (4, 1), (7, 1), (50, 1), (2, 3), (9, 70)])
@pytest.mark.parametrize("ring", [False, True])
def test_solves_against_dense_ones(m, lines, ring):
    rng = np.random.default_rng(m * lines)
    up, down = 10 ** rng.uniform(-3, 3, (2, m, lines))
    if not ring:
        up[-1] = down[-1] = 0.0
    rhs, stage = rng.random((2, m, lines))
    out, inverse, back, again, work = *np.empty((4, m, lines)), np.empty((5, m, lines))
    if ring:
        flux.cyclic_solve(up, down, 0.7, rhs, out, work)
    else:
        flux.implicit_solve(up, down, 0.7, rhs, out, inverse, back)
        flux.substitute(up, down, 0.7, rhs, stage, 2.4, again, inverse, back)
    for j in range(lines):
        matrix = np.eye(m)
        for i in range(m):
            for row, sign in ((i, 1), ((i + 1) % m, -1)):
                matrix[row, i] += 0.7 * sign * up[i, j]
                matrix[row, (i + 1) % m] -= 0.7 * sign * down[i, j]
        assert_allclose(out[:, j], np.linalg.solve(matrix, rhs[:, j]), rtol=1e-9)
        if not ring:
            right = rhs[:, j] + 2.4 * (stage - rhs)[:, j]
            assert_allclose(again[:, j], np.linalg.solve(matrix, right), rtol=1e-9, atol=1e-12)
    assert (out > 0).all()
    assert_allclose(out.sum(axis=0), rhs.sum(axis=0), rtol=1e-14)


@pytest.mark.parametrize("temperature", [0.0, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("lines", [1, 5])
def test_mobility_is_the_slope_of_the_flow(temperature, lines):
    rng = np.random.default_rng(lines)
    drift, q = rng.normal(size=(2, 8, lines))
    q = np.abs(q)
    rate_up, rate_down = rng.uniform(1, 2, (2, 8, lines))

    def flow(u):
        up, down = np.empty((2, 8, lines))
        flux.face_coefficients(u, temperature, rate_up, rate_down, up, down)
        return up * q - down * np.roll(q, -1, axis=0), up, down

    _, up, down = flow(drift)
    mobility = np.empty_like(q)
    flux.mobility(drift, q, temperature, rate_up, rate_down, 1.5 * up, 1.5 * down, mobility)
    change = 1e-6 * rng.normal(size=drift.shape)
    slope = 0.5 * (flow(drift + change)[0] - flow(drift - change)[0])
    assert_allclose(1.5 * slope, -mobility * (np.roll(change, -1, axis=0) - change), rtol=2e-5, atol=1e-12)
    assert (mobility >= 0).all()
    # and the outflow that a change of U causes
    outflow = np.zeros_like(q)
    cells.add_response(mobility, change, 2.0, outflow)
    assert_allclose(outflow, 3.0 * (slope - np.roll(slope, 1, axis=0)), rtol=2e-4, atol=1e-10)


@pytest.mark.parametrize("temperature", [0.0, 1e-2, 1.0])
def test_limited_flow_is_the_reconstructed_one(temperature):
    """Against the formula, face by face: -c rho_face d xi with van Leer's rho_face, at most twice the first-order flow, and
    exactly nothing at a Gibbs state."""
    rng = np.random.default_rng(3)
    m = 30
    rho = np.exp(np.cumsum(rng.normal(size=(m, 1)) * 0.3, axis=0))
    drift = np.cumsum(rng.normal(size=(m, 1)) * 0.2, axis=0)
    rate = np.full((m, 1), 3.0)
    rate[-1] = 0.0
    up, down = np.empty((2, m, 1))
    flux.face_coefficients(drift, temperature, rate, rate, up, down)
    first = (up * rho - down * np.roll(rho, -1, axis=0))[:-1, 0]
    flux.limited_coefficients(drift, np.log(rho), rho, temperature, up, down)
    flow = (up * rho - down * np.roll(rho, -1, axis=0))[:-1, 0]
    r, u = rho[:, 0], drift[:, 0]
    for i in range(1, m - 2):
        fall = u[i] - u[i + 1] + temperature * np.log(r[i] / r[i + 1])
        a, b = (r[i] - r[i - 1], r[i + 1] - r[i]) if fall > 0 else (r[i + 1] - r[i + 2], r[i] - r[i + 1])
        face = (r[i] if fall > 0 else r[i + 1]) + (a * b / (a + b) if a * b > 0 else 0.0)
        expected = 3.0 * face * fall
        assert flow[i] * first[i] >= 0
        assert flow[i] == pytest.approx(expected if abs(expected) < 2 * abs(first[i]) else 2 * first[i], rel=1e-9, abs=1e-12)
    if temperature:
        rest = np.exp(-drift / temperature)
        flux.face_coefficients(drift, temperature, rate, rate, up, down)
        flux.limited_coefficients(drift, np.log(rest), rest, temperature, up, down)
        sizes = up * rest
        flow = sizes - down * np.roll(rest, -1, axis=0)
        assert_allclose(flow[:-1] / sizes[:-1], 0, atol=1e-13 * (1 + np.abs(drift).max() / temperature))


def test_flows_that_empty_a_cell_are_cut():
    rng = np.random.default_rng(0)
    low = rng.exponential(size=(40, 3)) * (rng.random((40, 3)) < 0.7)
    high = low + np.diff(0.5 * rng.normal(size=(39, 3)), axis=0, prepend=0.0, append=0.0)
    assert high.min() < -0.1
    out = np.empty_like(low)
    cells.blend_to_positive(low, high, out)
    assert (out >= 0).all()
    assert_allclose(out.sum(axis=0), low.sum(axis=0), rtol=1e-13)
    # and where no cell is emptied nothing is cut
    low += 1.0
    high = low + np.diff(0.1 * rng.normal(size=(39, 3)), axis=0, prepend=0.0, append=0.0)
    cells.blend_to_positive(low, high, out)
    assert_allclose(out, high, rtol=1e-13)


def test_transposes_and_sums():
    rng = np.random.default_rng(1)
    for shape in ((1, 1), (16, 16), (17, 33), (40, 5)):
        a, out = rng.random(shape), np.empty(shape[::-1])
        cells.transpose(a, out)
        assert_array_equal(out, a.T)
    q, u, v, p = rng.random((4, 1000, 3))
    energy, entropy = cells.totals(q, u, v, p)
    assert (energy, entropy) == pytest.approx(((q * (u + v)).sum() / 2, (q * p).sum()), rel=1e-14)


def test_gmres_solves():
    rng = np.random.default_rng(2)
    matrix = np.eye(30) + 0.1 * rng.normal(size=(30, 30))
    rhs = rng.normal(size=(30, 1))
    for tolerance in (1e-2, 1e-10):
        x = gmres(lambda y: matrix @ y, rhs, tolerance)
        assert np.linalg.norm(matrix @ x - rhs) <= 1.01 * tolerance * np.linalg.norm(rhs)
    assert_array_equal(gmres(lambda y: y, np.zeros((4, 1)), 1e-3), 0.0)


def start(x):
    return (0.7 * np.exp(-((x + 1) ** 2) / 0.18) + 0.3 * np.exp(-((x - 1) ** 2) / 0.18)) / np.sqrt(0.18 * np.pi)


@pytest.mark.parametrize("beta", [10.0, 1e3, math.inf])
@pytest.mark.parametrize("interaction", [mf.Log(), mf.Riesz(0.9)], ids=["log", "Riesz 0.9"])
def test_implicit_steps_run_downhill_whatever_their_length(beta, interaction):
    """Steps of 0.2 without error control: the free energy falls in each.

    With g * rho frozen it rises at beta = 1e3, by 0.015 for the logarithm and by more than 1 for s = 0.9."""
    mesh = mesh_of(mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), interaction, beta), mf.Grid(200))
    rho, _ = mesh.density(start)

    def course(implicit):
        stepper, energies = Stepper(mesh, 1e-6, rho), []
        for _ in range(8):
            energies.append(stepper.state.energies.free_energy)
            stepper.step(0.2, implicit)
        assert mesh.mass(stepper.density) == pytest.approx(1, abs=1e-14)
        assert (stepper.density >= 0).all()
        return np.diff(energies)

    assert course(True).max() < 0
    if beta > 10:
        assert course(False).max() > 1e-3


def test_stiff_interactions_take_few_steps():
    """Riesz s = 0.9 on 200 cells: 1.1e5 steps where g * rho is always frozen."""
    problem = mf.Problem(mf.Interval(-1, 1), mf.Quadratic(), mf.Riesz(0.9), 10.0)
    flow = mf.solve(problem, mf.Grid(200), t_end=1.0, initial=lambda x: np.exp(-8 * (x - 0.3) ** 2) / 0.62506,
                    save_at=[0, 1.0], tolerance=1e-5)
    assert int(flow["n_steps"][-1] + flow["n_rejected"][-1]) < 500
    assert_allclose(flow["density"].values[-1], mf.gibbs(problem, mf.Grid(200))["density"].values, rtol=1e-5)


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("limited", [False, True])
def test_gibbs_states_rest(implicit, limited):
    """One long step from the fixed point of cells leaves every cell as it is, with either flow."""
    problem = mf.Problem(mf.Interval(-1, 1), mf.DoubleWell(), mf.Log(0.3), 20.0)
    mesh = mesh_of(problem, mf.Grid(60))
    rho = mf.gibbs(problem, mf.Grid(60))["density"].values
    stepper = Stepper(mesh, 1e-6, rho)
    stepper.limited = limited
    stepper.recall(stepper.memory())  # rates and coefficients anew
    stepper.step(0.5, implicit)
    assert_allclose(stepper.density, rho, rtol=1e-9)
    assert mesh.mass(np.abs(stepper.density - rho)) < 1e-11


@pytest.mark.parametrize("beta", [1.0, 500.0])
def test_two_axes_are_alike(beta):
    """x and y swapped in the problem are swapped in the result, up to the order of the splitting (x, y, x)."""
    problem = mf.Problem(mf.Box(-3, 3, dim=2), mf.Quadratic(), mf.Log(), beta)
    mesh = box(problem, (24, 24), lambda r: -np.log(r))
    rho, _ = mesh.density(two_bumps)
    found = []
    for begin in (rho, rho.T.copy()):
        stepper, t = Stepper(mesh, 1e-5, begin), 0.0
        energy = stepper.state.energies.free_energy
        while t < 0.2:
            t += stepper.advance(0.2 - t)
            assert stepper.state.energies.free_energy <= energy + 1e-12
            energy = stepper.state.energies.free_energy
        assert (stepper.density >= 0).all()
        assert mesh.mass(stepper.density) == pytest.approx(1, abs=1e-13)
        assert stepper.limited == (beta == 500.0)
        found.append(stepper.density)
    assert mesh.mass(np.abs(found[0] - found[1].T)) < 5e-4


def test_flux_is_what_moves_the_mass():
    """Drift without noise: rho v; the mean moves at the integral of the flux; no flux through the walls."""
    problem = mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), mf.Log(), 10.0)
    flow = mf.solve(problem, mf.Grid(600), t_end=0.5, initial=start)
    speed = flow["flux"].sum("x") * 6 / 600
    mean = (flow["density"] * flow["x"]).sum("x") * 6 / 600
    assert_allclose(speed, -mean, atol=4e-4)  # dm_1/dt = -m_1
    assert_allclose(np.gradient(mean, flow["time"])[1:-1], speed[1:-1], rtol=1e-3)
    rest = mf.solve(problem, mf.Grid(60), t_end=0.01, initial=mf.gibbs(problem, mf.Grid(60))["density"].values)
    assert np.abs(rest["flux"]).max() < 1e-9


def arguments(**more):
    problem = mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), mf.Riesz(0.8), 20.0)
    return {"problem": problem, "grid": mf.Grid(60), "initial": start, "save_at": [0.0, 0.05, 0.1, 0.3, 0.5], "t_end": 0.5,
            "tolerance": 1e-5, **more}


def test_checkpoints_give_the_numbers_of_a_straight_run(tmp_path, monkeypatch):
    from meanfield.checkpoint import Checkpoint

    straight = mf.solve(**arguments())
    for stop in (0.05, 0.3):
        file = tmp_path / f"{stop}.npz"
        mf.solve(**arguments(checkpoint=file, t_end=stop, save_at=[t for t in (0.0, 0.05, 0.1, 0.3) if t <= stop]))
        resumed = mf.solve(**arguments(checkpoint=file))
        assert resumed.identical(straight)
        assert mf.solve(**arguments(checkpoint=file)).identical(straight)  # already there
    # cut off in the middle, between saved times
    file, counter = tmp_path / "cut.npz", itertools.count()

    def stop_late(self, step, state):
        if next(counter) == 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "offer", stop_late)
    with pytest.raises(KeyboardInterrupt):
        mf.solve(**arguments(checkpoint=file))
    monkeypatch.undo()
    assert mf.solve(**arguments(checkpoint=file)).identical(straight)


@pytest.mark.parametrize(("change", "sentence"), [
    ({"tolerance": 1e-4}, "was made with tolerance=1e-05, this call has 0.0001"),
    ({"grid": mf.Grid(61)}, "was made with cells=60, this call has 61"),
    ({"initial": "uniform"}, "was made with initial="),
    ({"t_end": 0.1, "save_at": [0.0, 0.05, 0.1]}, "is at time 0.5, beyond this call's 0.1"),
    ({"t_end": 0.6, "save_at": [0.0, 0.2, 0.6]}, "was made with other save_at up to its time 0.5"),
    ({"t_end": 0.6, "save_at": [0.0, 0.05, 0.1, 0.3, 0.6]}, "was made with other save_at up to its time 0.5"),
])
def test_foreign_checkpoints_are_refused(change, sentence, tmp_path):
    mf.solve(**arguments(checkpoint=tmp_path / "run.npz"))
    with pytest.raises(ValueError, match=sentence):
        mf.solve(**arguments(checkpoint=tmp_path / "run.npz", **change))
    (tmp_path / "run.npz").write_text("nothing")
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        mf.solve(**arguments(checkpoint=tmp_path / "run.npz"))


def test_a_tolerance_below_round_off_is_refused():
    with pytest.raises(ArithmeticError, match="ask for a larger tolerance"):
        mf.solve(**arguments(tolerance=1e-20))
