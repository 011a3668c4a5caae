"""The faults of the loopback provider, by name.

A fault changes the plan of one answer: the reply before it is rendered, or the answer after.
Names are the keys of `FAULTS`. Nothing is sent here: `http` sends the plan.

    plan.reply ──"reply"──▶ events or body ──"answer"──▶ bytes, pauses, an ending
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final, Literal, NamedTuple

import msgspec

from .answers import ConnectionEnding, PlannedAnswer, ProviderFault, encode_event
from .dialects import SseEvent
from .script import FakeCall, FakeReply, FakeText, FakeUsage


def make_retry_after(form: str) -> str | None:
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


ApplyFault = Callable[[PlannedAnswer, ProviderFault], None]


class FaultSpec(NamedTuple):
    """A fault: its stage, its function, and whether it fails the attempt (a retry is expected)."""

    stage: Literal["reply", "answer"]
    apply: ApplyFault
    fails_attempt: bool


FAULTS: Final[dict[str, FaultSpec]] = {}


def _register_fault(
    stage: Literal["reply", "answer"], *, fails_attempt: bool = False
) -> Callable[[ApplyFault], ApplyFault]:
    def register(apply: ApplyFault) -> ApplyFault:
        FAULTS[apply.__name__] = FaultSpec(stage, apply, fails_attempt)
        return apply

    return register


# -- refusals


def _register_refusal(name: str, status: int, kind: str, message: str) -> None:
    """A fault that is only an error response; its `message` replaces the default one."""

    def refuse(plan: PlannedAnswer, fault: ProviderFault) -> None:
        plan.refuse(status, kind, fault.message or message)

    FAULTS[name] = FaultSpec("answer", refuse, fails_attempt=True)


@_register_fault("answer", fails_attempt=True)
def rate_limited(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """429; `value` is the Retry-After header (see `make_retry_after`), None leaves it out."""
    if fault.value is not None:
        plan.headers["retry-after"] = fault.value
    plan.refuse(429, "rate_limit_error", fault.message or "This request would exceed a rate limit")


@_register_fault("answer", fails_attempt=True)
def server_error(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """`status`, 500 by default."""
    status = fault.status or 500
    plan.refuse(status, "api_error", fault.message or "Internal server error")


_register_refusal("overloaded", 529, "overloaded_error", "Overloaded")
_register_refusal("bad_request", 400, "invalid_request_error", "messages: invalid history")
_register_refusal("unauthorized", 401, "authentication_error", "invalid x-api-key")
_register_refusal("forbidden", 403, "permission_error", "the key may not use this model")
_register_refusal("not_found", 404, "not_found_error", "model: no-such-model")
_register_refusal("too_large", 413, "request_too_large", "Request exceeds the maximum size")


@_register_fault("answer", fails_attempt=True)
def context_too_long(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """400 with the error of the service for a full context window."""
    error = plan.dialect.context_violation(210_000, 200_000)
    plan.refuse(error.status, error.kind, fault.message or error.message)


@_register_fault("answer", fails_attempt=True)
def redirect(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """`status` (307) with Location `value`."""
    plan.status = fault.status or 307
    plan.headers["location"] = fault.value or "https://elsewhere.invalid/v1"
    plan.body = b""


@_register_fault("answer", fails_attempt=True)
def html(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """200 with an HTML page, as from a captive portal or a proxy."""
    plan.headers["content-type"] = "text/html"
    plan.status = fault.status or 200
    plan.body = b"<!DOCTYPE html><html><body><h1>Sign in to the network</h1></body></html>"


# -- connections that break


@_register_fault("answer", fails_attempt=True)
def no_answer(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The connection closes before any byte of a response."""
    plan.is_silent, plan.ending = True, "close"


