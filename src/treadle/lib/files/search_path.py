"""Which folders of a PATH are safe to run programs from. Used where a program is run outside of the
sandbox, by the workspace, git and the helper programs of hosts."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def split_search_path(path: str, writable: Iterable[Path]) -> tuple[str, str]:
    """The folders of a PATH that are not below `writable` ones, and the others.

    A project's folder of programs (.venv/bin, node_modules/.bin) is often first in PATH. An `ls`
    that a sandboxed command has put there must not run outside of the sandbox.
    """
    roots = tuple(writable)
    safe: list[str] = []
    unsafe: list[str] = []
    for folder in path.split(os.pathsep):
        real = Path(os.path.realpath(folder)) if folder.startswith("/") else None
        is_safe = real is not None and not any(real.is_relative_to(root) for root in roots)
        (safe if is_safe else unsafe).append(folder)
    return os.pathsep.join(safe) or DEFAULT_PATH, os.pathsep.join(unsafe)
