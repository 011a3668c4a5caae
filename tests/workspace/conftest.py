"""Every test of the workspace leaves no process, descriptor, thread or task behind."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def census(no_leaks: object) -> None:
    """The leak check of tests/conftest.py, for every test in this folder."""


@pytest.fixture
def folder(own_place: Path) -> Path:
    """An empty folder to work in."""
    path = own_place / "ws"
    path.mkdir()
    return path
