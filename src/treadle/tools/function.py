"""A typed function as a tool: `@tool`.

The schema comes from the annotations, the description from the docstring (parameters.py). Arguments
are checked and converted before the call. The decorated function can be called as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

import msgspec

from treadle.core.contracts.tool import (
    DEFAULT_RESULT_CHARS,
    Access,
    BaseTool,
    Preview,
    ProbeResult,
    ToolContext,
    ToolOutput,
    ToolSpec,
    UndoAnswer,
)
from treadle.core.errors import ConfigError, ToolError
from treadle.core.transcript.content import Arguments, Document, Image, Text
from treadle.core.transcript.items import ToolResultItem
from treadle.core.type_variables import PartDepsT
from treadle.tools.call_summary import describe_call
from treadle.tools.tool_options import check_effect, check_name, check_options

if TYPE_CHECKING:
    from treadle.tools.function_types import (
        ContextFifth,
        ContextFirst,
        ContextFourth,
        ContextSecond,
        ContextThird,
        P,
        R,
    )
    from treadle.tools.option_types import ToolOptions
else:
    P = ParamSpec("P")
    R = TypeVar("R")
Q = ParamSpec("Q")

# What a one-line summary shows, in this order of preference.
PARTS = (Text, Image, Document)


class FunctionTool(BaseTool[PartDepsT], Generic[P, R, PartDepsT]):
    """A function as a Tool. Calling it calls the function, with the function's own parameters.

    In a class it is a method: `shop.book` is the tool of that shop. `deps_type` is the D of a
    parameter of type `ToolContext[D]`, None without one.
    """

    if TYPE_CHECKING:  # so that a checker does not take it for a PlainFunction
        __reduce__: None  # type: ignore[assignment]

    def __init__(self, function: Callable[P, R], **options: Unpack[ToolOptions]) -> None:
        from treadle.tools.parameters import (
            Parameters,
            find_name,
            is_unbound_method,
            read_docstring,
        )

        check_options(options)
        self._binds_class = isinstance(function, classmethod)
        if isinstance(function, (staticmethod, classmethod)):
            function = function.__func__
        if isinstance(function, FunctionTool):  # the same function with other options
            options = _merge_options(function.options, options)
            function = function.function
        check_effect(options)
        self.function: Callable[P, R] = function
        self.options: ToolOptions = options
        inner = _check_function(function)
        name = options.get("name")
        name = find_name(function) if name is None else name
        check_name(name)
        self._imitate(function, inner)
        self._is_async = inspect.iscoroutinefunction(inner)
        self._is_unbound = is_unbound_method(function)
        docstring, notes = read_docstring(self.__doc__ or "")
        self._parameters = Parameters(function, notes, is_method=self._is_unbound)
        description = options.get("description")
        self._spec = _make_spec(
            name,
            docstring if description is None else description,
            self._parameters.schema,
            options,
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, Q], R, PartDepsT],
        instance: object,
        owner: type | None = None,
        /,
    ) -> FunctionTool[Q, R, PartDepsT]: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> FunctionTool[Any, R, Any]:
        target = owner if self._binds_class else instance
        if target is None or not self._is_unbound:
            return self
        from copy import copy

        bound: FunctionTool[Any, R, Any] = copy(self)
        bound.function = self.function.__get__(target, owner)
        bound.__wrapped__ = bound.function
        bound._is_unbound = False
        return bound

    @property
    def spec(self) -> ToolSpec:
        if self._is_unbound:
            raise ConfigError(
                f"{self.__qualname__} is a method without its object; make an object, and give "
                f"the agent its method: object.{self.__name__}"
            )
        return self._spec

    @property
    def deps_type(self) -> Any:
        return self._parameters.deps_type

    def check(self, arguments: Arguments) -> str | None:
        try:
            self._parameters.check(arguments)
        except ValueError as error:  # a Mismatch, or a check of the caller's own class
            return f"invalid arguments for {self._spec.name}: {error}"
        further = self.options.get("check")
        return further(arguments) if further is not None else None

    def summary(self, arguments: Arguments) -> str:
        return describe_call(self._spec.name, arguments)

    async def preview(
        self, arguments: Arguments, context: ToolContext[PartDepsT]
    ) -> Preview | None:
        make = self.options.get("preview")
        made = make(arguments) if make is not None else None
        shown = await made if inspect.isawaitable(made) else made
        if shown is None or isinstance(shown, Preview):
            return shown
        if not isinstance(shown, str):
            raise TypeError(f"`preview` returned {shown!r:.80}, not a text or a Preview")
        return Preview("text", shown)

    def access(self, arguments: Arguments, session_id: str) -> Access:
        declared = self.options.get("access")
        return declared(arguments) if declared is not None else Access()

    async def call(self, arguments: Arguments, context: ToolContext[PartDepsT]) -> ToolOutput:
        return as_output(await self.call_function(arguments, context))

    async def call_function(self, arguments: Arguments, context: ToolContext[PartDepsT]) -> Any:
        """What the function returns for these arguments of a model."""
        if self._is_async:
            positional, named = self._parameters.bind(arguments, context)
            value = await self.function(*positional, **named)  # type: ignore[misc]  # async
        else:
            value = await self._call_in_thread(arguments, context)
        # A coroutine that the function forgot to await is awaited.
        return await value if hasattr(value, "__await__") else value

    async def _call_in_thread(self, arguments: Arguments, context: ToolContext[Any]) -> Any:
        """A plain function may block, so it runs in a thread."""
        from treadle.lib.function_thread import run_in_thread

        on_cancel: Callable[[], None] | None = None
        if self._parameters.context is not None:
            cancelled = threading.Event()
            on_cancel, context = cancelled.set, _make_thread_context(context, cancelled)
        positional, named = self._parameters.bind(arguments, context)
        return await run_in_thread(partial(self.function, *positional, **named), on_cancel)

    def undo(self, arguments: Arguments, result: ToolResultItem) -> UndoAnswer:
        undo = self.options.get("undo")
        return undo(arguments, result) if undo is not None else None

    async def evidence(
        self, arguments: Arguments, context: ToolContext[PartDepsT]
    ) -> dict[str, Any]:
        take = self.options.get("evidence")
        return await take(arguments, context) if take is not None else {}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext[PartDepsT]
    ) -> ProbeResult:
        probe = self.options.get("probe")
        if probe is None:
            return ProbeResult("unknown", f"{self._spec.name} cannot be checked afterwards")
        return await probe(arguments, evidence, context)

    def _imitate(self, function: Callable[..., Any], inner: Callable[..., Any]) -> None:
        """Look like the function: for help(), inspect.signature() and other decorators."""
        named: Any = function.func if isinstance(function, partial) else function
        self.__name__: str = getattr(named, "__name__", type(named).__name__)
        self.__qualname__: str = getattr(named, "__qualname__", self.__name__)
        self.__module__ = getattr(named, "__module__", __name__)
        # The docstring of `partial` itself describes partial.
        self.__doc__ = named.__doc__ or inner.__doc__
        self.__wrapped__ = function


def _merge_options(before: ToolOptions, new: ToolOptions) -> ToolOptions:
    return cast("ToolOptions", {**before, **new})


def _check_function(function: object) -> Callable[..., Any]:
    """The function itself, without what wraps it; ConfigError if it cannot be a tool."""
    from treadle.tools.parameters import unwrap

    if isinstance(function, type):
        raise ConfigError(f"{function.__name__} is a class; a tool is a function or an object")
    if not callable(function):
        raise ConfigError(f"{function!r:.80} cannot be a tool; expected a function")
    inner, _ = unwrap(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(
            f"tool {inner.__name__!r} is a generator; let it return its result, and "
            "report progress with `report_progress` of a ToolContext parameter"
        )
    return inner


def _make_spec(
    name: str, description: str, schema: dict[str, Any], options: ToolOptions
) -> ToolSpec:
    effect = options.get("effect", "irreversible")
    concurrent, detachable = options.get("concurrent"), options.get("detachable")
    detach_after = options.get("detach_after")
    return ToolSpec(
        name=name,
        description=description,
        schema=schema,
        effect=effect,
        concurrent=effect == "pure" if concurrent is None else concurrent,
        timeout=options.get("timeout"),
        max_result_chars=options.get("max_result_chars", DEFAULT_RESULT_CHARS),
        detachable=detach_after is not None if detachable is None else detachable,
        detach_after=detach_after,
        needs_approval=options.get("approval", False),
        kind=options.get("kind", "other"),
    )


def _make_thread_context(context: ToolContext, cancelled: threading.Event) -> ToolContext:
    """A context for another thread: what it reports is handled by the event loop, in order."""
    loop = asyncio.get_running_loop()

    def on_loop(handle: Callable[..., None]) -> Callable[..., None]:
        def forward(*details: object) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(handle, *details)

        return forward

    return msgspec.structs.replace(
        context,
        report_progress=on_loop(context.report_progress),
        detach=on_loop(context.detach),
        relay_event=on_loop(context.relay_event),
        is_cancelled=cancelled.is_set,
    )


if TYPE_CHECKING:

    class ToolDecorator(Protocol):
        """`@tool(effect="pure")`; the overloads are those of `tool` itself."""

        @overload
        def __call__(
            self, function: ContextFifth[P, R, PartDepsT], /
        ) -> FunctionTool[P, R, PartDepsT]: ...
        @overload
        def __call__(
            self, function: ContextFourth[P, R, PartDepsT], /
        ) -> FunctionTool[P, R, PartDepsT]: ...
        @overload
        def __call__(
            self, function: ContextThird[P, R, PartDepsT], /
        ) -> FunctionTool[P, R, PartDepsT]: ...
        @overload
        def __call__(
            self, function: ContextSecond[P, R, PartDepsT], /
        ) -> FunctionTool[P, R, PartDepsT]: ...
        @overload
        def __call__(
            self, function: ContextFirst[P, R, PartDepsT], /
        ) -> FunctionTool[P, R, PartDepsT]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    function: classmethod[Any, P, R], /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R]: ...
@overload
def tool(
    function: ContextFifth[P, R, PartDepsT], /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R, PartDepsT]: ...
@overload
def tool(
    function: ContextFourth[P, R, PartDepsT], /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R, PartDepsT]: ...
@overload
def tool(
    function: ContextThird[P, R, PartDepsT], /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R, PartDepsT]: ...
@overload
def tool(
    function: ContextSecond[P, R, PartDepsT], /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R, PartDepsT]: ...
@overload
def tool(
    function: ContextFirst[P, R, PartDepsT], /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R, PartDepsT]: ...
@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> ToolDecorator: ...
def tool(function: Any = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Make a tool of a function: `@tool`, `@tool(effect="pure")`, or `tool(function, name=…)`.

    The options are those of `ToolOptions`.
    """
    if function is not None:
        return FunctionTool(function, **options)
    check_options(options)
    return lambda decorated: FunctionTool(decorated, **options)


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
        return msgspec.json.encode(value, enc_hook=to_json_value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(
            f"the tool ran, but its result ({type(value).__name__}) cannot be shown: {error}. "
            "It must return text, JSON values, images or documents"
        ) from error


def to_json_value(value: object) -> object:
    """What stands for an object that msgspec does not know, as `enc_hook`."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if type(value).__str__ is object.__str__:
        raise TypeError(f"{type(value).__name__} has no text of its own")
    return str(value)
