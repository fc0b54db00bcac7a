"""Dataset -> Axes: every figure of the package in one style. What to use when:

- particles against a density: ``density_with_particles`` (at chosen times), ``spacetime`` (the density over time and x,
  with paths on top), ``density_image`` (in the plane), ``distance_over_time`` (any Wasserstein distance),
  ``curve_with_points`` (a moment);
- a density alone: ``density_lines`` (several times), ``spacetime``, ``density_image``, ``movie`` (GIF or MP4);
- how fast: ``convergence`` (error against N), ``refinement`` (error against cells);
- structure: ``free_energy_over_time``;
- large deviations: ``rate`` (variational, particles, exact);
- classifiers: ``learning_curve``, ``reliability``, ``bars``;
- ``save``: PNG and SVG with the making command in their metadata, the same bytes each time.

Functions draw on Axes that they are given (of a ``matplotlib.figure.Figure`` or of pyplot) and never touch global
settings. Colours are those of Okabe and Ito (2008), which stay apart for the colour-blind; sizes are for print at 6-7
inches width.
"""

from __future__ import annotations

from meanfield.plots.classifiers import bars, learning_curve, reliability
from meanfield.plots.deviations import rate
from meanfield.plots.dynamics import (
    convergence,
    curve_with_points,
    density_with_particles,
    distance_over_time,
    free_energy_over_time,
    refinement,
    spacetime,
)
from meanfield.plots.fields import density_image, density_lines, movie
from meanfield.plots.style import save

__all__ = ["bars", "convergence", "curve_with_points", "density_image", "density_lines", "density_with_particles",
           "distance_over_time", "free_energy_over_time", "learning_curve", "movie", "rate", "refinement", "reliability",
           "save", "spacetime"]
