"""Random streams by seed: whatever a provider sends, a model ends with a reply or a typed error.

    python tests/faults/stream_fuzz.py 1000000 [--wire chat] [--first SEED]

A stream is a recorded response (tests/data/exchanges) after some changes: bytes cut, flipped or
added, events repeated, removed, moved and mixed with those of another response, fields removed,
renamed, added or of another type, unknown blocks and events, huge numbers, deep nesting, invalid
UTF-8, half surrogate pairs. It is split into chunks at any place; every second one is read in one
piece, too, which must give the same. What holds for
every stream is in `check`. Not a test by itself: test_stream_fuzz.py runs some. A failure names
its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

from tests.models.exchanges import STREAM, WHOLE, ExchangeReader, Outcome, list_exchanges
from tests.models.wires import WIRES
from treadle.core.contracts.model import (
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    ModelUsageUpdated,
)
from treadle.core.transcript import (
    AssistantItem,
    Item,
    Text,
    Thinking,
    ToolCall,
    Transcript,
    to_user_item,
)
from treadle.core.transcript.integrity import (
    find_violations,
    is_empty,
    make_interrupted_result,
)
from treadle.core.transcript.usage import Usage

MAX_SECONDS = 20.0  # for one stream; they take less than a millisecond of an idle machine
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e300, 10**30, -(10**25), 2**63, "", "x", "0", "null", "\x00",
    "\ud83d", "é🙂", [], [None], [[]], {}, {"a": {}}, {"type": "text"},
    [{"type": "text", "text": 3}], "9" * 40, "tool_use", "message", "function_call",
    "reasoning", "length", "stop", "error",
)  # fmt: skip
RAW_VALUES = (
    b"1e400", b"-0", b"NaN", b"1" + b"0" * 400, b'"\\ud800"', b'"\\udc00\\ud800"', b"[" * 2000,
    b'{"a":' * 1500 + b"1" + b"}" * 1500, b'"\xff\xfe"', b'"\xc3"', b"01", b'"\\x"', b"",
)  # fmt: skip
LINES = (
    b": comment", b":", b"id: 7", b"id: \x00", b"retry: 10", b"retry: " + b"9" * 5000,
    b"event: ping", b"event", b"data", b"data:", b"data: {}", b"data: []", b"data: [DONE]",
    b"data: null",
    b'data: {"type":"ping"}', b'data: {"type":"a.b"}', b'error: {"code":500,"message":"gone"}',
    b'event: error\ndata: {"error":{"message":"no","code":"\xc2\xb2"}}', b"\xff\xfe", b"\x00",
)  # fmt: skip
# Changes after which the reply is the same: the format says that they mean nothing.
HARMLESS_LINES = (b": comment", b":", b"id: 7", b"retry: 10", b"unknown: x", b"")


class Recording(NamedTuple):
    """A recorded response, split into its events: the name, and the data."""

    name: str
    media_type: str
    body: bytes
    events: list[tuple[bytes, bytes]]


@cache
def load_recordings(wire: str) -> list[Recording]:
    recordings = []
    for exchange in list_exchanges(wire):
        body = exchange.path.read_bytes()
        events = []
        for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
            lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
            if b"data" in lines:
                events.append((lines.get(b"event", b""), lines[b"data"]))
        recordings.append(Recording(exchange.name, exchange.media_type, body, events))
    return recordings


def parse_container(data: bytes) -> Any:
    """The object or list that this JSON is; None if it is something else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def join_events(events: list[tuple[bytes, bytes]], newline: bytes = b"\n") -> bytes:
    parts = []
    for name, data in events:
        if name:
            parts.append(b"event: " + name + newline)
        parts.append(b"data: " + data + newline + newline)
    return b"".join(parts)


