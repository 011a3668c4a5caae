"""The output of a command as safe text: no escape sequences, no control characters. And how its
process ended, as the supervisor reports it.

The limit in tokens is up to the tools. What a terminal obeys is defined in lib/text/sanitize.py.
Used by `local.py` and `background_command.py`.
"""

from __future__ import annotations

import os
import re
import signal

import msgspec

from treadle.lib.text import sanitize

# A UTF-8 character of which only the beginning is at the end, or the rest at the start.
_CUT_END = re.compile(rb"(?:[\xc0-\xff]|[\xe0-\xff][\x80-\xbf]|[\xf0-\xff][\x80-\xbf]{2})\Z")
_CUT_START = re.compile(rb"\A[\x80-\xbf]{1,3}")


def decode_output(data: bytes) -> str:
    """Bytes as text: no escape sequences, no controls but tab and newline, never an error."""
    text = data.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    if "\r" in text:
        lines = sanitize.ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n").split("\n")
        # A progress bar overwrites its line: keep what was visible in the end.
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)
    return sanitize.strip_escapes(text)


def join_head_tail(
    head: bytes, tail: bytes, total: int, full_output: str = "", full_output_bytes: int = 0
) -> str:
    """Head and tail as one text, with a note on what is missing between them and where it is."""
    missing = total - len(head) - len(tail)
    if missing <= 0:
        return decode_output(head + tail)
    where = ""
    if full_output and full_output_bytes >= total:
        where = f"; the whole output is in {full_output}"
    elif full_output:
        where = f"; the first {full_output_bytes} bytes of the output are in {full_output}"
    gap = f"\n... [{missing} of {total} bytes left out{where}] ...\n"
    return decode_output(_CUT_END.sub(b"", head)) + gap + decode_output(_CUT_START.sub(b"", tail))


class CapturedStream(msgspec.Struct, frozen=True):
    """One output stream: its ends, its size, and its output file if there is one."""

    head: bytes = b""
    tail: bytes = b""
    total: int = 0
    path: str = ""
    spilled: int = 0


class ProcessExit(msgspec.Struct, frozen=True):
    """How a command ended. `leftovers` names processes that it left running and that were ended."""

    exit_code: int | None
    signal: str
    core_dumped: bool
    timed_out: bool
    killed: bool
    out_of_memory: bool
    memory_exceeded: bool
    disk_exceeded: int  # bytes that the disk lost at most; 0 if it did not
    cwd: str
    leftovers: tuple[str, ...]
    stream: CapturedStream


def decode_exit(outcome: dict[str, object], in_bubblewrap: bool) -> ProcessExit:
    status, trailer, left = outcome["status"], outcome["trailer"], outcome["left"]
    assert isinstance(status, int)
    assert isinstance(trailer, bytes)
    assert isinstance(left, list)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    shell_status, _, rest = trailer.rpartition(b"\1")[2].partition(b"\n")
    folder, _, jobs = rest.partition(b"\0")
    # Bubblewrap exits with 128 + n for a signal; a shell that exited with that code reported it.
    if in_bubblewrap and code and 128 < code < 193 and shell_status != b"%d" % code:
        number, code = code - 128, None
    return ProcessExit(
        exit_code=code,
        signal=_signal_name(number) if number else "",
        core_dumped=os.WCOREDUMP(status),
        timed_out=bool(outcome["timed_out"]),
        killed=bool(outcome["killed"]),
        out_of_memory=bool(outcome["out_of_memory"]),
        memory_exceeded=bool(outcome["memory_exceeded"]),
        disk_exceeded=msgspec.convert(outcome["disk_exceeded"], int),
        cwd=os.fsdecode(folder.removesuffix(b"\n")),  # nothing if the folder was removed
        # In a sandbox the names of leftover processes cannot be seen; the shell listed its jobs.
        leftovers=tuple(left) or tuple(f"job {job.decode()}" for job in jobs.split()),
        stream=msgspec.convert(outcome["stream"], CapturedStream),
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
