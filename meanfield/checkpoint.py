"""Checkpoints: one npz file with everything the next step needs, written whole or not at all.

The file holds a schema version, the versions of the libraries, the call's settings and the arrays. It is read without
unpickling, and a file made under other settings is refused with the name of the first setting that differs.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meanfield._checks import Array
from meanfield.dataset import versions
from meanfield.problem import config

__all__ = ["Checkpoint", "stored_settings"]

SCHEMA = 1
_SECONDS_BETWEEN = 30.0


class Checkpoint:
    """A checkpoint file for one call with these settings."""

    def __init__(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.settings = config(dict(settings))
        self._last = time.monotonic()
        if self.path.is_dir() or not self.path.parent.is_dir() or not os.access(self.path.parent, os.W_OK):
            raise ValueError(f"checkpoint must be a file in a folder that can be written, got {self.path}")

    def exists(self) -> bool:
        """Whether there is something to go on from."""
        return self.path.exists()

    def read(self, n_steps: int | None = None) -> tuple[int, dict[str, Array]]:
        """The step reached and the arrays. Raises ValueError if the file is foreign, damaged or beyond ``n_steps``."""
        step, stored, state = _read(self.path)
        for name in sorted(set(stored) | set(self.settings)):
            if stored.get(name) != self.settings.get(name):
                raise ValueError(f"checkpoint {self.path} was made with {name}={stored.get(name)!r}, this call has "
                                 f"{self.settings.get(name)!r}; use another file or the same settings")
        if n_steps is not None and step > n_steps:
            raise ValueError(f"checkpoint {self.path} is at step {step}, beyond this call's {n_steps}")
        return step, state

    def offer(self, step: int, state: Callable[[], Mapping[str, Array]]) -> None:
        """Write if the last write is half a minute ago."""
        if time.monotonic() - self._last > _SECONDS_BETWEEN:
            self.write(step, state())

    def write(self, step: int, state: Mapping[str, Array]) -> None:
        """Replace the file in one move, so that a crash leaves the old one."""
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, schema=SCHEMA, step=step, settings=json.dumps(self.settings),
                         versions=json.dumps(versions()), **state)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._last = time.monotonic()


def stored_settings(path: str | os.PathLike[str] | None) -> dict[str, Any]:
    """The settings of the call that made the file; none where there is no file yet."""
    return _read(Path(path), arrays=False)[1] if path is not None and Path(path).is_file() else {}


def _read(path: Path, arrays: bool = True) -> tuple[int, dict[str, Any], dict[str, Array]]:
    """Step, settings and, if they are asked for, the arrays of a checkpoint. Raises ValueError if it is none."""
    head = ("schema", "step", "settings", "versions")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            schema, step, settings = int(file["schema"]), int(file["step"]), json.loads(str(file["settings"]))
            state = {name: file[name] for name in file.files if name not in head} if arrays else {}
        if not isinstance(settings, dict):
            raise ValueError("settings are a dictionary")
    # TypeError: the single array of an npy file is no archive
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable checkpoint ({type(error).__name__}); delete it to start anew") from None
    if schema != SCHEMA:
        raise ValueError(f"checkpoint {path} has schema {schema}, this version reads {SCHEMA}")
    return step, settings, state