class FuzzStream:
    """One stream, made of a seed."""

    def __init__(self, wire: str, seed: int) -> None:
        self.rng = rng = random.Random(f"{wire} {seed}")
        self.wire = wire
        self.recording = rng.choice(load_recordings(wire))
        self.events = list(self.recording.events)
        self.media_type = self.recording.media_type
        self.body = self.recording.body
        self.trace = [self.recording.name]
        self.is_harmless = False
        self.is_cut = rng.random() < 0.05
        self._make()

    def _make(self) -> None:
        rng = self.rng
        if self.media_type == WHOLE or not self.events:
            self._change_bytes(rng.choice([0, 1, 1, 2]), self._change_value)
            return
        chance = rng.random()
        if chance < 0.15:
            self._add_noise()
            return
        if chance < 0.8:
            for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
                change = rng.choice(EVENT_CHANGES)
                self.trace.append(change.__name__)
                change(self)
            self.body = join_events(self.events, rng.choice([b"\n", b"\n", b"\r\n", b"\r"]))
        if chance > 0.7:
            self._change_bytes(rng.choice([1, 1, 2, 5]))
        if rng.random() < 0.02:
            self.media_type = rng.choice([WHOLE, "", "text/plain"])

    def split(self) -> list[bytes]:
        """The body in chunks of random sizes."""
        rng, body = self.rng, self.body
        if len(body) < 1_000 and rng.random() < 0.05:
            return [body[at : at + 1] for at in range(len(body))]
        cuts = sorted([int(rng.random() * len(body)) for _ in range(rng.choice([1, 2, 4, 12]))])
        return [body[start:end] for start, end in pairwise([0, *cuts, len(body)])]

    # --- harmless changes ----------------------------------------------------------------------

    def _add_noise(self) -> None:
        """Lines and unknown fields that mean nothing in this format."""
        rng = self.rng
        self.trace.append("noise")
        self.is_harmless, self.is_cut = True, False
        blocks = []
        for name, data in self.recording.events:
            if rng.random() < 0.3:
                data = self._add_unknown_field(data)
            lines = [b"event: " + name] if name else []
            lines.append(b"data: " + data)
            if rng.random() < 0.3:
                lines.insert(rng.randint(0, len(lines)), rng.choice(HARMLESS_LINES[:-1]))
            if rng.random() < 0.2:
                blocks.append(rng.choice(HARMLESS_LINES))
            blocks.append(b"\n".join(lines))
        ending = rng.choice([b"\n", b"\r\n", b"\r"])
        self.body = (b"\n\n".join(blocks) + b"\n\n").replace(b"\n", ending)
        if rng.random() < 0.1:
            self.body = b"\xef\xbb\xbf" + self.body

    def _add_unknown_field(self, data: bytes) -> bytes:
        if not data.startswith(b"{") or not data.endswith(b"}") or len(data) < 3:
            return data
        return (
            b'{"zz_unknown":' + json.dumps(self.rng.choice(ODD_VALUES)).encode() + b"," + data[1:]
        )

    # --- changes of bytes ----------------------------------------------------------------------

    def _change_bytes(self, count: int, other: Callable[[], None] | None = None) -> None:
        for _ in range(count):
            if other is not None and self.rng.random() < 0.6:
                other()
                continue
            self.trace.append("bytes")
            self.body = self._changed_bytes(self.body)

    def _changed_bytes(self, body: bytes) -> bytes:
        rng = self.rng
        at = rng.randint(0, len(body))
        to = min(len(body), at + rng.choice([1, 2, 5, 50, 400]))
        match rng.randrange(7):
            case 0:
                return body[:at]
            case 1:
                return body[:at] + body[to:]
            case 2:
                return body[:at] + body[at:to] + body[at:]
            case 3:
                return body[:at] + rng.randbytes(rng.choice([1, 1, 4])) + body[to:]
            case 4:
                return body[:at] + rng.choice(RAW_VALUES) + body[at:]
            case 5:
                return (
                    body[:at] + rng.choice([b"\n", b"\n\n", b"\r", b"\x00", b'"', b"{"]) + body[at:]
                )
            case _:
                flipped = bytes([body[at] ^ (1 << rng.randrange(8))]) if at < len(body) else b""
                return body[:at] + flipped + body[at + 1 :]

    def _change_value(self) -> None:
        """A value somewhere in a reply in one piece."""
        self.trace.append("value")
        value = parse_container(self.body)
        if value is not None:
            self._change_json(value)
            self.body = json.dumps(value).encode()

    # --- changes of events ---------------------------------------------------------------------

    def _pick(self) -> int:
        return self.rng.randrange(len(self.events)) if self.events else -1

    def repeat_event(self) -> None:
        if self.events:
            at = self._pick()
            self.events[at:at] = [self.events[at]] * self.rng.choice([1, 1, 3])

    def remove_event(self) -> None:
        if self.events:
            del self.events[self._pick()]

    def move_event(self) -> None:
        if self.events:
            event = self.events.pop(self._pick())
            self.events.insert(self.rng.randint(0, len(self.events)), event)

    def cut_events(self) -> None:
        del self.events[self.rng.randint(0, len(self.events)) :]

    def mix_events(self) -> None:
        """Events of another response of this format."""
        other = self.rng.choice(load_recordings(self.wire)).events
        if other:
            at, start = self.rng.randint(0, len(self.events)), self.rng.randrange(len(other))
            self.events[at:at] = other[start : start + self.rng.choice([1, 1, 4, 20])]

    def rename_event(self) -> None:
        if self.events:
            at = self._pick()
            name = self.rng.choice([b"", b"error", b"x", *[event[0] for event in self.events]])
            self.events[at] = (name, self.events[at][1])

    def insert_line(self) -> None:
        at = self.rng.randint(0, len(self.events))
        line = self.rng.choice(LINES).removeprefix(b"data: ")
        self.events.insert(at, (b"", line))

    def change_field(self) -> None:
        if not self.events:
            return
        at = self._pick()
        name, data = self.events[at]
        value = parse_container(data)
        if value is not None:
            self._change_json(value)
            text = json.dumps(value, ensure_ascii=self.rng.random() < 0.5)
            self.events[at] = (name, text.encode("utf-8", "surrogatepass"))

    def spoil_value(self) -> None:
        """JSON that is no JSON, or that few parsers take, in the place of a value."""
        if self.events:
            at = self._pick()
            name, data = self.events[at]
            colons = [place for place, byte in enumerate(data) if byte == 58]
            if colons:
                place = self.rng.choice(colons) + 1
                end = next((n for n in range(place, len(data)) if data[n] in b",}]"), len(data))
                data = data[:place] + self.rng.choice(RAW_VALUES) + data[end:]
            self.events[at] = (name, data)

    def _change_json(self, value: Any) -> None:
        """One place in this value, in place."""
        rng = self.rng
        places: list[tuple[Any, Any]] = []
        stack = [value]
        while stack:
            one = stack.pop()
            keys = list(one) if isinstance(one, dict) else range(len(one))
            for key in keys:
                places.append((one, key))
                if isinstance(one[key], (dict, list)):
                    stack.append(one[key])
        if not places:
            return
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[rng.choice(["x", "type", "text", "index", "id", "delta"])] = holder.pop(key)
            case 2:
                other, other_key = rng.choice(places)
                if json.dumps(other[other_key]) and not isinstance(other[other_key], (dict, list)):
                    holder[key] = other[other_key]
            case 3 if isinstance(holder[key], str):
                holder[key] = rng.choice([holder[key] * 3, holder[key][:1], f" {holder[key]}\n"])
            case _:
                holder[key] = rng.choice(ODD_VALUES)


