"""Types without parts: numbers, texts, dates, paths, enums and literals, as nodes.

A node is the JSON schema of a type, and the function that makes a value of it or raises Mismatch.
Used by json_type.py, which puts nodes together.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.lib.json.schema import (
    DECIMAL_PATTERN,
    JSONSchema,
    Mismatch,
    is_same_json,
    make_mismatch,
)


class Node(msgspec.Struct, frozen=True):
    """A type: its schema, and the function that makes a value of it or raises Mismatch.

    `plain_type`: a value of exactly this class needs no conversion.
    """

    schema: JSONSchema
    convert: Callable[[Any], Any]
    plain_type: type | None = None


def compile_scalar(kind: type) -> Node | None:
    """The node of a class without parts; None for any other class."""
    if issubclass(kind, enum.Enum):
        return _compile_enum(kind)
    if kind is bool:
        return check_type({"type": "boolean"}, (bool,))
    if kind in _TEXT_TYPES:
        return _compile_text(kind)
    if _is_path(kind):
        return _compile_simple({"type": "string"}, (str,), kind)
    for base, schema, accepted in _NUMBERS_AND_TEXT:
        if issubclass(kind, base):
            return _compile_simple(schema, accepted, kind)
    return None


def _is_path(kind: type) -> bool:
    if not issubclass(kind, os.PathLike):
        return False
    from pathlib import PurePath  # only for paths

    return issubclass(kind, PurePath)


def make_value(make: Callable[..., Any], values: Any) -> Any:
    """The object of these values; what its own checks raise is a Mismatch."""
    if make is dict or make is list:
        return values
    try:
        return (
            make(**values) if isinstance(values, dict) and make is not OrderedDict else make(values)
        )
    except Mismatch:
        raise
    except (ValueError, TypeError, AssertionError, msgspec.ValidationError) as error:
        raise Mismatch(str(error) or type(error).__name__) from error


_TEXT_TYPES: Mapping[type, JSONSchema] = {
    datetime.datetime: {"type": "string", "format": "date-time"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "pattern": DECIMAL_PATTERN},
    bytes: {"type": "string", "contentEncoding": "base64"},
    bytearray: {"type": "string", "contentEncoding": "base64"},
}
_NUMBERS_AND_TEXT: Sequence[tuple[type, JSONSchema, tuple[type, ...]]] = (
    (int, {"type": "integer"}, (int, float)),
    (float, {"type": "number"}, (int, float)),
    (str, {"type": "string"}, (str,)),
)


def check_type(schema: JSONSchema, accepted: tuple[type, ...]) -> Node:
    def convert(value: Any) -> Any:
        if isinstance(value, accepted):
            return value
        raise make_mismatch(schema, value)

    return Node(schema, convert)


def _compile_simple(schema: JSONSchema, accepted: tuple[type, ...], kind: type) -> Node:
    """A number or text, or a class derived from one of these."""
    is_integer = schema == {"type": "integer"}

    def convert(value: Any) -> Any:
        if not isinstance(value, accepted) or isinstance(value, bool):
            raise make_mismatch(schema, value)
        if is_integer and isinstance(value, float) and not value.is_integer():
            raise make_mismatch(schema, value)
        return value if type(value) is kind else make_value(kind, value)

    return Node(schema, convert, kind if kind in (int, float, str) else None)


def _compile_text(kind: type) -> Node:
    schema = _TEXT_TYPES[kind]

    def convert(value: Any) -> Any:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if isinstance(value, str) or (kind is decimal.Decimal and is_number):
            try:
                converted: Any = msgspec.convert(value, kind)
            except (msgspec.ValidationError, ValueError, OverflowError):
                if kind is datetime.datetime or kind is datetime.time:
                    return _read_iso(kind, value, schema)
            else:
                if kind is not decimal.Decimal or converted.is_finite():  # NaN cannot be compared
                    return converted
        raise make_mismatch(schema, value)

    return Node(schema, convert)


def _read_iso(kind: Any, value: str, schema: JSONSchema) -> Any:
    """Forms of ISO 8601 that msgspec does not read, such as a date without a time."""
    try:
        return kind.fromisoformat(value)
    except ValueError as error:
        raise make_mismatch(schema, value) from error


def _compile_enum(kind: type[enum.Enum]) -> Node:
    is_plain = all(isinstance(member.value, (str, int)) for member in kind)
    return compile_choices([(one.value if is_plain else one.name, one) for one in kind])


def compile_choices(choices: Iterable[tuple[Any, Any]]) -> Node:
    """One of several values, in their order; each stands for what is beside it."""
    options = [(one.value if isinstance(one, enum.Enum) else one, value) for one, value in choices]
    schema: JSONSchema = {"enum": [option for option, _ in options]}
    kinds = {type(option) for option, _ in options}
    if kinds <= {str}:
        schema = {"type": "string", **schema}
    elif kinds <= {int}:
        schema = {"type": "integer", **schema}

    def convert(value: Any) -> Any:
        for option, meaning in options:
            if is_same_json(value, option):
                return meaning
        raise make_mismatch(schema, value)

    return Node(schema, convert)


def compile_by_msgspec(hint: Any) -> Node:
    """What only msgspec knows. Raises TypeError for a type that it does not know."""
    try:
        schema = msgspec.json.schema(hint)
    except (TypeError, ValueError) as error:
        name = getattr(hint, "__name__", repr(hint))
        works = "a dataclass, a TypedDict, a msgspec.Struct or a pydantic model"
        raise TypeError(f"{name} has no JSON form; use {works}") from error
    if "$ref" in schema or "$defs" in schema:
        schema = {"description": getattr(hint, "__name__", "")}

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, hint)
        except (msgspec.ValidationError, ValueError) as error:
            raise make_mismatch(schema, value) from error

    return Node(schema, convert)
