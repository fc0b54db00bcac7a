"""The standing figures: every case has a density to start from, and what is measured is what the diagnostics say."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from scipy.special import iv

import meanfield as mf
from meanfield.experiments import figures
from meanfield.experiments.gallery import CASES, measure, order_parameter
from meanfield.mesh import mesh_of


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_a_start_on_its_grid(name):
    case = CASES[name]
    mesh = mesh_of(case.problem, case.grid)
    rho = mesh.averages(case.initial)
    assert rho.shape == mesh.shape
    assert (rho >= 0).all()
    assert mesh.mass(rho) > 0
    steps = np.array(case.times) / case.dt
    assert np.abs(steps - np.rint(steps)).max() < 1e-6


def test_particles_of_a_case_are_near_the_floor():
    found = measure(CASES["interval"], 400, n_samples=10, seed=1)
    assert found.distance.shape == found.floor.shape == (4,)
    assert (found.floor > 0).all()
    assert np.abs(found.excess).max() < 6
    assert np.array_equal(found.excess, (found.distance - found.floor) / found.spread)


def test_the_order_parameter():
    points = np.array([0.0, 0.0, np.pi, np.pi / 2]).reshape(1, 1, 4, 1)
    run = xr.Dataset({"position": (("run", "time", "particle", "component"), points)})
    assert float(order_parameter(run).squeeze()) == pytest.approx(np.hypot(1, 1) / 4)
    assert figures._exact_order(1.9) == 0
    r = figures._exact_order(3.0)
    assert iv(1, 3 * r) / iv(0, 3 * r) == pytest.approx(r, abs=1e-10)


def test_figures_are_named_and_carry_their_numbers(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no figure is called 'nothing'; there are log-gas-over-time"):
        figures.make_figures(tmp_path, ["nothing"])
    monkeypatch.setitem(figures.FIGURES, "empty", lambda quick, seed, threads, progress: (Figure(), {"seen": [quick, seed]}))
    (path,) = figures.make_figures(tmp_path / "new", ["empty"], quick=True, seed=3)
    record = json.loads(path.with_suffix(".json").read_text())
    assert record["command"] == "meanfield figures empty --quick --seed 3"
    assert record["seen"] == [True, 3]
    assert record["versions"]["meanfield"] == mf.__version__
    assert path.with_suffix(".svg").exists()
