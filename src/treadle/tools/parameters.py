"""The parameters of a function: their schema, and how a model's arguments become a call.

Descriptions come from `Annotated` and from a Google-style "Args:" section of the docstring. A
parameter of type ToolContext is filled by the engine and is not in the schema. Used by function.py.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from treadle.core.contracts.tool import ToolContext
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import Arguments
from treadle.lib.json.class_fields import JsonField
from treadle.lib.json.constraints import (
    NO_DEFAULT,
    get_field_default,
    is_pydantic_field,
)
from treadle.lib.json.json_type import JsonFields
from treadle.lib.text.lazy_regex import compile_lazily

METHOD_NAMES = ("self", "cls")
CONTEXT_NAMES = ("ctx", "context")
# An annotation that can be named only for type checkers: `if TYPE_CHECKING: import ToolContext`.
_CONTEXT_TEXT = compile_lazily(r"(Optional\[)?([\w.]+\.)?ToolContext(\[.*\])?\]?(\s*\|\s*None)?")


# How the function is called: positional arguments, and those by name.
CallArguments = tuple[tuple[Any, ...], dict[str, Any]]


class Parameters:
    """`context` is the parameter that gets the ToolContext, `deps_type` the D of ToolContext[D]."""

    def __init__(
        self, function: Callable[..., Any], notes: Mapping[str, str], *, is_method: bool
    ) -> None:
        self.context: str | None = None
        self.deps_type: Any = None
        self._defaults: dict[str, Callable[[], Any]] = {}
        self._name = find_name(function)
        inner, bound = unwrap(function)
        hints = _read_hints(inner, self._name)
        fields: list[JsonField] = []
        signature = list(_read_signature(function, self._name).parameters.values())
        signature = [one for one in signature[1 if is_method else 0 :] if one.name not in bound]
        self._check_first(signature)
        self._positional = [one for one in signature if one.kind is one.POSITIONAL_ONLY]
        for parameter in signature:
            hint = hints.get(parameter.name, Any)
            if is_context(hint):
                self._set_context(parameter.name, hint)
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
                raise self._error(f"{stars}{parameter.name} has no schema; name each parameter")
            fields.append(self._make_field(parameter, hint, notes.get(parameter.name, "")))
        try:
            self._fields = JsonFields(fields)
        except TypeError as error:
            raise self._find_bad_field(fields, error) from error
        self.schema = self._fields.schema
        self._last_checked: tuple[Arguments, dict[str, Any]] | None = None

    def check(self, arguments: Arguments) -> None:
        """Raise Mismatch if the arguments do not fit."""
        self._last_checked = (arguments, self._fields.convert(arguments))

    def bind(self, arguments: Arguments, context: ToolContext[Any]) -> CallArguments:
        """The call; arguments that were just checked are not converted again."""
        last, self._last_checked = self._last_checked, None
        is_checked = last is not None and last[0] is arguments
        values = last[1] if last is not None and is_checked else self._fields.convert(arguments)
        if self._defaults:
            values = {**{name: make() for name, make in self._defaults.items()}, **values}
        if self.context is not None:
            values[self.context] = context
        if not self._positional:
            return (), values
        return tuple([values.pop(one.name, one.default) for one in self._positional]), values

    def _check_first(self, signature: Sequence[inspect.Parameter]) -> None:
        """A first parameter `ctx` without a type is meant for the engine, not for the model."""
        first = signature[0] if signature else None
        if first is not None and first.annotation is first.empty and first.name in CONTEXT_NAMES:
            raise self._error(
                f"{first.name} has no type; write {first.name}: ToolContext, or its type if the "
                "model gives it"
            )

    def _set_context(self, name: str, hint: Any) -> None:
        if self.context is not None:
            raise self._error(f"{self.context} and {name} are both a ToolContext; keep one")
        self.context = name
        self.deps_type = _find_deps_type(hint)

    def _make_field(self, parameter: inspect.Parameter, hint: Any, note: str) -> JsonField:
        default: Any = parameter.default
        is_required = default is parameter.empty
        fields = [one for one in get_args(hint)[1:] if is_pydantic_field(one)]
        if is_pydantic_field(default):  # `size: int = Field(ge=1)`
            hint, fields, is_required = Annotated[hint, default], [default], True
        for field in fields if is_required else ():
            make = get_field_default(field)
            if make is not NO_DEFAULT:
                self._defaults[parameter.name] = make
                is_required, default = False, make()
        if note:
            # The outer description counts; one of the annotation itself stays.
            hint = _describe(hint, note)
        return JsonField(parameter.name, hint, is_required, default)

    def _find_bad_field(self, fields: Sequence[JsonField], error: TypeError) -> ConfigError:
        """The error for the first parameter whose type has no schema."""
        for field in fields:
            try:
                JsonFields([field])
            except TypeError as problem:
                return self._error(f"{field.name} has no schema: {problem}")
        return self._error(str(error))

    def _error(self, problem: str) -> ConfigError:
        return ConfigError(f"tool {self._name!r}: {problem}")


def unwrap(function: Callable[..., Any]) -> tuple[Callable[..., Any], frozenset[str]]:
    """The function that a partial or an object with `__call__` stands for, and the parameters that
    a partial has set by name."""
    bound: frozenset[str] = frozenset()
    inner: Any = function
    if isinstance(function, partial):
        inner, bound = function.func, frozenset(function.keywords)
    while not inspect.isroutine(inner) and hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__  # a tool
    return inner if inspect.isroutine(inner) else inner.__call__, bound


def find_name(function: Callable[..., Any]) -> str:
    named = function.func if isinstance(function, partial) else function
    name: str = getattr(named, "__name__", type(named).__name__)
    return name


def is_unbound_method(function: Callable[..., Any]) -> bool:
    """Whether the function stands in a class: its first parameter is `self` or `cls`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (
        isinstance(function, types.FunctionType)
        and code is not None
        and code.co_argcount > 0
        and code.co_varnames[0] in METHOD_NAMES
    )


