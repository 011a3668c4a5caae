"""The ways to run an agent: run, run_sync, stream, stream_sync.

All of them are a few lines over `Driver.next()` and take the same arguments. A type checker knows
the answer by `output`, and wants `deps` if the agent has a `deps_type`. Inherited by Agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from treadle.agents.agent_base import AgentBase
from treadle.agents.run import (
    ACCOUNT_ERRORS,
    BACKGROUND_WAIT,
    OUTPUT_RETRIES,
    History,
    Prompt,
    Result,
    RunSettings,
    SessionRunOptions,
    reject_unknown_argument,
)
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError, LoopError
from treadle.core.transcript.items import Metadata
from treadle.core.type_variables import DepsT, OutputT
from treadle.lib.loop_thread import has_running_loop

if TYPE_CHECKING:
    from typing import Unpack

    from typing_extensions import TypeForm

    from treadle.agents.run import UntypedOutput
    from treadle.agents.stream import Stream
    from treadle.agents.sync_session import SyncStream

_T = TypeVar("_T")


class RunOptions(SessionRunOptions, total=False):
    """Those of a run of an agent, which has no session yet."""

    history: History | None
    session: str | Store | None
    background_wait: float


class StreamOptions(RunOptions, total=False):
    suspend: bool


RUN_ARGUMENTS = ("prompt", "deps", "output", *RunOptions.__annotations__)
STREAM_ARGUMENTS = (*RUN_ARGUMENTS, "suspend")


class AgentRuns(AgentBase[DepsT, OutputT]):
    """What Agent inherits."""

    @overload
    async def run(
        self: AgentRuns[None, OutputT],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: None = None,
        **options: Unpack[RunOptions],
    ) -> Result[OutputT]: ...
    @overload
    async def run(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: TypeForm[_T],
        **options: Unpack[RunOptions],
    ) -> Result[_T]: ...
    @overload
    async def run(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: UntypedOutput,
        **options: Unpack[RunOptions],
    ) -> Result[Any]: ...
    @overload
    async def run(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: None = None,
        **options: Unpack[RunOptions],
    ) -> Result[OutputT]: ...
    @overload
    async def run(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: TypeForm[_T],
        **options: Unpack[RunOptions],
    ) -> Result[_T]: ...
    @overload
    async def run(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: UntypedOutput,
        **options: Unpack[RunOptions],
    ) -> Result[Any]: ...
    async def run(
        self,
        prompt: Prompt = None,
        *,
        deps: object = None,
        output: object | None = None,
        output_retries: int = OUTPUT_RETRIES,
        history: History | None = None,
        session: str | Store | None = None,
        metadata: Metadata | None = None,
        model: str | Model | None = None,
        options: ModelOptions | None = None,
        gates: Sequence[Gate] = (),
        background_wait: float = BACKGROUND_WAIT,
        **unknown: object,
    ) -> Result[Any]:
        """One prompt, one result. A provider's failure is raised as its error.

        `history` are earlier items, which this run continues: `result.transcript` of another run,
        say; without a prompt its last message is answered. With `session`, an id or a Store, the
        run continues that session and is stored there. `output`, a type or a JSON schema, is what
        the answer is, instead of the agent's `output_type`. `deps` reaches the tools as
        `context.deps`. `metadata` goes into the requests and into `result.turn.metadata`; no model
        reads it. `model` and what `options` set are for this run, instead of the agent's; `gates`
        are limits besides its own. Calls that went to the background have `background_wait` seconds
        to end; `result.background` says what became of them.
        """
        reject_unknown_argument("agent.run", RUN_ARGUMENTS, unknown)
        settings = RunSettings(metadata, output_retries, model, options, gates, background_wait)
        async with self._open_run(prompt, output, settings, session, deps, history) as run:
            return await run.finish()

    @overload
    def run_sync(
        self: AgentRuns[None, OutputT],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: None = None,
        **options: Unpack[RunOptions],
    ) -> Result[OutputT]: ...
    @overload
    def run_sync(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: TypeForm[_T],
        **options: Unpack[RunOptions],
    ) -> Result[_T]: ...
    @overload
    def run_sync(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: UntypedOutput,
        **options: Unpack[RunOptions],
    ) -> Result[Any]: ...
    @overload
    def run_sync(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: None = None,
        **options: Unpack[RunOptions],
    ) -> Result[OutputT]: ...
    @overload
    def run_sync(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: TypeForm[_T],
        **options: Unpack[RunOptions],
    ) -> Result[_T]: ...
    @overload
    def run_sync(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: UntypedOutput,
        **options: Unpack[RunOptions],
    ) -> Result[Any]: ...
    def run_sync(self, prompt: Prompt = None, **options: Any) -> Result[Any]:
        """`run` for a program without an event loop. Connections are closed afterwards."""
        if has_running_loop():
            raise LoopError("run_sync was called inside an event loop: await agent.run() instead")
        try:
            return asyncio.run(self._run_and_disconnect(prompt, options))
        except ACCOUNT_ERRORS as error:
            raise error.with_traceback(None)  # noqa: B904 - it is the same error

    @overload
    def stream(
        self: AgentRuns[None, OutputT],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: None = None,
        **options: Unpack[StreamOptions],
    ) -> Stream[OutputT]: ...
    @overload
    def stream(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: TypeForm[_T],
        **options: Unpack[StreamOptions],
    ) -> Stream[_T]: ...
    @overload
    def stream(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: UntypedOutput,
        **options: Unpack[StreamOptions],
    ) -> Stream[Any]: ...
    @overload
    def stream(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: None = None,
        **options: Unpack[StreamOptions],
    ) -> Stream[OutputT]: ...
    @overload
    def stream(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: TypeForm[_T],
        **options: Unpack[StreamOptions],
    ) -> Stream[_T]: ...
    @overload
    def stream(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: UntypedOutput,
        **options: Unpack[StreamOptions],
    ) -> Stream[Any]: ...
    def stream(
        self,
        prompt: Prompt = None,
        *,
        deps: object = None,
        output: object | None = None,
        output_retries: int = OUTPUT_RETRIES,
        history: History | None = None,
        session: str | Store | None = None,
        metadata: Metadata | None = None,
        model: str | Model | None = None,
        options: ModelOptions | None = None,
        gates: Sequence[Gate] = (),
        background_wait: float = BACKGROUND_WAIT,
        suspend: bool = False,
        **unknown: object,
    ) -> Stream[Any]:
        """`async with agent.stream(prompt) as events`: the events of a run.

        A failure arrives as RunFailed. Without an approver, the reader of the events answers
        ApprovalRequired, also that of a child agent inside a ChildEvent, with
        `events.approve(...)` or `events.deny(...)`. A call without an answer is denied when the
        reader waits for the next event, unless `events.answer_later(...)` was called. With
        `suspend`, which needs a `session`, the events end there: `events.waiting` are the calls,
        and the process that opens the session next answers and continues.
        """
        from treadle.agents.stream import Stream

        reject_unknown_argument("agent.stream", STREAM_ARGUMENTS, unknown)
        if suspend and session is None:
            raise ConfigError("suspend: the run waits in its session; give session=...")
        settings = RunSettings(metadata, output_retries, model, options, gates, background_wait)
        opening = self._open_run(prompt, output, settings, session, deps, history)
        return Stream(opening, has_approver=self._has_approver, suspend=suspend)

    @overload
    def stream_sync(
        self: AgentRuns[None, OutputT],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: None = None,
        **options: Unpack[StreamOptions],
    ) -> SyncStream[OutputT]: ...
    @overload
    def stream_sync(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: TypeForm[_T],
        **options: Unpack[StreamOptions],
    ) -> SyncStream[_T]: ...
    @overload
    def stream_sync(
        self: AgentRuns[None, Any],
        prompt: Prompt = None,
        *,
        deps: None = None,
        output: UntypedOutput,
        **options: Unpack[StreamOptions],
    ) -> SyncStream[Any]: ...
    @overload
    def stream_sync(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: None = None,
        **options: Unpack[StreamOptions],
    ) -> SyncStream[OutputT]: ...
    @overload
    def stream_sync(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: TypeForm[_T],
        **options: Unpack[StreamOptions],
    ) -> SyncStream[_T]: ...
    @overload
    def stream_sync(
        self,
        prompt: Prompt = None,
        *,
        deps: DepsT,
        output: UntypedOutput,
        **options: Unpack[StreamOptions],
    ) -> SyncStream[Any]: ...
    def stream_sync(self, prompt: Prompt = None, **options: Any) -> SyncStream[Any]:
        """`with agent.stream_sync(prompt) as events`: `stream` for a program without an event loop,
        as a plain iterator. Connections are closed at its end."""
        from treadle.agents.sync_session import stream_in_thread

        if has_running_loop():
            raise LoopError("stream_sync was called inside an event loop: use agent.stream()")
        return stream_in_thread(lambda: self.stream(prompt, **options), self._disconnect)

    async def _run_and_disconnect(self, prompt: Prompt, options: dict[str, Any]) -> Result[Any]:
        try:
            result: Result[Any] = await self.run(prompt, **options)
            return result
        finally:
            await self._disconnect()
