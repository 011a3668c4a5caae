"""The type variables of the public API: what a run depends on, what it answers, what a hook gets.

`Agent[Shop, Order]` gives `Shop` to its tools as `context.deps` and answers with an `Order`.
`HookInput[PreToolUseData]` is the input of a hook at one point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import typing_extensions

    DepsT = typing_extensions.TypeVar("DepsT", default=None)
    OutputT = typing_extensions.TypeVar("OutputT", default=str)
    HookDataT = typing_extensions.TypeVar("HookDataT", covariant=True, default=Any)
else:
    DepsT = TypeVar("DepsT")
    OutputT = TypeVar("OutputT")
    HookDataT = TypeVar("HookDataT", covariant=True)
