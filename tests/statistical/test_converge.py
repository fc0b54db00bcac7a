"""converge: the exact distance of independent points, rates with intervals, coupling, the bias of a step, resuming."""

from __future__ import annotations

import numpy as np
import pytest

import meanfield as mf

LOG_GAS = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), 5.0)
FREE = mf.Problem(mf.Interval(0, 1))
SETTINGS = {"grid": mf.Grid(200), "dt": 2e-3, "t_end": 0.1, "times": [0.0, 0.02, 0.1], "seed": 3}


def test_independent_points_are_at_their_exact_distance(truths):
    found = mf.converge(FREE, [10, 100, 1000], 100, **SETTINGS)
    for n in (10, 100, 1000):
        exact = truths["wasserstein1_uniform"]["values"][f"EW1_N{n}"]
        z = (found["error"].sel(n_particles=n) - exact) / found["error_stderr"].sel(n_particles=n)
        assert np.abs(z).max() < 5
    assert (np.abs(found["rate"] + 0.5) < 4 * found["rate_stderr"] + 0.005).all()  # E W_1 sqrt(N) still grows by 1 % here
    assert found["sup_error"].dims == ("n_particles",)
    assert (found["sup_error"] >= found["error"].max("time")).all()


def test_an_interacting_gas_has_the_same_rate():
    found = mf.converge(LOG_GAS, [50, 200, 800], [60, 30, 15], **SETTINGS)
    last = found.isel(time=-1)
    assert abs(float(last["rate"]) + 0.5) < 4 * float(last["rate_stderr"])
    assert float(last["rate_stderr"]) < 0.1
    assert found["n_runs"].values.tolist() == [60, 30, 15]


def test_coupled_sizes_share_start_and_noise():
    """Without interaction particle k is the same at every N; with it, the two part at the rate of the mean field."""
    free = mf.converge(FREE, [16, 32], 3, coupled=True, **SETTINGS)
    assert (free["coupling_error"].values[0] == 0).all()
    assert np.isnan(free["coupling_error"].values[1]).all()
    soft = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.GaussianPair(2.0, 0.3), 5.0)
    found = mf.converge(soft, [25, 100, 400, 1600], 6, coupled=True, **SETTINGS)["coupling_error"]
    assert (found.isel(time=0, n_particles=slice(3)) == 0).all()
    rate = mf.fit_rate(np.array([25, 100, 400]), found.values[:3, -1])
    assert abs(rate.slope + 0.5) < max(4 * rate.stderr, 0.1)


def test_the_bias_of_projection_is_separated_from_the_number_of_particles():
    settings = {**SETTINGS, "dt": 1e-2, "times": [0.1]}
    problem = mf.Problem(mf.Interval(0, 1), inverse_temperature=2.0)
    found = mf.converge(problem, [200, 3200], 12, scheme="projected", halve_step=True, **settings)
    bias, stderr = found["step_bias"].values[:, 0], found["step_bias_stderr"].values[:, 0]
    assert bias[1] > 5 * stderr[1]  # an atom at the walls that more particles do not remove
    reflected = mf.converge(problem, [200, 3200], 12, scheme="reflected", halve_step=True, **settings)
    assert abs(reflected["step_bias"].values[1, 0]) < 0.2 * bias[1]


def test_a_folder_is_gone_on_from_and_guarded(tmp_path, monkeypatch):
    arguments = {**SETTINGS, "n_particles": [10, 20, 40], "n_runs": 4, "coupled": True}
    whole = mf.converge(LOG_GAS, **arguments)
    mf.converge(LOG_GAS, **arguments, folder=tmp_path / "a")
    (tmp_path / "a" / "40.npz").unlink()
    from meanfield.diagnostics import convergence

    simulate, sizes = convergence.simulate, []
    monkeypatch.setattr(convergence, "simulate", lambda p, **k: sizes.append(k["n_particles"]) or simulate(p, **k))
    again = mf.converge(LOG_GAS, **arguments, folder=tmp_path / "a")
    assert again.drop_attrs().equals(whole.drop_attrs())
    assert sizes == [20, 40]  # 20 once more, for the coupling
    with pytest.raises(ValueError, match=r"holds results with seed=3, this call has 4; name another folder"):
        mf.converge(LOG_GAS, **{**arguments, "seed": 4}, folder=tmp_path / "a")


@pytest.mark.parametrize(("change", "sentence"), [
    ({"n_particles": [10]}, "must be two or more increasing numbers, got"),
    ({"n_particles": [20, 10]}, "must be two or more increasing numbers"),
    ({"n_runs": [2, 3, 4]}, "one number or one for each of 2 sizes, got 3"),
    ({"n_runs": 1}, "n_runs must be"),
    ({"n_runs": [2, 3], "coupled": True}, "coupled sizes need the same n_runs"),
    ({"times": [0.0, 0.0031]}, "times must be increasing whole steps of dt=0.002"),
    ({"order": 0.5}, "order must be at least 1"),
])
def test_bad_input_is_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        mf.converge(FREE, **{**SETTINGS, "n_particles": [10, 20], "n_runs": 2, **change})
