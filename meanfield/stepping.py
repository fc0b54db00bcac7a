"""Adaptive time steps of ``solve``: second order, positive, and never uphill in the free energy.

A step costs two convolutions: one at its middle, which freezes the drift there, and one at its end, which gives the free
energy (the guard), the rate of change (the error) and the start of the next step. The error of a step is its defect in the
third-order Adams-Moulton rule

    q_1 - q_0 - dt (w_0 f_1 + w_1 f_0 + w_2 f_{-1}),   f the rates dq/dt,

damped by one implicit step as stiff errors are, so that it converges to the step's true error and costs no further step
(docs/decisions/0008). Where the interaction is stiff (``coupling``), steps are implicit in it too.
"""

from __future__ import annotations

import numpy as np

from meanfield._checks import Array
from meanfield.coupling import Coupling
from meanfield.kernels.cells import defect, totals
from meanfield.mesh import Energies, Mesh
from meanfield.sweeps import GAMMA, Faces, Sweep, relative_volumes

__all__ = ["State", "Stepper"]

# the limited flow takes over where U typically rises by more than that many T between cells, and hands back at half of it:
# there its error is a fifth of the other's, which is of order Peclet^2 / 12 (docs/decisions/0008)
_PECLET = 0.45
# an implicit step costs about this many frozen ones (measured: 15 to 25)
_IMPLICIT_COST = 20.0
# frozen steps near their stability limit after which a long implicit one is tried: at the limit the error is that of a mode
# about to grow, which hides how long a step the density itself would allow
_PATIENCE = 40
_FLOOR = 1e-300


class State:
    """Cell averages and what follows from them: drift, flows, rate of change, energies."""

    def __init__(self, mesh: Mesh, sweeps: list[Sweep], equal: bool) -> None:
        self.q, self.log_rho = np.empty(mesh.shape), np.empty(mesh.shape)
        self.rho = self.q if equal else np.empty(mesh.shape)  # on equal cells they are the same numbers
        self.drift, self.rate = np.empty(mesh.shape), np.empty(mesh.shape)
        self.faces = [Faces(sweep.shape) for sweep in sweeps]
        self.energies = Energies(0.0, 0.0, 0.0)


