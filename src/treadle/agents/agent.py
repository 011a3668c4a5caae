"""An agent: a model, tools and rules, and the ways to run its loop.

    run       one prompt, one result            stream    the same, with its events
    chat      the caller owns the history       start     the loop itself, step by step

All of them are a few lines over `Driver.next()`. An agent holds no history: one agent serves
many sessions at once, and `replace` makes a copy with other settings.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from treadle.agents.agent_files import AgentDefinition
from treadle.agents.result import Result
from treadle.agents.stream import DecideApprovals, Stream
from treadle.agents.subagents import OpenStore, SubagentRunner, TaskTool, make_child_settings
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.store import Store
from treadle.core.contracts.task_manager import MakeTaskManager
from treadle.core.contracts.tool import Tool
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import ConfigError, LoopError, NothingToAnswer
from treadle.core.events import Caller, TurnResult
from treadle.core.loop.config import AllowAll, Clock, DriverConfig, RealClock
from treadle.core.loop.driver import Driver
from treadle.core.loop.interruption import await_contained
from treadle.core.loop.session_state import check_one_writer
from treadle.core.steps import (
    ApprovalRequest,
    AwaitingInput,
    Denial,
    DriverSnapshot,
    Finished,
    PendingApproval,
    UserInput,
)
from treadle.core.transcript.entries import View
from treadle.core.transcript.items import Item, Metadata, to_user_item
from treadle.core.transcript.repair import repair_view
from treadle.core.transcript.transcript import Transcript
from treadle.policy.budgets import RoundLimit
from treadle.tools.federation import CollisionPolicy, Federation, StaticSource
from treadle.tools.function import FunctionTool

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput

ToolLike = Tool | ToolSource | Callable[..., Any]
# True approves the call; False, a reason or a Denial denies it.
ApproverAnswer = bool | str | Denial
Approver = Callable[[PendingApproval], ApproverAnswer | Awaitable[ApproverAnswer]]

NO_APPROVER = "this call needs the user's approval, and the user cannot be asked"


class Agent:
    """A model, tools and rules, ready to run.

    `approve` decides every call for which the policy returns Ask; without it such a call is denied
    with a reason for the model. With `subagents`, a list of definitions that may be empty, the
    model gets the `task` tool and can start children.
    """

    def __init__(
        self,
        model: str | Model,
        tools: Sequence[ToolLike] = (),
        *,
        instructions: str | Callable[[], str] = "",
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
        collision: CollisionPolicy = "first_wins",
        services: dict[str, Any] | None = None,
        max_result_chars: int = 100_000,
        max_parallel: int = 16,
        tool_timeout: float | None = 600.0,
        keep_output: Callable[[str, str], str] | None = None,
        clock: Clock | None = None,
        subagents: Sequence[AgentDefinition] | None = None,
        open_store: OpenStore | None = None,
        depth: int = 0,
        role: str = "",
        caller: Caller = "library",
        task_manager: MakeTaskManager | None = None,
        structured_output: StructuredOutput | None = None,
    ) -> None:
        self._settings = {key: value for key, value in locals().items() if key != "self"}
        if max_turns < 0:
            raise ConfigError(f"max_turns is {max_turns}; it must be 0 or more")
        self._approve = approve
        self._owns_model = isinstance(model, str)
        self._own_tools = Federation(_collect_sources(tools), collision)
        sources: list[ToolSource] = [self._own_tools]  # and what child agents do not get
        if subagents is not None:
            runner = SubagentRunner(self._make_child, depth=depth, open_store=open_store)
            sources.append(StaticSource([TaskTool(runner, subagents)], "subagents"))
        options = options or ModelOptions()
        if structured_output is not None:
            options = structured_output.add_schema(options)
            if structured_output.final_answer is not None:
                sources.append(StaticSource([structured_output.final_answer], "structured_output"))
                gates = [*gates, structured_output.final_answer]
        self.config = DriverConfig(
            model=_resolve_model(model),
            source=Federation(sources, collision) if len(sources) > 1 else self._own_tools,
            instructions=instructions,
            options=options,
            cache=cache or CacheRequest(),
            policy=policy or AllowAll(),
            hooks=tuple(hooks),
            mutators=tuple(mutators),
            gates=(RoundLimit(max_turns), *gates),
            observers=tuple(observers),
            workspace=workspace,
            agent_type=role,
            caller=caller,
            task_manager=task_manager,
            clock=clock or RealClock(),
            services=services if services is not None else {},
            save_output=keep_output,
            max_result_chars=max_result_chars,
            max_parallel=max_parallel,
            tool_timeout=tool_timeout,
        )

    def replace(self, **changes: Any) -> Agent:
        """A copy of this agent with these settings changed."""
        unknown = changes.keys() - self._settings.keys()
        if unknown:
            known = ", ".join(sorted(self._settings))
            raise TypeError(f"Agent has no setting {min(unknown)!r}; it has {known}")
        return Agent(**{**self._settings, **changes})

    # --- ways to run ---------------------------------------------------------------------

    def start(
        self,
        *,
        input: UserInput | None = None,
        transcript: Transcript | Sequence[Item] | None = None,
        view: View | None = None,
        store: Store | None = None,
        session_id: str | None = None,
        metadata: Metadata | None = None,
        snapshot: DriverSnapshot | None = None,
    ) -> Driver:
        """The loop itself: call `next()` on it.

        A `transcript` from elsewhere is repaired first, and logged as a new session if there is a
        `store`; `view`, loaded from a session's log, is used as it is. A `snapshot` of another
        driver is continued with its session id; with a `store`, in the new session of that store.
        `metadata` belongs to `input`, see `Driver.submit`.
        """
        if snapshot is not None:
            view = repair_view(snapshot.view)
            session_id = session_id or (None if store is not None else snapshot.session_id)
        elif transcript is not None:
            view = repair_view(View(transcript=Transcript(transcript)))
        driver = Driver(self.config, session_id=session_id, view=view, store=store)
        if transcript is not None or snapshot is not None:
            driver.log_transcript()
        if input is not None:
            driver.submit(input, metadata=metadata)
        return driver

    async def run(
        self,
        prompt: UserInput,
        *,
        output: object | None = None,
        output_retries: int = 2,
        store: Store | None = None,
        metadata: Metadata | None = None,
    ) -> Result:
        """One prompt with a new history. A provider's failure is raised as its error.

        With `output`, a type or a JSON schema, the answer is an instance of it: `result.output`.
        `metadata` goes into the requests and into `result.turn.metadata`; no model reads it.
        """
        prompt = to_user_item(prompt, metadata)
        if output is not None:
            return await self._run_structured(prompt, output, output_retries, store)
        driver = self.start(input=prompt, store=store)
        try:
            return _make_result(driver, await self.finish_turn(driver))
        finally:
            await driver.aclose()

    def run_sync(self, prompt: UserInput, **options: Any) -> Result:
        """`run` for a program without an event loop."""
        if _is_loop_running():
            raise LoopError("run_sync was called inside an event loop: await agent.run() instead")
        return asyncio.run(self._run_and_close(prompt, options))

    def stream(
        self,
        prompt: UserInput,
        *,
        transcript: Transcript | Sequence[Item] | None = None,
        store: Store | None = None,
        metadata: Metadata | None = None,
    ) -> Stream:
        """`async with agent.stream(prompt) as events`: the events of a run.

        A failure arrives as RunFailed. Without an approver, the reader of the events answers
        ApprovalRequired, also that of a child agent inside a ChildEvent, with
        `events.approve(...)` or `events.deny(...)`.
        """

        async def open_driver() -> Driver:
            driver = await self._start_from(transcript, store)
            driver.submit(prompt, metadata=metadata)
            return driver

        async def drive(driver: Driver, wait: DecideApprovals) -> TurnResult:
            return await self._drive(driver, wait if self._approve is None else self._ask_approver)

        return Stream(open_driver, drive)

    async def chat(self, messages: list[Item], *, store: Store | None = None) -> Result:
        """Continue a history that the caller owns; the new items are added to it."""
        driver = await self._start_from(messages, store)
        try:
            return _make_result(driver, await self.finish_turn(driver))
        finally:
            messages[:] = driver.transcript
            await driver.aclose()

    async def aclose(self) -> None:
        """Close the model's connections and the tools' servers."""
        await self.config.source.aclose()
        await self.config.model.aclose()

    async def aclose_owned_model(self) -> None:
        """Close a child's model unless it is its parent's; its tools are the parent's."""
        if self._owns_model:
            await self.config.model.aclose()

    async def finish_turn(
        self, driver: Driver, decide: DecideApprovals | None = None
    ) -> TurnResult:
        """Drive a turn to its end; approvals go to the approver, or to `decide` without one."""
        if self._approve is not None or decide is None:
            decide = self._ask_approver
        return await self._drive(driver, decide)

    def _make_child(self, definition: AgentDefinition, depth: int) -> Agent:
        settings = {**self._settings, "model": self.config.model}
        settings = make_child_settings(settings, definition, self._own_tools, self.config.policy)
        return Agent(**{**settings, "depth": depth})

    # --- shared --------------------------------------------------------------------------

    async def _start_from(
        self, transcript: Transcript | Sequence[Item] | None, store: Store | None
    ) -> Driver:
        """A driver that continues the caller's history; the store gets what it does not have."""
        if transcript is None or store is None:
            return self.start(transcript=transcript, store=store)
        from treadle.agents.caller_history import log_history

        check_one_writer(store)
        view = await log_history(store, Transcript(transcript))
        return self.start(view=view, store=store)

    async def _drive(self, driver: Driver, decide: DecideApprovals) -> TurnResult:
        while True:
            match await driver.next():
                case ApprovalRequest() as request:
                    await driver.resolve(request, decide)
                case Finished(result=result):
                    return result
                case AwaitingInput():
                    raise NothingToAnswer(
                        "there is nothing to answer: the last turn is finished, or a hook blocked "
                        "the input; give a prompt"
                    )
                case _:
                    pass

    async def _ask_approver(self, request: ApprovalRequest) -> None:
        for approval in request.pending:
            answer: ApproverAnswer = Denial(NO_APPROVER, "headless")
            if self._approve is not None:
                work = _call_approver(self._approve, approval)
                answer = await await_contained(work, "the approver", None)
            if answer is True:
                request.approve(approval.call.id)
                continue
            if not isinstance(answer, Denial):
                answer = Denial(answer or "The user said no.")
            request.deny(approval.call.id, answer.reason, decided_by=answer.decided_by)

    async def _run_structured(
        self, prompt: UserInput, output_type: object, retries: int, store: Store | None
    ) -> Result:
        from treadle.agents.structured_output import StructuredOutput

        model = self.config.model
        output = StructuredOutput(output_type, model)
        # The copy uses this agent's model and open tools, which it does not close.
        agent = self.replace(model=model, tools=[self._own_tools], structured_output=output)
        driver = agent.start(input=prompt, store=store)
        try:
            answer = await output.run(driver, agent.finish_turn, retries + 1)
            result = _make_result(driver, answer.turn)
        finally:
            await driver.aclose()
        if answer.text is None:
            return result
        text, value = answer.text, answer.value
        return msgspec.structs.replace(result, text=text, output=value, usage=driver.total_usage)

    async def _run_and_close(self, prompt: UserInput, options: dict[str, Any]) -> Result:
        try:
            return await self.run(prompt, **options)
        finally:
            await self.aclose()


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _call_approver(approve: Approver, approval: PendingApproval) -> ApproverAnswer:
    decision = approve(approval)
    answer: object = await decision if inspect.isawaitable(decision) else decision
    if answer is None:
        return False  # as a function without `return`
    if isinstance(answer, (bool, str, Denial)):
        return answer
    raise TypeError(
        f"the approver returned {answer!r}; it must return True, False, a reason or a Denial"
    )


def _make_result(driver: Driver, turn: TurnResult) -> Result:
    if turn.error is not None:
        raise turn.error
    used = turn.total_usage
    return Result(turn.text, turn.reason, driver.transcript, used, turn, driver.session_id)


def _resolve_model(model: str | Model) -> Model:
    if not isinstance(model, str):
        return model
    from treadle.models.registry import model as get_model

    return get_model(model)


def _collect_sources(tools: Sequence[ToolLike]) -> list[ToolSource]:
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
