"""`treadle trust`: trusts a folder, so that its settings, memory, agents and programs are used.

    treadle trust [FOLDER]             trust it, accept its allow rules, and show its files
    treadle trust --approve [FOLDER]   ... and approve its hooks and servers as they are now
    treadle trust --remove [FOLDER]    remove the trust

At a terminal the user is asked about hooks and servers; elsewhere they need --approve. Uses
permissions/trust.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, ask_yes, command, print_line
from treadle.lib.text.sanitize import escape_invisible

USAGE = """\
usage: treadle trust [FOLDER]             trust a folder (default: this one); shows what it uses
       treadle trust --approve [FOLDER]   also approve its hooks and MCP servers as they are now
       treadle trust --remove [FOLDER]    remove the trust"""


@command("treadle trust", USAGE)
def run(arguments: list[str]) -> int:
    match arguments:
        case ["--remove", *rest] if len(rest) <= 1:
            return _remove_trust(_get_folder(rest))
        case ["--approve", *rest] if len(rest) <= 1:
            return _trust(_get_folder(rest), approve=True)
        case [*rest] if len(rest) <= 1 and not any(word.startswith("-") for word in rest):
            return _trust(_get_folder(rest))
    print(USAGE, file=sys.stderr)
    return exit_codes.USAGE_ERROR


def _get_folder(arguments: list[str]) -> Path:
    folder = Path(arguments[0] if arguments else ".").resolve()
    if not folder.is_dir():
        raise UsageError(f"{escape_invisible(str(folder))} is not a folder")
    return folder


def _remove_trust(folder: Path) -> int:
    from treadle.apps.settings.folder_rules import open_trust_store

    open_trust_store().distrust(folder)
    print_line(f"{escape_invisible(str(folder))} is not trusted")
    return exit_codes.SUCCESS


def _trust(folder: Path, *, approve: bool = False) -> int:
    from treadle.apps.settings.extensions import list_extension_files
    from treadle.apps.settings.folder_rules import (
        PROJECT_SANDBOX_NOTE,
        load_rules,
        open_trust_store,
        read_project_rules,
    )
    from treadle.permissions.trust import may_project_allow

    store, rules = open_trust_store(), read_project_rules(folder)
    store.trust(folder)
    print_line(f"{escape_invisible(str(folder))} is trusted")
    for name in list_extension_files(folder):
        print_line(f"  {escape_invisible(name)}")
    for rule in rules.allow:
        origin = escape_invisible(str(rule.origin))
        if may_project_allow(rule):
            print_line(f"  allows {escape_invisible(rule.text)}  ({origin})")
        else:
            print_line(f"  does not use {rule.text}  ({origin}): {PROJECT_SANDBOX_NOTE}")
    if rules.allow:
        store.accept_rules(folder, rules)
    for warning in load_rules(folder).warnings:
        print_line(f"  {escape_invisible(warning)}")
    _review_programs(folder, approve)
    return exit_codes.SUCCESS


def _review_programs(folder: Path, approve: bool) -> None:
    """Show the hooks and servers that need approval, and approve them if the user wants."""
    from treadle.apps.settings.extensions import approve_extensions, discover_extensions

    extensions = discover_extensions(folder)
    for note in extensions.notes:
        print_line(f"  {escape_invisible(note)}")
    if not extensions.unapproved:
        return
    for program in extensions.unapproved:
        for line in program.detail_lines:
            print_line(f"  {escape_invisible(line)}")
    if not approve and sys.stdin is not None and sys.stdin.isatty():
        approve = ask_yes("Allow these programs to run, as they are now?")
    if approve:
        approve_extensions(folder)
        names = ", ".join(escape_invisible(program.name) for program in extensions.unapproved)
        print_line(f"approved: {names}")
    else:
        print("not approved: run `treadle trust --approve` to allow them")
