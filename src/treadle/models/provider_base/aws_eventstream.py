"""Converts AWS event-stream frames to server-sent events, for the responses of Bedrock.

Sans-IO: bytes of `application/vnd.amazon.eventstream` go in, SSE bytes come out, so that decoders
see one format. It checks the checksums of every frame.

    length · headers length · checksum · headers · payload · checksum
"""

import base64
import binascii
import struct
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from treadle.lib.http.transport import MalformedResponse, ResponseTooLarge

MEDIA_TYPE: Final = "application/vnd.amazon.eventstream"
_PRELUDE: Final = struct.Struct(">III")
_MAX_FRAME: Final = 24 * 1024 * 1024
# Sizes of the header values that are not strings, by type; 6 and 7 have their own length.
_HEADER_VALUE_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class AWSFrameReader:
    """Reads one stream of frames."""

    def __init__(self) -> None:
        self._tail = bytearray()

    def feed(self, data: bytes) -> bytes:
        """The events of every frame that this chunk completes, as SSE."""
        self._tail += data
        return b"".join(_frame_to_sse(headers, payload) for headers, payload in self._frames())

    def _frames(self) -> Iterator[tuple[dict[str, str], bytes]]:
        tail = self._tail
        while len(tail) >= _PRELUDE.size:
            total, header_size, check = _PRELUDE.unpack_from(tail)
            if zlib.crc32(tail[:8]) != check or total < header_size + 16:
                raise MalformedResponse("a frame of the event stream is damaged: try again")
            if total > _MAX_FRAME:
                raise ResponseTooLarge(f"a frame of the event stream has {total} bytes: try again")
            if len(tail) < total:
                return
            frame = bytes(tail[:total])
            del tail[:total]
            if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
                raise MalformedResponse("a frame of the event stream is damaged: try again")
            yield _parse_headers(frame[12 : 12 + header_size]), frame[12 + header_size : -4]


def _parse_headers(block: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    start = 0
    while start < len(block):
        end = start + 1 + block[start]
        name = block[start + 1 : end].decode("utf-8", "replace")
        kind = block[end]
        end += 1
        if kind in (6, 7):
            size = int.from_bytes(block[end : end + 2], "big")
            end += 2
            headers[name] = block[end : end + size].decode("utf-8", "replace")
            end += size
        else:
            end += _HEADER_VALUE_SIZES[kind]
        start = end
    return headers


def _frame_to_sse(headers: dict[str, str], payload: bytes) -> bytes:
    try:
        body = msgspec.json.decode(payload, type=dict[str, object]) if payload else {}
        if headers.get(":message-type", "event") != "event":
            return _error_to_sse(headers, body)
        name = headers.get(":event-type", "chunk")
        if name not in ("chunk", "initial-response"):  # of Converse: the payload is the event
            return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(body))
        data = base64.b64decode(str(body.get("bytes") or ""), validate=True)
        kind = msgspec.json.decode(data, type=_TypeOnly).type if data else ""
    except (msgspec.MsgspecError, binascii.Error, UnicodeError) as error:
        message = f"a frame of the event stream is malformed ({error}): try again"
        raise MalformedResponse(message) from error
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data) if data else b""


def _error_to_sse(headers: dict[str, str], body: dict[str, object]) -> bytes:
    kind = headers.get(":exception-type") or headers.get(":error-code") or "error"
    message = body.get("message") or headers.get(":error-message") or kind
    error = {"type": "error", "error": {"type": kind, "message": message}}
    return b"event: error\ndata: " + msgspec.json.encode(error) + b"\n\n"


class _TypeOnly(msgspec.Struct):
    type: str = ""
