"""A folder that is refused before any computing, or appears whole at the end, or not at all."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType

__all__ = ["MADE_BY", "Workspace", "files_in"]

MADE_BY = "meanfield.report"
# what desktops leave in folders that they show
_LITTER = {".DS_Store", "Thumbs.db", "desktop.ini"}


class Workspace:
    """``with Workspace(target) as folder``: write into ``folder``; it takes the place of ``target`` at the end.

    An exception leaves ``target`` as it was and no temporary folder. A ``target`` that is new, empty, or an earlier report
    with nothing else in it may be replaced; ``overwrite=True`` also replaces a folder that holds other things. Refused
    always: a file, a folder whose parent is missing or cannot be written, the current folder or one above it, a home
    folder, a mount point. Refusals (OSError or ValueError) come from ``check`` and on entering, before any computing.
    """

    def __init__(self, target: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        # a link stays, the folder behind it is replaced; os.path's expanduser does not raise where there is no home
        self.target = Path(os.path.expanduser(target)).resolve()
        self.overwrite = overwrite
        token = secrets.token_hex(4)
        self._folder = self.target.parent / f".{self.target.name}.{token}.part"
        self._old = self.target.parent / f".{self.target.name}.{token}.old"

    def check(self) -> None:
        """Raise OSError or ValueError, in one sentence, if the target cannot be made or must not be replaced."""
        self.__enter__().rmdir()

    def __enter__(self) -> Path:
        self._refuse()
        try:
            self._folder.mkdir()
        except OSError as error:
            raise type(error)(f"cannot write in {self.target.parent} ({error.strerror})") from None
        return self._folder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._put_in_place()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _refuse(self) -> None:
        target, here = self.target, Path.cwd()
        if target in (here, *here.parents, Path(os.path.expanduser("~"))) or target.is_mount():
            raise ValueError("the output folder must not be the current folder, one above it, a home folder or a mount "
                             f"point, got {target}")
        if not target.parent.is_dir():
            raise FileNotFoundError(f"the output folder must be in a folder that exists, got {target}")
        if not os.path.lexists(target):
            return
        if not target.is_dir():
            raise FileExistsError(f"the output must be a folder, but {target} is a file")
        other = None if self.overwrite else _not_ours(target)
        if other is not None:
            raise FileExistsError(f"{target} holds {other}, which is no part of an earlier report; name another output "
                                  "folder, or replace this one with overwrite (--overwrite)")

    def _put_in_place(self) -> None:
        try:
            self._refuse()  # again: minutes have passed
        except (OSError, ValueError) as error:
            kept = self.target.with_name(self._folder.name.strip("."))
            self._folder.rename(kept)
            raise type(error)(f"{error}; the finished report is in {kept}") from None
        if self.target.exists():
            self.target.rename(self._old)
        try:
            self._folder.rename(self.target)
        except BaseException:
            if self._old.exists():
                self._old.rename(self.target)
            raise
        shutil.rmtree(self._old, ignore_errors=True)


def _not_ours(folder: Path) -> str | None:
    """Something in the folder that is no part of a report that we wrote, if there is."""
    held = sorted(p.name for p in folder.iterdir() if p.name not in _LITTER)
    if not held:
        return None
    try:
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        listed = set(found["files"]) if found["made_by"] == MADE_BY else set()
    except (OSError, ValueError, KeyError, TypeError):
        listed = set()
    if not listed:
        return held[0]
    return next((name for name in sorted(files_in(folder)) if name not in listed), None)


def files_in(folder: Path) -> list[str]:
    """Every file below the folder, relative to it."""
    return [p.relative_to(folder).as_posix() for p in folder.rglob("*")
            if (p.is_symlink() or not p.is_dir()) and p.name not in _LITTER]
