"""The settings of an agent: their defaults, their types, and what is checked when it is made.

A wrong setting is an error at construction that names the setting, what was given and what is
expected. Used by agent.py; children get those of their parent, changed (child_settings.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NewType,
    TypedDict,
    TypeGuard,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.run import GATES_EXPECTED, MODEL_EXPECTED, OPTIONS_EXPECTED, CheckOutput
from treadle.budgets import RoundLimit
from treadle.core.argument_checks import (
    DICT,
    FUNCTION,
    PATH,
    TEXT,
    Expected,
    check_all,
    function_of,
    has_methods,
    instance_of,
    list_of,
    number,
    one_of,
    optional,
    whole_number,
)
from treadle.core.contracts.hook import HookPoint
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.mutator import MutationPoint
from treadle.core.contracts.policy import DefaultPolicy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Tool, ToolContext
from treadle.core.errors import ConfigError
from treadle.core.events import Caller
from treadle.core.loop.config import DriverConfig, MakeInstructions, RunContext
from treadle.core.retry import DEFAULT_RETRY, Retry
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.type_variables import DepsT, OutputT
from treadle.lib.clock import RealClock
from treadle.tools.federation import StaticSource

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput
    from treadle.agents.subagents import OpenStore, PrepareChild
    from treadle.core.contracts.gate import Gate
    from treadle.core.contracts.hook import Hook
    from treadle.core.contracts.mutator import Mutator
    from treadle.core.contracts.observer import Observer
    from treadle.core.contracts.policy import Policy
    from treadle.core.contracts.task_manager import MakeTaskManager
    from treadle.core.contracts.workspace import Workspace
    from treadle.core.loop.driver import Driver
    from treadle.lib.clock import Clock
    from treadle.sessions.open_store import StoreLocation
    from treadle.tools.federation import CollisionPolicy
    from treadle.tools.mcp import McpServer

_Make = TypeVar("_Make", bound=Callable[..., None])

_Deps = TypeVar("_Deps")

if TYPE_CHECKING:
    from treadle.tools.function_types import PlainFunction

    ToolLike = Tool[_Deps] | ToolSource[_Deps] | PlainFunction
    InstructionsLike = (
        str
        | Callable[[], str | Awaitable[str]]
        | Callable[[RunContext[_Deps]], str | Awaitable[str]]
    )
ApproverAnswer = bool | Approval | Denial | None
Approver = Callable[[PendingApproval], ApproverAnswer | Awaitable[ApproverAnswer]]


class AgentSettings(msgspec.Struct, frozen=True):
    """All settings of an agent; docs/library.md describes each. Made by `make_settings`."""

    model: str | Model
    tools: Sequence[ToolLike[Any]] = ()
    deps_type: object = NoneType
    output_type: object = str
    check_output: CheckOutput[Any, Any] | None = None
    name: str = ""
    instructions: InstructionsLike[Any] = ""
    max_turns: int = 50
    policy: Policy[Any] | None = None
    approve: Approver | None = None
    hooks: Sequence[Hook[Any]] = ()
    mutators: Sequence[Mutator] = ()
    gates: Sequence[Gate] = ()
    observers: Sequence[Observer] = ()
    workspace: Workspace | None = None
    options: ModelOptions | None = None
    cache: CacheRequest | None = None
    retry: Retry | None = None
    collision: CollisionPolicy = "error"
    store: StoreLocation | None = None
    services: dict[str, Any] | None = None
    max_result_chars: int = 100_000
    max_parallel: int = 16
    tool_timeout: float | None = 600.0
    tool_errors: Literal["report", "raise"] = "report"
    keep_output: Callable[[str, str], str] | None = None
    clock: Clock | None = None
    subagents: Sequence[AgentDefinition] | None = None
    open_store: OpenStore | None = None
    prepare_child: PrepareChild | None = None
    worktrees: bool = False
    code_mode: bool = False
    depth: int = 0
    role: str = ""
    caller: Caller = "library"
    parent_ids: tuple[str, ...] = ()
    task_manager: MakeTaskManager | None = None
    structured_output: StructuredOutput | None = None
    on_start: Callable[[Driver], None] | None = None  # called with each driver that it starts


if TYPE_CHECKING:  # thirty types, which to resolve costs a millisecond

    class AgentArguments(TypedDict, Generic[DepsT, OutputT], total=False):
        """The settings that are given by name, for type checkers."""

        check_output: CheckOutput[OutputT, DepsT] | None
        name: str
        instructions: InstructionsLike[DepsT]
        max_turns: int
        policy: Policy[DepsT] | None
        approve: Approver | None
        hooks: Sequence[Hook[DepsT]]
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
        tool_errors: Literal["report", "raise"]
        keep_output: Callable[[str, str], str] | None
        clock: Clock | None
        subagents: Sequence[AgentDefinition] | None
        open_store: OpenStore | None
        prepare_child: PrepareChild | None
        worktrees: bool
        code_mode: bool
        depth: int
        role: str
        caller: Caller
        parent_ids: tuple[str, ...]
        task_manager: MakeTaskManager | None
        structured_output: StructuredOutput | None
        on_start: Callable[[Driver], None] | None

    class AgentChanges(AgentArguments[DepsT, OutputT], Generic[DepsT, OutputT], total=False):
        """What `replace` can change besides the two types: the settings, and the first two."""

        model: str | Model
        tools: Sequence[ToolLike[DepsT]]


def sign_settings() -> inspect.Signature:
    """The signature of an agent, for `help` and the reference: types stay unresolved."""
    fields, defaults = AgentSettings.__struct_fields__, AgentSettings.__struct_defaults__
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2 + [inspect.Parameter.KEYWORD_ONLY] * 99
    given = [inspect.Parameter.empty, *defaults]
    types = AgentSettings.__annotations__
    return inspect.Signature(
        [
            inspect.Parameter(name, kind, default=default, annotation=types[name])
            for name, kind, default in zip(fields, kinds, given, strict=False)
        ]
    )


def make_settings(given: Mapping[str, Any]) -> AgentSettings:
    """The settings with their defaults. TypeError for one that does not exist, ConfigError for the
    first one that is wrong."""
    for name in given:
        if name not in AgentSettings.__struct_fields__:
            from treadle.agents.foreign_names import unknown_argument

            raise unknown_argument("Agent", name, AgentSettings.__struct_fields__)
    settings = AgentSettings(**given)
    check_all({name: getattr(settings, name) for name in _EXPECTED}, _EXPECTED)
    for hook in settings.hooks:
        points = getattr(hook, "points", None)
        if not isinstance(points, (set, frozenset)) or not points <= _POINTS:
            known = ", ".join(get_args(HookPoint))
            raise ConfigError(f"hooks: the points of {hook!r} are {points!r}; expected of {known}")
    return msgspec.structs.replace(settings, tools=tuple(settings.tools))


def _is_type(value: object) -> bool:
    is_form = get_origin(value) is not None or isinstance(value, (TypeVar, NewType))
    return isinstance(value, type) or is_form or value is Any


# An object may be a hook and a mutator.
_POINTS = frozenset((*get_args(HookPoint), *get_args(MutationPoint)))
_OPTIONAL_FUNCTION = optional(FUNCTION)


STORE_EXPECTED = optional(
    Expected(
        lambda value: PATH.fits(value) or hasattr(value, "append") or callable(value),
        'a folder, a database file such as "sessions.db", a Store, or a function that makes one',
    )
)
_EXPECTED: Mapping[str, Expected] = {
    "model": MODEL_EXPECTED,
    "tools": Expected(
        lambda value: isinstance(value, Iterable) and not isinstance(value, (str, bytes)),
        "a list of tools, functions and sources of tools",
    ),
    "deps_type": Expected(_is_type, "a type: the class of `deps`, not an object of it"),
    "check_output": optional(function_of("answer", "context: RunContext")),
    "name": TEXT,
    "instructions": Expected(
        lambda value: isinstance(value, str) or callable(value),
        "a text, or a function that returns one",
    ),
    "max_turns": whole_number(0),
    "policy": optional(has_methods("decide", "save_rules", base="BasePolicy")),
    "approve": optional(function_of("approval: PendingApproval")),
    "hooks": list_of(
        has_methods("run", base="@hook, which makes one of a function"),
        "objects with the method run()",
    ),
    "mutators": list_of(has_methods("mutate"), "objects with the method mutate()"),
    "gates": GATES_EXPECTED,
    "observers": list_of(
        has_methods("on_event", "on_item", base="BaseObserver", must_be_plain=True),
        "objects with the methods on_event() and on_item()",
    ),
    "workspace": optional(has_methods("resolve")),
    "options": OPTIONS_EXPECTED,
    "cache": optional(instance_of(CacheRequest, "a CacheRequest")),
    "retry": optional(instance_of(Retry, "a Retry")),
    "store": STORE_EXPECTED,
    "services": optional(DICT),
    "max_result_chars": whole_number(1),
    "max_parallel": whole_number(1),
    "tool_timeout": optional(number("a number above 0", lambda value: value > 0)),
    "tool_errors": one_of("report", "raise"),
    "keep_output": _OPTIONAL_FUNCTION,
    "clock": optional(has_methods("now", "random", "sleep")),
    "subagents": optional(
        list_of(instance_of(AgentDefinition, "an AgentDefinition"), "AgentDefinitions")
    ),
    "open_store": _OPTIONAL_FUNCTION,
    "prepare_child": _OPTIONAL_FUNCTION,
    "worktrees": instance_of(bool, "True or False"),
    "code_mode": instance_of(bool, "True or False"),
    "depth": whole_number(0),
    "role": TEXT,
    "caller": one_of(*get_args(Caller)),
    "parent_ids": list_of(TEXT, "session ids"),
    "task_manager": _OPTIONAL_FUNCTION,
    "on_start": _OPTIONAL_FUNCTION,
}


def reject_second_model(make: _Make) -> _Make:
    """TypeError for `Agent("weather", model="gpt-5")`, which says what the first argument is."""

    @functools.wraps(make)
    def check_and_make(self: object, *given: object, **settings: object) -> None:
        if given and "model" in settings:
            hint = f"; a name is name={given[0]!r:.80}" if isinstance(given[0], str) else ""
            raise TypeError(f"Agent got two models: the first argument is the model{hint}")
        make(self, *given, **settings)

    return cast(_Make, check_and_make)


def check_tool_deps(sources: Iterable[ToolSource], deps_type: object) -> None:
    """ConfigError if a function wants deps of another type than the agent has."""
    own = [source for source in sources if type(source) is StaticSource]
    for tool in [tool for source in own for tool in source.tools()]:
        wanted = getattr(tool, "deps_type", None)
        _check_deps_type(f"tool {tool.spec.name!r} takes a ToolContext", wanted, deps_type)


def check_instructions_deps(instructions: InstructionsLike[Any], deps_type: object) -> None:
    """ConfigError if the function takes a RunContext of another type than the agent has, or a
    ToolContext."""
    if isinstance(instructions, str):
        return
    try:
        hints = get_type_hints(instructions)
    except (NameError, TypeError, AttributeError):
        return  # a name that is known to checkers only, or no function
    for hint in [hint for name, hint in hints.items() if name != "return"]:
        if (get_origin(hint) or hint) is ToolContext:
            raise ConfigError("instructions gets a RunContext; ToolContext is for tools")
        if get_origin(hint) is RunContext:
            _check_deps_type("instructions takes a RunContext", get_args(hint)[0], deps_type)


def _check_deps_type(who: str, wanted: object, given: object) -> None:
    if not (is_checkable(wanted) and is_checkable(given)) or issubclass(given, wanted):
        return
    own = "is not set" if given is NoneType else f"is {given.__name__}"
    raise ConfigError(
        f"{who}[{wanted.__name__}], and deps_type of the agent {own}; "
        f"give Agent(deps_type={wanted.__name__})"
    )


def is_checkable(kind: object) -> TypeGuard[type]:
    """Whether `isinstance` can tell: a class, and no Protocol. `Any` is a class, too."""
    is_class = isinstance(kind, type) and kind is not Any
    return is_class and not getattr(kind, "_is_protocol", False)


def normalize_instructions(given: InstructionsLike[Any]) -> str | MakeInstructions:
    """A function gets the context of the run if it takes a parameter."""
    if isinstance(given, str):
        return given
    try:
        signature = inspect.signature(given)
    except ValueError:
        return cast(MakeInstructions, given)
    parameters = signature.parameters.values()
    takes_context = any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters)
    try:
        signature.bind(*[None] if takes_context else [])
    except TypeError:
        raise ConfigError(
            f"instructions is a function with the parameters {signature}; expected one without "
            "parameters, or with one, which gets the RunContext"
        ) from None
    if takes_context:
        return cast(MakeInstructions, given)
    without_context = cast(Callable[[], str | Awaitable[str]], given)
    return lambda context: without_context()


def collect_sources(tools: Iterable[ToolLike[Any]]) -> list[ToolSource]:
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
            if not hasattr(tool, "bind"):
                raise ConfigError(
                    f"the source of tools {tool!r:.80} has no method bind(): derive its class from "
                    "treadle.contracts.BaseSource"
                )
            if getattr(tool, "is_program", False):
                from treadle.agents.own_workspace import give_workspace

                give_workspace(cast("McpServer", tool))
            close_group()
            sources.append(cast(ToolSource, tool))
        elif hasattr(tool, "spec") and hasattr(tool, "call"):
            group.append(cast(Tool, tool))
        elif callable(tool):
            from treadle.tools.function import FunctionTool

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


def make_config(given: AgentSettings, model: Model, source: ToolSource) -> DriverConfig:
    """What the drivers of the agent are configured with."""
    return DriverConfig(
        name=given.name,
        model=model,
        source=source,
        instructions=normalize_instructions(given.instructions),
        options=given.options or ModelOptions(),
        cache=given.cache or CacheRequest(),
        retry=given.retry or DEFAULT_RETRY,
        policy=given.policy or DefaultPolicy(can_ask=given.approve is not None),
        hooks=tuple(given.hooks),
        mutators=tuple(given.mutators),
        gates=(RoundLimit(given.max_turns), *given.gates),
        observers=tuple(given.observers),
        workspace=given.workspace,
        agent_type=given.role,
        caller=given.caller,
        parent_ids=given.parent_ids,
        task_manager=given.task_manager,
        clock=given.clock or RealClock(),
        services=given.services if given.services is not None else {},
        save_output=given.keep_output,
        max_result_chars=given.max_result_chars,
        max_parallel=given.max_parallel,
        tool_timeout=given.tool_timeout,
        raises_faults=given.tool_errors == "raise",
    )
