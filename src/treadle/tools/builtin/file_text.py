"""Text of files: decoding and encoding without loss, lines, occurrences, parts.

Knows encodings, byte-order marks and line ends; knows nothing of tools. Encodings are detected
simply: by a byte-order mark, UTF-8, UTF-16 by its zero bytes, else a one-byte encoding.
"""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
SAMPLE_BYTES = 8_192
SHOWN_LINE_CHARS = 500
TYPOGRAPHY = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "\u00a0": " "}
)
"""Characters that models and files spell differently, to their plain form."""


class DecodedText(msgspec.Struct, frozen=True):
    """Text with what is needed to write it back: encoding, byte-order mark, usual line end."""

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @property
    def line_ending(self) -> str:
        windows = self.text.count("\r\n")
        return "\r\n" if windows and windows * 2 >= self.text.count("\n") else "\n"

    def encode(self, text: str) -> bytes:
        """Another text in the same encoding. UnicodeEncodeError if it cannot hold the text."""
        return self.bom + text.encode(self.encoding)


def decode_text(data: bytes, *, is_truncated: bool = False) -> DecodedText | None:
    """The text of a file, or None if it is not text. `is_truncated`: the last character may be
    incomplete."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _try_decode(data, mark, encoding, is_truncated)
    head = data[:SAMPLE_BYTES]
    if b"\0" in head:
        encoding = _guess_utf16(head)
        return _try_decode(data, b"", encoding, is_truncated) if encoding else None
    text = _try_decode(data, b"", "utf-8", is_truncated)
    if text is not None:
        return text
    if sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head) > len(head) // 50:
        return None
    return _try_decode(data, b"", "cp1252", False) or _try_decode(data, b"", "latin-1", False)


def _try_decode(data: bytes, bom: bytes, encoding: str, is_truncated: bool) -> DecodedText | None:
    body = data[len(bom) :]
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(body, final=not is_truncated)
    except UnicodeDecodeError:
        return None
    return DecodedText(text, encoding, bom)


def _guess_utf16(head: bytes) -> str:
    """Latin text in UTF-16 has a zero at every second byte, and no others."""
    even, odd = head[::2].count(0), head[1::2].count(0)
    half = max(1, len(head) // 2)
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return ""


class Occurrence(msgspec.Struct, frozen=True):
    """Where a piece is in a text, and the line end that it uses there."""

    start: int
    end: int
    line_ending: str


def find_occurrences(text: str, wanted: str, default_line_ending: str) -> list[Occurrence]:
    """Every occurrence of a piece; its line ends match those of the file."""
    original, wanted = wanted, wanted.replace("\r\n", "\n")
    is_plain = "\n" not in wanted or "\r" not in text
    starts = [] if is_plain else list(_find_starts(text.replace("\r\n", "\n"), wanted))
    if not starts:  # a piece that ends within a line end matches only unchanged
        exact = wanted if is_plain else original
        ends = ((at, at + len(exact)) for at in _find_starts(text, exact))
        return [Occurrence(start, end, default_line_ending) for start, end in ends]
    # Where the plain text has lost a carriage return: offsets behind it shift by one.
    lost = array("q", (at.start() - n for n, at in enumerate(re.finditer("\r\n", text))))
    occurrences: list[Occurrence] = []
    for plain in starts:
        end = plain + len(wanted)
        before, within = bisect_left(lost, plain), bisect_left(lost, end)
        line_end = "\r\n" if within > before else "\n"
        occurrences.append(Occurrence(plain + before, end + within, line_end))
    return occurrences


def _find_starts(text: str, wanted: str) -> Iterator[int]:
    """Where a piece starts, without overlaps. The search is linear for any text."""
    start = text.find(wanted)
    while start >= 0:
        yield start
        start = text.find(wanted, start + len(wanted))


def replace_occurrences(text: str, occurrences: list[Occurrence], new: str) -> str:
    """The text with each occurrence replaced, in the line ends of that occurrence."""
    new = new.replace("\r\n", "\n")
    pieces: list[str] = []
    end = 0
    for occurrence in occurrences:
        pieces += [text[end : occurrence.start], new.replace("\n", occurrence.line_ending)]
        end = occurrence.end
    return "".join([*pieces, text[end:]])


def line_number_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def split_lines(text: str) -> list[str]:
    """Lines as editors count them: only a newline ends one. Carriage returns before it are cut."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def format_numbered_line(number: int, line: str) -> str:
    return f"{number}\t{line}"


def format_numbered_lines(lines: Sequence[str], start: int, end: int) -> Iterator[str]:
    """The lines from index `start` to `end`, numbered from 1, each cut to a usual length."""
    for at in range(start, end):
        yield format_numbered_line(at + 1, lines[at][:SHOWN_LINE_CHARS])


def slice_part(text: str, offset: int, size: int) -> tuple[str, str]:
    """A part of a long text, and the note that says where the next one starts, if there is one."""
    part = text[offset : offset + size]
    end = offset + len(part)
    more = len(text) - end
    return part, f"\n\n({more} more characters; read on with offset={end})" if more > 0 else ""
