"""The fence around programs of ours that only read, such as a search: they open what `read` may.

A name that was judged can be made a link to elsewhere before the program opens it, and a search
walks thousands of names. So the kernel judges again what is really opened, by Landlock: at the cost
of a millisecond, where a sandbox of mounts would take ten. `local.py` stands above.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from treadle.workspace.sandbox import landlock

SYSTEM_PATHS = """
/usr /bin /sbin /lib /lib32 /lib64 /opt /nix/store /gnu/store /home/linuxbrew/.linuxbrew
/etc/ld.so.cache /etc/fonts
"""
"""What programs are made of. None of it is secret, and a sandboxed command sees it, too."""

HOME_GIT_FILES = (".gitconfig", ".config/git/config", ".config/git/ignore")
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
"""A search leaves out what these say: those in the folders above the root count as well."""


def make_ruleset(program: str, roots: tuple[Path, ...], home: str) -> int | None:
    """A Landlock ruleset for one run of `program`; None where none can be made.

    The descriptor is the caller's to close.
    """
    runnable = (os.path.realpath(program), *_find_system(home))
    try:
        return landlock.make_read_only_ruleset(_find_readable(roots, home), runnable)
    except OSError:
        return None


@cache
def _find_readable(roots: tuple[Path, ...], home: str) -> tuple[str, ...]:
    # One inside of another is covered by it, and its name there can be made to lead elsewhere.
    outer = [r for r in roots if not any(r.is_relative_to(one) for one in roots if one != r)]
    above = [folder / name for root in outer for folder in root.parents for name in IGNORE_FILES]
    return (*map(str, outer), *map(str, above), *(f"{home}/{name}" for name in HOME_GIT_FILES))


@cache
def _find_system(home: str) -> tuple[str, ...]:
    return tuple(
        place for place in SYSTEM_PATHS.split() if not Path(home or "/").is_relative_to(place)
    )
