"""Structured output: the JSON schema of a type, and the value in a model's reply.

A type is a msgspec Struct, a dataclass, a TypedDict, anything else that msgspec supports, a
pydantic model (recognised by its methods; pydantic is not imported), or a JSON schema as a dict.
A type that is not an object is wrapped in one with the field "value", because providers require
objects. The errors are written for the model; agents/ decides whether it may try again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar, cast, overload

import msgspec

T = TypeVar("T")

VALUE_FIELD = "value"

_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


def build_schema(output_type: object, *, strict: bool = False) -> JSONSchema:
    """The JSON schema of a type; its root is always an object.

    With `strict`, in the form that strict modes require, if there is one.
    """
    schema = _build_object_schema(output_type)
    return (make_strict(schema) or schema) if strict else schema


def _build_object_schema(output_type: object) -> JSONSchema:
    schema = _schema_of_type(output_type)
    if _is_object(schema):
        return schema
    definitions = schema.pop("$defs", None)
    wrapped: JSONSchema = {"type": "object", "properties": {VALUE_FIELD: schema}}
    wrapped["required"] = [VALUE_FIELD]
    return {**wrapped, "$defs": definitions} if definitions else wrapped


@overload
def parse_structured_output(output_type: type[T], text: str) -> T: ...
@overload
def parse_structured_output(output_type: object, text: str) -> Any: ...
def parse_structured_output(output_type: object, text: str) -> Any:
    """The value in a model's text. Raises ValueError with a message for the model."""
    value = _extract_json(text)
    plain = _schema_of_type(output_type)
    if not _is_object(plain) and isinstance(value, dict) and set(value) == {VALUE_FIELD}:
        value = value[VALUE_FIELD]
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
        except ValueError as error:  # pydantic's ValidationError is one
            raise _mismatch_error(_join_lines(str(error))) from error
    return _convert(value, output_type)


def _convert(value: object, output_type: object) -> object:
    target = cast(Any, output_type)
    try:
        return msgspec.convert(value, target)
    except msgspec.ValidationError as error:
        try:
            return msgspec.convert(value, target, strict=False)  # accepts "5" for 5
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
    # The root is only a reference: some providers require the object itself.
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
    """The JSON value in a reply: alone, in a code fence, or after some text."""
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
        "The answer contains no complete JSON value. "
        "Answer again with one JSON value of the schema and nothing else."
    )


def _mismatch_error(problem: str) -> ValueError:
    return ValueError(
        f"The answer does not fit the schema: {problem}. "
        "Answer again with one JSON value of the schema and nothing else."
    )


def _join_lines(text: str) -> str:
    return " ".join(text.split())[:500].rstrip(".")


JSONSchema = dict[str, Any]

