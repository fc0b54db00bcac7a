"""Geometries: exact averages of kernels, cut cells, shells, tori, windows, and the structure of solutions on them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.linalg import expm
from scipy.special import betainc

import meanfield as mf
from meanfield.interactions.averages import double_averages, graded_sphere_average
from meanfield.mesh import mesh_of
from meanfield.mesh.radial import shell_averages

TURN = 2 * math.pi
COLD = float("inf")


def bump(x, y):
    return np.exp(-4 * (x - 0.3) ** 2 - 6 * (y + 0.2) ** 2)


def line_bump(x):
    return np.exp(-8 * (x - 0.3) ** 2)


def wave(x, y):
    return 1 + 0.5 * np.cos(x) * np.sin(y + 1)


def normalised(problem, grid, function):
    """Cell averages of a function divided by its mass on that mesh."""
    mesh = mesh_of(problem, grid)
    rho = np.where(mesh.volumes > 0, function(*np.meshgrid(*mesh.centers, indexing="ij")), 0.0)
    return rho / mesh.mass(rho)


CASES = {
    "box": (mf.Problem(mf.Box([-1, -1], [2, 1]), mf.Quadratic(), mf.Log(), 10.0), mf.Grid((24, 16)), bump),
    "box, gradient flow": (mf.Problem(mf.Box([-1, -1], [2, 1]), mf.Quadratic(2.0), mf.Riesz(1.5, 0.3), COLD),
                           mf.Grid((24, 16)), bump),
    "circle": (mf.Problem(mf.Torus(TURN, 1), mf.Zero(), (mf.CosinePair(1.5), mf.Riesz(0.5, 0.1)), 2.0), mf.Grid(31),
               lambda x: 1 + 0.5 * np.cos(x - 1)),
    "torus": (mf.Problem(mf.Torus(TURN, 2), mf.Zero(), (mf.CosinePair(), mf.Riesz(1.2, 0.2)), 3.0), mf.Grid((15, 16)), wave),
    "disc, cut cells": (mf.Problem(mf.Ball(1.2, 2), mf.Quadratic(1.0, (0.2, 0.0)), mf.Log(), 5.0), mf.Grid(25), bump),
    "disc, shells": (mf.Problem(mf.Ball(1.2, 2), mf.Quadratic(), mf.Riesz(0.7), 5.0), mf.Grid(32, radial=True), line_bump),
    "ball": (mf.Problem(mf.Ball(1.0, 3), mf.Zero(), (mf.Riesz(2.2), mf.GaussianPair(-0.3, 0.4)), 4.0), mf.Grid(24),
             line_bump),
    "ball in four dimensions": (mf.Problem(mf.Ball(1.0, 4), mf.Zero(), mf.Log(), 4.0), mf.Grid(24), line_bump),
    "line": (mf.Problem(mf.FreeSpace(1), mf.Quadratic(3.0), mf.Coulomb(1, 0.5), 10.0), mf.Grid(80, window=(-4, 4)),
             line_bump),
    "plane": (mf.Problem(mf.FreeSpace(2), mf.Quadratic(3.0), mf.Log(0.5), 10.0),
              mf.Grid((24, 20), window=((-3, 3), (-2.5, 2.5))), bump),
    "space, shells": (mf.Problem(mf.FreeSpace(3), mf.Quadratic(3.0), mf.Coulomb(3, 0.2), 10.0), mf.Grid(40, window=(0, 4)),
                      line_bump),
}


@pytest.mark.parametrize("name", CASES)
def test_mass_positivity_and_decay(name):
    problem, grid, function = CASES[name]
    flow = mf.solve(problem, grid, t_end=0.4, initial=normalised(problem, grid, function), save_at=np.linspace(0, 0.4, 9),
                    tolerance=1e-5)
    mesh = mesh_of(problem, grid)
    assert flow["density"].dims == ("time", *mesh.names)
    assert np.abs(flow["mass"] - 1).max() < 1e-13
    assert (flow["min_density"] >= 0).all()
    assert (flow["density"].values[:, mesh.volumes == 0] == 0).all()
    free_energy = flow["free_energy"].values
    assert np.diff(free_energy).max() <= 1e-12 * (1 + np.abs(free_energy).max())
    assert free_energy[0] - free_energy[-1] > 1e-3  # it did something
    assert_allclose(mf.free_energy(problem, flow), free_energy, rtol=0, atol=1e-13 * (1 + np.abs(free_energy).max()))
    assert ("truncation" in flow.attrs) == (not problem.domain.bounded)


@pytest.mark.parametrize("name", [n for n in CASES if "gradient" not in n])
def test_gibbs_density_is_where_the_flow_rests(name):
    problem, grid, _ = CASES[name]
    rest = mf.gibbs(problem, grid)
    assert float(rest["residual"]) < 1e-10
    flow = mf.solve(problem, grid, t_end=0.5, initial=rest["density"].values, save_at=[0.5])
    assert_allclose(flow["density"].values[-1], rest["density"].values, rtol=1e-8, atol=1e-30)
    assert mf.free_energy(problem, rest) == pytest.approx(float(rest["free_energy"]), abs=1e-13)


@pytest.mark.parametrize("name", ["torus", "disc, cut cells", "ball", "plane"])
def test_datasets_round_trip(name, tmp_path):
    problem, grid, function = CASES[name]
    rho = normalised(problem, grid, function)
    flow = mf.solve(problem, grid, t_end=0.1, initial=rho, save_at=[0.0, 0.1], tolerance=1e-4)
    flow.to_netcdf(tmp_path / "flow.nc")
    assert mf.load(tmp_path / "flow.nc").identical(flow)
    for coordinate in flow.coords.values():
        assert coordinate.attrs["units"]


# --- kernels over cells


def test_cells_at_the_singularity(truths):
    values = truths["singular_kernel_cell_integrals"]["values"]
    quarter = (0.5, 0.5)  # the integral over a cell around the origin is four times that over its quarter
    assert mf.Log().corner_moments(quarter).sum() == pytest.approx(values["selfcell_log2d_side1"], abs=1e-14)
    assert mf.Riesz(1.0).corner_moments(quarter).sum() == pytest.approx(values["selfcell_1/r_2d_side1"], abs=1e-14)
    assert mf.Log().corner_moments((0.5,)).sum() == pytest.approx(values["selfcell_log1d_h1"], abs=1e-14)
    assert double_averages(mf.Log(), (1.0, 1.0), (3, 3))[2, 2] == pytest.approx(values["pair_-log_unit_square"], abs=1e-14)
    assert mf.Log().cell_averages(2.0, 1)[0] == pytest.approx(values["E-log|x-y|_U[-1,1]"], abs=1e-14)  # r up to 2


@settings(max_examples=8)
@given(s=st.floats(-1.9, 1.95), aspect=st.floats(0.05, 20))
def test_closed_corner_is_the_graded_one(s, aspect):
    """Two ways to the integral over the cell that touches the singularity, in the plane."""

    class Plain(mf.Interaction):
        formula = "the same without its closed forms"

        def value(self, r):
            return mf.Riesz(s).value(r)

        def derivative(self, r):
            return mf.Riesz(s).derivative(r)

    widths = (0.3, 0.3 * aspect)
    closed = double_averages(mf.Riesz(s), widths, (2, 2))
    left_out = 2.0 ** (-480 * (2 - s))  # by the graded panels
    assert_allclose(double_averages(Plain(), widths, (2, 2)), closed, rtol=1e-12 + 10 * left_out)


@dataclass(frozen=True)
class Tilted(mf.Interaction):
    """Even as a whole, but not in each component."""

    radial: ClassVar[bool] = False
    formula = "exp(-x^2 - x y - 2 y^2)"

    def value(self, r):
        return np.exp(-np.square(r))

    def derivative(self, r):
        return -2 * r * np.exp(-np.square(r))

    def energy(self, displacement):
        x, y = displacement[..., 0], displacement[..., 1]
        return np.exp(-x * x - x * y - 2 * y * y)


KERNELS = [mf.Log(), mf.Riesz(1.3), mf.Riesz(-0.7, 1.0, 0.05), mf.GaussianPair(1.0, 0.4), mf.CosinePair(0.8), Tilted()]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.formula)
@pytest.mark.parametrize(("counts", "periodic"), [((11, 3), False), ((7, 4), True), ((2, 3), True)])
def test_double_averages_against_fine_sums(kernel, counts, periodic):
    """The tent integral at every offset but the singular ones, by a rule of many panels that knows the images' kinks."""
    widths = (0.21, 0.13)
    averages = double_averages(kernel, widths, counts, periodic)
    node, share = np.polynomial.legendre.leggauss(20)
    t = (np.arange(-2, 2)[:, None] + (node + 1) / 2).ravel() / 2
    weight = np.tile(share / 4, 4) * (1 - np.abs(t))
    first = [0] * 2 if periodic else [1 - m for m in counts]
    for index in np.ndindex(averages.shape):
        offset = [i + f for i, f in zip(index, first, strict=True)]
        places = []
        for k, h, m in zip(offset, widths, counts, strict=True):
            d = k + t
            places.append(h * (d - m * np.rint(d / m) if periodic else d))
        near = all(min(abs(k), m - abs(k)) <= 1 if periodic else abs(k) <= 1 for k, m in zip(offset, counts, strict=True))
        if near and kernel.singular:
            continue
        values = kernel.energy(np.stack(np.meshgrid(*places, indexing="ij"), axis=-1))
        assert averages[index] == pytest.approx(weight @ values @ weight, rel=1e-9, abs=1e-12), offset


