"""Every scheme of simulate: what a step is, same bits whatever the threads, chunks or resume points, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from processes import compiled_and_interpreted

import meanfield as mf
from meanfield import _rng, record
from meanfield.forces import nearest_distances
from meanfield.particles import SCHEMES
from meanfield.schemes import refuse_unstable

COLD = math.inf
TRAP = mf.Problem(mf.Box(-3, 3, dim=2), mf.Quadratic(1.5), (mf.Log(0.8), mf.QuadraticPair(0.3)), 4.0)
LINE = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)


def under(scheme, problem):
    """The problem, at a temperature that the scheme takes."""
    beta = COLD if scheme == "flow" else problem.inverse_temperature
    return mf.Problem(problem.domain, problem.potential, problem.interaction, beta)


class Quartic(mf.Potential):
    formula = "V = 5 |x|^4"

    def __repr__(self):
        return "Quartic()"

    def value(self, positions):
        return 5 * np.square(np.square(positions).sum(axis=-1))

    def gradient(self, positions):
        return 20 * np.square(positions).sum(axis=-1, keepdims=True) * positions


class Broken(mf.Potential):
    formula = "V = nan beyond 1/2"

    def value(self, positions):
        return np.zeros(positions.shape[:-1])

    def gradient(self, positions):
        return np.where(positions > 0.5, np.nan, 0.0)


def test_bug_17_compiled_and_interpreted_schemes_agree(tmp_path):
    """Every scheme with NUMBA_DISABLE_JIT=1, one particle and particles on the wall included: equal to rounding."""
    program = ("import meanfield as mf, numpy as np, sys\n"
               "out = {}\n"
               "for scheme in ('projected', 'reflected', 'tamed', 'adaptive', 'flow', 'metropolis'):\n"
               "    for n in (1, 2, 5):\n"
               "        beta = float('inf') if scheme == 'flow' else 3.0\n"
               "        p = mf.Problem(mf.Box(0, 1, dim=2), mf.Quadratic(1.5), (mf.Log(0.2), mf.QuadraticPair(0.3)), beta)\n"
               "        x = np.linspace(0, 1, 2 * n).reshape(n, 2)\n"
               "        r = mf.simulate(p, n_particles=n, dt=1e-3, t_end=2e-3, n_runs=2, initial=x, scheme=scheme)\n"
               "        out[f'{scheme}{n}'] = r['position'].values\n"
               "np.savez(sys.argv[1], **out)\n")
    for name, compiled, interpreted in compiled_and_interpreted(program, tmp_path):
        assert_allclose(interpreted, compiled, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("scheme", ["projected", "reflected", "tamed", "adaptive", "metropolis"])
def test_bug_44_nan_and_instability_name_the_particle_under_every_scheme(scheme):
    x = np.array([[0.1], [0.2], [0.6], [0.3]])
    with pytest.raises(mf.UnstableStepError, match="at step 0 .* particle 2 of run 0") as caught:
        mf.simulate(mf.Problem(mf.Interval(0, 1), Broken()), n_particles=4, dt=1e-3, t_end=0.1, initial=x, scheme=scheme)
    assert caught.value.particle == 2


def test_bug_44_nan_under_flow():
    with pytest.raises(mf.UnstableStepError, match="particle 2 of run 0 is not a finite number"):
        mf.simulate(mf.Problem(mf.Interval(0, 1), Broken(), inverse_temperature=COLD), n_particles=3, dt=1e-3, t_end=0.1,
                    initial=[[0.1], [0.2], [0.6]], scheme="flow")


def test_tamed_step_is_its_formula():
    x = TRAP.domain.sample((2, 5), 1) * 0.9
    run = mf.simulate(TRAP, n_particles=5, dt=1e-2, t_end=1e-2, n_runs=2, initial=x, scheme="tamed", seed=4)
    plain = mf.simulate(TRAP, n_particles=5, dt=1e-2, t_end=1e-2, n_runs=2, initial=x, seed=4)
    noise = np.empty(x.shape)
    _rng.normals(_rng.philox_key(4, _rng.NOISE), 0, 0, noise)
    step = plain["position"].values[:, 1] - x - math.sqrt(2e-2 / 4) * noise
    tamed = step / (1 + np.linalg.norm(step, axis=-1, keepdims=True) / (0.1 * TRAP.domain.diameter))
    expected = TRAP.domain.project(x + tamed + math.sqrt(2e-2 / 4) * noise)
    inside = (np.abs(plain["position"].values[:, 1]) < 3).all(axis=-1)
    assert inside.sum() > 5
    assert_allclose(run["position"].values[:, 1][inside], expected[inside], atol=1e-13)


def test_tamed_survives_where_euler_is_refused():
    problem = mf.Problem(mf.Box(-6, 6, dim=2), Quartic(), mf.QuadraticPair(0.5), 4.0)
    arguments = {"n_particles": 6, "dt": 1 / 64, "t_end": 0.5, "initial": 5 + 0.1 * np.arange(6)[:, None] * [1, 1]}
    with pytest.raises(mf.UnstableStepError, match="times the diameter"):
        mf.simulate(problem, **arguments)
    run = mf.simulate(problem, scheme="tamed", **arguments)
    assert np.abs(run["position"].values[0, -1]).max() < 1.5


def test_adaptive_is_projected_euler_where_nothing_is_close():
    smooth = mf.Problem(mf.Interval(-3, 3), mf.Quadratic(), mf.QuadraticPair(0.5), 4.0)
    arguments = {"n_particles": 9, "dt": 1e-2, "t_end": 0.2, "n_runs": 3}
    plain, careful = (mf.simulate(smooth, scheme=scheme, **arguments) for scheme in ("projected", "adaptive"))
    assert_allclose(careful["position"].values, plain["position"].values, rtol=0, atol=1e-14)
    assert int(careful["n_substeps"].sum()) == 60


def test_bug_03_the_increments_of_adaptive_steps_add_up_to_the_nominal_noise():
    """Two distant crowds: the drift of one forces halvings; a free particle far away ends where plain Euler puts it."""
    class OnlyFirst(mf.Potential):
        formula = "V = 10000 x_0"

        def value(self, positions):
            return 1e4 * positions[..., 0, :].sum(axis=-1, keepdims=True) * (np.arange(positions.shape[-2]) == 0)

        def gradient(self, positions):
            gradient = np.zeros(positions.shape)
            gradient[..., 0, 0] = 1e4
            return gradient

    problem = mf.Problem(mf.Interval(-10, 10), OnlyFirst(), inverse_temperature=2.0)
    arguments = {"n_particles": 2, "dt": 0.01, "t_end": 0.5, "initial": [[9.0], [0.0]], "seed": 1}
    careful = mf.simulate(problem, scheme="adaptive", **arguments)
    assert int(careful["n_substeps"].sum()) > 4 * 50
    noise, free = np.empty((1, 2, 1)), [0.0]
    for step in range(50):
        _rng.normals(_rng.philox_key(1, _rng.NOISE), 0, step, noise)
        free.append(free[-1] + math.sqrt(0.01) * noise[0, 1, 0])
    assert_allclose(careful["position"].values[0, :, 1, 0], free, atol=1e-12)


def test_adaptive_resolves_a_pair_that_a_nominal_step_cannot():
    """Two cold particles 1e-3 apart under the logarithm: r(t)^2 = r(0)^2 + 4 t; the core of dt is 0.14."""
    problem = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Log(), COLD)
    arguments = {"n_particles": 2, "dt": 0.01, "t_end": 0.05, "initial": [[-5e-4], [5e-4]]}
    gap = {scheme: float(np.diff(mf.simulate(problem, scheme=scheme, **arguments)["position"].values[0, -1, :, 0])[0])
           for scheme in ("projected", "adaptive")}
    exact = math.sqrt(1e-6 + 4 * 0.05)
    assert gap["adaptive"] == pytest.approx(exact, rel=0.08)
    assert gap["projected"] < 0.5 * exact


def test_adaptive_refuses_what_its_halvings_cannot_resolve():
    stiff = mf.Problem(mf.Interval(-1, 1), mf.Zero(), mf.Riesz(1.0, 1e7, softening=1e-4), COLD)
    with pytest.raises(mf.UnstableStepError, match=r"after 10 halvings of dt, .* times its length scale .* take dt <="):
        mf.simulate(stiff, n_particles=2, dt=0.1, t_end=0.2, initial=[[0.0], [1e-4]], scheme="adaptive")


def test_nearest_distances_are_the_smallest_of_the_matrix():
    x = np.random.default_rng(0).standard_normal((3, 17, 2))
    every = np.linalg.norm(x[:, :, None] - x[:, None], axis=-1) + np.diag(np.full(17, np.inf))
    assert_allclose(nearest_distances(x), every.min(axis=-1))
    assert np.isinf(nearest_distances(x[:, :1])).all()
    torus = mf.Torus(1.5, 2)
    y = torus.project(x)
    images = np.linalg.norm(torus.displacement(y[:, :, None], y[:, None]), axis=-1) + np.diag(np.full(17, np.inf))
    assert_allclose(nearest_distances(y, torus.period), images.min(axis=-1), rtol=1e-12)


def test_adaptive_steps_do_not_depend_on_the_origin_of_a_torus():
    """A close pair across the seam is halved for as the same pair elsewhere."""
    problem = mf.Problem(mf.Torus(1.0, 1), mf.Zero(), mf.Log(), COLD)
    start = np.array([[0.4995], [0.5005], [0.1]])
    runs = [mf.simulate(problem, n_particles=3, dt=0.01, t_end=0.05, initial=problem.domain.project(start + shift),
                        scheme="adaptive") for shift in (0.0, 0.5)]
    assert int(runs[0]["n_substeps"].sum()) > 3 * 5
    assert_array_equal(runs[1]["n_substeps"], runs[0]["n_substeps"])
    apart = problem.domain.displacement(runs[1]["position"].values - 0.5, runs[0]["position"].values)
    assert np.abs(apart).max() < 1e-9


@pytest.mark.parametrize("name", ["hermite", "fekete", "disc"])
def test_flow_never_raises_the_energy(name):
    case = mf.example(name)
    energy = mf.hamiltonian(case.problem, case.run(n_runs=3, t_end=10.0)).values
    assert np.diff(energy, axis=1).max() < 1e-13


def test_flow_refuses_a_collapse_and_a_temperature():
    attract = mf.Problem(mf.Interval(-2, 2), mf.Zero(), mf.Log(-1.0), COLD)
    with pytest.raises(mf.UnstableStepError, match="cannot go on.*collapse"):
        mf.simulate(attract, n_particles=3, dt=0.5, t_end=5.0, scheme="flow", initial=[[-1.0], [0.1], [0.9]])
    with pytest.raises(ValueError, match=r"it needs inverse_temperature=inf and no annealing, got 10.0"):
        mf.simulate(LINE, n_particles=3, dt=0.5, t_end=5.0, scheme="flow")
    with pytest.raises(ValueError, match="needs a finite inverse temperature"):
        mf.simulate(under("flow", LINE), n_particles=3, dt=0.5, t_end=5.0, scheme="metropolis")


def test_metropolis_accepts_all_small_moves_and_stays_inside():
    tiny = mf.simulate(LINE, n_particles=6, dt=1e-9, t_end=2e-8, scheme="metropolis", n_runs=4)
    assert float(tiny["acceptance_fraction"][:, 1:].min()) == 1.0
    bold = mf.simulate(LINE, n_particles=6, dt=1.0, t_end=50.0, scheme="metropolis", n_runs=4)
    assert float(bold["acceptance_fraction"][:, 1:].mean()) < 0.2
    assert LINE.domain.contains(bold["position"].values).all()


@pytest.mark.parametrize("scheme", ["projected", "reflected", "tamed", "adaptive"])
def test_nested_noise_is_the_same_brownian_path(scheme):
    """No force: steps of dt with m = 4 are every fourth state of steps of dt / 4."""
    free = mf.Problem(mf.Box(-50, 50, dim=3), inverse_temperature=2.0)
    arguments = {"n_particles": 5, "n_runs": 2, "t_end": 0.4, "initial": np.zeros((5, 3)), "scheme": scheme, "save_every": 1}
    coarse = mf.simulate(free, dt=0.04, noise_refinement=4, **arguments)["position"].values
    fine = mf.simulate(free, dt=0.01, **arguments)["position"].values
    assert_allclose(coarse, fine[:, ::4], rtol=0, atol=1e-13)
    with pytest.raises(ValueError, match="noise streams have 2"):
        mf.simulate(free, dt=0.04, noise_refinement=2**31, **arguments)


@pytest.mark.parametrize("domain", [mf.Interval(0, 1), mf.Box(-1, 2, dim=3), mf.Ball(1.5, 2), mf.Ball(1.0, 5)])
@pytest.mark.parametrize(("n", "more"), [(5, 9), (50, 100), (100, 200), (300, 301)])
def test_particle_k_is_coupled_at_n_and_at_more(domain, n, more):
    """Synchronous coupling: same start and same noise for the particles that both systems have."""
    few, many = (mf.simulate(mf.Problem(domain), n_particles=size, dt=1e-3, t_end=3e-3, n_runs=2, seed=5)["position"].values
                 for size in (n, more))
    assert_array_equal(many[:, :, :n], few)


def test_uniform_starts_are_uniform_across_blocks():
    x = mf.simulate(mf.Problem(mf.Ball(2.0, 3)), n_particles=20_000, dt=1e-9, t_end=1e-9)["position"].values[0, 0]
    u = (np.linalg.norm(x, axis=1) / 2) ** 3
    assert abs(u.mean() - 0.5) < 5 / math.sqrt(12 * 20_000)
    assert np.abs(x.mean(axis=0)).max() < 5 * math.sqrt(4 / 5 / 20_000)
    assert len(np.unique(x, axis=0)) == 20_000


@pytest.mark.parametrize("kind", ["geometric", "linear"])
def test_annealing_is_in_force_and_on_record(kind):
    cool = mf.Annealing(1.0, 100.0, 0.5, kind)
    assert (cool(0.0), cool(0.5), cool(9.0)) == (1.0, pytest.approx(100.0), pytest.approx(100.0))
    assert cool(0.25) == pytest.approx(10.0 if kind == "geometric" else 50.5)
    free = mf.Problem(mf.Interval(-50, 50), inverse_temperature=7.0)
    run = mf.simulate(free, n_particles=3, dt=0.1, t_end=1.0, annealing=cool, initial=np.zeros((3, 1)))
    assert_allclose(run["inverse_temperature"].values, [cool(k * 0.1) for k in range(11)])
    noise = np.empty((1, 3, 1))
    _rng.normals(_rng.philox_key(0, _rng.NOISE), 0, 4, noise)
    moved = np.diff(run["position"].values, axis=1)[:, 4]
    assert_allclose(moved, math.sqrt(0.2 / cool(0.4)) * noise, rtol=1e-9)
    assert json.loads(run.attrs["config"])["annealing"]["end"] == 100.0
    same = mf.simulate(free, n_particles=3, dt=0.1, t_end=1.0, annealing=lambda t: cool(t), initial=np.zeros((3, 1)))
    assert_array_equal(same["position"].values, run["position"].values)


def test_annealing_is_checked():
    with pytest.raises(ValueError, match="annealing must be an Annealing or a function t -> beta, got 3.0"):
        mf.simulate(LINE, n_particles=3, dt=0.1, t_end=1.0, annealing=3.0)
    with pytest.raises(ValueError, match=r"annealing\(t\) must be positive, got -1.0"):
        mf.simulate(LINE, n_particles=3, dt=0.1, t_end=1.0, annealing=lambda t: -1.0)
    with pytest.raises(ValueError, match="end must be positive and finite, got 0"):
        mf.Annealing(1.0, 0, 1.0)


def test_annealing_finds_the_deep_well():
    """Slow cooling ends near the ground state that a quench from the same start misses."""
    class Tilted(mf.Potential):
        formula = "V = (x^2 - 1)^2 - x / 4"

        def __repr__(self):
            return "Tilted()"

        def value(self, positions):
            return ((positions**2 - 1) ** 2 - positions / 4)[..., 0]

        def gradient(self, positions):
            return 4 * positions * (positions**2 - 1) - 0.25

    problem = mf.Problem(mf.Interval(-3, 3), Tilted(), inverse_temperature=100.0)
    arguments = {"n_particles": 500, "dt": 0.01, "t_end": 60.0, "initial": np.full((500, 1), -1.0), "save_every": 10_000}
    quench = mf.simulate(problem, **arguments)["position"].values[0, -1, :, 0]
    slow = mf.simulate(problem, annealing=mf.Annealing(1.0, 100.0, 60.0), **arguments)["position"].values[0, -1, :, 0]
    assert (quench > 0).mean() < 0.01
    assert (slow > 0).mean() > 0.7


def test_memory_is_said_before_it_is_taken(monkeypatch):
    sentence = (r"10001 saved states of 1 x 1000000 x 2 numbers need 160016000000 bytes and the step 112000000 more, but "
                r"2000000000 bytes of memory are available; take save_every >= 86 \(it is 1\)")
    monkeypatch.setattr(record, "available_bytes", lambda: 2e9)
    box = mf.Problem(mf.Box(0, 1, dim=2))
    with pytest.raises(MemoryError, match=sentence):
        mf.simulate(box, n_particles=10**6, dt=1e-3, t_end=10.0, save_every=1)
    with pytest.raises(MemoryError, match="take fewer particles or runs"):
        mf.simulate(box, n_particles=10**9, dt=1e-3, t_end=10.0, save_every=1)
    monkeypatch.undo()
    assert 1e6 < record.available_bytes() < 1e15


def test_unbounded_domains_still_catch_what_is_not_finite():
    """A diameter of inf must not let inf pass."""
    class Unbounded:
        domain = type("Plane", (), {"diameter": math.inf})()

    plan = record.make_plan(2, 0.1, 1.0, 1, None)
    refuse_unstable(Unbounded(), np.full((1, 2, 1), 1e100), 0, plan)
    for bad in (np.inf, np.nan):
        with pytest.raises(mf.UnstableStepError, match="which is not a finite number"):
            refuse_unstable(Unbounded(), np.array([[[0.0], [bad]]]), 0, plan)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_dataset_of_every_scheme_round_trips(tmp_path, scheme):
    run = mf.simulate(under(scheme, LINE), n_particles=4, dt=1e-3, t_end=5e-3, n_runs=2, scheme=scheme)
    run.to_netcdf(tmp_path / "run.nc")
    assert run.identical(mf.load(tmp_path / "run.nc"))
    assert json.loads(run.attrs["config"])["scheme"] == scheme


def test_examples_are_found_by_name():
    assert len(mf.example_names()) >= 12
    with pytest.raises(ValueError, match="name must be one of 'coulomb-line'"):
        mf.example("nothing")
