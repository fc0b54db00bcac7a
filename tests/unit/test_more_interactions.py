"""CosinePair, GaussianPair, normalized Riesz, a user's own pair, and pairs on a torus: against plain double loops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from processes import compiled_and_interpreted
from scipy.special import erf

import meanfield as mf
from meanfield._numba import with_threads
from meanfield.pairforces import add_energies, add_forces


@numba.njit
def morse_weight(q, p):
    r = math.sqrt(q)
    return p[0] * (2 * math.exp(-2 * r) - 2 * math.exp(-r)) / r


@dataclass(frozen=True)
class Morse(mf.Interaction):
    depth: float = 1.0
    formula = "g(r) = depth (exp(-2 r) - 2 exp(-r))"

    def value(self, r):
        return self.depth * (np.exp(-2 * r) - 2 * np.exp(-r))

    def derivative(self, r):
        return self.depth * (2 * np.exp(-r) - 2 * np.exp(-2 * r))


@dataclass(frozen=True)
class CompiledMorse(mf.Interaction):
    depth: float = 1.0
    formula = Morse.formula
    value, derivative = Morse.value, Morse.derivative
    weight = staticmethod(morse_weight)

    @property
    def parameters(self):
        return (self.depth,)


@dataclass(frozen=True)
class InverseDistance(mf.Interaction):
    """Singular, in a user's hands: he says so, and coincident starts are refused."""

    formula = "g(r) = 1 / r"
    singular = True

    def value(self, r):
        return 1.0 / r

    def derivative(self, r):
        return -1.0 / r**2


TERMS = [mf.CosinePair(0.8), mf.GaussianPair(-1.3, 0.4), Morse(0.6), CompiledMorse(0.6), InverseDistance(),
         mf.Riesz(0.7, 1.1), mf.Log(0.4, 0.1), mf.QuadraticPair(0.3), mf.Riesz(-0.5, 2.0, normalized=True)]


def ids(term):
    return type(term).__name__


def loops(term, x, period):
    """Force -grad and energy, one particle after the other."""
    force, energy = np.zeros_like(x), 0.0
    for k in range(len(x)):
        d = x[k] - np.delete(x, k, axis=0)
        if period:
            d = d - period * np.rint(d / period)
        force[k] = -term.gradient(d).sum(axis=0)
        energy += float(term.energy(d).sum()) / 2
    return force, energy


@pytest.mark.parametrize("term", TERMS, ids=ids)
@pytest.mark.parametrize("period", [None, 2.5, 2 * math.pi])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("n", [2, 7, 64])
def test_bug_17_pair_sums_are_the_double_loop(term, period, dim, n):
    x = np.random.default_rng(n).uniform(0, period or 2.5, (2, n, dim))
    force, energy, rows = np.zeros_like(x), np.zeros(2), np.empty((2, n))
    with with_threads(1):
        add_forces(term, x, 1.0, 0.0, period, force)
        add_energies(term, x, period, rows, energy)
    for run in range(2):
        expected, value = loops(term, x[run], period)
        scale = np.abs(expected).max() + 1e-12
        assert_allclose(force[run] / scale, expected / scale, rtol=0, atol=1e-12)
        assert_allclose(force[run].sum(axis=0) / scale, 0, atol=1e-11)  # no net force
        assert energy[run] == pytest.approx(value, rel=1e-12, abs=1e-12)
    # a run among others is the run alone, to the bit, and so is a second time
    for again in range(2):
        alone = np.zeros_like(x[:1])
        add_forces(term, x[again: again + 1], 1.0, 0.0, period, alone)
        assert_array_equal(alone[0], force[again])


@pytest.mark.parametrize("term", TERMS, ids=ids)
@pytest.mark.parametrize("domain", [mf.Box(0, 2.5, dim=2), mf.Torus(2.5, 2)], ids=ids)
def test_bug_17_same_bits_for_any_number_of_threads(term, domain):
    problem = mf.Problem(domain, mf.Zero(), term, 2.0)
    runs = [mf.simulate(problem, n_particles=150, dt=1e-4, t_end=4e-4, n_runs=10, seed=1, threads=t) for t in (1, 2)]
    assert runs[0].identical(runs[1])
    assert mf.simulate(problem, n_particles=1, dt=1e-3, t_end=1e-2)["position"].notnull().all()
    assert mf.hamiltonian(problem, np.array([[1.0, 1.0]])) == 0


