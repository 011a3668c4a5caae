"""The type variables of the public API: what a run depends on, what it answers, what a hook gets.

`Agent[Shop, Order]` gives `Shop` to its tools as `context.deps` and answers with an `Order`.
`HookInput[PreToolUseData]` is the input of a hook at one point.

    DepsT, OutputT  of an agent, and of what it runs
    ContextDepsT    of what a function is given: ToolContext, RunContext, HookInput, …
    PartDepsT       of what an agent is made of: a tool, a hook, a policy. Any: it fits every agent

An agent for a `Person` serves runs with a `Customer`, who is one; so does a tool. Type checkers
know the defaults; at run time there are none before Python 3.13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import typing_extensions

    DepsT = typing_extensions.TypeVar("DepsT", contravariant=True, default=None)
    OutputT = typing_extensions.TypeVar("OutputT", default=str)
    HookDataT = typing_extensions.TypeVar("HookDataT", covariant=True, default=Any)
    ContextDepsT = typing_extensions.TypeVar("ContextDepsT", covariant=True, default=object)
    PartDepsT = typing_extensions.TypeVar("PartDepsT", contravariant=True, default=Any)
else:
    DepsT = TypeVar("DepsT", contravariant=True)
    OutputT = TypeVar("OutputT")
    HookDataT = TypeVar("HookDataT", covariant=True)
    ContextDepsT = TypeVar("ContextDepsT", covariant=True)
    PartDepsT = TypeVar("PartDepsT", contravariant=True)


def fill_parameters(given: object, *defaults: object) -> tuple[object, ...]:
    """What a class with these defaults is subscripted with: `Agent[Shop]` is `Agent[Shop, str]`."""
    types = given if isinstance(given, tuple) else (given,)
    return (*types, *defaults[len(types) :])
