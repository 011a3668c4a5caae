"""`treadle config`: every setting, its value, and where the value comes from.

Reads and prints. What the settings mean is settings.py's business; rules are shown by
`treadle permissions`.
"""

from __future__ import annotations

from pathlib import Path

from treadle.apps.assembly.rules import is_trusted
from treadle.apps.cli import exit_codes
from treadle.apps.cli.console import print_error, print_line
from treadle.apps.settings import (
    SETTINGS,
    Settings,
    format_value,
    load_settings,
    project_config_file,
    treadle_home,
)
from treadle.core.errors import ConfigError
from treadle.core.sanitize import escape_invisible

USAGE = """\
usage: treadle config             every setting, its value and where that comes from
       treadle config --json      the same for programs
       treadle config NAME        one value

Values come from defaults, ~/.treadle/config.toml, the project's .treadle/config.toml (may only
narrow, and only where you trust the folder), TREADLE_* variables, and flags; the last one wins."""


def run(arguments: list[str]) -> int:
    try:
        folder = Path.cwd()
        settings = load_settings(folder, is_trusted=lambda: is_trusted(folder))
    except (ConfigError, FileNotFoundError) as error:
        print_error(f"treadle: {error}")
        return exit_codes.USAGE_ERROR
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
            print_line(format_value(getattr(settings, name.replace("-", "_"))))
        case _:
            from treadle.apps.settings import SETTINGS_BY_NAME, suggest_name

            word = arguments[0]
            print_error(
                f"treadle: no setting is called {word!r}{suggest_name(word, SETTINGS_BY_NAME)}"
            )
            return exit_codes.USAGE_ERROR
    return exit_codes.SUCCESS


def _print_table(settings: Settings, folder: Path) -> None:
    rows = [
        (one.name, format_value(getattr(settings, one.name)), settings.origin(one.name), one.help)
        for one in SETTINGS
    ]
    name_width, value_width, origin_width = (
        max(len(row[column]) for row in rows) for column in range(3)
    )
    value_width = min(value_width, 30)
    for name, value, origin, text in rows:
        line = f"{name:{name_width}}  {value:{value_width}}  {origin:{origin_width}}  {text}"
        print_line(escape_invisible(line.rstrip()))
    print_line()
    for file in (treadle_home() / "config.toml", project_config_file(folder)):
        if not file.exists():
            print_line(f"{escape_invisible(str(file))} is not there")
    for note in settings.notes:
        print_line(f"note: {escape_invisible(note)}")
