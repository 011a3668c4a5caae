"""Events and items as lines of JSON: one encoding for all that write them.

    {"type":"text_delta","session_id":"…","turn_id":"turn-1","seq":12,"text":"Hel"}
    {"type":"item","session_id":"…","position":3,"item":{"type":"assistant",…}}

The types are those of core/events.py (docs/reference/events.md), and `item`. New types and fields
may be added at any time; FORMAT_VERSION grows when one is removed or changes its meaning.
The host decides where the bytes go.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from treadle.core import events
from treadle.core.events import Event
from treadle.core.transcript.items import Item

FORMAT_VERSION = 1
DELTA_EVENTS = (events.TextDelta, events.ThinkingDelta, events.ToolCallDelta, events.ToolProgress)


class ItemLine(msgspec.Struct, frozen=True, tag="item"):
    """The transcript grew by one item."""

    session_id: str
    position: int
    item: Item


def encode_line(value: msgspec.Struct) -> bytes:
    """A value as one line."""
    try:
        return _encoder.encode(value) + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair: written as an escape
        plain = msgspec.to_builtins(value, enc_hook=_encode_error)
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


class JsonLines:
    """An observer that writes each event and item as a line.

    While `is_lagging()` is true deltas are left out; items are always written. Items carry no
    session id: they get `session_id` or, without one, that of the last event.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        session_id: str = "",
        is_lagging: Callable[[], bool] = lambda: False,
    ) -> None:
        self._write = write
        self._is_lagging = is_lagging
        self.session_id = session_id
        self._last_session_id = session_id

    def on_event(self, event: Event) -> None:
        self._last_session_id = event.session_id
        if isinstance(event, DELTA_EVENTS) and self._is_lagging():
            return
        self._write(encode_line(without_items(event)))

    def on_item(self, position: int, item: Item) -> None:
        self._write(encode_line(ItemLine(self.session_id or self._last_session_id, position, item)))


def without_items(event: Event) -> Event:
    """The event without the items of its turn, which were written one by one. (A ChildEvent keeps
    them: a child's items are written nowhere else.)"""
    if isinstance(event, events.TurnFinished | events.RunFailed) and event.result.items:
        short = msgspec.structs.replace(event.result, items=())
        return msgspec.structs.replace(event, result=short)
    return event


def _encode_error(value: object) -> object:
    if isinstance(value, BaseException):
        return str(value)
    raise NotImplementedError(f"a line cannot hold a {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_encode_error)
