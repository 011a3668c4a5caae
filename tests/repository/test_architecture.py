"""docs/architecture.md names files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src/treadle"
PAGE = (ROOT / "docs/architecture.md").read_text()
PATHS = sorted(set(re.findall(r"`([\w./]+(?:/|\.py))`", PAGE)) - {"src/treadle/"})
FOLDERS = [folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists()]


def test_every_named_file_or_folder_exists():
    assert len(PATHS) > 100
    assert [path for path in PATHS if not (PACKAGE / path).exists()] == []


def test_every_folder_is_in_the_layout():
    shown = re.findall(r"^ +(\w+)/(?:\s|$)", PAGE, re.MULTILINE)
    assert [folder for folder in FOLDERS if folder not in shown] == []
