"""A repository in which child agents work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.assembly.children.helpers import (
    git,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder
