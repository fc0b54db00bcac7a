"""Interacting particles, their McKean-Vlasov density, and kernels learnt by the same particles.

    import meanfield as mf
    problem = mf.Problem(mf.Interval(0, 1), mf.Zero(), mf.Log(), inverse_temperature=10)
    run = mf.simulate(problem, n_particles=1000, dt=1e-3, t_end=0.5, seed=0)
    flow = mf.solve(problem, mf.Grid(400), t_end=0.5)
    mf.wasserstein(run, flow, order=1)

Names load what they need when they are first used, so that ``import meanfield`` takes milliseconds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_WHERE = {
    "_checks": ("UnstableStepError",),
    "registry": ("register",),
    "domain": ("Ball", "Box", "Domain", "FreeSpace", "Interval", "Polytope", "Simplex", "Torus"),
    "potentials": ("DoubleWell", "Potential", "Quadratic", "Zero"),
    "interactions": ("CosinePair", "Coulomb", "GaussianPair", "Interaction", "Log", "NoInteraction", "QuadraticPair",
                     "Riesz"),
    "problem": ("Problem",),
    "mesh": ("Grid",),
    "dataset": ("load",),
    "annealing": ("Annealing",),
    "particles": ("simulate",),
    "examples": ("Example", "example", "example_names"),
    "pde": ("solve",),
    "equilibrium": ("gibbs", "spectral_gap", "stationary_states"),
    "diagnostics.distances": ("wasserstein",),
    "diagnostics.exact_transport": ("exact_transport", "sinkhorn_divergence"),
    "diagnostics.sliced": ("sliced_wasserstein",),
    "diagnostics.convergence": ("converge",),
    "diagnostics.sampling": ("monte_carlo_floor", "sample_density"),
    "diagnostics.energy": ("free_energy", "hamiltonian"),
    "diagnostics.entropy": ("particle_entropy", "particle_free_energy"),
    "diagnostics.log_gas": ("log_partition", "sample_log_gas"),
    "diagnostics.rates": ("fit_rate",),
    "diagnostics.rate_function": ("rate_function",),
    "diagnostics.deviations": ("estimate_rate",),
    "diagnostics.histogram": ("density_histogram",),
    "learning.alignment": ("KernelAlignment",),
    "learning.normalized": ("NormalizedAlignment",),
    "learning.features": ("KernelFeatures",),
    "learning.feature_kernel": ("feature_kernel",),
    "attention.classifier": ("KernelAttentionClassifier",),
}
_MODULE = {name: module for module, names in _WHERE.items() for name in names}

__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        if name == "__version__":
            from importlib.metadata import version

            return version("meanfield")
        raise AttributeError(f"module 'meanfield' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"meanfield.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from meanfield._checks import UnstableStepError as UnstableStepError
    from meanfield.annealing import Annealing as Annealing
    from meanfield.attention.classifier import KernelAttentionClassifier as KernelAttentionClassifier
    from meanfield.dataset import load as load
    from meanfield.diagnostics.convergence import converge as converge
    from meanfield.diagnostics.deviations import estimate_rate as estimate_rate
    from meanfield.diagnostics.distances import wasserstein as wasserstein
    from meanfield.diagnostics.energy import free_energy as free_energy
    from meanfield.diagnostics.energy import hamiltonian as hamiltonian
    from meanfield.diagnostics.entropy import particle_entropy as particle_entropy
    from meanfield.diagnostics.entropy import particle_free_energy as particle_free_energy
    from meanfield.diagnostics.exact_transport import exact_transport as exact_transport
    from meanfield.diagnostics.exact_transport import sinkhorn_divergence as sinkhorn_divergence
    from meanfield.diagnostics.histogram import density_histogram as density_histogram
    from meanfield.diagnostics.log_gas import log_partition as log_partition
    from meanfield.diagnostics.log_gas import sample_log_gas as sample_log_gas
    from meanfield.diagnostics.rate_function import rate_function as rate_function
    from meanfield.diagnostics.rates import fit_rate as fit_rate
    from meanfield.diagnostics.sampling import monte_carlo_floor as monte_carlo_floor
    from meanfield.diagnostics.sampling import sample_density as sample_density
    from meanfield.diagnostics.sliced import sliced_wasserstein as sliced_wasserstein
    from meanfield.domain import Ball as Ball
    from meanfield.domain import Box as Box
    from meanfield.domain import Domain as Domain
    from meanfield.domain import FreeSpace as FreeSpace
    from meanfield.domain import Interval as Interval
    from meanfield.domain import Polytope as Polytope
    from meanfield.domain import Simplex as Simplex
    from meanfield.domain import Torus as Torus
    from meanfield.equilibrium import gibbs as gibbs
    from meanfield.equilibrium import spectral_gap as spectral_gap
    from meanfield.equilibrium import stationary_states as stationary_states
    from meanfield.examples import Example as Example
    from meanfield.examples import example as example
    from meanfield.examples import example_names as example_names
    from meanfield.interactions import CosinePair as CosinePair
    from meanfield.interactions import Coulomb as Coulomb
    from meanfield.interactions import GaussianPair as GaussianPair
    from meanfield.interactions import Interaction as Interaction
    from meanfield.interactions import Log as Log
    from meanfield.interactions import NoInteraction as NoInteraction
    from meanfield.interactions import QuadraticPair as QuadraticPair
    from meanfield.interactions import Riesz as Riesz
    from meanfield.learning.alignment import KernelAlignment as KernelAlignment
    from meanfield.learning.feature_kernel import feature_kernel as feature_kernel
    from meanfield.learning.features import KernelFeatures as KernelFeatures
    from meanfield.learning.normalized import NormalizedAlignment as NormalizedAlignment
    from meanfield.mesh import Grid as Grid
    from meanfield.particles import simulate as simulate
    from meanfield.pde import solve as solve
    from meanfield.potentials import DoubleWell as DoubleWell
    from meanfield.potentials import Potential as Potential
    from meanfield.potentials import Quadratic as Quadratic
    from meanfield.potentials import Zero as Zero
    from meanfield.problem import Problem as Problem
    from meanfield.registry import register as register
