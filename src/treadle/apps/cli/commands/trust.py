"""`treadle trust`: which folders' own settings, memory, agents and programs may count.

    treadle trust [FOLDER]             trust it, and show what it brings
    treadle trust --approve [FOLDER]   ... and let the hooks and servers shown run, as they are now
    treadle trust --remove [FOLDER]    take it all back

What trust means is policy/trust.py's business; allow rules are accepted as they are now. A person
at a terminal is asked about programs; elsewhere they wait for --approve.
"""

from __future__ import annotations

import sys
from pathlib import Path

from treadle.apps.cli import exit_codes
from treadle.apps.cli.console import print_error, print_line
from treadle.core.sanitize import escape_invisible

USAGE = "usage: treadle trust [--approve | --remove] [FOLDER]"


def run(arguments: list[str]) -> int:
    match arguments:
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
            return exit_codes.SUCCESS
        case ["--remove", *rest] if len(rest) <= 1:
            return _set_trust(rest, trusted=False)
        case ["--approve", *rest] if len(rest) <= 1:
            return _set_trust(rest, trusted=True, approve_programs=True)
        case [*rest] if len(rest) <= 1 and not any(word.startswith("-") for word in rest):
            return _set_trust(rest, trusted=True)
    print(USAGE, file=sys.stderr)
    return exit_codes.USAGE_ERROR


def _set_trust(folders: list[str], *, trusted: bool, approve_programs: bool = False) -> int:
    from treadle.apps.assembly.extensions import list_extension_files
    from treadle.apps.assembly.rules import read_project_rules, trust_file
    from treadle.core.errors import ConfigError
    from treadle.policy.trust import TrustStore

    folder = Path(folders[0] if folders else ".").resolve()
    if not folder.is_dir():
        print_error(f"treadle: {escape_invisible(str(folder))} is not a folder")
        return exit_codes.USAGE_ERROR
    try:
        store = TrustStore(trust_file())
        if not trusted:
            store.distrust(folder)
            print_line(f"{escape_invisible(str(folder))} is not trusted")
            return exit_codes.SUCCESS
        store.trust(folder)
        print_line(f"{escape_invisible(str(folder))} is trusted")
        for name in list_extension_files(folder):
            print_line(f"  {escape_invisible(name)}")
        rules = read_project_rules(folder)
        for rule in rules.allow:
            print_line(
                f"  allows {escape_invisible(rule.text)}  ({escape_invisible(str(rule.origin))})"
            )
        if rules.allow:
            store.accept_rules(folder, rules)
        _review_programs(folder, approve_programs)
    except (ConfigError, OSError) as error:
        print_error(f"treadle: {error}")
        return exit_codes.USAGE_ERROR if isinstance(error, ConfigError) else exit_codes.IO_ERROR
    return exit_codes.SUCCESS


def _review_programs(folder: Path, approve_programs: bool) -> None:
    """What of the folder would run, and whether it may."""
    from treadle.apps.assembly.extensions import approve_extensions, discover_extensions

    plugged = discover_extensions(folder)
    for note in plugged.notes:
        print_line(f"  {escape_invisible(note)}")
    waiting = plugged.unapproved
    if not waiting:
        return
    for line in (line for one in waiting for line in one.detail_lines):
        print_line(f"  {escape_invisible(line)}")
    if not approve_programs and sys.stdin is not None and sys.stdin.isatty():
        approve_programs = input("Let these run, as they are now? [y/N] ").strip().lower() in (
            "y",
            "yes",
        )
    if approve_programs:
        approve_extensions(folder)
        print_line(f"approved: {', '.join(escape_invisible(one.name) for one in waiting)}")
    else:
        print("these wait: `treadle trust --approve` lets them run")
