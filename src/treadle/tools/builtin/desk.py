"""What the built-in tools remember of a session: its working directory, files seen, commands.

A call uses the working directory that it was judged with, also if another call of the same reply
has moved on since: whoever allowed `> config` in one folder did not allow it in another. Kept in
memory only. Above it stand the tools, below it the workspace.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from treadle.core.contracts.tool import ToolContext
from treadle.core.contracts.workspace import Executed, FileContent, Running, Workspace
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments

MOST_SESSIONS = 256
MOST_FILES = 4_096
MOST_NOTED = 4_096


class Seen(msgspec.Struct, frozen=True):
    """A file as a session last saw it: its digest, and which of its lines."""

    digest: str
    lines: tuple[tuple[int, int], ...] = ()
    is_whole: bool = False

    def and_lines(self, first: int, last: int, total: int) -> Seen:
        """The same with these lines seen as well."""
        spans: list[tuple[int, int]] = []
        for start, end in sorted((*self.lines, (first, last))):
            if spans and start <= spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], max(spans[-1][1], end))
            else:
                spans.append((start, end))
        is_whole = self.is_whole or spans == [(1, max(total, last))]
        return Seen(self.digest, tuple(spans), is_whole)


class SessionNotes:
    """What is remembered of one session."""

    def __init__(self) -> None:
        self.seen: OrderedDict[Path, Seen] = OrderedDict()
        self.running: dict[str, Running] = {}  # background commands by call id
        self.pages: OrderedDict[str, str] = OrderedDict()  # fetched, to be read on

    def saw(self, path: Path, seen: Seen) -> None:
        self.seen[path] = seen
        self.seen.move_to_end(path)
        while len(self.seen) > MOST_FILES:
            self.seen.popitem(last=False)

    def forget(self, path: Path) -> None:
        self.seen.pop(path, None)


class Seat:
    """One call at the desk: its session, its working directory, and paths as it means them."""

    def __init__(self, desk: Desk, cwd: str, context: ToolContext) -> None:
        self.desk = desk
        self.workspace = desk.workspace
        self.cwd = cwd
        self.context = context
        self.notes = desk.notes(context.session_id)

    def resolve(self, path: str, *, changing: bool = False) -> Path:
        """The real place of a path, relative ones from the working directory."""
        whole = str(Path(self.cwd, Path(path).expanduser()))
        return self.workspace.resolve(whole, changing=changing)

    def shown(self, path: Path) -> str:
        """A path as the model would write it here."""
        try:
            return str(path.relative_to(self.cwd))
        except ValueError:
            return str(path)

    async def look(self, path: Path, limit: int | None = None) -> FileContent | None:
        """The file, or None if there is none."""
        try:
            return await self.workspace.read(str(path), limit=limit)
        except WorkspaceError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    async def execute(
        self, argv: Sequence[str], *, timeout: float, limit: int, cwd: Path | None = None
    ) -> Executed:
        """Run a program of ours that only reads: it sees what `read` sees, no more, no less."""
        where = self.cwd if cwd is None else str(cwd)
        return await self.workspace.execute(
            argv, cwd=where, timeout=timeout, limit=limit, reading=True
        )

    async def missing(self, given: str, path: Path) -> ToolError:
        """The error for a file that is not there, with what may have been meant."""
        words = f"{given} does not exist"
        root = Path(self.workspace.root)
        if self.cwd != str(root):
            words += f"; the working directory is {self.cwd}"
            if not Path(given).is_absolute() and await self._is_there(root / given):
                return ToolError(f"{words}. Did you mean {root / given}?")
        close = await self._close_names(path)
        return ToolError(words + (f". Did you mean {' or '.join(close)}?" if close else ""))

    async def _is_there(self, path: Path) -> bool:
        try:
            return await self.look(self.workspace.resolve(str(path)), 0) is not None
        except WorkspaceError:
            return False

    async def _close_names(self, path: Path) -> list[str]:
        from difflib import get_close_matches

        try:
            argv = ["ls", "-1A", "--", str(path.parent)]
            listed = await self.execute(argv, timeout=5, limit=1 << 18, cwd=self.workspace.root)
        except (ToolError, WorkspaceError):
            return []
        names = listed.stdout.decode(errors="replace").splitlines()
        same_stem = [name for name in names if Path(name).stem == path.stem]
        close = same_stem or get_close_matches(path.name, names, n=2, cutoff=0.6)
        return [self.shown(path.parent / name) for name in close[:2]]


class Desk:
    """Shared by the tools of one set. `cwd` is for the policy, which judges paths by it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.root = str(workspace.root)
        self._cwds: Mapping[str, str] = {}  # by session; replaced when it changes, never altered
        self._sessions: OrderedDict[str, SessionNotes] = OrderedDict()
        self._noted: OrderedDict[int, tuple[Arguments, Mapping[str, str]]] = OrderedDict()

    def cwd(self, session_id: str) -> str:
        """Where the next call of a session stands."""
        return self._cwds.get(session_id, self.root)

    def move(self, session_id: str, cwd: str) -> None:
        if self.cwd(session_id) != cwd:
            kept = dict(list(self._cwds.items())[-MOST_SESSIONS + 1 :])
            self._cwds = {**kept, session_id: cwd}

    def note(self, arguments: Arguments) -> None:
        """These arguments are about to be judged: what they mean is fixed from now on."""
        self._noted[id(arguments)] = (arguments, self._cwds)
        while len(self._noted) > MOST_NOTED:
            self._noted.popitem(last=False)

    def enter(self, arguments: Arguments, context: ToolContext) -> Seat:
        cwds = self._judged(arguments)
        return Seat(self, cwds.get(context.session_id, self.root), context)

    def keys(self, arguments: Arguments, paths: Sequence[str]) -> frozenset[str]:
        """Resource keys of paths. Whose call it is, is not known here: in any folder it may be."""
        return frozenset(self._keys(arguments, paths))

    def notes(self, session_id: str) -> SessionNotes:
        notes = self._sessions.setdefault(session_id, SessionNotes())
        self._sessions.move_to_end(session_id)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return notes

    def _judged(self, arguments: Arguments) -> Mapping[str, str]:
        noted = self._noted.get(id(arguments))
        return noted[1] if noted is not None and noted[0] is arguments else self._cwds

    def _keys(self, arguments: Arguments, paths: Sequence[str]) -> Iterator[str]:
        for cwd in {self.root, *self._judged(arguments).values()}:
            for path in paths:
                whole = str(Path(cwd, Path(path).expanduser()))
                try:
                    yield str(self.workspace.resolve(whole))
                except WorkspaceError:
                    yield whole  # the call itself will say what is wrong with it


async def gone(running: Running) -> None:
    """End a background command, whatever happens to us meanwhile."""
    ending = asyncio.ensure_future(running.kill())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait({ending})
        raise