@pytest.mark.parametrize("name", ["box", "torus", "disc, cut cells"])
def test_convolution_is_the_direct_sum(name):
    problem, grid, _ = CASES[name]
    mesh = mesh_of(problem, grid)
    periodic = problem.domain.period is not None
    widths = tuple(float(e[1] - e[0]) for e in mesh.edges)
    rho = np.random.default_rng(0).exponential(size=mesh.shape) * (mesh.volumes > 0)
    averages = sum(double_averages(k, widths, mesh.shape, periodic) for k in problem.interactions)
    masses, phi = rho * mesh.volumes, mesh.convolve(rho)
    k, l = np.indices(mesh.shape)
    for i, j in np.random.default_rng(1).integers(0, mesh.shape, (20, 2)):
        at = (i - k, j - l) if periodic else (i - k + mesh.shape[0] - 1, j - l + mesh.shape[1] - 1)
        assert phi[i, j] == pytest.approx((averages[at] * masses).sum(), abs=1e-12 * np.abs(phi).max())


@pytest.mark.parametrize("kernel", [mf.CosinePair(0.8), mf.GaussianPair(1.0, 0.7), mf.Riesz(-0.5)], ids=lambda k: k.formula)
@pytest.mark.parametrize("m", [32, 33])
def test_a_torus_is_that_of_the_particles(kernel, m):
    """The interaction energy of two cells' masses is the pair energy of hamiltonian between their centres, to O(h^2)."""
    problem = mf.Problem(mf.Torus(TURN, 2), mf.Zero(), kernel)
    mesh = mesh_of(problem, mf.Grid(m))
    rng = np.random.default_rng(1)
    for _ in range(5):
        a, b = (tuple(int(i) for i in rng.integers(0, m, 2)) for _ in range(2))
        rho = np.zeros(mesh.shape)
        rho[a] = 1 / mesh.volumes[a]
        pair = mesh.convolve(rho)[b]
        points = [[mesh.centers[0][i], mesh.centers[1][j]] for i, j in (a, b)]
        assert pair == pytest.approx(2 * mf.hamiltonian(problem, points), abs=0.05 * (TURN / m) if "Riesz" in repr(kernel)
                                     else 0.6 * (TURN / m) ** 2)


