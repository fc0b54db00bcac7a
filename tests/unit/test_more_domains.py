"""Torus, FreeSpace, Simplex, Polytope: against quadratic programming, closed forms and BUG-20 in full."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from processes import compiled_and_interpreted
from scipy.optimize import minimize

import meanfield as mf
from meanfield.domain.base import norm


def random_polytope(dim, seed):
    rng = np.random.default_rng(seed)
    slanted = rng.standard_normal((5 * dim, dim)) * rng.uniform(0.1, 10, (5 * dim, 1))
    normals = np.vstack([slanted, np.eye(dim), -np.eye(dim)])
    return mf.Polytope(normals, np.linalg.norm(normals, axis=1) * rng.uniform(0.3, 1.0, len(normals)))


def walls(dim):
    return [mf.Box.example(dim), mf.Ball(1.0, dim), mf.Simplex(dim), mf.Polytope.example(dim), random_polytope(dim, 3)]


WALLS = [pytest.param(d, id=f"{type(d).__name__}-{d.dim}d-{i}") for dim in (1, 2, 3) for i, d in enumerate(walls(dim))]


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_polytope_projection_against_quadratic_programming(dim, seed):
    polytope = random_polytope(dim, seed)
    a, b = np.array(polytope.normals), np.array(polytope.offsets)
    for x in 2.0 * np.random.default_rng(seed).standard_normal((12, dim)):
        found = minimize(lambda p, x=x: 0.5 * np.sum((p - x) ** 2), np.zeros(dim), jac=lambda p, x=x: p - x, method="SLSQP",
                         constraints={"type": "ineq", "fun": lambda p: b - a @ p, "jac": lambda p: -a},
                         options={"ftol": 1e-15, "maxiter": 300})
        assert_allclose(polytope.project(x), found.x, atol=1e-7)
        assert np.linalg.norm(polytope.project(x) - x) <= np.linalg.norm(found.x - x) + 1e-9


@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e4])
def test_polytope_projection_is_exact_by_its_optimality_condition(dim, size):
    """x - P(x) makes no acute angle with any direction from P(x) to a vertex: to 1e-13."""
    for polytope in (mf.Polytope.example(dim), random_polytope(dim, 7)):
        x = size * np.random.default_rng(5).standard_normal((60, dim))
        p = polytope.project(x)
        ascent = np.einsum("kd,kvd->kv", x - p, polytope.vertices[None] - p[:, None]).max(axis=1)
        assert (ascent <= 2e-13 * (1 + size)).all()


@pytest.mark.parametrize("dim", [1, 2, 3, 6])
def test_simplex_is_the_polytope_with_the_same_inequalities(dim):
    simplex = mf.Simplex(dim)
    polytope = mf.Polytope(np.vstack([-np.eye(dim), np.ones((1, dim))]), [*[0.0] * dim, 1.0])
    x = np.random.default_rng(dim).standard_normal((200, dim))
    assert_array_equal(simplex.contains(x / 3), polytope.contains(x / 3))
    assert_allclose(simplex.project(x), polytope.project(x), atol=1e-14)
    assert_allclose(simplex.reflect(x), polytope.reflect(x), atol=1e-12)
    inside = simplex.sample(100, 1)
    assert_allclose(simplex.boundary_distance(inside), polytope.boundary_distance(inside), atol=1e-15)
    assert simplex.volume == pytest.approx(polytope.volume, rel=1e-12)
    assert simplex.volume == pytest.approx(1 / math.factorial(dim))
    assert simplex.diameter == pytest.approx(polytope.diameter, rel=1e-12)
    assert_array_equal(mf.Simplex(3).project(np.array([[1e300, 1.0, -5.0], [0.2, 0.3, 0.5], [1.0, 1.0, 1.0]])[:2]),
                       [[1, 0, 0], [0.2, 0.3, 0.5]])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_polytope_that_is_a_box_is_that_box(dim):
    box = mf.Box.example(dim)
    polytope = mf.Polytope(np.vstack([np.eye(dim), -np.eye(dim)]), [*box.high, *(-v for v in box.low)])
    x = 3 * np.random.default_rng(dim).standard_normal((200, dim))
    assert_allclose(polytope.project(x), box.project(x), atol=1e-14)
    assert_allclose(polytope.reflect(x / 2), box.reflect(x / 2), atol=1e-12)  # no further out than two diameters
    assert polytope.volume == pytest.approx(box.volume, rel=1e-12)
    assert polytope.diameter == pytest.approx(box.diameter, rel=1e-12)
    corners = set(itertools.product(*zip(box.low, box.high, strict=True)))
    assert {tuple(v) for v in np.round(polytope.vertices, 12).tolist()} == corners
    assert pickle.loads(pickle.dumps(polytope)) == polytope
    assert hash(polytope) == hash(mf.Polytope(polytope.normals, polytope.offsets))


@pytest.mark.parametrize("kind", ["interval", "polytope", "simplex"])
@pytest.mark.parametrize(("displacement", "folded", "clipped"), [(7.3, 0.5, 1.0), (-7.3, 0.9, 0.0), (1000.3, 0.5, 1.0)])
def test_bug_20_long_jumps_fold_on_the_line(kind, displacement, folded, clipped):
    domain = {"interval": mf.Interval(0, 1), "polytope": mf.Polytope([[1.0], [-2.0]], [1.0, 0.0]),
              "simplex": mf.Simplex(1)}[kind]
    assert_allclose(domain.reflect(np.array([[0.2 + displacement]])), [[folded]], atol=1e-12)
    assert_array_equal(domain.project(np.array([[0.2 + displacement]])), [[clipped]])


@pytest.mark.parametrize("many", [100_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("domain", WALLS)
def test_bug_20_projected_points_are_inside_whatever_their_size(domain, many):
    """contains(project(x)) for many points, 1e300 and denormals among them, float64 and float32; bitwise idempotent."""
    n = many // 33 if isinstance(domain, mf.Polytope) else many
    rng = np.random.default_rng(11)
    size = np.array([1.0, 1.0 + 1e-12, 1e300, 5e-324, 1e-310, 1e3, 1e16])[rng.integers(0, 7, n), None]
    x = size * rng.standard_normal((n, domain.dim))
    with np.errstate(over="ignore"):
        narrow = np.float32(x)
    for points in (x, narrow[np.isfinite(narrow).all(axis=1)]):
        projected = domain.project(points)
        assert domain.contains(projected).all()
        assert_array_equal(domain.project(projected), projected)
        # the answer does not depend on how the points are laid out in memory or batched
        assert_array_equal(domain.project(np.asfortranarray(projected)), projected)
        assert domain.contains(np.asfortranarray(projected)).all()
        assert_array_equal(domain.project(points[:7]), projected[:7])


@pytest.mark.parametrize("domain", WALLS)
def test_bug_20_points_on_a_wall_stay_bit_for_bit(domain):
    x = 50 * np.random.default_rng(2).standard_normal((100, domain.dim))
    wall = domain.project(x[~domain.contains(x)])
    assert_array_equal(domain.project(wall), wall)
    assert_array_equal(domain.reflect(wall), wall)
    assert_allclose(domain.boundary_distance(wall), 0, atol=1e-12)


def tangential_steps(dim, n_steps, dtype):
    ball = mf.Ball(1.0, dim)
    x = np.zeros((2, dim), dtype=dtype)
    x[:, 0] = 1 - 1e-16
    for _ in range(n_steps):
        tangent = np.zeros_like(x)
        tangent[:, 0], tangent[:, 1] = -x[:, 1], x[:, 0]
        step = x + dtype(0.05) * tangent
        inside = np.stack([ball.project(step[:1])[0], ball.reflect(step[1:])[0]])
        assert ball.contains(inside).all()
        assert norm(inside).max() <= 1.0
        x = inside.astype(dtype)
    assert norm(x[:1])[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("dim", [2, 3])
def test_bug_20_tangential_steps(dim, dtype):
    tangential_steps(dim, 3000, dtype)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("dim", [2, 3])
def test_bug_20_a_million_tangential_steps(dim, dtype):
    tangential_steps(dim, 1_000_000, dtype)


@pytest.mark.parametrize("scheme", ["projected", "reflected"])
@pytest.mark.parametrize("domain", WALLS)
def test_bug_20_simulated_particles_never_leave(domain, scheme):
    problem = mf.Problem(domain, mf.Quadratic(-3.0), mf.Log(0.1, 0.05), 0.5)
    run = mf.simulate(problem, n_particles=20, dt=2e-3, t_end=0.1, scheme=scheme, save_every=1)
    assert domain.contains(run["position"].values).all()
    assert run["clipped_fraction"].max() > 0


EVERY_DOMAIN = """
import sys
import numpy as np
import meanfield as mf
found = {{}}
domains = [mf.Interval(0, 1), mf.Box(-1, 1, dim=3), mf.Ball(1.0, 2), mf.Simplex(2), mf.Polytope.example(2), mf.Torus(1.7, 2),
           mf.FreeSpace(2)]
