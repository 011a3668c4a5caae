"""Environment for the user's own hooks and MCP servers, so that files in the project cannot be
loaded into them.

They run outside the sandbox, often with the project as current directory, and interpreters load
modules from there and from search path variables. Which of them may run is decided in
extensions.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

SEARCH_PATH_VARIABLES = ("PYTHONPATH", "NODE_PATH", "LD_LIBRARY_PATH")
_NODE_LOAD = re.compile(r"(?:^|\s)(?:-r|--require|--import|--(?:experimental-)?loader)[\s=]+(\S+)")
_PYTHON_SCRIPT = re.compile(r"\.pyw?(?=[\s'\";|&)]|$)")


def make_hook_environment(
    command: str, folder: Path, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables to set for a command of the user that runs while the agent works in `folder`."""
    environ = os.environ if environ is None else environ
    variables = {
        name: _drop_entries_inside(environ[name], folder)
        for name in SEARCH_PATH_VARIABLES
        if environ.get(name)
    }
    if "NODE_OPTIONS" in environ and _loads_from_folder(environ["NODE_OPTIONS"], folder):
        variables["NODE_OPTIONS"] = ""
    if not _PYTHON_SCRIPT.search(command):
        # Not for scripts: they are outside the folder, and may import modules next to them.
        variables["PYTHONSAFEPATH"] = "1"
    return variables


def _drop_entries_inside(path: str, folder: Path) -> str:
    """The search path without relative entries and without entries inside the folder."""
    root = Path(os.path.realpath(folder))
    return os.pathsep.join(
        entry
        for entry in path.split(os.pathsep)
        if entry.startswith("/") and not Path(os.path.realpath(entry)).is_relative_to(root)
    )


def _loads_from_folder(options: str, folder: Path) -> bool:
    """Whether options of node make it load what is, or may be, a file of the folder."""
    files = [named.strip("'\"") for named in _NODE_LOAD.findall(options)]
    return any(not _drop_entries_inside(file, folder) for file in files)
