"""The file of a recording: JSON lines, version 1.

    {"kind": "recording", "version": 1, "models": [{"name": …, "card": {…}}, …]}
    {"kind": "exchange", "model": NAME, "fingerprint": SHA-256,
     "shown": {"system": …, "tools": […], "options": {…}, "quarantine": […]},
     "same": N, "items": […],        the first N items are those of the previous exchange
     "events": [{"event": "text_piece", "text": …}, …, {"event": "reply", "item": {…}}],
     "error": null | {"type": "Overloaded", "message": …, "status": 529, …}}

Secrets are removed before the fingerprints are computed and before anything is written, so a
recording can be replayed without any key. A last line without its end is left out: the process that
recorded it was killed, or the disk was full. Used by recorded.py.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from treadle.core import errors
from treadle.core.contracts.model import (
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    ModelUsageUpdated,
    PartQuarantined,
    Reply,
)
from treadle.core.errors import ConfigError, ModelError
from treadle.core.transcript.items import Item, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.secret_redactor import SecretRedactor

VERSION = 1

Json = Any  # a decoded JSON value

# The names of events in files of version 1.
_EVENT_TYPES: dict[str, type[ModelEvent]] = {
    "text_piece": ModelTextDelta,
    "thinking_piece": ModelThinkingDelta,
    "call_begun": ModelToolCallBegan,
    "call_piece": ModelToolCallDelta,
    "call_ready": ModelToolCallRequested,
    "usage_seen": ModelUsageUpdated,
    "part_quarantined": PartQuarantined,
    "announced": ModelNotified,
    "reply": Reply,
}
_EVENT_NAMES = {kind: name for name, kind in _EVENT_TYPES.items()}
_ERROR_FIELDS = (
    *("provider", "status", "retry_after", "request_id", "position", "part"),
    *("param", "code", "provider_message", "tool"),
)


class CassetteModel(msgspec.Struct, frozen=True):
    """A model of a recording."""

    name: str
    card: ModelCard


class RecordedExchange(NamedTuple):
    """The events of a reply, and the error that ended them, if any."""

    events: list[ModelEvent]
    error: ModelError | None = None


class _Header(msgspec.Struct):
    models: tuple[CassetteModel, ...]


class _ExchangeLine(msgspec.Struct, tag="exchange", tag_field="kind"):
    model: str
    fingerprint: str
    shown: dict[str, Json]
    same: int
    items: list[Json]
    events: list[dict[str, Json]]
    error: dict[str, Json] | None


class _PendingExchange(NamedTuple):
    request: Json  # with all items
    line: _ExchangeLine


_NO_OPTIONS = ModelOptions()
# Recordings of earlier versions do not have them.
_LATER_OPTIONS = ("task_budget", "web_search", "top_p", "seed", "parallel_calls", "service_tier")


class Cassette:
    """One recording, which is being written or replayed."""

    def __init__(self, path: Path, models: tuple[CassetteModel, ...]) -> None:
        self.path = path
        self.models = models
        self._redactor = SecretRedactor()
        self._previous_items: list[Json] = []  # of the last exchange written
        self._pending: deque[_PendingExchange] = deque()  # read, but not yet replayed
        self._is_torn = False  # the last line of the file is incomplete

    @classmethod
    def create(cls, path: Path, models: tuple[CassetteModel, ...]) -> Cassette:
        cassette = cls(path, models)
        _check_replaceable(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        cassette._append_line({"kind": "recording", "version": VERSION, "models": list(models)})
        return cassette

    @classmethod
    def load(cls, path: Path) -> Cassette:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read the recording {path}: {error.strerror}") from error
        lines = data.splitlines()
        is_torn = len(lines) > 1 and not data.endswith(b"\n") and not _is_json(lines[-1])
        if is_torn:
            lines.pop()
        head = _decode_line(path, 1, lines[0] if lines else b"null")
        if not isinstance(head, dict) or head.get("kind") != "recording":
            raise ConfigError(f"{path} is not a recording: its first line is no recording header")
        if head.get("version") != VERSION:
            raise ConfigError(
                f"{path} is a recording of version {head.get('version')}, but this program reads "
                f"version {VERSION}: record it again"
            )
        cassette = cls(path, _decode_line(path, 1, lines[0], _Header).models)
        cassette._is_torn = is_torn
        items: list[Json] = []
        for number, raw in enumerate(lines[1:], 2):
            line: _ExchangeLine = _decode_line(path, number, raw, _ExchangeLine)
            items = [*items[: line.same], *line.items]
            cassette._pending.append(_PendingExchange({**line.shown, "items": items}, line))
        return cassette

    def append(self, model: str, request: ModelRequest, exchange: RecordedExchange) -> None:
        shown = self._request_values(request)
        fingerprint = _compute_fingerprint(shown)
        items = shown.pop("items")
        same = 0
        for old, new in zip(self._previous_items, items, strict=False):
            if old != new:
                break
            same += 1
        self._previous_items = items
        merged = merge_split_secrets(exchange.events, self._redactor)
        events = self._redactor.redact_value([_encode_event(event) for event in merged])
        error = self._redactor.redact_value(_encode_error(exchange.error))
        new = items[same:]
        self._append_line(_ExchangeLine(model, fingerprint, shown, same, new, events, error))

    def take_exchange(self, model: str, request: ModelRequest) -> RecordedExchange:
        """The exchange of this request; each one is returned once, in order."""
        shown = self._request_values(request)
        fingerprint = _compute_fingerprint(shown)
        for pending in self._pending:
            line = pending.line
            if line.fingerprint == fingerprint and line.model == model:
                self._pending.remove(pending)
                events = [_decode_event(event) for event in line.events]
                return RecordedExchange(events, _decode_error(line.error))
        raise ModelError(self._explain_miss(model, shown), provider=model)

    def _request_values(self, request: ModelRequest) -> Json:
        """What the model sees of a request, as JSON values without secrets."""
        tools = [
            {"name": tool.name, "description": tool.description, "schema": tool.schema}
            for tool in request.tools
        ]
        shown = {"system": request.system, "tools": tools, "options": request.options}
        shown["quarantine"] = sorted(request.quarantine)
        clean: Json = self._redactor.redact_value(msgspec.to_builtins(shown))
        for name in _LATER_OPTIONS:
            if clean["options"][name] == getattr(_NO_OPTIONS, name):
                del clean["options"][name]
        clean["items"] = self._item_values(request.transcript)
        return clean

    def _item_values(self, transcript: Transcript) -> list[Json]:
        """The items as JSON values without secrets; each is converted once."""
        values: list[Json] = transcript.cache.setdefault(self, [])
        new = transcript[len(values) :]
        values += [self._redactor.redact_value(_encode_item(item)) for item in new]
        return values[: len(transcript)]

    def _append_line(self, line: Json) -> None:
        """Write the whole line, or nothing of it."""
        rest = memoryview(msgspec.json.encode(line) + b"\n")
        with self.path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(end)
                raise

    def _explain_miss(self, model: str, request: Json) -> str:
        if not self._pending:
            torn = "; its last line is incomplete" if self._is_torn else ""
            return f"the recording {self.path} has no exchange left{torn}: record it again"
        pending = self._pending[0]
        if pending.line.model != model:
            difference = f"it was sent to {pending.line.model}, this one to {model}"
        else:
            difference = describe_first_difference(pending.request, request)
        return (
            f"the recording {self.path} does not contain this request. First difference to the "
            f"next recorded one: {difference or 'none, it was replayed already'}. Record it again."
        )


def _decode_line(path: Path, number: int, line: bytes, line_type: Any = Any) -> Any:
    try:
        return msgspec.json.decode(line, type=line_type)
    except msgspec.DecodeError as error:
        is_json = isinstance(error, msgspec.ValidationError)
        problem = "not a line of a recording" if is_json else "not JSON"
        raise ConfigError(f"{path}, line {number}: {problem} ({error})") from error


def _check_replaceable(path: Path) -> None:
    """ConfigError if the file exists and is no recording: a new one would overwrite it."""
    try:
        with path.open("rb") as file:
            start = file.readline(1 << 20)
    except OSError:
        return  # there is none, or the recording itself reports why it cannot be written
    if start.strip() and b'"kind":"recording"' not in start.replace(b" ", b""):
        raise ConfigError(f"{path} exists and is no recording; give another path, or remove it")


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        return False
    return True


def _encode_item(item: Item) -> Json:
    """What the model sees of it: metadata may be other at the replay."""
    values: Json = msgspec.to_builtins(item)
    if isinstance(item, UserItem):
        values.pop("metadata", None)
    return values


def _compute_fingerprint(request: Json) -> str:
    return hashlib.sha256(msgspec.json.encode(request, order="sorted")).hexdigest()


def describe_first_difference(recorded: Json, current: Json, path: str = "") -> str:
    """The path of the first difference of two JSON values, and both values; empty if equal."""
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in [*recorded, *(key for key in current if key not in recorded)]:
            difference = describe_first_difference(
                recorded.get(key, _MISSING), current.get(key, _MISSING), f"{path}.{key}".strip(".")
            )
            if difference:
                return difference
        return ""
    if isinstance(recorded, list) and isinstance(current, list):
        pairs = zip_longest(recorded, current, fillvalue=_MISSING)
        for number, (old, new) in enumerate(pairs):
            difference = describe_first_difference(old, new, f"{path}[{number}]")
            if difference:
                return difference
        return ""
    if recorded == current:
        return ""
    if isinstance(recorded, str) and isinstance(current, str):
        letters = enumerate(zip(recorded, current, strict=False))
        index = next((index for index, (old, new) in letters if old != new), 0)
        start = max(0, index - 20)
        recorded, current = recorded[start:], current[start:]
    return f"{path} was {_shorten(recorded)}, is {_shorten(current)}"


_MISSING = object()


def _shorten(value: object) -> str:
    if value is _MISSING:
        return "missing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:120] + "..."


# ------------------------------------------------------------------ events and errors


def merge_split_secrets(events: list[ModelEvent], redactor: SecretRedactor) -> list[ModelEvent]:
    """The same events, but deltas with a secret that spans several of them are one delta.

    The secret would not be recognised in any single delta.
    """
    deltas: dict[tuple[type, str], list[tuple[int, str]]] = {}
    for position, event in enumerate(events):
        if isinstance(event, (ModelTextDelta, ModelThinkingDelta, ModelToolCallDelta)):
            call_id = event.id if isinstance(event, ModelToolCallDelta) else ""
            deltas.setdefault((type(event), call_id), []).append((position, event.text))
    merged: dict[int, ModelEvent | None] = dict(enumerate(events))
    for group in deltas.values():
        text = "".join([part for _, part in group])
        if redactor.redact_text(text) != text:
            first = group[0][0]
            merged.update(dict.fromkeys([position for position, _ in group]))
            merged[first] = msgspec.structs.replace(events[first], text=text)
    return [event for event in merged.values() if event is not None]


def _encode_event(event: ModelEvent) -> Json:
    return {"event": _EVENT_NAMES[type(event)], **msgspec.to_builtins(event)}


def _decode_event(value: Json) -> ModelEvent:
    fields = dict(value)
    return msgspec.convert(fields, _EVENT_TYPES[fields.pop("event")])


def _encode_error(error: ModelError | None) -> Json:
    if error is None:
        return None
    values = {name: getattr(error, name, None) for name in _ERROR_FIELDS}
    fields = {name: value for name, value in values.items() if value not in (None, "")}
    return {"type": type(error).__name__, "message": str(error), **fields}


def _decode_error(data: Json) -> ModelError | None:
    if data is None:
        return None
    fields = dict(data)
    kind = getattr(errors, re.sub(r"\W", "", fields.pop("type")), ModelError)
    if not (isinstance(kind, type) and issubclass(kind, ModelError)):
        kind = ModelError
    error: ModelError = kind(fields.pop("message"))
    for name, value in fields.items():
        setattr(error, name, value)
    return error
