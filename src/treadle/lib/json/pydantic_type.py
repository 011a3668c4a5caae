"""A type that pydantic defines: its models, its dataclasses, and types with its validators.

Loaded only for such a type. pydantic validates; what does not fit is said in our words if the
schema shows it, else in those of the validator. Used by json_type.py.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic

from treadle.lib.json.coercion import coerce
from treadle.lib.json.schema import (
    JSONSchema,
    Mismatch,
    PathStep,
    find_mismatch,
    map_schema,
    show_value,
)


class PydanticType:
    """`schema` has its own `$defs`; `convert` raises Mismatch."""

    def __init__(self, annotation: Any) -> None:
        self._adapter = pydantic.TypeAdapter[Any](annotation)
        self.schema: JSONSchema = map_schema(self._adapter.json_schema(), _without_title)

    def convert(self, value: Any) -> Any:
        try:
            encoded = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise Mismatch(f"expected a JSON value, got {show_value(value)}") from error
        try:
            return self._adapter.validate_json(encoded)
        except pydantic.ValidationError as error:
            raise self._explain(value, error) from error

    def _explain(self, value: Any, error: pydantic.ValidationError) -> Mismatch:
        by_schema = find_mismatch(coerce(value, self.schema), self.schema)
        if by_schema is not None:
            return by_schema
        first = error.errors(include_url=False)[0]
        path = _find_path(value, first["loc"])
        cause = first.get("ctx", {}).get("error")
        if cause is not None:
            return Mismatch(str(cause) or type(cause).__name__, path)
        message = first["msg"].replace("Input should", "the value should")
        return Mismatch(f"{message}, got {show_value(first['input'])}", path)


def _without_title(schema: JSONSchema) -> JSONSchema:
    """Titles only repeat the names of the properties."""
    return {key: part for key, part in schema.items() if key != "title"}


def _find_path(value: Any, location: tuple[PathStep, ...]) -> tuple[PathStep, ...]:
    """The steps of a location that exist in the value: pydantic adds the names of union options."""
    path: list[PathStep] = []
    for step in location:
        try:
            value = value[step]
        except (TypeError, KeyError, IndexError):
            continue
        path.append(step)
    return tuple(path)
