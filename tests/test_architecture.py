"""The layers of the design: imports go down only, and the package imports lazily."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "meanfield"
LAYERS = [
    ("ground", {"_numba", "_tasks", "_rng", "_checks", "registry"}),
    ("words", {"domain", "potentials", "interactions", "problem", "dataset", "mesh", "checkpoint", "annealing"}),
    ("loops", {"kernels", "pairforces", "pairsum"}),
    ("engines", {"forces", "record", "schemes", "adaptive", "flow", "metropolis", "particles", "sweeps", "coupling",
                 "stepping", "pde",
                 "equilibrium", "examples"}),
    ("reading", {"diagnostics"}),
    ("learning", {"learning", "attention"}),
    ("edge", {"experiments", "report", "plots", "cli", "doctor"}),
]
LEVEL = {name: level for level, (_, names) in enumerate(LAYERS) for name in names}
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def imported(path: Path) -> set[str]:
    """Top-level parts of the package that a module imports, at module level or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "meanfield":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("meanfield.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no layer: add it to LAYERS and to the design"
    for name in imported(path):
        assert name in LEVEL, f"{path.name} imports {name}, which has no layer"
        assert LEVEL[name] <= LEVEL[own], f"{path.name} (layer {own}) imports {name} from a higher layer"


def test_every_layer_is_there():
    missing = [n for n in LEVEL if not (PACKAGE / n).exists() and not (PACKAGE / f"{n}.py").exists()]
    assert not missing


def test_only_one_file_says_njit():
    """Options, cache and threads are decided in one place."""
    sinners = [p.name for p in MODULES if p.name != "_numba.py" and "import numba" in p.read_text()]
    assert not sinners


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_stay_small_and_explain_themselves(path):
    source = path.read_text()
    assert source.count("\n") <= 350
    assert ast.get_docstring(ast.parse(source)), "module docstring: what to use when"


def test_global_random_state_is_never_used():
    sinners = [p.name for p in MODULES if "np.random.seed" in p.read_text() or "random.seed(" in p.read_text()]
    assert not sinners
