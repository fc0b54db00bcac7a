"""Figures: what is drawn is what was given, the style stays in the figure, the bytes are reproducible."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from meanfield import plots
from meanfield.diagnostics.rates import Rate
from meanfield.plots.style import COLOURS

RNG = np.random.default_rng(0)
CELLS = 20
X = (np.arange(CELLS) + 0.5) / CELLS
TIME = np.linspace(0, 1, 6)
FLOW = xr.Dataset({"density": (("time", "x"), np.ones((6, CELLS)) + 0.1 * np.cos(np.pi * X) * TIME[:, None]),
                   "free_energy": ("time", 1.0 + np.exp(-5 * TIME)), "dissipation": ("time", 5 * np.exp(-5 * TIME))},
                  {"time": TIME, "x": X})
# particles on both walls, where a half-open bin would lose them
POSITION = np.concatenate([RNG.random((3, 6, 8, 1)), np.zeros((3, 6, 1, 1)), np.ones((3, 6, 1, 1))], axis=2)
RUN = xr.Dataset({"position": (("run", "time", "particle", "component"), POSITION)}, {"time": TIME})
PLANE = xr.Dataset({"density": (("time", "x", "y"), 1.0 + RNG.random((6, CELLS, CELLS)))}, {"time": TIME, "x": X, "y": X})
N = np.array([100, 400, 1600])
RATE = xr.Dataset({"rate": ("value", [0.4, 0.0, 0.5, np.inf])}, {"value": [-1.0, 0.0, 1.0, 2.0]})
POINTS = xr.Dataset({"rate": ("value", [0.41, 0.52]), "rate_stderr": ("value", [0.01, 0.02])}, {"value": [-1.0, 1.0]},
                    {"n_particles": 10})


def distance(low: float = 0.01) -> xr.DataArray:
    return xr.DataArray(low + RNG.random((4, 6)), dims=("run", "time"), coords={"time": TIME}, attrs={"order": 2.0})


def draw(ax, name: str) -> None:
    {
        "density_with_particles": lambda: plots.density_with_particles(RUN, FLOW, [0.5], ax),
        "spacetime": lambda: plots.spacetime(FLOW, ax, run=RUN),
        "density_lines": lambda: plots.density_lines(FLOW, [0.0, 1.0], ax),
        "density_image": lambda: plots.density_image(PLANE, ax, time=0.4),
        "convergence": lambda: plots.convergence(N, [0.02, 0.01, 0.005], [0.001] * 3, Rate(-0.5, 0.01, -1.6), ax),
        "distance_over_time": lambda: plots.distance_over_time({"a": distance(), "b": distance()}, ax),
        "free_energy_over_time": lambda: plots.free_energy_over_time(FLOW, ax, 1.0, dissipation=True),
        "refinement": lambda: plots.refinement([10, 20, 40], [1.01, 1.0025, 1.000625], 1.0, ax),
        "curve_with_points": lambda: plots.curve_with_points(TIME, TIME, TIME, TIME, 0.1 * TIME, ax, exact=TIME),
        "rate": lambda: plots.rate(ax, RATE, [POINTS, POINTS.assign_attrs(n_particles=20)], exact=([0.0, 1.0], [1.0, 0.0])),
        "learning_curve": lambda: plots.learning_curve([{"epoch": 1.0, "loss": 0.6, "accuracy": 0.7}], ax),
        "reliability": lambda: plots.reliability([0, 1, 1, 0], [0.1, 0.9, 1.0, 0.0], ax),
        "bars": lambda: plots.bars(["a long name", "b"], [0.7, 0.8], [0.6, 0.75], [0.75, 0.85], ax, baseline=0.5),
    }[name]()


FUNCTIONS = [name for name in plots.__all__ if name not in ("save", "movie")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_figure_is_labelled_saves_and_leaves_global_settings_alone(name, tmp_path):
    before = dict(mpl.rcParams)
    figure = Figure(figsize=(4, 3))
    ax = figure.subplots()
    draw(ax, name)
    plots.save(figure, tmp_path, name, "meanfield test")
    assert dict(mpl.rcParams) == before
    if name != "bars":
        assert ax.get_xlabel()
        assert ax.get_ylabel()
    # nothing is cut off: the tight box of all artists lies in the figure
    tight, full = figure.get_tightbbox(), figure.bbox_inches
    assert tight.x0 >= -0.01
    assert tight.y0 >= -0.01
    assert tight.x1 <= full.x1 + 0.01
    assert tight.y1 <= full.y1 + 0.01


@pytest.mark.parametrize("name", ["density_with_particles", "spacetime", "convergence"])
def test_saved_bytes_are_reproducible_and_name_their_command(name, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        figure = Figure(figsize=(4, 3))
        draw(figure.subplots(), name)
        plots.save(figure, tmp_path / folder, "stem", "meanfield reproduce --quick")
    for suffix in ("png", "svg"):
        a, b = ((tmp_path / folder / f"stem.{suffix}").read_bytes() for folder in "ab")
        assert a == b
        assert b"made by: meanfield reproduce --quick" in a
    svg = (tmp_path / "a" / "stem.svg").read_text()
    assert "<dc:date>" not in svg
    assert "<text" in svg  # text stays text


def test_every_particle_is_in_the_histogram_the_walls_included():
    ax = Figure().subplots()
    plots.density_with_particles(RUN, FLOW, [0.4], ax, bins=10)
    values, edges, _ = ax.patches[0].get_data()
    assert np.sum(values * np.diff(edges)) == pytest.approx(1.0, abs=1e-12)
    assert values[-1] * 30 * 0.1 >= 3  # one of each run is on the right wall
    with pytest.raises(ValueError, match="must lie in the density's domain"):
        plots.density_with_particles(RUN + 0.5, FLOW, [0.4], ax)
    with pytest.raises(ValueError, match="near a saved time, got 2"):
        plots.density_with_particles(RUN, FLOW, [2.0], ax)
    with pytest.raises(ValueError, match="as many as times"):
        plots.density_with_particles(RUN, FLOW, [0.2, 0.4], ax)


def test_shared_axes_show_the_highest_panel():
    flow = FLOW.copy(deep=True)
    flow["density"][-1, 0] = 9.0
    axes = Figure().subplots(1, 2, sharey=True)
    plots.density_with_particles(RUN, flow, [0.0, 1.0], axes)
    assert axes[0].get_ylim()[0] == 0
    assert axes[0].get_ylim()[1] > 9
    assert [bool(ax.get_ylabel()) for ax in axes] == [True, False]


def test_convergence_says_the_slope_and_draws_one_reference():
    ax = Figure().subplots()
    for label in ("first", "second"):
        plots.convergence(N, [0.02, 0.01, 0.005], [0.001] * 3, Rate(-0.5, 0.012, -1.6), ax, label=label)
    texts = [t.get_text() for t in ax.get_legend().get_texts()]
    assert "first: slope −0.500 ± 0.012" in texts
    assert texts.count("slope −1/2") == 1
    assert [t.get_text() for t in ax.get_xticklabels()] == ["100", "400", "1600"]
    colours = {c[0].get_color() for c in ax.containers}
    assert colours == set(COLOURS[:2])


def test_distance_axis_is_logarithmic_only_if_all_is_positive():
    ax, other = Figure().subplots(2)
    plots.distance_over_time({"a": distance()}, ax)
    plots.distance_over_time({"a": distance() * 0}, other)
    assert (ax.get_yscale(), other.get_yscale()) == ("log", "linear")
    assert ax.get_ylabel() == "distance $W_{2}$ (length)"
    assert len(ax.collections) == 1  # the band
    one = Figure().subplots()
    plots.distance_over_time({"a": distance().isel(run=0)}, one)
    assert not one.collections


def test_free_energy_shows_its_positive_part_only_on_a_logarithmic_axis():
    ax, plain = Figure().subplots(2)
    plots.free_energy_over_time(FLOW, ax, equilibrium=float(FLOW["free_energy"][3]))
    assert ax.get_yscale() == "log"
    assert ax.lines[0].get_xdata().size == 3
    plots.free_energy_over_time(FLOW, plain)
    assert plain.get_yscale() == "linear"
    assert plain.lines[0].get_xdata().size == 6


def test_refinement_fits_the_order_of_nonzero_errors():
    ax = Figure().subplots()
    plots.refinement([10, 20, 40, 80], [1.01, 1.0025, 1.000625, 1.0], 1.0, ax)
    assert "order 2.000" in ax.get_legend().get_texts()[1].get_text()


def test_rates_leave_out_what_is_infinite_and_need_values():
    ax = Figure().subplots()
    plots.rate(ax, RATE, POINTS)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [-1.0, 0.0, 1.0])
    (bars,) = ax.containers
    np.testing.assert_allclose([s[1, 1] - s[0, 1] for s in bars[2][0].get_segments()], [0.04, 0.08])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["variational, N → ∞", "particles, N = 10"]
    with pytest.raises(ValueError, match="a Dataset with rate over value is needed"):
        plots.rate(ax, FLOW)


def test_learning_curve_takes_what_there_is():
    ax = Figure().subplots()
    plots.learning_curve([{"train_log_loss": 0.7}, {"train_log_loss": 0.6, "validation_accuracy": 0.8, "speed": 3.0}], ax)
    (loss,) = ax.lines
    np.testing.assert_array_equal(loss.get_xdata(), [1, 2])
    for bad in ([], [{"speed": 1.0}]):
        with pytest.raises(ValueError, match="records must"):
            plots.learning_curve(bad, ax)


def test_reliability_counts_every_text_once():
    ax = Figure().subplots()
    p = np.array([0.0, 1 / 15, 0.5, 1.0, 1.0])
    plots.reliability([0, 0, 1, 1, 1], p, ax)
    (below,) = [a for a in ax.figure.axes if a is not ax]
    heights = [bar.get_height() for bar in below.patches]
    assert sum(heights) == 5
    assert (heights[0], heights[-1]) == (2, 2)  # an edge belongs to the bin below it
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        plots.reliability([0, 2], [0.1, 0.2], ax)


def test_bars_keep_values_and_refuse_unequal_lengths():
    ax = Figure().subplots()
    plots.bars(["a", "b"], [0.7, 0.8], [0.6, 0.75], [0.75, 0.85], ax)
    assert [t.get_text() for t in ax.texts] == ["0.700", "0.800"]
    with pytest.raises(ValueError, match="equally many, got 1, 2"):
        plots.bars(["a"], [0.7, 0.8], [0.6, 0.75], [0.75, 0.85], ax)
