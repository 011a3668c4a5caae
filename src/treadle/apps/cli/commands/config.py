"""`treadle config`: every setting, its value and its source; sets one in the user's file.

Uses settings.py and apps/settings/writer.py. `treadle permissions` shows the rules.
"""

from __future__ import annotations

from pathlib import Path

from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, command, get_current_folder, print_line
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings, project_config_file
from treadle.apps.settings.settings import (
    SETTINGS,
    Settings,
    find_missing_folders,
    format_unknown_setting,
    parse_setting,
    treadle_home,
)
from treadle.apps.settings.writer import read_written_value, write_setting
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import shorten_home

USAGE = """\
usage: treadle config             show all settings, their values and sources
       treadle config --json      the same as JSON
       treadle config NAME        print one value
       treadle config NAME VALUE  set it in ~/.treadle/config.toml (a list takes several values)
       treadle config NAME --unset    remove it from there

Sources, the last one wins: defaults, ~/.treadle/config.toml, .treadle/config.toml of the project
(only in a trusted folder; it may only narrow), TREADLE_* variables, flags."""


@command("treadle config", USAGE)
def run(arguments: list[str]) -> int:
    folder = get_current_folder()
    names = [setting.name for setting in SETTINGS]
    match arguments:  # before the settings are loaded: it may mend what is wrong with them
        case [name, *words] if words and name.replace("-", "_") in names:
            _write(name.replace("-", "_"), words, folder)
            return exit_codes.SUCCESS
        case [name, "--unset"] if read_written_value(name) is not None:
            _print_written(name, write_setting(name, None), is_unset=True)
            return exit_codes.SUCCESS
    settings = load_settings(folder, is_trusted=lambda: is_trusted(folder))
    match arguments:
        case []:
            _print_table(settings, folder)
        case ["--json"]:
            import json

            values = {name: {"value": getattr(settings, name), "origin": settings.origin(name)}
                      for name in names}  # fmt: skip
            print(json.dumps({"settings": values, "notes": settings.notes}, indent=2))
        case [name] if name.replace("-", "_") in names:
            print_line(settings.format(name.replace("-", "_")))
        case _:
            raise UsageError(format_unknown_setting(arguments[0]))
    return exit_codes.SUCCESS


def _write(name: str, values: list[str], folder: Path) -> None:
    """Change the user's file; say if another source decides here."""
    is_unset = values == ["--unset"]
    value = None if is_unset else parse_setting(name, values)
    _print_written(name, write_setting(name, value), is_unset=is_unset)
    settings = load_settings(folder, is_trusted=lambda: is_trusted(folder))
    now = escape_invisible(settings.format(name))
    print_line(f"here it is {now} ({escape_invisible(settings.origin(name))})")
    if name == "add_dir":
        for missing in find_missing_folders(settings, folder):
            print_line(f"note: there is no folder {escape_invisible(missing)}")


def _print_written(name: str, file: Path, *, is_unset: bool) -> None:
    change = "is no longer in" if is_unset else "is set in"
    print_line(escape_invisible(f"{name} {change} {shorten_home(file)}"))


def _print_table(settings: Settings, folder: Path) -> None:
    show, origin_of = settings.format, settings.origin
    rows = [(row.name, show(row.name), origin_of(row.name), row.help) for row in SETTINGS]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, value, origin, text in rows:
        start = f"{name:{widths[0]}}  {value:{min(widths[1], 30)}}  {origin:{widths[2]}}"
        print_line(escape_invisible(f"{start}  {text}".rstrip()))
    print_line()
    files = (treadle_home() / "config.toml", project_config_file(folder))
    for file in dict.fromkeys(files):  # in the home folder they are one
        if not file.exists():
            print_line(f"{escape_invisible(str(file))} does not exist")
    for note in settings.notes:
        print_line(f"note: {escape_invisible(note)}")
