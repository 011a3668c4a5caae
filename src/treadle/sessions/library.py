"""All sessions of this machine: create, find, list, remove.

    ~/.local/share/treadle/sessions/          (XDG_DATA_HOME)
      index.jsonl                             cached summaries; may be deleted
      project-1a2b3c4d/                       one folder per project: its name, a hash of its path
        261115-3fa9c1/                        one folder per session: see log/journal.py

The folders are the source: every existing session is listed, whatever the index holds.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.argument_checks import check, number
from treadle.core.errors import SessionInOtherFolder, SessionNotFound, StoreError
from treadle.lib.files.file_system import LocalFiles
from treadle.lib.files.private_files import write_private_file
from treadle.lib.text.text import plural
from treadle.sessions.log.lock import SENDING_FILE, acquire_lock, is_locked
from treadle.sessions.log.reader import FIRST_SEGMENT
from treadle.sessions.log.records import ForkPoint

if TYPE_CHECKING:
    from treadle.sessions.children import ChildSession
    from treadle.sessions.log.journal import Journal, ResumedSession
    from treadle.sessions.summaries import SessionIndex, SessionSummary

DEFAULT_PRUNE_DAYS = 90
DEFAULT_PRUNE_BYTES = 10 << 30
# Of the id of a session; an e-mail address and a key such as tenant:user are ids.
ID_PATTERN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._@:+-]{0,80}")
MIN_END = 4  # characters of the end of an id that name it; a shorter word may be one of a title


_NOT_NEGATIVE = number("a number, 0 or more", lambda value: value >= 0)


class PruneResult(msgspec.Struct, frozen=True):
    """The removed sessions, and the bytes that were freed and that remain."""

    removed: tuple[SessionSummary, ...]
    freed_bytes: int
    kept_bytes: int


class Library:
    """The sessions under one root."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    def _open_index(self) -> SessionIndex:
        from treadle.sessions.summaries import SessionIndex

        return SessionIndex(self.root)

    # --- one session -----------------------------------------------------------------------

    def create(
        self,
        folder: Path,
        *,
        parent: ForkPoint | None = None,
        session_id: str = "",
        origin: str = "",
        clock: Callable[[], float] = time.time,
    ) -> Journal:
        """A new session of this project; with `session_id`, unless a session has it."""
        from treadle.sessions.log.journal import Journal

        project = self.root / project_name(folder)
        is_free = bool(session_id) and not (project / session_id / FIRST_SEGMENT).exists()
        while not is_free:
            session_id = f"{time.strftime('%y%m%d')}-{os.urandom(3).hex()}"
            is_free = not (project / session_id).exists()
        path, project_folder = project / session_id, str(folder.resolve())
        return Journal.create(
            path, folder=project_folder, parent=parent, origin=origin, clock=clock
        )

    def find(self, name: str, *, folder: Path | None = None, by_words: bool = False) -> Path:
        """The folder of a session, by its id, or the beginning or end of it if that is unique.

        With a `folder` the session must belong to it, else SessionInOtherFolder. Sessions of child
        agents are searched if no other one matches. With `by_words`, also one by words of its
        title, if these are in one title only.
        """
        matches = list[Path]()
        if ID_PATTERN.fullmatch(name) is not None:
            own, children = self.list_session_dirs(), self._list_child_dirs()
            matches = _match_name(name, own) or _match_name(name, children)
        elif not by_words:
            raise SessionNotFound(f"{name!r} is not a session id; `treadle sessions` lists them")
        if not matches and by_words:
            matches = [self.root / one.key for one in self.find_by_words(name, folder)]
        if not matches:
            missing = f"there is no session {name!r} under {self.root}"
            raise SessionNotFound(f"{missing}; `treadle sessions` lists them")
        if len(matches) > 1:
            some = ", ".join(sorted(match.name for match in matches)[:5])
            raise SessionNotFound(f"{name!r} matches {len(matches)} sessions: {some}")
        [session_dir] = matches
        project = session_dir.relative_to(self.root).parts[0]
        if folder is not None and project != project_name(folder):
            raise SessionInOtherFolder(session_dir.name, self.get_summary(session_dir).folder)
        return session_dir

    def find_latest(self, folder: Path) -> Path | None:
        """The session of this folder that was written to last, not one that failed at once."""
        project, index = self.root / project_name(folder), self._open_index()
        by_time = [(status.st_mtime_ns, path) for path, status in list_journals(str(project))]
        paths = [Path(path) for _, path in sorted(by_time, reverse=True)]
        return next((path for path in paths if not index.get(path).has_failed), None)

    def find_by_words(self, text: str, folder: Path | None) -> list[SessionSummary]:
        """The sessions whose title has all these words, last used first."""
        words = text.casefold().split()
        return [
            one
            for one in self.list_summaries(folder=folder)
            if all(word in self.get_title(one).casefold() for word in words)
        ]

    def rename(self, session_dir: Path, name: str) -> None:
        """Give a session a name, which is its title from now on."""
        from treadle.sessions.summaries import NAME_FILE, make_title

        write_private_file(session_dir / NAME_FILE, make_title(name).encode())

    def resume(
        self, name: str, *, folder: Path | None = None, take_over: bool = False
    ) -> ResumedSession:
        """Open a session by its id, or by words of its title, to continue it."""
        from treadle.sessions.log.journal import resume

        return resume(self.find(name, folder=folder, by_words=True), take_over=take_over)

    def get_summary(self, session_dir: Path) -> SessionSummary:
        return self._open_index().get(session_dir)

    def checkpoint_dir(self, folder: Path) -> Path:
        """The folder for the checkpoints of this project, shared by its sessions."""
        return self.root.parent / "checkpoints" / project_name(folder)

    # --- all of them -----------------------------------------------------------------------

    def list_session_dirs(self) -> Iterator[Path]:
        for project in self.list_projects():
            for path, _ in list_journals(project):
                yield Path(path)

    def list_summaries(
        self, *, folder: Path | None = None, limit: int | None = None
    ) -> list[SessionSummary]:
        """The sessions, last written first."""
        projects = self.list_projects()
        if folder is not None:
            projects = [f"{self.root}/{project_name(folder)}"]
        journals = [pair for project in projects for pair in list_journals(project)]
        journals.sort(key=lambda pair: pair[1].st_mtime_ns, reverse=True)
        index = self._open_index()
        summaries = [
            index.get_unchanged(Path(path), status) or index.get(Path(path))
            for path, status in journals[:limit]
        ]
        index.save(summaries)
        return summaries

    def list_projects(self) -> list[str]:
        """The folders of the projects; none without a root. A root that cannot be read is an error:
        the user would take it for an empty one."""
        try:
            return _list_folders(str(self.root))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"{self.root} cannot be read: {error.strerror}") from error

    def list_child_sessions(self, session_dirs: Iterable[Path]) -> list[list[ChildSession]]:
        """For each session its descendants, each after its parent."""
        from treadle.sessions.children import ChildSessions

        children = ChildSessions(self.root)
        lists = [list(children.walk(session_dir)) for session_dir in session_dirs]
        children.save_index()
        return lists

    def _list_child_dirs(self) -> Iterator[Path]:
        from treadle.sessions.children import list_descendants

        for session_dir in self.list_session_dirs():
            yield from list_descendants(session_dir)

    def describe_state(self, summary: SessionSummary) -> str:
        """For the user: running, open (in a program, between two turns), suspended, interrupted,
        done, or why the last turn ended."""
        if is_locked(self.root / summary.key):
            return "running" if summary.state == "open" else "open"
        return describe_last_turn(summary)

    def get_title(self, summary: SessionSummary) -> str:
        """The title of a session; a fork without a message of its own is named after its origin."""
        title, parent = summary.title, summary.parent
        while not title and parent is not None:
            try:
                origin = self.get_summary(self.find(parent.session))
            except StoreError:
                return f"Fork of {parent.session}"
            title, parent = origin.title and f"Fork of {origin.title}", origin.parent
        return title

    def list_forks(self, session_id: str) -> list[SessionSummary]:
        """The forks of this session, which read its entries."""
        summaries = self.list_summaries()
        return [one for one in summaries if one.parent and one.parent.session == session_id]

    # --- making room -----------------------------------------------------------------------

    def remove(self, session_dir: Path, *, with_forks: bool = False) -> int:
        """Delete a session; returns the bytes freed. One with forks is kept unless `with_forks`."""
        forks = self.list_forks(session_dir.name)
        if forks and not with_forks:
            raise make_forked_error(session_dir.name, [fork.id for fork in forks], " (--forks)")
        from treadle.sessions.log_cache import forget_sessions

        freed = 0
        for fork in forks:
            freed += self.remove(self.root / fork.key, with_forks=True)
        freed += remove_session_dir(session_dir)
        forget_sessions(self.root, [session_dir.name])
        return freed

    def prune(
        self,
        *,
        days: float = DEFAULT_PRUNE_DAYS,
        max_bytes: float = DEFAULT_PRUNE_BYTES,
        dry_run: bool = False,
        now: float | None = None,
    ) -> PruneResult:
        """Remove sessions older than `days`, then the oldest until all fit into `max_bytes`.

        Sessions that are open, suspended or have forks are kept.
        """
        check("days", days, _NOT_NEGATIVE)
        check("max_bytes", max_bytes, _NOT_NEGATIVE)
        oldest_kept = (time.time() if now is None else now) - days * 86_400
        summaries = self.list_summaries()
        sizes = {summary.key: folder_size(self.root / summary.key) for summary in summaries}
        total, freed, removed = sum(sizes.values()), 0, []
        needed = {summary.parent.session for summary in summaries if summary.parent is not None}
        for summary in reversed(summaries):
            if summary.updated >= oldest_kept and total - freed <= max_bytes:
                continue
            session_dir = self.root / summary.key
            is_used = is_locked(session_dir) or (session_dir / SENDING_FILE).exists()
            if summary.suspended is not None or summary.id in needed or is_used:
                continue
            if not dry_run:
                remove_session_dir(session_dir)
            freed += sizes[summary.key]
            removed.append(summary)
        if not dry_run:
            from treadle.sessions.log_cache import forget_sessions

            forget_sessions(self.root, [summary.id for summary in removed])
        return PruneResult(tuple(removed), freed, total - freed)


