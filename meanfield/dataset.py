"""Every Dataset variable, declared once: its dims, unit and sentence; save, load and provenance.

Units: lengths, times and energies are the problem's own (the equations are dimensionless), written "1" where a number
has none.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from meanfield import _rng
from meanfield.problem import config

__all__ = ["SCHEMA", "VARIABLES", "dataset", "load", "remember_end", "versions"]

SCHEMA = 1


class Declared(NamedTuple):
    """One variable: the dims it may have (some may be absent), its unit, one sentence."""

    dims: tuple[str, ...]
    units: str
    sentence: str


VARIABLES: dict[str, Declared] = {
    # coordinates
    "time": Declared(("time",), "time", "Physical time of the saved state."),
    "run": Declared(("run",), "1", "Independent realisation."),
    "particle": Declared(("particle",), "1", "Particle index."),
    "component": Declared(("component",), "1", "Component of the position."),
    "x": Declared(("x",), "length", "Cell centre."),
    "y": Declared(("y",), "length", "Cell centre along the second axis."),
    "r": Declared(("r",), "length", "Distance of the middle of each shell from the centre."),
    "angle": Declared(("angle",), "radian", "Cell centre, as an angle."),
    "n_particles": Declared(("n_particles",), "1", "Number of particles."),
    "value": Declared(("value",), "1", "Value a of the mean of a statistic over the particles."),
    "statistic": Declared(("statistic",), "1", "Index of a linear statistic."),
    "rung": Declared(("rung",), "1", "Rung of a ladder of tilts."),
    # simulate
    "position": Declared(("run", "time", "particle", "component"), "length", "Position of each particle."),
    "clipped_fraction": Declared(("run", "time"), "1", "Share of particle steps since the last saved time whose proposal "
                                 "left the domain and was put back."),
    "max_displacement": Declared(("run", "time"), "length", "Largest step of a particle before it was put back into the "
                                 "domain, since the last saved time."),
    "n_substeps": Declared(("run", "time"), "1", "Internal steps since the last saved time (adaptive and flow schemes)."),
    "acceptance_fraction": Declared(("run", "time"), "1", "Share of proposed moves accepted since the last saved time "
                                    "(metropolis)."),
    "inverse_temperature": Declared(("time",), "1 / energy", "Inverse temperature beta(t) of an annealed run."),
    # solve, gibbs
    "density": Declared(("state", "time", "value", "x", "y", "r", "angle"), "1 / length^dim", "Cell averages of the "
                        "density; they integrate to 1."),
    "free_energy": Declared(("state", "time"), "energy", "F_beta = energy + entropy / beta of the cell averages."),
    "energy": Declared(("state", "time"), "energy", "E = int V rho + (1/2) iint g rho rho."),
    "entropy": Declared(("state", "time"), "1", "Ent = int rho log rho."),
    "cell_volume": Declared(("x", "y", "r", "angle"), "length^dim", "Volume of the cell in the domain: cell_volume density "
                            "sums to 1."),
    "dissipation": Declared(("time",), "energy / time", "D = int rho |grad(U + log(rho) / beta)|^2 from the discrete "
                            "fluxes; dF/dt = -D."),
    "mass": Declared(("time",), "1", "int rho."),
    "min_density": Declared(("time",), "1 / length^dim", "Smallest cell average."),
    "n_steps": Declared(("time",), "1", "Accepted time steps so far."),
    "n_rejected": Declared(("time",), "1", "Time steps refused so far by the error or the energy guard."),
    "drift_potential": Declared(("time", "x", "y", "r", "angle"), "energy", "U = V + g * rho in each cell."),
    "flux": Declared(("time", "component", "x", "y", "r", "angle"), "1 / (time length^(dim - 1))", "Flux of mass "
                     "-(rho grad U + grad rho / beta), averaged over each cell from the flows through its faces."),
    "residual": Declared(("state",), "1", "Largest change of log rho under one more fixed-point map; at infinite inverse "
                         "temperature the largest violation of U = constant where there is mass, and no less elsewhere."),
    # gibbs on panels
    "node": Declared(("node",), "1", "Node of the quadrature, in order of place."),
    "wall": Declared(("wall",), "length", "Coordinate of the wall."),
    "node_place": Declared(("node",), "length", "Coordinate of the node."),
    "node_density": Declared(("node",), "1 / length", "Density at the node."),
    "node_weight": Declared(("node",), "length", "Quadrature weight: the sum of node_weight node_density f is int f rho."),
    "wall_density": Declared(("wall",), "1 / length", "Density at the wall."),
    "free_energy_error": Declared((), "energy", "Difference from the solution with three nodes less a panel."),
    "density_error": Declared((), "1 / length", "Largest such difference of the cell averages."),
    "wall_error": Declared(("wall",), "1 / length", "Such a difference of the density at the wall."),
    # stationary_states, spectral_gap
    "state": Declared(("state",), "1", "Rest state, in the order of the free energy."),
    "mode": Declared(("mode",), "1", "Mode of the linearised McKean-Vlasov operator, the slowest first."),
    "growth_rate": Declared(("state",), "1 / time", "Growth rate of the least stable perturbation (negative: it decays)."),
    "stable": Declared(("state",), "1", "Whether no small perturbation grows."),
    "decay_rate": Declared(("mode",), "1 / time", "Rate at which the mode decays (negative: it grows)."),
    "mode_density": Declared(("mode", "x", "y", "r"), "1 / length", "Shape of the mode; its absolute value "
                             "integrates to 1."),
    # diagnostics
    "wasserstein": Declared(("run", "time", "n_particles"), "length", "Wasserstein distance W_p; the order p is in attrs."),
    # converge
    "error": Declared(("n_particles", "time"), "length", "W_p between N particles and the density, mean over runs."),
    "error_stderr": Declared(("n_particles", "time"), "length", "Standard error of error."),
    "sup_error": Declared(("n_particles",), "length", "Largest distance over the times, mean over runs."),
    "sup_error_stderr": Declared(("n_particles",), "length", "Standard error of sup_error."),
    "step_bias": Declared(("n_particles", "time"), "length", "Mean paired change of the distance from dt to dt / 2, on the "
                          "same Brownian paths."),
    "step_bias_stderr": Declared(("n_particles", "time"), "length", "Standard error of step_bias."),
    "coupling_error": Declared(("n_particles", "time"), "length", "Root mean square distance of a particle from itself "
                               "among the next larger number of particles, same start and noise (none for the largest)."),
    "coupling_error_stderr": Declared(("n_particles", "time"), "length", "Standard error of coupling_error."),
    "n_runs": Declared(("n_particles",), "1", "Independent runs."),
    "rate": Declared(("value", "time"), "1", "Over value: large-deviation rate I(a). Otherwise: slope of log error against "
                     "log n_particles."),
    "rate_stderr": Declared(("value", "time"), "1", "Standard error of the rate."),
    "sup_rate": Declared((), "1", "Slope of log sup_error against log n_particles."),
    "sup_rate_stderr": Declared((), "1", "Standard error of sup_rate."),
    # rate_function, estimate_rate
    "tilt": Declared(("value", "statistic"), "1", "theta of the tilted law, proportional to exp(theta N mean f) times "
                     "the law at rest."),
    "log_probability": Declared(("value",), "1", "log P(mean of the statistic >= a), or <= a where a is below its typical "
                                "value."),
    "log_probability_stderr": Declared(("value",), "1", "Standard error of log_probability."),
    "counted_log_probability": Declared(("value",), "1", "The same from a plain count in the untilted law; nan for few "
                                        "events."),
    "counted_log_probability_stderr": Declared(("value",), "1", "Standard error of counted_log_probability."),
    "upper_tail": Declared(("value",), "1", "Whether the probability is of at least a (otherwise of at most a)."),
    "rung_tilt": Declared(("rung",), "1", "theta of a rung."),
    "rung_mean": Declared(("rung",), "1", "Mean of the statistic under the tilted law of a rung."),
    "cumulant": Declared(("rung",), "1", "Lambda_N(tilt) = log E exp(tilt N mean f) / N."),
    "cumulant_stderr": Declared(("rung",), "1", "Standard error of cumulant."),
    "effective_samples": Declared(("rung",), "1", "Independent samples that a rung's are worth, by their autocorrelation."),
    "overlap": Declared(("rung",), "1", "Overlap of a rung's law with the next outer one's, between 0 and 1."),
    "acceptance": Declared(("rung",), "1", "Share of accepted proposals."),
    "time_step": Declared(("rung",), "time", "Step dt of the sampler."),
}


def versions() -> dict[str, str]:
    """Versions of what a number depends on."""
    return {name: importlib.metadata.version(name) for name in ("numpy", "scipy", "numba", "xarray")} | {
        "meanfield": _own_version()}


def _own_version() -> str:
    try:
        return importlib.metadata.version("meanfield")
    except importlib.metadata.PackageNotFoundError:
        return "0+uninstalled"


def dataset(made_by: str, variables: Mapping[str, Any], coords: Mapping[str, Any], *,
            settings: Mapping[str, Any]) -> xr.Dataset:
    """Build a Dataset of declared variables; ``settings`` (the call's arguments) become one JSON attribute.

    Raises KeyError for a name that is not declared, ValueError for a shape that does not fit its dims.
    """
    coords = {name: np.asarray(value) for name, value in coords.items()}
    arrays: dict[str, xr.Variable] = {}
    for name, value in variables.items():
        declared = VARIABLES[name]
        dims = tuple(d for d in declared.dims if d in coords)
        arrays[name] = xr.Variable(dims, value, {"long_name": declared.sentence, "units": declared.units})
    coordinates = {name: xr.Variable((name,), value, {"long_name": VARIABLES[name].sentence,
                                                      "units": VARIABLES[name].units})
                   for name, value in coords.items()}
    attrs = {"made_by": f"meanfield.{made_by}", "schema": SCHEMA,
             "config": json.dumps(config(dict(settings)), sort_keys=True), "versions": json.dumps(versions())}
    result = xr.Dataset(arrays, coordinates, attrs)
    for variable in result.variables.values():
        variable.encoding["_FillValue"] = None  # no value stands for "missing" (1e300 and 0 come back as they are)
    return result


def load(path: str | os.PathLike[str]) -> xr.Dataset:
    """Read a Dataset of ours into memory (the file is closed again).

    Raises FileNotFoundError, or ValueError where the file is not one of ours or of a newer schema.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"no Dataset at {file}")
    try:
        with xr.open_dataset(file, engine="h5netcdf") as opened:
            result = opened.load()
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError) as error:
        raise ValueError(f"{file} is not a readable netCDF-4 file ({type(error).__name__}: {error})") from None
    made_by, schema = result.attrs.get("made_by", ""), result.attrs.get("schema")
    if not str(made_by).startswith("meanfield."):
        raise ValueError(f"{file} was not made by meanfield (no made_by attribute)")
    if schema is None or int(schema) > SCHEMA:
        raise ValueError(f"{file} has schema {schema}, this version reads up to {SCHEMA}")
    result.attrs["schema"] = int(schema)
    for name in ("core_radius", "pair_error"):  # netCDF gives an array of one number back as a number
        if name in result.attrs:
            result.attrs[name] = np.atleast_1d(result.attrs[name])
    if made_by == "meanfield.simulate":
        remember_end(result)
    return result


def remember_end(run: xr.Dataset) -> None:
    """Let later calls of ``simulate`` know which noise the last state of this one depends on."""
    if not {"run", "time", "particle", "component"} <= {name for name, size in run.sizes.items() if size} or (
            "position" not in run):
        return  # a part of a Dataset
    settings = json.loads(run.attrs["config"])
    cold = settings["problem"]["inverse_temperature"] == "inf" and settings.get("annealing") is None
    if not cold:  # the flow is always cold
        position = run["position"].transpose("run", "time", ...).values
        _rng.remember_ends(settings["seed"], [int(label) for label in run["run"]], position[:, 0], position[:, -1])
