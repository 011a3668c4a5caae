"""Decodes the content encodings gzip and deflate, as servers really send them.

Sans-IO: compressed chunks go in, plain bytes come out. Several gzip members follow each other, and
deflate comes with or without its zlib header. Used by client.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

DECODABLE: Final = frozenset({"gzip", "x-gzip", "deflate"})

_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_STEP_BYTES: Final = 1024 * 1024


class BrokenEncoding(Exception):
    """The compressed data is damaged or incomplete."""


class ContentDecoder:
    """Decodes one body. `feed` yields the bytes of a chunk in parts of limited size; `finish`
    checks that the body ended where its encoding says."""

    def __init__(self, encoding: str) -> None:
        self._is_deflate = encoding == "deflate"
        self._head = b""  # of a deflate body: its first two bytes say whether it has a header
        self._decompressor: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._decompressor is None:
            data = self._head + data
            if len(data) < 2:
                self._head = data
                return
            self._decompressor = zlib.decompressobj(self._choose_window(data))
        while data:
            if self._decompressor.eof:
                # Zeros after a gzip body are padding; anything else is its next member.
                data = data.lstrip(b"\0")
                if not data:
                    return
                self._decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
            try:
                yield from _decompress(self._decompressor, data)
            except zlib.error as error:
                raise BrokenEncoding(str(error)) from error
            data = self._decompressor.unused_data

    def finish(self) -> None:
        """Raise BrokenEncoding if the body was cut; an empty body is whole."""
        if self._head or (self._decompressor is not None and not self._decompressor.eof):
            raise BrokenEncoding("it ends too early")

    def _choose_window(self, data: bytes) -> int:
        self._head = b""
        has_zlib_header = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
        if self._is_deflate and not has_zlib_header:
            return -zlib.MAX_WBITS  # some servers leave the header out
        return _GZIP_OR_ZLIB


def _decompress(decompressor: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    part = decompressor.decompress(data, _STEP_BYTES)
    while part:
        yield part
        # With all input taken, a full part may still leave output inside.
        part = decompressor.decompress(decompressor.unconsumed_tail, _STEP_BYTES)
