"""JSON without any leniency: no key twice, no NaN, no number that others cannot read.

Texts that are nearly JSON are refused: what they mean is decided elsewhere. Values are stored only
if they are read again as they were. Used for the arguments and the data of calls.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import msgspec

if TYPE_CHECKING:
    from json import JSONDecoder

_SPACES = " \t\r\n"
_INFINITY = float("inf")
_MAX_DIGITS = 308  # of a number that other JSON parsers read


class NotStrict(ValueError):
    """The text is read by other parsers, but its meaning is not certain."""


def decode_strictly(text: str) -> Any:
    """The value. ValueError if the text is not JSON, NotStrict if its meaning is not certain."""
    if len(text) <= _MAX_DIGITS and '": ' not in text:  # most likely as msgspec writes it
        try:
            value = msgspec.json.decode(text)
            if msgspec.json.encode(value).decode() == text:  # no key is there twice
                return value
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            pass  # the decoder says what is wrong
    decoder = _get_decoder()
    value, end = decoder.raw_decode(text.lstrip(_SPACES))
    return value if end == len(text) else decoder.decode(text)  # spaces, or more than one value


def to_json_object(value: object) -> dict[str, Any]:
    """The value as it is after it was written and read, paths as texts; TypeError if it cannot be
    written."""
    if not isinstance(value, dict):
        raise TypeError(f"a dict is expected, not {type(value).__name__}")
    try:
        stored = msgspec.json.encode(value, enc_hook=_encode_path)
    except UnicodeEncodeError:
        import json  # rarely needed

        builtins = msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_path)
        return cast(dict[str, Any], json.loads(json.dumps(builtins)))
    except RecursionError:
        raise TypeError("the value contains itself") from None
    return cast(dict[str, Any], msgspec.json.decode(stored))


def _encode_path(value: object) -> str:
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise TypeError(f"a value of the type {type(value).__name__} cannot be stored in a session")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotStrict(f"the key {twice!r} is given twice in the arguments")
    return value


def _reject_constant(name: str) -> Any:
    raise NotStrict(f"{name} is not valid JSON")


def _parse_float(text: str) -> float:
    value = float(text)
    if value in (_INFINITY, -_INFINITY):
        raise NotStrict(f"the number {text:.40} in the arguments is too large")
    return value


def _parse_integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise NotStrict(f"the number {text:.40}... in the arguments is too large")
    return int(text)


@cache
def _get_decoder() -> JSONDecoder:
    from json import JSONDecoder  # an agent is made without it

    return JSONDecoder(
        object_pairs_hook=_unique_keys,
        parse_constant=_reject_constant,
        parse_float=_parse_float,
        parse_int=_parse_integer,
    )
