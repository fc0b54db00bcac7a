"""A number is a function of problem, arguments and seed: not of threads, company, or where a run was stopped and resumed."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose, assert_array_equal
from processes import compiled_and_interpreted, run_program

import meanfield as mf
from meanfield import _rng
from meanfield.particles import SCHEMES

LINE = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 10.0)
TRAP = mf.Problem(mf.Box(-3, 3, dim=2), mf.Quadratic(1.5), (mf.Log(0.8), mf.QuadraticPair(0.3)), 4.0)
DISC = mf.Problem(mf.Ball(2.0, 2), mf.Quadratic(1.5), (mf.Riesz(1.0, 0.7, 1e-2), mf.QuadraticPair(0.3)), 3.0)


def under(scheme, problem):
    """The problem, at a temperature that the scheme takes."""
    beta = math.inf if scheme == "flow" else problem.inverse_temperature
    return mf.Problem(problem.domain, problem.potential, problem.interaction, beta)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("split", "save_every"), [(1, 7), (13, 1), (28, 7), (39, 7)])
def test_bug_04_resumed_run_is_the_straight_run_under_every_scheme(tmp_path, scheme, split, save_every):
    """Stopped anywhere, between saves and at a last step that is no multiple of them; and called again when all is done."""
    arguments = {"n_particles": 6, "dt": 1e-3, "n_runs": 2, "save_every": save_every, "seed": 11, "scheme": scheme}
    problem, file = under(scheme, LINE), tmp_path / "state.npz"
    straight = mf.simulate(problem, t_end=0.04, **arguments)
    mf.simulate(problem, t_end=split * 1e-3, checkpoint=file, **arguments)
    assert straight.identical(mf.simulate(problem, t_end=0.04, checkpoint=file, **arguments))
    assert straight.identical(mf.simulate(problem, t_end=0.04, checkpoint=file, **arguments))


PART = """
import sys
import meanfield as mf
from test_reproducibility import LINE, under
scheme, steps, save_every, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
mf.simulate(under(scheme, LINE), n_particles=200, dt=1e-5, t_end=steps * 1e-5, save_every=save_every, seed=11, scheme=scheme,
            checkpoint=file)
