"""Reads a change of a repository as a diff. No program that the repository names runs for it:
neither one for diffs, nor a filter, a hook or a monitor, and no objects are fetched.

Used by `treadle review`; `/diff` has the same options (apps/conversation/commands).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from treadle.lib.git.run import GitError, run_git

# Without the programs for diffs: the folder that names them may not be trusted.
DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames")
_START = "diff --git "  # of a file


async def make_reading_environment(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of git without filters and fetches; nothing is written. GitError: git
    cannot read the configuration."""
    environment = {**environ, "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}
    listed = await run_git(folder, "config", "--list", "--name-only", "-z", environment=environment)
    keys = [key for key in set(listed.split("\0")) if key.startswith("filter.")]
    # As variables: an option of git ends the name at its first "=".
    off = {"GIT_CONFIG_COUNT": str(len(keys))}
    for number, key in enumerate(keys):
        value = "false" if key.endswith(".required") else ""
        off |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment | off


async def list_changed(folder: Path, range_: str, environment: Mapping[str, str]) -> list[str]:
    """The paths in the repository of what `read_diff` shows, also those that are gone."""
    query = (*DIFF, "--no-renames", "--name-only", "-z")
    listed = await _diff(folder, range_, environment, query)
    return [path for path in listed.split("\0") if path]


async def read_diff(
    folder: Path, range_: str, environment: Mapping[str, str], left_out: Sequence[str] = ()
) -> list[str]:
    """The diff of commits, or with "" that of all files that git knows: a text for each file,
    without the paths that are left out."""
    paths = [":/", *(f":(top,exclude,literal){path}" for path in left_out)] if left_out else []
    text = await _diff(folder, range_, environment, DIFF, *paths)
    parts = f"\n{text}".split(f"\n{_START}")[1:]
    return [f"{_START}{make_readable(part.rstrip())}" for part in parts]


def make_readable(text: str) -> str:
    """The output of git without what is not UTF-8."""
    return os.fsencode(text).decode(errors="replace")


async def _diff(
    folder: Path, range_: str, environment: Mapping[str, str], query: Sequence[str], *paths: str
) -> str:
    since = range_ or await _find_base(folder, environment)
    options = ("--ignore-submodules=dirty", "--end-of-options", since, "--", *paths)
    return await run_git(folder, *query, *options, environment=environment)


async def list_new_files(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The files that git does not know yet, without the ignored ones."""
    query = ("ls-files", "--others", "--exclude-standard", "-z", "--full-name", ":/")
    listed = await run_git(folder, *query, environment=environment)
    return [path for path in listed.split("\0") if path]


async def _find_base(folder: Path, environment: Mapping[str, str]) -> str:
    """The last commit; before the first one, the empty tree."""
    try:
        found = await run_git(
            folder, "rev-parse", "--verify", "--quiet", "HEAD", environment=environment
        )
    except GitError:
        query = ("hash-object", "-t", "tree", "--stdin")
        found = await run_git(folder, *query, environment=environment)
    return found.strip()
