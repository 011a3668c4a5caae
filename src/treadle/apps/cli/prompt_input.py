"""The prompt, from the command line and stdin, with attached files.

All text has to be UTF-8; other input is an error with its position, never guessed. Secrets in
piped text and files are redacted; what the user types is sent as it is. Files are attached by
apps/conversation/attachments.py. Used by headless.py.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.console.console import UsageError, print_error
from treadle.apps.conversation import attachments
from treadle.core.transcript.content import Text, UserContent
from treadle.lib.text.sanitize import escape_invisible

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
