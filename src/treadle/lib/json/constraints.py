"""What `Annotated[...]` adds to a type: a description, limits, and more for the schema.

Reads `msgspec.Meta`, pydantic's `Field(...)`, the limits of annotated_types, and plain texts, by
their attributes: none of these packages is imported here. Used by json_type.py.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from treadle.lib.json.schema import (
    JSONSchema,
    Mismatch,
    is_within_bounds,
    make_mismatch,
    show_value,
)

_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_NOTES = ("title", "description", "examples")
NO_DEFAULT: Any = msgspec.UNSET


class Constraints(msgspec.Struct):
    """The limits of one annotation, and what it adds to the schema."""

    bounds: dict[str, Any] = {}  # minimum, ... as in a JSON schema
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    predicates: tuple[Callable[[Any], bool], ...] = ()
    notes: JSONSchema = {}

    def add_to_schema(self, schema: JSONSchema) -> JSONSchema:
        """The schema with these limits and notes."""
        if self._has_limits:
            schema = self._add_limits(schema)
        if not self.notes:
            return schema
        if "$ref" in schema:
            schema = {"anyOf": [schema]}  # strict modes refuse keywords beside a reference
        return {**schema, **self.notes}

    def check(self, value: Any, raw: Any) -> None:
        """Raise Mismatch if the converted value breaks a limit."""
        if value is None:
            return
        if self.bounds:
            self._check_bounds(value, raw)
        if self.min_length is not None or self.max_length is not None:
            self._check_length(value, raw)
        if isinstance(value, str) and not re.search(self.pattern or "", value):
            raise make_mismatch({"type": "string", "pattern": self.pattern}, raw)
        for predicate in self.predicates:
            if not predicate(value):
                name = getattr(predicate, "__name__", "a condition")
                raise Mismatch(f"expected a value that fulfils {name}, got {show_value(raw)}")

    @property
    def _has_limits(self) -> bool:
        lengths = (self.min_length, self.max_length, self.pattern)
        return bool(self.bounds) or any(limit is not None for limit in lengths)

    def _add_limits(self, schema: JSONSchema) -> JSONSchema:
        if "anyOf" in schema:
            return {**schema, "anyOf": [self._add_limits(option) for option in schema["anyOf"]]}
        match schema.get("type"):
            case "integer" | "number":
                return {**schema, **self.bounds}
            case "string" if "format" not in schema:
                more = self._count("minLength", "maxLength")
                return {**schema, **more, **({"pattern": self.pattern} if self.pattern else {})}
            case "array":
                return {**schema, **self._count("minItems", "maxItems")}
            case "object" if "properties" not in schema:
                return {**schema, **self._count("minProperties", "maxProperties")}
        return schema

    def _count(self, least: str, most: str) -> JSONSchema:
        counts = {least: self.min_length, most: self.max_length}
        return {key: count for key, count in counts.items() if count is not None}

    def _check_bounds(self, value: Any, raw: Any) -> None:
        try:
            is_inside = is_within_bounds(value, self.bounds)
        except TypeError:
            return  # a value of a union that has no order
        if not is_inside:
            bounds = {key: _show_bound(bound) for key, bound in self.bounds.items()}
            raise make_mismatch({"type": "number", **bounds}, raw)

    def _check_length(self, value: Any, raw: Any) -> None:
        try:
            length = len(value)
        except TypeError:
            return
        if length < (self.min_length or 0) or (
            self.max_length is not None and length > self.max_length
        ):
            is_text = isinstance(value, str)
            kind = "string" if is_text else "array"
            names = ("minLength", "maxLength") if is_text else ("minItems", "maxItems")
            raise make_mismatch({"type": kind, **self._count(*names)}, raw)


def _show_bound(bound: Any) -> Any:
    return bound if isinstance(bound, (int, float)) else str(bound)


def read_constraints(metadata: Iterable[Any]) -> Constraints:
    """The constraints in the metadata of an `Annotated`, or in a pydantic Field."""
    found = Constraints()
    for one in metadata:
        _read_one(one, found)
    return found


def _read_one(one: Any, found: Constraints) -> None:
    if isinstance(one, str):
        found.notes = {**found.notes, "description": one}
        return
    if is_pydantic_field(one):
        for part in one.metadata:
            _read_one(part, found)
        extra = one.json_schema_extra
        found.notes = {**found.notes, **(extra if isinstance(extra, dict) else {})}
    for name, keyword in _BOUNDS.items():
        if (bound := getattr(one, name, None)) is not None:
            found.bounds = {**found.bounds, keyword: bound}
    found.min_length = _get_limit(one, "min_length", found.min_length)
    found.max_length = _get_limit(one, "max_length", found.max_length)
    if isinstance(pattern := getattr(one, "pattern", None), (str, re.Pattern)):
        found.pattern = pattern if isinstance(pattern, str) else pattern.pattern
    if type(one).__name__ == "Predicate" and callable(getattr(one, "func", None)):
        found.predicates = (*found.predicates, one.func)
    notes = {name: note for name in _NOTES if (note := getattr(one, name, None))}
    if isinstance(documentation := getattr(one, "documentation", None), str):
        notes["description"] = documentation  # typing_extensions.Doc
    more = getattr(one, "extra_json_schema", None)
    found.notes = {**found.notes, **notes, **(more if isinstance(more, dict) else {})}


def _get_limit(one: Any, name: str, before: int | None) -> int | None:
    limit = getattr(one, name, None)
    return limit if isinstance(limit, int) else before


def is_pydantic_field(one: Any) -> bool:
    return type(one).__name__ == "FieldInfo" and type(one).__module__.startswith("pydantic")


def get_field_default(field: Any) -> Any:
    """A function that makes the default of a pydantic Field; NO_DEFAULT if it has none."""
    if field.default_factory is not None:
        return field.default_factory
    if type(field.default).__name__ == "PydanticUndefinedType" or field.default is Ellipsis:
        return NO_DEFAULT
    return lambda: field.default


def needs_pydantic(metadata: Sequence[Any]) -> bool:
    """Whether only pydantic can apply this metadata, as its validators."""
    hooks = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")
    return "pydantic" in sys.modules and any(
        hasattr(type(one), hook) for one in metadata for hook in hooks
    )
