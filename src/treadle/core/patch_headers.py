"""The header lines of a patch that name its files. Used by the tool that applies a patch."""

from __future__ import annotations

import re

FILE_HEADER = re.compile(r"\*\*\* (?P<kind>Add|Update|Delete) File: (?P<path>.+)")
MOVE_HEADER = re.compile(r"\*\*\* Move to: (?P<path>.+)")
