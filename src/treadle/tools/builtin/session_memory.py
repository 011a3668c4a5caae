"""What the built-in tools remember of a session: its working directory, files seen, commands.

A call uses the working directory that it was allowed in: an approval of `> config` in one folder is
none for another folder. Kept in memory only.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from treadle.core.contracts.task_manager import TaskManager
from treadle.core.contracts.tool import SandboxRequest, ToolContext
from treadle.core.contracts.workspace import (
    FileContent,
    OutsideReader,
    ProgramResult,
    RunningCommand,
    Workspace,
)
from treadle.core.errors import ToolError, WorkspaceError

# Which of these files may not be read. None: no rule denies reading a file.
FindDenied = Callable[[Sequence[str]], list[str]]
GetFindDenied = Callable[[], Awaitable[FindDenied | None]]

MAX_SESSIONS = 256
MAX_FILES = 4_096


class SeenFile(msgspec.Struct, frozen=True):
    """A file as a session last saw it: its digest, and which of its lines."""

    digest: str
    lines: tuple[tuple[int, int], ...] = ()
    is_complete: bool = False

    def with_lines(self, first: int, last: int, total: int) -> SeenFile:
        """The same with these lines seen as well."""
        spans: list[tuple[int, int]] = []
        for start, end in sorted((*self.lines, (first, last))):
            if spans and start <= spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], max(spans[-1][1], end))
            else:
                spans.append((start, end))
        is_whole = self.is_complete or spans == [(1, max(total, last))]
        return SeenFile(self.digest, tuple(spans), is_whole)


class StartedCommand(msgspec.Struct, frozen=True):
    """A background command, for those who have to decide on what is typed into it."""

    command: str
    sandbox: SandboxRequest = ""
    has_terminal: bool = False


class ToolSession:
    """What is remembered of one session."""

    def __init__(self) -> None:
        self.seen_files: OrderedDict[Path, SeenFile] = OrderedDict()
        self.running_commands: dict[str, RunningCommand] = {}  # background commands by call id
        self._started_commands: dict[str, StartedCommand] = {}  # by call id
        self._tasks: TaskManager | None = None
        self.fetched_pages: OrderedDict[str, str] = OrderedDict()  # text by URL, for later parts

    def record_seen(self, path: Path, seen: SeenFile) -> None:
        self.seen_files[path] = seen
        self.seen_files.move_to_end(path)
        while len(self.seen_files) > MAX_FILES:
            self.seen_files.popitem(last=False)

    def record_started(
        self, call_id: str, command: StartedCommand, tasks: TaskManager | None
    ) -> None:
        self._started_commands[call_id] = command
        self._tasks = tasks

    def find_started(self, task_id: str) -> StartedCommand | None:
        """The background command that this task runs."""
        task = self._tasks.read(task_id) if self._tasks is not None else None
        return self._started_commands.get(task.call_id) if task is not None else None

    def forget(self, path: Path) -> None:
        self.seen_files.pop(path, None)


class CallSite:
    """One call: its session, its working directory, and how its paths resolve."""

    def __init__(self, sessions: ToolSessions, cwd: str, context: ToolContext) -> None:
        self.sessions = sessions
        self.workspace = sessions.workspace
        self.cwd = cwd
        self.context = context
        self.session = sessions.get(context.session_id)

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        """The real path; relative ones start from the working directory."""
        return self.workspace.resolve(str(self.join(path)), for_write=for_write)

    def join(self, path: str) -> Path:
        """The path from the working directory on, as it is written."""
        return join_path(self.cwd, path)

    def display_path(self, path: Path) -> str:
        """A path as the model would write it: relative to the working directory if inside."""
        try:
            return str(path.relative_to(self.cwd))
        except ValueError:
            return str(path)

    async def read_if_exists(self, path: Path, limit: int | None = None) -> FileContent | None:
        """The file, or None if there is none; in a preview as earlier calls will leave it."""
        if self.is_planned(path):
            return _make_planned_content(self.context.planned_files[str(path)], limit)
        try:
            return await self.workspace.read(str(path), limit=limit)
        except WorkspaceError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def is_planned(self, path: Path) -> bool:
        """Whether an earlier call of the round changes the file before this one runs."""
        return str(path) in self.context.planned_files

    def resolve_readable(self, path: str) -> tuple[Path, bool]:
        """The real path, and whether it is outside of the workspace, where a policy decides."""
        try:
            return self.resolve(path), False
        except WorkspaceError:
            if self.sessions.outside is None:
                raise
            return self.sessions.outside.resolve_outside(str(self.join(path))), True

    async def execute_on(
        self, path: Path, argv: Sequence[str], *, timeout: float, limit: int, cwd: Path
    ) -> ProgramResult:
        """The same for a path outside of the workspace."""
        assert self.sessions.outside is not None
        return await self.sessions.outside.execute_outside(
            argv, path=path, cwd=str(cwd), timeout=timeout, limit=limit
        )

    async def execute(
        self, argv: Sequence[str], *, timeout: float, limit: int, cwd: Path | None = None
    ) -> ProgramResult:
        """Run one of our own programs that only reads: it can open what `read` can open."""
        folder, run = str(cwd or self.cwd), self.workspace.execute
        return await run(argv, cwd=folder, timeout=timeout, limit=limit, read_only=True)

    async def make_not_found_error(self, given_path: str, path: Path) -> ToolError:
        """The error for a missing file, with a suggestion."""
        words = f"{given_path} does not exist"
        root = Path(self.workspace.root)
        if self.cwd != str(root):
            words += f"; the working directory is {self.cwd}"
            if not Path(given_path).is_absolute() and await self._exists(root / given_path):
                return ToolError(f"{words}. Did you mean {root / given_path}?")
        close = await self._find_similar_names(path)
        return ToolError(words + (f". Did you mean {' or '.join(close)}?" if close else ""))

    async def _exists(self, path: Path) -> bool:
        try:
            return await self.read_if_exists(self.workspace.resolve(str(path)), 0) is not None
        except WorkspaceError:
            return False

    async def _find_similar_names(self, path: Path) -> list[str]:
        from difflib import get_close_matches

        try:
            argv = ["ls", "-1A", "--", str(path.parent)]
            listed = await self.execute(argv, timeout=5, limit=1 << 18, cwd=self.workspace.root)
        except (ToolError, WorkspaceError):
            return []
        names = listed.stdout.decode(errors="replace").splitlines()
        same_stem = [name for name in names if Path(name).stem == path.stem]
        close = same_stem or get_close_matches(path.name, names, n=2, cutoff=0.6)
        return [self.display_path(path.parent / name) for name in close[:2]]


class ToolSessions:
    """The sessions of one set of tools. The policy uses `cwd` too, to resolve paths.

    `get_find_denied` tells which files a search has to leave out. `read_outside`: files outside of
    the workspace may be read, because a policy decides on them."""

    def __init__(
        self,
        workspace: Workspace,
        get_find_denied: GetFindDenied | None = None,
        *,
        read_outside: bool = False,
    ) -> None:
        self.workspace = workspace
        self.outside: OutsideReader | None = None
        if read_outside and isinstance(workspace, OutsideReader):
            self.outside = workspace
        self.get_find_denied = get_find_denied
        self.root = str(workspace.root)
        self._cwds: Mapping[str, str] = {}  # by session; replaced when it changes, never altered
        self._sessions: OrderedDict[str, ToolSession] = OrderedDict()

    def cwd(self, session_id: str) -> str:
        """The working directory of the session's next call."""
        return self._cwds.get(session_id, self.root)

    def set_cwd(self, session_id: str, cwd: str) -> None:
        if self.cwd(session_id) != cwd:
            kept = dict(list(self._cwds.items())[-MAX_SESSIONS + 1 :])
            self._cwds = {**kept, session_id: cwd}

    def make_call_site(self, context: ToolContext) -> CallSite:
        """Where a call works: in the working directory that the policy allowed it in, also if
        another call of the same reply has changed the session's since."""
        return CallSite(self, context.access.cwd or self.root, context)

    def resource_key(self, cwd: str, path: str) -> str:
        """The real path, so that two spellings of one file are one resource."""
        absolute = str(join_path(cwd, path))
        try:
            return str(self.workspace.resolve(absolute))
        except WorkspaceError:
            return absolute  # the call itself reports what is wrong with the path

    def get(self, session_id: str) -> ToolSession:
        notes = self._sessions.setdefault(session_id, ToolSession())
        self._sessions.move_to_end(session_id)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return notes


def join_path(cwd: str, path: str) -> Path:
    """The path from a folder on; `~` is a home. ToolError if there is no such home."""
    try:
        return Path(cwd, Path(path).expanduser())
    except RuntimeError as error:
        raise ToolError(f"{path}: no user has this home folder") from error


def _make_planned_content(data: bytes | None, limit: int | None) -> FileContent | None:
    if data is None:
        return None
    shown = data if limit is None else data[:limit]
    return FileContent(shown, "", len(data), 0o644, is_truncated=len(shown) < len(data))


async def kill_shielded(running: RunningCommand) -> None:
    """End a background command, even if the caller is cancelled meanwhile."""
    ending = asyncio.ensure_future(running.kill())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait({ending})
        raise
