"""Entries as JSON: what every store writes, whatever its files are.

    {"kind": "turn", "turn_id": "turn-1"}
    {"kind": "item", "item": {"type": "user", "content": [{"type": "text", "text": "Hello"}]}}

`kind` names the entry, the other keys are its fields (entries.py); bytes are base64, fields with
their default may be missing. Unknown fields are ignored; an unknown kind is a DecodeError. Half of
a surrogate pair, which UTF-8 cannot encode, is written as an escape. docs/extending.md has the
table of the kinds. Used by sessions/ and by stores of others.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.core.transcript.entries import Entry

_encoder = msgspec.json.Encoder()
_entry_decoder: msgspec.json.Decoder[Entry] = msgspec.json.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """One line of JSON, without a line end. TypeError or ValueError if a value of the entry (the
    `data` of a result, say) is not one of JSON."""
    return to_json(entry)


def decode_entry(data: bytes) -> Entry:
    """The entry; a msgspec.DecodeError if this version does not know its kind."""
    try:
        return _entry_decoder.decode(data)
    except msgspec.DecodeError:
        if b"\\ud" not in data:
            raise
        import json  # rarely needed

        # Half of a surrogate pair: Python's decoder accepts it, msgspec's does not.
        return msgspec.convert(json.loads(data), Entry)  # type: ignore[no-any-return]


def to_json(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        import json  # rarely needed

        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
