"""CHANGELOG.md stays short: a user reads it before an upgrade. The git log has every change."""

from __future__ import annotations

import re
from pathlib import Path

LINES = (Path(__file__).parents[2] / "CHANGELOG.md").read_text().splitlines()
GROUPS = ["Breaking", "Deprecated", "Added", "Changed", "Fixed"]
MAX_LINES, MAX_CHARS = 80, 150  # of the file; of an entry, without the addresses of its links


def test_each_entry_is_one_line_and_they_are_few():
    assert len(LINES) <= MAX_LINES
    for line in LINES:
        assert not line.startswith(" "), f"an entry is one line: {line}"
        shown = re.sub(r"\]\([^)]*\)", "]", line)
        assert len(shown) <= MAX_CHARS, f"{len(shown)} characters: {line}"


def test_what_is_unreleased_is_first_and_each_version_begins_with_what_breaks():
    _, *versions = "\n".join(LINES).split("\n## ")
    assert versions[0].startswith("[Unreleased]\n")
    for version in versions:
        groups = re.findall(r"^### (\w+)$", version, re.MULTILINE)
        assert groups == [group for group in GROUPS if group in groups]
