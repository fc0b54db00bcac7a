"""Programs in a Python process of their own: with the compiler off, or with more threads than the machine has cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np


def run_program(program: str, *arguments: object, **environment: str) -> str:
    """What ``python -c program arguments`` prints under these environment variables; it may import test files."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here / "unit"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": path} | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled_and_interpreted(program: str, folder: Path) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, compiled, interpreted) for every array that the program saves with ``np.savez(sys.argv[1], ...)``."""
    files = []
    for disabled in "01":
        run_program(program, folder / f"{disabled}.npz", NUMBA_DISABLE_JIT=disabled)
        files.append(np.load(folder / f"{disabled}.npz"))
    assert files[0].files == files[1].files
    return [(name, files[0][name], files[1][name]) for name in files[0].files]
