"""Events and items as lines of JSON: one encoding for every place that writes them down.

    {"type":"text_delta","session_id":"…","turn_id":"turn-1","seq":12,"text":"Hel"}
    {"type":"item","session_id":"…","position":3,"item":{"type":"assistant",…}}

The types are those of core/events.py, and `item`; docs/events.md lists their fields. New types and
fields may come at any time; VERSION grows when one is taken away or means something else. An
observer and a function: where the bytes go is the host's business.
"""

from __future__ import annotations

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
    return _encoder.encode(value) + b"\n"


class JsonLines:
    """An observer that writes all it is told, a line each.

    `lags` says that the reader is far behind: then single deltas are left out, items never.
    Items do not say whose they are: they are taken for those of the session that spoke last,
    unless `session_id` is given.
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
    """The items of a turn were told one by one; its end need not repeat them. (Those of a child
    are told only there, and stay.)"""
    if isinstance(event, events.TurnFinished | events.RunFailed) and event.result.items:
        short = msgspec.structs.replace(event.result, items=())
        return msgspec.structs.replace(event, result=short)
    return event


def _encode_error(value: object) -> object:
    if isinstance(value, BaseException):
        return str(value)
    raise NotImplementedError(f"a line cannot hold a {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_encode_error)