def remove_session_dir(session_dir: Path) -> int:
    """Delete the folder of a session, with those of its child agents; returns the bytes freed.
    SessionBusy if a process has it open."""
    lock = acquire_lock(session_dir, LocalFiles())
    try:
        freed = folder_size(session_dir)
        import shutil

        shutil.rmtree(session_dir)
    finally:
        os.close(lock)
    return freed


def make_forked_error(session_id: str, forks: Sequence[str], option: str = "") -> StoreError:
    names = ", ".join(forks[:5])
    return StoreError(
        f"session {session_id} has {plural(len(forks), 'fork')}: {names}. "
        f"Remove them too{option}, or keep it."
    )


def describe_last_turn(summary: SessionSummary) -> str:
    """For the user: suspended, interrupted, done, or why the last turn ended."""
    if summary.suspended is not None:
        return f"suspended ({summary.suspended.reason})"
    return "interrupted" if summary.state == "open" else summary.state


def default_root() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "treadle" / "sessions"


def project_name(folder: Path) -> str:
    """A readable and unique folder name for a project."""
    real = str(folder.resolve())
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:8]
    readable = re.sub(r"[^0-9A-Za-z._-]+", "-", folder.resolve().name).strip("-.")[:40]
    return f"{readable or 'root'}-{digest}"


def folder_size(folder: Path) -> int:
    """The size of all files in a folder, in bytes."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{base}/{name}").st_size
            except OSError:
                continue
    return total


def _match_name(name: str, session_dirs: Iterable[Path]) -> list[Path]:
    """The sessions with this name, or else those whose name starts or ends with it."""
    has_end = len(name) >= MIN_END
    matches = [
        path
        for path in session_dirs
        if path.name.startswith(name) or (has_end and path.name.endswith(name))
    ]
    return [path for path in matches if path.name == name] or matches


def _list_folders(root: str) -> list[str]:
    """The subfolders, as strings, because there may be thousands."""
    with os.scandir(root) as entries:
        return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def list_journals(project: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        session_dirs = _list_folders(project)
    except OSError:
        return
    for path in session_dirs:
        try:
            yield path, os.stat(f"{path}/{FIRST_SEGMENT}")  # noqa: PTH116 - hot
        except OSError:
            continue
