"""The header lines of a patch that name its files. Used by the tool that applies a patch and by
the policy that judges its paths: both must read the same paths."""

from __future__ import annotations

import re

FILE_HEADER = re.compile(r"\*\*\* (?P<kind>Add|Update|Delete) File: (?P<path>.+)")
MOVE_HEADER = re.compile(r"\*\*\* Move to: (?P<path>.+)")


def find_patch_paths(patch: str) -> list[str]:
    """Every path that a patch names, in order."""
    lines = (line for line in patch.split("\n") if line.startswith("*** "))
    headers = (FILE_HEADER.fullmatch(line) or MOVE_HEADER.fullmatch(line) for line in lines)
    return [header["path"].strip() for header in headers if header is not None]
