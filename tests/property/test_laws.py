"""Laws of everything registered: gradients are derivatives, forces cancel, projections are projections."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from oracles import finite_difference

import meanfield as mf
from meanfield.learning import alignment, normalized  # noqa: F401  (they register their potentials)
from meanfield.pairforces import add_forces
from meanfield.registry import REGISTRY

assert mf.Ball  # loads the domains, which register themselves


def registered(kind):
    found = [(name, cls.example(dim), dim) for name, cls in sorted(REGISTRY[kind].items()) for dim in (1, 2, 3)]
    return [pytest.param(item, dim, id=f"{name}-{dim}d") for name, item, dim in found if item is not None]


def points(seed, *shape):
    return np.random.default_rng(seed).uniform(-0.9, 0.9, shape)


@pytest.mark.parametrize(("potential", "dim"), registered("potential"))
@given(seed=st.integers(0, 2**31))
def test_potential_gradient_is_the_derivative_of_n_times_the_mean(potential, dim, seed):
    x = points(seed, 4, dim)
    expected = finite_difference(lambda z: 4 * potential.value(z).mean(), x)
    assert_allclose(potential.gradient(x), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("potential", "dim"), registered("potential"))
def test_potential_takes_any_leading_axes(potential, dim):
    x = points(0, 3, 4, dim)
    assert potential.value(x).shape == (3, 4)
    for run in range(3):
        assert_allclose(potential.value(x)[run], potential.value(x[run]), rtol=1e-13, atol=1e-15)
        assert_allclose(potential.gradient(x)[run], potential.gradient(x[run]), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize(("interaction", "dim"), [
    *registered("interaction"),
    *(pytest.param(mf.Riesz(s, 0.7, eps), 2, id=f"Riesz({s},{eps})")
      for s in (-1.5, -1, -0.5, 0, 0.5, 1, 2, 3) for eps in (0.0, 0.1)),
])
@given(seed=st.integers(0, 2**31))
def test_interaction_derivative_gradient_and_compiled_force_agree(interaction, dim, seed):
    x = points(seed, 5, dim)
    r = np.linalg.norm(x, axis=1) + 0.05
    assert_allclose(interaction.derivative(r), finite_difference(lambda z: interaction.value(z).sum(), r),
                    rtol=1e-6, atol=1e-8)
    pairwise = interaction.gradient(x[:, None] - x[None]).sum(axis=1)
    force = np.zeros((1, 5, dim))
    add_forces(interaction, x[None], 1.0, 0.0, None, force)
    scale = np.abs(interaction.gradient(x[:, None] - x[None])).max() + 1e-300
    assert_allclose(force[0] / scale, -pairwise / scale, rtol=1e-12, atol=1e-12)
    assert_allclose(force.sum(axis=(0, 1)) / scale, 0, atol=1e-12)  # no net force


@pytest.mark.parametrize(("interaction", "dim"), registered("interaction"))
def test_hamiltonian_gradient_is_the_step_drift(interaction, dim):
    """N grad_k H_N of method.md (5.2), by finite differences of H_N."""
    problem = mf.Problem(mf.Box(-1, 1, dim=dim), mf.Quadratic(0.4), interaction, 1.0)
    x = points(3, 6, dim)
    expected = x - 1e-7 * 6 * finite_difference(lambda z: mf.hamiltonian(problem, z), x)
    cold = mf.Problem(problem.domain, problem.potential, interaction, float("inf"))
    run = mf.simulate(cold, n_particles=6, dt=1e-7, t_end=1e-7, initial=x)
    assert_allclose((run["position"].values[0, -1] - x) / 1e-7, (expected - x) / 1e-7, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("interaction", "dim"), registered("interaction"))
@given(seed=st.integers(0, 2**31))
def test_energy_is_invariant_under_permutation_translation_rotation(interaction, dim, seed):
    rng = np.random.default_rng(seed)
    problem = mf.Problem(mf.Ball(100.0, dim), mf.Zero(), interaction, 1.0)
    x = points(seed, 7, dim)
    energy = mf.hamiltonian(problem, x)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    images = [rng.permutation(x), x + rng.standard_normal(dim)]
    if interaction.radial or dim == 1:
        images.append(x @ rotation)
    for image in images:
        assert mf.hamiltonian(problem, image) == pytest.approx(energy, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("domain", "dim"), registered("domain"))
@given(seed=st.integers(0, 2**31), size=st.sampled_from([1e-310, 1e-3, 1.0, 2.0, 1e3, 1e300]))
def test_projection_is_inside_idempotent_and_nearest(domain, dim, seed, size):
    rng = np.random.default_rng(seed)
    x = size * rng.standard_normal((40, dim))
    projected = domain.project(x)
    assert domain.contains(projected).all()
    assert_array_equal(domain.project(projected), projected)
    assert_array_equal(projected[domain.contains(x)], x[domain.contains(x)])
    if size < 1e100:
        # on a torus a point is its images: distances are those of nearest images, up to the rounding of x
        slack = 1e-300 if domain.period is None else 1e-14 * (size + domain.period)

        def distance(a, b):
            return np.linalg.norm(domain.displacement(a, b), axis=-1)

        others = domain.sample(30, seed) if domain.bounded else rng.standard_normal((30, dim))
        assert domain.contains(others).all()
        assert (distance(x, projected) <= distance(x[:, None], others).min(axis=1) * (1 + 1e-12) + slack).all()
        # non-expansive
        assert (distance(projected[1:], projected[:-1]) <= distance(x[1:], x[:-1]) * (1 + 1e-12) + slack).all()


@pytest.mark.parametrize(("domain", "dim"), registered("domain"))
@given(seed=st.integers(0, 2**31), size=st.sampled_from([1e-3, 1.0, 2.0, 50.0, 1e6]))
def test_reflection_stays_inside_and_mirrors_about_the_projection(domain, dim, seed, size):
    x = size * np.random.default_rng(seed).standard_normal((40, dim))
    reflected = domain.reflect(x)
    assert domain.contains(reflected).all()
    assert_array_equal(reflected[domain.contains(x)], x[domain.contains(x)])
    if not has_walls(domain):
        return
    # a step just beyond the wall comes back as far inside as it was outside
    direction = np.random.default_rng(seed).standard_normal((40, dim))
    far = 100.0 * direction / np.abs(direction).max(axis=1, keepdims=True)
    wall = domain.project(far)
    outside = wall + 1e-3 * (far - wall) / np.linalg.norm(far - wall, axis=1, keepdims=True)
    assert not domain.contains(outside).any()
    mirror = 2 * domain.project(outside) - outside
    inside = domain.contains(mirror)
    if isinstance(domain, (mf.Box, mf.Ball)):
        assert inside.all()
    assert inside.any()  # at a sharp corner the mirror image may be outside: then only the first assertion holds
    assert_allclose(domain.reflect(outside)[inside], mirror[inside], atol=1e-9)


def has_walls(domain):
    return domain.bounded and domain.period is None


@pytest.mark.parametrize(("domain", "dim"), registered("domain"))
@given(seed=st.integers(0, 2**31))
def test_boundary_distance_is_the_radius_of_the_largest_ball_inside(domain, dim, seed):
    rng = np.random.default_rng(seed)
    if not has_walls(domain):
        assert (domain.boundary_distance(domain.project(rng.standard_normal((5, dim)))) == np.inf).all()
        return
    x, direction = domain.sample(20, seed), rng.standard_normal((200, 1, dim))
    distance = domain.boundary_distance(x)
    assert (distance >= 0).all()
    direction /= np.linalg.norm(direction, axis=-1, keepdims=True)
    assert domain.contains(x + (1 - 1e-9) * distance[:, None] * direction).all()
    wall = domain.project(x + 100 * direction[:10])
    assert_allclose(domain.boundary_distance(wall), 0, atol=1e-13)
    assert (distance <= np.linalg.norm(wall - x, axis=-1) + 1e-13).all()
    assert_array_equal(domain.boundary_distance(x + 100 * direction), 0)


@pytest.mark.parametrize(("domain", "dim"), registered("domain"))
def test_uniform_samples_fill_the_volume(domain, dim):
    """The share of samples in a cube in the middle is its volume over the domain's: |z| < 5."""
    if not domain.bounded:
        with pytest.raises(ValueError, match="^initial must be an array on "):
            domain.sample(3)
        return
    n = 40_000
    middle = domain.sample(1000, 6).mean(axis=0)
    side = min(float(domain.boundary_distance(middle)), domain.diameter / 2) / np.sqrt(dim)
    inside = (np.abs(domain.sample(n, 5) - middle) < side / 2).all(axis=1).sum()
    share = side**dim / domain.volume
    assert abs(inside - n * share) < 5 * np.sqrt(n * share * (1 - share))


