"""simulate: the step is Algorithm 1, numbers do not depend on threads or resume points, bad input gets one sentence."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from processes import compiled_and_interpreted

import meanfield as mf
from meanfield import _rng

LOG_GAS = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)
DISC = mf.Problem(mf.Ball(2.0, 2), mf.Quadratic(1.5), (mf.Riesz(1.0, 0.7, 1e-2), mf.QuadraticPair(0.3)), 3.0)


def test_philox_known_answers():
    """Philox4x32-10 against the known answers that come with Random123 (Salmon et al. 2011)."""
    zero, ones = np.uint64(0), np.uint64(0xFFFFFFFF)
    assert [int(v) for v in _rng.philox(*[zero] * 6)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(v) for v in _rng.philox(*[ones] * 6)] == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    counter = [np.uint64(v) for v in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)]
    assert [int(v) for v in _rng.philox(*counter)] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_noise_is_standard_normal_and_independent():
    out = np.empty((4, 50_000, 3))
    _rng.normals(_rng.philox_key(1, _rng.NOISE), 0, 17, out)
    z = out.reshape(-1)
    n = z.size
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)
    flat = out.transpose(0, 2, 1).reshape(12, -1)
    correlation = np.corrcoef(flat)[np.triu_indices(12, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(50_000)


def test_noise_of_a_particle_does_not_depend_on_how_many_there_are():
    small, large = np.empty((2, 10, 2)), np.empty((5, 23, 2))
    key = _rng.philox_key(3, _rng.NOISE)
    _rng.normals(key, 0, 4, small)
    _rng.normals(key, 0, 4, large)
    assert_array_equal(large[:2, :10], small)
    _rng.normals(key, 2, 4, small)
    assert_array_equal(large[2:4, :10], small)


@pytest.mark.parametrize("scheme", ["projected", "reflected"])
def test_one_step_is_algorithm_1(scheme):
    """x <- P(x - dt N grad H + sqrt(2 dt / beta) xi), written out with NumPy."""
    x = DISC.domain.sample((3, 9), 2)
    dt = 0.05
    run = mf.simulate(DISC, n_particles=9, dt=dt, t_end=dt, n_runs=3, initial=x, scheme=scheme, seed=8)
    drift = DISC.potentials[0].gradient(x)
    for g in DISC.interactions:
        drift = drift + g.gradient(x[:, :, None] - x[:, None]).sum(axis=2) / 8
    noise = np.empty(x.shape)
    _rng.normals(_rng.philox_key(8, _rng.NOISE), 0, 0, noise)
    proposal = x - dt * drift + np.sqrt(2 * dt / 3.0) * noise
    restrict = DISC.domain.project if scheme == "projected" else DISC.domain.reflect
    assert_allclose(run["position"].values[:, 1], restrict(proposal), rtol=0, atol=1e-12)
    clipped = (~DISC.domain.contains(proposal)).mean(axis=1)
    assert clipped.max() > 0
    assert_array_equal(run["clipped_fraction"].values[:, 1], clipped)
    assert_allclose(run["max_displacement"].values[:, 1], np.linalg.norm(proposal - x, axis=2).max(axis=1))


def test_a_run_among_others_is_the_run_alone():
    together = mf.simulate(LOG_GAS, n_particles=20, dt=1e-3, t_end=0.05, n_runs=3, seed=4)
    alone = mf.simulate(LOG_GAS, n_particles=20, dt=1e-3, t_end=0.05, n_runs=1, seed=4)
    assert_array_equal(together["position"].values[:1], alone["position"].values)
    assert not np.array_equal(together["position"].values[0], together["position"].values[1])


@pytest.mark.parametrize(("t_end", "dt", "steps"), [(0.94, 0.02, 47), (1.0, 0.1, 10), (2.0, 0.001, 2000), (0.3, 0.1, 3),
                                                    (4.0, 0.1, 40)])
@pytest.mark.parametrize("save_every", [1, 7])
def test_bug_45_number_of_steps_and_last_time(t_end, dt, steps, save_every):
    run = mf.simulate(mf.Problem(mf.Interval(0, 1)), n_particles=1, dt=dt, t_end=t_end, save_every=save_every)
    assert run.sizes["time"] == len([*range(0, steps, save_every), steps])
    assert run["time"].values[-1] == t_end
    with pytest.raises(ValueError, match="whole number of steps"):
        mf.simulate(mf.Problem(mf.Interval(0, 1)), n_particles=1, dt=0.3, t_end=1.0)


def test_bug_01_coincident_particles():
    """The rule: refused at the start under a singular kernel; if they meet later, or are softened, no force, no NaN."""
    box = mf.Box(0, 1, dim=2)
    x = np.array([[0.5, 0.5], [0.5, 0.5], [0.2, 0.2], [0.8, 0.8]])
    for interaction in (mf.Riesz(1.0), mf.Log(), mf.Coulomb(2)):
        for beta in (float("inf"), 200.0):
            with pytest.raises(ValueError, match=r"particles 0 and 1 of run 0 coincide at \[0.5, 0.5\]"):
                mf.simulate(mf.Problem(box, mf.Zero(), interaction, beta), n_particles=4, dt=1e-3, t_end=0.1, initial=x)
        assert mf.hamiltonian(mf.Problem(box, mf.Zero(), interaction), x) == np.inf
    soft = mf.Problem(box, mf.Zero(), mf.Log(softening=1e-2), float("inf"))
    cold = mf.simulate(soft, n_particles=4, dt=1e-3, t_end=0.1, initial=x)["position"].values[0, -1]
    assert np.isfinite(cold).all()
    assert_array_equal(cold[0], cold[1])  # no noise, no direction: they stay together
    warm = mf.simulate(mf.Problem(box, mf.Zero(), mf.Log(softening=1e-2), 200.0), n_particles=4, dt=1e-3, t_end=0.1,
                       initial=x)
    assert np.linalg.norm(np.diff(warm["position"].values[0, -1, :2], axis=0)) > 1e-3
    # two particles projected onto the same corner
    corner = mf.Problem(box, mf.Quadratic(100.0, center=(-5.0, -5.0)), mf.Log(), 1e4)
    run = mf.simulate(corner, n_particles=6, dt=1e-3, t_end=0.2)
    assert np.isfinite(run["position"].values).all()
    assert (run["position"].values[0, -1] == 0).any()
    assert not np.isnan(mf.hamiltonian(corner, run)).any()


@pytest.mark.parametrize("place", [[1.0, 0.5], [1.0, 0.0]], ids=["wall", "corner"])
@pytest.mark.parametrize("interaction", [mf.Riesz(1.0), mf.Log()])
def test_bug_01_coincident_on_a_wall_or_in_a_corner(place, interaction):
    box, x = mf.Box(0, 1, dim=2), np.array([place, place])
    with pytest.raises(ValueError, match="particles 0 and 1 of run 0 coincide"):
        mf.simulate(mf.Problem(box, mf.Zero(), interaction), n_particles=2, dt=1e-4, t_end=1e-4, initial=x)
    soft = mf.Riesz(interaction.s, softening=0.1)
    for beta, apart in ((math.inf, False), (200.0, True)):
        problem = mf.Problem(box, mf.Zero(), soft, beta)
        run = mf.simulate(problem, n_particles=2, dt=1e-4, t_end=1e-2, initial=x, save_every=1)
        path = run["position"].values[0]
        assert np.isfinite(mf.hamiltonian(problem, run)).all()
        assert box.contains(path).all()
        assert (path[5, 0] != path[5, 1]).any() == apart  # with noise, within a few steps
        assert (path[-1, 0] != path[-1, 1]).any() == apart


def test_bug_02_unstable_step_is_an_error_not_a_pile_at_the_walls():
    x = np.linspace(0.02, 0.98, 50)[:, None]
    x[1] = x[0] + 1e-3
    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Riesz(1.0), float("inf"))
    with pytest.raises(mf.UnstableStepError, match=r"at step 0 .* times the diameter .*particles 0 and 1 .* take dt"):
        mf.simulate(problem, n_particles=50, dt=0.1, t_end=1.0, initial=x)
    soft = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Riesz(1.0, softening=1e-3), float("inf"))
    sentence = r"at step 0 .* particle [01] of run 0 by .* times the diameter .* take dt"
    with pytest.raises(mf.UnstableStepError, match=sentence):
        mf.simulate(soft, n_particles=50, dt=0.1, t_end=1.0, initial=x)
    control = mf.simulate(problem, n_particles=50, dt=1e-10, t_end=1e-7, initial=x)
    assert float(control["clipped_fraction"].max()) == 0
    assert (np.diff(control["position"].values[0, -1, :, 0]) > 0).all()


def test_bug_02_what_projection_hides_is_counted():
    """A step as long as the domain is still allowed: that it pins everybody to the walls is in the output."""
    outward = mf.Problem(mf.Interval(0, 1), mf.Quadratic(-15.0, center=0.5), mf.Log(0.01, 0.1), 5.0)
    run = mf.simulate(outward, n_particles=50, dt=0.1, t_end=2.0)
    assert float(run["clipped_fraction"][0, -1]) > 0.5
    assert np.isin(run["position"].values[0, -1], (0.0, 1.0)).mean() > 0.5


def test_unstable_step_error_survives_pickling():
    import pickle

    error = pickle.loads(pickle.dumps(mf.UnstableStepError("m", step=3, time=0.1, run=1, particle=2)))
    assert (error.step, error.time, error.run, error.particle, str(error)) == (3, 0.1, 1, 2, "m")


def test_bug_44_nan_in_a_gradient_is_caught_at_its_step():
    class Broken(mf.Potential):
        formula = "V = nan"

        def value(self, positions):
            return np.zeros(positions.shape[:-1])

        def gradient(self, positions):
            return np.zeros(positions.shape)

        def step_gradient(self, positions, step):
            gradient = np.zeros(positions.shape)
            if step == 5:
                gradient[0, 3] = np.nan
            return gradient

    with pytest.raises(mf.UnstableStepError, match="at step 5 .* particle 3 of run 0 by nan") as caught:
        mf.simulate(mf.Problem(mf.Interval(0, 1), Broken()), n_particles=6, dt=1e-3, t_end=0.1)
    assert (caught.value.step, caught.value.particle) == (5, 3)


GUARDS = """
import sys
import numpy as np
import meanfield as mf
from meanfield.diagnostics.transport import atoms

