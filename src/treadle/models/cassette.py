"""The file of a recording: JSON lines, version 1.

    {"kind": "recording", "version": 1, "models": [{"name": …, "card": {…}}, …]}
    {"kind": "exchange", "model": NAME, "fingerprint": SHA-256,
     "shown": {"system": …, "tools": […], "options": {…}, "quarantine": […]},
     "same": N, "items": […],        the first N items are those of the exchange before
     "events": [{"event": "text_piece", "text": …}, …, {"event": "reply", "item": {…}}],
     "error": null | {"type": "Overloaded", "message": …, "status": 529, …}}

Everything is written after its secrets were removed, and fingerprints are taken after that too,
so a recording can be replayed by someone who has no keys. Above: recorded.py.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from treadle.core import errors
from treadle.core.contracts.model import (
    ModelCard,
    ModelEvent,
    ModelNotified,
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
from treadle.core.transcript.transcript import Transcript
from treadle.models.secret_redactor import SecretRedactor

VERSION = 1

Json = Any  # what msgspec makes of a JSON text

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
    *("param", "code", "provider_message"),
)


class CassetteModel(msgspec.Struct, frozen=True):
    """Who speaks on a tape."""

    name: str
    card: ModelCard


class RecordedExchange(NamedTuple):
    """What a model answered: events, and the error that ended them, if one did."""

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


class Cassette:
    """One recording, being written or being read."""

    def __init__(self, path: Path, models: tuple[CassetteModel, ...]) -> None:
        self.path = path
        self.models = models
        self._redactor = SecretRedactor()
        self._previous_items: list[Json] = []  # the items of the last exchange written
        self._pending: deque[_PendingExchange] = deque()  # what was read and not yet played

    @classmethod
    def create(cls, path: Path, models: tuple[CassetteModel, ...]) -> Cassette:
        tape = cls(path, models)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        tape._append_line({"kind": "recording", "version": VERSION, "models": list(models)})
        return tape

    @classmethod
    def load(cls, path: Path) -> Cassette:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(f"cannot read the recording {path}: {error.strerror}") from error
        head = _decode_line(path, 1, lines[0] if lines else b"null")
        if not isinstance(head, dict) or head.get("kind") != "recording":
            raise ConfigError(f"{path} is not a recording: its first line does not say so")
        if head.get("version") != VERSION:
            raise ConfigError(
                f"{path} is a recording of version {head.get('version')}; this program reads "
                f"version {VERSION}: record it again"
            )
        tape = cls(path, _decode_line(path, 1, lines[0], _Header).models)
        items: list[Json] = []
        for number, data in enumerate(lines[1:], 2):
            line: _ExchangeLine = _decode_line(path, number, data, _ExchangeLine)
            items = [*items[: line.same], *line.items]
            tape._pending.append(_PendingExchange({**line.shown, "items": items}, line))
        return tape

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
        events = [
            _encode_event(event) for event in merge_split_secrets(exchange.events, self._redactor)
        ]
        line = _ExchangeLine(
            model=model,
            fingerprint=fingerprint,
            shown=shown,
            same=same,
            items=items[same:],
            events=self._redactor.redact_value(events),
            error=self._redactor.redact_value(_encode_error(exchange.error)),
        )
        self._append_line(line)

    def take_exchange(self, model: str, request: ModelRequest) -> RecordedExchange:
        """The answer to this request; each recorded one is given once, in order."""
        shown = self._request_values(request)
        fingerprint = _compute_fingerprint(shown)
        for kept in self._pending:
            line = kept.line
            if line.fingerprint == fingerprint and line.model == model:
                self._pending.remove(kept)
                return RecordedExchange(
                    [_decode_event(event) for event in line.events], _decode_error(line.error)
                )
        raise ModelError(self._explain_miss(model, shown), provider=model)

    def _request_values(self, request: ModelRequest) -> Json:
        """What the model sees of a request, as plain values without secrets."""
        shown = {
            "system": request.system,
            "tools": [
                {"name": tool.name, "description": tool.description, "schema": tool.schema}
                for tool in request.tools
            ],
            "options": request.options,
            "quarantine": sorted(request.quarantine),
        }
        clean: Json = self._redactor.redact_value(msgspec.to_builtins(shown))
        clean["items"] = self._item_values(request.transcript)
        return clean

    def _item_values(self, transcript: Transcript) -> list[Json]:
        """Each item is cleaned once, however often it is shown."""
        done: list[Json] = transcript.cache.setdefault(self, [])
        fresh = transcript[len(done) :]
        done += [self._redactor.redact_value(msgspec.to_builtins(item)) for item in fresh]
        return done[: len(transcript)]

    def _append_line(self, line: Json) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _explain_miss(self, model: str, request: Json) -> str:
        if not self._pending:
            return f"the recording {self.path} has no answer left for this request"
        kept = self._pending[0]
        if kept.line.model != model:
            found = f"recorded of {kept.line.model}, asked of {model}"
        else:
            found = describe_first_difference(kept.request, request) or "it was played already"
        return (
            f"the recording {self.path} has no answer to this request. First difference to the "
            f"next one recorded: {found}. Record it again, or ask what was asked then."
        )


def _decode_line(path: Path, number: int, line: bytes, line_type: Any = Any) -> Any:
    try:
        return msgspec.json.decode(line, type=line_type)
    except msgspec.DecodeError as error:
        what = "not of a recording" if isinstance(error, msgspec.ValidationError) else "not JSON"
        raise ConfigError(f"{path}, line {number}: {what} ({error})") from error


def _compute_fingerprint(request: Json) -> str:
    return hashlib.sha256(msgspec.json.encode(request, order="sorted")).hexdigest()


def describe_first_difference(recorded: Json, current: Json, path: str = "") -> str:
    """Where two JSON values part, and what each has there; empty if they do not."""
    if isinstance(recorded, dict) and isinstance(current, dict):
        for key in [*recorded, *(key for key in current if key not in recorded)]:
            found = describe_first_difference(
                recorded.get(key, _MISSING), current.get(key, _MISSING), f"{path}.{key}".strip(".")
            )
            if found:
                return found
        return ""
    if isinstance(recorded, list) and isinstance(current, list):
        for number in range(max(len(recorded), len(current))):
            old = recorded[number] if number < len(recorded) else _MISSING
            new = current[number] if number < len(current) else _MISSING
            found = describe_first_difference(old, new, f"{path}[{number}]")
            if found:
                return found
        return ""
    if recorded == current:
        return ""
    if isinstance(recorded, str) and isinstance(current, str):
        pairs = enumerate(zip(recorded, current, strict=False))
        parting = next((at for at, (old, new) in pairs if old != new), 0)
        start = max(0, parting - 20)
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
    """The same events, where no secret is spread over several pieces.

    A token that arrives in pieces would not be recognised in any of them; such pieces are
    written as one.
    """
    pieces: dict[tuple[type, str], list[int]] = {}
    for position, event in enumerate(events):
        if isinstance(event, (ModelTextDelta, ModelThinkingDelta, ModelToolCallDelta)):
            of = event.id if isinstance(event, ModelToolCallDelta) else ""
            pieces.setdefault((type(event), of), []).append(position)
    whole: dict[int, ModelEvent | None] = {}
    for positions in pieces.values():
        text = "".join([_delta_text(events[position]) for position in positions])
        if redactor.redact_text(text) != text:
            whole.update(dict.fromkeys(positions))
            whole[positions[0]] = msgspec.structs.replace(events[positions[0]], text=text)
    kept = [whole.get(position, event) for position, event in enumerate(events)]
    return [event for event in kept if event is not None]


def _delta_text(event: ModelEvent) -> str:
    return (
        event.text
        if isinstance(event, (ModelTextDelta, ModelThinkingDelta, ModelToolCallDelta))
        else ""
    )


def _encode_event(event: ModelEvent) -> Json:
    return {"event": _EVENT_NAMES[type(event)], **msgspec.to_builtins(event)}


def _decode_event(value: Json) -> ModelEvent:
    fields = dict(value)
    return msgspec.convert(fields, _EVENT_TYPES[fields.pop("event")])


def _encode_error(error: ModelError | None) -> Json:
    if error is None:
        return None
    known = {name: getattr(error, name, None) for name in _ERROR_FIELDS}
    fields = {name: value for name, value in known.items() if value not in (None, "")}
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