"""


@pytest.mark.parametrize("scheme", [
    "projected", *(pytest.param(s, marks=pytest.mark.full) for s in ("reflected", "tamed", "metropolis"))])
def test_bug_04_another_process_goes_on(tmp_path, scheme):
    """200 particles, 1000 steps, split by the end of a process: saved every 10 steps, or every step."""
    arguments = {"n_particles": 200, "dt": 1e-5, "t_end": 1e-2, "seed": 11, "scheme": scheme}
    problem = under(scheme, LINE)
    straight = {every: mf.simulate(problem, save_every=every, **arguments) for every in (1, 10)}
    cases = [(137, 10)] if scheme == "projected" else itertools.product((1, 137, 500, 999), (1, 10))
    for split, every in cases:
        file = tmp_path / f"{split}-{every}.npz"
        run_program(PART, scheme, split, every, file)
        assert straight[every].identical(mf.simulate(problem, save_every=every, checkpoint=file, **arguments))


def test_bug_04_annealed_and_refined_runs_resume(tmp_path):
    cool = mf.Annealing(1.0, 50.0, 0.03)
    arguments = {"n_particles": 8, "dt": 1e-3, "annealing": cool, "noise_refinement": 3, "save_every": 7}
    straight = mf.simulate(LINE, t_end=0.04, **arguments)
    mf.simulate(LINE, t_end=0.017, checkpoint=tmp_path / "s.npz", **arguments)
    assert straight.identical(mf.simulate(LINE, t_end=0.04, checkpoint=tmp_path / "s.npz", **arguments))
    with pytest.raises(ValueError, match="made with annealing="):
        mf.simulate(LINE, t_end=0.04, checkpoint=tmp_path / "s.npz", **{**arguments, "annealing": None})


def test_bug_04_a_checkpoint_under_other_settings_is_refused_with_the_name(tmp_path):
    file = tmp_path / "state.npz"
    arguments = {"n_particles": 5, "dt": 1e-3, "t_end": 0.01, "checkpoint": file}
    mf.simulate(LINE, seed=1, **arguments)
    with np.load(file) as stored:
        assert int(stored["schema"]) == 1
        assert json.loads(str(stored["settings"]))["seed"] == 1
        assert json.loads(str(stored["versions"]))["numpy"] == np.__version__
    with pytest.raises(ValueError, match="made with seed=1, this call has 2"):
        mf.simulate(LINE, seed=2, **arguments)
    with pytest.raises(ValueError, match="made with save_every=1, this call has 3"):
        mf.simulate(LINE, seed=1, save_every=3, **arguments)
    with pytest.raises(ValueError, match="made with problem="):
        mf.simulate(DISC, seed=1, **arguments)
    with pytest.raises(ValueError, match="is at step 10, beyond this call's 5"):
        mf.simulate(LINE, seed=1, **{**arguments, "t_end": 0.005})


def write_npy(file):
    with file.open("wb") as opened:
        np.save(opened, np.zeros(3))


def write_npz(**arrays):
    return lambda file: np.savez(file.open("wb"), **arrays)


@pytest.mark.parametrize("write", [
    write_npy, write_npz(x=np.zeros(3)), write_npz(schema=np.zeros(3), step=1, settings="{}"),
    write_npz(schema=1, step=1, settings="nothing"), write_npz(schema=1, step=1, settings="[1]"),
    lambda file: file.write_bytes(b""), lambda file: file.write_text("hello"),
    lambda file: (mf.simulate(LINE, n_particles=5, dt=1e-3, t_end=0.01, checkpoint=file),
                  file.write_bytes(file.read_bytes()[:100]))])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_what_is_no_checkpoint_is_said_in_one_sentence(tmp_path, write):
    file = tmp_path / "state.npz"
    write(file)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"state.npz is not a readable checkpoint \(\w+\); delete it to start anew"):
        mf.simulate(LINE, n_particles=5, dt=1e-3, t_end=0.01, checkpoint=file)
    assert file.read_bytes() == before


def test_a_folder_is_no_checkpoint(tmp_path):
    for place in (tmp_path, tmp_path / "none" / "state.npz"):
        with pytest.raises(ValueError, match="checkpoint must be a file in a folder that can be written, got "):
            mf.simulate(LINE, n_particles=5, dt=1e-3, t_end=0.01, checkpoint=place)


def test_a_run_goes_on_with_what_the_call_leaves_open(tmp_path):
    """The checkpoint's ``save_every``, whose default would depend on ``t_end``, and its seed."""
    file, arguments = tmp_path / "state.npz", {"n_particles": 5, "dt": 1e-3, "n_runs": 2}
    first = mf.simulate(LINE, t_end=0.25, checkpoint=file, seed=None, **arguments)
    longer = mf.simulate(LINE, t_end=0.6, checkpoint=file, seed=None, **arguments)
    seed = json.loads(first.attrs["config"])["seed"]
    assert longer.identical(mf.simulate(LINE, t_end=0.6, save_every=3, seed=seed, **arguments))
    assert_array_equal(longer["position"].values[:, :84], first["position"].values[:, :84])


def test_interrupted_run_keeps_its_last_state(tmp_path):
    """A potential that fails at step 7 leaves a checkpoint from which the run goes on to the right numbers."""
    file = tmp_path / "state.npz"
    arguments = {"n_particles": 5, "dt": 1e-3, "t_end": 0.02, "save_every": 4}

    class Failing(mf.Potential):
        formula = "V = 0, until it fails"
        broken = True

        def __repr__(self):
            return "Failing()"

        def value(self, positions):
            return np.zeros(positions.shape[:-1])

        def gradient(self, positions):
            return np.zeros(positions.shape)

        def step_gradient(self, positions, step):
            if step == 7 and Failing.broken:
                raise KeyboardInterrupt
            return self.gradient(positions)

    problem = mf.Problem(mf.Interval(0, 1), Failing(), mf.Log(), 1.0)
    with pytest.raises(KeyboardInterrupt):
        mf.simulate(problem, checkpoint=file, **arguments)
    Failing.broken = False
    assert mf.simulate(problem, checkpoint=file, **arguments).identical(mf.simulate(problem, **arguments))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bug_05_same_bits_for_any_company_and_saves(scheme):
    """Saving every step or not; a run among others or alone; in pieces that threads share or not."""
    problem = under(scheme, TRAP)
    arguments = {"n_particles": 230, "dt": 1e-4, "t_end": 4e-4, "scheme": scheme, "seed": 3}
    runs = [mf.simulate(problem, n_runs=4, threads=threads, **arguments) for threads in (1, 2)]
    assert runs[0].identical(runs[1])
    sparse = mf.simulate(problem, n_runs=4, save_every=3, **arguments)
    assert_array_equal(sparse["position"].values, runs[0]["position"].values[:, [0, 3, 4]])
    alone = mf.simulate(problem, n_runs=1, **arguments)
    assert_array_equal(alone["position"].values, runs[0]["position"].values[:1])


