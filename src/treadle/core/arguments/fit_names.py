"""Names and values that a schema has under another spelling: `filePath`, `Content`, `done`.

    fit_arguments   arguments whose names, enum values and shapes are made to fit a schema
    fold_name       a name to compare with: without case, `_`, `-`, spaces

Only what has one meaning is changed; what was changed is told in words for a model. Pure functions,
used by core/loop/calls/call_repair.py and by the built-in tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from treadle.core.transcript.content import Arguments
from treadle.lib.json.schema import JSONSchema, allows_type
from treadle.lib.text.word_set import word_set

# Arguments in which models say why they call, and of programs that ask the model whether to ask; a
# tool that does not have them does not need them.
_COMMENTS = word_set(
    "description explanation reason reasoning thought justification title requiresapproval"
)
NO_WORDS: Mapping[str, Mapping[str, str]] = {}


class Report:
    """What was changed in arguments, in words for a model. `report(text)`: they mean the same under
    other names. `report.guess(text)`: a value that was not written in this form."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.is_guessed = False

    def __call__(self, text: str) -> None:
        self.notes.append(text)

    def guess(self, text: str) -> None:
        self.notes.append(text)
        self.is_guessed = True


class NameTable(msgspec.Struct, frozen=True):
    """Other spellings. `names`: of arguments. `values`: of enum values, by the argument's name."""

    names: Mapping[str, str] = {}
    values: Mapping[str, Mapping[str, str]] = NO_WORDS


def fold_name(name: str) -> str:
    return name.strip().casefold().replace("_", "").replace("-", "").replace(" ", "")


def find_folded(name: str, known: Iterable[str]) -> str | None:
    """The known name that is the same but for case, `_`, `-` and spaces, if there is one."""
    same = [one for one in known if fold_name(one) == fold_name(name)]
    return same[0] if len(same) == 1 else None


def fit_arguments(
    arguments: Arguments, schema: JSONSchema, table: NameTable, report: Report
) -> Arguments:
    """The arguments with names, enum values and shapes that fit the schema."""
    inner = _find_wrapped(arguments, schema)
    if inner is not None:
        report("the arguments were in an object of their own")
        arguments = inner
    return _fit_object(arguments, schema, table, report)


def _find_wrapped(arguments: Arguments, schema: JSONSchema) -> Arguments | None:
    """The arguments in `{"arguments": {...}}` and the like."""
    if len(arguments) != 1:
        return None
    ((name, value),) = arguments.items()
    is_wrapper = fold_name(name) in ("arguments", "args", "input", "parameters", "params", "kwargs")
    if not is_wrapper or name in schema.get("properties", {}):
        return None
    return value if isinstance(value, dict) else None


def _fit_object(
    value: dict[str, Any], schema: JSONSchema, table: NameTable, report: Report
) -> dict[str, Any]:
    properties: dict[str, Any] = schema.get("properties", {})
    if not properties:
        return value
    is_closed = schema.get("additionalProperties") is False
    fitted: dict[str, Any] = {}
    for given, inner in value.items():
        name = given if given in properties else _find_property(given, properties, table)
        if name is None and is_closed and (inner is None or fold_name(given) in _COMMENTS):
            report(f"`{given}` is left out")
            continue
        if name is None or (name != given and name in value and inner != value[name]):
            fitted[given] = inner  # unknown, or two values for one argument: refused
            continue
        if name != given:
            report(f"`{given}` is `{name}`")
        is_optional = name not in schema.get("required", ())
        if not isinstance(properties[name], dict):  # `true`: any value
            fitted[name] = inner
            continue
        if inner is None and is_optional and not allows_type(None, properties[name]):
            report(f"`{name}` is left out, because it was null")
            continue
        fitted[name] = _fit_value(inner, properties[name], table, name, report)
    return fitted


def _find_property(given: str, properties: Mapping[str, Any], table: NameTable) -> str | None:
    alias = table.names.get(given) or table.names.get(find_folded(given, table.names) or "")
    if alias in properties:
        return alias
    return find_folded(given, properties)


def _fit_value(value: Any, schema: JSONSchema, table: NameTable, name: str, report: Report) -> Any:
    if isinstance(value, str) and "enum" in schema and value not in schema["enum"]:
        return _fit_enum(value, schema["enum"], table, name, report)
    if schema.get("type") == "array" and not isinstance(value, list):
        value = _fit_list(value, name, report)
    if schema.get("type") == "array" and isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            return [_fit_value(one, items, table, name, report) for one in value]
        return value
    if schema.get("type") == "object":
        return _fit_to_object(value, schema, table, name, report)
    if not allows_type(value, schema) and allows_type("", schema):
        return _fit_text(value, name, report)
    return value


def _fit_enum(value: str, allowed: list[Any], table: NameTable, name: str, report: Report) -> Any:
    words = table.values.get(name, {})
    texts = [one for one in allowed if isinstance(one, str)]
    meant = words.get(find_folded(value, words) or value, find_folded(value, texts))
    if meant is None:
        return value
    report(f"{name} `{value}` is `{meant}`")
    return meant


def _fit_list(value: Any, name: str, report: Report) -> Any:
    """A list that was given as JSON text, or a single element."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            decoded = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return value
        if isinstance(decoded, list):
            report.guess(f"`{name}` was a text; it is a list")
            return decoded
    if isinstance(value, (dict, str)):
        report.guess(f"`{name}` is a list")
        return [value]
    return value


def _fit_to_object(
    value: Any, schema: JSONSchema, table: NameTable, name: str, report: Report
) -> Any:
    if isinstance(value, str):
        required = schema.get("required", ())
        if len(required) == 1 and allows_type("", schema["properties"][required[0]]):
            report.guess(f"an element of `{name}` is an object with `{required[0]}`")
            return {required[0]: value}
    return _fit_object(value, schema, table, report) if isinstance(value, dict) else value


def _fit_text(value: Any, name: str, report: Report) -> Any:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        report.guess(f"`{name}` is a text, not a list")
        return value[0]
    if isinstance(value, int) and not isinstance(value, bool):
        report.guess(f"`{name}` is a text, not a number")
        return str(value)
    return value
