"""Names of files in the notes of the sandbox, for the user and the model.

Used by `bubblewrap.py` and `protected_paths.py`, which write the notes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def format_path(path: str) -> str:
    """A path for a note: a command chooses its characters."""
    text = os.fsencode(path).decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def list_some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + rest
