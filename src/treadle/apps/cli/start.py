"""`treadle [OPTIONS] [PROMPT]`: reads the command line and starts the terminal UI, or one run (-p).

The prompt comes from the command line and stdin, with attached files. Hosts do not import each
other, so the terminal UI is imported by its name, as commands are. Used by main.py and
`treadle resume`.
"""

from __future__ import annotations

import asyncio
import os
import select
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.cli.options import (
    RESUME_WITHOUT_ID,
    CommandLine,
    add_background_choices,
    parse_command_line,
)
from treadle.apps.cli.signals import reopen_closed_streams
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, get_current_folder, print_error, report_errors
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.core.errors import StoreError
from treadle.core.transcript.content import Text, UserContent
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_dollars

if TYPE_CHECKING:
    from treadle.apps.cli.resume_answers import ResumeInput
    from treadle.apps.settings.settings import Settings
    from treadle.sessions.library import Library

AUTO_LIMIT = "auto"  # of --max-cost: from a forecast
TUI_MODULE = "treadle.apps.tui.main"
HEADLESS_OPTIONS = (
    "file",
    "output_format",
    "output_schema",
    "suspend",
    "quiet",
    "verbose",
    "raw",
)


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

    def work() -> int:
        return _run_line(line, resume_input, reads_input, has_output)

    if not line.has("worktree") and not line.text("resume"):
        return work()
    from treadle.apps.cli.session_worktree import run_in_worktree

    return run_in_worktree(line, work)


def _run_line(
    line: CommandLine, resume_input: ResumeInput | None, reads_input: bool, has_output: bool
) -> int:
    at_terminal = line.prompt is not None or not is_stdin_piped() or line.has("plain")
    if at_terminal and not (line.has("print") or line.has("bg")):
        return start_tui(line)
    if line.has("resume") and not line.text("resume"):
        raise UsageError(RESUME_WITHOUT_ID.format(reason="with -p and --bg"))
    folder = get_current_folder()
    if line.text("resume"):
        line = add_background_choices(line, folder)
    is_automatic = line.options.get("max_cost") == AUTO_LIMIT
    if is_automatic:
        del line.options["max_cost"]
    settings = load_settings(folder, line.settings(), is_trusted=lambda: is_trusted(folder))
    is_resumed = line.has("continue") or line.has("resume")
    prompt: tuple[UserContent, ...] = ()
    command = None
    if reads_input and (line.prompt or "").startswith("/"):
        from treadle.apps.cli.custom_command import choose_model, find_command

        command = find_command(line.prompt or "", folder)
        if command is not None and line.has("bg"):
            raise UsageError("--bg takes a message; start a command in the terminal, then /detach")
        settings = choose_model(settings, command)
    if reads_input:
        added = [Path(folder, path).expanduser() for path in settings.add_dir]
        files = line.texts("file")
        prompt = read_prompt(line.prompt, files, folder, added_folders=added, optional=is_resumed)
    if not prompt and not is_resumed:
        option = "--bg" if line.has("bg") else "-p"
        raise UsageError(f"no prompt: write it after {option}, or pipe it to stdin")
    task = "".join(part.text for part in prompt if isinstance(part, Text))
    if (is_automatic or line.has("verbose")) and task:
        settings = _forecast(line, settings, folder, task, is_automatic=is_automatic)
    if line.has("bg"):
        from treadle.apps.cli.background_sessions.runs import move_to_background

        return asyncio.run(move_to_background(line, settings, folder, prompt))
    schema = None
    if line.text("output_schema"):
        from treadle.apps.cli.structured_output import read_schema

        schema = read_schema(line.text("output_schema"))
    from treadle.apps.cli.headless import HeadlessRun

    headless = HeadlessRun(
        line, settings, folder, prompt, schema, has_output, resume_input, command
    )
    return asyncio.run(headless.run())