def is_context(hint: Any) -> bool:
    """Whether an annotation is ToolContext: with or without its deps, optional, or annotated."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, types.UnionType):
        options = [one for one in get_args(hint) if one is not type(None)]
        return len(options) == 1 and is_context(options[0])
    if getattr(get_origin(hint) or hint, "__name__", "") == "RunContext":
        raise ConfigError("a tool gets a ToolContext; RunContext is for instructions")
    return hint is ToolContext or get_origin(hint) is ToolContext


def _find_deps_type(hint: Any) -> Any:
    if get_origin(hint) is ToolContext:
        deps = get_args(hint)[0]
        return None if deps is type(None) else deps
    parts = [one for one in get_args(hint) if is_context(one)]
    return _find_deps_type(parts[0]) if parts else None


def _describe(hint: Any, note: str) -> Any:
    metadata = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    base = get_args(hint)[0] if metadata else hint
    return Annotated[(base, note, *metadata)]


def _read_signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:
        problem = "its parameters cannot be read; write a function that calls it"
        raise ConfigError(f"tool {name!r}: {problem}") from error


# ------------------------------------------------------------------ annotations


def _read_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError):
        pass  # a type that is local, or that only type checkers import
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    hints = getattr(function, "__annotations__", {})
    return {
        parameter: _resolve(hint, scope, name, parameter)
        for parameter, hint in hints.items()
        if parameter != "return"
    }


def _resolve(hint: Any, scope: dict[str, Any], name: str, parameter: str) -> Any:
    """An annotation that may be a text; one may name a local type of a function that is running."""
    holder = types.SimpleNamespace(__annotations__={parameter: hint})
    for names in ({}, *_local_scopes(scope)):
        try:
            return get_type_hints(holder, scope, names, include_extras=True)[parameter]
        except (NameError, AttributeError):
            continue
        except (TypeError, SyntaxError) as error:
            raise ConfigError(f"tool {name!r}: {parameter} has no type: {error}") from error
    if isinstance(hint, str) and _CONTEXT_TEXT.fullmatch(hint.strip()):
        return ToolContext
    raise ConfigError(
        f"tool {name!r}: the type of {parameter}, {hint!r}, cannot be found; "
        "define or import it at the top of the module"
    )


def _local_scopes(scope: dict[str, Any]) -> list[dict[str, Any]]:
    """The local names of the functions of a module that are running, the innermost first."""
    frame: types.FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        if frame.f_globals is scope and frame.f_locals is not scope:
            found.append(dict(frame.f_locals))
        frame = frame.f_back
    return found


# ------------------------------------------------------------------ docstrings

_ARGS_HEADING = compile_lazily(r"^(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ARG_LINE = compile_lazily(r"^\s{1,8}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The description, and a note for each parameter of an "Args:" section."""
    text = inspect.cleandoc(text)
    heading = _ARGS_HEADING.search(text)
    if heading is None:
        return text, {}
    notes: dict[str, str] = {}
    name = ""
    for line in text[heading.end() :].splitlines():
        start = _ARG_LINE.match(line)
        if start:
            name = start.group(1)
            notes[name] = start.group(2).strip()
        elif line and not line.startswith(" "):
            break  # the next section
        elif name and line.strip():
            notes[name] = f"{notes[name]} {line.strip()}".strip()
    return text[: heading.start()].strip(), notes
