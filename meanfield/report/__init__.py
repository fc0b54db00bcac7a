"""Reports: checks, sections, one page that opens from disk, one JSON file, and a folder that is whole or not there.

- ``CheckResult`` is one claim with what was measured; ``Section`` a chapter with its checks, figures and tables.
- ``write_report`` turns sections into ``index.html`` (self-contained) and ``report.json``.
- ``Workspace`` is the folder to write everything into: it is refused before any computing if it may not be replaced, and
  appears in its place only at the end.

    with Workspace("report") as folder:
        sections = [chapter(folder) for chapter in chapters]
        write_report(folder, "Title", "What this is.", sections, {"command": "...", "seed": 0})
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from meanfield.report.page import page
from meanfield.report.results import CheckResult, FigureRef, Section, Table
from meanfield.report.workspace import MADE_BY, Workspace, files_in

__all__ = ["CheckResult", "FigureRef", "Section", "Table", "Workspace", "write_report"]

SCHEMA = 1


def write_report(folder: str | os.PathLike[str], title: str, lead: str, sections: Sequence[Section],
                 provenance: Mapping[str, Any]) -> None:
    """Write ``index.html`` and ``report.json`` into ``folder``; figures are read from its ``figures``.

    Raises FileNotFoundError for a figure that is not there.
    """
    folder = Path(folder)
    files = sorted({*files_in(folder), "index.html", "report.json"})
    html = page(folder, title, lead, sections, provenance, files)
    checks = [{"section": section.title} | {f.name: getattr(check, f.name) for f in fields(check)}
              for section in sections for check in section.checks]
    failed = [check["claim"] for check in checks if not check["passed"]]
    content = {
        "made_by": MADE_BY, "schema": SCHEMA, "title": title, "lead": lead, "passed": not failed,
        "n_checks": len(checks), "failed": failed, "provenance": provenance, "checks": checks,
        "sections": [{f.name: getattr(s, f.name) for f in fields(s) if f.name not in ("checks", "figures", "tables")}
                     | {"figures": [vars(f) for f in s.figures], "tables": [vars(t) for t in s.tables]} for s in sections],
        "files": files,
    }
    _write(folder / "index.html", html)
    # last: a folder with a whole report.json is a finished report
    _write(folder / "report.json", json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a new file beside the old one takes its place."""
    part = path.with_name(f".{path.name}.part")
    # a lone surrogate (of a file name, say) becomes an escape, not an error at the very end
    with part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _plain(value: Any) -> Any:
    """What JSON can hold; NaN and infinity become strings, as JSON has no number for them."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if not isinstance(value, (str, int, float, type(None))) and hasattr(value, "tolist"):
        return _plain(value.tolist())  # NumPy's
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, (str, bool, int, float, type(None))) else str(value)
