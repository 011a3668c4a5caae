"""Structured output: the JSON schema of a type, and the value in a model's reply.

A type is any that lib/json knows (pydantic models, dataclasses, msgspec structs, TypedDicts,
unions, lists, texts, numbers, ...), or a JSON schema as a dict. A type that is not an object is
wrapped in one with the field "value", because providers require objects. The errors are written for
the model; agents/ decides whether it may try again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeVar, cast, overload

from treadle.core.errors import ConfigError
from treadle.lib.json.coercion import coerce, drop_absent
from treadle.lib.json.schema import (
    JSONSchema,
    Mismatch,
    describe_expected,
    find_mismatch,
    find_schema_problem,
    is_nullable,
)
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.word_set import word_set

T = TypeVar("T")

VALUE_FIELD = "value"

_FENCE = compile_lazily(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


def _suggest_union(given: object) -> str:
    """A hint for a list of types, which other libraries take."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, type) for one in given):
        return ""
    return f". For one of several types write {' | '.join(one.__name__ for one in given)}"


class OutputType:
    """What an answer has to be. ConfigError for what is neither a type nor a JSON schema."""

    def __init__(self, output_type: object) -> None:
        self._json_type: Any = None
        if isinstance(output_type, dict):
            if problem := find_schema_problem(output_type):
                raise ConfigError(f"the output is no JSON schema: {problem}")
            self._plain: JSONSchema = dict(output_type)
        else:
            from treadle.lib.json.json_type import JsonType

            try:
                self._json_type = JsonType(output_type)
            except (TypeError, NameError) as error:
                raise ConfigError(
                    f"the output cannot be {output_type!r:.80}: {error}; expected a type or a JSON "
                    f"schema{_suggest_union(output_type)}"
                ) from error
            self._plain = self._json_type.schema
        self._is_object = self._plain.get("type") == "object"
        self.schema: JSONSchema = self._plain if self._is_object else _wrap(self._plain)

    @property
    def strict_schema(self) -> JSONSchema:
        """The schema in the form that strict modes require, if there is one."""
        return make_strict(self.schema) or self.schema

    def parse(self, text: str) -> Any:
        """The value in a model's text: JSON, alone, in a code fence or after some text; or the text
        itself where text fits. Raises Mismatch."""
        first: Mismatch | None = None
        for value in _find_json(text):
            try:
                return self.convert(value)
            except Mismatch as problem:
                first = first or problem
        if not self._is_object:
            try:
                return self._convert(text.strip(), is_lenient=False)
            except Mismatch:
                pass
        raise first or Mismatch("the answer has no complete JSON value")

    def convert(self, value: Any) -> Any:
        """A value of the type from a JSON value of the schema. Raises Mismatch."""
        is_wrapped = isinstance(value, dict) and value.keys() == {VALUE_FIELD}
        if self._is_object or not is_wrapped:
            return self._convert(value)
        try:
            return self._convert(value[VALUE_FIELD])
        except Mismatch as problem:
            try:
                return self._convert(value)  # an object of a union may have this very field
            except Mismatch:
                raise problem from None

    def read_partial(self, text: str) -> Any:
        """The value in a text that is still being written; None if there is none yet."""
        from treadle.lib.json.partial_json import read_partial_json

        start = min((text.index(mark) for mark in "{[" if mark in text), default=None)
        if start is None:
            return text if self._accepts_text(text) else None
        for value in read_partial_json(text[start:].removesuffix("`" * 3)):
            try:
                if self._json_type is not None:
                    return self.convert(value)
                is_wrapped = not self._is_object and isinstance(value, dict)
                return value.get(VALUE_FIELD) if is_wrapped else value
            except Mismatch:
                continue
        return None

    def _accepts_text(self, text: str) -> bool:
        if self._is_object or not text.strip():
            return False
        try:
            return isinstance(self._convert(text, is_lenient=False), str)
        except Mismatch:
            return False

    def _convert(self, value: Any, *, is_lenient: bool = True) -> Any:
        value = drop_absent(value, self._plain)
        if self._json_type is not None:
            return self._json_type.convert(value)
        value = coerce(value, self._plain) if is_lenient else value
        if problem := find_mismatch(value, self._plain):
            raise problem
        return value


def _wrap(schema: JSONSchema) -> JSONSchema:
    inner = {key: part for key, part in schema.items() if key != "$defs"}
    wrapped: JSONSchema = {"type": "object", "properties": {VALUE_FIELD: inner}}
    wrapped["required"] = [VALUE_FIELD]
    return {**wrapped, "$defs": schema["$defs"]} if "$defs" in schema else wrapped


