"""What a command printed, made harmless: text that cannot move a cursor or fool a reader.

Not a limit on tokens, which is the tools' business. What a terminal would obey, the core says
(core/terminal.py). Above it stand `local.py` and `background.py`.
"""

from __future__ import annotations

from treadle.core import terminal


def harmless(data: bytes) -> str:
    """Bytes as text: no escape sequences, no controls but tab and newline, never an error."""
    text = data.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    if "\r" in text:
        lines = terminal.ESCAPE.sub("", text).replace("\r\n", "\n").split("\n")
        # A progress bar overwrites its line: what stands at the end is what a person saw.
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)
    return terminal.harmless(text)


def joined(head: bytes, tail: bytes, total: int, whole: str = "", kept: int = 0) -> str:
    """Head and tail as one text; if there is a gap it says how much is missing and where it is."""
    missing = total - len(head) - len(tail)
    if missing <= 0:
        return harmless(head + tail)
    place = ""
    if whole and kept >= total:
        place = f"; the whole output is in {whole}"
    elif whole:
        place = f"; the first {kept} bytes of the output are in {whole}"
    gap = f"\n... [{missing} of {total} bytes left out{place}] ...\n"
    return harmless(_whole_characters_before(head)) + gap + harmless(_whole_characters_after(tail))


def _whole_characters_before(data: bytes) -> bytes:
    """Without a character that was cut at the end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead < 0x80:
            return data
        if lead >= 0xC0:
            size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return data[:-back] if size > back else data
    return data


def _whole_characters_after(data: bytes) -> bytes:
    """Without the rest of a character that was cut at the start."""
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] < 0xC0:
        start += 1
    return data[start:]
