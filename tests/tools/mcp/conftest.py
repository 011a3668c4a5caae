"""Every test that runs an MCP server leaves no process, descriptor, thread or task behind."""

from __future__ import annotations

import inspect

import pytest

from tests.tools.mcp.helpers import sdk

__all__ = ["sdk"]


@pytest.fixture(autouse=True)
def census(request: pytest.FixtureRequest) -> None:
    """The leak check of tests/conftest.py, where something is run."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("sdk")
        request.getfixturevalue("no_leaks")
