"""What an edit made worse: the problems of a file after it that were not there before it.

Before an edit the server is shown the old text, after it the new one; what it says is compared. A
server that just starts is not waited for: what it finds is told with the next edit or at the end of
the turn. Also checked are files that the session has seen, which may use what was changed. The hook
that calls this is hooks/checkers.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from treadle.core.errors import WorkspaceError
from treadle.tools.language_servers.checker import ProgramChecker
from treadle.tools.language_servers.connection import LanguageServerError
from treadle.tools.language_servers.diagnostic import (
    Diagnostic,
    DiagnosticKey,
    count_keys,
    find_new,
    format_diagnostics,
)
from treadle.tools.language_servers.languages import find_language
from treadle.tools.language_servers.server import LanguageServer
from treadle.tools.language_servers.servers import LanguageServers

WAIT_SECONDS = 3.0  # for a server that has answered before
MAX_RELATED = 5  # other files that are checked after an edit
MAX_WATCHED = 200


class WatchedFile:
    """A file, or a project if the checker is project-wide. `known` is what was there before the
    session's edits, or was told since; None as long as that is not known."""

    def __init__(self, server: LanguageServer | ProgramChecker, path: Path, text: str) -> None:
        self.server, self.path, self.text = server, path, text
        self.edits = 0
        self.known: Counter[DiagnosticKey] | None = None
        self.current: list[Diagnostic] = []
        self.session_id = ""


class EditDiagnostics:
    """`list_seen`: the files that a session has read or written, the last ones last."""

    def __init__(
        self, servers: LanguageServers, list_seen: Callable[[str], Iterable[Path]]
    ) -> None:
        self._servers, self._list_seen = servers, list_seen
        self._watched: dict[Path, WatchedFile] = {}
        self._tasks: dict[asyncio.Task[None], LanguageServer | ProgramChecker] = {}

    async def before_edit(self, session_id: str, paths: Sequence[Path]) -> None:
        """Learn what is wrong before files are changed."""
        inside = [path for path in paths if path.is_relative_to(self._servers.root)]
        suffixes = {path.suffix for path in inside if find_language(path) is not None}
        seen = [one for one in self._list_seen(session_id) if one.suffix in suffixes]
        related = [one for one in reversed(seen) if one not in inside][:MAX_RELATED]
        for path in (*inside, *related):
            server = self._servers.find(path)
            if server is None:
                continue
            key = self._servers.root if server.is_project_wide else path
            text = await self._servers.read_text(path)
            file = self._watched.pop(key, None)
            is_same = file is not None and (server.is_project_wide or file.text == (text or ""))
            if file is None or file.server is not server or not is_same:
                file = WatchedFile(server, path, text or "")
                if text is None:  # a new file
                    file.known = Counter()
                else:
                    await self._begin(server, self._check_before(file), server.is_project_wide)
            self._watched[key] = file
        while len(self._watched) > MAX_WATCHED:
            del self._watched[next(iter(self._watched))]

    async def after_edit(self, session_id: str, paths: Sequence[Path]) -> str:
        """The new problems, in lines for the model; "" if there are none or they are not known in
        time."""
        for path in paths:
            file = self._watched.get(path)
            if file is None and (project := self._watched.get(self._servers.root)) is not None:
                file = project if project.server is self._servers.find(path) else None
            if file is None:
                continue
            text = await self._servers.read_text(path)
            file.text = file.text if file.server.is_project_wide else text or ""
            file.edits, file.session_id = file.edits + 1, session_id
            await self._begin(file.server, self._check_after(file, file.edits))
        await self._wait_warm()
        return self._take(session_id, errors_only=False)

    async def at_turn_end(self, session_id: str) -> str:
        """The errors that were not told yet."""
        if any(one.session_id == session_id for one in self._watched.values()):
            await self._wait_warm()
        return self._take(session_id, errors_only=True)

    async def aclose(self) -> None:
        """Forget everything, and end the servers."""
        tasks, self._tasks, self._watched = tuple(self._tasks), {}, {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._servers.aclose()

    # --- checks ----------------------------------------------------------------------------

    async def _begin(
        self,
        server: LanguageServer | ProgramChecker,
        work: Coroutine[object, object, None],
        wait: bool = False,
    ) -> None:
        """Check in the background, in the order in which it was begun. `wait`: for a limited time,
        because the check is about the files before they are changed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = server
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        if wait and not (await asyncio.wait({task}, timeout=WAIT_SECONDS))[0]:
            task.cancel()

    async def _wait_warm(self) -> None:
        warm = [task for task, server in self._tasks.items() if server.is_warm]
        if warm:
            await asyncio.wait(warm, timeout=WAIT_SECONDS)

    async def _check_before(self, file: WatchedFile) -> None:
        found = await self._check(file, file.text)
        if found is not None:
            file.known = count_keys(found)

    async def _check_after(self, file: WatchedFile, edit: int) -> None:
        if edit != file.edits:
            return  # there is a later text, which is checked next
        await self._update(file)
        if file.server.is_project_wide:
            return
        others = [one for one in self._watched.values() if one.server is file.server]
        for other in [one for one in reversed(others) if one is not file][:MAX_RELATED]:
            if await self._servers.read_text(other.path) == other.text:
                await self._update(other)
                other.session_id = file.session_id

    async def _update(self, file: WatchedFile) -> None:
        found = await self._check(file, file.text)
        if found is None:
            return
        file.current = found
        if file.known is None:  # nothing to compare it with
            file.known = count_keys(found)

    async def _check(self, file: WatchedFile, text: str) -> list[Diagnostic] | None:
        try:
            return await file.server.check(file.path, text)
        except (LanguageServerError, WorkspaceError) as error:
            self._servers.tell_problem(file.server.problem or str(error))
            return None

    def _add_late(self, file: WatchedFile) -> None:
        """A server may publish the last part of what it found after the check."""
        if isinstance(file.server, ProgramChecker):
            return
        with suppress(LanguageServerError):
            published = file.server.get_published(file.path, file.text)
            file.current = file.current if published is None else published

    def _take(self, session_id: str, *, errors_only: bool) -> str:
        """What is new, by server; it is known from now on."""
        new: dict[str, list[Diagnostic]] = {}
        for file in self._watched.values():
            if file.session_id != session_id or file.known is None:
                continue
            self._add_late(file)
            found = find_new(file.current, file.known)
            if errors_only and not any(one.is_error for one in found):
                continue
            file.known = count_keys(file.current)
            new.setdefault(file.server.name, []).extend(found)
        root = self._servers.root
        texts = [format_diagnostics(name, found, root) for name, found in new.items() if found]
        return "\n\n".join(texts)