@pytest.mark.parametrize("term", TERMS, ids=ids)
@pytest.mark.parametrize("length", [1.7, 2 * math.pi])
def test_torus_drift_is_the_gradient_of_its_hamiltonian_and_knows_no_origin(term, length):
    from oracles import finite_difference

    torus = mf.Torus(length, 2)
    problem = mf.Problem(torus, mf.Zero(), term, float("inf"))
    x = torus.sample(5, 4)
    moved = mf.simulate(problem, n_particles=5, dt=1e-9, t_end=1e-9, initial=x)["position"].values[0, 1]
    gradient = 5 * finite_difference(lambda z: mf.hamiltonian(problem, z), x)
    assert_allclose(torus.displacement(moved, x) / 1e-9, -gradient, rtol=1e-4, atol=1e-5)
    for shift in (0.3, 1.1):
        assert mf.hamiltonian(problem, torus.project(x + shift)) == pytest.approx(mf.hamiltonian(problem, x), rel=1e-10)


@pytest.mark.parametrize("term", TERMS, ids=ids)
def test_bug_30_forces_do_not_depend_on_where_the_cloud_is(term):
    x = np.random.default_rng(3).uniform(0, 1, (1, 20, 2))
    near, far = np.zeros_like(x), np.zeros_like(x)
    shifted = x + 1000.0
    add_forces(term, shifted - 1000.0, 1.0, 0.0, None, near)
    add_forces(term, shifted, 1.0, 0.0, None, far)
    assert_allclose(far, near, rtol=1e-9, atol=1e-9 * np.abs(near).max())
    pair = np.array([[[1000.0, 1000.0], [1000.0 + 1e-6, 1000.0]]])
    force = np.zeros_like(pair)
    add_forces(term, pair, 1.0, 0.0, None, force)
    expected = term.gradient(pair[0, 1] - pair[0, 0])
    assert_allclose(force[0, 0], expected, rtol=1e-9)  # a narrow cloud keeps its digits
    assert_allclose(force[0, 0], -force[0, 1], rtol=1e-14)


@pytest.mark.parametrize("term", TERMS, ids=ids)
@pytest.mark.parametrize("period", [None, 2.5])
def test_bug_01_a_coincident_pair_feels_nothing(term, period):
    x = np.array([[[0.5, 0.5], [0.5, 0.5]]])
    force = np.zeros_like(x)
    add_forces(term, x, 1.0, 0.0, period, force)
    assert_array_equal(force, 0)
    if term.singular:
        with pytest.raises(ValueError, match="particles 0 and 1 of run 0 coincide"):
            mf.simulate(mf.Problem(mf.Box(0, 1, dim=2), mf.Zero(), term), n_particles=2, dt=1e-3, t_end=1e-3, initial=x)


def test_a_users_pair_of_the_wrong_shape_is_named():
    class Wrong(mf.Interaction):
        formula = "g(r) = 1"

        def value(self, r):
            return 1.0

        def derivative(self, r):
            return 0.0

    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), Wrong())
    with pytest.raises(ValueError, match=r"Wrong.derivative must return shape \(3, 3\), got \(\)"):
        mf.simulate(problem, n_particles=3, dt=0.1, t_end=0.1)
    with pytest.raises(ValueError, match=r"Wrong.value must return shape \(3, 3\), got \(\)"):
        mf.hamiltonian(problem, np.zeros((3, 1)))


def test_a_users_weight_that_is_not_his_derivative_is_named():
    @dataclass(frozen=True)
    class Twice(Morse):
        weight = staticmethod(morse_weight)
        parameters = (2.0,)

    with pytest.raises(ValueError, match=r"Twice.weight must be -derivative\(r\) / r, got .* at r = 0.5"):
        mf.simulate(mf.Problem(mf.Interval(0, 1), mf.Zero(), Twice()), n_particles=3, dt=0.1, t_end=0.1)


def test_a_users_pair_goes_into_solve_too():
    """Morse attraction in a well: gibbs and the end of simulate agree on the second moment."""
    problem = mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), Morse(-2.0), 2.0)
    state = mf.gibbs(problem, mf.Grid(100))
    expected = float((state["density"] * state["x"] ** 2).sum() * 6 / 100)
    run = mf.simulate(problem, n_particles=50, dt=0.01, t_end=3.0, n_runs=20, save_every=300)
    moments = (run["position"].values[:, -1, :, 0] ** 2).mean(axis=1)
    assert abs(moments.mean() - expected) < 5 * moments.std(ddof=1) / math.sqrt(20) + 0.01 * expected  # Euler's own bias