THREADS = """
import hashlib, sys
import numba
import meanfield as mf
from test_reproducibility import DISC, LINE, TRAP, SCHEMES, under
n, runs, steps, *counts = map(int, sys.argv[1:])
found = set()
for threads in counts:
    numba.set_num_threads(threads)
    for _ in range(2):
        numbers = hashlib.sha256()
        for problem, scheme in {cases}:
            run = mf.simulate(under(scheme, problem), n_particles=n, dt=1e-6, t_end=steps * 1e-6, n_runs=runs, scheme=scheme,
                              save_every=steps, seed=7, threads=threads)
            numbers.update(run["position"].values.tobytes() + mf.hamiltonian(problem, run).values.tobytes())
        flow = mf.solve(LINE, mf.Grid(64), t_end=0.1, initial=lambda x: 2 * x)
        numbers.update(flow["density"].values.tobytes() + flow["free_energy"].values.tobytes())
        numbers.update(mf.wasserstein(flow.isel(time=0), flow, order=2).values.tobytes())
        found.add(numbers.hexdigest())
print(*found)
"""


def test_bug_05_same_bits_for_any_number_of_threads():
    """1, 2, 3 and 8 threads, twice each; and the only thread of another process."""
    program = THREADS.format(cases="[(TRAP, scheme) for scheme in SCHEMES] + [(DISC, 'projected'), (LINE, 'reflected')]")
    many = run_program(program, 260, 3, 3, 1, 2, 3, 8, NUMBA_NUM_THREADS="8").split()
    assert len(many) == 1
    assert run_program(program, 260, 3, 3, 1, NUMBA_NUM_THREADS="1").split() == many


@pytest.mark.full
def test_bug_05_same_bits_of_ten_thousand_particles():
    program = THREADS.format(cases="[(TRAP, 'projected'), (DISC, 'projected')]")
    assert len(run_program(program, 10_000, 1, 50, 1, 2, 3, 8, NUMBA_NUM_THREADS="8").split()) == 1


@pytest.mark.full
def test_bug_05_the_noise_of_ten_thousand_particles_needs_no_compiler(tmp_path):
    program = ("import sys, numpy as np, meanfield as mf\n"
               "run = mf.simulate(mf.Problem(mf.Box(-1, 1, dim=2)), n_particles=10_000, dt=1e-2, t_end=0.05, seed=7)\n"
               "np.savez(sys.argv[1], x=run['position'].values)")
    for _, compiled, interpreted in compiled_and_interpreted(program, tmp_path):
        assert_allclose(interpreted, compiled, rtol=0, atol=1e-12)


def correlation(a, b):
    return np.corrcoef(np.ravel(a), np.ravel(b))[0, 1]


FREE = mf.Problem(mf.Interval(-100, 100))
WALK = {"n_particles": 20, "dt": 1e-2, "t_end": 5.0, "save_every": 1}


def increments(run):
    return np.diff(run["position"].values, axis=1)


