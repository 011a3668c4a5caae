"""`treadle config`: every setting, its value and its source.

Changes nothing. Uses settings.py. `treadle permissions` shows the rules.
"""

from __future__ import annotations

from pathlib import Path

from treadle.apps import settings as settings_page
from treadle.apps.assembly.rules import is_trusted
from treadle.apps.cli import exit_codes
from treadle.apps.cli.console import UsageError, get_current_folder, print_line, report_errors
from treadle.apps.settings import SETTINGS, Settings, treadle_home
from treadle.core.sanitize import escape_invisible

USAGE = """\
usage: treadle config             show all settings, their values and sources
       treadle config --json      the same as JSON
       treadle config NAME        print one value

Sources, the last one wins: defaults, ~/.treadle/config.toml, .treadle/config.toml of the project
(only in a trusted folder; it may only narrow), TREADLE_* variables, flags."""


def run(arguments: list[str]) -> int:
    return report_errors("treadle config", lambda: _print_config(arguments))


def _print_config(arguments: list[str]) -> int:
    folder = get_current_folder()
    settings = settings_page.load_settings(folder, is_trusted=lambda: is_trusted(folder))
    names = [setting.name for setting in SETTINGS]
    match arguments:
        case []:
            _print_table(settings, folder)
        case ["--json"]:
            import json

            values = {name: {"value": getattr(settings, name), "origin": settings.origin(name)}
                      for name in names}  # fmt: skip
            print(json.dumps({"settings": values, "notes": settings.notes}, indent=2))
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
        case [name] if name.replace("-", "_") in names:
            print_line(settings_page.format_value(getattr(settings, name.replace("-", "_"))))
        case _:
            raise UsageError(settings_page.format_unknown_setting(arguments[0]))
    return exit_codes.SUCCESS


def _print_table(settings: Settings, folder: Path) -> None:
    show, origin_of = settings_page.format_value, settings.origin
    rows = [
        (row.name, show(getattr(settings, row.name)), origin_of(row.name), row.help)
        for row in SETTINGS
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, value, origin, text in rows:
        start = f"{name:{widths[0]}}  {value:{min(widths[1], 30)}}  {origin:{widths[2]}}"
        print_line(escape_invisible(f"{start}  {text}".rstrip()))
    print_line()
    for file in (treadle_home() / "config.toml", settings_page.project_config_file(folder)):
        if not file.exists():
            print_line(f"{escape_invisible(str(file))} does not exist")
    for note in settings.notes:
        print_line(f"note: {escape_invisible(note)}")
