"""Every test of MCP servers leaves no process, descriptor, thread or task behind."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def census(no_leaks: object) -> None:
    """The leak check of tests/conftest.py, for every test in this folder."""
