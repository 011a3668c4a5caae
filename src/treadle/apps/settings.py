"""Settings: what the user wants, from five places, each value with its origin.

    defaults < ~/.treadle/config.toml < .treadle/config.toml < TREADLE_* < flags

The project's file counts only in a trusted folder, and may only narrow. An unknown key or a value
of the wrong kind is an error with file and line. Permission rules are kept elsewhere
(policy/ruleset/rules_file.py). Above: wiring and the hosts. This reads; it decides nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text

SettingKind = Literal["text", "whole", "number", "seconds", "switch", "word", "texts", "table"]
# How a project may change a value: to a smaller one, to an earlier word, to `false`, or not at all.
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


# Words stand in the order from narrow to wide.
SETTINGS: tuple[Setting, ...] = (
    Setting("model", "text", "the model, as in `treadle models`; several by commas stand in"),
    Setting("small_model", "text", "who writes summaries of long sessions (the model itself)"),
    Setting("thinking", "text", "how much the model reasons: low, medium, high, or tokens"),
    Setting(
        "permission_mode",
        "word",
        "what may happen without a question",
        ("plan", "ask", "accept-edits", "auto", "bypass"),
        "earlier",
    ),
    Setting("sandbox", "word", "walls around commands", ("required", "auto", "off"), "earlier"),
    Setting("network", "switch", "whether sandboxed commands reach the network", (), "off"),
    Setting("max_turns", "whole", "tool rounds a turn", (), "smaller"),
    Setting("max_cost", "number", "USD a session", (), "smaller"),
    Setting("max_time", "seconds", "how long a turn may take (90, 5m, 2h)", (), "smaller"),
    Setting("max_tokens", "whole", "tokens a session", (), "smaller"),
    Setting("goal_attempts", "whole", "how often the command of --until may fail", (), "smaller"),
    Setting("server_wait", "seconds", "how long -p waits for its MCP servers to start"),
    Setting("append_system_prompt", "text", "added to what the model is told first"),
    Setting("add_dir", "texts", "folders beside this one that it may work in"),
    Setting("theme", "word", "the colours of the screen", ("dark", "light", "none")),
    Setting("aliases", "table", "names of your own for models"),
)
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}
# Dangerous enough to be said anew each time.
FLAG_ONLY_VALUES = {"permission_mode": ("bypass",)}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What counts. `origins` says where each value that is no default comes from."""

    model: str = ""
    small_model: str = ""
    thinking: str = ""
    permission_mode: Literal["plan", "ask", "accept-edits", "auto", "bypass"] = "ask"
    sandbox: Literal["required", "auto", "off"] = "auto"
    network: bool = False
    max_turns: int = 200
    max_cost: float | None = 5.0
    max_time: float | None = None
    max_tokens: int | None = None
    goal_attempts: int = 10
    server_wait: float = 10.0
    append_system_prompt: str = ""
    add_dir: tuple[str, ...] = ()
    theme: Literal["", "dark", "light", "none"] = ""  # as the terminal lets us guess
    aliases: dict[str, Any] = {}
    origins: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    def origin(self, name: str) -> str:
        return self.origins.get(name, "default")


def treadle_home() -> Path:
    """The user's own folder: settings, rules, trust."""
    return Path.home() / ".treadle"


def load_settings(
    folder: Path,
    flags: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    is_trusted: Callable[[], bool] | None = None,
) -> Settings:
    """The settings in a folder. `flags` are values by name, read and checked like all others."""
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    notes: list[str] = []

    def take(found: Mapping[str, tuple[object, str]]) -> None:
        for name, (value, origin) in found.items():
            values[name], origins[name] = value, origin

    take(_read_file(treadle_home() / "config.toml"))
    _apply_project_file(folder, values, origins, notes, is_trusted)
    take(_read_environment(env, notes))
    take(_read_flags(flags or {}))
    return msgspec.convert({**values, "origins": origins, "notes": notes}, Settings, strict=False)


# ------------------------------------------------------------------ files


def project_config_file(folder: Path) -> Path:
    return folder / ".treadle" / "config.toml"


def symlink_boundary(folder: Path) -> Path | None:
    """What the folder's own files may not lead out of by a link: the folder itself.

    None at home: there they are the user's own, and may be links as the user likes.
    """
    is_home = os.path.realpath(folder / ".treadle") == os.path.realpath(treadle_home())
    return None if is_home else folder


