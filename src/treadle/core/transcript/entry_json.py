"""Entries as JSON: what every store writes, whatever its files are.

    {"kind": "turn", "turn_id": "turn-1"}
    {"kind": "item", "item": {"type": "user", "content": [{"type": "text", "text": "Hello"}]}}

`kind` names the entry, the other keys are its fields (entries.py); bytes are base64, fields with
their default may be missing. Unknown fields are ignored; an unknown kind is a DecodeError. Half of
a surrogate pair, which UTF-8 cannot encode, is written as an escape. docs/extending.md has the
table of the kinds. Used by sessions/ and by stores of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from treadle.core.transcript.entries import Entry

T = TypeVar("T")

ENTRY_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Entry))
_encoder = msgspec.json.Encoder()


def encode_entry(entry: Entry) -> bytes:
    """One line of JSON, without a line end. TypeError or ValueError if a value of the entry (the
    `data` of a result, say) is not one of JSON."""
    return to_json(entry)


def decode_entry(data: bytes) -> Entry:
    """The entry; a msgspec.DecodeError if this version does not know its kind."""
    return decode_json(data, make_decoder(Entry))  # type: ignore[no-any-return]


@cache
def make_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """That of all entries costs 3 ms, which a run without old ones does not need."""
    return msgspec.json.Decoder(kind)


class DecodedEntries(msgspec.Struct, frozen=True):
    """What a store has read. `unknown_kinds` are those of a newer version, with their counts, which
    are passed over; `problems` are entries that cannot be read, which are lost."""

    entries: list[Entry]
    unknown_kinds: dict[str, int] = {}
    problems: tuple[str, ...] = ()


class _KindOnly(msgspec.Struct):
    kind: str


def decode_entries(bodies: Iterable[bytes]) -> DecodedEntries:
    """The entries of a log, in order."""
    entries: list[Entry] = []
    unknown: Counter[str] = Counter()
    problems: list[str] = []
    for number, body in enumerate(bodies, start=1):
        try:
            entries.append(decode_entry(body))
        except msgspec.DecodeError as error:
            kind = find_unknown_kind(body)
            if kind:
                unknown[kind] += 1
            else:
                problems.append(f"entry {number} cannot be decoded: {error}")
    return DecodedEntries(entries, dict(unknown), tuple(problems))


def find_unknown_kind(body: bytes) -> str:
    """The kind of an entry that only a newer version knows; "" if this version knows it."""
    try:
        kind = msgspec.json.decode(body, type=_KindOnly).kind
    except msgspec.DecodeError:
        return ""
    return "" if kind in ENTRY_KINDS else kind


def decode_json(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError:
        if b"\\ud" not in data:
            raise
        import json  # rarely needed

        # Half of a surrogate pair: Python's decoder accepts it, msgspec's does not.
        return msgspec.convert(json.loads(data), decoder.type)


def to_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        import json  # rarely needed

        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
