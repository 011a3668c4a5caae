"""Forms in which models write a command line: a list of words, a shell around it, a code fence.

    read_command   the command line that is meant
    read_patch     the patch of a command that only calls `apply_patch`

Pure functions, used by `bash` before a call is decided on.
"""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from posixpath import join
from typing import Any

from treadle.lib.text.lazy_regex import compile_lazily

_SHELLS = ("bash", "sh", "zsh")
_SHELL_OPTIONS = ("-c", "-lc", "-ic", "-lic", "-cl")
_FENCE = compile_lazily(r"\s*```(?:bash|sh|shell|console|zsh)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)
_CHANGE_FOLDER = compile_lazily(r"\s*cd\s+(?P<folder>[\w./-]+)\s*&&\s*")
_PATCH_PATH = compile_lazily(
    r"^(\*\*\* (?:(?:Add|Update|Delete) File|Move to): )(.+)$", re.MULTILINE
)
_HERE_DOCUMENT = compile_lazily(
    r"""\s*(?:applypatch|apply_patch)\s*<<-?\s*(?P<quote>['"]?)(?P<end>\w+)(?P=quote)[ \t]*\n"""
    r"(?P<patch>.*?\n)(?P=end)\s*",
    re.DOTALL,
)


def read_command(command: Any) -> Any:
    """The command line; what is neither a text nor a list of texts stays as it is."""
    if isinstance(command, list) and command and all(isinstance(one, str) for one in command):
        is_shell = len(command) == 3 and PurePath(command[0]).name in _SHELLS
        if is_shell and command[1] in _SHELL_OPTIONS:
            return command[2]
        # One element is a whole command line; several are its words.
        return command[0] if len(command) == 1 else shlex.join(command)
    if not isinstance(command, str):
        return command
    if command.lstrip()[:1] == "[":
        return _read_list(command)
    fence = _FENCE.fullmatch(command)
    plain = fence.group(1) if fence else command
    return plain.removeprefix("$ ")


def _read_list(command: str) -> str:
    """The command of a list that was written as text; `[ -f x ]` is a command itself."""
    import json

    try:
        words = json.loads(command)
    except (ValueError, RecursionError):
        return command
    read = read_command(words) if isinstance(words, list) else command
    return read if isinstance(read, str) else command


def read_patch(command: Any, folder: str = "") -> str | None:
    """The patch of `apply_patch <<'EOF' ... EOF` or `apply_patch '...'`, and of nothing else. Its
    paths start from `folder`, and from that of a `cd` before it."""
    if isinstance(command, list) and len(command) == 2:
        name, patch = command
        is_patch = name in ("apply_patch", "applypatch") and isinstance(patch, str)
        return _move_paths(patch, folder) if is_patch else None
    line = read_command(command)
    if not isinstance(line, str):
        return None
    change = _CHANGE_FOLDER.match(line)
    if change is not None:
        line, folder = line[change.end() :], join(folder, change["folder"])
    found = _find_patch(line)
    return _move_paths(found, folder) if found is not None else None


def _move_paths(patch: str, folder: str) -> str:
    """The patch with paths that start from `folder`."""
    if not folder:
        return patch
    return _PATCH_PATH.sub(lambda m: m.group(1) + join(folder, m.group(2).strip()), patch)


def _find_patch(line: str) -> str | None:
    if not line.lstrip().startswith(("apply_patch", "applypatch")):
        return None
    document = _HERE_DOCUMENT.fullmatch(line if line.endswith("\n") else f"{line}\n")
    if document is not None:
        # Without quotes the shell would expand `$x`: then the text is not the patch.
        is_plain = document["quote"] or not re.search(r"[$`\\]", document["patch"])
        return document["patch"] if is_plain else None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    is_plain = len(words) == 2 and re.match(r"\s*\w+\s+'[^']*'\s*\Z", line) is not None
    return words[1] if is_plain else None