def test_turning_a_torus_turns_the_solution():
    """No cell of the ring is special, the one that closes it included."""
    problem, grid, function = CASES["circle"]
    rho = normalised(problem, grid, function)
    flows = [mf.solve(problem, grid, t_end=0.5, initial=np.roll(rho, k), save_at=[0.5]) for k in (0, 1, 17)]
    for k, flow in zip((1, 17), flows[1:], strict=True):
        assert_allclose(flow["density"].values[0], np.roll(flows[0]["density"].values[0], k), rtol=1e-10)


@pytest.mark.parametrize("m", [2, 3, 8])
def test_steps_on_a_ring_against_the_matrix_exponential(m):
    """Two and three cells included, where the neighbours on both sides are the same or all there are."""

    class Slope(mf.Potential):
        formula = "V = 0.1 sin(x)"  # so weak that the flow needs no limiter and is linear

        def value(self, positions):
            return 0.1 * np.sin(positions[..., 0])

        def gradient(self, positions):
            return 0.1 * np.cos(positions)

    problem = mf.Problem(mf.Torus(3.0, 1), Slope(), inverse_temperature=2.0)
    mesh = mesh_of(problem, mf.Grid(m))
    h, generator = 3.0 / m, np.zeros((m, m))
    for i in range(m):
        rise = 2.0 * (mesh.potential[(i + 1) % m] - mesh.potential[i])
        up, down = rise / math.expm1(rise) / (2 * h * h), -rise / math.expm1(-rise) / (2 * h * h)
        for row, sign in ((i, -1), ((i + 1) % m, 1)):
            generator[row, i] += sign * up
            generator[row, (i + 1) % m] -= sign * down
    rho = np.random.default_rng(m).exponential(size=m)
    rho /= rho.sum() * h
    flow = mf.solve(problem, mf.Grid(m), t_end=0.5, initial=rho, save_at=[0.5], tolerance=1e-9)
    assert_allclose(flow["density"].values[0], expm(0.5 * generator) @ rho, rtol=1e-5)


