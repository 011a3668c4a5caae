"""What a JSON schema allows, and where a value does not fit it, in words for a model or a user.

    find_mismatch        the first part that does not fit, as a Mismatch
    describe_expected    such as "an integer of at least 1"
    find_schema_problem  what is wrong with a schema itself

Pure functions on plain values. Used by json_type.py, and by the schemas of tools and outputs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

JSONSchema = dict[str, Any]
PathStep = str | int

SHOWN_CHARS = 60
DECIMAL_PATTERN = r"^[-+]?\d+(\.\d+)?$"

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_TYPE_TEXTS = {
    "object": "an object",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "null": "null",
}
_FORMAT_TEXTS = {
    "date-time": "a date and time such as 2026-01-31T12:00:00Z",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 12:00:00",
    "duration": "a duration such as PT90S",
    "uuid": "a UUID",
    "email": "an e-mail address",
    "uri": "a URL",
}


class Mismatch(ValueError):
    """A value does not fit. `path` leads to the part that is wrong, `problem` says why."""

    def __init__(self, problem: str, path: tuple[PathStep, ...] = ()) -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path

    def under(self, step: PathStep) -> Mismatch:
        """The same mismatch, seen from the object or list around it."""
        return Mismatch(self.problem, (step, *self.path))

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.problem}" if self.path else self.problem


def format_path(path: Sequence[PathStep]) -> str:
    """Such as `orders[2].size`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def make_mismatch(schema: JSONSchema, value: object, root: JSONSchema | None = None) -> Mismatch:
    """The Mismatch of a value that is not what the schema describes."""
    return Mismatch(f"expected {describe_expected(schema, root)}, got {show_value(value)}")


def show_value(value: object) -> str:
    """A JSON value on one line, cut to a few words."""
    import json  # only for messages

    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


# ------------------------------------------------------------------ what is expected


def describe_expected(schema: JSONSchema, root: JSONSchema | None = None) -> str:
    """What a schema allows, in a few words."""
    root = schema if root is None else root
    schema = resolve_reference(schema, root)
    if "const" in schema:
        return show_value(schema["const"])
    if "enum" in schema:
        options = [show_value(option) for option in schema["enum"]]
        return options[0] if len(options) == 1 else f"one of {', '.join(options)}"
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _join_options([describe_expected(part, root) for part in schema[key]])
    if len(schema.get("allOf", ())) == 1:
        return describe_expected(schema["allOf"][0], root)
    kinds = schema.get("type")
    if kinds is None:
        return "a value"
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return _join_options([_describe_type(kind, schema) for kind in kinds])


def _join_options(options: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(options))


def _describe_type(kind: str, schema: JSONSchema) -> str:
    text = _TYPE_TEXTS.get(kind, kind)
    if kind == "string":
        if schema.get("pattern") == DECIMAL_PATTERN:
            return "a decimal number such as 1.50"
        text = _FORMAT_TEXTS.get(schema.get("format", ""), text)
        if schema.get("contentEncoding") == "base64":
            text = "text in base64"
        text += _describe_count(schema, "minLength", "maxLength", "character")
        return f"{text} that matches {schema['pattern']}" if "pattern" in schema else text
    if kind in ("integer", "number"):
        return text + _describe_bounds(schema)
    if kind == "array":
        return text + _describe_count(schema, "minItems", "maxItems", "item")
    return text


def _describe_bounds(schema: JSONSchema) -> str:
    parts = [
        f"{words} {schema[key]}"
        for key, words in (
            ("minimum", "of at least"),
            ("exclusiveMinimum", "greater than"),
            ("maximum", "of at most"),
            ("exclusiveMaximum", "less than"),
            ("multipleOf", "that is a multiple of"),
        )
        if key in schema
    ]
    return f" {' and '.join(parts)}" if parts else ""


def _describe_count(schema: JSONSchema, least_key: str, most_key: str, noun: str) -> str:
    least, most = schema.get(least_key), schema.get(most_key)
    if least is not None and least == most:
        count, limit = f"exactly {least}", least
    elif least is not None and most is not None:
        count, limit = f"{least} to {most}", most
    elif least is not None:
        count, limit = f"at least {least}", least
    elif most is not None:
        count, limit = f"at most {most}", most
    else:
        return ""
    return f" of {count} {noun}{'' if limit == 1 else 's'}"


