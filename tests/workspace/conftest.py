"""Every test of the workspace leaves no process, descriptor, thread or task behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workspace.helpers import FIRST_CASES, not_for_root


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With FIRST_CASES set: of each test only the first case, and all cases that root skips."""
    if not os.environ.get(FIRST_CASES):
        return
    first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
    items[:] = [
        item
        for item in items
        if item in first.values() or not_for_root.mark in item.iter_markers("skipif")
    ]


@pytest.fixture(autouse=True)
def census(no_leaks: object) -> None:
    """The leak check of tests/conftest.py, for every test in this folder."""


@pytest.fixture
def folder(own_place: Path) -> Path:
    """An empty folder to work in."""
    path = own_place / "ws"
    path.mkdir()
    return path
