"""The command line: ``meanfield reproduce``, ``meanfield figures``, ``meanfield doctor``, ``meanfield data``.

Exit status: 0 fine; 1 a run that failed or a check that did not pass; 2 wrong usage (unknown option, bad value, missing or
unusable file or folder), found before anything is computed; 130 interrupted. Errors are one line on stderr that begins
with "meanfield: "; ``--debug`` shows the traceback. Whatever a command needs is imported inside it, so that ``--help``
answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from meanfield.attention.data import TextData

__all__ = ["main"]

_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(name="meanfield", context_settings=_HELP, rich_markup_mode=None, add_completion=False,
                  pretty_exceptions_enable=False)

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", metavar="DIR", help="Folder with the text data: "
                    "DIR/rotten_tomatoes/train.tsv.gz and so on. Also MEANFIELD_DATA.", show_default=False)]


class UsageError(Exception):
    """What the caller must change before the command can run."""


@contextmanager
def _usage() -> Iterator[None]:
    """What goes wrong inside is the caller's to mend: exit status 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise UsageError(_sentence(error)) from error


def _version(asked: bool) -> None:
    if asked:
        import meanfield

        typer.echo(f"meanfield {meanfield.__version__}")
        raise typer.Exit


@app.callback()
def _top(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True,
                                               callback=_version)] = False, debug: Debug = False) -> None:
    """Interacting particles, their McKean-Vlasov density, and kernels learnt by the same particles."""


@app.command(short_help="Run every check and write a report.")
def reproduce(
    quick: Annotated[bool, typer.Option("--quick", help="The run of a few minutes.")] = False,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the report goes.")] = Path("report"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace DIR even if it holds other files.")] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="INT", help="Seed of everything random.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, metavar="INT", help="Threads to use at most (default: all).",
                                                show_default=False)] = None,
    debug: Debug = False,
) -> None:
    """Run every check and write DIR/index.html, DIR/report.json, figures and data.

    Without a data folder the text part runs on a small generated corpus. An earlier report in DIR is replaced.
    """
    if not quick:
        raise UsageError("only the quick run exists so far; add --quick")
    from meanfield.report import Workspace

    with _usage():
        Workspace(out, overwrite=overwrite).check()
    named = data_dir or os.environ.get("MEANFIELD_DATA")
    if named:
        _load("rotten_tomatoes", data_dir)
    from meanfield.experiments.reproduce import reproduce as run

    outcome = run(out=out, data_dir=Path(named) if named else None, quick=True, seed=seed, threads=threads,
                  overwrite=overwrite, progress=sys.stderr.isatty())
    typer.echo(f"{outcome.n_checks - len(outcome.failed)} of {outcome.n_checks} checks passed; "
               f"the report is {out / 'index.html'}")
    if not outcome.passed:
        for claim in outcome.failed:
            typer.echo(f"meanfield: check failed: {claim}", err=True)
        raise typer.Exit(1)


@app.command(short_help="Draw the standing figures.")
def figures(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One figure (default: all).",
                                               show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer particles: minutes become seconds.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where they go.")] = Path("figures"),
    seed: Annotated[int, typer.Option(min=0, metavar="INT", help="Seed of everything random.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, metavar="INT", help="Threads to use at most (default: all).",
                                                show_default=False)] = None,
    debug: Debug = False,
) -> None:
    """Draw the standing figures into DIR: PNG, SVG and a JSON file with the numbers for each."""
    from meanfield.experiments.figures import FIGURES, make_figures

    if name is not None and name not in FIGURES:
        raise UsageError(f"no figure is called {name!r}; there are {', '.join(FIGURES)}")
    for path in make_figures(out, [name] if name else [], quick=quick, seed=seed, threads=threads,
                             progress=sys.stderr.isatty()):
        typer.echo(f"{path}")


@app.command(short_help="Say whether this machine is set up right.")
def doctor(debug: Debug = False) -> None:
    """Say whether this machine is set up right: versions, threads, cache, memory, a smoke test."""
    from meanfield.doctor import examine

    broken = 0
    for finding in examine():
        typer.echo(f"{finding.name:<12} {finding.text}")
        broken += not finding.sound
    if broken:
        typer.echo(f"meanfield: {broken} finding(s) above say what is broken", err=True)
        raise typer.Exit(1)
    typer.echo("all is well")


@app.command(short_help="Check a text data set, print what is in it.")
def data(name: Annotated[str, typer.Argument(metavar="NAME", help="sst2, qqp or rotten_tomatoes.")],
         data_dir: DataDir = None, debug: Debug = False) -> None:
    """Read a text data set (from a folder, the cache or the net), check it, and print what is in it."""
    found = _load(name, data_dir)
    typer.echo(f"{found.name}, from {found.source}")
    for which in ("train", "validation", "test"):
        split = getattr(found, which)
        if split is None:
            typer.echo(f"{which:<12} none")
            continue
        labels = list(split.labels)
        shares = ", ".join(f"class {c}: {labels.count(c) / len(labels):.3f}" for c in sorted(set(labels)))
        typer.echo(f"{which:<12} {len(labels):>8,} rows   {shares}   sha256 {found.digests[which]}")
    for note in found.notes:
        typer.echo(f"note         {note}")


def _load(name: str, data_dir: Path | None) -> TextData:
    from meanfield.attention.data import load_text

    with _usage():
        return load_text(name, data_dir=data_dir, progress=sys.stderr.isatty())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point: run the command and turn whatever happens into an exit status and one line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # kill and a batch system's time limit end in the clean-up of an unfinished report, as Ctrl-C does
    signal.signal(signal.SIGTERM, _terminated)
    try:
        status = app(given or ["--help"], prog_name="meanfield", standalone_mode=False) or 0
        print(end="", flush=True)
        if status == 130:  # typer turns Ctrl-C into a status without a word, its older versions into Abort
            _complain("interrupted", status)
    except BrokenPipeError:
        # whoever read us has gone: nothing to say, and nothing left for the interpreter to flush at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1  # as typer does where it sees it first
    except (KeyboardInterrupt, typer.Abort):
        status = _complain("interrupted", 130)
    except Exception as error:
        if "--debug" in given:
            traceback.print_exc()
        # typer's own usage errors carry their exit status and their sentence
        if isinstance(error, UsageError) or hasattr(error, "format_message"):
            message: Any = getattr(error, "format_message", error.__str__)()
            status = _complain(message, int(getattr(error, "exit_code", 2)))
        else:
            status = _complain(_sentence(error), 1)
    sys.exit(status)


def _terminated(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    # a KeyError's own text is a bare repr
    expected = isinstance(error, (ValueError, OSError, ArithmeticError, TypeError)) and str(error)
    return str(error) if expected else f"{type(error).__name__}: {error}"


def _complain(message: str, status: int) -> int:
    print("meanfield: " + " ".join(message.split()), file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
