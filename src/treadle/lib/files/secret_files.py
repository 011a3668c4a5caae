"""The files below a folder that may contain secrets, which a search leaves out.

The list of their names is in `file_view.py`. What tools fill (`node_modules`) contains keys for
tests, and no secrets of the user. Used by the policy. Knows no rules.
"""

from __future__ import annotations

import os
import re

from treadle.lib.files.file_view import (
    SECRET_FILES,
    SECRET_FOLDERS,
    SECRET_SUFFIXES,
    FileView,
    find_secret_part,
    is_secret_name,
)
from treadle.lib.files.protected_paths import GENERATED_FOLDERS, GIT_FOLDER, fold_case

_MAX_ENTRIES = 50_000
_NOT_SEARCHED = GENERATED_FOLDERS | {GIT_FOLDER}
# A quick test for many paths; `find_secret_part` decides.
_MAY_BE_SECRET = re.compile(
    "|".join(map(re.escape, (*SECRET_FOLDERS, *SECRET_FILES, *SECRET_SUFFIXES))) + r"|[^\x00-\x7f]",
    re.IGNORECASE,
)


def is_searched_secret(path: str) -> bool:
    """Whether a search over the folder leaves this file out: a secret, and not one that a tool
    brought. The path is relative to that folder."""
    if not _MAY_BE_SECRET.search(path) or not GENERATED_FOLDERS.isdisjoint(path.split("/")):
        return False
    return bool(find_secret_part(path))


def list_secrets(view: FileView, folder: str) -> list[str] | None:
    """The secrets below a folder, as paths relative to it; None if there is too much to look at."""
    found: list[str] = []
    todo, left = [""], _MAX_ENTRIES
    for here in todo:  # it grows meanwhile
        try:
            with os.scandir(view.map_path(f"{folder}/{here}")) as entries:
                for entry in entries:
                    left -= 1
                    name = f"{here}{entry.name}"
                    if is_secret_name(fold_case(entry.name)):
                        found.append(name)
                    elif entry.name not in _NOT_SEARCHED and entry.is_dir(follow_symlinks=False):
                        todo.append(f"{name}/")
        except OSError:
            continue
        if left < 0:
            return None
    return found
