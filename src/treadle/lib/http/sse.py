"""Parses server-sent events from bytes, by the WHATWG specification, for any chunking.

Sans-IO: chunks go in, complete events come out in batches. It decodes no JSON or text. An event
without its closing blank line is never returned.
"""

import re
from typing import Final

from .transport import ResponseTooLarge

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024

# Either a whole event of the common shape, or any one line. Matches are contiguous, so the
# possessive repeats keep the scan linear and `findall` does the work of the common case in C.
_EVENT_OR_LINE = re.compile(rb"(?:event: ?([^\n]*+)\n)?data: ?([^\n]*+)\n\n|[^\n]*+\n")
_CR: Final = ord("\r")  # to look for a number costs a tenth of looking for bytes
_BOM: Final = b"\xef\xbb\xbf"


class SSEReader:
    """Reads one stream. `feed` returns `(name, data)`; the name is empty if none was given.

    `pending` counts the bytes of an incomplete event; above 0 at the end, the stream was cut.
    `error` is the value of a field that the specification lacks: some servers send the reason for
    which they end a stream in it.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail: list[bytes] = []
        self._is_at_start = True
        self._after_cr = False
        self.pending = 0
        self.error = b""

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Every event that this chunk completes, in order."""
        if self._is_at_start:
            data = self._strip_bom(data)
        if self._after_cr or _CR in data:
            data = self._normalize_newlines(data)
        if not data:
            return []
        tail = self._tail
        end = data.rfind(b"\n\n") + 2
        if end == 1:
            # A blank line can be split between two chunks.
            if not (tail and data[0] == 10 and tail[-1][-1] == 10):
                tail.append(data)
                self._add_pending(len(data))
                return []
            end = 1
        if tail:
            end += self.pending
            tail.append(data)
            data = b"".join(tail)
            tail.clear()
        if end < len(data):
            tail.append(data[end:])
        self.pending = 0
        self._add_pending(len(data) - end)
        matches: list[tuple[bytes, bytes]] = _EVENT_OR_LINE.findall(data, 0, end)
        # Each event has one blank line; any other line makes one match more than there are blank
        # lines, so equal counts prove that every match is a whole event.
        if len(matches) == data.count(b"\n\n", 0, end):
            return matches
        return self._parse_lines(data[:end])

    def _add_pending(self, size: int) -> None:
        self.pending += size
        if self.pending > self._max_event_bytes:
            raise ResponseTooLarge(
                f"one event of the stream is larger than {self._max_event_bytes} bytes: "
                "the server does not use the expected protocol, check the base URL"
            )

    def _strip_bom(self, chunk: bytes) -> bytes:
        chunk = b"".join((*self._tail, chunk))
        self._tail.clear()
        self.pending = 0
        if len(chunk) < 3 and _BOM.startswith(chunk):
            if chunk:
                self._tail.append(chunk)
                self.pending = len(chunk)
            return b""
        self._is_at_start = False
        return chunk.removeprefix(_BOM)

    def _normalize_newlines(self, chunk: bytes) -> bytes:
        if not chunk:
            return chunk
        if self._after_cr and chunk[0] == 10:
            chunk = chunk[1:]
            if not chunk:
                self._after_cr = False
                return chunk
        self._after_cr = chunk[-1] == 13
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parse_lines(self, block: bytes) -> list[tuple[bytes, bytes]]:
        events: list[tuple[bytes, bytes]] = []
        name = b""
        data: list[bytes] = []
        for line in block.split(b"\n")[:-1]:
            if not line:
                if data:
                    events.append((name, b"\n".join(data)))
                    data = []
                name = b""
                continue
            field, colon, value = line.partition(b":")
            if colon and value.startswith(b" "):
                value = value[1:]
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"error":
                self.error = value
        return events
