"""Records the files before and after each turn that changes some, for undo and rewind.

The first checkpoint is taken before the first call that may change files, the second when the turn
ends, without what the user changed while the model was asked. It names the files that only the file
tools changed: of the others, changed while a command ran, some may be the user's. If the user
changes files between two calls, there are two more checkpoints: undo goes back to the user's
version of a file. A turn that only reads costs nothing.
Calls of subagents belong to the turn of their parent.
Uses workspace/checkpoints, which stores the files.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.lazy import Lazy
from treadle.core.contracts.hook import HookInput, HookPoint
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.store import Store
from treadle.core.contracts.tool import Access
from treadle.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    Event,
    ReplyDiscarded,
    RequestStarted,
    TaskFinished,
    ToolDetached,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    UsageUpdated,
)
from treadle.core.transcript.transcript import Transcript

if TYPE_CHECKING:
    from treadle.workspace.checkpoints import CheckpointRecorder
    from treadle.workspace.checkpoints.object_store import TreeNode
    from treadle.workspace.checkpoints.recorder import AgentWork

_CLOCK_TICK_NS = 20_000_000


class TurnCheckpoints(BaseObserver):
    """An Observer of the beginning of a turn, a Mutator at its end; `hook` runs before effects."""

    name = "checkpoints"
    points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})

    def __init__(self, folder: Path, store: Store, notify: Callable[[str], None] | None) -> None:
        self._folder = folder
        self._store = store
        self._notify = notify or (lambda text: None)
        self._recorder = Lazy(self._make_recorder)
        self._turn_id = ""
        self._recorded_turn_id = ""  # the turn whose first checkpoint is taken
        self._is_warned = False
        self._lock = asyncio.Lock()
        self._idle_times = IdleTimes()
        self._tool_writes = ToolWrites(folder)
        self.hook = _EffectHook(self._record_before, self._record_after)

    async def _record_before(self, access: Access) -> None:
        """Record the files before the first effect of the turn, and what the user has changed since
        the last one."""
        if self._contains_home():
            return
        async with self._lock:
            if self._recorded_turn_id != self._turn_id:
                await self._recorder.get().record(self._turn_id, "before")
                self._recorded_turn_id = self._turn_id
                self._begin_span()
            elif self._idle_times.has_new and not self._tool_writes.is_sure_of(access):
                await self._record_user_changes()
            self._idle_times.note_effect()
        self._tool_writes.before_call(access)

    async def _record_after(self, access: Access) -> None:
        """Store what a file tool wrote: the user may change it next."""
        paths = self._tool_writes.after_call(access)
        if not paths or self._contains_home():
            return
        async with self._lock:
            for path in paths:
                self._tool_writes.add_version(path, await self._recorder.get().keep_file(path))

    async def _record_user_changes(self) -> None:
        periods, work = self._idle_times.list_until_now(), self._tool_writes.sum_up()
        if await self._recorder.get().record_user_changes(self._turn_id, periods, work):
            self._begin_span()

    def _begin_span(self) -> None:
        self._tool_writes.begin()
        self._idle_times.forget()

    async def mutate(self, context: MutationContext) -> Transcript | None:
        is_ours = context.session_id == self._store.session_id
        if is_ours and self._recorded_turn_id == context.turn_id:
            self._idle_times.end_period()  # a request that was interrupted
            periods, work = self._idle_times.periods, self._tool_writes.sum_up()
            await self._recorder.get().record(context.turn_id, "after", periods, work)
        return None

    def on_event(self, event: Event) -> None:
        if type(event) is TurnStarted:
            self._turn_id = event.turn_id
        self._idle_times.on_event(event)

    def _contains_home(self) -> bool:
        """Whether the folder is the home folder or above it: too much to copy."""
        if not Path.home().resolve().is_relative_to(self._folder):
            return False
        if not self._is_warned:
            self._is_warned = True
            self._notify(f"no undo: {self._folder} contains your home folder, which is not copied")
        return True

    def _make_recorder(self) -> CheckpointRecorder:
        from treadle.sessions.library import Library
        from treadle.workspace.checkpoints import CheckpointRecorder, Checkpoints

        checkpoints = Checkpoints(self._folder, Library().checkpoint_dir(self._folder))
        return CheckpointRecorder(checkpoints, self._store.append, self._notify)


class IdleTimes(BaseObserver):
    """When a turn only waits for the model or the user: files that change then are the user's."""

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._running: set[str] = set()  # calls and background tasks
        self._idle_since: int | None = None
        self._new_since: int | None = None  # the first idle time after the last effect
        self.periods: list[tuple[int, int]] = []

    def on_event(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self.forget()
            case RequestStarted() | ApprovalRequired() if not self._running:
                self._idle_since = self._idle_since or self._clock()
                self._new_since = self._new_since or self._idle_since
            case ToolStarted(call_id=name) | ToolDetached(task_id=name):
                self._running.add(name)
                self.end_period()
            case ToolFinished(call_id=name) | TaskFinished(task_id=name):
                self._running.discard(name)
            case UsageUpdated() | ReplyDiscarded() | ApprovalResolved():
                self.end_period()
            case _:
                pass

    def end_period(self) -> None:
        since, self._idle_since = self._idle_since, None
        # The clock of files may be late by a tick: a change that follows could look earlier.
        if since is not None and (until := self._clock() - _CLOCK_TICK_NS) > since:
            self.periods.append((since, until))

    @property
    def has_new(self) -> bool:
        """Whether it was idle since the last effect began."""
        return self._new_since is not None

    def list_until_now(self) -> list[tuple[int, int]]:
        """The periods, when an effect is about to begin: since the last one nothing but the user
        changed files."""
        since = self._new_since
        if since is None:
            return self.periods
        return [*(one for one in self.periods if one[0] < since), (since, self._clock())]

    def note_effect(self) -> None:
        """A call that may change files begins."""
        self._new_since = None

    def forget(self) -> None:
        self.periods = []
        self._new_since = None


class ToolWrites:
    """The files that tools of the agent wrote in a turn, as these tools left them.

    A tool that names the file that it writes is the only one to change it; while a command runs,
    the user may change files, too.
    """

    def __init__(self, folder: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._folder = folder
        self._clock = clock
        self._since = 0
        self._written: dict[str, _FileStamp] = {}
        self._changed_by_others: set[str] = set()
        self._versions: dict[str, TreeNode] = {}
        self._has_command = False  # or another call that does not name the files it writes

    def begin(self) -> None:
        self._since = self._clock()
        self._written.clear()
        self._changed_by_others.clear()
        self._versions.clear()
        self._has_command = False

    def is_sure_of(self, access: Access) -> bool:
        """Whether the call names the files that it writes, and only tools have changed these."""
        paths = self._list_paths(access)
        return bool(paths) and not any(map(self._is_changed_by_others, paths))

    def before_call(self, access: Access) -> None:
        paths = self._list_paths(access)
        self._changed_by_others.update(filter(self._is_changed_by_others, paths))
        self._has_command = self._has_command or not paths

    def _is_changed_by_others(self, path: str) -> bool:
        stamp = _read_stamp(path)
        if path in self._written:
            return stamp != self._written[path]
        return stamp is not None and stamp[0] > self._since

    def after_call(self, access: Access) -> list[str]:
        """The files that the call wrote; the paths are from the folder."""
        paths = self._list_paths(access)
        for path in paths:
            self._written[path] = _read_stamp(path)
        return [os.path.relpath(path, self._folder) for path in paths]

    def add_version(self, path: str, version: TreeNode | None) -> None:
        """How a file tool left a file; the path is from the folder."""
        if version is not None:
            self._versions[path] = version

    def sum_up(self) -> AgentWork:
        """What the tools did since `begin`; the paths are from the folder."""
        from treadle.workspace.checkpoints.recorder import AgentWork

        unchanged = tuple(
            os.path.relpath(path, self._folder)
            for path, stamp in sorted(self._written.items())
            if path not in self._changed_by_others and _read_stamp(path) == stamp
        )
        written = frozenset(os.path.relpath(path, self._folder) for path in self._written)
        return AgentWork(unchanged, written, self._has_command, dict(self._versions))

    def _list_paths(self, access: Access) -> list[str]:
        if access.command is not None:
            return []
        base = Path(access.cwd or self._folder)
        named = (file.path for file in access.files if file.mode == "write")
        paths = (os.path.realpath(base / Path(path).expanduser()) for path in named)
        return [path for path in paths if Path(path).is_relative_to(self._folder)]


# The time of the last change, the size and the inode; None if there is no file.
_FileStamp = tuple[int, int, int] | None


def _read_stamp(path: str) -> _FileStamp:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ctime_ns, status.st_size, status.st_ino


class _EffectHook:
    points: frozenset[HookPoint] = frozenset({"before_effect", "post_tool_use"})
    timeout: float | None = None  # a large folder takes its time

    def __init__(
        self,
        before: Callable[[Access], Awaitable[None]],
        after: Callable[[Access], Awaitable[None]],
    ) -> None:
        self._record_before = before
        self._record_after = after

    async def run(self, hook_input: HookInput) -> None:
        access = hook_input.data["access"]
        is_after = hook_input.point == "post_tool_use"
        await (self._record_after(access) if is_after else self._record_before(access))
