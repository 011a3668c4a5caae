"""JSON schemas, as far as providers and answers need them: made strict, and checked against.

Not a full validator: it knows the words that type-derived schemas use. Pure functions on plain
values. Above: structured.py, and wires that send a schema in its strict form.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

# What strict modes do not take, and what changes nothing about which values are right.
_DROPPED = ("default", "title", "examples", "$schema", "$id")


def strict_schema(schema: Schema) -> Schema | None:
    """The form that strict modes want: every object closed, every property required.

    A property that may be absent may be null instead; `without_absent` takes it out again.
    None if there is no such form, because some object has names that nobody can list.
    """
    try:
        strict: Schema = _strict(schema)
    except _NoStrictForm:
        return None
    return strict


class _NoStrictForm(Exception):
    pass


def _strict(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    strict = {key: value for key, value in schema.items() if key not in _DROPPED}
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if key in strict:
            strict[key] = [_strict(one) for one in strict[key]]
    if "oneOf" in strict:
        strict["anyOf"] = strict.pop("oneOf")
        strict.pop("discriminator", None)
    if "items" in strict:
        strict["items"] = _strict(strict["items"])
    if "$defs" in strict:
        strict["$defs"] = {name: _strict(one) for name, one in strict["$defs"].items()}
    if strict.get("type") == "object" or "properties" in strict:
        if strict.get("additionalProperties") not in (None, False) or "properties" not in strict:
            raise _NoStrictForm
        needed = schema.get("required", [])
        strict["properties"] = {
            name: _strict(one) if name in needed else _or_null(_strict(one))
            for name, one in strict["properties"].items()
        }
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    return strict


def _or_null(schema: Any) -> Any:
    if _allows_null(schema):
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _allows_null(schema: Any) -> bool:
    if not isinstance(schema, dict) or not schema:
        return True
    kinds = schema.get("type")
    if kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return True
    if None in schema.get("enum", ()):
        return True
    return any(_allows_null(one) for key in ("anyOf", "oneOf") for one in schema.get(key, ()))


def without_absent(value: Any, schema: Schema) -> Any:
    """The value without nulls that only say "absent": what a strict mode had to write."""
    return _pruned(value, schema, schema)


def _pruned(value: Any, schema: Any, root: Schema) -> Any:
    schema = _followed(schema, root)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_pruned(one, schema["items"], root) for one in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return value
    needed = schema.get("required", ())
    kept = {}
    for name, inner in value.items():
        of = properties.get(name, {})
        absent = inner is None and name not in needed and not _allows_null(_followed(of, root))
        if not absent:
            kept[name] = _pruned(inner, of, root)
    return kept


def _followed(schema: Any, root: Schema) -> Schema:
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        schema = root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
    return schema if isinstance(schema, dict) else {}


_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def mismatch(value: Any, schema: Schema) -> str:
    """What is wrong with a value, and where; empty if it fits."""
    return _mismatch(value, schema, schema, "$")


def _mismatch(value: Any, schema: Any, root: Schema, where: str) -> str:
    schema = _followed(schema, root)
    if "const" in schema and value != schema["const"]:
        return f"{where} must be {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} must be one of {', '.join(map(repr, schema['enum']))}, not {value!r}"
    for key in ("anyOf", "oneOf"):
        problems = [_mismatch(value, one, root, where) for one in schema.get(key, ())]
        if problems and all(problems):
            return problems[0]
    for one in schema.get("allOf", ()):
        if problem := _mismatch(value, one, root, where):
            return problem
    kinds = schema.get("type")
    if kinds is not None:
        allowed = kinds if isinstance(kinds, list) else [kinds]
        if not any(_is_kind(value, kind) for kind in allowed):
            return f"{where} must be {' or '.join(allowed)}, not {_kind_of(value)}"
    if isinstance(value, dict):
        return _object_mismatch(value, schema, root, where)
    if isinstance(value, list) and "items" in schema:
        for number, one in enumerate(value):
            if problem := _mismatch(one, schema["items"], root, f"{where}[{number}]"):
                return problem
    return ""


def _object_mismatch(value: dict[str, Any], schema: Schema, root: Schema, where: str) -> str:
    for name in schema.get("required", ()):
        if name not in value:
            return f"{where} lacks the property {name!r}"
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, inner in value.items():
        if name not in properties and others is False:
            return f"{where} has a property {name!r} that the schema does not know"
        of = properties.get(name, others)
        if isinstance(of, dict) and (problem := _mismatch(inner, of, root, f"{where}.{name}")):
            return problem
    return ""


def _is_kind(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _KINDS.get(kind, (object,)))


def _kind_of(value: Any) -> str:
    return next(kind for kind in (*_KINDS, "other") if kind == "other" or _is_kind(value, kind))
