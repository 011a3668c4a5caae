"""A typed function as a tool: `@tool`.

The schema comes from the annotations, the description from the docstring (also a Google-style
"Args:" section for the parameters). Arguments are checked and converted by msgspec before the
call; a pydantic model as a parameter works too, without pydantic being imported here.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar, get_type_hints, overload

import msgspec

from treadle.core.contracts.tool import (
    DEFAULT_RESULT_CHARS,
    Access,
    BaseTool,
    ProbeResult,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ConfigError, ToolError
from treadle.core.lazy_regex import compile_lazily
from treadle.core.transcript.content import Arguments, Document, Image, Text
from treadle.core.transcript.entries import EffectClass
from treadle.tools.function_thread import make_thread_context, run_in_thread

AccessFunction = Callable[[Arguments], Access]
F = TypeVar("F", bound=Callable[..., Any])

# What a one-line summary shows, in this order of preference.
SUMMARY_KEYS = ("command", "path", "file_path", "pattern", "url", "query", "question")
SUMMARY_CHARS = 80
PARTS = (Text, Image, Document)


class FunctionTool(BaseTool):
    """A function as a Tool. Calling it calls the function."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: EffectClass = "irreversible",
        concurrent: bool | None = None,
        timeout: float | None = None,
        max_result_chars: int = DEFAULT_RESULT_CHARS,
        detachable: bool | None = None,
        detach_after: float | None = None,
        access: AccessFunction | None = None,
        check: Callable[[Arguments], str | None] | None = None,
        probe: Callable[..., Awaitable[ProbeResult]] | None = None,
        evidence: Callable[..., Awaitable[dict[str, Any]]] | None = None,
    ) -> None:
        if isinstance(function, type):
            raise ConfigError(f"{function.__name__} is a class; a tool is a function or an object")
        self.function = function
        inner, bound = _unwrap(function)
        self.__doc__ = function.__doc__ if inner is function else _get_own_doc(function, inner)
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise ConfigError(
                f"tool {name or inner.__name__!r} is a generator; let it return its result, and "
                "report progress with `report_progress` of a ToolContext parameter"
            )
        self._is_async = inspect.iscoroutinefunction(inner)
        self._parameters = _Parameters(function, inner, bound)
        docstring, notes = _read_docstring(self.__doc__ or "")
        self._access, self._check, self._probe, self._evidence = access, check, probe, evidence
        self._spec = ToolSpec(
            name=name or self._parameters.name,
            description=description if description is not None else docstring,
            schema=self._parameters.make_schema(notes),
            effect=effect,
            concurrent=effect == "pure" if concurrent is None else concurrent,
            timeout=timeout,
            max_result_chars=max_result_chars,
            detachable=detach_after is not None if detachable is None else detachable,
            detach_after=detach_after,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        try:
            self._parameters.check(arguments)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            return f"invalid arguments for {self._spec.name}: {error}"
        return self._check(arguments) if self._check is not None else None

    def summary(self, arguments: Arguments) -> str:
        return summarize_call(self._spec.name, arguments)

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return self._access(arguments) if self._access is not None else Access()

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        values = self._parameters.convert(arguments)
        parameter = self._parameters.context
        if self._is_async:
            if parameter is not None:
                values[parameter] = context
            value = await self.function(**values)
            return as_output(await value if inspect.isawaitable(value) else value)
        # A plain function may block, so it runs in a thread.
        cancelled = threading.Event()
        if parameter is not None:
            values[parameter] = make_thread_context(context, cancelled)
        value = await run_in_thread(partial(self.function, **values), cancelled)
        return as_output(await value if inspect.isawaitable(value) else value)

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return await self._evidence(arguments, context) if self._evidence is not None else {}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        if self._probe is None:
            return ProbeResult("unknown", f"{self._spec.name} cannot be checked afterwards")
        return await self._probe(arguments, evidence, context)


@overload
def tool(function: Callable[..., Any], /, **options: Any) -> FunctionTool: ...
@overload
def tool(**options: Any) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Any
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function: `@tool`, `@tool(effect="pure")`, or `tool(function, name=…)`."""
    if function is not None:
        return FunctionTool(function, **options)
    return lambda decorated: FunctionTool(decorated, **options)


def summarize_call(name: str, arguments: Arguments) -> str:
    """Such as `[bash: ls -la]`: the most informative argument, on one line."""
    key = next((key for key in SUMMARY_KEYS if key in arguments), None)
    value = arguments.get(key) if key is not None else next(iter(arguments.values()), None)
    if value is None:
        return f"[{name}]"
    text = " ".join(str(value).split())
    return f"[{name}: {text[:SUMMARY_CHARS]}{'…' if len(text) > SUMMARY_CHARS else ''}]"


def as_output(value: object) -> ToolOutput:
    """The return value of a function as an output for the model. ToolError if it cannot be one."""
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, str):
        return ToolOutput(value)
    if value is None:
        return ToolOutput("done")
    if isinstance(value, (Text, Image, Document)):
        return ToolOutput((value,))
    if isinstance(value, (list, tuple)) and any(isinstance(part, PARTS) for part in value):
        return ToolOutput(tuple([_to_part(part) for part in value]))
    return ToolOutput(_to_json(value))


def _to_part(value: object) -> Text | Image | Document:
    if isinstance(value, PARTS):
        return value
    return Text(value if isinstance(value, str) else _to_json(value))


def _to_json(value: object) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=_to_json_value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(
            f"the tool ran, but its result ({type(value).__name__}) cannot be shown: {error}. "
            "It must return text, JSON values, images or documents"
        ) from error


def _to_json_value(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if type(value).__str__ is object.__str__:
        raise TypeError(f"{type(value).__name__} has no text of its own")
    return str(value)


class _Parameters:
    """The parameters of a function: their schema, and how arguments become values."""

    def __init__(
        self, function: Callable[..., Any], inner: Callable[..., Any], bound: frozenset[str]
    ) -> None:
        self.context: str | None = None
        named = function.func if isinstance(function, partial) else function
        self.name: str = getattr(named, "__name__", type(named).__name__)
        hints = _read_hints(inner)
        fields: list[Any] = []
        self._models: dict[str, Any] = {}
        for parameter in _read_signature(function, self.name).parameters.values():
            if parameter.name in bound:
                continue
            hint = hints.get(parameter.name, Any)
            if hint is ToolContext:
                self.context = parameter.name
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                problem = f"*{parameter.name} has no schema; name each parameter"
                raise ConfigError(f"tool {self.name!r}: {problem}")
            if hasattr(hint, "model_json_schema"):
                self._models[parameter.name] = hint
                hint = dict[str, Any]
            field: tuple[Any, ...] = (parameter.name, hint)
            if parameter.default is not parameter.empty:
                field = (*field, _struct_default(parameter.default))
            fields.append(field)
        self._struct = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
        self._fields = self._struct.__struct_fields__
        self._last_checked: tuple[Arguments, dict[str, Any]] | None = None

    def check(self, arguments: Arguments) -> None:
        self._last_checked = (arguments, self._convert(arguments))

    def convert(self, arguments: Arguments) -> dict[str, Any]:
        """The values for the call; arguments that were just checked are not converted again."""
        last, self._last_checked = self._last_checked, None
        if last is not None and last[0] is arguments:
            return last[1]
        return self._convert(arguments)

    def _convert(self, arguments: Arguments) -> dict[str, Any]:
        value = msgspec.convert(arguments, self._struct)
        values = {name: getattr(value, name) for name in self._fields}
        for name, model in self._models.items():
            if isinstance(values[name], dict):
                values[name] = model.model_validate(values[name])
        return values

    def make_schema(self, descriptions: Mapping[str, str]) -> dict[str, Any]:
        try:
            template = "#/$defs/{name}"
            (whole,), parts = msgspec.json.schema_components([self._struct], ref_template=template)
        except TypeError as error:
            raise ConfigError(f"tool {self.name!r}: a parameter has no schema: {error}") from error
        schema = dict(parts.pop("Arguments", whole))
        schema.pop("title", None)
        properties = schema.setdefault("properties", {})
        for name, model in self._models.items():
            properties[name] = dict(model.model_json_schema())
            parts.update(properties[name].pop("$defs", {}))  # references start at the root
        for name, note in descriptions.items():
            if name in properties:
                properties[name] = {**properties[name], "description": note}
        schema.setdefault("required", [])
        schema["additionalProperties"] = False
        if parts:
            schema["$defs"] = parts
        return schema


def _unwrap(function: Callable[..., Any]) -> tuple[Callable[..., Any], frozenset[str]]:
    """The function that a partial or an object with `__call__` stands for, and the parameters that
    a partial has set by name."""
    bound: frozenset[str] = frozenset()
    inner: Any = function
    if isinstance(function, partial):
        inner, bound = function.func, frozenset(function.keywords)
    return inner if inspect.isroutine(inner) else inner.__call__, bound


def _get_own_doc(function: Callable[..., Any], inner: Callable[..., Any]) -> str | None:
    """The docstring of what is wrapped: that of `partial` itself describes partial."""
    named = function.func if isinstance(function, partial) else function
    return named.__doc__ or inner.__doc__


def _read_signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError as error:
        problem = "its parameters cannot be read; write a function that calls it"
        raise ConfigError(f"tool {name!r}: {problem}") from error


def _read_hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError:
        # String annotations of types local to the enclosing function cannot be resolved.
        hints = getattr(function, "__annotations__", {})
        return {name: hint for name, hint in hints.items() if not isinstance(hint, str)}


def _struct_default(value: Any) -> Any:
    if isinstance(value, (list, dict, set)):
        return msgspec.field(default_factory=lambda: type(value)(value))
    return value


_ARGS_HEADING = compile_lazily(r"^(?:Args|Arguments|Parameters):\s*$", re.MULTILINE)
_ARG_LINE = compile_lazily(r"^\s{1,8}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
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