@pytest.mark.parametrize("again", ["array", "DataArray", "file"])
def test_bug_13_a_new_run_from_the_end_of_one_with_the_same_seed_is_warned_about(tmp_path, again):
    first = mf.simulate(FREE, seed=5, **WALK)
    if again == "file":
        first.to_netcdf(tmp_path / "run.nc")
        _rng._ends.clear()  # as in another process
        first = mf.load(tmp_path / "run.nc")
    end = first["position"].isel(time=-1)
    end = end.values if again == "array" else end
    with pytest.warns(UserWarning, match="initial is where run 0 of an earlier call with seed=5 ended.* same noise"):
        replay = mf.simulate(FREE, initial=end, seed=5, **WALK)
    assert correlation(increments(first), increments(replay)) > 0.999  # the warning is right
    fresh = mf.simulate(FREE, initial=end, seed=6, **WALK)
    assert abs(correlation(increments(first), increments(fresh))) < 4 / np.sqrt(500 * 20)


def test_bug_13_parts_of_a_dataset_are_known_by_their_labels(tmp_path):
    run = mf.simulate(FREE, n_runs=3, seed=5, **WALK)
    parts = {"run": run.isel(run=[2]), "last": run.isel(time=-1), "one": run.isel(run=0), "none": run.isel(time=[])}
    for name, part in parts.items():
        _rng._ends.clear()
        part.to_netcdf(tmp_path / f"{name}.nc")
        mf.load(tmp_path / f"{name}.nc")
        assert {run for _, run, _ in _rng._ends} == ({2} if name == "run" else set())


def test_bug_13_no_warning_where_no_noise_is_replayed():
    first = mf.simulate(FREE, n_runs=2, seed=5, **WALK)
    end = first["position"].values[:, -1]
    mf.simulate(FREE, n_runs=2, seed=5, **WALK)  # the same call once more
    mf.simulate(FREE, n_runs=2, seed=5, initial=end[::-1], **WALK)  # the noise of run 0 led to the start of run 1
    cold = mf.Problem(FREE.domain, mf.Quadratic(), inverse_temperature=math.inf)
    rest = mf.simulate(cold, initial=end, n_runs=2, seed=5, **WALK)["position"].values[:, -1]
    mf.simulate(FREE, initial=rest, n_runs=2, seed=5, **WALK)
    still = mf.Problem(mf.Interval(0, 1), mf.Quadratic(1e4, center=9.0))
    for _ in range(2):  # ends where it started
        mf.simulate(still, n_particles=2, dt=1e-5, t_end=1e-5, initial=np.ones((2, 1)), seed=5)


def test_bug_13_no_seed_is_a_fresh_one_on_record():
    one, two = (mf.simulate(FREE, seed=None, **WALK) for _ in range(2))
    assert abs(correlation(increments(one), increments(two))) < 4 / np.sqrt(500 * 20)
    seed = json.loads(one.attrs["config"])["seed"]
    assert one.identical(mf.simulate(FREE, seed=seed, **WALK))


def test_bug_13_runs_of_one_call_are_uncorrelated():
    steps = increments(mf.simulate(FREE, n_runs=8, seed=5, **WALK)).reshape(8, -1)
    found = np.corrcoef(steps)[np.triu_indices(8, 1)]
    assert np.abs(found).max() < 4 / np.sqrt(500 * 20)


def test_a_labelled_start_is_read_by_the_names_of_its_dims():
    start = mf.simulate(DISC, n_particles=2, dt=0.01, t_end=0.1, n_runs=2)["position"].isel(time=-1)
    arguments = {"n_particles": 2, "dt": 0.01, "t_end": 0.1, "n_runs": 2, "seed": 1}
    plain = mf.simulate(DISC, initial=start.values, **arguments)
    for dims in itertools.permutations(start.dims):
        assert mf.simulate(DISC, initial=start.transpose(*dims), **arguments).identical(plain)
    one = start.isel(run=0, drop=True)
    assert_array_equal(mf.simulate(DISC, initial=one.T, **arguments)["position"][1, 0], one)
    unnamed = xr.DataArray(start.values)
    assert mf.simulate(DISC, initial=unnamed, **arguments).identical(plain)
    with pytest.raises(ValueError, match=r"initial must be over \(particle, component\) or .*got \('time', 'particle', "):
        mf.simulate(DISC, initial=start.drop_vars("time").rename(run="time"), **arguments)
