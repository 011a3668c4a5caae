"""What the loopback provider can do wrong, by name.

A fault changes the plan of one answer: the reply before it is rendered, or the answer after.
Names are the keys of `FAULTS`. It sends nothing: `playing` carries the plan out.

    plan.reply ──"reply"──▶ events or body ──"answer"──▶ bytes, pauses, an ending
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final, Literal, NamedTuple

import msgspec

from .dialects import Event
from .plans import Fault, Plan, encode
from .script import Call, Reply, Text, Usage


def retry_after(form: str) -> str | None:
    """A Retry-After value in one of its forms: seconds, date, absent, negative, huge, fraction,
    past, words."""
    now = datetime.now(UTC)
    return {
        "seconds": "7",
        "date": format_datetime(now + timedelta(seconds=7), usegmt=True),
        "absent": None,
        "negative": "-5",
        "huge": "1000000000",
        "fraction": "0.5",
        "past": format_datetime(now - timedelta(days=1), usegmt=True),
        "words": "soon",
    }[form]


Act = Callable[[Plan, Fault], None]


class Known(NamedTuple):
    """A fault's deed, when it is done, and whether it spoils the attempt (a retry is expected)."""

    stage: Literal["reply", "answer"]
    act: Act
    spoils: bool


FAULTS: Final[dict[str, Known]] = {}


def _on(stage: Literal["reply", "answer"], *, spoils: bool = False) -> Callable[[Act], Act]:
    def keep(act: Act) -> Act:
        FAULTS[act.__name__] = Known(stage, act, spoils)
        return act

    return keep


# -- refusals


def _refusal(name: str, status: int, kind: str, words: str) -> None:
    """A fault that is only a refusal; its `message` replaces the words."""

    def refuse(plan: Plan, fault: Fault) -> None:
        plan.refuse(status, kind, fault.message or words)

    FAULTS[name] = Known("answer", refuse, spoils=True)


@_on("answer", spoils=True)
def rate_limited(plan: Plan, fault: Fault) -> None:
    """429; `value` is the Retry-After header (see `retry_after`), None leaves it out."""
    if fault.value is not None:
        plan.headers["retry-after"] = fault.value
    plan.refuse(429, "rate_limit_error", fault.message or "This request would exceed a rate limit")


@_on("answer", spoils=True)
def server_error(plan: Plan, fault: Fault) -> None:
    """`status`, 500 by default."""
    status = fault.status or 500
    plan.refuse(status, "api_error", fault.message or "Internal server error")


_refusal("overloaded", 529, "overloaded_error", "Overloaded")
_refusal("bad_request", 400, "invalid_request_error", "messages: invalid history")
_refusal("unauthorized", 401, "authentication_error", "invalid x-api-key")
_refusal("forbidden", 403, "permission_error", "the key may not use this model")
_refusal("not_found", 404, "not_found_error", "model: no-such-model")
_refusal("too_large", 413, "request_too_large", "Request exceeds the maximum size")


@_on("answer", spoils=True)
def context_too_long(plan: Plan, fault: Fault) -> None:
    """400 in the words that the services use for a full window."""
    message = fault.message or "prompt is too long: 210000 tokens > 200000 maximum"
    kind = "invalid_request_error"
    if not plan.dialect.ping():
        kind = "context_length_exceeded"
        message = fault.message or "This model's maximum context length is 200000 tokens"
    plan.refuse(400, kind, message)


@_on("answer", spoils=True)
def redirect(plan: Plan, fault: Fault) -> None:
    """`status` (307) with Location `value`."""
    plan.status = fault.status or 307
    plan.headers["location"] = fault.value or "https://elsewhere.invalid/v1"
    plan.body = b""


@_on("answer", spoils=True)
def html(plan: Plan, fault: Fault) -> None:
    """200 with a page, as a captive portal or a company proxy gives."""
    plan.headers["content-type"] = "text/html"
    plan.status = fault.status or 200
    plan.body = b"<!DOCTYPE html><html><body><h1>Sign in to the network</h1></body></html>"


# -- connections that break


@_on("answer", spoils=True)
def no_answer(plan: Plan, fault: Fault) -> None:
    """The connection closes before any byte of a response."""
    plan.silent, plan.ending = True, "close"


@_on("answer", spoils=True)
def reset(plan: Plan, fault: Fault) -> None:
    """The connection is reset before any byte of a response."""
    plan.silent, plan.ending = True, "reset"


@_on("answer", spoils=True)
def stall_headers(plan: Plan, fault: Fault) -> None:
    """The request is taken, and nothing ever comes."""
    plan.silent, plan.ending = True, "hang"


@_on("answer", spoils=True)
def disconnect_after_headers(plan: Plan, fault: Fault) -> None:
    plan.events, plan.ending = [], "close"


@_on("answer", spoils=True)
def disconnect_in_text(plan: Plan, fault: Fault) -> None:
    """Closes in the middle of the second text event."""
    plan.cut, plan.ending = _inside(plan, "text"), "close"


