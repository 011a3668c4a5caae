"""The types that msgspec converts as json_type.py does: it is several times as fast.

What it accepts has the same meaning for these types. Its words about a value that does not fit are
no help to a model, so such a value is converted again, part by part. Used by json_type.py.
"""

from __future__ import annotations

import collections.abc
import datetime
import enum
import types
import typing
import uuid
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from treadle.lib.json.scalars import Node

_TEXTS = (
    str,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    bytes,
)
_KINDS = {str: "text", int: "number", float: "number", bool: "bool", type(None): "null"}
_SCALARS = frozenset({*_KINDS, *_TEXTS, None, Any})  # no Decimal: msgspec takes NaN
_LISTS = frozenset(
    {list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Collection}
)
_MAPPINGS = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})


def prefer_msgspec(hint: Any, node: Node) -> Node:
    """The node, which is asked only about values that msgspec does not take."""
    if isinstance(hint, type) and hint in _SCALARS:
        return node
    is_alike: bool | None = None  # decided at the first value: most tools are never called

    def convert(value: Any) -> Any:
        nonlocal is_alike
        if is_alike is None:
            is_alike = _is_alike(hint, set())
        if not is_alike:
            return node.convert(value)
        try:
            return msgspec.convert(value, hint)
        except (ValueError, TypeError, OverflowError):  # a ValidationError is a ValueError
            return node.convert(value)

    return Node(node.schema, convert, node.plain_type)


def _is_alike(hint: Any, seen: set[Any]) -> bool:
    """Whether msgspec makes the same value; no in doubt. `seen`: classes that are being read."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, *metadata = arguments
        is_known = all(isinstance(one, (str, msgspec.Meta)) for one in metadata)
        return is_known and _is_alike(base, seen)
    if origin is Literal:
        return _find_kind(hint) != ""
    if origin in (Union, types.UnionType):
        kinds = [_find_kind(option) for option in arguments]
        is_distinct = len(set(kinds)) == len(kinds) and "" not in kinds
        return is_distinct and all(_is_alike(option, seen) for option in arguments)
    if (origin or hint) in _LISTS:
        return all(one is Ellipsis or _is_alike(one, seen) for one in arguments)
    if (origin or hint) in _MAPPINGS:
        return not arguments or (arguments[0] is str and _is_alike(arguments[1], seen))
    if origin is not None or not isinstance(hint, type):
        return hint is Any
    if hint in _SCALARS or hint in seen:
        return True
    if issubclass(hint, enum.Enum):
        return _find_kind(hint) != ""
    return _is_class_alike(hint, {*seen, hint})


def _is_class_alike(kind: Any, seen: set[Any]) -> bool:
    if hasattr(kind, "__pydantic_validator__"):
        return False
    if issubclass(kind, msgspec.Struct):
        fields = [one.type for one in msgspec.structs.fields(kind)]
        return not kind.__struct_config__.array_like and all(_is_alike(one, seen) for one in fields)
    is_plain = "__dataclass_params__" in vars(kind) and kind.__dataclass_params__.init
    if not is_plain or not all(one.init for one in kind.__dataclass_fields__.values()):
        return False
    hints = typing.get_type_hints(kind, include_extras=True)
    return all(_is_alike(one, seen) for one in hints.values())


def _find_kind(hint: Any) -> str:
    """The one JSON type of a type; empty if there are several, or none that is sure."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _find_kind(arguments[0])
    if origin is Literal or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        values = arguments or [one.value for one in hint]
        kinds = {_KINDS.get(type(one), "") for one in values}
        return kinds.pop() if kinds in ({"text"}, {"number"}) else ""
    if (origin or hint) in _LISTS:
        return "list"
    if (origin or hint) in _MAPPINGS or hasattr(hint, "__dataclass_fields__"):
        return "object"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return "object"
    return "text" if hint in _TEXTS else _KINDS.get(hint, "")