for domain in domains:
    for n in {sizes}:
        # wide enough that many points are on the wall
        x = domain.project(0.5 + np.random.default_rng(n).standard_normal(({states}, n, domain.dim)))
        problem = mf.Problem(domain, mf.Quadratic(1.5), (mf.Log(0.2, 0.05), mf.Riesz(0.7, 0.1, 0.1)), 3.0)
        found[f"energy {{domain}} {{n}}"] = mf.hamiltonian(problem, x)
        for scheme in ("projected", "reflected"):
            run = mf.simulate(problem, n_particles=n, dt=1e-2, t_end=1e-2, n_runs={states}, initial=x, scheme=scheme)
            found[f"{{scheme}} {{domain}} {{n}}"] = run["position"].values
gas = mf.Problem(mf.Interval(0, 1), mf.Quadratic(), mf.Log(), 5.0)
for cells in (2, *{sizes}[1:]):
    for state in range({states}):
        rho = np.random.default_rng(state).exponential(size=cells)
        flow = mf.solve(gas, mf.Grid(cells), t_end=1e-4, initial=rho / rho.mean(), save_at=[0.0, 1e-4], tolerance=1.0)
        for name in ("density", "free_energy", "dissipation"):
            found[f"{{name}} {{cells}} {{state}}"] = flow[name].values