class Broken(mf.Potential):
    formula = "V = 0, until it breaks"

    def __init__(self, bad, step):
        self.bad, self.step = bad, step

    def value(self, positions):
        return np.zeros(positions.shape[:-1])

    def gradient(self, positions):
        return np.zeros(positions.shape)

    def step_gradient(self, positions, step):
        gradient = np.zeros(positions.shape)
        gradient[1, 3] = self.bad if step == self.step else 0.0
        return gradient

said = []
def caught(call):
    try:
        call()
        said.append("nothing")
    except (ValueError, mf.UnstableStepError) as error:
        said.append(str(error))

line = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log())
small = {"n_particles": 6, "dt": 1e-3, "t_end": 0.01, "n_runs": 2}
for bad in (np.nan, np.inf, -np.inf):
    with np.errstate(invalid="ignore"):
        for scheme in ("projected", "tamed", "adaptive"):
            problem = mf.Problem(mf.Interval(0, 1), Broken(bad, 5), mf.Log(softening=0.1))
            caught(lambda: mf.simulate(problem, scheme=scheme, **small))
    x = np.linspace(0.1, 0.9, 6)[:, None]
    x[2] = bad
    rho = np.ones(8)
    rho[5] = bad
    weights = np.ones(6)
    weights[4] = bad
    caught(lambda: mf.simulate(line, initial=x, **small))
    caught(lambda: mf.hamiltonian(line, x))
    caught(lambda: atoms(x[:, 0]))
    caught(lambda: mf.solve(line, mf.Grid(8), t_end=0.1, initial=rho))
    caught(lambda: mf.free_energy(line, rho))
    caught(lambda: mf.density_histogram(np.zeros((6, 1)), [0.0, 1.0], weights=weights))