EVENT_CHANGES: list[Callable[[FuzzStream], None]] = [
    FuzzStream.change_field,
    FuzzStream.change_field,
    FuzzStream.change_field,
    FuzzStream.change_field,
    FuzzStream.spoil_value,
    FuzzStream.repeat_event,
    FuzzStream.remove_event,
    FuzzStream.move_event,
    FuzzStream.cut_events,
    FuzzStream.mix_events,
    FuzzStream.mix_events,
    FuzzStream.rename_event,
    FuzzStream.insert_line,
]

# ------------------------------------------------------------------ what holds for every stream


class StreamFuzzer:
    """Reads random streams of one format."""

    def __init__(self, wire: str) -> None:
        self.wire = wire
        self.reader = ExchangeReader(wire)
        self.outcomes: Counter[str] = Counter()
        self._plain: dict[str, Outcome] = {}

    async def run(self, seed: int) -> None:
        """One stream; an AssertionError with its seed if something does not hold."""
        stream = FuzzStream(self.wire, seed)
        try:
            started = time.monotonic()
            read, media_type, is_cut = self.reader.read, stream.media_type, stream.is_cut
            outcome = await read(stream.split(), media_type, is_cut)
            seconds = time.monotonic() - started
            assert seconds < MAX_SECONDS, f"it took {seconds:.1f} s"
            check(outcome)
            if seed % 2:
                compare(outcome, await read([stream.body], media_type, is_cut))
            if stream.is_harmless:
                compare(outcome, await self._read_plain(stream.recording))
            if outcome.reply is not None:
                self._send_back(outcome.reply)
        except BaseException as error:
            error.add_note(f"{self.wire}, seed {seed}: {' '.join(stream.trace)}")
            raise
        self.outcomes[type(outcome.error).__name__ if outcome.error else "Reply"] += 1

    async def _read_plain(self, recording: Recording) -> Outcome:
        if recording.name not in self._plain:
            body = join_events(recording.events)
            self._plain[recording.name] = await self.reader.read([body], STREAM)
        return self._plain[recording.name]

    def _send_back(self, reply: AssistantItem) -> None:
        """The next request, with this reply in its history, is JSON in UTF-8."""
        if is_empty(reply):  # the loop asks once more
            return
        results = [make_interrupted_result(call) for call in reply.calls]
        items: list[Item] = [to_user_item("hi"), reply, *results, to_user_item("more")]
        problems = find_violations(items)
        assert not problems, problems
        request = ModelRequest(Transcript(items))
        body = b"".join(self.reader.model._codec.encode_request(request).body)
        msgspec.json.decode(body)


