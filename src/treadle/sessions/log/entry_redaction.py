"""Removes known secrets from entries before they are written or exported.

Only texts change: messages, replies, arguments, results, reasons. Ids, names and kinds stay, so an
entry stays valid whatever a secret looks like. Which values are secrets is found by
lib/text/redaction.py. Used by journal.py and export.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.transcript.entries import Entry
from treadle.core.transcript.entry_json import to_json
from treadle.lib.text.redaction import redact

_TEXT_FIELDS = frozenset(
    {"text", "raw", "display", "reason", "detail", "json", "title", "url", "allowed_by"}
)
_DATA_FIELDS = frozenset({"data", "evidence", "metadata"})  # any JSON object; in an image: base64


class EntryRedactor:
    """Replaces these values by [redacted] in entries."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        # Also as they are in the arguments of a call: JSON inside of JSON.
        escaped = [to_json(secret).decode()[1:-1] for secret in secrets]
        self._secrets = tuple(dict.fromkeys([*escaped, *secrets]))
        self._encoded = [secret.encode(errors="surrogateescape") for secret in self._secrets]

    @property
    def has_secrets(self) -> bool:
        return bool(self._secrets)

    def finds_secret(self, *encoded: bytes | None) -> bool:
        """Whether an encoded entry contains one of the values."""
        return any(secret in data for data in encoded if data for secret in self._encoded)

    def redact(self, entry: Entry) -> Entry:
        redacted = _redact_fields(msgspec.to_builtins(entry), self._secrets)
        return msgspec.convert(redacted, Entry)  # type: ignore[no-any-return]


def _redact_fields(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_redact_fields(one, secrets) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _redact_field(name, field, secrets) for name, field in value.items()}


def _redact_field(name: str, value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return redact(secrets, value) if name in _TEXT_FIELDS else value
    if name in _DATA_FIELDS:
        return _redact_all(value, secrets)
    return _redact_fields(value, secrets)


def _redact_all(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        return redact(secrets, value)
    if isinstance(value, (list, tuple)):
        return [_redact_all(one, secrets) for one in value]
    if isinstance(value, dict):
        return {name: _redact_all(one, secrets) for name, one in value.items()}
    return value
