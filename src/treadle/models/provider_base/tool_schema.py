"""The schema of a tool in the form that providers accept: one object, without alternatives.

Providers refuse `anyOf`, `oneOf`, `allOf` and similar keywords at the top level, and with them the
whole request. The alternatives are merged into one object that allows all of them; the tool still
checks the arguments against its own schema. Pure functions, used by the encoders.
"""

from __future__ import annotations

from typing import Any

JSONObject = dict[str, Any]

MAX_DEPTH = 8  # of alternatives within alternatives
_REFUSED_KEYWORDS = frozenset(
    ("anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else", "$ref")
)


def adapt_tool_schema(schema: JSONObject) -> JSONObject:
    """The same schema if providers accept its top level, else one that allows the same objects."""
    if schema.get("type") == "object" and not _REFUSED_KEYWORDS & schema.keys():
        return schema
    definitions = {
        key: value for key in ("$defs", "definitions") if isinstance(value := schema.get(key), dict)
    }
    merged = _merge(schema, definitions, 0)
    kept = {key: value for key, value in schema.items() if key not in _REFUSED_KEYWORDS}
    return {**kept, "type": "object", **merged}


def _merge(schema: JSONObject, definitions: JSONObject, depth: int) -> JSONObject:
    """The properties of a schema and of its alternatives, and those that are always required."""
    properties: JSONObject = {}
    required: list[str] = []
    _add_properties(properties, schema.get("properties"))
    required += _list_strings(schema.get("required"))
    if depth < MAX_DEPTH:
        parts = [_resolve(schema, definitions)] if "$ref" in schema else []
        for part in (*parts, *_list_schemas(schema.get("allOf"))):
            merged = _merge(_resolve(part, definitions), definitions, depth + 1)
            _add_properties(properties, merged["properties"])
            required += merged.get("required", [])
        for key in ("anyOf", "oneOf"):
            options = [
                _merge(_resolve(option, definitions), definitions, depth + 1)
                for option in _list_schemas(schema.get(key))
            ]
            for option in options:
                _add_properties(properties, option["properties"])
            in_all = options[0].get("required", []) if options else []
            required += [
                name for name in in_all if all(name in o.get("required", ()) for o in options)
            ]
    unique = list(dict.fromkeys(required))
    return {"properties": properties, "required": unique} if unique else {"properties": properties}


def _add_properties(properties: JSONObject, added: object) -> None:
    for name, schema in added.items() if isinstance(added, dict) else ():
        known = properties.get(name)
        if known is None or known == schema:
            properties[name] = schema
        elif isinstance(known, dict) and set(known) == {"anyOf"}:
            if schema not in known["anyOf"]:
                properties[name] = {"anyOf": [*known["anyOf"], schema]}
        else:
            properties[name] = {"anyOf": [known, schema]}


def _resolve(schema: JSONObject, definitions: JSONObject) -> JSONObject:
    """The schema behind a local reference; other references allow any object."""
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    folder, _, name = reference.removeprefix("#/").partition("/")
    found = definitions.get(folder, {}).get(name)
    return found if isinstance(found, dict) else {}


def _list_schemas(value: object) -> list[JSONObject]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def _list_strings(value: object) -> list[str]:
    return [part for part in value if isinstance(part, str)] if isinstance(value, list) else []
