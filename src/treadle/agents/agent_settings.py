"""The settings of an agent: their types, and what is checked when an agent is made.

A wrong setting is an error at construction that names the setting, what was given and what is
expected. Used by agent.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast, get_args

from treadle.agents.agent_files import AgentDefinition
from treadle.agents.subagents import OpenStore, PrepareChild
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook, HookPoint
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.mutator import MutationPoint, Mutator
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.task_manager import MakeTaskManager
from treadle.core.contracts.tool import Tool
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import ConfigError
from treadle.core.events import Caller
from treadle.core.loop.config import Clock, MakeInstructions, RunContext
from treadle.core.loop.recovery import Retry
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.text import suggest
from treadle.tools.federation import CollisionPolicy, StaticSource
from treadle.tools.function import FunctionTool

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput
    from treadle.core.loop.driver import Driver
    from treadle.sessions.open_store import StoreLocation

ToolLike = Tool | ToolSource | Callable[..., Any]
InstructionsLike = (
    str | Callable[[], str | Awaitable[str]] | Callable[[RunContext[Any]], str | Awaitable[str]]
)
ApproverAnswer = bool | Approval | Denial | None
Approver = Callable[[PendingApproval], ApproverAnswer | Awaitable[ApproverAnswer]]


class AgentSettings(TypedDict, total=False):
    """The settings of an agent that are given by name; docs/library.md describes each."""

    name: str
    instructions: InstructionsLike
    max_turns: int
    policy: Policy | None
    approve: Approver | None
    hooks: Sequence[Hook]
    mutators: Sequence[Mutator]
    gates: Sequence[Gate]
    observers: Sequence[Observer]
    workspace: Workspace | None
    options: ModelOptions | None
    cache: CacheRequest | None
    retry: Retry | None
    collision: CollisionPolicy
    store: StoreLocation | None
    services: dict[str, Any] | None
    max_result_chars: int
    max_parallel: int
    tool_timeout: float | None
    keep_output: Callable[[str, str], str] | None
    clock: Clock | None
    subagents: Sequence[AgentDefinition] | None
    open_store: OpenStore | None
    prepare_child: PrepareChild | None
    worktrees: bool
    depth: int
    role: str
    caller: Caller
    task_manager: MakeTaskManager | None
    structured_output: StructuredOutput | None
    on_start: Callable[[Driver], None] | None  # called with each driver that the agent starts


class AgentChanges(AgentSettings, total=False):
    """What `replace` can change: the settings, and what is given first."""

    model: str | Model
    tools: Sequence[ToolLike]
    deps_type: object
    output_type: object


def check_settings(settings: Mapping[str, Any]) -> None:
    """ConfigError for the first setting that is wrong."""
    model = settings["model"]
    if not isinstance(model, str) and not (hasattr(model, "stream") and hasattr(model, "card")):
        raise _wrong("model", model, 'a name such as "anthropic/claude-sonnet-4-5" or a Model')
    tools = settings["tools"]
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise _wrong("tools", tools, "a list of tools, functions and sources of tools")
    for name, method in _LISTS.items():
        _check_list(name, settings[name], method)
    for hook in settings["hooks"]:
        points = getattr(hook, "points", None)
        if not isinstance(points, (set, frozenset)) or not points <= _POINTS:
            known = ", ".join(get_args(HookPoint))
            raise ConfigError(f"hooks: the points of {hook!r} are {points!r}; expected of {known}")
    for name, least in _NUMBERS.items():
        _check_number(name, settings[name], least)
    timeout = settings["tool_timeout"]
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):
        raise _wrong("tool_timeout", timeout, "a number above 0, or None for no limit")
    for name, method in _OBJECTS.items():
        given = settings[name]
        if given is not None and (isinstance(given, type) or not hasattr(given, method)):
            raise _wrong(name, given, f"an object with the method {method}()")
    if not isinstance(settings["name"], str):
        raise _wrong("name", settings["name"], "a text")
    kinds = (("options", ModelOptions), ("cache", CacheRequest), ("retry", Retry))
    for name, kind in kinds:
        if settings[name] is not None and not isinstance(settings[name], kind):
            raise _wrong(name, settings[name], f"a {kind.__name__}")
    for name in (
        "approve",
        "keep_output",
        "open_store",
        "prepare_child",
        "task_manager",
        "on_start",
    ):
        if settings[name] is not None and not callable(settings[name]):
            raise _wrong(name, settings[name], "a function")
    instructions = settings["instructions"]
    if not isinstance(instructions, str) and not callable(instructions):
        raise _wrong("instructions", instructions, "a text, or a function that returns one")


# An object may be a hook and a mutator.
_POINTS = frozenset((*get_args(HookPoint), *get_args(MutationPoint)))
_LISTS = {"hooks": "run", "mutators": "mutate", "gates": "admit", "observers": "on_event"}
_NUMBERS = {"max_turns": 0, "max_parallel": 1, "max_result_chars": 1}
_OBJECTS = {"policy": "decide", "workspace": "resolve", "clock": "now"}


def reject_unknown(changes: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """TypeError for a setting that does not exist."""
    for name in changes:
        if name not in known:
            close = suggest(name, known)
            hint = f"; did you mean {close!r}?" if close else f"; it has {', '.join(sorted(known))}"
            raise TypeError(f"Agent has no setting {name!r}{hint}")


def normalize_instructions(given: InstructionsLike) -> str | MakeInstructions:
    """A function gets the context of the run if it takes a parameter."""
    if isinstance(given, str):
        return given
    try:
        parameters = inspect.signature(given).parameters.values()
    except ValueError:
        return cast(MakeInstructions, given)
    if any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters):
        return cast(MakeInstructions, given)
    without_context = cast(Callable[[], str | Awaitable[str]], given)
    return lambda context: without_context()


def collect_sources(tools: Iterable[ToolLike]) -> list[ToolSource]:
    """Tools and functions grouped into sources, sources unchanged, in the same order."""
    sources: list[ToolSource] = []
    group: list[Tool] = []

    def close_group() -> None:
        if group:
            sources.append(StaticSource(tuple(group)))
            group.clear()

    for tool in tools:
        if isinstance(tool, type):
            raise ConfigError(f"{tool.__name__} is a class; give an object of it, or a function")
        if hasattr(tool, "tools") and hasattr(tool, "open"):
            close_group()
            sources.append(cast(ToolSource, tool))
        elif hasattr(tool, "spec") and hasattr(tool, "call"):
            group.append(cast(Tool, tool))
        elif callable(tool):
            group.append(FunctionTool(tool))
        else:
            raise ConfigError(f"{tool!r} is not a tool, a function or a source of tools")
    close_group()
    return sources


def resolve_model(model: str | Model) -> Model:
    if not isinstance(model, str):
        return model
    from treadle.models.registry import model as get_model

    return get_model(model)


def _check_list(name: str, given: object, method: str) -> None:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise _wrong(name, given, f"a list of objects with the method {method}()")
    for one in given:
        if isinstance(one, type) or not hasattr(one, method):
            raise _wrong(name, one, f"objects with the method {method}()")


def _check_number(name: str, given: object, least: int) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < least:
        raise _wrong(name, given, f"a whole number of {least} or more")


def _wrong(name: str, given: object, expected: str) -> ConfigError:
    return ConfigError(f"{name} is {given!r}; expected {expected}")
