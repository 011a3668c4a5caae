"""The folders of a PATH: which of them a project may have filled with programs of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_NAME_MANAGERS = frozenset(
    f"{dot}{name}env" for dot in (".", "") for name in ("py", "rb", "nod", "go", "j", "pl", "php")
)


def find_program(name: str, not_in: Path, environ: Mapping[str, str] = os.environ) -> str | None:
    """The path of a program that is not in the folder `not_in`."""
    safe_path, _ = split_search_path(environ.get("PATH", ""), (not_in.resolve(),))
    import shutil

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
        (unsafe if _is_below(folder, roots) else safe).append(folder)
    return os.pathsep.join(safe) or DEFAULT_PATH, os.pathsep.join(unsafe)


@lru_cache(maxsize=64)  # this is asked for every command
def list_local_path(path: str, roots: tuple[str, ...], home: str) -> tuple[str, ...]:
    """The folders of a PATH below the roots, or wherever a command runs; those of a user who works
    in the home folder are the user's own. And folders of shims, for which files of a project choose
    the programs."""
    others = [Path(root) for root in roots if not Path(home).is_relative_to(root)]
    folders = path.split(os.pathsep)
    return tuple(f.rstrip("/") for f in folders if is_shim_folder(f) or _is_below(f, others))


def is_shim_folder(folder: str) -> bool:
    """Whether programs in it (of asdf or mise) start what a file of the project names, which can be
    any folder. Those of pyenv and its like start versions that the user installed."""
    return folder.rstrip("/").endswith("/shims") and _NAME_MANAGERS.isdisjoint(folder.split("/"))


def _is_below(folder: str, roots: Iterable[Path]) -> bool:
    """Whether a folder of a PATH is below one of the roots, or is wherever a command runs."""
    if not folder.startswith("/"):
        return True
    real = Path(os.path.realpath(folder))
    return any(real.is_relative_to(root) for root in roots)
