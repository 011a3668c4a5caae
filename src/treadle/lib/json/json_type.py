"""A Python type as JSON: `JsonType(Order).schema`, and `.convert(value)` for a value of it.

    JsonType    one type, as of an output
    JsonFields  named fields, as the parameters of a function

Knows the types of the standard library, msgspec structs, dataclasses, TypedDicts, named tuples,
attrs classes, and pydantic's types anywhere inside of these. A value that does not fit raises
Mismatch (schema.py); a type without a schema raises TypeError. Used by tools and outputs.
"""

from __future__ import annotations

import collections
import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from treadle.lib.json.class_fields import (
    JsonField,
    find_reader,
    make_class_name,
    read_class_description,
)
from treadle.lib.json.coercion import coerce
from treadle.lib.json.constraints import needs_pydantic, read_constraints
from treadle.lib.json.msgspec_type import prefer_msgspec
from treadle.lib.json.scalars import (
    Node,
    check_type,
    compile_by_msgspec,
    compile_choices,
    compile_scalar,
    make_value,
)
from treadle.lib.json.schema import (
    JSONSchema,
    Mismatch,
    choose_mismatch,
    make_mismatch,
    map_schema,
    missing_mismatch,
    rank_option,
    show_value,
    unknown_mismatch,
)

Convert = Callable[[Any], Any]
NAMESPACE = "#/$defs/"


class JsonType:
    """One type."""

    def __init__(self, annotation: Any) -> None:
        compiler = _Compiler()
        node = compiler.compile(annotation)
        self._convert = prefer_msgspec(annotation, node).convert
        self.schema = compiler.finish(node.schema)

    def convert(self, value: Any) -> Any:
        """A value of the type. Texts that spell a number or a list are accepted where only these
        fit. Raises Mismatch."""
        return _convert_leniently(self._convert, value, self.schema)


class JsonFields:
    """The fields of an object that has no type of its own; `convert` returns a dict."""

    def __init__(self, fields: Sequence[JsonField]) -> None:
        compiler = _Compiler()
        node = compiler.compile_object(fields, dict, is_closed=True, is_outermost=True)
        self.schema = compiler.finish(node.schema)
        self._convert = node.convert

    def convert(self, value: Any) -> dict[str, Any]:
        """The values that are present. Raises Mismatch, as `JsonType.convert` does."""
        converted: dict[str, Any] = _convert_leniently(self._convert, value, self.schema)
        return converted


def _convert_leniently(convert: Convert, value: Any, schema: JSONSchema) -> Any:
    try:
        return convert(value)
    except Mismatch as first:
        changed = coerce(value, schema)
        if changed == value and type(changed) is type(value):
            raise
        try:
            return convert(changed)
        except Mismatch as error:
            raise error from first


