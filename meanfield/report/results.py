"""What a chapter hands over: checks, figures, tables, sections. Plain values without heavy imports."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["CheckResult", "FigureRef", "Section", "Table"]


@dataclass(frozen=True)
class CheckResult:
    """One claim, where it comes from, what was measured, what is expected and allowed, and whether it passed."""

    claim: str
    source: str
    measured: float | str
    expected: float | str
    tolerance: float | str
    passed: bool
    interval: tuple[float, float] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", bool(self.passed))
        if self.passed and isinstance(self.measured, float) and math.isnan(self.measured):
            raise ValueError(f"a check that measured NaN must not pass: {self.claim}")


@dataclass(frozen=True)
class FigureRef:
    """A figure of the report: ``figures/STEM.png`` and ``.svg``, what it shows to who cannot see it, its caption."""

    stem: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Table:
    """A table of strings; every row is as long as the header."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"a row of {self.caption!r} must have {len(self.header)} cells, got {len(row)}: {row}")


@dataclass(frozen=True)
class Section:
    """A chapter: plain paragraphs, checks, figures, tables, the command that makes it and how long it took."""

    title: str
    paragraphs: tuple[str, ...]
    checks: tuple[CheckResult, ...] = ()
    figures: tuple[FigureRef, ...] = ()
    tables: tuple[Table, ...] = ()
    command: str = ""
    seconds: float | None = None
