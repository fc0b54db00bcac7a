"""Pair interactions: repulsion of Riesz, logarithmic and Coulomb type, springs, cosines, Gaussians, and one's own.

``strength`` is the paper's lambda and is part of g here, so that the pair energy is (1 / (2 N (N - 1))) sum_{k != l}
g(x_k - x_l). Unsoftened kernels are singular at r = 0: the force of a coincident pair has no direction and counts as
zero, its energy as +inf, and ``simulate`` refuses such a start. How to write your own: ``interactions/base.py``.
"""

from meanfield.interactions.base import LOGARITHM, POWER, SPRING, Interaction, NoInteraction, PairLaw
from meanfield.interactions.riesz import Coulomb, Log, QuadraticPair, Riesz
from meanfield.interactions.smooth import CosinePair, GaussianPair

__all__ = ["LOGARITHM", "POWER", "SPRING", "CosinePair", "Coulomb", "GaussianPair", "Interaction", "Log", "NoInteraction",
           "PairLaw", "QuadraticPair", "Riesz"]
