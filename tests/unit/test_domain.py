"""Domains: exact folds, walls and corners (BUG-20), volumes, bad bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import meanfield as mf


@pytest.mark.parametrize(("displacement", "folded", "clipped"), [(7.3, 0.5, 1.0), (-7.3, 0.9, 0.0)])
def test_bug_20_many_bounces(displacement, folded, clipped):
    interval = mf.Interval(0, 1)
    assert_allclose(interval.reflect(np.array([0.2 + displacement])), folded, atol=1e-14)
    assert interval.project(np.array([0.2 + displacement]))[0] == clipped


def test_bug_20_corner_and_wall():
    box = mf.Box(0, 1, dim=2)
    assert_array_equal(box.project(np.array([0.5 + 3, 0.5 - 3])), [1, 0])
    on_wall = np.array([1.0, 0.25])
    assert_array_equal(box.project(on_wall), on_wall)
    assert_array_equal(box.reflect(on_wall), on_wall)


@pytest.mark.parametrize("dim", [2, 3])
def test_bug_20_tangential_steps_never_leak(dim):
    ball = mf.Ball(1.0, dim)
    x = np.zeros((1, dim))
    x[0, 0] = 1 - 1e-16
    for k in range(2000):
        tangent = np.zeros((1, dim))
        tangent[0, 0], tangent[0, 1] = -x[0, 1], x[0, 0]
        x = (ball.project if k % 2 else ball.reflect)(x + 0.05 * tangent)
        assert ball.contains(x).all()


def test_reflection_in_a_ball_goes_along_the_ray():
    ball = mf.Ball(2.0, 2)
    assert_allclose(ball.reflect(np.array([[2.5, 0.0], [0.0, -9.0], [3.0, 4.0]])), [[1.5, 0], [0, -1], [-0.6, -0.8]],
                    atol=1e-14)


def test_volumes():
    assert mf.Ball(2.0, 3).volume == pytest.approx(4 / 3 * math.pi * 8)
    assert mf.Ball(2.0, 1).volume == pytest.approx(4.0)
    assert mf.Box([0, 1], [2, 4]).volume == 6
    assert repr(mf.Interval(0, 1)) == "Interval(0.0, 1.0)"
    assert mf.Interval(0, 1) == mf.Box(0, 1) == mf.Box(0.0, 1.0, dim=1)
    assert mf.Box([0, 1], [2, 4]).diameter == pytest.approx(math.hypot(2, 3))


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: mf.Interval(1, 0), "low must be below high in every component, got low=1.0, high=0.0"),
    (lambda: mf.Interval(0, float("inf")), "b must be a finite number, got inf"),
    (lambda: mf.Box([0, 0], [1, 1, 1]), "low and high must be numbers or have one entry"),
    (lambda: mf.Box(0, 1, dim=0), "dim must be a whole number of at least 1, got 0"),
    (lambda: mf.Ball(-1, 2), "radius must be positive and finite, got -1"),
    (lambda: mf.Riesz(-2), "s must be above -2 .* got -2"),
    (lambda: mf.Riesz(1, softening=-1), "softening must be non-negative and finite, got -1"),
    (lambda: mf.Quadratic(float("nan")), "stiffness must be a finite number, got nan"),
    (lambda: mf.Problem(mf.Interval(0, 1), inverse_temperature=0), "inverse_temperature must be positive, got 0"),
    (lambda: mf.Grid(1), "cells must be a whole number of at least 2, got 1"),
])
def test_bad_words(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("arguments", [("disc",), (mf.Interval(0, 1), mf.Log()), (mf.Interval(0, 1), mf.Zero(), ())])
def test_problem_names_what_is_of_the_wrong_kind(arguments):
    with pytest.raises(TypeError, match="must be"):
        mf.Problem(*arguments)


def test_coulomb_is_the_riesz_kernel_of_its_dimension():
    assert [mf.Coulomb(d).s for d in (1, 2, 3)] == [-1, 0, 1]
    assert mf.Log(2.0, 0.1) == mf.Riesz(0, 2.0, 0.1)


def test_a_users_potential_needs_two_methods_and_registers_itself():
    @mf.register
    class Tilt(mf.Potential):
        formula = "V(x) = x_1"

        @classmethod
        def example(cls, dim):
            return cls()

        def value(self, positions):
            return positions[..., 0]

        def gradient(self, positions):
            return np.broadcast_to(np.eye(positions.shape[-1])[0], positions.shape)

    from meanfield.registry import REGISTRY

    try:
        problem = mf.Problem(mf.Interval(0, 1), (Tilt(), mf.Zero()), inverse_temperature=5.0)
        assert REGISTRY["potential"]["Tilt"] is Tilt
        flow = mf.solve(problem, mf.Grid(64), t_end=10.0)
        expected = np.exp(-5 * flow["x"].values)
        assert_allclose(flow["density"].values[-1], expected / expected.mean(), rtol=1e-6)
        with pytest.raises(ValueError, match="already registered"):
            mf.register(type("Tilt", (mf.Potential,), {"example": classmethod(lambda cls, dim: None)}))
        with pytest.raises(TypeError, match="only Domain, Potential and Interaction"):
            mf.register(int)
    finally:
        REGISTRY["potential"].pop("Tilt", None)


def test_a_potential_of_the_wrong_shape_is_named():
    class Wrong(mf.Potential):
        formula = "V(x) = 1"

        def value(self, positions):
            return 1.0

        def gradient(self, positions):
            return 0.0

    with pytest.raises(ValueError, match=r"Wrong.gradient must return shape \(1, 2, 1\), got \(\)"):
        mf.simulate(mf.Problem(mf.Interval(0, 1), Wrong()), n_particles=2, dt=0.1, t_end=0.1)
