"""A checkpoint before and after each call that may change files: what differs is the agent's.

What differs between the end of one call and the beginning of the next is the user's. Calls that run
at the same time share one span. Ignored files that a call names are stored from that call on. While
only calls in the background run, both may change files: that span names these calls. Pure calls
cost nothing; of a child agent, its own calls are recorded. If a checkpoint fails, the user gets a
warning and the call continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from treadle.core.contracts.hook import HookAnswer, HookInput, HookPoint
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.tool import NO_ACCESS, Access
from treadle.core.errors import WorkspaceError
from treadle.core.events import (
    ChildEvent,
    Event,
    TaskFinished,
    ToolDetached,
    TurnFinished,
    TurnStarted,
    unwrap,
)
from treadle.core.transcript.entries import Checkpoint, Entry
from treadle.core.transcript.transcript import Transcript
from treadle.workspace.checkpoints.written_files import list_written_files

if TYPE_CHECKING:
    from treadle.workspace.checkpoints.checkpoints import FileSnapshot

_Key = tuple[str, str]  # the session and the call


class TakesCheckpoints(Protocol):
    """`Checkpoints`, or what makes them at first use."""

    @property
    def root(self) -> Path: ...
    async def take(self, named: Collection[str] = ()) -> FileSnapshot: ...
    def leaves_out(self, named: Collection[str]) -> bool: ...


class CheckpointRecorder(BaseObserver):
    """Pass its `hook`, its `mutator` and itself as an observer to an agent. Without the observer, a
    call in the background counts like any other. `append` is the journal's method."""

    kinds = frozenset({ChildEvent, TaskFinished, ToolDetached, TurnFinished, TurnStarted})

    def __init__(
        self,
        checkpoints: TakesCheckpoints,
        append: Callable[[Entry], None],
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._append = append
        self._warn = warn
        self._warned: set[str] = set()
        self._turn_id = ""
        self._lock = asyncio.Lock()
        self._running: dict[_Key, str] = {}  # in the foreground, with their summaries
        self._background: dict[_Key, str] = {}
        self._tasks: dict[_Key, _Key] = {}  # session and task -> session and call
        self._is_open = False  # a span has begun
        self._only_background: tuple[str, ...] = ()  # what ran alone at a time of the open span
        self.hook = _CallHook(self)
        self.mutator = _TurnEndMutator(self)

    @asynccontextmanager
    async def record(self, name: str) -> AsyncIterator[None]:
        """A change of files by the agent that is not a call."""
        key = ("", name)
        await self.begin(key, name)
        try:
            yield
        finally:
            await self.end(key)

    async def begin(
        self, key: _Key, summary: str, turn_id: str = "", access: Access = NO_ACCESS
    ) -> None:
        """A call is about to change files."""
        async with self._lock:
            named = list_written_files(access, self._checkpoints.root)
            if not self._running or self._checkpoints.leaves_out(named):
                tree = await self._take(named)
                self._end_span(tree)
                self._turn_id = self._turn_id or turn_id
                self._begin_span(tree)
            self._running[key] = summary

    async def end(self, key: _Key) -> None:
        if key not in self._running and key not in self._background:
            return
        async with self._lock:
            self._forget([key])
            if self._is_open and not self._running:
                tree = await self._take()
                self._end_span(tree)
                if self._background:
                    self._begin_span(tree)
                    self._note_background()

    async def end_turn(self) -> None:
        """What calls change from now on, in the background, is not the turn's."""
        async with self._lock:
            self._running.clear()  # also calls that were interrupted
            if self._is_open:
                self._end_span(await self._take())

    def on_event(self, event: Event) -> None:
        if isinstance(event, TurnStarted):
            self._turn_id = event.turn_id
        match unwrap(event):
            case ToolDetached(session_id=session, call_id=call, task_id=task):
                if (summary := self._running.pop((session, call), None)) is not None:
                    self._background[session, call] = summary
                    self._tasks[session, task] = session, call
                    self._note_background()
            case TaskFinished(session_id=session, task_id=task) if (session, task) in self._tasks:
                self._forget([self._tasks.pop((session, task))])
            case TurnFinished(session_id=session):  # calls that were interrupted
                self._forget([key for key in self._running if key[0] == session])
            case _:
                pass

    def _note_background(self) -> None:
        if not self._running:
            self._only_background = tuple(self._background.values())

    def _forget(self, keys: Iterable[_Key]) -> None:
        for key in keys:
            self._running.pop(key, None)
            self._background.pop(key, None)

    def _begin_span(self, tree: str) -> None:
        if tree:
            self._append(Checkpoint(self._turn_id, tree, "before"))
            self._is_open = True

    def _end_span(self, tree: str) -> None:
        if tree and self._is_open:
            names = self._only_background
            self._append(Checkpoint(self._turn_id, tree, "after", background=names))
        self._is_open, self._only_background = False, ()

    async def _take(self, named: Collection[str] = ()) -> str:
        """The tree of the files now; "" if there is none."""
        try:
            snapshot = await self._checkpoints.take(named)
        except WorkspaceError as error:
            self._warn_once(f"the changes of files cannot be undone: {error}")
            return ""
        new = [one for one in snapshot.skipped if one.path not in self._warned]
        self._warned.update(one.path for one in new)
        if new:
            more = f" and {len(new) - 1} more" if len(new) > 1 else ""
            self._warn_once(f"checkpoints do not include {new[0].path} ({new[0].reason}){more}")
        return snapshot.tree

    def _warn_once(self, text: str) -> None:
        if self._warn is not None and text not in self._warned:
            self._warned.add(text)
            self._warn(text)


class _CallHook:
    points: frozenset[HookPoint] = frozenset({"before_effect", "post_tool_use"})
    timeout: float | None = None  # a large folder takes its time

    def __init__(self, recorder: CheckpointRecorder) -> None:
        self._recorder = recorder

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        data = hook_input.data
        key = hook_input.session_id, data["call_id"]
        if hook_input.point == "post_tool_use":
            await self._recorder.end(key)
        elif not data["access"].delegates:
            turn_id, access = hook_input.turn_id, data["access"]
            await self._recorder.begin(key, data["summary"], turn_id, access)
        return None


class _TurnEndMutator:
    name = "checkpoints"
    points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})
    for_children = False

    def __init__(self, recorder: CheckpointRecorder) -> None:
        self._recorder = recorder

    async def mutate(self, context: MutationContext) -> Transcript | None:
        await self._recorder.end_turn()
        return None
