"""Orders of convergence and exact solutions on every geometry: boxes, tori, discs, balls and windows of free space."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq
from scipy.sparse.linalg import eigsh
from scipy.special import erfc, i0, i1, jnp_zeros, spherical_jn
from scipy.stats import norm

import meanfield as mf
from meanfield.mesh import mesh_of

TURN = 2 * np.pi
COLD = float("inf")


def second_order(cells, errors, *, last, slack=0.1):
    """The slope of the errors is -2 within its standard error (or ``slack``), and the last one is below ``last``."""
    rate = mf.fit_rate(np.array(cells), np.abs(errors))
    assert abs(rate.slope + 2) < max(4 * rate.stderr, slack), (rate.slope, errors)
    assert abs(errors[-1]) < last, errors


# --- linear problems


def test_ornstein_uhlenbeck_in_the_plane(truths):
    """A product of Gaussians stays one; the attraction acts in each component. Cells of a rectangular box, two widths."""
    truth = truths["ou_quadratic_mv_moments"]["values"]
    problem = mf.Problem(mf.Box([-5, -4], [5, 4]), mf.Quadratic(1.0), mf.QuadraticPair(0.5), 2.0)

    def start(x, y):
        return np.exp(-2 * (x - 1) ** 2 - 2 * (y + 0.5) ** 2) * 2 / np.pi

    cells, errors, means = (32, 64, 128), [], []
    for m in cells:
        flow = mf.solve(problem, mf.Grid((m, 3 * m // 4)), t_end=0.5, initial=start, save_at=[0.5], tolerance=1e-5)
        deviation, decay = np.sqrt(truth["var_t0.5"]), truth["mean_t0.5"]
        exact = np.outer(np.diff(norm(decay, deviation).cdf(np.linspace(-5, 5, m + 1))),
                         np.diff(norm(-0.5 * decay, deviation).cdf(np.linspace(-4, 4, 3 * m // 4 + 1))))
        masses = flow["density"].values[0] * 80 / (0.75 * m * m)
        errors.append(np.abs(masses - exact).sum())
        means.append(float((masses.sum(axis=1) * flow["x"]).sum()) - decay)
    second_order(cells, errors, last=3e-3)
    second_order(cells, means, last=2e-3)


@pytest.mark.parametrize("dim", [1, 2])
def test_heat_on_a_torus(dim):
    """cos(k x) decays at the rate k^2 / beta, each mode for itself; an odd number of cells is no different."""
    problem = mf.Problem(mf.Torus(TURN, dim), inverse_temperature=2.0)

    def averages(m, t):  # of 1 + 0.4 exp(-t / 2) cos(x - 1) and, in y, 1 + 0.4 exp(-2 t) cos(2 y)
        edge = np.linspace(0, TURN, m + 1)
        x = 1 + 0.4 * np.exp(-t / 2) * np.diff(np.sin(edge - 1)) * m / TURN
        if dim == 1:
            return x / TURN
        return np.outer(x, 1 + 0.4 * np.exp(-2 * t) * np.diff(np.sin(2 * edge)) / 2 * m / TURN) / TURN**2

    cells, errors = (15, 30, 61, 122), []
    for m in cells:
        flow = mf.solve(problem, mf.Grid(m), t_end=0.5, initial=averages(m, 0), save_at=[0.5], tolerance=1e-7)
        errors.append(np.abs(flow["density"].values[0] - averages(m, 0.5)).sum() * (TURN / m) ** dim)
    second_order(cells, errors, last=3e-4)


def gap(domain, grid):
    """Smallest positive decay rate of the heat equation's generator on the mesh, from its volumes and conductances."""
    mesh = mesh_of(mf.Problem(domain), grid)
    n, inside = mesh.volumes.size, mesh.volumes.ravel() > 0
    index = np.arange(n).reshape(mesh.shape)
    matrix = sp.csr_matrix((n, n))
    for a, conductance in enumerate(mesh.conductances):
        i, j, c = index.ravel(), np.roll(index, -1, a).ravel(), conductance.ravel()
        matrix = matrix + sp.csr_matrix((np.r_[c, c, -c, -c], (np.r_[i, j, i, j], np.r_[i, j, j, i])), (n, n))
    root = sp.diags(mesh.volumes.ravel()[inside] ** -0.5)
    symmetric = root @ matrix.tocsr()[inside][:, inside] @ root
    return np.sort(eigsh(symmetric.tocsc(), k=2, sigma=-1e-3, v0=np.ones(inside.sum()))[0])[1]


