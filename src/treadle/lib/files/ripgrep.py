"""Where ripgrep is: the program of our own environment, else one on the PATH."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path


@cache
def find_ripgrep(not_in: Path | None = None) -> str | None:
    """The path of `rg`. One on the PATH does not count if it lies in the folder `not_in`: a
    project must not bring the program that we run."""
    import sysconfig  # loads a few files, needed once

    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / "rg").is_file():
            return str((folder / "rg").absolute())
    import shutil

    found = shutil.which("rg")
    if found is None or (not_in is not None and Path(found).resolve().is_relative_to(not_in)):
        return None
    return found
