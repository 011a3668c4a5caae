"""An agent: a model, tools and rules, and the ways to run its loop.

    run       one prompt, one result            session   a conversation that outlives the process
    stream    the same, with its events         start     the loop itself, step by step

All of them are a few lines over `Driver.next()` and take the same arguments. An agent holds no
history: one agent serves many sessions at once, and `replace` makes a copy with other settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.agent_runs import AgentRuns
from treadle.agents.agent_settings import (
    Approver,
    ApproverAnswer,
    InstructionsLike,
    ToolLike,
    check_instructions_deps,
    check_settings,
    check_tool_deps,
    collect_sources,
    normalize_instructions,
    reject_second_model,
    reject_unknown,
    resolve_model,
)
from treadle.agents.run import DecideApprovals
from treadle.agents.stream import NO_APPROVER
from treadle.budgets import RoundLimit
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.policy import DefaultPolicy, Policy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.task_manager import MakeTaskManager
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import InputBlocked, NothingToAnswer
from treadle.core.events import Caller, TurnResult
from treadle.core.loop.config import Clock, DriverConfig, RealClock
from treadle.core.loop.driver import Driver
from treadle.core.loop.interruption import await_contained
from treadle.core.loop.retry import DEFAULT_RETRY, Retry
from treadle.core.steps import (
    Approval,
    ApprovalRequest,
    AwaitingInput,
    Denial,
    Finished,
    PendingApproval,
)
from treadle.core.type_variables import DepsT, OutputT
from treadle.tools.federation import CollisionPolicy, Federation, StaticSource

if TYPE_CHECKING:
    from typing import Unpack

    from treadle.agents.argument_types import AgentChanges, AgentSettings
    from treadle.agents.structured_output import StructuredOutput
    from treadle.agents.subagents import ChildStart, ChildTask, OpenStore, PrepareChild
    from treadle.sessions.open_store import StoreLocation

_DepsT = TypeVar("_DepsT")
_OutputT = TypeVar("_OutputT")


class Agent(AgentRuns[DepsT, OutputT]):
    """A model, tools and rules, ready to run.

    `output_type` is what the agent answers with, a type or a JSON schema; `deps_type` is the type
    of what each run gives to the tools as `context.deps`. `approve` decides every call for which
    the policy returns Ask; without it such a call is denied with a reason for the model. Without a
    `policy` your own tools run, and built-in tools that change something need `approve`
    (`DefaultPolicy`). `store` is where `session` keeps its sessions. `name` is in events, logs,
    telemetry and sessions. With `subagents`, a list of definitions that may be empty, the model
    gets the `task` tool and can start children.
    """

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            model: str | Model,
            tools: Sequence[ToolLike] = (),
            *,
            deps_type: type[DepsT] = ...,
            output_type: type[OutputT] = ...,
            **settings: Unpack[AgentSettings],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[None, Any],
            model: str | Model,
            tools: Sequence[ToolLike] = (),
            *,
            output_type: object,
            **settings: Unpack[AgentSettings],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[DepsT, Any],
            model: str | Model,
            tools: Sequence[ToolLike] = (),
            *,
            deps_type: type[DepsT],
            output_type: object,
            **settings: Unpack[AgentSettings],
        ) -> None: ...

    @reject_second_model
    def __init__(
        self,
        model: str | Model,
        tools: Sequence[ToolLike] = (),
        *,
        deps_type: object = NoneType,
        output_type: object = str,
        name: str = "",
        instructions: InstructionsLike = "",
        max_turns: int = 50,
        policy: Policy | None = None,
        approve: Approver | None = None,
        hooks: Sequence[Hook] = (),
        mutators: Sequence[Mutator] = (),
        gates: Sequence[Gate] = (),
        observers: Sequence[Observer] = (),
        workspace: Workspace | None = None,
        options: ModelOptions | None = None,
        cache: CacheRequest | None = None,
        retry: Retry | None = None,
        collision: CollisionPolicy = "error",
        store: StoreLocation | None = None,
        services: dict[str, Any] | None = None,
        max_result_chars: int = 100_000,
        max_parallel: int = 16,
        tool_timeout: float | None = 600.0,
        keep_output: Callable[[str, str], str] | None = None,
        clock: Clock | None = None,
        subagents: Sequence[AgentDefinition] | None = None,
        open_store: OpenStore | None = None,
        prepare_child: PrepareChild | None = None,
        worktrees: bool = False,
        depth: int = 0,
        role: str = "",
        caller: Caller = "library",
        parent_ids: tuple[str, ...] = (),
        task_manager: MakeTaskManager | None = None,
        structured_output: StructuredOutput | None = None,
        on_start: Callable[[Driver], None] | None = None,
        **unknown: object,
    ) -> None:
        self._settings = dict(locals())  # the arguments: there is no other local name yet
        del self._settings["self"], self._settings["unknown"]
        reject_unknown(unknown, self._settings)
        check_settings(self._settings)
        self._settings["tools"] = tools = tuple(tools)
        self._approve = approve
        self._on_start = on_start
        self._owns_model = isinstance(model, str)
        self._is_closed = False
        self._deps_type = deps_type
        self.store = store
        own_sources = collect_sources(tools)
        check_tool_deps(own_sources, deps_type)
        check_instructions_deps(instructions, deps_type)
        self._own_tools = Federation(own_sources, collision)
        sources: list[ToolSource] = [self._own_tools]  # and what child agents do not get
        if subagents is not None:
            from treadle.agents.subagents import SubagentRunner
            from treadle.agents.task_tool import TaskTool

            runner = SubagentRunner(
                self._make_child_start,
                self._make_child,
                depth=depth,
                open_store=open_store,
                prepare=prepare_child,
            )
            task_tool = TaskTool(runner, subagents, has_worktrees=worktrees)
            sources.append(StaticSource([task_tool], "subagents"))
        used_model = resolve_model(model)
        options = options or ModelOptions()
        if structured_output is None and output_type is not str:
            structured_output = _make_structured_output(output_type, used_model)
        self._structured_output = structured_output
        self.config = DriverConfig(
            name=name,
            model=used_model,
            source=Federation(sources, collision) if len(sources) > 1 else self._own_tools,
            instructions=normalize_instructions(instructions),
            options=options,
            cache=cache or CacheRequest(),
            retry=retry or DEFAULT_RETRY,
            policy=policy or DefaultPolicy(can_ask=approve is not None),
            hooks=tuple(hooks),
            mutators=tuple(mutators),
            gates=(RoundLimit(max_turns), *gates),
            observers=tuple(observers),
            workspace=workspace,
            agent_type=role,
            caller=caller,
            parent_ids=parent_ids,
            task_manager=task_manager,
            clock=clock or RealClock(),
            services=services if services is not None else {},
            save_output=keep_output,
            max_result_chars=max_result_chars,
            max_parallel=max_parallel,
            tool_timeout=tool_timeout,
        )

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: object) -> object:
            """`Agent[Shop]` is `Agent[Shop, str]`."""
            given = types if isinstance(types, tuple) else (types,)
            return super().__class_getitem__((*given, str)[: max(2, len(given))])

    if TYPE_CHECKING:

        @overload
        def replace(self, **changes: Unpack[AgentChanges]) -> Agent[DepsT, OutputT]: ...
        @overload
        def replace(
            self, *, output_type: type[_OutputT], **changes: Unpack[AgentChanges]
        ) -> Agent[DepsT, _OutputT]: ...
        @overload
        def replace(
            self, *, output_type: object, **changes: Unpack[AgentChanges]
        ) -> Agent[DepsT, Any]: ...
        @overload
        def replace(
            self, *, deps_type: type[_DepsT], **changes: Unpack[AgentChanges]
        ) -> Agent[_DepsT, OutputT]: ...
        @overload
        def replace(
            self,
            *,
            deps_type: type[_DepsT],
            output_type: type[_OutputT],
            **changes: Unpack[AgentChanges],
        ) -> Agent[_DepsT, _OutputT]: ...
        @overload
        def replace(
            self, *, deps_type: type[_DepsT], output_type: object, **changes: Unpack[AgentChanges]
        ) -> Agent[_DepsT, Any]: ...

    def replace(self, **changes: Any) -> Agent[Any, Any]:
        """A copy of this agent with these settings changed; `model` and `tools` are settings."""
        reject_unknown(changes, self._settings)
        return Agent(**{**self._settings, **changes})

    # --- for hosts and children ---------------------------------------------------------

    async def finish_turn(
        self, driver: Driver, decide: DecideApprovals | None = None
    ) -> TurnResult:
        """Drive a turn to its end; approvals go to the approver, or to `decide` without one."""
        if self._approve is not None or decide is None:
            decide = self._ask_approver
        return await self._drive(driver, decide)

    async def aclose_owned_model(self) -> None:
        """Close a child's model unless it is its parent's; its tools are the parent's."""
        if self._owns_model:
            await self.config.model.aclose()

    # --- shared --------------------------------------------------------------------------

    def _make_child_start(self, task: ChildTask, child_id: str, depth: int) -> ChildStart:
        from treadle.agents.subagents import ChildStart

        config = self.config
        return ChildStart(task, child_id, depth, config.model, self._own_tools, config.policy)

    def _make_child(self, start: ChildStart, changes: Mapping[str, Any]) -> Agent[Any, str]:
        from treadle.agents.child_settings import make_child_settings

        settings = {**self._settings, "model": self.config.model}
        return Agent(**{**make_child_settings(settings, start, changes), "depth": start.depth})

    async def _drive(self, driver: Driver, decide: DecideApprovals) -> TurnResult:
        while True:
            match await driver.next():
                case ApprovalRequest() as request:
                    await driver.resolve(request, decide)
                case Finished(result=result):
                    return result
                case AwaitingInput(blocked=reason):
                    if reason:
                        raise InputBlocked(reason)
                    raise NothingToAnswer(
                        "there is nothing to answer: the last turn is finished, or the prompt is "
                        "empty; give a prompt"
                    )
                case _:
                    pass

    async def _ask_approver(self, request: ApprovalRequest) -> None:
        for approval in request.pending:
            answer: ApproverAnswer = Denial(NO_APPROVER, "headless")
            if self._approve is not None:
                work = _call_approver(self._approve, approval)
                answer = await await_contained(work, "the approver", None)
            call_id = approval.call.id
            match answer:
                case True:
                    request.approve(call_id)
                case Approval(arguments=arguments, always=always):
                    request.approve(call_id, arguments=arguments, always=always)
                case Denial(reason=reason, decided_by=decided_by):
                    request.deny(call_id, reason, decided_by=decided_by)
                case _:
                    request.deny(call_id)


def _make_structured_output(output_type: object, model: Model) -> StructuredOutput:
    from treadle.agents.structured_output import StructuredOutput

    return StructuredOutput(output_type, model)


async def _call_approver(approve: Approver, approval: PendingApproval) -> ApproverAnswer:
    decision = approve(approval)
    answer: object = await decision if inspect.isawaitable(decision) else decision
    if answer is None or isinstance(answer, (bool, Approval, Denial)):
        return answer
    raise TypeError(
        f"the approver returned {answer!r}; it must return True, False, an Approval or a Denial"
    )
