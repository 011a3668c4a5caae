"""What a command printed, made harmless: text that cannot move a cursor or fool a reader.

Not a limit on tokens, which is the tools' business. What a terminal would obey, the core says
(core/sanitize.py). Above it stand `local.py` and `background_command.py`.
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
        # A progress bar overwrites its line: what stands at the end is what a person saw.
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)
    return sanitize.strip_escapes(text)


def join_head_tail(
    head: bytes, tail: bytes, total: int, full_output: str = "", full_output_bytes: int = 0
) -> str:
    """Head and tail as one text; if there is a gap it says how much is missing and where it is."""
    missing = total - len(head) - len(tail)
    if missing <= 0:
        return decode_output(head + tail)
    place = ""
    if full_output and full_output_bytes >= total:
        place = f"; the whole output is in {full_output}"
    elif full_output:
        place = f"; the first {full_output_bytes} bytes of the output are in {full_output}"
    gap = f"\n... [{missing} of {total} bytes left out{place}] ...\n"
    return decode_output(_trim_cut_end(head)) + gap + decode_output(_trim_cut_start(tail))


def _trim_cut_end(data: bytes) -> bytes:
    """Without a character that was cut at the end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead < 0x80:
            return data
        if lead >= 0xC0:
            size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-back] if size > back else data
    return data


def _trim_cut_start(data: bytes) -> bytes:
    """Without the rest of a character that was cut at the start."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]
