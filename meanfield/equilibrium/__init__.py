"""Rest states: ``gibbs`` for one, ``stationary_states`` for all that are found, ``spectral_gap`` for the way back to one.

    rho = exp(-beta (V + g * rho)) / Z     (method.md 7.5).

For repulsive kernels F_beta is strictly convex and the self-consistent Gibbs density is its only minimiser: use ``gibbs``,
with ``method="panels"`` where many digits are wanted, and with inverse_temperature inf for the minimiser of the energy.
Where the kernel attracts there can be several rest states: ``stationary_states``.
"""

from meanfield.equilibrium.branches import stationary_states
from meanfield.equilibrium.rest import gibbs
from meanfield.equilibrium.spectrum import spectral_gap

__all__ = ["gibbs", "spectral_gap", "stationary_states"]
