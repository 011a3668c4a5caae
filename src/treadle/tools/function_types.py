"""The types of functions that become tools, for type checkers. Imported by no program.

A function may take its `ToolContext[Shop]` at any of its first five positions. No single type says
so, but an object with an overloaded call does: the first overload has the parameters of the
function, the second what it depends on. So a tool knows its `deps`, and is called as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from treadle.core.contracts.tool import ToolContext
from treadle.core.type_variables import PartDepsT

if TYPE_CHECKING:
    import typing_extensions

    # With defaults, so that `list[FunctionTool]` is a complete type.
    P = typing_extensions.ParamSpec("P", default=...)
    R = typing_extensions.TypeVar("R", default=Any)
    R_co = typing_extensions.TypeVar("R_co", covariant=True, default=Any)
else:
    P, R_co = ParamSpec("P"), TypeVar("R_co", covariant=True)


class PlainFunction(Protocol):
    """Any callable but a tool: `FunctionTool.__reduce__` does not fit."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __reduce__(self) -> str | tuple[Any, ...]: ...


class ContextFirst(Protocol[P, R_co, PartDepsT]):
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(self, context: ToolContext[PartDepsT], /, *args: Any, **kwargs: Any) -> Any: ...


class ContextSecond(Protocol[P, R_co, PartDepsT]):
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self, a: Any, context: ToolContext[PartDepsT], /, *args: Any, **kwargs: Any
    ) -> Any: ...


class ContextThird(Protocol[P, R_co, PartDepsT]):
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self, a: Any, b: Any, context: ToolContext[PartDepsT], /, *args: Any, **kwargs: Any
    ) -> Any: ...


class ContextFourth(Protocol[P, R_co, PartDepsT]):
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self, a: Any, b: Any, c: Any, context: ToolContext[PartDepsT], /, *args: Any, **kwargs: Any
    ) -> Any: ...


class ContextFifth(Protocol[P, R_co, PartDepsT]):
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        context: ToolContext[PartDepsT],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Any: ...
