"""Finds programs that are run outside of a sandbox: never one that a project brings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def find_program(name: str, not_in: Path, environ: Mapping[str, str] = os.environ) -> str | None:
    """The path of a program that is not in the folder `not_in`."""
    safe_path, _ = split_search_path(environ.get("PATH", ""), (not_in.resolve(),))
    return shutil.which(name, path=safe_path)


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
