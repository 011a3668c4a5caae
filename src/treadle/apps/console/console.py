"""Prints lines to the user without escape sequences, and turns errors into exit codes.

    print_line      a line on stdout
    print_error     a line on stderr; a closed stderr is ignored
    ask_yes         a question on the terminal
    wrap_line       a line for the width of the terminal
    report_errors   runs a command: an error is printed, and becomes the exit code
    command         the same for a function of the arguments, which also has a help

Names, rules and other foreign text inside a line also need `escape_invisible` (lib/text/sanitize),
so that they cannot look like a line of ours. JSON needs neither: json.dumps writes ASCII. Used by
every command of apps/cli and apps/fleet.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from treadle.apps.console.exit_codes import ABORTED, IO_ERROR, SUCCESS, exit_code_for
from treadle.apps.console.help_option import wants_help
from treadle.core.errors import ConfigError, TreadleError
from treadle.lib.text.sanitize import strip_escapes

BOLD, DIM = "1", "2"  # styles: ANSI codes
Command = Callable[[list[str]], int]  # arguments to exit code


class UsageError(ConfigError):
    """The command line is invalid."""


def print_line(text: str = "", *, end: str = "\n") -> None:
    print(strip_escapes(text), end=end)


def print_error(text: str, style: str = "") -> None:
    """Print lines on stderr; a terminal gets them broken between words."""
    try:
        lines = [wrap_line(line, 2, sys.stderr) for line in strip_escapes(text).split("\n")]
        print(add_style("\n".join(lines), style, sys.stderr), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def get_width(out: TextIO) -> int:
    """The columns for a line: those of the terminal; a file or a pipe has any number."""
    if not out.isatty():
        return 10_000
    import shutil

    try:  # shutil looks at stdout, which may be a pipe
        return os.get_terminal_size(out.fileno()).columns or shutil.get_terminal_size().columns
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns


def wrap_line(text: str, indent: int, out: TextIO) -> str:
    """A line that breaks between words; the lines after the first are indented."""
    if len(text) <= get_width(out):
        return text
    import textwrap

    return textwrap.fill(
        text,
        max(get_width(out), indent + 20),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def add_style(text: str, style: str, out: TextIO) -> str:
    """The text in a style, if the output is a terminal with colours."""
    if not style or not out.isatty():
        return text
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[{style}m{text}\x1b[0m"


def report_errors(command: str, work: Callable[[], int]) -> int:
    """Run a command; an error is one line on stderr, and an exit code."""
    try:
        return _run_in_folder(work)
    except TreadleError as error:
        from treadle.apps.assembly.redaction import redact_for_display  # loads much

        print_error(f"{command}: {redact_for_display(str(error))}")
        return exit_code_for(error)
    except BrokenPipeError:
        raise  # main.py ends the program without a message
    except OSError as error:
        print_error(f"{command}: {describe_os_error(error)}")
        return IO_ERROR
    except KeyboardInterrupt:
        return ABORTED


def describe_os_error(error: OSError) -> str:
    """What the system says, and of which file."""
    problem = error.strerror or str(error)
    return f"{error.filename}: {problem}" if error.filename else problem


def command(name: str, usage: str) -> Callable[[Command], Command]:
    """A command of this name that prints its usage if it is asked to, and reports its errors."""

    def wrap(run: Command) -> Command:
        def call(arguments: list[str]) -> int:
            if wants_help(arguments):
                print(usage)
                return SUCCESS
            return report_errors(name, lambda: run(arguments))

        return call

    return wrap


def _run_in_folder(work: Callable[[], int]) -> int:
    """Run a command; in a folder that was deleted, that is why something is not found."""
    try:
        return work()
    except FileNotFoundError:
        get_current_folder()
        raise


def ask_yes(question: str) -> bool:
    """Whether the user answers a question with yes; the end of the input is a no."""
    return ask_line(f"{question} [y/N] ").lower() in ("y", "yes")


def ask_line(prompt: str) -> str:
    """A line of the user without blanks around it; "" at the end of the input. Ctrl+C ends it,
    also below an event loop, which would only note it."""
    is_main = threading.current_thread() is threading.main_thread()
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler) if is_main else None
    try:
        return input(prompt).strip()
    except EOFError:
        return ""
    finally:
        if is_main:
            signal.signal(signal.SIGINT, earlier)


def get_current_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder no longer exists; change to another one") from error
