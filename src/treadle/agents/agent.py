"""An agent: a model, tools and rules, and the ways to run its loop.

    run       one prompt, one result            session   a conversation that outlives the process
    stream    the same, with its events         start     the loop itself, step by step

All of them are a few lines over `Driver.next()` and take the same arguments. An agent holds no
history: one agent serves many sessions at once, and `replace` makes a copy with other settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from treadle.agents.agent_base import UNSET
from treadle.agents.agent_runs import AgentRuns
from treadle.agents.agent_settings import (
    Approver,
    ApproverAnswer,
    check_instructions_deps,
    check_tool_deps,
    collect_sources,
    make_config,
    make_settings,
    reject_second_model,
    resolve_model,
    sign_settings,
)
from treadle.agents.run import NO_APPROVER, DecideApprovals, RunSettings, RunSuspended
from treadle.core.contracts.model import Model
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Tool
from treadle.core.errors import InputBlocked, NothingToAnswer
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.steps import (
    Approval,
    ApprovalRequest,
    AwaitingInput,
    Denial,
    Finished,
    PendingApproval,
)
from treadle.core.type_variables import DepsT, OutputT, fill_parameters
from treadle.lib.logger import logger
from treadle.lib.tasks import await_contained
from treadle.lib.text.text import plural
from treadle.tools.federation import Federation, StaticSource

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import TypeForm

    from treadle.agents.agent_definition import AgentDefinition
    from treadle.agents.agent_settings import AgentArguments, AgentChanges, ToolLike
    from treadle.agents.child_agents import ChildAgents
    from treadle.agents.child_tools.task_tool import TaskTool
    from treadle.agents.run import JsonSchema, UntypedOutput
    from treadle.agents.subagents import ChildStart, ChildTask, SubagentRunner
    from treadle.core.contracts.gate import Gate

_NO_ANSWER = "%s is denied: `approve` returned None; return True, False, an Approval or a Denial"
_DepsT = TypeVar("_DepsT")
_OutputT = TypeVar("_OutputT")


class Agent(AgentRuns[DepsT, OutputT]):
    """A model, tools and rules, ready to run.

    `output_type` is what the agent answers with: a type, a JSON schema, or a function that makes
    the answer of what the model says. `deps_type` is the type of what each run gives to the tools
    as `context.deps`. `approve` decides every call for which the policy returns Ask; without it
    such a call is denied with a reason for the model. Without a `policy` your own tools run, and
    built-in tools that change something need `approve` (`DefaultPolicy`). `store` is where
    `session` keeps its sessions. `name` is in events, logs, telemetry and sessions. With
    `subagents`, a list of definitions that may be empty, the model gets the `task` tool and can
    start children. docs/library.md describes each setting.
    """

    _is_tool = False  # see ChildAgent

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Agent[None, str],
            model: str | Model,
            tools: Sequence[ToolLike[None]] = (),
            **settings: Unpack[AgentArguments[None, str]],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[None, OutputT],
            model: str | Model,
            tools: Sequence[ToolLike[None]] = (),
            *,
            output_type: TypeForm[OutputT],
            **settings: Unpack[AgentArguments[None, OutputT]],
        ) -> None: ...
        @overload
        def __init__(
            self,
            model: str | Model,
            tools: Sequence[ToolLike[DepsT]] = (),
            *,
            deps_type: TypeForm[DepsT],
            output_type: TypeForm[OutputT] = ...,
            **settings: Unpack[AgentArguments[DepsT, OutputT]],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[None, OutputT],
            model: str | Model,
            tools: Sequence[ToolLike[None]] = (),
            *,
            output_type: Callable[..., Coroutine[Any, Any, OutputT]],
            **settings: Unpack[AgentArguments[None, OutputT]],
        ) -> None: ...
        @overload
        def __init__(
            self,
            model: str | Model,
            tools: Sequence[ToolLike[DepsT]] = (),
            *,
            deps_type: TypeForm[DepsT],
            output_type: Callable[..., Coroutine[Any, Any, OutputT]],
            **settings: Unpack[AgentArguments[DepsT, OutputT]],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[None, OutputT],
            model: str | Model,
            tools: Sequence[ToolLike[None]] = (),
            *,
            output_type: Callable[..., OutputT],
            **settings: Unpack[AgentArguments[None, OutputT]],
        ) -> None: ...
        @overload
        def __init__(
            self,
            model: str | Model,
            tools: Sequence[ToolLike[DepsT]] = (),
            *,
            deps_type: TypeForm[DepsT],
            output_type: Callable[..., OutputT],
            **settings: Unpack[AgentArguments[DepsT, OutputT]],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[None, Any],
            model: str | Model,
            tools: Sequence[ToolLike[None]] = (),
            *,
            output_type: JsonSchema,
            **settings: Unpack[AgentArguments[None, Any]],
        ) -> None: ...
        @overload
        def __init__(
            self: Agent[DepsT, Any],
            model: str | Model,
            tools: Sequence[ToolLike[DepsT]] = (),
            *,
            deps_type: TypeForm[DepsT],
            output_type: JsonSchema,
            **settings: Unpack[AgentArguments[DepsT, Any]],
        ) -> None: ...

    @reject_second_model
    def __init__(
        self, model: str | Model, tools: Sequence[ToolLike[Any]] = (), **settings: Any
    ) -> None:
        given = make_settings({"model": model, "tools": tools, **settings})
        self._settings, self.store = given, given.store
        self._owns_model, self._is_closed = isinstance(given.model, str), False
        self._forced_deps: object = UNSET
        own_sources = collect_sources(given.tools)
        check_tool_deps(own_sources, given.deps_type)
        check_instructions_deps(given.instructions, given.deps_type)
        self._own_tools: ToolSource = Federation(own_sources, given.collision)
        source = self._own_tools  # children do not get the tool that starts children
        if given.subagents is not None:
            children = StaticSource([self._make_task_tool(given.subagents)], "subagents")
            source = Federation([source, children], given.collision)
        if given.code_mode:
            from treadle.agents.child_tools.code_tool import CodeTool

            code = StaticSource([CodeTool(self._make_runner, self._own_tools)], "code")
            source = Federation([source, code], given.collision)
        used_model = resolve_model(given.model)
        handoffs = [one for one in given.tools if getattr(one, "takes_over", False)]
        if handoffs:
            from treadle.agents.handoff import HandoffModel, HandoffTool, check_outputs

            check_outputs(cast("list[HandoffTool]", handoffs), given.output_type)
            used_model = HandoffModel(used_model)
        self._structured_output = given.structured_output
        if given.structured_output is None and given.output_type is not str:
            from treadle.agents.structured_output import StructuredOutput

            self._structured_output = StructuredOutput(given.output_type, used_model)
        config = make_config(given, used_model, source)
        gates = (*config.gates, *cast("list[Gate]", handoffs))
        self.config = msgspec.structs.replace(config, gates=gates)

    if not TYPE_CHECKING:
        __signature__ = sign_settings()

        def __class_getitem__(cls, types: object) -> object:
            return super().__class_getitem__(fill_parameters(types, None, str))

    if TYPE_CHECKING:

        @overload
        def replace(
            self, **changes: Unpack[AgentChanges[DepsT, OutputT]]
        ) -> Agent[DepsT, OutputT]: ...
        @overload
        def replace(
            self,
            *,
            output_type: TypeForm[_OutputT],
            **changes: Unpack[AgentChanges[DepsT, _OutputT]],
        ) -> Agent[DepsT, _OutputT]: ...
        @overload
        def replace(
            self, *, output_type: UntypedOutput, **changes: Unpack[AgentChanges[DepsT, Any]]
        ) -> Agent[DepsT, Any]: ...
        @overload
        def replace(
            self, *, deps_type: TypeForm[_DepsT], **changes: Unpack[AgentChanges[_DepsT, OutputT]]
        ) -> Agent[_DepsT, OutputT]: ...
        @overload
        def replace(
            self,
            *,
            deps_type: TypeForm[_DepsT],
            output_type: TypeForm[_OutputT],
            **changes: Unpack[AgentChanges[_DepsT, _OutputT]],
        ) -> Agent[_DepsT, _OutputT]: ...
        @overload
        def replace(
            self,
            *,
            deps_type: TypeForm[_DepsT],
            output_type: UntypedOutput,
            **changes: Unpack[AgentChanges[_DepsT, Any]],
        ) -> Agent[_DepsT, Any]: ...

    def replace(self, **changes: Any) -> Agent[Any, Any]:
        """A copy of this agent with these settings changed; `model` and `tools` are settings."""
        copy: Agent[Any, Any] = Agent(**{**msgspec.structs.asdict(self._settings), **changes})
        copy._forced_deps = self._forced_deps
        return copy

    @contextmanager
    def override(
        self, *, deps: DepsT = UNSET, **changes: Unpack[AgentChanges[DepsT, OutputT]]
    ) -> Iterator[None]:
        """`with agent.override(model=Scripted([...])):` for tests: in the block this agent has the
        changed settings, for all that use it, and runs get `deps` whatever they are given."""
        changed = self.replace(**changes)
        if deps is not UNSET:
            changed._forced_deps = deps
        before = dict(self.__dict__)
        self.__dict__.update(changed.__dict__)
        try:
            yield
        finally:
            self.__dict__.update(before)

    if TYPE_CHECKING:

        @overload
        def as_tool(
            self: Agent[None, Any], name: str = "", description: str = ""
        ) -> Tool[object]: ...
        @overload
        def as_tool(self, name: str = "", description: str = "") -> Tool[DepsT]: ...

    def as_tool(self, name: str = "", description: str = "") -> Tool[Any]:
        """This agent as a tool of another one: the model of that one gives it a prompt, and reads
        its answer.

        It works with its own tools, model, policy and output type, and as a child of the run that
        calls it: budgets, usage, events, spans and approvals are those of that run, its log is a
        session beside that of the caller, and a call that a crash interrupted goes on. It gets the
        `deps` of the run; with a `deps_type` of its own, they have to be of that type.
        """
        from treadle.agents.child_tools.agent_tool import AgentTool

        return AgentTool(name, description, self)

    if TYPE_CHECKING:

        @overload
        def as_handoff(
            self: Agent[None, Any], name: str = "", description: str = ""
        ) -> Tool[object]: ...
        @overload
        def as_handoff(self, name: str = "", description: str = "") -> Tool[DepsT]: ...

    def as_handoff(self, name: str = "", description: str = "") -> Tool[Any]:
        """This agent as one that takes over the conversation of another, which has this in its
        `tools`: its answer is the answer of the run, and the next messages of the session go to it.
        The rest is as for `as_tool`."""
        from treadle.agents.handoff import HandoffTool

        return HandoffTool(name, description, self)

    def __repr__(self) -> str:
        given = self._settings
        name = f"{given.name!r}, " if given.name else ""
        tools = plural(len(given.tools), "tool or source", "tools and sources")
        return f"<Agent {name}{self.config.model.name}, {tools}>"

    # --- for hosts and children ---------------------------------------------------------

    async def finish_turn(
        self, driver: Driver, decide: DecideApprovals | None = None
    ) -> TurnResult:
        """Drive a turn to its end; approvals go to the approver, or to `decide` without one."""
        if self._has_approver or decide is None:
            decide = self._ask_approver
        return await self._drive(driver, decide)

    async def _answer_parent(
        self, driver: Driver, decide: DecideApprovals, ended: TurnResult | None = None
    ) -> tuple[TurnResult, str]:
        """Drive the turns of a child to their end; its answer as text. `ended`: see Run.answer."""
        run = self._make_run(driver, None, RunSettings())
        run.configure()
        answer = await run.answer(decide, ended)
        text = answer.text or answer.turn.text
        if run.output is not None and answer.text is not None and self._is_tool:
            text = run.output.write(answer.value, text)
        return answer.turn, text

    async def _aclose_owned_model(self) -> None:
        """Close a child's model unless it is its parent's; its tools are the parent's."""
        if self._owns_model:
            await self.config.model.aclose()

    # --- shared --------------------------------------------------------------------------

    def _make_task_tool(self, kinds: Sequence[AgentDefinition]) -> TaskTool:
        from treadle.agents.child_tools.task_tool import TaskTool

        return TaskTool(self._make_runner(), kinds, has_worktrees=self._settings.worktrees)

    def _make_runner(self) -> SubagentRunner:
        from treadle.agents.subagents import SubagentRunner

        given, make_start = self._settings, self._make_child_start
        return SubagentRunner(
            make_start,
            self._make_child,
            depth=given.depth,
            open_store=given.open_store,
            prepare=given.prepare_child,
        )

    def _make_child_start(
        self, task: ChildTask, child_id: str, depth: int, siblings: ChildAgents
    ) -> ChildStart:
        from treadle.agents.subagents import ChildStart

        model = siblings.run_model or self.config.model
        return ChildStart(task, child_id, depth, model, self._own_tools, self.config.policy)

    def _make_child(self, start: ChildStart, changes: Mapping[str, Any]) -> Agent[Any, str]:
        from treadle.agents.child_settings import make_child_settings

        settings = msgspec.structs.replace(self._settings, model=start.model)
        return Agent(**make_child_settings(settings, start, changes))

    async def _drive(self, driver: Driver, decide: DecideApprovals) -> TurnResult:
        while True:
            match await driver.next():
                case ApprovalRequest() as request:
                    await _resolve(driver, request, decide)
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
            denial = f"{NO_APPROVER} ({approval.reason})"
            answer: ApproverAnswer = Denial(denial, "headless")
            if self._settings.approve is not None:
                work = _call_approver(self._settings.approve, approval)
                answer = await await_contained(work)
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


async def _resolve(driver: Driver, request: ApprovalRequest, decide: DecideApprovals) -> None:
    """A run that is suspended has not failed: the loop knows nothing of it."""
    suspended: list[RunSuspended] = []

    async def decide_or_note(request: ApprovalRequest) -> None:
        try:
            await decide(request)
        except RunSuspended as suspension:
            suspended.append(suspension)

    await driver.resolve(request, decide_or_note)
    for one in suspended:
        raise one


async def _call_approver(approve: Approver, approval: PendingApproval) -> ApproverAnswer:
    decision = approve(approval)
    answer: object = await decision if inspect.isawaitable(decision) else decision
    if answer is None:  # a forgotten `return`
        logger.warning(_NO_ANSWER, approval.call.name)
        return False
    if isinstance(answer, (bool, Approval, Denial)):
        return answer
    raise TypeError(
        f"the approver returned {answer!r}; it must return True, False, an Approval or a Denial"
    )
