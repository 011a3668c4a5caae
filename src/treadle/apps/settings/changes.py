"""Changes a setting in the user's file and says what it was, for `/config KEY VALUE`.

The value is checked first; nothing is written if it is wrong. Used by conversation/session.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from treadle.apps.settings.settings import (
    SETTINGS_BY_NAME,
    Settings,
    format_unknown_setting,
    format_value,
    parse_setting,
    treadle_home,
)
from treadle.core.errors import ConfigError
from treadle.lib.text.text import shorten_home

UNSET = "--unset"


class SettingChange(NamedTuple):
    """`value` None removes it from the file; `written` is what the file had."""

    name: str
    value: object
    written: object
    before: str
    before_origin: str


def plan_setting_change(settings: Settings, arguments: str) -> SettingChange:
    """`max_cost 10`, `theme --unset`; ConfigError if the name or the value is wrong."""
    from treadle.apps.settings.writer import read_written_value  # only for a change

    name, *words = arguments.split()
    name = find_setting(name)
    is_list = SETTINGS_BY_NAME[name].kind == "list"
    values = words if is_list else [_strip_quotes(arguments.split(None, 1)[1].strip())]
    value = None if words == [UNSET] else parse_setting(name, values)
    written = read_written_value(name)
    return SettingChange(name, value, written, settings.format(name), settings.origin(name))


def _strip_quotes(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def find_setting(name: str) -> str:
    """The name of a setting, also when it is spelled as its flag; ConfigError if there is none."""
    plain = name.removeprefix("--").replace("-", "_")
    if plain not in SETTINGS_BY_NAME:
        raise ConfigError(format_unknown_setting(name))
    return plain


def write_change(change: SettingChange) -> Path:
    from treadle.apps.settings.writer import write_setting

    return write_setting(change.name, change.value)


def revert_change(change: SettingChange) -> None:
    from treadle.apps.settings.writer import write_setting

    write_setting(change.name, change.written)


def describe_setting(settings: Settings, name: str) -> str:
    """One setting: its value, where it was set, what it means and may be."""
    setting = SETTINGS_BY_NAME[find_setting(name)]
    choices = f" ({', '.join(setting.choices)})" if setting.choices else ""
    value, origin = settings.format(setting.name), settings.origin(setting.name)
    change = f"/config {setting.name} VALUE changes it, /config {setting.name} {UNSET} removes it"
    if setting.kind == "table":
        change = f"its entries are changed in {shorten_home(treadle_home() / 'config.toml')}"
    return f"{setting.name} = {value}   set by: {origin}\n{setting.help}{choices}\n{change}"


def describe_change(change: SettingChange, file: Path, load: Callable[[], Settings]) -> str:
    """What was written where, what it was before, and what holds here if that is not the same."""
    settings = load()
    now = settings.format(change.name)
    was = f"it was {change.before} ({change.before_origin})"
    shown = shorten_home(file)
    if change.value is None:
        return f"{change.name} is removed from {shown}; {was}, it is now {now}"
    wanted = format_value(change.value)
    line = f"{change.name} = {wanted} is written to {shown}; {was}"
    is_other = format_value(getattr(settings, change.name)) != wanted
    is_other = is_other and now != wanted
    origin = settings.origin(change.name)
    return f"{line}\nhere it is {now}: {origin} decides" if is_other else line
