"""`treadle config`: every setting, its value, and where the value comes from.

Reads and prints. What the settings mean is settings.py's business; rules are shown by
`treadle permissions`.
"""

from __future__ import annotations

from pathlib import Path

from treadle.apps.cli import exits
from treadle.apps.cli.printing import say, warn
from treadle.apps.settings import TABLE, Settings, home, load, project_file, shown
from treadle.apps.wiring.rules import is_trusted
from treadle.core.errors import ConfigError
from treadle.core.terminal import visible

USAGE = """\
usage: treadle config             every setting, its value and where that comes from
       treadle config --json      the same for programs
       treadle config NAME        one value

Values come from defaults, ~/.treadle/config.toml, the project's .treadle/config.toml (may only
narrow, and only where you trust the folder), TREADLE_* variables, and flags; the last one wins."""


def run(arguments: list[str]) -> int:
    try:
        folder = Path.cwd()
        settings = load(folder, trusted=lambda: is_trusted(folder))
    except (ConfigError, FileNotFoundError) as error:
        warn(f"treadle: {error}")
        return exits.USAGE
    names = [setting.name for setting in TABLE]
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
            say(shown(getattr(settings, name.replace("-", "_"))))
        case _:
            from treadle.apps.settings import BY_NAME, nearest

            word = arguments[0]
            warn(f"treadle: no setting is called {word!r}{nearest(word, BY_NAME)}")
            return exits.USAGE
    return exits.DONE


def _print_table(settings: Settings, folder: Path) -> None:
    rows = [
        (one.name, shown(getattr(settings, one.name)), settings.origin(one.name), one.help)
        for one in TABLE
    ]
    name_width, value_width, origin_width = (
        max(len(row[column]) for row in rows) for column in range(3)
    )
    value_width = min(value_width, 30)
    for name, value, origin, text in rows:
        line = f"{name:{name_width}}  {value:{value_width}}  {origin:{origin_width}}  {text}"
        say(visible(line.rstrip()))
    say()
    for file in (home() / "config.toml", project_file(folder)):
        if not file.exists():
            say(f"{visible(str(file))} is not there")
    for note in settings.notes:
        say(f"note: {visible(note)}")
