"""A session for programs without an event loop: scripts, views of Flask and Django.

    with agent.session_sync("order-42") as session:
        print(session.run("Book two seats").output)
        for event in session.stream("And a window seat?"):
            ...

The session (session.py) runs in an event loop in a thread of its own, which also does what goes on
between two calls. Each method waits until it is done. Another thread may call them, too: to answer
an approval, or to interrupt.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from treadle.agents.run import Prompt, Result, SessionRunOptions
from treadle.agents.session import Session, SessionStreamOptions
from treadle.agents.stream import Stream, find_text
from treadle.core.errors import LoopError
from treadle.core.events import Event
from treadle.core.steps import Doubt, PendingApproval, UserInput
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import Metadata
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.core.type_variables import OutputT
from treadle.lib.loop_thread import LoopThread, has_running_loop

if TYPE_CHECKING:
    from typing import Self, Unpack

    from typing_extensions import TypeForm

    from treadle.agents.run import UntypedOutput

_T = TypeVar("_T")


class SyncStream(Generic[OutputT]):
    """The events of a run as a plain iterator. It ends by itself; `close`, or a `with` block that
    is left early, interrupts the run."""

    def __init__(
        self,
        loop: LoopThread,
        make_stream: Callable[[], Stream[OutputT]],
        disconnect: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """With `disconnect`, which closes what the agent has opened, the loop ends with it."""
        self._loop = loop
        self._disconnect = disconnect
        self._stream = loop.call(make_stream)
        self._is_entered = self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(kind)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = None if self._is_closed else self._loop.run(self._read())
        if event is None:
            self.close()
            raise StopIteration
        return event

    def texts(self) -> Iterator[str]:
        """What the run says, piece by piece; see `Stream.texts`."""
        return (text for event in self if (text := find_text(event)))

    async def _read(self) -> Event | None:
        if not self._is_entered:
            await self._stream.__aenter__()
            self._is_entered = True
        async for event in self._stream:
            return event
        return None

    def close(self) -> None:
        """Interrupt the run if it is not over, and wait for its end. May be repeated."""
        self._end(None)

    def _end(self, kind: type[BaseException] | None) -> None:
        was_closed, self._is_closed = self._is_closed, True
        if was_closed:
            return
        try:
            if self._is_entered:
                self._loop.run(self._stream.__aexit__(kind, None, None))
        finally:
            if self._disconnect is not None:
                self._loop.run(self._disconnect())
                self._loop.close()

    @property
    def result(self) -> Result[OutputT]:
        """How the run ended; available after the last event. Raises what a failed run raised."""
        if self._is_closed:
            return self._stream.result
        return self._loop.call(lambda: self._stream.result)

    @property
    def waiting(self) -> tuple[PendingApproval, ...]:
        """What a suspended run waits for."""
        return self._stream.waiting

    def approve(
        self,
        call_id: str,
        *,
        arguments: Arguments | None = None,
        always: bool = False,
        session_id: str = "",
    ) -> bool:
        """Answer ApprovalRequired before the next event is read; see `Stream.approve`."""
        approve = partial(self._stream.approve, call_id, arguments=arguments, always=always)
        return self._loop.call(partial(approve, session_id=session_id))

    def deny(
        self, call_id: str, reason: str = "The user said no.", *, session_id: str = ""
    ) -> bool:
        return self._loop.call(partial(self._stream.deny, call_id, reason, session_id=session_id))

    def interrupt(self, reason: str = "user_cancelled") -> None:
        self._loop.call(partial(self._stream.interrupt, reason))


def stream_in_thread(
    make_stream: Callable[[], Stream[OutputT]], disconnect: Callable[[], Coroutine[Any, Any, None]]
) -> SyncStream[OutputT]:
    """A stream with an event loop of its own."""
    loop = LoopThread()
    try:
        return SyncStream(loop, make_stream, disconnect)
    except BaseException:
        loop.close()
        raise


class SyncSession(Generic[OutputT]):
    """One conversation of an agent. Use it in a `with` block."""

    def __init__(
        self,
        session: Session[Any, OutputT],
        disconnect: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """`disconnect` closes what the agent has opened in the event loop of this session."""
        self.id = session.id
        self._session = session
        self._disconnect = disconnect
        self._thread: LoopThread | None = None
        self._opened = AsyncExitStack()

    def __enter__(self) -> Self:
        if has_running_loop():
            raise LoopError(
                "session_sync was entered inside an event loop: use `async with agent.session()`"
            )
        self._thread = LoopThread()
        try:
            self._thread.run(self._open())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    async def _open(self) -> None:
        self._opened.push_async_callback(self._disconnect)
        await self._opened.enter_async_context(self._session)

    def _close(self) -> None:
        thread, self._thread = self._loop, None
        try:
            thread.run(self._opened.aclose())
        finally:
            thread.close()

    @property
    def _loop(self) -> LoopThread:
        if self._thread is None:
            raise LoopError("enter the session first: with agent.session_sync(...) as session")
        return self._thread

    # --- work ----------------------------------------------------------------------------

    @overload
    def run(
        self, prompt: Prompt = None, *, output: None = None, **options: Unpack[SessionRunOptions]
    ) -> Result[OutputT]: ...
    @overload
    def run(
        self, prompt: Prompt = None, *, output: TypeForm[_T], **options: Unpack[SessionRunOptions]
    ) -> Result[_T]: ...
    @overload
    def run(
        self, prompt: Prompt = None, *, output: UntypedOutput, **options: Unpack[SessionRunOptions]
    ) -> Result[Any]: ...
    def run(self, prompt: Prompt = None, **options: Any) -> Result[Any]:
        """Answer a prompt; see `Session.run`."""
        return self._loop.run(self._session.run(prompt, **options))

    @overload
    def stream(
        self, prompt: Prompt = None, *, output: None = None, **options: Unpack[SessionStreamOptions]
    ) -> SyncStream[OutputT]: ...
    @overload
    def stream(
        self,
        prompt: Prompt = None,
        *,
        output: TypeForm[_T],
        **options: Unpack[SessionStreamOptions],
    ) -> SyncStream[_T]: ...
    @overload
    def stream(
        self,
        prompt: Prompt = None,
        *,
        output: UntypedOutput,
        **options: Unpack[SessionStreamOptions],
    ) -> SyncStream[Any]: ...
    def stream(self, prompt: Prompt = None, **options: Any) -> SyncStream[Any]:
        """`for event in session.stream(prompt)`: the events of a run; see `Session.stream`."""
        return SyncStream(self._loop, partial(self._session.stream, prompt, **options))

    def steer(self, prompt: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message for the agent at work; returns its id."""
        return self._loop.call(partial(self._session.steer, prompt, metadata=metadata))

    def interrupt(self, reason: str = "user_cancelled") -> None:
        """Stop the model and every tool; the turn ends `aborted`."""
        self._loop.call(partial(self._session.interrupt, reason))

    def approve(
        self,
        call_id: str,
        *,
        arguments: Arguments | None = None,
        always: bool = False,
        session_id: str = "",
    ) -> None:
        """Let a call of `approvals` run; see `Session.approve`."""
        approve = partial(self._session.approve, call_id, arguments=arguments, always=always)
        self._loop.call(partial(approve, session_id=session_id))

    def deny(
        self, call_id: str, reason: str = "The user said no.", *, session_id: str = ""
    ) -> None:
        """Answer a call of `approvals` with the reason instead of running it."""
        self._loop.call(partial(self._session.deny, call_id, reason, session_id=session_id))

    def settle(
        self, call_id: str, result: str, *, is_error: bool = False, session_id: str = ""
    ) -> None:
        """Tell the outcome of a call in doubt; see `Session.settle`."""
        settle = partial(self._session.settle, is_error=is_error, session_id=session_id)
        self._loop.call(partial(settle, call_id, result))

    def rewind(self, turns: int = 1) -> None:
        """Take back the last turns, with their messages. The log keeps them; files stay."""
        self._loop.run(self._session.rewind(turns))

    @property
    def transcript(self) -> Transcript:
        """What the model is shown."""
        return self._loop.call(lambda: self._session.transcript)

    @property
    def usage(self) -> Usage:
        """Of the whole session, with that of child agents since it was opened."""
        return self._loop.call(lambda: self._session.usage)

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a decision."""
        return self._loop.call(lambda: self._session.approvals)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The calls whose outcome is not known after a crash; `settle` tells it."""
        return self._loop.call(lambda: self._session.doubts)

    @property
    def can_continue(self) -> bool:
        """Whether `run` without a prompt has something to do."""
        return self._loop.call(lambda: self._session.can_continue)