def compare(one: Outcome, two: Outcome) -> None:
    """What is read does not depend on where the bytes were split."""
    assert one.events == two.events, f"{one.events!r:.600}\nand\n{two.events!r:.600}"
    assert one.reply == two.reply, f"{one.reply!r:.600}\nand\n{two.reply!r:.600}"
    assert str(one.error) == str(two.error), f"{one.error!r} and {two.error!r}"


def check(outcome: Outcome) -> None:
    """Events are well-formed, and a reply has the text and the calls that they announced."""
    began: set[str] = set()
    announced: list[ToolCall] = []
    shown = thought = ""
    for event in outcome.events:
        match event:
            case ModelTextDelta(text=text):
                shown += text
            case ModelThinkingDelta(text=text):
                thought += text
            case ModelToolCallBegan(id=call_id, name=name):
                assert call_id not in began, f"the call {call_id} began twice"
                assert isinstance(name, str)
                began.add(call_id)
            case ModelToolCallDelta(id=call_id, text=text):
                assert call_id in began, f"a piece of {call_id}, which did not begin"
                assert isinstance(text, str)
            case ModelToolCallRequested(call=call):
                assert call.id in began, f"{call.id} did not begin"
                announced.append(call)
            case ModelUsageUpdated(usage=usage):
                check_usage(usage)
            case _:
                pass
    assert len({call.id for call in announced}) == len(announced), "a call was announced twice"
    msgspec.json.encode([shown, thought])
    if outcome.reply is not None:
        check_reply(outcome.reply, shown, thought, announced)


def check_reply(reply: AssistantItem, shown: str, thought: str, announced: list[ToolCall]) -> None:
    texts = "".join([part.text for part in reply.content if isinstance(part, Text)])
    thoughts = "".join([part.text for part in reply.content if isinstance(part, Thinking)])
    assert not Counter(shown) - Counter(texts), f"shown {shown!r}, and the reply has {texts!r}"
    assert not Counter(thought) - Counter(thoughts), f"shown {thought!r}, kept {thoughts!r}"
    # The wires order the parts of a reply, so the calls may be in another order.
    calls = {call.id: call for call in reply.calls}
    assert calls == {call.id: call for call in announced}, f"{announced} and {reply.calls}"
    check_usage(reply.usage)
    stored = msgspec.json.encode(reply)
    assert msgspec.json.decode(stored, type=AssistantItem) == reply, "the log changes the reply"


def check_usage(usage: Usage) -> None:
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    assert all(0 <= count < 2**62 for count in counts), usage
    assert usage.cost is None or (usage.cost >= 0 and math.isfinite(usage.cost)), usage


async def fuzz_streams(wire: str, first: int, count: int, every: int = 0) -> Counter[str]:
    fuzzer = StreamFuzzer(wire)
    for number, seed in enumerate(range(first, first + count), 1):
        await fuzzer.run(seed)
        if every and number % every == 0:
            print(f"{wire}: {number:,} streams", flush=True)
    return fuzzer.outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description="Read random streams of each format.")
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--wire", choices=WIRES, action="append")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    for wire in arguments.wire or WIRES:
        began = time.monotonic()
        every = 100_000 if arguments.count > 100_000 else 0
        outcomes = asyncio.run(fuzz_streams(wire, arguments.first, arguments.count, every))
        seconds = time.monotonic() - began
        counts = ", ".join(f"{number:,} {name}" for name, number in outcomes.most_common())
        print(f"{wire}: {arguments.count:,} streams in {seconds:.0f} s: {counts}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
