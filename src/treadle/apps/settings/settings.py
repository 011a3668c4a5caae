"""Reads the settings from several sources and records the origin of each value.

    defaults < ~/.claude/settings.json < ~/.treadle/config.toml < .claude/settings.json
        < .treadle/config.toml < TREADLE_* < flags

The project's files are read only in a trusted folder, and may only narrow. An unknown key of our
own files or a value of the wrong kind is a ConfigError with file and line. Not permission rules:
those are in policy/ruleset/rules_file.py. Used by assembly and by the hosts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.apps.settings.claude_settings import (
    BYPASS_OF_CLAUDE_CODE,
    PERMISSION_MODES,
    ClaudeSettings,
    project_settings_files,
    read_claude_settings,
    user_settings_file,
)
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.lib.text.text import suggest

SettingKind = Literal[
    "text",
    "effort",
    "size",
    "integer",
    "count",
    "number",
    "seconds",
    "boolean",
    "choice",
    "list",
    "table",
]
# How a project may change a value: to a smaller number, to an earlier choice, to `false`, or never.
NarrowingRule = Literal["smaller", "earlier", "off", "never"]


class Setting(msgspec.Struct, frozen=True):
    """One setting: `max_turns` in a file, TREADLE_MAX_TURNS, --max-turns."""

    name: str
    kind: SettingKind
    help: str
    choices: tuple[str, ...] = ()
    narrowing: NarrowingRule = "never"

    @property
    def variable(self) -> str:
        return f"TREADLE_{self.name.upper()}"


# Choices are ordered from narrow to wide.
SETTINGS: tuple[Setting, ...] = (
    Setting(
        "model", "text", "model name (see `treadle models`); comma-separated names are fallbacks"
    ),
    Setting("small_model", "text", "model that summarizes long sessions (default: the model)"),
    Setting(
        "tool_summaries", "boolean", "small_model sums up each round of tools in a line", (), "off"
    ),
    Setting(
        "assist",
        "boolean",
        "the engine helps small embedded models with choices, answers and repairs, and says so",
        (),
        "off",
    ),
    Setting(
        "thinking",
        "effort",
        "reasoning effort, also a number of tokens; auto: what the model's maker recommends",
        ("auto", "none", "minimal", "low", "medium", "high", "xhigh", "max"),
    ),
    Setting(
        "compact_at",
        "size",
        "compact when the conversation has this many tokens, or this share of the window: 300000, "
        "60% (default: 85% of the room for it, at most 400,000)",
    ),
    Setting(
        "permission_mode",
        "choice",
        "which calls run without approval",
        ("plan", "ask", "accept-edits", "auto", "bypass"),
        "earlier",
    ),
    Setting("sandbox", "choice", "sandbox for commands", ("required", "auto", "off"), "earlier"),
    Setting("network", "boolean", "allow network access in the sandbox", (), "off"),
    Setting(
        "command_memory",
        "integer",
        "memory of a command in MB (default: three quarters of the machine's)",
        (),
        "smaller",
    ),
    Setting("max_turns", "integer", "limit of tool rounds per turn", (), "smaller"),
    Setting(
        "max_cost",
        "number",
        "limit of the cost of a session, in USD (the default is only for -p)",
        (),
        "smaller",
    ),
    Setting("max_time", "seconds", "limit of the time of a turn (90, 5m, 2h)", (), "smaller"),
    Setting("max_tokens", "integer", "limit of the tokens of a session", (), "smaller"),
    Setting("goal_attempts", "integer", "how often the --until command may fail", (), "smaller"),
    Setting("retry_attempts", "count", "attempts of one model call, the first included"),
    Setting("retry_max_wait", "seconds", "longest wait between two attempts (default: 5m)"),
    Setting("connect_timeout", "seconds", "wait for a connection to the model (default: 15)"),
    Setting("first_byte_timeout", "seconds", "wait for the headers of a reply (default: 5m)"),
    Setting(
        "first_content_timeout",
        "seconds",
        "wait for the first content of a reply that sends only pings (default: 10m)",
    ),
    Setting("idle_timeout", "seconds", "longest silence inside a reply (default: 2m or 10m)"),
    Setting("total_timeout", "seconds", "longest time of one reply (default: 1h)"),
    Setting(
        "web_search",
        "text",
        "web search: `provider` for the provider's own, or the address of a SearXNG server",
    ),
    Setting("telemetry", "boolean", "send spans to an OpenTelemetry collector", (), "off"),
    Setting("server_wait", "seconds", "how long the first request waits for MCP servers to start"),
    Setting("background_wait", "seconds", "how long -p waits for background agents at its end"),
    Setting(
        "cursor_gemini_files",
        "boolean",
        "read the instructions of Cursor and Gemini, too (.cursor/rules, .cursorrules, GEMINI.md)",
        (),
        "off",
    ),
    Setting("append_system_prompt", "text", "text added to the system prompt"),
    Setting("add_dir", "list", "more folders the agent may work in"),
    Setting(
        "theme",
        "choice",
        "colours of the terminal UI",
        ("dark", "light", "dark-contrast", "light-contrast", "none"),
    ),
    Setting(
        "notify",
        "choice",
        "when the terminal UI waits or ends: a desktop notification where the terminal has one "
        "(auto), the bell, or nothing",
        ("off", "bell", "auto"),
    ),
    Setting(
        "reduced_motion",
        "choice",
        "nothing moves or blinks in the terminal UI; auto: as the desktop says",
        ("auto", "on", "off"),
    ),
    Setting(
        "screen",
        "choice",
        "full, or inline: the conversation stays in the terminal's scrollback",
        ("full", "inline"),
    ),
    Setting("vim_keys", "boolean", "vim keys in the prompt of the terminal UI"),
    Setting("aliases", "table", "your own names for models"),
    Setting("checkers", "table", "commands that check changed files, by file name"),
)
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
# Dangerous: only for one run, never from a file or a variable.
FLAG_ONLY_VALUES = {"permission_mode": ("bypass",)}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force. `origins` has the source of each value that is not a default."""

    model: str = ""
    small_model: str = ""
    tool_summaries: bool = False
    assist: bool = True
    thinking: str = "auto"
    compact_at: str = ""
    permission_mode: Literal["plan", "ask", "accept-edits", "auto", "bypass"] = "ask"
    sandbox: Literal["required", "auto", "off"] = "auto"
    network: bool = False
    command_memory: int | None = None
    max_turns: int = 200
    max_cost: float | None = 5.0
    max_time: float | None = None
    max_tokens: int | None = None
    goal_attempts: int = 10
    retry_attempts: int | None = None
    retry_max_wait: float | None = None
    connect_timeout: float | None = None
    first_byte_timeout: float | None = None
    first_content_timeout: float | None = None
    idle_timeout: float | None = None
    total_timeout: float | None = None
    web_search: str = ""  # empty: none
    telemetry: bool = False
    server_wait: float = 10.0
    background_wait: float = 600.0
    cursor_gemini_files: bool = False
    append_system_prompt: str = ""
    add_dir: tuple[str, ...] = ()
    # empty: detect from the terminal
    theme: Literal["", "dark", "light", "dark-contrast", "light-contrast", "none"] = ""
    notify: Literal["off", "bell", "auto"] = "auto"
    reduced_motion: Literal["auto", "on", "off"] = "auto"
    screen: Literal["full", "inline"] = "full"
    vim_keys: bool = False
    aliases: dict[str, Any] = {}
    checkers: dict[str, Any] = {}
    env: dict[str, str] = {}  # for commands; of ~/.claude/settings.json
    origins: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    @property
    def model_timeouts(self) -> dict[str, float]:
        """The timeouts of model calls that are set, by the names of `models.Timeouts`."""
        names = ("connect", "first_byte", "first_content", "idle", "total")
        values = {name: getattr(self, f"{name}_timeout") for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def format(self, name: str) -> str:
        """The value of a setting as text for the user; without one, the engine has its own."""
        value = getattr(self, name)
        if value is None and name.startswith(("retry_", "connect_", "first_", "idle_", "total_")):
            return "-"
        if value is None and name == "command_memory":
            from treadle.workspace.sandbox.limits import get_default_memory

            return str(get_default_memory() >> 20)
        return format_value(value)

    def origin(self, name: str) -> str:
        return self.origins.get(name, "default")


def treadle_home() -> Path:
    """The user's folder for settings, rules and trust: ~/.treadle."""
    return Path.home() / ".treadle"


def load_settings(
    folder: Path,
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    is_trusted: Callable[[], bool] | None = None,
    format_flag: Callable[[str], str] = lambda name: "--" + name.replace("_", "-"),
) -> Settings:
    """Load the settings for a folder. `flags` maps names to values, which are checked as well;
    `format_flag` is how such a name is written in messages."""
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    notes: list[str] = []

    def override(source: Mapping[str, tuple[object, str]]) -> None:
        for name, (value, origin) in source.items():
            values[name], origins[name] = value, origin

    claude = read_claude_settings(user_settings_file(), None)
    if claude is not None:
        values["env"] = claude.env
        notes += claude.notes
        override(_list_user_values(claude, env))
    override(_read_file(treadle_home() / "config.toml"))
    _apply_claude_project(folder, values, origins, notes, is_trusted, env)
    _apply_project_file(folder, values, origins, notes, is_trusted)
    override(_read_environment(env, notes))
    override(_read_flags(flags or {}, format_flag))
    return msgspec.convert({**values, "origins": origins, "notes": notes}, Settings, strict=False)


# ------------------------------------------------------------------ files


def project_config_file(folder: Path) -> Path:
    return folder / ".treadle" / "config.toml"


def symlink_boundary(folder: Path) -> Path | None:
    """The directory that symlinks in project files must not escape.

    None in the home folder: those files belong to the user, who may use symlinks.
    """
    is_home = os.path.realpath(folder / ".treadle") == os.path.realpath(treadle_home())
    return None if is_home else folder


def _read_file(file: Path, within: Path | None = None) -> dict[str, tuple[object, str]]:
    """The values of a file, each with its origin `file:line`; empty if there is no file."""
    try:
        text = read_text(file, within=within)
    except FileNotFoundError:
        return {}
    import tomllib

    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(_format_toml_error(file, text, str(error))) from error
    values: dict[str, tuple[object, str]] = {}
    for name, value in parsed.items():
        where = f"{file}:{_find_line(text, name)}"
        setting = SETTINGS_BY_NAME.get(name)
        if setting is None:
            raise ConfigError(f"{where}: {format_unknown_setting(name)}")
        values[name] = (_validate(setting, value, where, by_flag=False), where)
    for alias, target in parsed.get("aliases", {}).items():
        if not isinstance(target, str | dict):
            where = f"{file}:{_find_line(text, alias)}"
            expected = "it must be the name of a model (a string), or a table"
            raise ConfigError(f"{where}: the alias {alias} cannot be {target!r}; {expected}")
    return values


def _format_toml_error(file: Path, text: str, problem: str) -> str:
    at = re.search(r"\(at line (\d+), column (\d+)\)", problem)
    line = at.group(1) if at else str(text.count("\n") + 1)
    message = re.sub(r" \(at .*\)$", "", problem)
    return f"{file}:{line}: not TOML: {message}"


def _find_line(text: str, name: str) -> int:
    spelled = re.escape(name)
    at = re.search(rf"^[ \t]*(\[+[ \t]*)?[\"']?{spelled}[\"']?[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, at.start()) + 1 if at else 1


def _list_user_values(
    claude: ClaudeSettings, env: Mapping[str, str]
) -> dict[str, tuple[object, str]]:
    """The values of the user's file for Claude Code."""
    model = claude.model if _has_anthropic_key(env) else ""
    found: dict[str, object] = {
        "permission_mode": claude.permission_mode,
        "model": model,
        "add_dir": claude.added_folders,
    }
    return {name: (value, str(claude.file)) for name, value in found.items() if value}


def _apply_claude_project(
    folder: Path,
    values: dict[str, Any],
    origins: dict[str, str],
    notes: list[str],
    is_trusted: Callable[[], bool] | None,
    env: Mapping[str, str],
) -> None:
    """Apply the mode, if it narrows, and the model, if the user has chosen none. The folders and
    the environment need an approval: see assembly/extensions.py."""
    if symlink_boundary(folder) is None:
        return  # in the home folder these are the user's files
    for file in project_settings_files(folder):
        if not file.exists():
            continue
        if is_trusted is None or not is_trusted():
            notes.append(
                f"of {file} only the ask and deny rules are used: the folder is not trusted "
                "(run `treadle trust`)"
            )
            continue
        claude = read_claude_settings(file, folder)
        if claude is None:
            continue
        notes += claude.notes
        mode, setting = claude.permission_mode, SETTINGS_BY_NAME["permission_mode"]
        if mode and is_narrower(setting, mode, values.get("permission_mode", "ask")):
            values["permission_mode"], origins["permission_mode"] = mode, str(file)
        elif mode:
            notes.append(f"{file}: defaultMode is ignored: a project may only narrow settings")
        is_free = "model" not in values or origins["model"] == str(
            project_settings_files(folder)[0]
        )
        if claude.model and is_free and _has_anthropic_key(env):
            values["model"], origins["model"] = claude.model, str(file)


def _has_anthropic_key(env: Mapping[str, str]) -> bool:
    return bool(env.get("ANTHROPIC_API_KEY", "").strip())


def _apply_project_file(
    folder: Path,
    values: dict[str, Any],
    origins: dict[str, str],
    notes: list[str],
    is_trusted: Callable[[], bool] | None,
) -> None:
    """Apply the values of the project file that narrow what the agent may do."""
    file, user_file = project_config_file(folder), treadle_home() / "config.toml"
    if not file.exists() or os.path.realpath(file) == os.path.realpath(user_file):
        return
    if is_trusted is None or not is_trusted():
        notes.append(f"{file} is ignored: the folder is not trusted (run `treadle trust`)")
        return
    for name, (value, where) in _read_file(file, symlink_boundary(folder)).items():
        setting = SETTINGS_BY_NAME[name]
        if is_narrower(setting, value, values.get(name, getattr(Settings(), name))):
            values[name], origins[name] = value, where
        else:
            notes.append(f"{where}: {name} is ignored: a project may only narrow settings")


def is_narrower(setting: Setting, new: Any, old: Any) -> bool:
    match setting.narrowing:
        case "smaller":
            return old is None or new <= old
        case "earlier":
            return setting.choices.index(new) <= setting.choices.index(old)
        case "off":
            return not new
        case _:
            return False


# ------------------------------------------------------------------ environment and flags


def _read_environment(env: Mapping[str, str], notes: list[str]) -> dict[str, tuple[object, str]]:
    known = {setting.variable: setting for setting in SETTINGS if setting.kind != "table"}
    values: dict[str, tuple[object, str]] = {}
    for variable in sorted(name for name in env if name.startswith("TREADLE_")):
        setting, text = known.get(variable), env[variable].strip()
        if setting is None:
            hint = suggest_name(variable, known)
            notes.append(f"unknown environment variable {variable}{hint}")
        elif text:
            values[setting.name] = (_validate(setting, text, variable, by_flag=False), variable)
    return values


def _read_flags(
    flags: Mapping[str, object], format_flag: Callable[[str], str]
) -> dict[str, tuple[object, str]]:
    values: dict[str, tuple[object, str]] = {}
    for name, value in flags.items():
        flag = format_flag(name)
        values[name] = (_validate(SETTINGS_BY_NAME[name], value, flag, by_flag=True), flag)
    return values


# ------------------------------------------------------------------ values


def parse_setting(name: str, values: list[str]) -> object:
    """The value of a setting from words, as for the user's file; a list takes several."""
    setting = SETTINGS_BY_NAME[name]
    if setting.kind == "table":
        raise ConfigError(f"{name} is a table; edit {treadle_home() / 'config.toml'} instead")
    if setting.kind != "list" and len(values) != 1:
        raise ConfigError(f"{name} takes one value; quote a value that has spaces")
    if not any(value.strip() for value in values):
        raise ConfigError(f"{name} needs a value; `treadle config {name} --unset` removes it")
    value: object = values if setting.kind == "list" else values[0]
    return _validate(setting, value, "", by_flag=False)


def find_missing_folders(settings: Settings, folder: Path) -> list[str]:
    """The folders of `add_dir` that do not exist, seen from a folder."""
    return [one for one in settings.add_dir if not Path(folder, one).expanduser().is_dir()]


def _validate(setting: Setting, value: object, where: str, *, by_flag: bool) -> object:
    """The value converted to its kind; a ConfigError says what is expected."""
    if setting.name == "permission_mode" and isinstance(value, str):
        value = PERMISSION_MODES.get(value, value)
    converted, start = _convert(setting, value), f"{where}: " if where else ""
    if converted is None:
        expected = (_EXPECTED.get(setting.kind) or "one of {}").format(", ".join(setting.choices))
        subject = where if by_flag else f"{start}{setting.name}"
        hint = "; here it is bypass" if value == BYPASS_OF_CLAUDE_CODE else ""
        raise ConfigError(f"{subject} cannot be {value!r}; it must be {expected}{hint}")
    if not by_flag and converted in FLAG_ONLY_VALUES.get(setting.name, ()):
        flag = "--" + setting.name.replace("_", "-")
        raise ConfigError(f"{start}{converted} can be set only by the flag {flag} {converted}")
    return converted


_EXPECTED: Mapping[SettingKind, str] = {
    "effort": "one of {}, or a number of tokens",
    "size": "a share such as 60%, or a number of tokens above 1,000",
    "integer": "a whole number, 0 or more",
    "count": "a whole number, 1 or more",
    "number": "a number, 0 or more",
    "seconds": "a time above 0, such as 90, 5m or 2h",
    "boolean": "true or false",
    "list": "a list of strings",
    "table": "a table",
    "text": "a string",
}


def _convert(setting: Setting, value: object) -> object | None:
    match setting.kind:
        case "text":
            return value if isinstance(value, str) else None
        case "choice":
            return value if value in setting.choices else None
        case "effort":
            text = str(value)
            return text if text in setting.choices or text.isdecimal() else None
        case "size":
            return str(value) if parse_size(str(value)) is not None else None
        case "boolean":
            return _parse_bool(value)
        case "integer":
            number = _parse_number(value)
            return int(number) if number is not None and number == int(number) else None
        case "count":
            number = _parse_number(value)
            return int(number) if number and number == int(number) else None
        case "number":
            return _parse_number(value)
        case "seconds":
            return _parse_seconds(value)
        case "list":
            if isinstance(value, str):
                return [value]
            is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
            return value if is_list else None
        case "table":
            return value if isinstance(value, dict) else None


def parse_size(text: str) -> float | None:
    """A share as a number of at most 1, a number of tokens as it is; None if it is neither."""
    number = _parse_number(text.strip().removesuffix("%"))
    if number is None:
        return None
    if text.strip().endswith("%"):
        return number / 100 if 1 <= number <= 100 else None
    return number if number > 1_000 else None


def _parse_number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(str(value).replace("_", ""))
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None


_BOOLEANS = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_SECONDS_PER_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def _parse_seconds(value: object) -> float | None:
    text = str(value).strip() if not isinstance(value, bool) else ""
    unit = text[-1:] if text[-1:] in ("s", "m", "h") else ""
    number = _parse_number(text.removesuffix(unit))
    return None if not number else number * _SECONDS_PER_UNIT[unit]


def _parse_bool(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return _BOOLEANS.get(str(value).lower())


def format_value(value: object) -> str:
    """A value as text for the user."""
    if value is None:
        return "no limit"
    if value == "" or value == () or value == {}:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(value)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def format_unknown_setting(name: str) -> str:
    return f"unknown setting {name!r}{suggest_name(name, SETTINGS_BY_NAME)}"


def suggest_name(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?`, or "" if no known name is near."""
    near = suggest(name, known)
    return f"; did you mean {near!r}?" if near else ""