def _forecast(
    line: CommandLine, settings: Settings, folder: Path, task: str, *, is_automatic: bool
) -> Settings:
    """Print what the task will probably cost; with `is_automatic` it becomes the limit."""
    from treadle.apps.assembly.model_choice import choose_model_now
    from treadle.sessions.forecast import make_forecast
    from treadle.sessions.library import Library

    model, _ = choose_model_now(settings)
    forecast = make_forecast(Library(), task, folder, model.name)
    limit = forecast.max_cost if is_automatic else None
    shown = f"; at most {format_dollars(limit)}" if limit is not None else ""
    print_error(f"treadle: forecast: {forecast}{shown}")
    if limit is None:
        return settings
    if line.has("continue") or line.text("resume"):  # the limit is one of the whole session
        limit += _read_cost(folder, line.text("resume"))
    line.options["max_cost"] = str(round(limit, 6))
    return load_settings(folder, line.settings(), is_trusted=lambda: is_trusted(folder))


def _read_cost(folder: Path, resume: str) -> float:
    """What a session that is continued has cost so far, with its child agents."""
    from treadle.sessions.library import Library

    library = Library()
    session_dir = _find_session(library, folder, resume)
    return library.get_summary(session_dir).total_usage.known_cost if session_dir else 0.0


def _find_session(library: Library, folder: Path, resume: str) -> Path | None:
    """The session to continue: that of the id or words, or with "" the last one of the folder."""
    if resume:
        return library.find(resume, folder=folder, by_words=True)
    return library.find_latest(folder)


def start_tui(command_line: CommandLine) -> int:
    """Run the terminal UI until the user leaves it; returns the exit code."""
    if command_line.options.get("max_cost") == AUTO_LIMIT:
        raise UsageError("--max-cost auto works only with -p; /forecast TEXT shows a forecast")
    for name in HEADLESS_OPTIONS:
        if command_line.has(name):
            raise UsageError(f"--{name.replace('_', '-')} works only with -p")
    picks_session = command_line.has("resume") and not command_line.text("resume")
    if picks_session and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(RESUME_WITHOUT_ID.format(reason="without a terminal"))
    folder = get_current_folder()
    terminal = import_module(TUI_MODULE)
    terminal.check_screen(command_line.has("plain"))  # before a download, and before a run stops
    _prepare_embedded_model(folder, command_line)
    if command_line.has("continue") or command_line.text("resume"):
        _bring_session(folder, command_line.text("resume"))
    exit_code: int = terminal.start(
        folder,
        command_line.settings(),
        resume="" if command_line.has("continue") else command_line.text("resume") or None,
        prompt=command_line.prompt or "",
        allow=command_line.texts("allow"),
        deny=command_line.texts("deny"),
        until=command_line.text("until"),
        dry_run=command_line.has("dry_run"),
        plain=command_line.has("plain"),
        picks_session=picks_session,
        program=command_line.program,
    )
    return exit_code


def _bring_session(folder: Path, resume: str) -> None:
    """Before the screen is taken: a session at work in the background takes a while to come."""
    from treadle.sessions.detached.background import find_run
    from treadle.sessions.library import Library

    library = Library()
    with suppress(StoreError):  # said where it is opened
        session_dir = _find_session(library, folder, resume)
        if session_dir is not None and find_run(session_dir) is not None:
            from treadle.apps.console.supervisor import bring_here

            bring_here(session_dir, folder)


def _prepare_embedded_model(folder: Path, command_line: CommandLine) -> None:
    """Before the screen is taken: what is missing is downloaded, a better one offered once."""
    from treadle.apps.console import embedded_setup

    settings = load_settings(folder, command_line.settings(), is_trusted=lambda: is_trusted(folder))
    if not embedded_setup.is_maybe_needed(settings):
        return
    if not settings.model and sys.stdin.isatty() and sys.stdout.isatty():
        embedded_setup.offer_better()
    asyncio.run(embedded_setup.download_named(settings))


