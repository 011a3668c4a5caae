"""What the user's own hooks and servers are told beside their variables, so that they stay theirs.

They run outside of the sandbox and often in the folder that is worked in. Interpreters look for
modules where they stand and where variables say, so a file that somebody put into the folder could
become part of them. Who may run at all is extensions.py's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

SEARCH_PATH_VARIABLES = ("PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH")
_NODE_PRELOAD = re.compile(
    r"(?:^|\s)(?:-r|--require|--import|--(?:experimental-)?loader)[\s=]+(\S+)"
)
_PYTHON_SCRIPT = re.compile(r"\.pyw?(?=[\s'\";|&)]|$)")


def make_hook_environment(
    command: str, folder: Path, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables for a command line of the user's own that runs where this folder is worked in."""
    environ = os.environ if environ is None else environ
    told = {
        name: _drop_entries_inside(environ[name], folder)
        for name in SEARCH_PATH_VARIABLES
        if environ.get(name)
    }
    if "NODE_OPTIONS" in environ and _loads_from_folder(environ["NODE_OPTIONS"], folder):
        told["NODE_OPTIONS"] = ""
    if not _PYTHON_SCRIPT.search(command):
        # Not for scripts: they stand outside, and may have modules of their own beside them.
        told["PYTHONSAFEPATH"] = "1"
    return told


def _drop_entries_inside(path: str, folder: Path) -> str:
    """The entries of a search path that do not lie in the folder, nor where somebody stands."""
    root = Path(os.path.realpath(folder))
    return os.pathsep.join(
        entry
        for entry in path.split(os.pathsep)
        if entry.startswith("/") and not Path(os.path.realpath(entry)).is_relative_to(root)
    )


def _loads_from_folder(options: str, folder: Path) -> bool:
    """Whether options for node have it load what is, or may be, a file of the folder."""
    return any(
        not _drop_entries_inside(named.strip("'\""), folder)
        for named in _NODE_PRELOAD.findall(options)
    )
