"""Values that nearly fit a schema, as models write them.

    coerce       "5" becomes 5 where only a number fits
    drop_absent  removes the nulls that a strict mode requires for absent properties

Pure functions, used by json_type.py, pydantic_type.py and the schemas of outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.lib.json.schema import (
    JSONSchema,
    allows_type,
    find_mismatch,
    is_nullable,
    resolve_reference,
)


def coerce(value: Any, schema: Any, root: JSONSchema | None = None) -> Any:
    """The value with texts replaced by what they spell, where a text does not fit.

    Models write "5" for 5, "true" for true, and lists as JSON text. What fits stays as it is.
    """
    if not isinstance(schema, dict):
        return value
    root = schema if root is None else root
    schema = resolve_reference(schema, root)
    if find_mismatch(value, schema, root) is None:
        return value
    for key in ("anyOf", "oneOf"):
        for option in schema.get(key, ()):
            changed = coerce(value, option, root)
            if find_mismatch(changed, option, root) is None:
                return changed
    if isinstance(value, str) and not allows_type(value, schema):
        value = _read_text(value, schema)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        return {
            name: coerce(inner, properties.get(name, others), root) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [coerce(element, schema.get("items"), root) for element in value]
    return value


def _read_text(text: str, schema: JSONSchema) -> Any:
    """The JSON value in a text if it has a type that the schema allows; else the text."""
    import json  # only for a value that does not fit

    word = text.strip().lower()
    try:
        value = json.loads(word if word in ("true", "false") else text)
    except (ValueError, RecursionError):
        return text
    return value if value is not None and allows_type(value, schema) else text


def drop_absent(value: Any, schema: Any, root: JSONSchema | None = None) -> Any:
    """The value without the nulls that a strict mode requires for absent properties."""
    if not isinstance(schema, dict):
        return value
    root = schema if root is None else root
    schema = resolve_reference(schema, root)
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _drop_absent_in_union(value, schema[key], root)
    if isinstance(value, list):
        return [drop_absent(element, schema.get("items"), root) for element in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    required = schema.get("required", ())
    return {
        name: drop_absent(inner, properties.get(name), root)
        for name, inner in value.items()
        if inner is not None or name in required or is_nullable(properties.get(name, {}), root)
    }


def _drop_absent_in_union(value: Any, options: Sequence[Any], root: JSONSchema) -> Any:
    if not isinstance(value, (dict, list)):
        return value
    for option in options:
        changed = drop_absent(value, option, root)
        if find_mismatch(changed, option, root) is None:
            return changed
    return value