class Stepper:
    """Steps of one problem from one density: ``advance`` takes one, ``density`` is where it stands."""

    def __init__(self, mesh: Mesh, tolerance: float, rho: Array, *, coupling: str = "auto") -> None:
        self.mesh, self.tolerance, self._choice = mesh, tolerance, coupling
        self.temperature = mesh.problem.temperature
        self.accepted = self.rejected = self.implicit = 0
        self.error = 0.0  # that the last step added, estimated, in L1
        self.weights, self.volume = relative_volumes(mesh)
        self._equal = bool((self.weights == 1.0).all())
        self._potential = np.ascontiguousarray(mesh.potential, dtype=np.float64)
        self.sweeps = [Sweep(mesh, axis) for axis in range(len(mesh.shape))]
        self._now, self._next = (State(mesh, self.sweeps, self._equal) for _ in range(2))
        self._middle = [Faces(sweep.shape) for sweep in self.sweeps]
        self._a, self._b, self._before = np.empty(mesh.shape), np.empty(mesh.shape), np.zeros(mesh.shape)
        self._before_gap = 0.0  # time from ``_before``, a rate, to now; 0 without one
        self._sum = float(np.sum(rho * self.weights))
        self.coupling = Coupling(mesh, self.sweeps, self.weights) if mesh.convolution is not None else None
        self._implicit, self._crawled, self._patience = False, 0, _PATIENCE
        self._reach = 1.0  # length of frozen steps at their limit over the estimate of it
        self.limited = self.temperature == 0.0
        np.multiply(rho, self.weights, out=self._now.q)
        self._evaluate(self._now)
        self._choose_flow()
        # start where an explicit step would be stable: a long first step can swap a peak back and forth through the
        # frozen interaction and look converged
        fastest = sum(s.explicit_rate(f) for s, f in zip(self.sweeps, self._now.faces, strict=True))
        across = max(float(edge[-1] - edge[0]) for edge in mesh.edges)
        self._dt = min(0.01 * across**2 * min(mesh.problem.inverse_temperature, 1.0), 1.0 / max(fastest, _FLOOR))

    @property
    def density(self) -> Array:
        """Cell averages now (a copy)."""
        return self._now.rho.copy()

    @property
    def state(self) -> State:
        """Everything known about now."""
        return self._now

    def memory(self) -> dict[str, Array]:
        """What the next step depends on beside the density."""
        numbers = np.array([self._dt, self._before_gap, self._reach, self._sum])
        counts = np.array([self.accepted, self.rejected, self.implicit, self.limited, self._implicit, self._crawled,
                           self._patience])
        return {"q": self._now.q, "before": self._before, "numbers": numbers, "counts": counts}

    def recall(self, memory: dict[str, Array]) -> None:
        """Go on from ``memory`` as if never stopped."""
        self._dt, self._before_gap, self._reach, self._sum = (float(x) for x in memory["numbers"])
        self.accepted, self.rejected, self.implicit, limited, implicit, self._crawled, self._patience = (
            int(x) for x in memory["counts"])
        self.limited, self._implicit = bool(limited), bool(implicit)
        self._before[:], self._now.q[:] = memory["before"], memory["q"]
        self._evaluate(self._now)

    def advance(self, longest: float) -> float:
        """Take one accepted step of at most ``longest`` and return its length."""
        before = self._now.energies
        # what round-off alone may do to F, a sum of terms of that size
        slack = 1e-13 * (1.0 + abs(before.energy) + self.temperature * (1.0 + abs(before.entropy)))
        while True:
            dt, implicit = self._propose(longest)
            done = self.trial(dt, implicit)
            error = self.error = self._error(dt, implicit) if done else np.inf
            rises = not self._next.energies.free_energy <= before.free_energy + slack
            factor = 0.9 * (self.tolerance / error) ** (1.0 / 3.0) if error > 0 else 3.0
            if error <= self.tolerance and not rises:
                self._accept(dt, implicit, min(max(factor, 0.2), 3.0))
                return dt
            self.rejected += 1
            self._dt = dt * (min(max(factor, 0.2), 0.5) if rises or not done else min(max(factor, 0.2), 0.9))
            if implicit and self._choice == "auto":
                self._leave_implicit()
            if self._dt < 1e-14 * longest:
                raise ArithmeticError(f"no time step lowers the free energy any more: error {error:.3g}, "
                                      f"tolerance {self.tolerance:g}; ask for a larger tolerance")

    def _propose(self, longest: float) -> tuple[float, bool]:
        """Length of the next step and whether it is implicit in the interaction."""
        if self.coupling is None or self._choice != "auto":
            return min(self._dt, longest), self._choice == "implicit" and self.coupling is not None
        if self._crawled >= self._patience and longest > _IMPLICIT_COST * self._dt:
            self._implicit, self._crawled = True, 0
            self._dt *= 1.5 * _IMPLICIT_COST
        return min(self._dt, longest), self._implicit

    def _frozen_reach(self) -> float:
        """The longest frozen step now, as far as is known."""
        assert self.coupling is not None
        return self._reach * self.coupling.frozen_limit(float(self._now.rho.max()))

    def _leave_implicit(self) -> None:
        """Back to frozen steps where implicit ones no longer pay."""
        reach = self._frozen_reach()
        if self._dt < 0.7 * _IMPLICIT_COST * reach:
            self._implicit = False
            self._patience = min(2 * self._patience, 100 * _PATIENCE)  # before the next attempt
            self._dt = min(self._dt, reach)

    def _accept(self, dt: float, implicit: bool, factor: float) -> None:
        self.accepted += 1
        self.implicit += implicit
        longer = dt * factor
        if dt < self._dt and factor > 1.0:  # cut short by a saved time, which says nothing against the longer one
            longer = max(self._dt, longer)
        # rates too close together tell nothing of a slope: a short step leaves the older one in its place
        if self._before_gap == 0.0 or dt > 0.3 * self._dt:
            self._before[:], self._before_gap = self._now.rate, dt
        else:
            self._before_gap += dt
        if self.coupling is not None and self._choice == "auto" and not implicit:
            share = dt / self.coupling.frozen_limit(float(self._now.rho.max()))
            if share > 0.4:
                self._crawled += 1
                self._reach = share
            elif dt >= self._dt:
                self._crawled = 0
        self._dt = longer
        self._now, self._next = self._next, self._now
        if implicit and self._choice == "auto":
            self._leave_implicit()
        self._choose_flow()

    def trial(self, dt: float, implicit: bool = False) -> bool:
        """Try one step; the result is in ``_next``. False where the implicit equations were not solved."""
        if implicit:
            assert self.coupling is not None
            if not self.coupling.step(self._now, dt, self.limited, 0.01 * self.tolerance / self.volume, self._next.q):
                return False
        else:
            self._frozen(dt)
        self._evaluate(self._next)
        return True

    def step(self, dt: float, implicit: bool = False) -> None:
        """One step of exactly dt, whatever its error (for tests of the order)."""
        if not self.trial(dt, implicit):
            raise ArithmeticError(f"the implicit step of length {dt:g} did not converge")
        self._now, self._next = self._next, self._now

    def _frozen(self, dt: float) -> None:
        now, faces = self._now, self._now.faces
        if self.coupling is not None or self.limited:
            q: Array = now.q
            for sweep, at, out in zip(self.sweeps, faces, (self._a, self._b), strict=False):
                q = sweep.euler(at, q, 0.5 * dt, out)
            self._freeze(q, self._middle, self._next)
            faces = self._middle
        if len(self.sweeps) == 1:
            self.sweeps[0].sdirk2(faces[0], now.q, dt, self._next.q)
            return
        first, second = self.sweeps
        first.sdirk2(faces[0], now.q, 0.5 * dt, self._a)
        second.sdirk2(faces[1], self._a, dt, self._b)
        first.sdirk2(faces[0], self._b, 0.5 * dt, self._next.q)

    def _freeze(self, q: Array, faces: list[Faces], scratch: State) -> None:
        """Coefficients of all flows at q; leaves rho, its logarithm and U in ``scratch``."""
        rho = self._density(q, scratch.rho)
        if self.coupling is not None:
            np.add(self._potential, self.mesh.convolve(rho), out=scratch.drift)
        else:
            scratch.drift[:] = self._potential
        if not self.limited:
            for sweep, at in zip(self.sweeps, faces, strict=True):
                sweep.freeze(at, scratch.drift)
            return
        log_rho = np.log(np.maximum(rho, _FLOOR, out=scratch.log_rho), out=scratch.log_rho)
        for sweep, at in zip(self.sweeps, faces, strict=True):
            sweep.freeze(at, scratch.drift, rho, log_rho)

    def _density(self, q: Array, out: Array) -> Array:
        if self._equal:
            return q
        return np.divide(q, self.weights, out=out)

    def _evaluate(self, state: State) -> None:
        """Fill in everything that follows from ``state.q``."""
        total = float(state.q.sum())
        if abs(total - self._sum) > 2e-15 * self._sum:
            state.q *= self._sum / total  # round-off of the mass does not add up over steps
        self._freeze(state.q, state.faces, state)
        if not self.limited:
            np.log(np.maximum(state.rho, _FLOOR, out=state.log_rho), out=state.log_rho)
        energy, entropy = totals(state.q, state.drift, self._potential, state.log_rho)
        energy, entropy = energy * self.volume, entropy * self.volume
        state.energies = Energies(energy, entropy, energy + self.temperature * entropy)
        state.rate[:] = 0.0
        for sweep, at in zip(self.sweeps, state.faces, strict=True):
            sweep.add_inflow(at, state.q, state.rate)

    def _choose_flow(self) -> None:
        """First or second order in the drift, by the cell Peclet number."""
        if self.temperature == 0.0:
            return
        peclet = max(s.peclet(f, self._now.q) for s, f in zip(self.sweeps, self._now.faces, strict=True))
        wanted = peclet > (0.5 * _PECLET if self.limited else _PECLET)
        if wanted != self.limited:
            self.limited, self._before_gap = wanted, 0.0
            self._evaluate(self._now)

    def _error(self, dt: float, implicit: bool) -> float:
        now, new = self._now, self._next
        weights = (0.5, 0.5, 0.0)
        if self._before_gap:
            w = self._before_gap / dt
            last = (1.0 / 3.0 + 0.5 * w) / (1.0 + w)
            old = -1.0 / (6.0 * w * (1.0 + w))
            weights = (last, 1.0 - last - old, old)
        defect(new.q, now.q, new.rate, now.rate, self._before, (dt * weights[0], dt * weights[1], dt * weights[2]), self._a)
        error: Array = self._a
        if implicit:
            assert self.coupling is not None
            error = self.coupling.damp(new, error, GAMMA * dt)
        else:
            for sweep, at, out in zip(self.sweeps, new.faces, (self._b, self._a), strict=False):
                error = sweep.euler(at, error, GAMMA * dt, out)
        return self.volume * float(np.abs(error, out=error).sum())
