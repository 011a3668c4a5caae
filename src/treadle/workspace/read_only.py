"""Restricts our own read-only programs, such as a search, to the files that `read` may open.

A path that was judged can become a symlink before the program opens it, and a search walks
thousands of paths. So the kernel checks what is opened, by Landlock: this costs one millisecond, a
sandbox of mounts would cost ten. Used by `local.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

from treadle.workspace import landlock

SYSTEM_PATHS = """
/usr /bin /sbin /lib /lib32 /lib64 /opt /nix/store /gnu/store /home/linuxbrew/.linuxbrew
/etc/ld.so.cache /etc/fonts
"""
"""Programs, libraries and their data. Not secret; sandboxed commands can read it too."""

HOME_GIT_FILES = (".gitconfig", ".config/git/config", ".config/git/ignore")
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
"""Ignore files of a search; those in the folders above the root apply as well."""


@contextmanager
def limit_reads(program: str, roots: tuple[Path, ...], home: str) -> Iterator[int | None]:
    """A Landlock ruleset for one run of `program`; None if it is not possible."""
    runnable = (os.path.realpath(program), *_find_system(home))
    try:
        ruleset = landlock.make_read_only_ruleset(_find_readable(roots, home), runnable)
    except OSError:
        ruleset = None
    try:
        yield ruleset
    finally:
        if ruleset is not None:
            os.close(ruleset)


@lru_cache(maxsize=64)
def _find_readable(roots: tuple[Path, ...], home: str) -> tuple[str, ...]:
    # A root inside another is covered by it, and its path could become a symlink.
    outer = [r for r in roots if not any(r.is_relative_to(other) for other in roots if other != r)]
    above = [folder / name for root in outer for folder in root.parents for name in IGNORE_FILES]
    return (*map(str, outer), *map(str, above), *(f"{home}/{name}" for name in HOME_GIT_FILES))


@cache
def _find_system(home: str) -> tuple[str, ...]:
    own = Path(home or "/")
    return tuple(path for path in SYSTEM_PATHS.split() if not own.is_relative_to(path))
