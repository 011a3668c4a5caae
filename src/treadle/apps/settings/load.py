"""Reads the settings from their sources and records the origin of each value.

    defaults < ~/.claude/settings.json < ~/.treadle/config.toml < .claude/settings.json
        < .treadle/config.toml < TREADLE_* < flags

The project's files are read only in a trusted folder, and may only narrow; so does the managed
policy, which nothing overrides (managed_policy.py). An unknown key of our own files or a value of
the wrong kind is a ConfigError with file and line. settings.py has the table. Used by assembly and
by the hosts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from treadle.apps.settings.claude_settings import (
    ClaudeSettings,
    project_settings_files,
    read_claude_settings,
    user_settings_file,
)
from treadle.apps.settings.managed_policy import apply_policy
from treadle.apps.settings.settings import (
    SETTINGS,
    SETTINGS_BY_NAME,
    Settings,
    check_value,
    find_key_line,
    format_unknown_setting,
    is_narrower,
    parse_toml,
    suggest_name,
    treadle_home,
)
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text

SettingValues = dict[str, tuple[object, str]]  # by name, with the origin
# Variables of ours that are no settings: of cloud/google.py, and what hooks are given.
OTHER_VARIABLES = ("TREADLE_VERTEX_TOKEN_COMMAND", "TREADLE_PROJECT_DIR")


def load_settings(
    folder: Path,
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    is_trusted: Callable[[], bool] = lambda: False,
    format_flag: Callable[[str], str] = lambda name: SETTINGS_BY_NAME[name].option,
) -> Settings:
    """Load the settings for a folder. `flags` maps names to values, which are checked as well;
    `format_flag` is how such a name is written in messages."""
    env = os.environ if environ is None else environ
    notes: list[str] = []
    values: SettingValues = {}
    user = read_claude_settings(user_settings_file(), None)
    if user is not None:
        notes += user.notes
        values |= _list_claude_values(user, env)
    values |= read_config_file(treadle_home() / "config.toml")
    _narrow_by_claude_files(values, folder, notes, is_trusted, env)
    _narrow_by_project_file(values, folder, notes, is_trusted)
    values |= _read_environment(env, notes)
    for name, value in (flags or {}).items():
        flag = format_flag(name)
        values[name] = check_value(SETTINGS_BY_NAME[name], value, flag, by_flag=True), flag
    fields = {name: value for name, (value, _) in values.items()}
    origins = {name: origin for name, (_, origin) in values.items()}
    more = {"env": user.env if user is not None else {}, "origins": origins, "notes": notes}
    return apply_policy(msgspec.convert({**fields, **more}, Settings, strict=False))


# ------------------------------------------------------------------ files


def project_config_file(folder: Path) -> Path:
    return folder / ".treadle" / "config.toml"


def symlink_boundary(folder: Path) -> Path | None:
    """The directory that symlinks in project files must not escape.

    None in the home folder: those files belong to the user, who may use symlinks.
    """
    is_home = os.path.realpath(folder / ".treadle") == os.path.realpath(treadle_home())
    return None if is_home else folder


def read_config_file(file: Path, within: Path | None = None) -> SettingValues:
    """The values of a file, each with its origin `file:line`; empty if there is no file."""
    try:
        text = read_text(file, within=within)
    except FileNotFoundError:
        return {}
    parsed = parse_toml(file, text)
    values: SettingValues = {}
    for name, value in parsed.items():
        where = f"{file}:{find_key_line(text, name)}"
        setting = SETTINGS_BY_NAME.get(name)
        if setting is None:
            raise ConfigError(f"{where}: {format_unknown_setting(name)}")
        values[name] = check_value(setting, value, where, by_flag=False), where
    if "keys" in parsed:
        from treadle.apps.settings.key_actions import check_keys

        check_keys(parsed["keys"], lambda name: f"{file}:{find_key_line(text, name)}")
    for alias, target in parsed.get("aliases", {}).items():
        if not isinstance(target, str | dict):
            where = f"{file}:{find_key_line(text, alias)}"
            expected = "it must be the name of a model (a string), or a table"
            raise ConfigError(f"{where}: the alias {alias} cannot be {target!r}; {expected}")
    return values


def _list_claude_values(claude: ClaudeSettings, env: Mapping[str, str]) -> SettingValues:
    """The values of a file for Claude Code; its model only if there is a key for it."""
    has_key = bool(env.get("ANTHROPIC_API_KEY", "").strip())
    found: dict[str, object] = {
        "permission_mode": claude.permission_mode,
        "model": claude.model if has_key else "",
        "add_dir": claude.added_folders,
        "status_line": claude.status_line,
        "output_style": claude.output_style,
    }
    return {name: (value, str(claude.file)) for name, value in found.items() if value}


def _narrow_by_claude_files(
    values: SettingValues,
    folder: Path,
    notes: list[str],
    is_trusted: Callable[[], bool],
    env: Mapping[str, str],
) -> None:
    """Apply the mode, if it narrows; the model and the style, if the user has chosen none. The
    folders, the environment and the status line need an approval: see extensions.py."""
    if symlink_boundary(folder) is None:
        return  # in the home folder these are the user's files
    files = [file for file in project_settings_files(folder) if file.exists()]
    for file in files:
        if not is_trusted():
            notes.append(
                f"of {file} only the ask and deny rules are used: the folder is not trusted "
                "(run `treadle trust`)"
            )
            continue
        claude = read_claude_settings(file, folder)
        if claude is None:
            continue
        notes += claude.notes
        found = _list_claude_values(claude, env)
        for name in ("add_dir", "status_line"):  # they need an approval
            found.pop(name, None)
        for name in ("model", "output_style"):
            is_free = values.get(name, (None, str(files[0])))[1] == str(files[0])
            values |= {name: found[name]} if is_free and name in found else {}
        mode = {name: one for name, one in found.items() if name == "permission_mode"}
        if _narrow(values, mode):
            notes.append(f"{file}: defaultMode is ignored: a project may only narrow settings")


def _narrow_by_project_file(
    values: SettingValues, folder: Path, notes: list[str], is_trusted: Callable[[], bool]
) -> None:
    file = project_config_file(folder)
    is_user_file = os.path.realpath(file) == os.path.realpath(treadle_home() / "config.toml")
    if not file.exists() or is_user_file:
        return
    if not is_trusted():
        notes.append(f"{file} is ignored: the folder is not trusted (run `treadle trust`)")
        return
    for name, where in _narrow(values, read_config_file(file, symlink_boundary(folder))):
        notes.append(f"{where}: {name} is ignored: a project may only narrow settings")


def _narrow(values: SettingValues, project: SettingValues) -> list[tuple[str, str]]:
    """Apply the values of a project that narrow what the agent may do; the names and origins of
    the others."""
    ignored: list[tuple[str, str]] = []
    for name, (value, where) in project.items():
        setting = SETTINGS_BY_NAME[name]
        if is_narrower(setting, value, values.get(name, (setting.default, ""))[0]):
            values[name] = value, where
        elif name == "network" and value is not True:
            continue  # hosts that it adds need an approval: see extensions.py
        else:
            ignored.append((name, where))
    return ignored


def _read_environment(env: Mapping[str, str], notes: list[str]) -> SettingValues:
    known = {setting.variable: setting for setting in SETTINGS if setting.kind != "table"}
    values: SettingValues = {}
    for variable in sorted(name for name in env if name.startswith("TREADLE_")):
        setting, text = known.get(variable), env[variable].strip()
        if variable in OTHER_VARIABLES:
            continue
        if setting is None:
            hint = suggest_name(variable, known)
            notes.append(f"unknown environment variable {variable}{hint}")
        elif text:
            values[setting.name] = check_value(setting, text, variable, by_flag=False), variable
    return values
