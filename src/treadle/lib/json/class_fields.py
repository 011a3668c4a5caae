"""The fields of a class: msgspec structs, dataclasses, TypedDicts, named tuples, attrs classes.

Used by json_type.py, which makes an object schema of them.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

import msgspec


class JsonField(msgspec.Struct, frozen=True):
    """A named part of an object. Without `is_required` it may be absent; `default` is for the
    schema."""

    name: str
    annotation: Any
    is_required: bool = True
    default: Any = msgspec.UNSET
    key: str = ""  # the argument of the constructor, if it is not the name


class ClassShape(msgspec.Struct, frozen=True):
    fields: list[JsonField]
    make: Callable[..., Any]
    is_closed: bool = False
    tag: tuple[str, Any] | None = None


def find_reader(kind: type) -> Callable[[Any, Any], ClassShape] | None:
    if issubclass(kind, msgspec.Struct):
        return None if kind.__struct_config__.array_like else _read_struct
    if typing.is_typeddict(kind) or _is_extension_typed_dict(kind):
        return _read_typed_dict
    if hasattr(kind, "__dataclass_fields__"):
        return _read_dataclass
    if hasattr(kind, "__attrs_attrs__"):
        return _read_attrs
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _read_named_tuple
    return None


def _is_extension_typed_dict(kind: type) -> bool:
    """A TypedDict of typing_extensions."""
    return issubclass(kind, dict) and hasattr(kind, "__total__")


def _read_struct(kind: Any, hint: Any) -> ClassShape:
    config = kind.__struct_config__
    fields = [
        JsonField(one.encode_name, one.type, one.required, _get_struct_default(one), one.name)
        for one in msgspec.structs.fields(hint)
    ]
    tag = None if config.tag is None else (config.tag_field, config.tag)
    return ClassShape(fields, kind, config.forbid_unknown_fields, tag)


def _get_struct_default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default is not msgspec.NODEFAULT:
        return field.default
    plain = (list, dict, set, tuple)
    return field.default_factory() if field.default_factory in plain else msgspec.UNSET


def _read_dataclass(kind: Any, hint: Any) -> ClassShape:
    import dataclasses  # only for dataclasses

    hints = _read_class_hints(kind, hint)
    fields = []
    for one in dataclasses.fields(kind):
        if one.init:
            has_factory = one.default_factory is not dataclasses.MISSING
            has_default = one.default is not dataclasses.MISSING
            default = one.default if has_default else msgspec.UNSET
            is_required = not (has_factory or has_default)
            fields.append(JsonField(one.name, hints[one.name], is_required, default))
    return ClassShape(fields, kind)


def _read_attrs(kind: Any, hint: Any) -> ClassShape:
    hints = _read_class_hints(kind, hint)
    nothing = sys.modules["attr"].NOTHING
    return ClassShape(
        [
            JsonField(one.name, hints.get(one.name, Any), one.default is nothing, key=one.alias)
            for one in kind.__attrs_attrs__
            if one.init
        ],
        kind,
    )


def _read_typed_dict(kind: Any, hint: Any) -> ClassShape:
    fields = []
    for name, one in _read_class_hints(kind, hint).items():
        is_required = name in kind.__required_keys__
        while (qualifier := getattr(get_origin(one), "_name", "")) in _QUALIFIERS:
            # Said again, because annotations that are texts are not in `__required_keys__`.
            is_required = _QUALIFIERS[qualifier] if qualifier != "ReadOnly" else is_required
            one = get_args(one)[0]
        fields.append(JsonField(name, one, is_required))
    return ClassShape(fields, dict)


_QUALIFIERS = {"Required": True, "NotRequired": False, "ReadOnly": True}


def _read_named_tuple(kind: Any, hint: Any) -> ClassShape:
    hints = _read_class_hints(kind, hint)
    defaults = kind._field_defaults
    fields = [
        JsonField(
            name, hints.get(name, Any), name not in defaults, defaults.get(name, msgspec.UNSET)
        )
        for name in kind._fields
    ]
    return ClassShape(fields, kind)


def _read_class_hints(kind: Any, hint: Any) -> dict[str, Any]:
    """The annotations of a class, with the arguments of a generic one in their places."""
    hints = typing.get_type_hints(kind, include_extras=True)
    if not (arguments := get_args(hint)):
        return hints
    values = dict(zip(kind.__parameters__, arguments, strict=False))
    return {name: _substitute(one, values) for name, one in hints.items()}


def _substitute(hint: Any, values: Mapping[Any, Any]) -> Any:
    if hint in values:
        return values[hint]
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or isinstance(hint, type):
        return hint
    return hint[tuple([values.get(parameter, parameter) for parameter in parameters])]


def make_class_name(kind: type, arguments: Sequence[Any]) -> str:
    parts = [kind.__name__, *(getattr(one, "__name__", "") for one in arguments)]
    return "_".join(filter(None, parts))


def read_class_description(kind: type) -> str:
    """The docstring that the author of a class wrote."""
    text = kind.__dict__.get("__doc__") or ""
    is_made = text.startswith(f"{kind.__name__}(") or issubclass(kind, tuple)
    return "" if is_made and not kind.__dict__.get("__orig_doc__") else inspect.cleandoc(text)