@pytest.mark.parametrize("kind", ["domain", "potential", "interaction"])
def test_every_word_shows_itself(kind):
    for name, cls in REGISTRY[kind].items():
        item = cls.example(2)
        assert (name in repr(item)) or name == "Box"
        if kind != "domain":
            assert "=" in item.formula


@given(st.floats(-1.9, 0.9), st.floats(0.01, 10), st.sampled_from([0.0, 1e-3, 0.1]), st.floats(1e-3, 0.5))
def test_cell_averages_are_the_double_averages(s, strength, softening, width):
    """Against adaptive quadrature of int (1 - |t|) g(h |k + t|) dt, the singular end split off."""
    from scipy.integrate import quad

    interaction = mf.Riesz(s, strength, softening)
    averages = interaction.cell_averages(width, 12)

    def value(t, k):
        return float(interaction.value(np.array(width * abs(k + t))))

    for k in (1, 2, 7, 8, 11):
        expected = sum(quad(lambda t, k=k: (1 - abs(t)) * value(t, k), a, b, epsabs=0, epsrel=1e-11, limit=400)[0]
                       for a, b in ((-1, 0), (0, 1)))
        assert averages[k] == pytest.approx(expected, rel=1e-7, abs=1e-9 * strength)
    if softening == 0 and s != 0:  # k = 0 in closed form: 2 g(h) / ((1 - s)(2 - s))
        expected = 2 * float(interaction.value(np.array(width))) / ((1 - s) * (2 - s))
        assert averages[0] == pytest.approx(expected, rel=1e-12)
