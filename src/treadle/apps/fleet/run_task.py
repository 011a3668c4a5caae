"""One run: folder, agent, steps of the driver, check command, result.

    prepare or restore the folder -> make the agent -> drive its session -> check -> result

The session is in the database behind the fence of this run. A run that another worker began
continues where its log ends. Called by worker.py, which writes what comes of it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.session import Session
from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.assembly.suspend import SuspendOnRateLimit, TurnSuspended
from treadle.apps.fleet.limits import CallLimiter, LimitedModel
from treadle.apps.fleet.run_control import FenceHook, RunControl
from treadle.apps.fleet.run_record import (
    FleetApproval,
    FleetCheck,
    FleetResult,
    FleetRun,
    RunState,
    describe_check,
)
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.worker_runs import WorkerRuns
from treadle.budgets.gates import CostBudget
from treadle.core.contracts.model import Model
from treadle.core.contracts.store import Store
from treadle.core.contracts.workspace import Workspace
from treadle.core.contracts.wrapped import find_innermost
from treadle.core.errors import ConfigError, SessionTooNew, WorkspaceError, error_message
from treadle.core.steps import (
    AfterToolResult,
    ApprovalRequest,
    AwaitingInput,
    Finished,
    PendingApproval,
)
from treadle.core.transcript.entries import NoticeShown, Suspended
from treadle.core.transcript.items import AssistantItem
from treadle.models.batches.batch_queue import BatchQueue
from treadle.models.batches.batched import Batched, has_batches
from treadle.sessions.detached.suspend import suspend_turn

CHECK_SECONDS = 1800.0
MAX_CHECK_CHARS = 4_000
MAX_CALL_CHARS = 4_000
SNAPSHOT_SECONDS = 10.0  # at least, between two snapshots of one run
APPROVAL_SECONDS = 24 * 3600.0
CHILD_DENIAL = "A child agent cannot wait for an approval here; let the main agent make the call."

MakeAgent = Callable[[FleetTask, Path], Agent[Any, Any] | Awaitable[Agent[Any, Any]]]


class RestoredFolder(Protocol):
    """What `RunFolders.restore` returns; workspaces.py has the real one."""

    @property
    def path(self) -> Path: ...

    @property
    def lost_effects(self) -> tuple[str, ...]: ...


class RunFolders(Protocol):
    """The folders of runs; workspaces.py has the real ones."""

    async def prepare(self, task: FleetTask, run_id: str) -> Path: ...

    async def restore(self, task: FleetTask, run_id: str) -> RestoredFolder: ...

    async def snapshot(self, run_id: str, step: int) -> str: ...

    async def remove(self, run_id: str) -> None: ...

    async def remove_lost(self, run_id: str) -> None: ...

    async def remove_all_lost(self) -> None: ...


class RunParts(msgspec.Struct, frozen=True):
    """What a worker gives to each of its runs."""

    runs: WorkerRuns
    limiter: CallLimiter
    folders: RunFolders
    make_agent: MakeAgent | None = None
    version: str = ""
    approval_seconds: float | None = APPROVAL_SECONDS
    snapshot_seconds: float = SNAPSHOT_SECONDS
    batches: BatchQueue | None = None


class RunOutcome(msgspec.Struct, frozen=True):
    """What comes of an attempt: an end, with its result, or a wait."""

    state: RunState
    result: FleetResult | None = None
    error: str = ""
    wake: float | None = None
    approvals: tuple[FleetApproval, ...] = ()


async def run_task(run: FleetRun, parts: RunParts, control: RunControl) -> RunOutcome:
    """Work on a run until it ends, has to wait, or this worker stops. SessionBusy if another worker
    has it, StoreError if the database is gone: then nothing more was done."""
    folder, losses = await _open_folder(run, parts.folders)
    agent, made, workspace = await _make_agent(run, folder, parts, control)
    try:
        store = control.guard(await parts.runs.open_session(run))
        async with agent.session(run.session, store=store) as session:
            _check_kinds(run.session, store)
            if parts.make_agent is None:
                _count_earlier(agent, session)
            session.driver.children.wrap_model = partial(_limit_child_model, run, parts)
            control.session, before = session, session.usage.requests
            attempt = _Attempt(run, parts, control, session)
            try:
                outcome = await attempt.drive(losses)
                if outcome is None:
                    check = await control.run_check(_check(run.task, workspace, folder))
                    outcome = attempt.conclude(check)
            finally:
                control.calls = session.usage.requests - before
                control.usage, control.session = session.usage, None
        return outcome
    finally:
        await agent.aclose()
        if made is not agent:
            await made.aclose()  # a copy does not close the workspace of its original
            if workspace is not None:
                await workspace.aclose()  # it was made for this run


class _Attempt:
    """The work of one worker on one run."""

    def __init__(
        self, run: FleetRun, parts: RunParts, control: RunControl, session: Session[Any, Any]
    ) -> None:
        self._run = run
        self._parts = parts
        self._control = control
        self._session = session
        self._reason = "end_turn"
        self._detail = ""
        self._steps = 0
        self._next_snapshot = time.monotonic() + parts.snapshot_seconds

    async def drive(self, losses: tuple[str, ...]) -> RunOutcome | None:
        """Step until the turn is over; an outcome if the run has to wait or to stop before."""
        await self._begin(losses)
        timer = None
        if self._run.task.timeout is not None:
            loop = asyncio.get_running_loop()
            left = max(0.0, self._run.task.timeout - self._count_seconds())
            timer = loop.call_later(left, self._session.interrupt, "timeout")
        try:
            while True:
                match await self._session.next():
                    case ApprovalRequest() as request:
                        waiting = await self._decide(request)
                        if waiting:
                            return RunOutcome("waiting", approvals=waiting)
                    case AfterToolResult():
                        self._steps += 1
                        await self._control.note_step()
                        await self._snapshot()
                        if self._control.is_stopping:
                            return RunOutcome("queued")
                    case Finished(result=result):
                        self._reason = result.reason
                        self._detail = str(result.metadata.get("detail", ""))
                        if result.error is not None:
                            self._detail = error_message(result.error)
                        if result.metadata.get("interrupt_reason") == "timeout":
                            self._reason = "timeout"
                        await self._snapshot(is_last=True)
                        return None
                    case AwaitingInput(blocked=blocked):
                        self._read_end(blocked)
                        return None
        except TurnSuspended as wait:
            return await self._suspend(wait)
        finally:
            if timer is not None:
                timer.cancel()

    def _count_seconds(self) -> float:
        """Of work since the run began, or was retried."""
        return self._control.seconds - self._run.earlier_seconds

    def conclude(self, check: FleetCheck | None) -> RunOutcome:
        cause = "" if self._reason == "end_turn" else self._reason
        if not cause and check is not None and not check.passed:
            cause = "check_failed"
        session = self._session
        result = FleetResult(
            reason=self._reason,
            text=_find_last_text(session),
            cost=session.cost,
            usage=session.usage,
            seconds=self._control.seconds,
            check=check,
            cause=cause,
            turns=session.driver.state.turns,
            attempts=self._run.all_attempts,
        )
        if not cause:
            return RunOutcome("done", result)
        detail = describe_check(check) if cause == "check_failed" and check else self._detail
        return RunOutcome("failed", result, detail)

    # --- the beginning ---------------------------------------------------------------------

    async def _begin(self, losses: tuple[str, ...]) -> None:
        session, run = self._session, self._run
        view = session.driver.state
        if not view.transcript and not view.queued:
            session.submit(run.task.prompt)
            return
        if run.version and run.version != self._parts.version:
            text = f"treadle {self._parts.version} continues this run; {run.version} began it"
            self._control.append(NoticeShown(text))
        if losses and view.turn is not None:
            session.steer(f"The run continues on another machine: {'; '.join(losses)}.")
        # A retry of a run that had ended; not if the retry was begun before.
        if run.result is not None and view.turn is None and view.turns <= run.result.turns:
            self._continue_ended(run.result)

    def _continue_ended(self, earlier: FleetResult) -> None:
        if self._session.driver.retry():  # its last turn is unfinished
            return
        if earlier.check is not None and not earlier.check.passed:
            self._session.submit(
                f"The check `{self._run.task.check}` failed with exit code "
                f"{earlier.check.exit_code}. Fix it. The end of its output:\n{earlier.check.output}"
            )
        else:
            self._session.submit("Continue; the task is not done yet.")

    # --- the steps -------------------------------------------------------------------------

    async def _decide(self, request: ApprovalRequest) -> tuple[FleetApproval, ...]:
        """Apply the answers that there are; the approvals that the run has to wait for."""
        answers = await self._parts.runs.answers(self._run)
        waiting: list[FleetApproval] = []
        for approval in request.pending:
            call = approval.call
            answer = answers.get(call.id)
            if approval.session_id not in ("", self._session.id):
                request.deny(call.id, CHILD_DENIAL, decided_by="headless")
            elif answer is None:
                waiting.append(
                    FleetApproval(
                        f"{self._run.id}/{call.id}",
                        self._run.id,
                        call.name,
                        _describe_call(approval),
                        expires=self._parts.approval_seconds,
                    )
                )
            elif answer.is_allowed:
                request.approve(call.id)
            else:
                request.deny(call.id, answer.reason or "The user said no.")
        return tuple(waiting)

    async def _snapshot(self, *, is_last: bool = False) -> None:
        if not is_last and time.monotonic() < self._next_snapshot:
            return
        await self._control.check_lease()
        await self._parts.folders.snapshot(self._run.id, self._steps)
        self._next_snapshot = time.monotonic() + self._parts.snapshot_seconds

    async def _suspend(self, wait: TurnSuspended) -> RunOutcome:
        turn_id = self._session.driver.trace[-1].turn_id
        entry = Suspended(turn_id, wait.reason, wait.wake, wait.detail)
        await suspend_turn(self._session.driver.log, entry)
        if wait.wake.on == "money":
            return RunOutcome("queued")  # no worker takes it until there is more
        return RunOutcome("parked", wake=wait.wake.at)

    def _read_end(self, blocked: str) -> None:
        """The turn was over when another worker died: how it ended is in the log."""
        end = self._session.driver.state.last_end
        if blocked:
            self._reason, self._detail = "aborted", blocked
        elif end is not None:
            self._reason, self._detail = end.reason, end.detail


# ------------------------------------------------------------------ parts of a run


def _check_kinds(session_id: str, store: Store) -> None:
    """SessionTooNew if a worker of a newer version has worked on the run: that one continues it."""
    kinds = getattr(find_innermost(store), "unknown_kinds", {})
    if kinds:
        raise SessionTooNew(
            f"session {session_id} has entries that this version does not know: {', '.join(kinds)}"
        )


def _count_earlier(agent: Agent[Any, Any], session: Session[Any, Any]) -> None:
    """The limit of cost holds for the session: for what earlier workers spent, too."""
    for gate in agent.config.gates:
        if isinstance(gate, CostBudget):
            gate.add_earlier(session.usage, agent.config.model.card)


def _describe_call(approval: PendingApproval) -> str:
    """What the user decides on: a summary may leave out arguments, so they follow."""
    raw = approval.call.raw
    if len(raw) > MAX_CALL_CHARS:
        raw = f"{raw[:MAX_CALL_CHARS]} ... [truncated, {len(raw):,} characters in all]"
    return redact_for_display(f"{approval.summary}\n{raw}")


async def _open_folder(run: FleetRun, folders: RunFolders) -> tuple[Path, tuple[str, ...]]:
    if run.epoch <= 1:
        return await folders.prepare(run.task, run.id), ()
    restored = await folders.restore(run.task, run.id)
    return restored.path, restored.lost_effects


async def _make_agent(
    run: FleetRun, folder: Path, parts: RunParts, control: RunControl
) -> tuple[Agent[Any, Any], Agent[Any, Any], Workspace | None]:
    """The agent of the run, the agent that was made for it, and its workspace."""
    hook, limit = FenceHook(control), partial(_limit_model, run, parts)
    if parts.make_agent is None:
        coder = await make_coding_agent(run.task, folder, hook, limit)
        await _check_price(coder, parts.limiter)
        return coder, coder, coder.config.workspace
    made = parts.make_agent(run.task, folder)
    agent = await made if inspect.isawaitable(made) else made
    if not isinstance(agent, Agent):
        raise ConfigError(f"the agent function returned {agent!r:.80}; it must return an Agent")
    await _check_price(agent, parts.limiter)
    hooks = [*agent.config.hooks, hook]
    fenced = agent.replace(model=limit(agent.config.model), hooks=hooks)
    return fenced, agent, agent.config.workspace


def _limit_model(run: FleetRun, parts: RunParts, model: Model) -> Model:
    if run.task.batch:
        model = Batched(model, parts.batches)
    return SuspendOnRateLimit(LimitedModel(model, parts.limiter, run.session), run.session)


def _limit_child_model(run: FleetRun, parts: RunParts, model: Model) -> Model:
    """A child may have a model without a batch interface: it answers at once."""
    if run.task.batch and not has_batches(model):
        run = msgspec.structs.replace(run, task=msgspec.structs.replace(run.task, batch=False))
    return _limit_model(run, parts, model)


async def _check_price(agent: Agent[Any, Any], limiter: CallLimiter) -> None:
    try:
        await limiter.check_price(agent.config.model)
    except BaseException:
        await agent.aclose()
        raise


async def make_coding_agent(
    task: FleetTask, folder: Path, hook: FenceHook, limit: Callable[[Model], Model]
) -> Agent[Any, Any]:
    """The agent of `treadle.coding_agent`, with the settings of this machine and of the task."""
    from treadle.apps.assembly.coding_agent import coding_agent
    from treadle.apps.assembly.model_choice import choose_model
    from treadle.apps.settings.load import load_settings

    flags = {"model": task.model} if task.model else {}
    model, _ = await choose_model(load_settings(folder, flags, is_trusted=lambda: False))
    return coding_agent(
        folder,
        model=limit(model),
        permission_mode=task.permission_mode,  # type: ignore[arg-type]  # checked by the task
        max_cost=task.max_cost,
        max_turns=task.max_turns,
        container=task.container,
        hooks=[hook],
        approve=lambda approval: False,  # never called: the run waits for an answer instead
    )


async def _check(task: FleetTask, workspace: Workspace | None, folder: Path) -> FleetCheck | None:
    """Run the check of the task where the agent ran its commands: in the sandbox, if it has one."""
    if task.check is None:
        return None
    own = None
    if workspace is None:
        from treadle.workspace.local import LocalWorkspace
        from treadle.workspace.options import WorkspaceOptions

        workspace = own = LocalWorkspace(folder, WorkspaceOptions())
    try:
        done = await workspace.run(task.check, timeout=task.timeout or CHECK_SECONDS)
        code = done.exit_code if done.exit_code is not None else -1
        passed = code == 0 and not done.timed_out
        return FleetCheck(passed, code, done.output[-MAX_CHECK_CHARS:])
    except WorkspaceError as error:
        return FleetCheck(False, -1, f"the check could not be run: {error_message(error)}")
    finally:
        if own is not None:
            await own.aclose()


def _find_last_text(session: Session[Any, Any]) -> str:
    for item in reversed(session.history):
        if isinstance(item, AssistantItem) and item.text:
            return item.text
    return ""