# --- cut cells


@pytest.mark.parametrize("cells", [(7, 10), (16, 16), (31, 8), (33, 33)])
def test_cut_cells_have_the_area_of_their_inside(cells):
    problem = mf.Problem(mf.Ball(1.3, 2))
    mesh = mesh_of(problem, mf.Grid(cells))
    assert mesh.volumes.sum() == pytest.approx(problem.domain.volume, rel=1e-7)  # slivers are left out
    x_edge, y_edge = mesh.edges
    area = (x_edge[1] - x_edge[0]) * (y_edge[1] - y_edge[0])
    for i, j in itertools.product(range(0, cells[0], 3), range(0, cells[1], 3)):
        def height(x, j=j):
            half = math.sqrt(max(1.69 - x * x, 0.0))
            return max(min(y_edge[j + 1], half) - max(y_edge[j], -half), 0.0)

        breaks = [sign * math.sqrt(max(1.69 - y * y, 0.0)) for y in (y_edge[j], y_edge[j + 1]) for sign in (1, -1)]
        breaks = [b for b in breaks if x_edge[i] < b < x_edge[i + 1]]
        expected = quad(height, x_edge[i], x_edge[i + 1], points=breaks or None, epsabs=1e-12)[0]
        assert mesh.volumes[i, j] == pytest.approx(expected if expected > 1e-6 * area else 0.0, abs=1e-10)


def test_faces_of_four_cut_cells_by_hand():
    mesh = mesh_of(mf.Problem(mf.Ball(2.0, 2)), mf.Grid(2))
    assert_allclose(mesh.volumes, np.full((2, 2), math.pi), rtol=1e-14)
    assert_allclose(mesh.conductances[0], [[1.0, 1.0], [0.0, 0.0]], atol=1e-15)  # faces of length 2, centres 2 apart
    assert_allclose(mesh.conductances[1], [[1.0, 0.0], [1.0, 0.0]], atol=1e-15)