@_register_fault("answer", fails_attempt=True)
def reset(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The connection is reset before any byte of a response."""
    plan.is_silent, plan.ending = True, "reset"


@_register_fault("answer", fails_attempt=True)
def stall_headers(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The request is read, and no response is sent."""
    plan.is_silent, plan.ending = True, "hang"


@_register_fault("answer", fails_attempt=True)
def disconnect_after_headers(plan: PlannedAnswer, fault: ProviderFault) -> None:
    plan.events, plan.ending = [], "close"


def _register_cut(name: str, kind: str, ending: ConnectionEnding) -> None:
    """The stream ends in the middle of the second event of this kind."""

    def cut(plan: PlannedAnswer, fault: ProviderFault) -> None:
        plan.cut_at, plan.ending = _offset_inside(plan, kind), ending

    FAULTS[name] = FaultSpec("answer", cut, fails_attempt=True)


_register_cut("disconnect_in_text", "text", "close")
_register_cut("disconnect_in_thinking", "thinking", "close")
_register_cut("disconnect_in_arguments", "arguments", "close")
_register_cut("stall_in_text", "text", "hang")  # silence on an open connection


@_register_fault("answer", fails_attempt=True)
def no_final_event(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The body is complete, but without the final event."""
    plan.events = [event for event in plan.events if event.kind != "end"]


# -- streams of unusual form


@_register_fault("answer")
def bom(plan: PlannedAnswer, fault: ProviderFault) -> None:
    plan.prefix = b"\xef\xbb\xbf"


def _register_encoding(name: str, encode: Callable[[bytes], bytes]) -> None:
    """A valid form of each event that parsers may not expect."""

    def apply(plan: PlannedAnswer, fault: ProviderFault) -> None:
        plan.encode = lambda event: encode(encode_event(event))

    FAULTS[name] = FaultSpec("answer", apply, fails_attempt=False)


_register_encoding("crlf", lambda raw: raw.replace(b"\n", b"\r\n"))
_register_encoding("cr", lambda raw: raw.replace(b"\n", b"\r"))
_register_encoding("comments", lambda raw: b": keep-alive\n\n:\n" + raw)
_register_encoding("no_space", lambda raw: re.sub(rb"(?m)^(event|data): ", rb"\1:", raw))
_register_encoding("more_fields", lambda raw: b"id: 7\nretry: 10\nx-y: z\n" + raw)


@_register_fault("answer")
def multi_line(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The JSON of each event over several data lines."""

    def spread(event: SseEvent) -> bytes:
        if not event.data.startswith(b"{"):
            return encode_event(event)
        parsed = msgspec.json.decode(event.data)
        lines = msgspec.json.format(msgspec.json.encode(parsed), indent=1).split(b"\n")
        return encode_event(event._replace(data=b"\ndata: ".join(lines)))

    plan.encode = spread


@_register_fault("answer")
def split_bytes(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """`count` bytes (1) per chunk and write."""
    plan.chunk_bytes = fault.count or 1


@_register_fault("answer")
def missing_blank_line(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The last event lacks its blank line; it is whole, so the reply is complete."""
    plan.drops_last_blank_line = True


@_register_fault("reply")
def big_event(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """One text delta of `count` bytes (5 MiB)."""
    text = FakeText(("x" * (fault.count or 5 * 1024 * 1024),))
    plan.reply = msgspec.structs.replace(plan.reply, parts=(text, *plan.reply.calls))


@_register_fault("answer", fails_attempt=True)
def not_json(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """An event in the middle is not JSON."""
    _change_middle_event(plan, lambda data: b"<<not json>>")


@_register_fault("answer", fails_attempt=True)
def truncated_json(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """An event in the middle is cut JSON."""
    _change_middle_event(plan, lambda data: data[: len(data) // 2])


@_register_fault("answer", fails_attempt=True)
def error_event(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """An error inside a 200 stream, after `count` events; `value` is its kind."""
    kind = fault.value or "overloaded_error"
    after = fault.count or len(plan.events) // 2
    error = plan.dialect.render_error_event(kind, fault.message or "Overloaded")
    plan.events = [*plan.events[:after], error]


@_register_fault("answer")
def gzip(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The body is compressed although the client did not ask for it."""
    plan.is_gzipped = True


# -- replies of unusual content

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


@_register_fault("reply")
def bad_arguments(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The arguments of the first call, changed by the entry `value` of BAD_ARGUMENTS."""
    change = BAD_ARGUMENTS[fault.value or "truncated"]
    _change_calls(plan, lambda i, c: c if i else _replace_call(c, arguments=change(c.raw)))


@_register_fault("reply")
def same_ids(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """Every call has the id `value`, which may be empty."""
    call_id = "same" if fault.value is None else fault.value
    _change_calls(plan, lambda _, call: _replace_call(call, id=call_id))


@_register_fault("reply")
def many_calls(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The first call, `count` times (100)."""
    calls = [part for part in plan.reply.all_parts() if isinstance(part, FakeCall)][:1]
    rest = tuple(part for part in plan.reply.all_parts() if not isinstance(part, FakeCall))
    many = (*rest, *calls * (fault.count or 100))
    plan.reply = msgspec.structs.replace(plan.reply, parts=many)


@_register_fault("reply")
def empty_reply(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """No text, no calls, stop reason end_turn."""
    plan.reply = FakeReply(usage=plan.reply.usage)


@_register_fault("reply")
def max_tokens_in_call(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The output limit is reached inside the arguments of the last call."""
    calls = [part for part in plan.reply.all_parts() if isinstance(part, FakeCall)]
    last = len(calls) - 1
    cut = BAD_ARGUMENTS["truncated"]
    _change_calls(plan, lambda i, c: _replace_call(c, arguments=cut(c.raw)) if i == last else c)
    plan.reply = msgspec.structs.replace(plan.reply, stop="max_tokens")


def _register_usage(name: str, usage: FakeUsage | None) -> None:
    def apply(plan: PlannedAnswer, fault: ProviderFault) -> None:
        plan.reply = msgspec.structs.replace(plan.reply, usage=usage)

    FAULTS[name] = FaultSpec("reply", apply, fails_attempt=False)


_register_usage("no_usage", None)
_register_usage("zero_usage", FakeUsage(0, 0))
_register_usage("negative_usage", FakeUsage(-5, -7, -1, -1))


# -- time


@_register_fault("answer", fails_attempt=True)
def endless(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """Text deltas without end, one every `seconds` (0.001)."""
    first = next((event for event in plan.events if event.kind == "text"), None)
    plan.events = plan.events[: 1 + plan.events.index(first)] if first else plan.events
    plan.repeated_event = first or plan.events[0]
    plan.pause_seconds = fault.seconds or 0.001


@_register_fault("answer", fails_attempt=True)
def pings_only(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """Keep-alives without end, one every `seconds` (0.001); no content."""
    plan.events = plan.events[:1]
    plan.repeated_event = plan.dialect.render_ping() or SseEvent("", b"", "comment")
    plan.pause_seconds = fault.seconds or 0.001


@_register_fault("answer", fails_attempt=True)
def slow_loris(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """One byte every `seconds` (0.01)."""
    plan.chunk_bytes, plan.pause_seconds = 1, fault.seconds or 0.01


@_register_fault("answer")
def slow_start(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """`count` pings (20), one every `seconds` (0.005), then the whole reply."""
    plan.ping_count, plan.ping_seconds = fault.count or 20, fault.seconds or 0.005


@_register_fault("answer")
def paced(plan: PlannedAnswer, fault: ProviderFault) -> None:
    """The normal reply, one event every `seconds` (0.005)."""
    plan.pause_seconds = fault.seconds or 0.005


# -- helpers


def _offset_inside(plan: PlannedAnswer, kind: str) -> int:
    """The offset of the middle of the second event of a kind."""
    offset = len(plan.prefix)
    matches = [number for number, event in enumerate(plan.events) if event.kind == kind][:2]
    target = matches[-1] if matches else len(plan.events) // 2
    for event in plan.events[:target]:
        offset += len(plan.encode(event))
    return offset + len(plan.encode(plan.events[target])) // 2


def _change_middle_event(plan: PlannedAnswer, change: Callable[[bytes], bytes]) -> None:
    middle = len(plan.events) // 2
    event = plan.events[middle]
    plan.events[middle] = event._replace(data=change(event.data))


def _change_calls(plan: PlannedAnswer, change: Callable[[int, FakeCall], FakeCall]) -> None:
    parts = list(plan.reply.all_parts())
    calls = [(position, part) for position, part in enumerate(parts) if isinstance(part, FakeCall)]
    for index, (position, call) in enumerate(calls):
        parts[position] = change(index, call)
    plan.reply = msgspec.structs.replace(plan.reply, parts=tuple(parts))


def _replace_call(call: FakeCall, **changes: object) -> FakeCall:
    return msgspec.structs.replace(call, **changes)
