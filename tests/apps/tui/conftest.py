"""Screens show the folder, shortened to their width, so its path has the same length everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import make_place


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home and a current folder for this test alone, in /tmp."""
    with make_place(monkeypatch, "/tmp") as place:
        yield place