def _read_file(file: Path, within: Path | None = None) -> dict[str, tuple[object, str]]:
    """The values of a file with their lines; no file means none."""
    try:
        text = read_text(file, within=within)
    except FileNotFoundError:
        return {}
    import tomllib

    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(_format_toml_error(file, text, str(error))) from error
    found: dict[str, tuple[object, str]] = {}
    for name, value in parsed.items():
        where = f"{file}:{_find_line(text, name)}"
        setting = SETTINGS_BY_NAME.get(name)
        if setting is None:
            raise ConfigError(
                f"{where}: no setting is called {name!r}{suggest_name(name, SETTINGS_BY_NAME)}"
            )
        found[name] = (_validate(setting, value, where, by_flag=False), where)
    return found


def _format_toml_error(file: Path, text: str, problem: str) -> str:
    at = re.search(r"\(at line (\d+), column (\d+)\)", problem)
    line = at.group(1) if at else str(text.count("\n") + 1)
    said = re.sub(r" \(at .*\)$", "", problem)
    return f"{file}:{line}: not TOML: {said}"


def _find_line(text: str, name: str) -> int:
    spelled = re.escape(name)
    at = re.search(rf"^[ \t]*(\[+[ \t]*)?[\"']?{spelled}[\"']?[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, at.start()) + 1 if at else 1


def _apply_project_file(
    folder: Path,
    values: dict[str, Any],
    origins: dict[str, str],
    notes: list[str],
    is_trusted: Callable[[], bool] | None,
) -> None:
    """Take from the project's file what makes the agent do less."""
    file = project_config_file(folder)
    if not file.exists() or os.path.realpath(file) == os.path.realpath(
        treadle_home() / "config.toml"
    ):
        return
    if is_trusted is None or not is_trusted():
        notes.append(f"{file} is not read: the folder is not trusted")
        return
    for name, (value, where) in _read_file(file, symlink_boundary(folder)).items():
        setting = SETTINGS_BY_NAME[name]
        if is_narrower(setting, value, values.get(name, getattr(Settings(), name))):
            values[name], origins[name] = value, where
        else:
            notes.append(f"{where}: a project may only narrow; {name} stays as it is")


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
    found: dict[str, tuple[object, str]] = {}
    for variable in sorted(name for name in env if name.startswith("TREADLE_")):
        setting = known.get(variable)
        if setting is not None:
            if env[variable].strip():
                value = _validate(setting, env[variable].strip(), variable, by_flag=False)
                found[setting.name] = (value, variable)
        else:
            notes.append(f"{variable} means nothing{suggest_name(variable, known)}")
    return found


def _read_flags(flags: Mapping[str, object]) -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {}
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        found[name] = (_validate(SETTINGS_BY_NAME[name], value, flag, by_flag=True), flag)
    return found


# ------------------------------------------------------------------ values


def _validate(setting: Setting, value: object, where: str, *, by_flag: bool) -> object:
    """The value in its kind, or a ConfigError that says what is wanted."""
    given = _convert(setting, value)
    if given is None:
        raise ConfigError(f"{where}: {setting.name} is {value!r}; {_describe_expected(setting)}")
    if not by_flag and given in FLAG_ONLY_VALUES.get(setting.name, ()):
        flag = "--" + setting.name.replace("_", "-")
        raise ConfigError(f"{where}: {given} can be chosen only by the flag {flag} {given}")
    return given


def _convert(setting: Setting, value: object) -> object | None:
    match setting.kind:
        case "text":
            return str(value) if isinstance(value, str | int) else None
        case "word":
            return value if value in setting.choices else None
        case "switch":
            return _parse_bool(value)
        case "whole":
            number = _parse_number(value)
            return int(number) if number is not None and number == int(number) else None
        case "number":
            return _parse_number(value)
        case "seconds":
            return _parse_seconds(value)
        case "texts":
            if isinstance(value, str):
                return [value]
            is_texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
            return value if is_texts else None
        case "table":
            return value if isinstance(value, dict) else None


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


def _describe_expected(setting: Setting) -> str:
    match setting.kind:
        case "word":
            return "it has to be one of " + ", ".join(setting.choices)
        case "whole":
            return "it has to be a whole number, 0 or more"
        case "number":
            return "it has to be a number, 0 or more"
        case "seconds":
            return "it has to be a time above 0, such as 90, 5m or 2h"
        case "switch":
            return "it has to be true or false"
        case "texts":
            return "it has to be a list of texts"
        case "table":
            return "it has to be a table"
        case "text":
            return "it has to be a text"


def format_value(value: object) -> str:
    """A value as a person reads it."""
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


def suggest_name(name: str, known: Mapping[str, object]) -> str:
    """`; did you mean …?`, or nothing if nothing is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
