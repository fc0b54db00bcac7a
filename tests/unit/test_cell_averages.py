"""Exact averages of kernels: over two cells of a line, a plane or a torus, over spheres, and over two shells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import betainc

import meanfield as mf
from meanfield.interactions.averages import double_averages, graded_sphere_average
from meanfield.mesh.radial import shell_averages

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
