"""Claude Code's settings files, read as they are.

    ~/.claude/settings.json            of the user
    .claude/settings.json              of a project
    .claude/settings.local.json        of a project, of this user

This module reads the mode, the model, the added folders, the environment and the status line. The
rules of the same files are read by permissions/ruleset/rules_file.py, the hooks by extensions.py. A
key that means nothing here is named in a note, and is never an error; a file that is not JSON is
one, as it may hold deny rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_json
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.redaction import is_secret
from treadle.lib.text.word_set import word_set

# Their names of modes, and the mode of ours that allows no more.
PERMISSION_MODES = {
    "default": "ask",
    "manual": "ask",
    "dontAsk": "ask",
    "acceptEdits": "accept-edits",
    "plan": "plan",
    "auto": "auto",
}
BYPASS_OF_CLAUDE_CODE = "bypassPermissions"  # not translated: bypass is written as it is
_USED_KEYS = word_set(
    "$schema permissions hooks disableAllHooks env model mcpServers statusLine outputStyle"
)
_USED_PERMISSIONS = frozenset({"allow", "ask", "deny", "defaultMode", "additionalDirectories"})
_MODEL = compile_lazily(r"(opus|sonnet|haiku|claude-[\w.-]+)(\[\w+\])?")
# They change which program runs, or what is loaded into it.
_LOADER_VARIABLE = compile_lazily(
    r"PATH|HOME|SHELL|IFS|ENV|BASH_ENV|PROMPT_COMMAND|(LD|DYLD|GIT|BASH_FUNC)_.*"
)
_VARIABLE_NAME = compile_lazily(r"[A-Za-z_]\w*", re.ASCII)


class ClaudeSettings(msgspec.Struct, frozen=True):
    """What one file says, in our words. `notes` are about what is not used."""

    file: Path
    permission_mode: str = ""
    model: str = ""
    added_folders: tuple[str, ...] = ()
    env: dict[str, str] = {}
    status_line: str = ""
    output_style: str = ""
    notes: tuple[str, ...] = ()


def user_settings_file() -> Path:
    return Path.home() / ".claude" / "settings.json"


def project_settings_files(folder: Path) -> tuple[Path, Path]:
    return folder / ".claude" / "settings.json", folder / ".claude" / "settings.local.json"


def read_claude_settings(file: Path, within: Path | None) -> ClaudeSettings | None:
    """The settings of a file; None without a file. Symlinks out of `within` are not followed."""
    try:
        settings, _ = read_json(file, within=within)
    except FileNotFoundError:
        return None
    if not isinstance(settings, dict):
        raise ConfigError(f"{file}:1: settings must be an object")
    permissions = settings.get("permissions")
    if not isinstance(permissions, dict):
        permissions = {}
    unused = [
        *sorted(set(settings) - _USED_KEYS),
        *(f"permissions.{key}" for key in sorted(set(permissions) - _USED_PERMISSIONS)),
    ]
    notes = [f"not used here: {', '.join(unused)}"] if unused else []
    return ClaudeSettings(
        file,
        _read_mode(permissions.get("defaultMode"), notes),
        _read_model(settings.get("model"), notes),
        _read_folders(permissions.get("additionalDirectories"), notes),
        _read_environment(settings.get("env"), notes),
        _read_status_line(settings.get("statusLine"), notes),
        str(settings.get("outputStyle") or ""),
        tuple(f"{file}: {note}" for note in notes),
    )


def _read_mode(value: object, notes: list[str]) -> str:
    mode = PERMISSION_MODES.get(str(value), "")
    if value == BYPASS_OF_CLAUDE_CODE:
        notes.append("permissions.defaultMode is not used: bypass needs --permission-mode bypass")
    elif value is not None and not mode:
        notes.append(f"permissions.defaultMode is not used: {value!r} is not known here")
    return mode


def translate_model(name: str) -> str:
    """A name of Claude Code for a model as we write it; "" if it means nothing here."""
    known = _MODEL.fullmatch("opus" if name == "opusplan" else name)
    if known is None:
        return ""
    return f"anthropic/{known[1]}" if known[1].startswith("claude") else known[1]


def _read_model(value: object, notes: list[str]) -> str:
    if value in (None, "", "default"):
        return ""
    name = translate_model(str(value))
    if not name:
        notes.append(f"model is not used: {value!r} is not known here; see `treadle models`")
    return name


def _read_folders(value: object, notes: list[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        notes.append("permissions.additionalDirectories is not used: it must be a list of folders")
        return ()
    return tuple(value)


def _read_status_line(value: object, notes: list[str]) -> str:
    if value is None:
        return ""
    command = value.get("command") if isinstance(value, Mapping) else None
    if not isinstance(command, str) or not command.strip():
        notes.append("statusLine is not used: it must be an object with a command")
        return ""
    return command


def _read_environment(value: object, notes: list[str]) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        notes.append("env is not used: it must be an object")
        return {}
    env: dict[str, str] = {}
    withheld: list[str] = []
    for name, given in value.items():
        text = _to_text(given)
        if text is None or not _VARIABLE_NAME.fullmatch(name) or "\0" in text:
            notes.append(f"env.{name} is not used: it must be a name with a text")
        elif is_secret(name, text) or _LOADER_VARIABLE.fullmatch(name):
            withheld.append(name)
        else:
            env[name] = text
    if withheld:
        names = ", ".join(withheld)
        notes.append(f"commands do not get {names}: secrets, and what changes which program runs")
    return env


def _to_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None