np.savez(sys.argv[1], **found)
"""


@pytest.mark.parametrize(("sizes", "states"), [
    ((1, 3), 1), pytest.param((1, 2, 3, 7, 64), 20, marks=pytest.mark.full)])
def test_bug_17_compiled_and_interpreted_agree_on_every_domain(tmp_path, sizes, states):
    """Energy, a step of the particles (states on the wall included), free energy and a step of the density."""
    for name, compiled, interpreted in compiled_and_interpreted(EVERY_DOMAIN.format(sizes=sizes, states=states), tmp_path):
        assert_allclose(interpreted, compiled, rtol=1e-12, atol=1e-13, err_msg=name)


def test_torus_wraps_and_measures_by_the_nearest_image():
    torus = mf.Torus(2.0, 2)
    assert_array_equal(torus.project(np.array([[2.0, -0.5], [-1e-20, 4.5], [1.5, 0.0]])), [[0, 1.5], [0, 0.5], [1.5, 0]])
    assert torus.contains(np.array([[0.0, 1.9], [2.0, 1.0], [-1e-20, 1.0], [np.nan, 0.0]])).tolist() == [True, *[False] * 3]
    assert_allclose(torus.displacement(np.array([1.9, 0.1]), np.array([0.1, 1.0])), [-0.2, -0.9])
    assert (torus.volume, torus.diameter, torus.period) == (4.0, pytest.approx(math.sqrt(2)), 2.0)
    start = np.array([[0.5, 2.0]])
    with pytest.raises(ValueError, match=r"initial positions must lie in Torus.* got \[0.5, 2.0\]"):
        mf.simulate(mf.Problem(torus), n_particles=1, dt=0.1, t_end=0.1, initial=start)


def test_free_space_has_no_uniform_start_and_stops_at_what_is_not_finite():
    problem = mf.Problem(mf.FreeSpace(2), mf.Quadratic(), mf.Log(), 4.0)
    with pytest.raises(ValueError, match="^initial must be an array on FreeSpace$"):
        mf.simulate(problem, n_particles=5, dt=0.1, t_end=0.1)
    x = np.random.default_rng(0).standard_normal((50, 2))
    run = mf.simulate(problem, n_particles=50, dt=0.01, t_end=0.1, initial=x)
    large = mf.Problem(mf.Ball(1e3, 2), mf.Quadratic(), mf.Log(), 4.0)
    inside = mf.simulate(large, n_particles=50, dt=0.01, t_end=0.1, initial=x)
    assert_array_equal(run["position"].values, inside["position"].values)
    assert run["clipped_fraction"].max() == 0
    quartic = mf.Problem(mf.FreeSpace(1), mf.DoubleWell(), inverse_temperature=float("inf"))
    with pytest.raises(mf.UnstableStepError, match="particle 1 of run 0 by (inf|nan), which is not a finite number"):
        mf.simulate(quartic, n_particles=2, dt=0.1, t_end=10.0, initial=np.array([[1.0], [50.0]]))


def test_displacement_is_a_difference_where_nothing_repeats():
    assert_array_equal(mf.Ball(1.0, 2).displacement(np.array([0.5, 0.0]), np.array([-0.5, 0.25])), [1.0, -0.25])
    assert mf.Ball(1.0, 2).period is None


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: mf.Torus(0, 2), "length must be positive and finite, got 0"),
    (lambda: mf.FreeSpace(0), "dim must be a whole number of at least 1, got 0"),
    (lambda: mf.Simplex(1.5), "dim must be a whole number of at least 1, got 1.5"),
    (lambda: mf.Polytope([[1.0], [-1.0]], [0.0, -1.0]), "must leave a non-empty set, got an empty one"),
    (lambda: mf.Polytope([[1.0, 0], [0, 1]], [1.0, 1.0]), "must leave a bounded set, got an unbounded one"),
    (lambda: mf.Polytope([[1.0], [-1.0]], [1.0, -1.0]), "must leave a set with an interior, got a flat one"),
    (lambda: mf.Polytope([[1.0, 0], [0, 0]], [1.0, 1.0]), "every normal must differ from zero, got zeros in row 1"),
    (lambda: mf.Polytope([[1.0, 0]], [1.0, 1.0]), r"got \(1, 2\) and \(2,\)"),
    (lambda: mf.Polytope([[1.0, np.inf]], [1.0]), "normals must be finite"),
])
def test_bad_domains(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