# Keywords that strict modes refuse, and that do not change which values are valid.
_DROPPED_KEYWORDS = ("default", "title", "examples", "$schema", "$id")


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
    if isinstance(schema, list):
        return all(is_strict_schema(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
    return all(is_strict_schema(part) for part in schema.values())


class _NoStrictFormError(Exception):
    pass


def _to_strict(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    strict = {key: value for key, value in schema.items() if key not in _DROPPED_KEYWORDS}
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if key in strict:
            strict[key] = [_to_strict(option) for option in strict[key]]
    if "oneOf" in strict:
        strict["anyOf"] = strict.pop("oneOf")
        strict.pop("discriminator", None)
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


def _allow_null(schema: Any) -> Any:
    if _is_nullable(schema):
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _is_nullable(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema:
        return True
    kinds = schema.get("type")
    is_null = kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
    if is_null or None in schema.get("enum", ()):
        return True
    return any(_is_nullable(part) for key in ("anyOf", "oneOf") for part in schema.get(key, ()))


def drop_absent(value: Any, schema: JSONSchema) -> Any:
    """The value without the nulls that a strict mode requires for absent properties."""
    return _prune(value, schema, schema)


def _prune(value: Any, schema: Any, root: JSONSchema) -> Any:
    schema = _resolve_ref(schema, root)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_prune(element, schema["items"], root) for element in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return value
    required = schema.get("required", ())
    pruned = {}
    for name, inner in value.items():
        inner_schema = properties.get(name, {})
        is_nullable = _is_nullable(_resolve_ref(inner_schema, root))
        if inner is not None or name in required or is_nullable:
            pruned[name] = _prune(inner, inner_schema, root)
    return pruned


def _resolve_ref(schema: Any, root: JSONSchema) -> JSONSchema:
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        schema = root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
    return schema if isinstance(schema, dict) else {}


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def find_schema_problem(schema: object, path: str = "$") -> str:
    """What is wrong with a schema itself, and where; empty if nothing is."""
    if isinstance(schema, bool) and path != "$":
        return ""
    if not isinstance(schema, dict):
        return f"{path} must be an object"
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _JSON_TYPES:
            return f"{path}: type cannot be {kind!r}; it must be one of {', '.join(_JSON_TYPES)}"
    for key in ("properties", "$defs", "definitions"):
        if not isinstance(schema.get(key, {}), dict):
            return f"{path}.{key} must be an object"
    for key in ("required", "enum", "anyOf", "oneOf", "allOf"):
        if not isinstance(schema.get(key, []), list):
            return f"{path}.{key} must be a list"
    problems = (find_schema_problem(part, f"{path}.{name}") for name, part in _subschemas(schema))
    return next(filter(None, problems), "")


def _subschemas(schema: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for key in ("properties", "$defs", "definitions"):
        yield from ((f"{key}.{name}", part) for name, part in schema.get(key, {}).items())
    for key in ("anyOf", "oneOf", "allOf"):
        yield from ((f"{key}[{number}]", part) for number, part in enumerate(schema.get(key, ())))
    for key in ("items", "additionalProperties"):
        if key in schema and not isinstance(schema[key], list):
            yield key, schema[key]


def find_mismatch(value: Any, schema: JSONSchema) -> str:
    """What is wrong with a value, and where; empty if it fits."""
    return _find_mismatch_at(value, schema, schema, "$")


def _find_mismatch_at(value: Any, schema: Any, root: JSONSchema, path: str) -> str:
    schema = _resolve_ref(schema, root)
    if "const" in schema and value != schema["const"]:
        return f"{path} must be {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} must be one of {', '.join(map(repr, schema['enum']))}, not {value!r}"
    for key in ("anyOf", "oneOf"):
        problems = [_find_mismatch_at(value, part, root, path) for part in schema.get(key, ())]
        if problems and all(problems):
            return problems[0]
    for part in schema.get("allOf", ()):
        if problem := _find_mismatch_at(value, part, root, path):
            return problem
    kinds = schema.get("type")
    if kinds is not None:
        allowed = kinds if isinstance(kinds, list) else [kinds]
        if not any(_is_json_type(value, kind) for kind in allowed):
            return f"{path} must be {' or '.join(allowed)}, not {_json_type_name(value)}"
    if isinstance(value, dict):
        return _find_object_mismatch(value, schema, root, path)
    if isinstance(value, list) and "items" in schema:
        for number, element in enumerate(value):
            if problem := _find_mismatch_at(element, schema["items"], root, f"{path}[{number}]"):
                return problem
    return ""


def _find_object_mismatch(
    value: dict[str, Any], schema: JSONSchema, root: JSONSchema, path: str
) -> str:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{path} lacks the property {name!r}"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name not in properties and others is False:
            return f"{path} has a property {name!r} that the schema does not allow"
        inner_schema = properties.get(name, others)
        if isinstance(inner_schema, dict) and (
            problem := _find_mismatch_at(inner, inner_schema, root, f"{path}.{name}")
        ):
            return problem
    return ""


def _is_json_type(value: Any, name: str) -> bool:
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, _JSON_TYPES.get(name, (object,)))


def _json_type_name(value: Any) -> str:
    return next((kind for kind in _JSON_TYPES if _is_json_type(value, kind)), "other")