@_on("answer", spoils=True)
def disconnect_in_thinking(plan: Plan, fault: Fault) -> None:
    plan.cut, plan.ending = _inside(plan, "thinking"), "close"


@_on("answer", spoils=True)
def disconnect_in_arguments(plan: Plan, fault: Fault) -> None:
    """Closes in the middle of a call's arguments."""
    plan.cut, plan.ending = _inside(plan, "arguments"), "close"


@_on("answer", spoils=True)
def no_final_event(plan: Plan, fault: Fault) -> None:
    """The body ends properly, but without the event that says so."""
    plan.events = [event for event in plan.events if event.kind != "end"]


@_on("answer", spoils=True)
def stall_in_text(plan: Plan, fault: Fault) -> None:
    """Some text, then silence on an open connection."""
    plan.cut, plan.ending = _inside(plan, "text"), "hang"


# -- streams of strange form


@_on("answer")
def crlf(plan: Plan, fault: Fault) -> None:
    plan.encode = lambda event: encode(event).replace(b"\n", b"\r\n")


@_on("answer")
def cr(plan: Plan, fault: Fault) -> None:
    plan.encode = lambda event: encode(event).replace(b"\n", b"\r")


@_on("answer")
def bom(plan: Plan, fault: Fault) -> None:
    plan.prefix = b"\xef\xbb\xbf"


@_on("answer")
def comments(plan: Plan, fault: Fault) -> None:
    plan.encode = lambda event: b": keep-alive\n\n:\n" + encode(event)


@_on("answer")
def no_space(plan: Plan, fault: Fault) -> None:
    plan.encode = lambda event: (
        encode(event).replace(b": ", b":", 1).replace(b"\ndata: ", b"\ndata:", 1)
    )


@_on("answer")
def more_fields(plan: Plan, fault: Fault) -> None:
    """id, retry and unknown fields around each event."""
    plan.encode = lambda event: b"id: 7\nretry: 10\nx-y: z\n" + encode(event)


@_on("answer")
def multi_line(plan: Plan, fault: Fault) -> None:
    """The JSON of each event over several data lines."""

    def spread(event: Event) -> bytes:
        if not event.data.startswith(b"{"):
            return encode(event)
        parsed = msgspec.json.decode(event.data)
        lines = msgspec.json.format(msgspec.json.encode(parsed), indent=1).split(b"\n")
        return encode(event._replace(data=b"\ndata: ".join(lines)))

    plan.encode = spread


@_on("answer")
def split_bytes(plan: Plan, fault: Fault) -> None:
    """`count` bytes (1) to each chunk and write."""
    plan.chunk = fault.count or 1


@_on("answer", spoils=True)
def missing_blank_line(plan: Plan, fault: Fault) -> None:
    """The last event lacks its blank line, so by the specification it never happened."""
    plan.drop_last_blank = True


@_on("reply")
def big_event(plan: Plan, fault: Fault) -> None:
    """One text delta of `count` bytes (5 MiB)."""
    text = Text(("x" * (fault.count or 5 * 1024 * 1024),))
    plan.reply = msgspec.structs.replace(plan.reply, parts=(text, *plan.reply.calls))


@_on("answer", spoils=True)
def not_json(plan: Plan, fault: Fault) -> None:
    """An event in the middle is not JSON."""
    _spoil(plan, lambda data: b"<<not json>>")