def test_neumann_gaps(truths):
    """Decay rates of what decays slowest, on each kind of mesh; shells see radial functions only (Szego, Weinberger)."""
    cells = (16, 32, 64, 128)
    box = truths["no_flux_spectral_gaps"]["values"]["box2"]
    second_order(cells, [gap(mf.Box(-1, 1, dim=2), mf.Grid((m, m // 2))) - box for m in cells], last=1e-3)
    second_order(cells, [gap(mf.Torus(TURN, 1), mf.Grid(m)) - 1 for m in cells], last=3e-4)
    second_order(cells, [gap(mf.Ball(1.0, 2), mf.Grid(m)) - jnp_zeros(1, 1)[0] ** 2 for m in cells], last=3e-4)
    second_order(cells, [gap(mf.Ball(1.0, 2), mf.Grid(m, radial=True)) - jnp_zeros(0, 1)[0] ** 2 for m in cells], last=2e-3)
    radial = brentq(lambda k: spherical_jn(0, k, derivative=True), 4, 5) ** 2
    second_order(cells, [gap(mf.Ball(1.0, 3), mf.Grid(m)) - radial for m in cells], last=3e-3)


def test_a_sloshing_disc_decays_at_its_gap(truths):
    """The same through solve: the first moment along x of a mode of the disc."""
    flow = mf.solve(mf.Problem(mf.Ball(1.0, 2)), mf.Grid(32), t_end=1.0, save_at=[0.6, 1.0], tolerance=1e-5,
                    initial=lambda x, y: (1 + 0.5 * x) / np.pi)
    moment = (flow["density"] * mesh_of(mf.Problem(mf.Ball(1.0, 2)), mf.Grid(32)).volumes * flow["x"]).sum(("x", "y")).values
    assert np.log(moment[0] / moment[1]) / 0.4 == pytest.approx(jnp_zeros(1, 1)[0] ** 2, rel=3e-3)


# --- singular kernels


def two_bumps(x, y):
    left, right = (x + 1) ** 2 + y**2, (x - 1) ** 2 + (y - 0.5) ** 2
    return (0.7 * np.exp(-left / 0.18) + 0.3 * np.exp(-right / 0.18)) / (0.18 * np.pi)


@pytest.mark.parametrize("domain", [mf.Box(-3, 3, dim=2), mf.FreeSpace(2), mf.Ball(3.0, 2)], ids=lambda d: type(d).__name__)
def test_log_gas_in_the_plane_follows_its_virial(domain, truths):
    """Exact mean and second moment of the McKean-Vlasov flow, walls or not so far out that nothing is there."""
    truth = truths["loggas2d_virial"]["values"]
    problem = mf.Problem(domain, mf.Quadratic(), mf.Log(), 10.0)
    cells, errors = (32, 64, 128), []
    for m in cells:
        grid = mf.Grid(m, window=None if domain.bounded else (-3, 3))
        flow = mf.solve(problem, grid, t_end=2.0, save_at=[0.5, 2.0], initial=two_bumps, tolerance=1e-5)
        density = flow["density"] * (6 / m) ** 2
        second = (density * (flow["x"] ** 2 + flow["y"] ** 2)).sum(("x", "y")).values
        errors.append(second - [truth["m2_t0.5"], truth["m2_t2"]])
    errors = np.array(errors)
    for column, last in zip(errors.T, (8e-4, 8e-4), strict=True):
        second_order(cells, column, last=last, slack=0.25)
    assert float((density[0] * flow["y"]).sum()) == pytest.approx(truth["my_t0.5"], abs=1e-4)


@pytest.mark.parametrize("beta", [1.0, 5.0, 20.0])
def test_log_gas_in_a_disc_on_both_meshes(beta, truths):
    """Liouville's solution: free energy, cell masses, density at the centre and at the wall."""
    values = truths["loggas2d_disc_finite_beta"]["values"]
    problem = mf.Problem(mf.Ball(1.0, 2), mf.Zero(), mf.Log(), beta)
    a = beta / (4 + beta)
    cells = (32, 64, 128)
    shells = [mf.gibbs(problem, mf.Grid(m, radial=True)) for m in cells]
    cut = [mf.gibbs(problem, mf.Grid(m)) for m in cells]
    for runs, last in ((shells, 3e-5), (cut, 2e-4)):
        second_order(cells, [float(r["free_energy"]) - values[f"F_b{beta:g}"] for r in runs], last=last, slack=0.2)
    errors, walls = [], []
    for m, run in zip(cells, shells, strict=True):
        edge = np.linspace(0, 1, m + 1)
        exact = np.diff(4 / beta * (1 / (1 - a * edge**2) - 1))
        errors.append(np.abs(run["density"].values * np.pi * np.diff(edge**2) - exact).sum())
        walls.append(1.5 * float(run["density"][-1]) - 0.5 * float(run["density"][-2]) - (4 + beta) / (4 * np.pi))
    second_order(cells, errors, last=1e-4)
    # steep at the wall (rho'' / rho = 24 a^2 / (1 - a)^2 + 4 a / (1 - a), 620 at beta = 20): the first grid is coarse
    second_order(cells, walls, last=0.02 * (4 + beta) / (4 * np.pi), slack=0.5)
    errors = []
    for m, run in zip(cells, cut, strict=True):
        mesh = mesh_of(problem, mf.Grid(m))
        radius = np.hypot(*np.meshgrid(*mesh.centers))
        exact = 4 * a / (np.pi * beta) * (1 - a * np.minimum(radius, 1) ** 2) ** -2
        errors.append((mesh.volumes * np.abs(run["density"].values - exact))[radius < 1 - 2 / 32].sum())
    second_order(cells, errors, last=1.5e-3 if beta == 20 else 1e-3, slack=0.3)
    if beta < 20:
        assert float(shells[-1]["density"][0]) == pytest.approx(values[f"rho0_b{beta:g}"], abs=2e-5)
    if beta == 20:
        assert walls[-1] + values["rho_wall_b20"] == pytest.approx(values["rho_wall_b20"], rel=0.02)


def test_keller_segel_on_both_meshes():
    """The attractive logarithm below its critical temperature: rho = (4 b / (pi beta)) (1 + b r^2)^-2, b = 1 at beta = 2."""
    problem = mf.Problem(mf.Ball(1.0, 2), mf.Zero(), mf.Log(-1.0), 2.0)
    cells, shells, cut = (16, 32, 64), [], []
    for m in cells:
        edge = np.linspace(0, 1, m + 1)
        run = mf.gibbs(problem, mf.Grid(m, radial=True))
        shells.append(np.abs(run["density"].values * np.pi * np.diff(edge**2) - np.diff(2 - 2 / (1 + edge**2))).sum())
        mesh = mesh_of(problem, mf.Grid(m))
        exact = 2 / np.pi * (1 + np.square(np.hypot(*np.meshgrid(*mesh.centers)))) ** -2
        cut.append((mesh.volumes * np.abs(mf.gibbs(problem, mf.Grid(m))["density"].values - exact)).sum())
    second_order(cells, shells, last=1e-4)
    second_order(cells, cut, last=3e-4)


def test_keller_segel_spreads_by_its_virial(truths):
    """d/dt int |x|^2 rho = 4 / beta - 1 in the plane, before the mass has come to the window's ends."""
    problem = mf.Problem(mf.FreeSpace(2), mf.Zero(), mf.Log(-1.0), 2.0)
    flow = mf.solve(problem, mf.Grid(96, window=(-6, 6)), t_end=0.5, save_at=[0.0, 0.25, 0.5], tolerance=1e-5,
                    initial=lambda x, y: np.exp(-(x * x + y * y)) / np.pi)
    second = ((flow["x"] ** 2 + flow["y"] ** 2) * flow["density"]).sum(("x", "y")).values * (12 / 96) ** 2
    assert np.diff(second) / 0.25 == pytest.approx(truths["keller_segel_disc"]["values"]["dm2dt_beta2"], rel=3e-3)


COLD_CASES = {
    "Coulomb in space": (mf.Ball(1.5, 3), mf.Coulomb(3), "coulomb3d_quadratic_and_wall", "energy", True),
    "Riesz 1 in a disc": (mf.Ball(2.0, 2), mf.Riesz(1.0), "riesz_quadratic", "energy_d2s1", True),
    "Riesz 1/2 on the line": (mf.Interval(-2, 2), mf.Riesz(0.5), "riesz_quadratic", "energy_d1s0.5", False),
    "log in a disc": (mf.Ball(1.5, 2), mf.Log(), "loggas2d_quadratic_circular", "energy", True),
    "log in a disc of cut cells": (mf.Ball(1.5, 2), mf.Log(), "loggas2d_quadratic_circular", "energy", False),
    "log in a box": (mf.Box(-1.5, 1.5, dim=2), mf.Log(), "loggas2d_quadratic_circular", "energy", False),
}


@pytest.mark.parametrize("name", COLD_CASES)
def test_energy_of_gases_without_noise(name, truths):
    """Equilibrium energies in the quadratic well at infinite inverse temperature, where the gradient flow comes to rest."""
    domain, kernel, where, key, radial = COLD_CASES[name]
    problem = mf.Problem(domain, mf.Quadratic(), kernel, COLD)
    plane = domain.dim == 2 and not radial
    cells, errors = (16, 32, 64) if plane else (32, 64, 128), []
    for m in cells:
        grid = mf.Grid(m, radial=radial)
        flow = mf.solve(problem, grid, t_end=8.0, save_at=[8.0], tolerance=1e-4 if plane else 1e-5)
        errors.append(float(flow["energy"][0]) - truths[where]["values"][key])
    second_order(cells, errors, last=3e-4 if plane else 1e-4, slack=0.2)
    if "log" in name or "Coulomb" in name:  # the density is constant: at half the radius no wall is near
        at = {"r": 0.5} if radial else {"x": 0.5, "y": 0.0}
        density = float(flow["density"][0].sel(at, method="nearest"))
        assert density == pytest.approx(truths[where]["values"]["rho"], rel=1e-3)


def test_gases_without_noise_or_well_go_to_the_wall(truths):
    """Coulomb gases in hard balls end on the sphere: a layer in the last shell, whose energy is off by its width."""
    cells = np.array([32, 64, 128])
    space = truths["coulomb3d_quadratic_and_wall"]["values"]["sphere_energy_double"]
    disc = truths["coulomb2d_disc_hardwall"]["values"]["energy_double_R0.5"]
    for domain, kernel, exact in ((mf.Ball(1.0, 3), mf.Coulomb(3), space), (mf.Ball(0.5, 2), mf.Log(), disc)):
        problem = mf.Problem(domain, mf.Zero(), kernel, COLD)
        errors = np.array([2 * float(mf.solve(problem, mf.Grid(int(m), radial=True), t_end=8.0, save_at=[8.0],
                                              tolerance=1e-5)["energy"][0]) - exact for m in cells])
        rate = mf.fit_rate(cells, errors)
        assert abs(rate.slope + 1) < max(4 * rate.stderr, 0.15)
        assert 0 < errors[-1] < 4e-3


# --- periodic


def test_noisy_kuramoto(truths):
    """Order parameter and free energy of the synchronised state, and the decay of the incoherent one's first mode."""
    truth = truths["kuramoto_noisy_order"]["values"]
    domain = mf.Torus(TURN, 1)
    order = brentq(lambda r: i1(3 * r) / i0(3 * r) - r, 0.1, 1)
    cells, errors = (32, 64, 128), []
    for m in cells:
        flow = mf.solve(mf.Problem(domain, mf.Zero(), mf.CosinePair(1.5), 2.0), mf.Grid(m), t_end=40.0, save_at=[40.0],
                        initial=lambda x: (1 + 0.5 * np.cos(x - 0.7)) / TURN)
        wave = (flow["density"][0] * np.exp(1j * flow["x"])).sum() * TURN / m
        errors.append((float(flow["free_energy"][0]) - truth["F"], abs(complex(wave)) - order))
        assert np.angle(complex(wave)) == pytest.approx(0.7, abs=1e-4)
    for column in np.array(errors).T:
        second_order(cells, column, last=2e-4)
    errors = []
    for m in cells:
        flow = mf.solve(mf.Problem(domain, mf.Zero(), mf.CosinePair(0.5), 2.0), mf.Grid(m), t_end=2.0, save_at=[1.0, 2.0],
                        initial=lambda x: (1 + 0.01 * np.cos(x)) / TURN, tolerance=1e-9)
        mode = (flow["density"] * np.cos(flow["x"])).sum("x").values
        errors.append(np.log(mode[0] / mode[1]) - truth["lambda1_K0.5"])
    assert np.abs(errors).max() < 1e-3
    assert abs(errors[-1]) < 1e-4


# --- windows


def test_coulomb_gas_spreads_from_a_point(truths):
    """From all mass in one cell (a cell's own width adds h^2 / 12 to the second moment): Cole and Hopf's solution."""
    truth = truths["coulomb1d_line_from_delta"]["values"]
    problem = mf.Problem(mf.FreeSpace(1), mf.Zero(), mf.Coulomb(1), 2.0)

    def density(x, t=2.0, beta=2.0):  # -(log phi)'' / beta with phi in closed form, differenced
        def log_phi(x):
            root = 2 * np.sqrt(t / beta)
            return np.log(np.exp(-beta * x / 2) * erfc((t - x) / root) + np.exp(beta * x / 2) * erfc((t + x) / root))

        step = 1e-3
        return -(log_phi(x + step) - 2 * log_phi(x) + log_phi(x - step)) / step**2 / beta

    assert density(0.0) == pytest.approx(truth["rho(0,2)"], abs=1e-6)
    cells, errors = (251, 501, 1001), []
    for m in cells:
        rho = np.zeros(m)
        rho[m // 2] = m / 24
        flow = mf.solve(problem, mf.Grid(m, window=(-12, 12)), t_end=2.0, save_at=[1.0, 2.0], initial=rho, tolerance=1e-6)
        middle = np.abs(flow["x"].values) < 4
        difference = flow["density"].values[1, middle] - density(flow["x"].values[middle])
        errors.append((float((flow["density"][0] * flow["x"] ** 2).sum() * 24 / m) - truth["m2(1)"],
                       np.abs(difference).max(), float(flow["density"][1, m // 2]) - truth["rho(0,2)"]))
        assert flow.attrs["truncation"] < 1e-6
    errors = np.array(errors)
    second_order(cells, errors[:, 0], last=1e-3)
    second_order(cells, errors[:, 1], last=2e-4)
    assert abs(errors[-1, 2]) < 1e-5


def test_log_gas_on_a_window_follows_its_moments(truths):
    """The closed hierarchy through the sixth moment, on a window of the line."""
    truth = truths["loggas1d_moment_hierarchy"]["values"]
    problem = mf.Problem(mf.FreeSpace(1), mf.Quadratic(), mf.Log(), 10.0)
    flow = mf.solve(problem, mf.Grid(1000, window=(-3.2, 3.2)), t_end=2.0, save_at=[0.5, 2.0], tolerance=1e-7,
                    initial=lambda x: (0.7 * np.exp(-((x + 1) ** 2) / 0.18) + 0.3 * np.exp(-((x - 1) ** 2) / 0.18))
                    / np.sqrt(0.18 * np.pi))
    checked = 0
    for k in range(1, 7):
        moments = (flow["density"] * flow["x"] ** k).sum("x").values * 6.4 / 1000
        for t, moment in zip((0.5, 2), moments, strict=True):
            if f"m{k}_t{t:g}" in truth:
                assert moment == pytest.approx(truth[f"m{k}_t{t:g}"], abs=1e-5 if k < 3 else 1e-4)
                checked += 1
    assert checked == 9
    assert flow.attrs["truncation"] < 1e-6
