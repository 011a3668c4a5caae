"""What a command printed, made harmless: text that cannot move a cursor or fool a reader.

Not a limit on tokens, which is the tools' business. Above it stand `processes.py` and the
tools that show bytes of unknown kind; below it nothing.
"""

from __future__ import annotations

import re

ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC: titles, links, the clipboard (52)
    r"|\x1b[PX^_][^\x1b\x9c]*(?:\x1b\\|\x9c)?"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor, modes
    r"|\x1b[ -/]*[0-~]?"  # every other escape sequence
)
PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
INVISIBLE = (*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
HARMLESS: dict[int, int | str] = {
    **PICTURES,
    0x7F: 0x2421,
    **{code: f"\\u{code:04x}" for code in INVISIBLE},
}
"""Controls become pictures; C1 controls and marks that turn the reading direction, escapes."""


def harmless(data: bytes) -> str:
    """Bytes as text: no escape sequences, no controls but tab and newline, never an error."""
    text = data.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    text = ESCAPE.sub("", text)
    if "\r" in text:
        lines = text.replace("\r\n", "\n").split("\n")
        # A progress bar overwrites its line: what stands at the end is what a person saw.
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)
    return text.translate(HARMLESS)


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
