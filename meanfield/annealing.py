"""``Annealing``: an inverse temperature that changes with time, as a value that a Dataset and a checkpoint can hold."""

from __future__ import annotations

from dataclasses import dataclass

from meanfield import _checks

__all__ = ["Annealing"]

KINDS = ("geometric", "linear")


@dataclass(frozen=True)
class Annealing:
    """beta(t) from ``start`` at t = 0 to ``end`` at t = ``duration``, constant afterwards.

    "geometric" is start (end / start)^(t / duration), "linear" is start + (end - start) t / duration. With end = N times
    the mean-field value it is the paper's beta_N >> N. Raises ValueError for temperatures that are not positive.
    """

    start: float
    end: float
    duration: float
    kind: str = "geometric"

    def __post_init__(self) -> None:
        for name in ("start", "end", "duration"):
            object.__setattr__(self, name, _checks.positive(name, getattr(self, name)))
        _checks.choice("kind", self.kind, KINDS)

    def __call__(self, time: float) -> float:
        """beta at that time."""
        share = min(max(time / self.duration, 0.0), 1.0)
        if self.kind == "linear":
            return self.start + (self.end - self.start) * share
        return float(self.start * (self.end / self.start) ** share)