@overload
def read_partial_output(output_type: type[T], text: str) -> T | None: ...
@overload
def read_partial_output(output_type: object, text: str) -> Any: ...
def read_partial_output(output_type: object, text: str) -> Any:
    """The value in a text that a model is still writing; None if what is there does not fit yet.

    The last text may be incomplete; a list ends with its last complete element. A type whose fields
    are all required fits late: give the fields defaults to see them one by one.
    """
    return get_output_type(output_type).read_partial(text)


def get_output_type(output_type: object) -> OutputType:
    """An OutputType, made once for each type."""
    if isinstance(output_type, OutputType):
        return output_type
    try:
        return _make_output_type(output_type)
    except TypeError:  # a dict, or a type that cannot be hashed
        return OutputType(output_type)


@lru_cache(maxsize=64)
def _make_output_type(output_type: object) -> OutputType:
    return OutputType(output_type)


def _find_json(text: str) -> Iterator[Any]:
    """The JSON values in a reply: the whole text, in code fences, after some text."""
    stripped = text.strip()
    candidates = [stripped, *_FENCE.findall(stripped)]
    candidates += [stripped[stripped.index(start) :] for start in "{[" if start in stripped]
    import json

    decoder = json.JSONDecoder()
    for candidate in candidates:
        try:
            value, end = decoder.raw_decode(candidate)
        except (ValueError, RecursionError):
            continue
        if candidate is not stripped or not candidate[end:].strip():
            yield value


# Keywords that strict modes refuse. Limits are said in the description, and checked in the answer.
_DROPPED_KEYWORDS = word_set("""
    default title examples $schema $id uniqueItems contentEncoding propertyNames minProperties
    maxProperties discriminator deprecated
""")
_LIMITS = word_set("""
    minimum exclusiveMinimum maximum exclusiveMaximum multipleOf minLength maxLength minItems
    maxItems
""")
_FORMATS = ("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def make_strict(schema: JSONSchema) -> JSONSchema | None:
    """The form that strict modes require: every object closed, every property required.

    An optional property may be null instead; `drop_absent` removes it again. None if there is no
    such form, because an object has properties that are not listed.
    """
    try:
        return cast(JSONSchema, _to_strict(schema))
    except _NoStrictFormError:
        return None


def is_strict_schema(schema: object) -> bool:
    """Whether a schema has the form that strict modes require; see `make_strict`."""
    return all(
        _is_closed(one) and set(one.get("required", ())) == set(one.get("properties", {}))
        for one in _iter_objects(schema)
    )


def is_closed_schema(schema: object) -> bool:
    """Whether no object of a schema may have other properties than those that it names."""
    return all(_is_closed(one) for one in _iter_objects(schema))


def _is_closed(schema: JSONSchema) -> bool:
    return schema.get("additionalProperties") is False


def _iter_objects(schema: object) -> Iterator[JSONSchema]:
    """The schemas of objects in a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" or "properties" in schema:
            yield schema
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _iter_objects(part)


class _NoStrictFormError(Exception):
    pass


def _to_strict(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    strict = {key: value for key, value in schema.items() if key not in _DROPPED_KEYWORDS}
    if _LIMITS & strict.keys():
        strict = _describe_limits(strict)
    if strict.get("format") not in (None, *_FORMATS):
        del strict["format"]
    if "$ref" in strict and len(strict) > 1:  # a reference stands alone
        strict = {"anyOf": [{"$ref": strict.pop("$ref")}], **strict}
    if "prefixItems" in strict:
        strict["items"] = {"anyOf": strict.pop("prefixItems")}
    for key in ("anyOf", "oneOf", "allOf"):
        if key in strict:
            strict[key] = [_to_strict(option) for option in strict[key]]
    if "oneOf" in strict:
        strict["anyOf"] = strict.pop("oneOf")
    if "items" in strict:
        strict["items"] = _to_strict(strict["items"])
    if "$defs" in strict:
        strict["$defs"] = {name: _to_strict(part) for name, part in strict["$defs"].items()}
    if strict.get("type") == "object" or "properties" in strict:
        if strict.get("additionalProperties") not in (None, False) or "properties" not in strict:
            raise _NoStrictFormError
        required = schema.get("required", [])
        strict["properties"] = {
            name: _to_strict(part) if name in required else _allow_null(_to_strict(part))
            for name, part in strict["properties"].items()
        }
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    return strict


def _describe_limits(schema: JSONSchema) -> JSONSchema:
    """The schema with its limits in the description."""
    limits = f"Must be {describe_expected(schema)}."
    kept = {key: value for key, value in schema.items() if key not in _LIMITS}
    description = schema.get("description")
    return {**kept, "description": f"{description} {limits}" if description else limits}


def _allow_null(schema: Any) -> Any:
    if is_nullable(schema):
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}
