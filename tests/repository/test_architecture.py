"""docs/architecture.md names files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/treadle"
PAGE = (ROOT / "docs/architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w./]+(?:/|\.py))`", PAGE)) - {"src/treadle/"})
FOLDERS = [folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()]


@pytest.mark.parametrize("path", PATHS)
def test_every_named_file_or_folder_exists(path: str):
    assert (PACKAGE / path).exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_in_the_layout(folder: str):
    assert re.search(rf"^ +{folder}/(\s|$)", PAGE, re.MULTILINE)
