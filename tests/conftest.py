"""Shared set-up: one cache of compiled kernels for the whole run, the --full lane, laws over everything registered."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("default")

ROOT = Path(__file__).parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also run what takes minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        chosen = [item for item in items if "full" not in item.keywords]
        config.hook.pytest_deselected(items=[item for item in items if "full" in item.keywords])
        items[:] = chosen


@pytest.fixture(scope="session")
def truths() -> dict[str, dict]:
    """Exact results used by the tests: id -> {params, values, citation}; copied into tests/truths.json with care."""
    return json.loads((Path(__file__).parent / "truths.json").read_text())


@pytest.fixture(autouse=True)
def _no_outside_data(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Tests never read the user's data folder unless they ask for it."""
    if "real_data" not in request.fixturenames:
        monkeypatch.delenv("MEANFIELD_DATA", raising=False)
    os.environ.setdefault("MPLBACKEND", "Agg")