np.savez(sys.argv[1], said=np.array(said))
"""


def test_bug_44_guards_trip_with_and_without_the_compiler(tmp_path):
    """NaN and inf in one gradient, position, weight or density cell: the same sentence, with the index and the step."""
    (_, compiled, interpreted), = compiled_and_interpreted(GUARDS, tmp_path)
    assert_array_equal(compiled, interpreted)
    for said in compiled.reshape(3, -1):
        assert all("at step 5 " in text and "particle 3 of run 1" in text for text in said[:3])
        indices = ["(2, 0)", "(2, 0)", "(2,)", "(5,)", "(5,)", "(4,)"]
        assert [index for index, text in zip(indices, said[3:], strict=True) if index in text] == indices


def test_bug_44_no_kernel_may_assume_that_numbers_are_finite():
    """Flags nnan and ninf would let the compiler delete the guards."""
    from meanfield import _numba
    from meanfield.kernels import flux, nearest, pairs, transport

    assert _numba._OPTIONS["fastmath"] == {"reassoc", "contract", "arcp", "nsz"}
    kernels = [f for module in (flux, nearest, pairs, transport, _rng) for f in vars(module).values()
               if hasattr(f, "targetoptions")]
    assert len(kernels) > 10
    assert all(f.targetoptions["fastmath"] == _numba._OPTIONS["fastmath"] for f in kernels)


def test_core_radius_bounds_the_step_of_the_closest_pair():
    """Where Euler would throw a pair across the domain, the pair force is linear instead (docs/decisions/0002)."""
    gap = 1e-9
    x = np.array([[0.5], [0.5 + gap]])
    run = mf.simulate(mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), float("inf")), n_particles=2, dt=1e-3, t_end=1e-3,
                      initial=x)
    core = float(run.attrs["core_radius"][0])
    assert core == pytest.approx(np.sqrt(2e-3))
    moved = run["position"].values[0, 1, 1, 0] - x[1, 0]
    assert moved == pytest.approx(1e-3 * gap / core**2, rel=1e-6)
    # outside the core the step is plain Euler
    wide = np.array([[0.3], [0.3 + 1.01 * core]])
    run = mf.simulate(mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), float("inf")), n_particles=2, dt=1e-3, t_end=1e-3,
                      initial=wide)
    assert run["position"].values[0, 1, 1, 0] - wide[1, 0] == pytest.approx(1e-3 / (1.01 * core), rel=1e-9)


@pytest.mark.parametrize(("change", "sentence"), [
    ({"dt": -0.1}, "dt must be positive and finite, got -0.1"),
    ({"dt": 0.0}, "dt must be positive and finite, got 0.0"),
    ({"dt": float("nan")}, "dt must be positive and finite, got nan"),
    ({"dt": "fast"}, "dt must be positive and finite, got 'fast'"),
    ({"t_end": float("inf")}, "t_end must be positive and finite, got inf"),
    ({"n_particles": 0}, "n_particles must be a whole number of at least 1, got 0"),
    ({"n_particles": 2.5}, "n_particles must be a whole number of at least 1, got 2.5"),
    ({"n_runs": True}, "n_runs must be a whole number of at least 1, got True"),
    ({"scheme": "euler"}, "scheme must be one of 'projected', 'reflected', 'tamed', 'adaptive', 'flow', 'metropolis', "
     "got 'euler'"),
    ({"seed": -1}, "seed must be a non-negative integer, got -1"),
    ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
    ({"save_every": 0.25}, "save_every must be a whole number of at least 1, got 0.25"),
    ({"initial": "gauss"}, "initial must be one of 'uniform', got 'gauss'"),
    ({"initial": np.zeros((100, 3))}, r"initial must have shape \(..., particle, component=2\), got \(100, 3\)"),
    ({"initial": np.zeros((7, 2))}, r"initial must have shape \(particle, component\) = \(4, 2\) or "),
    ({"initial": np.full((4, 2), 3.0)}, r"initial positions must lie in Ball.* got \[3.0, 3.0\] for particle 0 of run 0"),
    ({"initial": [[0, 0], [0, 1], [np.nan, 0], [1, 0]]}, r"initial must be finite, got nan at index \(2, 0\)"),
    ({"initial": [["a"]]}, "initial must be an array of real numbers, got list"),
])
def test_bad_input_is_one_sentence(change, sentence):
    arguments = {"n_particles": 4, "dt": 0.01, "t_end": 0.1, **change}
    with pytest.raises(ValueError, match=sentence) as caught:
        mf.simulate(DISC, **arguments)
    assert "\n" not in str(caught.value)


def test_dataset_explains_itself_and_round_trips(tmp_path):
    run = mf.simulate(DISC, n_particles=4, dt=0.01, t_end=0.1, n_runs=2)
    for variable in run.variables.values():
        assert variable.attrs["units"]
        assert variable.attrs["long_name"].endswith(".")
    config = json.loads(run.attrs["config"])
    assert config["dt"] == 0.01
    assert config["problem"]["interaction"][0] == {"kind": "Riesz", "s": 1.0, "strength": 0.7, "softening": 0.01,
                                                      "normalized": False}
    run.to_netcdf(tmp_path / "run.nc")
    loaded = mf.load(tmp_path / "run.nc")
    assert run.identical(loaded)
    loaded.to_netcdf(tmp_path / "again.nc")
    assert run.identical(mf.load(tmp_path / "again.nc"))


def test_load_refuses_what_is_not_ours(tmp_path):
    with pytest.raises(FileNotFoundError, match="no Dataset at"):
        mf.load(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(ValueError, match="not a readable netCDF-4 file"):
        mf.load(tmp_path / "text.nc")


def test_bug_56_global_random_state_is_untouched():
    import random

    before = np.random.get_state(), random.getstate()
    mf.simulate(DISC, n_particles=4, dt=0.01, t_end=0.1)
    after = np.random.get_state(), random.getstate()
    assert before[1] == after[1]
    assert_array_equal(before[0][1], after[0][1])


def test_bug_17_compiled_and_interpreted_agree(tmp_path):
    """The same source with NUMBA_DISABLE_JIT=1: equal to rounding."""
    program = ("import meanfield as mf, numpy as np, sys; p = mf.Problem(mf.Ball(2.0, 2), mf.Quadratic(1.5), "
               "(mf.Riesz(1.0, 0.7, 1e-2), mf.Log(0.2), mf.QuadraticPair(0.3)), 3.0); "
               "r = mf.simulate(p, n_particles=7, dt=1e-3, t_end=0.005, n_runs=2, seed=1); "
               "q = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.); f = mf.solve(q, mf.Grid(11), t_end=0.1, "
               "initial=lambda x: 2 * x); "
               "np.savez(sys.argv[1], x=r['position'].values, h=mf.hamiltonian(p, r).values, rho=f['density'].values, "
               "w=mf.wasserstein(f.isel(time=0), f, order=3).values)")
    for name, compiled, interpreted in compiled_and_interpreted(program, tmp_path):
        assert_allclose(interpreted, compiled, rtol=1e-12, atol=1e-13, err_msg=name)
