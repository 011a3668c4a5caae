"""`treadle [OPTIONS] [PROMPT]`: reads the command line and starts the terminal UI, or one run (-p).

Hosts do not import each other, so the terminal UI is imported by its name, as commands are. Used by
main.py and `treadle resume`.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.options import RESUME_WITHOUT_ID, CommandLine, parse_command_line
from treadle.apps.cli.prompt_input import is_stdin_piped, read_prompt
from treadle.apps.cli.session_worktree import run_in_worktree
from treadle.apps.cli.signals import reopen_closed_streams
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, get_current_folder, report_errors
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.core.transcript.content import UserContent

if TYPE_CHECKING:
    from treadle.apps.cli.resume_answers import ResumeInput

TUI_MODULE = "treadle.apps.tui.main"
HEADLESS_OPTIONS = ("file", "output_format", "output_schema", "suspend", "quiet", "verbose", "raw")


def run(words: list[str], resume_input: ResumeInput | None = None, reads_input: bool = True) -> int:
    """`resume_input` is the user's input for a suspended session."""
    has_output = reopen_closed_streams()
    return report_errors("treadle", lambda: _run(words, resume_input, reads_input, has_output))


def _run(
    words: list[str], resume_input: ResumeInput | None, reads_input: bool, has_output: bool
) -> int:
    line = parse_command_line(words)
    if line.has("help"):
        from treadle.apps.cli import main

        print(main.format_help(main.COMMANDS))
        return exit_codes.SUCCESS
    return run_in_worktree(line, lambda: _run_line(line, resume_input, reads_input, has_output))


def _run_line(
    line: CommandLine, resume_input: ResumeInput | None, reads_input: bool, has_output: bool
) -> int:
    at_terminal = line.prompt is not None or not is_stdin_piped() or line.has("plain")
    if at_terminal and not line.has("print"):
        return start_tui(line)
    if line.has("resume") and not line.text("resume"):
        raise UsageError(RESUME_WITHOUT_ID.format(reason="with -p"))
    folder = get_current_folder()
    settings = load_settings(folder, line.settings(), is_trusted=lambda: is_trusted(folder))
    is_resumed = line.has("continue") or line.has("resume")
    prompt: tuple[UserContent, ...] = ()
    command = None
    if reads_input and (line.prompt or "").startswith("/"):
        from treadle.apps.cli.custom_command import choose_model, find_command

        command = find_command(line.prompt or "", folder)
        settings = choose_model(settings, command)
    if reads_input:
        added = [Path(folder, path).expanduser() for path in settings.add_dir]
        files = line.texts("file")
        prompt = read_prompt(line.prompt, files, folder, added_folders=added, optional=is_resumed)
    if not prompt and not is_resumed:
        raise UsageError("no prompt: write it after -p, or pipe it to stdin")
    schema = None
    if line.text("output_schema"):
        from treadle.apps.cli.structured_output import read_schema

        schema = read_schema(line.text("output_schema"))
    from treadle.apps.cli.headless import HeadlessRun

    headless = HeadlessRun(
        line, settings, folder, prompt, schema, has_output, resume_input, command
    )
    return asyncio.run(headless.run())


def start_tui(command_line: CommandLine) -> int:
    """Run the terminal UI until the user leaves it; returns the exit code."""
    for name in HEADLESS_OPTIONS:
        if command_line.has(name):
            raise UsageError(f"--{name.replace('_', '-')} works only with -p")
    picks_session = command_line.has("resume") and not command_line.text("resume")
    if picks_session and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(RESUME_WITHOUT_ID.format(reason="without a terminal"))
    folder = get_current_folder()
    terminal = import_module(TUI_MODULE)
    terminal.check_screen(command_line.has("plain"))  # before anything is downloaded
    _prepare_embedded_model(folder, command_line)
    exit_code: int = terminal.start(
        folder,
        command_line.settings(),
        resume="" if command_line.has("continue") else command_line.text("resume") or None,
        prompt=command_line.prompt or "",
        allow=command_line.texts("allow"),
        deny=command_line.texts("deny"),
        until=command_line.text("until"),
        plain=command_line.has("plain"),
        picks_session=picks_session,
        program=command_line.program,
    )
    return exit_code


def _prepare_embedded_model(folder: Path, command_line: CommandLine) -> None:
    """Before the screen is taken: what is missing is downloaded, a better one offered once."""
    from treadle.apps.console import embedded_setup

    settings = load_settings(folder, command_line.settings(), is_trusted=lambda: is_trusted(folder))
    if not embedded_setup.is_maybe_needed(settings):
        return
    if not settings.model and sys.stdin.isatty() and sys.stdout.isatty():
        embedded_setup.offer_better()
    asyncio.run(embedded_setup.download_named(settings))