def list_arguments(name: str, schema: JSONSchema) -> str:
    """Which arguments a tool takes, in words for the model."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return f"{name} takes no arguments."
    required = schema.get("required", ())
    names = [f"{one} (required)" if one in required else one for one in properties]
    return f"{name} takes {', '.join(names)}."


# ------------------------------------------------------------------ what does not fit


def find_mismatch(value: Any, schema: Any, root: JSONSchema | None = None) -> Mismatch | None:
    """The first part of a value that does not fit; None if all of it fits."""
    if schema is False:
        return Mismatch("no value is allowed here")
    if not isinstance(schema, dict):
        return None
    root = schema if root is None else root
    schema = resolve_reference(schema, root)
    if "const" in schema and not is_same_json(value, schema["const"]):
        return make_mismatch(schema, value)
    if "enum" in schema and not any(is_same_json(value, option) for option in schema["enum"]):
        return make_mismatch(schema, value)
    for key in ("anyOf", "oneOf"):
        if schema.get(key) and (problem := _find_union_mismatch(value, schema[key], root)):
            return problem
    for part in schema.get("allOf", ()):
        if problem := find_mismatch(value, part, root):
            return problem
    if not allows_type(value, schema):
        return make_mismatch(schema, value, root)
    if isinstance(value, dict):
        return _find_object_mismatch(value, schema, root)
    if isinstance(value, list):
        return _find_list_mismatch(value, schema, root)
    if isinstance(value, str):
        return None if _is_text_allowed(value, schema) else make_mismatch(schema, value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        bounds = {**schema, "type": "number"}
        return None if is_within_bounds(value, schema) else make_mismatch(bounds, value)
    return None


def choose_mismatch(
    value: Any, tried: Sequence[tuple[JSONSchema, Mismatch]], root: JSONSchema
) -> Mismatch:
    """The mismatch to report for a union: that of the option which the value was meant to be."""
    same_type = [
        (rank_option(value, schema, root), number, mismatch)
        for number, (schema, mismatch) in enumerate(tried)
        if allows_type(value, resolve_reference(schema, root))
    ]
    is_container = isinstance(value, (dict, list))
    if same_type and (is_container or len(same_type) == 1):
        return min(same_type, key=lambda entry: entry[:2])[2]
    return make_mismatch({"anyOf": [schema for schema, _ in tried]}, value, root)


def rank_option(value: Any, schema: JSONSchema, root: JSONSchema) -> tuple[int, int, int]:
    """How badly an object fits an option of a union: wrong tags, unknown and missing properties."""
    schema = resolve_reference(schema, root)
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return (0, 0, 0)
    tags = [name for name, part in properties.items() if isinstance(part, dict) and "const" in part]
    wrong = sum(name in value and value[name] != properties[name]["const"] for name in tags)
    unknown = sum(name not in properties for name in value)
    if isinstance(schema.get("additionalProperties"), dict):
        unknown = 0
    missing = sum(name not in value for name in schema.get("required", ()))
    return (wrong, unknown, missing)


def _find_union_mismatch(
    value: Any, options: Sequence[JSONSchema], root: JSONSchema
) -> Mismatch | None:
    tried: list[tuple[JSONSchema, Mismatch]] = []
    for option in options:
        problem = find_mismatch(value, option, root)
        if problem is None:
            return None
        tried.append((option, problem))
    return choose_mismatch(value, tried, root)


def _find_object_mismatch(
    value: dict[str, Any], schema: JSONSchema, root: JSONSchema
) -> Mismatch | None:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            return missing_mismatch(name, properties.get(name, {}), root)
    for name, inner in value.items():
        if name not in properties and others is False:
            return unknown_mismatch(name, properties)
        if problem := find_mismatch(inner, properties.get(name, others), root):
            return problem.under(name)
    return None


def missing_mismatch(name: str, schema: Any, root: JSONSchema) -> Mismatch:
    expected = describe_expected(schema, root) if isinstance(schema, dict) else "a value"
    return Mismatch(f"missing, expected {expected}", (name,))


def unknown_mismatch(name: str, known: Sequence[str] | dict[str, Any]) -> Mismatch:
    names = ", ".join(known)
    return Mismatch(f"not known, expected only {names}" if names else "not known", (name,))


def _find_list_mismatch(value: list[Any], schema: JSONSchema, root: JSONSchema) -> Mismatch | None:
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not least <= len(value) <= most:
        return make_mismatch(schema, value, root)
    first = schema.get("prefixItems", [])
    for number, element in enumerate(value):
        inner = first[number] if number < len(first) else schema.get("items", True)
        if problem := find_mismatch(element, inner, root):
            return problem.under(number)
    return None


def _is_text_allowed(value: str, schema: JSONSchema) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
        return False
    try:
        return "pattern" not in schema or re.search(schema["pattern"], value) is not None
    except re.error:
        return True  # a pattern in another dialect


def is_within_bounds(value: Any, schema: JSONSchema) -> bool:
    """Whether a number is within the bounds of the schema."""
    return not (
        ("minimum" in schema and value < schema["minimum"])
        or ("exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"])
        or ("maximum" in schema and value > schema["maximum"])
        or ("exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"])
        or ("multipleOf" in schema and not _is_multiple(value, schema["multipleOf"]))
    )


def _is_multiple(value: Any, unit: Any) -> bool:
    if isinstance(value, float) or isinstance(unit, float):
        quotient = float(value) / float(unit)
        return math.isfinite(quotient) and math.isclose(quotient, round(quotient), rel_tol=1e-9)
    return bool(value % unit == 0)


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def allows_type(value: Any, schema: JSONSchema) -> bool:
    kinds = schema.get("type")
    if kinds is None:
        return True
    return any(
        _is_json_type(value, kind) for kind in (kinds if isinstance(kinds, list) else [kinds])
    )


def _is_json_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES.get(kind, (object,)))


def resolve_reference(schema: Any, root: JSONSchema) -> JSONSchema:
    """The schema that a `$ref` stands for; the schema itself if it is none."""
    for _ in range(32):  # a reference to itself ends here
        if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
            break
        name = schema["$ref"].rpartition("/")[2]
        definitions = root.get("$defs") or root.get("definitions") or {}
        schema = root if schema["$ref"] == "#" else definitions.get(name, {})
    return schema if isinstance(schema, dict) else {}


def is_nullable(schema: Any, root: JSONSchema | None = None) -> bool:
    """Whether null is allowed."""
    if not isinstance(schema, dict) or not schema:
        return True
    schema = schema if root is None else resolve_reference(schema, root)
    kinds = schema.get("type")
    is_null = kinds == "null" or (isinstance(kinds, list) and "null" in kinds)
    if is_null or None in schema.get("enum", ()):
        return True
    return any(
        is_nullable(part, root) for key in ("anyOf", "oneOf") for part in schema.get(key, ())
    )


# ------------------------------------------------------------------ a schema itself


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
    problems = (find_schema_problem(part, f"{path}.{name}") for name, part in subschemas(schema))
    return next(filter(None, problems), "")


def subschemas(schema: JSONSchema) -> Iterator[tuple[str, object]]:
    """The schemas directly inside of a schema, with the names of their places."""
    for key in ("properties", "$defs", "definitions"):
        yield from ((f"{key}.{name}", part) for name, part in schema.get(key, {}).items())
    for key in ("anyOf", "oneOf", "allOf"):
        yield from ((f"{key}[{number}]", part) for number, part in enumerate(schema.get(key, ())))
    for key in ("items", "additionalProperties"):
        if key in schema and not isinstance(schema[key], list):
            yield key, schema[key]


def map_schema(schema: Any, change: Any) -> Any:
    """The schema with `change` applied to every schema inside of it, then to itself."""
    if not isinstance(schema, dict):
        return schema
    mapped: JSONSchema = {}
    for key, part in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(part, dict):
            mapped[key] = {name: map_schema(one, change) for name, one in part.items()}
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems") and isinstance(part, list):
            mapped[key] = [map_schema(one, change) for one in part]
        elif key in ("items", "additionalProperties", "propertyNames", "not"):
            mapped[key] = map_schema(part, change)
        else:
            mapped[key] = part
    return change(mapped)
