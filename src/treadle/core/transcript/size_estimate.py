"""Estimates how many tokens a provider counts for a text, an image or a document.

Texts count by their UTF-8 bytes: letters of other scripts need more tokens, about as they need more
bytes, and no token is shorter than a byte.

Images count by pixels, PDFs by pages (providers read each page as text and as an image), other
documents by bytes. Providers differ by a factor of two or three; the estimate is on the high side.
Only headers and page objects are read: nothing is decoded or validated.
"""

from __future__ import annotations

import re

from treadle.core.transcript.content import (
    Document,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
)
from treadle.core.transcript.items import Item, NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript

CHARS_PER_MEDIA_TOKEN = 4  # converts tokens to characters: text is counted in characters
PIXELS_PER_TOKEN = 750
MAX_IMAGE_TOKENS = 3_000  # providers scale larger images down
TOKENS_PER_PAGE = 2_500
BYTES_PER_TOKEN = 3  # of text
BYTES_PER_PAGE = 50_000  # if the pages cannot be counted
MAX_GUESSED_PAGES = 100
# A text whose words are longer on average is data: a token of it has half as many characters.
MIN_DENSE_CHARS, MAX_WORD_CHARS = 200, 20
PAGES_OF_URL_DOCUMENT = 20  # a guess: only the URL is known
# Limits against decompression bombs; real page lists are smaller.
MAX_OBJECT_STREAMS = 1_000
MAX_OBJECT_STREAM_BYTES = 1 << 18
MAX_INFLATED_BYTES = 16 << 20

_PAGE_OBJECT = re.compile(rb"/Type\s{0,9}/Page(?![A-Za-z])")


def estimate_chars(transcript: Transcript) -> int:
    """The size of a transcript; only what was appended since the last time is looked at."""
    length = len(transcript)
    known, total = transcript.cache.get(estimate_chars, (0, 0))
    if known > length:  # a longer transcript on the same list
        return sum(map(estimate_item_chars, transcript))
    if known < length:
        for item in transcript[known:]:
            total += estimate_item_chars(item)
        transcript.cache[estimate_chars] = (length, total)
    return total  # type: ignore[no-any-return]


def estimate_item_chars(item: Item) -> int:
    """The size of an item in characters; may be too large, hardly ever too small.

    A long text without spaces (base64, hex) counts twice. Images and documents count as their
    estimated tokens.
    """
    if isinstance(item, (NoticeItem, SummaryItem)):
        return _estimate_dense_text(item.text)
    total = 0
    for part in item.content:
        if isinstance(part, (Text, Thinking)):
            total += _estimate_dense_text(part.text)
        elif isinstance(part, ToolCall):
            total += _estimate_dense_text(part.raw)
        elif isinstance(part, Opaque):
            total += estimate_text_chars(part.json)
        elif isinstance(part, RedactedThinking):
            total += len(part.data)
        else:
            total += estimate_media_chars(part)
    if type(item) is ToolResultItem and item.notes:
        total += sum([estimate_text_chars(note.text) + 1 for note in item.notes])
    return total


def estimate_text_chars(text: str) -> int:
    """The size of a text as that of a Latin text with about as many tokens."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def _estimate_dense_text(text: str) -> int:
    size = len(text) if text.isascii() else estimate_text_chars(text)
    if len(text) < MIN_DENSE_CHARS or size > 1.5 * len(text):
        return size  # short, or of a script without spaces
    spaces = text.count(" ") + text.count("\n")
    return size if len(text) <= MAX_WORD_CHARS * (spaces + 1) else 2 * size


def estimate_media_chars(part: Image | Document) -> int:
    """The size as characters of text; computed once."""
    kept: int | None = part.__dict__.get("chars")
    if kept is None:
        weight = _image_tokens(part) if isinstance(part, Image) else _document_tokens(part)
        kept = part.__dict__["chars"] = weight * CHARS_PER_MEDIA_TOKEN
    return kept


def _image_tokens(image: Image) -> int:
    width, height = image_size(image.data)
    if not width * height:
        return MAX_IMAGE_TOKENS
    return min(width * height // PIXELS_PER_TOKEN + 1, MAX_IMAGE_TOKENS)


def _document_tokens(document: Document) -> int:
    data = document.data
    if not data:
        return PAGES_OF_URL_DOCUMENT * TOKENS_PER_PAGE
    if document.media_type.startswith("text/"):
        return len(data) // BYTES_PER_TOKEN + 1
    pages = count_pdf_pages(data) or min(len(data) // BYTES_PER_PAGE + 1, MAX_GUESSED_PAGES)
    return pages * TOKENS_PER_PAGE


def count_pdf_pages(data: bytes) -> int:
    """The number of pages of a PDF, also of those in object streams; 0 if none is found."""
    pages, at, unpacked = len(_PAGE_OBJECT.findall(data)), 0, 0
    for _ in range(MAX_OBJECT_STREAMS):
        at = data.find(b"/ObjStm", at) + 1
        if not at or unpacked > MAX_INFLATED_BYTES:
            break
        start = data.find(b"stream", at, at + 400)
        if start >= 0:
            plain = _inflate(data[start + 6 : start + MAX_OBJECT_STREAM_BYTES])
            unpacked += len(plain)
            pages += len(_PAGE_OBJECT.findall(plain))
    return pages


def _inflate(data: bytes) -> bytes:
    import zlib  # only for a PDF

    try:
        return zlib.decompressobj().decompress(data.lstrip(b"\r\n"), MAX_OBJECT_STREAM_BYTES)
    except zlib.error:
        return b""  # another compression, or encrypted


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height from the header of a PNG, GIF, WebP or JPEG; zeros if unknown."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP" and len(data) >= 30:
        return _webp_size(data)
    if data.startswith(b"\xff\xd8"):
        return _jpeg_size(data)
    return 0, 0


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        packed = int.from_bytes(data[24:30], "little")
        return (packed & 0xFFFFFF) + 1, (packed >> 24) + 1
    if kind == b"VP8L":
        packed = int.from_bytes(data[21:25], "little")
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        packed = int.from_bytes(data[26:30], "little")
        return packed & 0x3FFF, packed >> 16 & 0x3FFF
    return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height = int.from_bytes(data[at + 5 : at + 7], "big")
            return int.from_bytes(data[at + 7 : at + 9], "big"), height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return 0, 0
