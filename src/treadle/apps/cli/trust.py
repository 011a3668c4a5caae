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

from treadle.apps.cli import exits
from treadle.apps.cli.printing import say, warn
from treadle.core.terminal import visible

USAGE = "usage: treadle trust [--approve | --remove] [FOLDER]"


def run(arguments: list[str]) -> int:
    match arguments:
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
            return exits.DONE
        case ["--remove", *rest] if len(rest) <= 1:
            return _change(rest, trusted=False)
        case ["--approve", *rest] if len(rest) <= 1:
            return _change(rest, trusted=True, approves=True)
        case [*rest] if len(rest) <= 1 and not any(word.startswith("-") for word in rest):
            return _change(rest, trusted=True)
    print(USAGE, file=sys.stderr)
    return exits.USAGE


def _change(named: list[str], *, trusted: bool, approves: bool = False) -> int:
    from treadle.apps.wiring.extras import brings
    from treadle.apps.wiring.rules import project_rules, trust_file
    from treadle.core.errors import ConfigError
    from treadle.policy.trust import TrustStore

    folder = Path(named[0] if named else ".").resolve()
    if not folder.is_dir():
        warn(f"treadle: {visible(str(folder))} is not a folder")
        return exits.USAGE
    try:
        store = TrustStore(trust_file())
        if not trusted:
            store.distrust(folder)
            say(f"{visible(str(folder))} is not trusted")
            return exits.DONE
        store.trust(folder)
        say(f"{visible(str(folder))} is trusted")
        for name in brings(folder):
            say(f"  {visible(name)}")
        rules = project_rules(folder)
        for rule in rules.allow:
            say(f"  allows {visible(rule.text)}  ({visible(str(rule.origin))})")
        if rules.allow:
            store.accept_rules(folder, rules)
        _show_programs(folder, approves)
    except (ConfigError, OSError) as error:
        warn(f"treadle: {error}")
        return exits.USAGE if isinstance(error, ConfigError) else exits.DISK
    return exits.DONE


def _show_programs(folder: Path, approves: bool) -> None:
    """What of the folder would run, and whether it may."""
    from treadle.apps.wiring.extras import approve, brought

    plugged = brought(folder)
    for note in plugged.notes:
        say(f"  {visible(note)}")
    waiting = plugged.waiting
    if not waiting:
        return
    for line in (line for one in waiting for line in one.lines):
        say(f"  {visible(line)}")
    if not approves and sys.stdin is not None and sys.stdin.isatty():
        approves = input("Let these run, as they are now? [y/N] ").strip().lower() in ("y", "yes")
    if approves:
        approve(folder)
        say(f"approved: {', '.join(visible(one.name) for one in waiting)}")
    else:
        print("these wait: `treadle trust --approve` lets them run")
