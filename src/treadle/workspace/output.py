"""The output of a command as safe text: no escape sequences, no control characters.

The limit in tokens is up to the tools. What a terminal obeys is defined in lib/text/sanitize.py.
Used by `local.py` and `background_command.py`.
"""

from __future__ import annotations

import re

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
