"""Decodes an event whose fields do not all fit: one odd field must not cost a reply.

The decoders use their fast, strict way first, and this one only for an event that fails there.
A field that does not fit is ignored, unless the caller names it as one that the reply depends on.
Half a surrogate pair, which is invalid in UTF-8, becomes a replacement character.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

import msgspec

from treadle.lib.text.text import fix_surrogates

T = TypeVar("T", bound=msgspec.Struct)


def decode_leniently(data: bytes, kind: type[T], strict_fields: frozenset[str]) -> T:
    """The value, without the fields that do not fit. Raises msgspec.DecodeError.

    A field in `strict_fields`, at any depth, must fit if it is there.
    """
    return _decode_struct(fix_json_surrogates(data.decode()).encode(), kind, strict_fields)


def fix_json_surrogates(text: str) -> str:
    """JSON text without lone surrogates, escaped or not; unchanged if there are none."""
    if "\\ud" not in text and "\\uD" not in text:
        return fix_surrogates(text)
    try:
        import json

        plain = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return fix_surrogates(text)
    fixed = fix_surrogates(plain)
    return fix_surrogates(text) if fixed == plain else fixed


def decode_opaque(data: bytes) -> str:
    """JSON that is kept to be sent back, as text. Raises msgspec.DecodeError if it is invalid,
    which a `msgspec.Raw` does not check."""
    text = fix_json_surrogates(data.decode())
    msgspec.json.decode(text)
    return text


def _decode_struct(data: bytes, kind: type[T], strict_fields: frozenset[str]) -> T:
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name not in fields:
            continue
        try:
            part = bytes(fields[field.encode_name])
            values[field.name] = _decode_value(part, field.type, strict_fields)
        except msgspec.DecodeError:
            if field.name in strict_fields:
                raise
    try:
        return kind(**values)
    except TypeError as error:  # a field without a default is missing
        raise msgspec.ValidationError(str(error)) from error


def _decode_value(data: bytes, kind: Any, strict_fields: frozenset[str]) -> Any:
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except msgspec.DecodeError:
        options = (kind,) if get_origin(kind) is list else get_args(kind) or (kind,)
        for option in options:
            if isinstance(option, type) and issubclass(option, msgspec.Struct):
                return _decode_struct(data, option, strict_fields)
            if get_origin(option) is list:
                parts = msgspec.json.decode(data, type=list[msgspec.Raw])
                (inner,) = get_args(option)
                return [_decode_value(bytes(part), inner, strict_fields) for part in parts]
        raise
