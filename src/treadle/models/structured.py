"""Answers as values: from a type to the schema that a model is shown, and from its text back.

A type is a msgspec Struct, a dataclass, a TypedDict, anything else that msgspec reads, a pydantic
model (known by its methods; pydantic is not imported here), or a JSON schema as a dict. What is
not an object is wrapped in one with the single field "value", because providers ask for objects.
Whether to ask again after a mismatch is decided above, in agents/; the errors here are written
for the model to read.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar, cast, overload

import msgspec

from treadle.models.schemas import Schema, mismatch, strict_schema, without_absent

__all__ = ["Schema", "parse", "schema_of", "strict_schema"]

T = TypeVar("T")

WRAPPED = "value"

_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


def schema_of(kind: object, *, strict: bool = False) -> Schema:
    """The JSON schema of a type; its root is always an object.

    With `strict`, in the closed form that strict modes want, if it has one.
    """
    schema = _rooted(kind)
    return (strict_schema(schema) or schema) if strict else schema


def _rooted(kind: object) -> Schema:
    schema = _plain_schema(kind)
    if _is_object(schema):
        return schema
    definitions = schema.pop("$defs", None)
    wrapped: Schema = {
        "type": "object",
        "properties": {WRAPPED: schema},
        "required": [WRAPPED],
    }
    return {**wrapped, "$defs": definitions} if definitions else wrapped


@overload
def parse(kind: type[T], text: str) -> T: ...
@overload
def parse(kind: object, text: str) -> Any: ...
def parse(kind: object, text: str) -> Any:
    """The value that a model's text holds. Raises ValueError, in words for the model."""
    value = _json_in(text)
    plain = _plain_schema(kind)
    if not _is_object(plain):
        value = value[WRAPPED] if isinstance(value, dict) and set(value) == {WRAPPED} else value
    value = without_absent(value, plain)
    if isinstance(kind, dict):
        problem = mismatch(value, plain)
        if problem:
            raise _does_not_fit(problem)
        return value
    validate = getattr(kind, "model_validate", None)
    if validate is not None:
        try:
            return validate(value)
        except ValueError as error:  # pydantic's own is one
            raise _does_not_fit(_first_lines(str(error))) from error
    return _converted(value, kind)


def _converted(value: object, kind: object) -> object:
    readable = cast(Any, kind)
    try:
        return msgspec.convert(value, readable)
    except msgspec.ValidationError as error:
        try:
            # "5" for 5 is forgiven, where nothing else fits.
            return msgspec.convert(value, readable, strict=False)
        except msgspec.ValidationError:
            raise _does_not_fit(str(error)) from error


def _plain_schema(kind: object) -> Schema:
    if isinstance(kind, dict):
        return dict(kind)
    of_pydantic = getattr(kind, "model_json_schema", None)
    schema: Schema = of_pydantic() if of_pydantic is not None else msgspec.json.schema(kind)
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    # A root that only points at a definition: some providers want to see the object itself.
    definitions: dict[str, Schema] = schema["$defs"]
    name = reference.rpartition("/")[2]
    root = dict(definitions[name])
    others = {key: value for key, value in definitions.items() if key != name}
    if f'"{reference}"' in json.dumps(definitions):
        others = definitions
    return {**root, "$defs": others} if others else root


def _is_object(schema: Schema) -> bool:
    return schema.get("type") == "object"


def _json_in(text: str) -> Any:
    """The JSON value in a reply: alone, in a fence, or after a few words."""
    stripped = text.strip()
    candidates = [stripped, *_FENCE.findall(stripped)]
    candidates += [stripped[stripped.index(start) :] for start in "{[" if start in stripped]
    decoder = json.JSONDecoder()
    for candidate in candidates:
        try:
            value, end = decoder.raw_decode(candidate)
        except (ValueError, RecursionError):
            continue
        if candidate is not stripped or not candidate[end:].strip():
            return value
    raise ValueError(
        "The answer holds no whole JSON value. "
        "Answer again with one JSON value of the schema and nothing else."
    )


def _does_not_fit(problem: str) -> ValueError:
    return ValueError(
        f"The answer does not fit the schema: {problem}. "
        "Answer again with one JSON value of the schema and nothing else."
    )


def _first_lines(text: str) -> str:
    return " ".join(text.split())[:500].rstrip(".")
