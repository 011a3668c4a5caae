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

from treadle.models.schemas import JSONSchema, find_mismatch, make_strict, drop_absent

__all__ = ["JSONSchema", "parse_structured_output", "build_schema", "make_strict"]

T = TypeVar("T")

VALUE_FIELD = "value"

_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


def build_schema(output_type: object, *, strict: bool = False) -> JSONSchema:
    """The JSON schema of a type; its root is always an object.

    With `strict`, in the closed form that strict modes want, if it has one.
    """
    schema = _build_object_schema(output_type)
    return (make_strict(schema) or schema) if strict else schema


def _build_object_schema(output_type: object) -> JSONSchema:
    schema = _schema_of_type(output_type)
    if _is_object(schema):
        return schema
    definitions = schema.pop("$defs", None)
    wrapped: JSONSchema = {
        "type": "object",
        "properties": {VALUE_FIELD: schema},
        "required": [VALUE_FIELD],
    }
    return {**wrapped, "$defs": definitions} if definitions else wrapped


@overload
def parse_structured_output(output_type: type[T], text: str) -> T: ...
@overload
def parse_structured_output(output_type: object, text: str) -> Any: ...
def parse_structured_output(output_type: object, text: str) -> Any:
    """The value that a model's text holds. Raises ValueError, in words for the model."""
    value = _extract_json(text)
    plain = _schema_of_type(output_type)
    if not _is_object(plain):
        value = (
            value[VALUE_FIELD] if isinstance(value, dict) and set(value) == {VALUE_FIELD} else value
        )
    value = drop_absent(value, plain)
    if isinstance(output_type, dict):
        problem = find_mismatch(value, plain)
        if problem:
            raise _mismatch_error(problem)
        return value
    validate = getattr(output_type, "model_validate", None)
    if validate is not None:
        try:
            return validate(value)
        except ValueError as error:  # pydantic's own is one
            raise _mismatch_error(_join_lines(str(error))) from error
    return _convert(value, output_type)


def _convert(value: object, output_type: object) -> object:
    readable = cast(Any, output_type)
    try:
        return msgspec.convert(value, readable)
    except msgspec.ValidationError as error:
        try:
            # "5" for 5 is forgiven, where nothing else fits.
            return msgspec.convert(value, readable, strict=False)
        except msgspec.ValidationError:
            raise _mismatch_error(str(error)) from error


def _schema_of_type(output_type: object) -> JSONSchema:
    if isinstance(output_type, dict):
        return dict(output_type)
    of_pydantic = getattr(output_type, "model_json_schema", None)
    schema: JSONSchema = (
        of_pydantic() if of_pydantic is not None else msgspec.json.schema(output_type)
    )
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    # A root that only points at a definition: some providers want to see the object itself.
    definitions: dict[str, JSONSchema] = schema["$defs"]
    name = reference.rpartition("/")[2]
    root = dict(definitions[name])
    others = {key: value for key, value in definitions.items() if key != name}
    if f'"{reference}"' in json.dumps(definitions):
        others = definitions
    return {**root, "$defs": others} if others else root


def _is_object(schema: JSONSchema) -> bool:
    return schema.get("type") == "object"


def _extract_json(text: str) -> Any:
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


def _mismatch_error(problem: str) -> ValueError:
    return ValueError(
        f"The answer does not fit the schema: {problem}. "
        "Answer again with one JSON value of the schema and nothing else."
    )


def _join_lines(text: str) -> str:
    return " ".join(text.split())[:500].rstrip(".")
