"""The output of a command as safe text: no escape sequences, no control characters.

The limit in tokens is up to the tools. What a terminal obeys is defined in core/sanitize.py. Used
by `local.py` and `background_command.py`.
"""

from __future__ import annotations

from treadle.core import sanitize


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
    return decode_output(_trim_cut_end(head)) + gap + decode_output(_trim_cut_start(tail))


def _trim_cut_end(data: bytes) -> bytes:
    """Without an incomplete character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead < 0x80:
            return data
        if lead >= 0xC0:
            size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-back] if size > back else data
    return data


def _trim_cut_start(data: bytes) -> bytes:
    """Without an incomplete character at the start."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]