@_on("answer", spoils=True)
def truncated_json(plan: Plan, fault: Fault) -> None:
    """An event in the middle is cut JSON."""
    _spoil(plan, lambda data: data[: len(data) // 2])


@_on("answer", spoils=True)
def error_event(plan: Plan, fault: Fault) -> None:
    """An error inside a 200 stream, after `count` events; `value` is its kind."""
    kind = fault.value or "overloaded_error"
    after = fault.count or len(plan.events) // 2
    error = plan.dialect.error_event(kind, fault.message or "Overloaded")
    plan.events = [*plan.events[:after], error]


@_on("answer")
def gzip(plan: Plan, fault: Fault) -> None:
    """The body is compressed, though nobody asked."""
    plan.gzip = True


# -- replies of strange content

BAD_ARGUMENTS: Final[dict[str, Callable[[str], str]]] = {
    "truncated": lambda raw: raw[: max(1, len(raw) // 2)],
    "trailing": lambda raw: raw + " and that is all",
    "empty_object": lambda raw: "{}",
    "empty": lambda raw: "",
    "wrong_type": lambda raw: "[1, 2]",
    "nan": lambda raw: '{"a": NaN}',
    "huge": lambda raw: '{"a": "' + "x" * (10 * 1024 * 1024) + '"}',
    "duplicate_keys": lambda raw: '{"a": 1, "a": 2}',
    "double_encoded": lambda raw: msgspec.json.encode(raw).decode(),
}


@_on("reply")
def bad_arguments(plan: Plan, fault: Fault) -> None:
    """The first call's arguments, spoiled as `value` says (a key of BAD_ARGUMENTS)."""
    spoil = BAD_ARGUMENTS[fault.value or "truncated"]
    _with_calls(plan, lambda i, call: _replaced(call, arguments=spoil(call.raw)) if not i else call)


@_on("reply")
def same_ids(plan: Plan, fault: Fault) -> None:
    """Every call has the id `value`; empty is possible."""
    made = "same" if fault.value is None else fault.value
    _with_calls(plan, lambda _, call: _replaced(call, id=made))


@_on("reply")
def many_calls(plan: Plan, fault: Fault) -> None:
    """The first call, `count` times (100)."""
    calls = [part for part in plan.reply.all_parts() if isinstance(part, Call)][:1]
    rest = tuple(part for part in plan.reply.all_parts() if not isinstance(part, Call))
    many = (*rest, *calls * (fault.count or 100))
    plan.reply = msgspec.structs.replace(plan.reply, parts=many)


@_on("reply")
def empty_reply(plan: Plan, fault: Fault) -> None:
    """No text, no calls, a natural stop."""
    plan.reply = Reply(usage=plan.reply.usage)


@_on("reply")
def max_tokens_in_call(plan: Plan, fault: Fault) -> None:
    """The output limit is met inside the last call's arguments."""
    calls = [part for part in plan.reply.all_parts() if isinstance(part, Call)]
    last = len(calls) - 1
    cut = BAD_ARGUMENTS["truncated"]
    _with_calls(plan, lambda i, c: _replaced(c, arguments=cut(c.raw)) if i == last else c)
    plan.reply = msgspec.structs.replace(plan.reply, stop="max_tokens")


@_on("reply")
def no_usage(plan: Plan, fault: Fault) -> None:
    plan.reply = msgspec.structs.replace(plan.reply, usage=None)


@_on("reply")
def zero_usage(plan: Plan, fault: Fault) -> None:
    plan.reply = msgspec.structs.replace(plan.reply, usage=Usage(0, 0))


@_on("reply")
def negative_usage(plan: Plan, fault: Fault) -> None:
    plan.reply = msgspec.structs.replace(plan.reply, usage=Usage(-5, -7, -1, -1))


# -- time


@_on("answer", spoils=True)
def endless(plan: Plan, fault: Fault) -> None:
    """Text deltas for ever, one each `seconds` (0.001)."""
    first = next((event for event in plan.events if event.kind == "text"), None)
    plan.events = plan.events[: 1 + plan.events.index(first)] if first else plan.events
    plan.endless = first or plan.events[0]
    plan.pause = fault.seconds or 0.001


@_on("answer", spoils=True)
def pings_only(plan: Plan, fault: Fault) -> None:
    """Keep-alives for ever, one each `seconds` (0.001); no content."""
    plan.events = plan.events[:1]
    plan.endless = plan.dialect.ping() or Event("", b"", "comment")
    plan.pause = fault.seconds or 0.001


@_on("answer", spoils=True)
def slow_loris(plan: Plan, fault: Fault) -> None:
    """One byte each `seconds` (0.01)."""
    plan.chunk, plan.pause = 1, fault.seconds or 0.01


@_on("answer")
def slow_start(plan: Plan, fault: Fault) -> None:
    """`count` pings (20), one each `seconds` (0.005), and then the whole reply."""
    plan.pings_first, plan.pause_first = fault.count or 20, fault.seconds or 0.005


@_on("answer")
def paced(plan: Plan, fault: Fault) -> None:
    """The normal reply, one event each `seconds` (0.005)."""
    plan.pause = fault.seconds or 0.005


# -- inside


def _inside(plan: Plan, kind: str) -> int:
    """How many bytes of the stream end half-way through the second event of a kind."""
    sent = len(plan.prefix)
    wanted = [number for number, event in enumerate(plan.events) if event.kind == kind][:2]
    target = wanted[-1] if wanted else len(plan.events) // 2
    for event in plan.events[:target]:
        sent += len(plan.encode(event))
    return sent + len(plan.encode(plan.events[target])) // 2


def _spoil(plan: Plan, change: Callable[[bytes], bytes]) -> None:
    middle = len(plan.events) // 2
    spoiled = plan.events[middle]
    plan.events[middle] = spoiled._replace(data=change(spoiled.data))


def _with_calls(plan: Plan, change: Callable[[int, Call], Call]) -> None:
    parts = list(plan.reply.all_parts())
    places = [number for number, part in enumerate(parts) if isinstance(part, Call)]
    for index, place in enumerate(places):
        call = parts[place]
        assert isinstance(call, Call)
        parts[place] = change(index, call)
    plan.reply = msgspec.structs.replace(plan.reply, parts=tuple(parts))


def _replaced(call: Call, **changes: object) -> Call:
    return msgspec.structs.replace(call, **changes)
