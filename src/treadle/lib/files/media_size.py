"""The size of images in pixels and of PDFs in pages, from their bytes.

Only headers and page objects are read: nothing is decoded or validated. Used for estimates of
tokens, and where images are shown or made smaller.
"""

from __future__ import annotations

from treadle.lib.text.lazy_regex import compile_lazily

# Limits against decompression bombs; real page lists are smaller.
MAX_OBJECT_STREAMS = 1_000
MAX_OBJECT_STREAM_BYTES = 1 << 18
MAX_INFLATED_BYTES = 16 << 20

_PAGE_OBJECT = compile_lazily(rb"/Type\s{0,9}/Page(?![A-Za-z])")


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