def test_cell_averages_of_smooth_pairs_are_exact():
    """Double averages over cells in closed form: second differences of an antiderivative of the antiderivative."""
    for width in (0.01, 0.3, math.pi):
        k = np.arange(20)
        cosine = -0.7 * np.sinc(width / (2 * math.pi)) ** 2 * np.cos(width * k)
        assert_allclose(mf.CosinePair(0.7).cell_averages(width, 20), cosine, rtol=0, atol=1e-12)
        for sigma in (0.02, 0.5, 3.0):
            z = width * np.arange(-1, 21) / sigma

            def twice(z):
                return z * math.sqrt(math.pi / 2) * erf(z / math.sqrt(2)) + np.exp(-z * z / 2)

            exact = 1.3 * (sigma / width) ** 2 * np.diff(twice(z), 2)
            rounding = 4e-16 * (sigma / width) ** 2 * np.abs(twice(z)).max()  # of the oracle's own differences
            assert_allclose(mf.GaussianPair(1.3, sigma).cell_averages(width, 20), exact, rtol=0, atol=1e-12 + 4 * rounding)


def test_normalized_force_is_continuous_at_s_0():
    """|force(s) - force(0)| = O(s) from both sides; without it the force vanishes there."""
    r = np.array([0.1, 0.5, 1.0, 3.0])
    for softening in (0.0, 0.2):
        limit = mf.Log(1.4, softening).derivative(r)
        assert_allclose(limit, -1.4 * r / (r * r + softening**2), rtol=1e-14)
        for s in (1e-3, -1e-3, 1e-8, -1e-8, 1e-300, -1e-300):
            force = mf.Riesz(s, 1.4, softening, normalized=True).derivative(r)
            assert_allclose(force, limit, rtol=3 * abs(s) + 1e-14)
            assert (mf.Riesz(s, 1.4, softening).derivative(r) / limit < 2e-3).all()
        assert mf.Riesz(0, 1.4, softening, normalized=True).derivative(r) == pytest.approx(limit)


@pytest.mark.parametrize("s", [-1.5, -0.5, -1e-6, 1e-6, 0.5, 0.9])
def test_normalized_is_the_strength_over_s_everywhere(s):
    normal, plain = mf.Riesz(s, 1.4, normalized=True), mf.Riesz(s, 1.4 / abs(s))
    assert normal.law == plain.law
    r = np.array([0.0, 0.3, 2.0])
    assert_allclose(normal.value(r), plain.value(r), rtol=1e-14)
    assert_allclose(normal.derivative(r), plain.derivative(r), rtol=1e-14)
    assert_allclose(normal.cell_averages(0.1, 30), plain.cell_averages(0.1, 30), rtol=1e-12)
    x = np.random.default_rng(0).uniform(0, 1, (6, 1))
    problems = [mf.Problem(mf.Interval(0, 1), mf.Zero(), g) for g in (normal, plain)]
    assert mf.hamiltonian(problems[0], x) == pytest.approx(mf.hamiltonian(problems[1], x), rel=1e-13)


def test_normalized_coulomb_forces_and_words():
    r = np.array([0.5, 2.0])
    for dim in (1, 2, 3, 5):
        assert_allclose(mf.Coulomb(dim, 1.3, normalized=True).derivative(r), -1.3 * r ** (1.0 - dim), rtol=1e-14)
    assert mf.Riesz(2.0, 3.0, normalized=True).formula == "g(r) = 1.5 r^-2"
    with pytest.raises(ValueError, match="normalized must be True or False, got 'yes'"):
        mf.Riesz(1.0, normalized="yes")
    with pytest.raises(ValueError, match="width must be positive and finite, got 0"):
        mf.GaussianPair(1.0, 0)


def test_bug_17_compiled_and_interpreted_agree_on_every_loop(tmp_path):
    program = ("import meanfield as mf, numpy as np, sys; xs = []\n"
               "for d in (mf.Torus(2.5, 2), mf.Box(0, 2.5, dim=2)):\n"
               "    p = mf.Problem(d, mf.Zero(), (mf.GaussianPair(1., .4), mf.Log(.2), mf.Riesz(.7), mf.QuadraticPair(.3), "
               "mf.CosinePair()), 3.0)\n"
               "    r = mf.simulate(p, n_particles=7, dt=1e-3, t_end=0.004, n_runs=2, seed=1)\n"
               "    xs += [r['position'].values.ravel(), mf.hamiltonian(p, r).values.ravel()]\n"
               "np.savez(sys.argv[1], *xs)")
    for _, compiled, interpreted in compiled_and_interpreted(program, tmp_path):
        assert_allclose(interpreted, compiled, rtol=1e-12, atol=1e-13)
