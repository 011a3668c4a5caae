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
    Announced,
    CallBegun,
    CallPiece,
    CallReady,
    ModelCard,
    ModelEvent,
    ModelRequest,
    PartQuarantined,
    Reply,
    TextPiece,
    ThinkingPiece,
    UsageSeen,
)
from treadle.core.errors import ConfigError, ModelError
from treadle.core.transcript.transcript import Transcript
from treadle.models.redaction import Redaction

VERSION = 1

Json = Any  # what msgspec makes of a JSON text

_KINDS: dict[str, type[ModelEvent]] = {
    "text_piece": TextPiece,
    "thinking_piece": ThinkingPiece,
    "call_begun": CallBegun,
    "call_piece": CallPiece,
    "call_ready": CallReady,
    "usage_seen": UsageSeen,
    "part_quarantined": PartQuarantined,
    "announced": Announced,
    "reply": Reply,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_ERROR_FIELDS = ("provider", "status", "retry_after", "request_id", "position", "part")


class Voice(msgspec.Struct, frozen=True):
    """Who speaks on a tape."""

    name: str
    card: ModelCard


class Exchange(NamedTuple):
    """What a model answered: events, and the error that ended them, if one did."""

    events: list[ModelEvent]
    error: ModelError | None = None


class _Head(msgspec.Struct):
    models: tuple[Voice, ...]


class _Line(msgspec.Struct, tag="exchange", tag_field="kind"):
    model: str
    fingerprint: str
    shown: dict[str, Json]
    same: int
    items: list[Json]
    events: list[dict[str, Json]]
    error: dict[str, Json] | None


class _Kept(NamedTuple):
    shown: Json  # with all items
    line: _Line


class Tape:
    """One recording, being written or being read."""

    def __init__(self, path: Path, voices: tuple[Voice, ...]) -> None:
        self.path = path
        self.voices = voices
        self._redaction = Redaction()
        self._before: list[Json] = []  # the items of the last exchange written
        self._kept: deque[_Kept] = deque()  # what was read and not yet played

    @classmethod
    def write(cls, path: Path, voices: tuple[Voice, ...]) -> Tape:
        tape = cls(path, voices)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        tape._put({"kind": "recording", "version": VERSION, "models": list(voices)})
        return tape

    @classmethod
    def read(cls, path: Path) -> Tape:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(f"cannot read the recording {path}: {error.strerror}") from error
        head = _decoded(path, 1, lines[0] if lines else b"null")
        if not isinstance(head, dict) or head.get("kind") != "recording":
            raise ConfigError(f"{path} is not a recording: its first line does not say so")
        if head.get("version") != VERSION:
            raise ConfigError(
                f"{path} is a recording of version {head.get('version')}; this program reads "
                f"version {VERSION}: record it again"
            )
        tape = cls(path, _decoded(path, 1, lines[0], _Head).models)
        items: list[Json] = []
        for number, data in enumerate(lines[1:], 2):
            line: _Line = _decoded(path, number, data, _Line)
            items = [*items[: line.same], *line.items]
            tape._kept.append(_Kept({**line.shown, "items": items}, line))
        return tape

    def append(self, model: str, request: ModelRequest, exchange: Exchange) -> None:
        shown = self._shown(request)
        fingerprint = _fingerprint(shown)
        items = shown.pop("items")
        same = 0
        for old, new in zip(self._before, items, strict=False):
            if old != new:
                break
            same += 1
        self._before = items
        events = [_event_out(event) for event in joined(exchange.events, self._redaction)]
        line = _Line(
            model=model,
            fingerprint=fingerprint,
            shown=shown,
            same=same,
            items=items[same:],
            events=self._redaction.value(events),
            error=self._redaction.value(_error_out(exchange.error)),
        )
        self._put(line)

    def find(self, model: str, request: ModelRequest) -> Exchange:
        """The answer to this request; each recorded one is given once, in order."""
        shown = self._shown(request)
        fingerprint = _fingerprint(shown)
        for kept in self._kept:
            line = kept.line
            if line.fingerprint == fingerprint and line.model == model:
                self._kept.remove(kept)
                return Exchange([_event_in(event) for event in line.events], _error_in(line.error))
        raise ModelError(self._why_not(model, shown), provider=model)

    def _shown(self, request: ModelRequest) -> Json:
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
        clean: Json = self._redaction.value(msgspec.to_builtins(shown))
        clean["items"] = self._items(request.transcript)
        return clean

    def _items(self, transcript: Transcript) -> list[Json]:
        """Each item is cleaned once, however often it is shown."""
        done: list[Json] = transcript.scratch.setdefault(self, [])
        fresh = transcript[len(done) :]
        done += [self._redaction.value(msgspec.to_builtins(item)) for item in fresh]
        return done[: len(transcript)]

    def _put(self, line: Json) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _why_not(self, model: str, shown: Json) -> str:
        if not self._kept:
            return f"the recording {self.path} has no answer left for this request"
        kept = self._kept[0]
        if kept.line.model != model:
            found = f"recorded of {kept.line.model}, asked of {model}"
        else:
            found = first_difference(kept.shown, shown) or "it was played already"
        return (
            f"the recording {self.path} has no answer to this request. First difference to the "
            f"next one recorded: {found}. Record it again, or ask what was asked then."
        )


def _decoded(path: Path, number: int, line: bytes, kind: Any = Any) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        what = "not of a recording" if isinstance(error, msgspec.ValidationError) else "not JSON"
        raise ConfigError(f"{path}, line {number}: {what} ({error})") from error


def _fingerprint(shown: Json) -> str:
    return hashlib.sha256(msgspec.json.encode(shown, order="sorted")).hexdigest()


def first_difference(recorded: Json, shown: Json, where: str = "") -> str:
    """Where two JSON values part, and what each has there; empty if they do not."""
    if isinstance(recorded, dict) and isinstance(shown, dict):
        for key in [*recorded, *(key for key in shown if key not in recorded)]:
            found = first_difference(
                recorded.get(key, _MISSING), shown.get(key, _MISSING), f"{where}.{key}".strip(".")
            )
            if found:
                return found
        return ""
    if isinstance(recorded, list) and isinstance(shown, list):
        for number in range(max(len(recorded), len(shown))):
            old = recorded[number] if number < len(recorded) else _MISSING
            new = shown[number] if number < len(shown) else _MISSING
            found = first_difference(old, new, f"{where}[{number}]")
            if found:
                return found
        return ""
    if recorded == shown:
        return ""
    if isinstance(recorded, str) and isinstance(shown, str):
        pairs = enumerate(zip(recorded, shown, strict=False))
        parting = next((at for at, (old, new) in pairs if old != new), 0)
        start = max(0, parting - 20)
        recorded, shown = recorded[start:], shown[start:]
    return f"{where} was {_short(recorded)}, is {_short(shown)}"


_MISSING = object()


def _short(value: object) -> str:
    if value is _MISSING:
        return "missing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else text[:120] + "..."


# ------------------------------------------------------------------ events and errors


def joined(events: list[ModelEvent], redaction: Redaction) -> list[ModelEvent]:
    """The same events, where no secret is spread over several pieces.

    A token that arrives in pieces would not be recognised in any of them; such pieces are
    written as one.
    """
    pieces: dict[tuple[type, str], list[int]] = {}
    for position, event in enumerate(events):
        if isinstance(event, (TextPiece, ThinkingPiece, CallPiece)):
            of = event.id if isinstance(event, CallPiece) else ""
            pieces.setdefault((type(event), of), []).append(position)
    whole: dict[int, ModelEvent | None] = {}
    for positions in pieces.values():
        text = "".join([_text(events[position]) for position in positions])
        if redaction.text(text) != text:
            whole.update(dict.fromkeys(positions))
            whole[positions[0]] = msgspec.structs.replace(events[positions[0]], text=text)
    kept = [whole.get(position, event) for position, event in enumerate(events)]
    return [event for event in kept if event is not None]


def _text(event: ModelEvent) -> str:
    return event.text if isinstance(event, (TextPiece, ThinkingPiece, CallPiece)) else ""


def _event_out(event: ModelEvent) -> Json:
    return {"event": _NAMES[type(event)], **msgspec.to_builtins(event)}


def _event_in(line: Json) -> ModelEvent:
    fields = dict(line)
    return msgspec.convert(fields, _KINDS[fields.pop("event")])


def _error_out(error: ModelError | None) -> Json:
    if error is None:
        return None
    known = {name: getattr(error, name, None) for name in _ERROR_FIELDS}
    fields = {name: value for name, value in known.items() if value not in (None, "")}
    return {"type": type(error).__name__, "message": str(error), **fields}


def _error_in(line: Json) -> ModelError | None:
    if line is None:
        return None
    fields = dict(line)
    kind = getattr(errors, re.sub(r"\W", "", fields.pop("type")), ModelError)
    if not (isinstance(kind, type) and issubclass(kind, ModelError)):
        kind = ModelError
    error: ModelError = kind(fields.pop("message"))
    for name, value in fields.items():
        setattr(error, name, value)
    return error
