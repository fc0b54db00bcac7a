"""Where particles live: convex sets with the nearest-point map, the mirror map, volume and uniform samples.

``Interval(a, b)`` and ``Box`` for the theory in one and more dimensions, ``Ball`` for the paper's norm constraint,
``Simplex`` for weights, ``Polytope`` for any set of linear inequalities; ``Torus`` and ``FreeSpace`` have no walls.
All maps act on the last axis (component) and take any leading axes.
"""

from meanfield.domain.base import Domain
from meanfield.domain.basic import Ball, Box, Interval
from meanfield.domain.polytope import Polytope
from meanfield.domain.simplex import Simplex
from meanfield.domain.wallfree import FreeSpace, Torus

__all__ = ["Ball", "Box", "Domain", "FreeSpace", "Interval", "Polytope", "Simplex", "Torus"]