STDIN_WAIT_SECONDS = 0.5  # for the first byte, if there is also a prompt
MAX_STDIN_BYTES = 64 << 20
# Of files that people mention; not the words of decorators, such as `.get` and `.route`.
_FILE_SUFFIXES = """
    .bash .c .cc .cfg .cpp .cs .css .csv .diff .env .gif .go .h .hpp .html .ini .ipynb .java .jpeg
    .jpg .js .json .jsonl .jsx .kt .lock .log .lua .md .patch .pdf .php .pl .png .py .pyi .rb .rs
    .rst .scss .sh .sql .svg .swift .tex .toml .ts .tsv .tsx .txt .vue .webp .xml .yaml .yml .zsh
"""


def read_prompt(
    typed: str | None,
    files: Iterable[str],
    folder: Path,
    *,
    added_folders: Sequence[Path] = (),
    optional: bool = False,
) -> tuple[UserContent, ...]:
    """The parts of the message, or none; with `optional`, stdin is not waited for.

    Symlinks that are mentioned with @ may point into `added_folders`.
    """
    files = list(files)
    if typed is not None:
        _check_utf8(typed)
    waits = typed == "-" or (typed is None and not optional) or "-" in files
    text = "" if typed in (None, "-") else typed or ""
    piped = read_stdin(wait=waits)
    if piped.strip():
        piped = redact(find_environment_secrets(), piped)
        text = f"{text}\n\n<stdin>\n{piped}\n</stdin>" if text else piped
    parts: list[UserContent] = [Text(text)] if text.strip() else []
    if not files and "@" not in (typed or ""):
        return tuple(parts)
    from treadle.apps.conversation import attachments

    try:
        parts += [attachments.attach_file(folder / name, name) for name in files if name != "-"]
    except attachments.AttachmentError as error:
        raise UsageError(str(error)) from error
    for name in attachments.find_mentions(typed or ""):
        found = attachments.attach_mention(name, folder, lambda: added_folders, include_text=True)
        if found is not None:
            parts.append(found.content)
        problem = found.problem if found is not None else _describe_missing(name, folder)
        if problem:
            print_error(f"treadle: {escape_invisible(problem)}")
    return tuple(parts)


def _describe_missing(name: str, folder: Path) -> str:
    """A mention without a file may be any word (`@property`, `@app.route`) or a resource of an MCP
    server (`@server:uri`); one with a slash or a common suffix of files is a path."""
    if ":" in name.partition("/")[0]:
        return ""
    is_path = "/" in name or Path(name).suffix.lower() in _FILE_SUFFIXES.split()
    if not is_path or _is_folder(name, folder) or name.startswith("/"):
        return ""
    return f"@{name} is not attached: there is no such file"


def _is_folder(name: str, folder: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(folder / name).st_mode)  # noqa: PTH116 - is_dir hides errors
    except PermissionError as error:
        raise UsageError(f"{name} cannot be attached: {error.strerror}") from error
    except (OSError, ValueError):  # no such file, or the name of none
        return False


def read_stdin(*, wait: bool) -> str:
    """The text on stdin, or "". Without `wait`, an open but silent pipe is not waited for."""
    kind = os.fstat(0).st_mode
    if stat.S_ISCHR(kind):  # a terminal, or /dev/null
        return ""
    if not wait and not stat.S_ISREG(kind):
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if not poll.poll(STDIN_WAIT_SECONDS * 1_000):
            return ""
    data = bytearray()
    while piece := os.read(0, 1 << 20):
        data += piece
        if len(data) > MAX_STDIN_BYTES:
            limit = MAX_STDIN_BYTES >> 20
            raise UsageError(f"stdin has more than {limit} MiB; put it into a file and name that")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8: byte 0x{data[error.start]:02x} at {error.start:,}; "
            "convert it (iconv) or attach it with --file"
        ) from error


def _check_utf8(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"the prompt is not UTF-8 at character {error.start:,}") from error


def is_stdin_piped() -> bool:
    """Whether stdin may contain a prompt."""
    return sys.stdin is not None and not stat.S_ISCHR(os.fstat(0).st_mode)
