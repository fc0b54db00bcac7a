"""``index.html``: one self-contained page from sections, by string templates; everything that is shown is escaped."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from meanfield.report.results import FigureRef, Section

__all__ = ["page"]

_CSS = Path(__file__).with_name("report.css")


def _number(value: float | str, beside: float | str | None = None) -> str:
    """Six digits, or as many as it takes to tell the value from the one beside it."""
    if isinstance(value, (str, int)):
        return str(value)
    digits = 6
    while isinstance(beside, (int, float)) and beside != value and digits < 15 and (
            f"{value:.{digits}g}" == f"{beside:.{digits}g}"):
        digits += 1
    return f"{value:.{digits}g}"


def _mark(passed: bool) -> str:
    return '<span class="pass">✓ pass</span>' if passed else '<span class="fail">✗ FAIL</span>'


def _table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    """``rows`` are HTML already. The labels let a narrow screen show every row as a card."""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in header)
    body = "\n".join("<tr>" + "".join(f'<td data-label="{escape(h)}"><div>{cell}</div></td>' for h, cell in
                                      zip(header, row, strict=True)) + "</tr>" for row in rows)
    return (f'<div class="scroll"><table class="{kind}"><caption>{escape(caption)}</caption>\n'
            f"<thead><tr>{head}</tr></thead>\n"
            f"<tbody>\n{body}\n</tbody></table></div>\n")


def _check_rows(section: Section) -> list[list[str]]:
    rows = []
    for c in section.checks:
        interval = "" if c.interval is None else f"{_number(c.interval[0])} .. {_number(c.interval[1])}"
        note = f'<br><small>{escape(c.note)}</small>' if c.note else ""
        rows.append([_mark(c.passed), escape(c.claim) + note, escape(_number(c.measured, c.expected)), escape(interval),
                     escape(_number(c.expected, c.measured)), escape(_number(c.tolerance)), escape(c.source)])
    return rows


def _figure(folder: Path, figure: FigureRef) -> str:
    path = folder / "figures" / f"{figure.stem}.png"
    if not path.is_file():
        raise FileNotFoundError(f"the report names a figure that was not made: {path}")
    png = path.read_bytes()
    # width and height in the header let the page stand still while it loads; 200 dpi are shown at 100
    width, height = (int.from_bytes(png[i:i + 4], "big") // 2 for i in (16, 20))
    link = "figures/" + escape(figure.stem)
    return (f'<figure style="--w:{width}px"><div class="scroll">'
            f'<img alt="{escape(figure.alt)}" width="{width}" height="{height}" '
            f'src="data:image/png;base64,{base64.b64encode(png).decode()}"></div>\n<figcaption>{escape(figure.caption)} '
            f'<small>(<a href="{link}.png">PNG</a>, <a href="{link}.svg">SVG</a>)</small></figcaption></figure>\n')


def _section(folder: Path, number: int, section: Section) -> str:
    parts = [f'<section id="s{number}">\n<h2>{number}. {escape(section.title)}</h2>\n']
    parts += [f"<p>{escape(p)}</p>\n" for p in section.paragraphs]
    if section.checks:
        parts.append(_table("Checks", ("result", "claim", "measured", "95 % interval", "expected", "allowed", "source"),
                            _check_rows(section), "checks"))
    parts += [_figure(folder, f) for f in section.figures]
    parts += [_table(t.caption, t.header, [[escape(c) for c in row] for row in t.rows], "data") for t in section.tables]
    made = [f"<code>{escape(section.command)}</code>"] if section.command else []
    made += [f"{section.seconds:.1f} s"] if section.seconds is not None else []
    if made:
        parts.append(f'<p class="made">Made by {", ".join(made)}</p>\n')
    return "".join([*parts, "</section>\n"])


def page(folder: Path, title: str, lead: str, sections: Sequence[Section], provenance: Mapping[str, Any],
          files: Sequence[str]) -> str:
    numbered = list(enumerate(sections, 1))
    rows = [[mark, measured, expected, allowed, f'<a href="#s{i}">{claim.split("<br>")[0]}</a>']
            for i, s in numbered for mark, claim, measured, _, expected, allowed, _ in _check_rows(s)]
    n_failed = sum(not c.passed for s in sections for c in s.checks)
    verdict = f"{len(rows) - n_failed} of {len(rows)} checks passed" + (f", {n_failed} failed" if n_failed else "")
    made = [(k, ", ".join(f"{a} {b}" for a, b in v.items()) if isinstance(v, Mapping) else str(v))
            for k, v in provenance.items()]
    return "".join([
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        # nothing is loaded from anywhere, whatever a caption may hold
        '<meta http-equiv="Content-Security-Policy" ',
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n",
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n',
        f"<style>\n{_CSS.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n",
        f'<p class="lead">{escape(lead)}</p>\n<p class="verdict {"fail" if n_failed else "pass"}">{verdict}</p>\n',
        _table("All checks", ("result", "measured", "expected", "allowed", "claim"), rows, "checks") if rows else "",
        "<nav><ol>", *(f'<li><a href="#s{i}">{escape(s.title)}</a></li>' for i, s in numbered), "</ol></nav>\n",
        *(_section(folder, i, s) for i, s in numbered),
        "<section>\n<h2>Where this comes from</h2>\n<dl>\n",
        *(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>\n" for k, v in made),
        "<dt>files</dt><dd>", ", ".join(f'<a href="{escape(f)}">{escape(f)}</a>' for f in files), "</dd>\n",
        "</dl>\n</section>\n</main>\n</body>\n</html>\n"])