_LISTS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    collections.deque: collections.deque,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_MAPPINGS: Mapping[Any, Callable[..., Any]] = {
    dict: dict,
    collections.OrderedDict: collections.OrderedDict,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


class _Compiler:
    """Makes nodes of annotations. Types that have a name are in `$defs`, so that they may contain
    themselves."""

    def __init__(self) -> None:
        self._definitions: dict[str, JSONSchema] = {}
        self._root: JSONSchema = {"$defs": self._definitions}
        self._named: dict[Any, Node] = {}

    def finish(self, schema: JSONSchema) -> JSONSchema:
        """The schema with the definitions that it needs. What is used once stands where it is used,
        and the root is no reference: some providers require the object itself."""
        uses = _count_references([schema, *self._definitions.values()])
        root = schema.get("$ref", "")
        inlined = {
            reference
            for name, part in self._definitions.items()
            if uses[reference := NAMESPACE + name] == 1
            and reference not in _count_references([part])
        }

        def inline(part: JSONSchema) -> Any:
            options = part.get("anyOf", ())
            if len(options) == 1 and "$ref" not in options[0]:
                return {**options[0], **{key: one for key, one in part.items() if key != "anyOf"}}
            if part.get("$ref") not in inlined:
                return part
            return place(self._definitions[part["$ref"].removeprefix(NAMESPACE)])

        def place(part: JSONSchema) -> Any:
            return map_schema(part, inline)

        whole = place(self._definitions[root.removeprefix(NAMESPACE)] if root else schema)
        kept = {
            name: place(part)
            for name, part in self._definitions.items()
            if NAMESPACE + name not in inlined
        }
        return {**whole, "$defs": kept} if kept else whole

    def compile(self, hint: Any) -> Node:
        if hint is Any or hint is object or hint is inspect.Parameter.empty:
            return Node({}, lambda value: value)
        if hint is None or hint is type(None):
            return check_type({"type": "null"}, (type(None),))
        if isinstance(hint, typing.NewType):
            return self.compile(hint.__supertype__)
        if isinstance(hint, typing.TypeVar):
            return self._compile_type_variable(hint)
        if hasattr(hint, "__value__"):  # `type X = ...`
            return self.compile(hint.__value__)
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._compile_annotated(hint, arguments)
        if origin is Literal:
            return compile_choices([(option, option) for option in arguments])
        if origin in (Union, types.UnionType):
            return self._compile_union(arguments)
        if origin in (typing.Required, typing.NotRequired):
            return self.compile(arguments[0])
        kind = hint if origin is None else origin
        if not isinstance(kind, type):
            raise TypeError(f"{hint!r} is not a type")
        return (
            compile_scalar(kind)
            or self._compile_container(kind, arguments)
            or self._compile_class(hint, kind, arguments)
        )

    def compile_object(
        self,
        fields: Sequence[JsonField],
        make: Callable[..., Any],
        *,
        is_closed: bool = False,
        tag: tuple[str, Any] | None = None,
        target: JSONSchema | None = None,
        is_outermost: bool = False,
    ) -> Node:
        """An object; `target` is filled with its schema."""
        parts = {field.name: self.compile(field.annotation) for field in fields}
        if is_outermost:
            parts = {one.name: prefer_msgspec(one.annotation, parts[one.name]) for one in fields}
        schema: JSONSchema = {} if target is None else target
        properties = {field.name: _add_default(parts[field.name].schema, field) for field in fields}
        required = [field.name for field in fields if field.is_required]
        if tag is not None:
            properties = {tag[0]: {"const": tag[1]}, **properties}
            required = [tag[0], *required]
        schema |= {"type": "object", "properties": properties, "required": required}
        if is_closed:
            schema["additionalProperties"] = False
        keys = {field.name: field.key or field.name for field in fields}

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise make_mismatch(schema, value)
            if tag is not None and value.get(tag[0]) != tag[1]:
                raise _make_tag_mismatch(value, tag)
            for name in required:
                if name not in value:
                    raise missing_mismatch(name, properties[name], self._root)
            values = {}
            for name, inner in value.items():
                if name in parts:
                    part = parts[name]
                    if type(inner) is part.plain_type:
                        values[keys[name]] = inner
                        continue
                    try:
                        values[keys[name]] = part.convert(inner)
                    except Mismatch as problem:
                        raise problem.under(name) from problem.__cause__
                elif is_closed and name not in properties:
                    raise unknown_mismatch(name, properties)
            return make_value(make, values)

        return Node(schema, convert)

    # --- annotations ---------------------------------------------------------------------

    def _compile_type_variable(self, variable: Any) -> Node:
        if variable.__constraints__:
            return self._compile_union(variable.__constraints__)
        return self.compile(Any if variable.__bound__ is None else variable.__bound__)

    def _compile_annotated(self, hint: Any, arguments: Sequence[Any]) -> Node:
        base, *metadata = arguments
        found = read_constraints(metadata)
        if needs_pydantic(metadata):
            node = self._compile_pydantic(hint)
            return Node(found.add_to_schema(node.schema), node.convert)
        inner = self.compile(base)

        def convert(value: Any) -> Any:
            converted = inner.convert(value)
            found.check(converted, value)
            return converted

        return Node(found.add_to_schema(inner.schema), convert)

    def _compile_union(self, options: Sequence[Any]) -> Node:
        nodes = [self.compile(option) for option in options]
        # An integer is a number, too: the narrower type is tried first.
        nodes.sort(key=lambda node: node.schema == {"type": "number"})
        schema: JSONSchema = {"anyOf": [node.schema for node in nodes]}

        def convert(value: Any) -> Any:
            tried: list[tuple[JSONSchema, Mismatch]] = []
            ordered = nodes
            if isinstance(value, dict):
                ordered = sorted(
                    nodes, key=lambda node: rank_option(value, node.schema, self._root)
                )
            for node in ordered:
                try:
                    return node.convert(value)
                except Mismatch as problem:
                    tried.append((node.schema, problem))
            raise choose_mismatch(value, tried, self._root)

        return Node(schema, convert)

    # --- classes -------------------------------------------------------------------------

    def _compile_container(self, kind: type, arguments: Sequence[Any]) -> Node | None:
        if kind is tuple and arguments and Ellipsis not in arguments:
            return self._compile_tuple([] if arguments == ((),) else arguments)
        if kind in _LISTS:
            return self._compile_list(arguments[0] if arguments else Any, _LISTS[kind])
        if kind in _MAPPINGS:
            key, value = arguments if len(arguments) == 2 else (str, Any)
            return self._compile_mapping(key, value, _MAPPINGS[kind])
        return None

    def _compile_class(self, hint: Any, kind: type, arguments: Sequence[Any]) -> Node:
        if hint in self._named:
            return self._named[hint]
        read = None if hasattr(kind, "__pydantic_validator__") else find_reader(kind)
        if read is None and hasattr(kind, "__get_pydantic_core_schema__"):
            self._named[hint] = self._compile_pydantic(hint)
            return self._named[hint]
        if read is None:
            return compile_by_msgspec(hint)
        name = self._find_free_name(make_class_name(kind, arguments))
        target = self._definitions[name] = {}
        inner: list[Node] = []
        node = Node({"$ref": f"{NAMESPACE}{name}"}, lambda value: inner[0].convert(value))
        self._named[hint] = node
        shape = read(kind, hint)
        made = self.compile_object(
            shape.fields, shape.make, is_closed=shape.is_closed, tag=shape.tag, target=target
        )
        if description := read_class_description(kind):
            target["description"] = description
        inner.append(made)
        return node

    def _compile_pydantic(self, hint: Any) -> Node:
        from treadle.lib.json.pydantic_type import PydanticType

        model = PydanticType(hint)
        node = Node(self._adopt_definitions(model.schema), model.convert)
        if not isinstance(hint, type) or "$ref" in node.schema:
            return node
        name = self._find_free_name(hint.__name__)
        self._definitions[name] = node.schema
        return Node({"$ref": f"{NAMESPACE}{name}"}, node.convert)

    def _adopt_definitions(self, schema: JSONSchema) -> JSONSchema:
        """The schema without its own `$defs`, which are added to ours under free names."""
        own = schema.get("$defs")
        if not own:
            return schema
        names = {}
        for name, part in own.items():
            is_same = self._definitions.get(name) == part
            names[NAMESPACE + name] = name if is_same else self._find_free_name(name)

        def rename(part: JSONSchema) -> JSONSchema:
            reference = part.get("$ref")
            return {**part, "$ref": NAMESPACE + names[reference]} if reference in names else part

        for name, part in own.items():
            self._definitions[names[NAMESPACE + name]] = map_schema(part, rename)
        whole: JSONSchema = map_schema(schema, rename)
        return {key: part for key, part in whole.items() if key != "$defs"}

    def _find_free_name(self, name: str) -> str:
        free, number = name, 1
        while free in self._definitions:
            number += 1
            free = f"{name}{number}"
        return free

    # --- containers ----------------------------------------------------------------------

    def _compile_list(self, element: Any, make: Callable[[Iterable[Any]], Any]) -> Node:
        inner = self.compile(element)
        schema: JSONSchema = {"type": "array", "items": inner.schema}
        if make in (set, frozenset):
            schema["uniqueItems"] = True

        def convert(value: Any) -> Any:
            if not isinstance(value, list):
                raise make_mismatch(schema, value)
            return make_value(make, [_convert_at(n, inner, one) for n, one in enumerate(value)])

        return Node(schema, convert)

    def _compile_tuple(self, elements: Sequence[Any]) -> Node:
        parts = [self.compile(element) for element in elements]
        schema: JSONSchema = {
            "type": "array",
            "prefixItems": [part.schema for part in parts],
            "items": False,
            "minItems": len(parts),
            "maxItems": len(parts),
        }

        def convert(value: Any) -> Any:
            if not isinstance(value, list) or len(value) != len(parts):
                raise make_mismatch(schema, value)
            return tuple([_convert_at(n, part, value[n]) for n, part in enumerate(parts)])

        return Node(schema, convert)

    def _compile_mapping(self, key: Any, element: Any, make: Callable[..., Any]) -> Node:
        names, inner = self.compile(key), self.compile(element)
        schema: JSONSchema = {"type": "object", "additionalProperties": inner.schema or True}
        if names.schema != {"type": "string"} and names.schema.get("type") == "string":
            schema["propertyNames"] = names.schema

        def convert(value: Any) -> Any:
            if not isinstance(value, dict):
                raise make_mismatch(schema, value)
            return make_value(
                make,
                {
                    _convert_at(name, names, coerce(name, names.schema)): _convert_at(
                        name, inner, one
                    )
                    for name, one in value.items()
                },
            )

        return Node(schema, convert)


def _count_references(schemas: Iterable[JSONSchema]) -> collections.Counter[str]:
    """How often each definition is referred to."""
    found: collections.Counter[str] = collections.Counter()

    def count(part: JSONSchema) -> JSONSchema:
        if isinstance(part.get("$ref"), str):
            found[part["$ref"]] += 1
        return part

    for schema in schemas:
        map_schema(schema, count)
    return found


def _convert_at(step: str | int, node: Node, value: Any) -> Any:
    try:
        return node.convert(value)
    except Mismatch as problem:
        raise problem.under(step) from problem.__cause__


def _make_tag_mismatch(value: Mapping[str, Any], tag: tuple[str, Any]) -> Mismatch:
    if tag[0] not in value:
        return Mismatch(f"missing, expected {show_value(tag[1])}", (tag[0],))
    return make_mismatch({"const": tag[1]}, value[tag[0]]).under(tag[0])


def _add_default(schema: JSONSchema, field: JsonField) -> JSONSchema:
    if field.is_required or field.default is msgspec.UNSET:
        return schema
    try:
        default = msgspec.json.decode(msgspec.json.encode(field.default, enc_hook=_refuse))
    except (TypeError, ValueError):
        return schema
    return {**({"anyOf": [schema]} if "$ref" in schema else schema), "default": default}


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} has no JSON form")