@pytest.mark.parametrize("m", [20, 21, 64, 101])
def test_cut_cells_are_one_piece_and_keep_constants(m):
    """Open faces close: a uniform gradient of U drives flows whose sum over all cells is the pull on the disc's area."""
    mesh = mesh_of(mf.Problem(mf.Ball(1.0, 2)), mf.Grid(m))
    inside = mesh.volumes > 0
    reached, front = np.zeros_like(inside), np.zeros_like(inside)
    front[m // 2, m // 2] = True
    while front.any():
        reached |= front
        grown = np.zeros_like(inside)
        for a, c in enumerate(mesh.conductances):
            grown |= np.roll(front & (c > 0), 1, a) | (np.roll(front, -1, a) & (c > 0))
        front = grown & ~reached
    assert (reached == inside).all()
    h = 2.0 / m
    for c in mesh.conductances:  # sum of length times distance: the area that the faces' dual cells cover
        assert (c * h * h).sum() == pytest.approx(math.pi, abs=4 * h)
        assert (c[~inside] == 0).all()


def test_a_start_may_be_zero_outside_of_the_disc():
    """Only the inside of a cut cell counts in its average."""
    problem = mf.Problem(mf.Ball(1.0, 2))
    rho, mass = mesh_of(problem, mf.Grid(20)).density(lambda x, y: np.where(x * x + y * y <= 1, 1 / math.pi, 0.0))
    assert mass == pytest.approx(1, abs=1e-6)
    assert_allclose(rho[rho > 0], 1 / math.pi, rtol=1e-6)


def test_the_disc_agrees_with_its_shells():
    """Radial data: free energy and second moment of both meshes come together with the square of the width."""
    problem = mf.Problem(mf.Ball(1.0, 2), mf.Quadratic(), mf.Riesz(0.5), 5.0)
    shells = mf.gibbs(problem, mf.Grid(200, radial=True))
    for m, bound in ((32, 6e-4), (64, 1.5e-4)):
        cut = mf.gibbs(problem, mf.Grid(m))
        assert float(cut["free_energy"]) == pytest.approx(float(shells["free_energy"]), abs=bound)
        mesh = mesh_of(problem, mf.Grid(m))
        radius = np.hypot(*np.meshgrid(*mesh.centers))
        inner = (radius < 0.7) & (mesh.volumes > 0)
        reference = np.interp(radius[inner], shells["r"], shells["density"])
        assert_allclose(cut["density"].values[inner], reference, atol=2 * bound)


# --- shells


@given(s=st.floats(-1.9, 3.8), dim=st.integers(2, 5), softening=st.sampled_from([0.0, 0.05]),
       r=st.floats(0.01, 2.0), gap=st.floats(1e-4, 1.0))
def test_sphere_averages_of_riesz_kernels(s, dim, softening, r, gap):
    """The hypergeometric form against the integral over the angle, also near whole exponents, where forms change."""
    for exponent in (s, float(round(s))):
        kernel = mf.Riesz(exponent, 1.0, softening)
        exact = kernel.sphere_average(np.array([r]), np.array([gap]), dim)
        graded = graded_sphere_average(kernel, np.array([r]), np.array([gap]), dim)
        assert_allclose(exact, graded, rtol=2e-9, atol=1e-12)


@pytest.mark.parametrize("dim", [2, 3, 4, 7])
def test_sphere_averages_of_smooth_kernels(dim):
    r, gap = np.array([1e-6, 0.01, 0.5, 3.0]), np.array([0.2, 0.0, 1e-3, 0.7])
    for kernel in (mf.GaussianPair(1.3, 0.4), mf.QuadraticPair(0.7)):
        assert_allclose(kernel.sphere_average(r, gap, dim), graded_sphere_average(kernel, r, gap, dim), rtol=1e-9)


@pytest.mark.parametrize(("dim", "s"), [(2, 0.0), (2, 0.5), (2, 1.0), (2, 1.8), (3, 0.0), (3, 1.0), (3, 2.0), (3, 2.7),
                                        (3, -1.0), (4, 0.0), (5, 3.0), (5, 4.5)])
@pytest.mark.parametrize("m", [3, 40])
def test_shells_know_the_energy_of_a_uniform_ball(dim, s, m):
    """iint g over the ball, from the law of the distance of two points: dim r^(dim-1) I_{1 - r^2/4}((dim+1)/2, 1/2)."""
    kernel = mf.Riesz(s)
    edges = np.linspace(0, 1, m + 1)
    shares = np.diff(edges**dim)
    total = shares @ shell_averages(kernel, dim, edges) @ shares

    power = 2 / (dim - max(s, 0.0))  # r = v^power takes the singularity away

    def law(v):
        r = v**power
        density = dim * r ** (dim - 1) * betainc((dim + 1) / 2, 0.5, 1 - r * r / 4)
        return float(kernel.value(np.array(r))) * density * power * v ** (power - 1)

    expected = quad(law, 0, 2 ** (1 / power), epsabs=1e-11, epsrel=1e-11, limit=200)[0]
    assert total == pytest.approx(expected, rel=3e-9)


def test_shells_of_a_kernel_of_ones_own():
    """Without any closed form the graded angle gives the same matrix."""

    class Plain(mf.Interaction):
        formula = "1 / r"

        def value(self, r):
            return 1 / r

        def derivative(self, r):
            return -1 / np.square(r)

    edges = np.linspace(0, 1, 13)
    assert_allclose(shell_averages(Plain(), 3, edges), shell_averages(mf.Coulomb(3), 3, edges), rtol=1e-8)


# --- energies, windows, bad input


def test_free_energy_takes_arrays_and_labels():
    problem, grid, function = CASES["disc, shells"]
    rho = normalised(problem, grid, function)
    mesh = mesh_of(problem, grid)
    labelled = xr.DataArray(np.stack([rho, mesh.flat()]), dims=("time", "r"), coords={"r": mesh.centers[0]})
    both = mf.free_energy(problem, labelled)
    assert both.dims == ("time",)
    assert both.values == pytest.approx([mesh.energies(rho).free_energy, mesh.energies(mesh.flat()).free_energy])
    with pytest.raises(ValueError, match="density must be on equal cells of Ball"):
        mf.free_energy(problem, labelled.assign_coords(r=2 * mesh.centers[0]))

    problem, grid, function = CASES["box"]
    rho = normalised(problem, grid, function)
    assert isinstance(mf.free_energy(problem, rho), float)
    assert mf.free_energy(problem, np.stack([rho, rho])).shape == (2,)
    turned = xr.DataArray(rho.T, dims=("y", "x"))
    assert float(mf.free_energy(problem, turned)) == pytest.approx(mf.free_energy(problem, rho), abs=1e-14)
    with pytest.raises(ValueError, match=r"density must have shape \(..., cell, cell\) with at least 2 cells a side"):
        mf.free_energy(problem, rho[0])

    problem, grid, function = CASES["plane"]
    rho = normalised(problem, grid, function)
    with pytest.raises(ValueError, match="density must be a DataArray on FreeSpace"):
        mf.free_energy(problem, rho)
    with pytest.raises(ValueError, match="density must have coordinates x, y on FreeSpace"):
        mf.free_energy(problem, xr.DataArray(rho, dims=("x", "y")))


def test_a_narrow_window_is_said():
    problem = mf.Problem(mf.FreeSpace(1), mf.Quadratic(), mf.NoInteraction(), 1.0)
    with pytest.warns(UserWarning, match="the density at the ends of the window amounts to a mass of .*; take a wider"):
        rest = mf.gibbs(problem, mf.Grid(40, window=(-3, 3)))
    assert rest.attrs["truncation"] == pytest.approx(6 * float(rest["density"][0]), rel=1e-12)
    assert mf.gibbs(problem, mf.Grid(80, window=(-8, 8))).attrs["truncation"] < 1e-10


def test_what_a_window_hides_is_bounded_by_its_ends():
    """The tail that a window cuts off has less mass than ``truncation``: exact for the Gaussian at rest."""
    problem = mf.Problem(mf.FreeSpace(1), mf.Quadratic(), mf.NoInteraction(), 1.0)
    for half in (6.0, 6.5, 7.0):
        rest = mf.gibbs(problem, mf.Grid(200, window=(-half, half)))
        assert math.erfc(half / math.sqrt(2)) < rest.attrs["truncation"] < 1e3 * math.erfc(half / math.sqrt(2))


@pytest.mark.parametrize(("problem", "grid", "sentence"), [
    (mf.Problem(mf.FreeSpace(1)), mf.Grid(20), "FreeSpace needs a window in which the density is solved for"),
    (mf.Problem(mf.FreeSpace(3)), mf.Grid(20, window=(-1, 1)), "the window of a radial grid must begin at r = 0, got -1"),
    (mf.Problem(mf.FreeSpace(2)), mf.Grid(20, window=((-1, 1),) * 3), "window must be one pair or 2 of them for 2 axes"),
    (mf.Problem(mf.Interval(0, 1)), mf.Grid(20, window=(0, 1)), "a window is for FreeSpace, got one for Interval"),
    (mf.Problem(mf.Interval(0, 1)), mf.Grid(20, radial=True), "a radial grid needs a Ball or FreeSpace of dimension 2"),
    (mf.Problem(mf.Box(0, 1, dim=2)), mf.Grid((4, 5, 6)), "cells must be a number or 2 of them for 2 axes, got"),
    (mf.Problem(mf.Box(0, 1, dim=2), mf.Zero(), mf.Riesz(2.0)), mf.Grid(8), "has infinite energy for every density in dim"),
    (mf.Problem(mf.Ball(1, 3), mf.Quadratic(1.0, (0.1, 0, 0))), mf.Grid(8), "a radial grid needs a potential of |x| alone"),
    (mf.Problem(mf.Ball(1, 2), mf.Quadratic(1.0, (0.1, 0))), mf.Grid(8, radial=True), "Grid(cells) without radial=True"),
    (mf.Problem(mf.Ball(1, 3), mf.Zero(), mf.CosinePair()), mf.Grid(8), "needs an interaction of |x - y| alone"),
    (mf.Problem(mf.Torus(1, 3)), mf.Grid(8), "densities are solved for on an Interval, a Box, Torus or FreeSpace of"),
    (mf.Problem(mf.Simplex(2)), mf.Grid(8), "densities are solved for on an Interval, a Box, Torus or FreeSpace of"),
])
def test_bad_geometries_are_one_sentence(problem, grid, sentence):
    with pytest.raises(ValueError) as caught:
        mesh_of(problem, grid)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("arguments", "sentence"), [
    ({"cells": 1}, "cells must be a whole number of at least 2, got 1"),
    ({"cells": (8, 2.5)}, "cells must be a whole number of at least 2, got 2.5"),
    ({"cells": 8, "window": (1, 0)}, "window must have low below high"),
    ({"cells": 8, "window": (1, 2, 3)}, r"window must be \(low, high\) or one such pair for each axis"),
    ({"cells": 8, "radial": 1}, "radial must be True or False, got 1"),
])
def test_bad_grids_are_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        mf.Grid(**arguments)


def test_free_space_has_no_uniform_start():
    with pytest.raises(ValueError, match="initial must be a function or cell averages on FreeSpace"):
        mf.solve(mf.Problem(mf.FreeSpace(1)), mf.Grid(20, window=(-1, 1)), t_end=0.1)
