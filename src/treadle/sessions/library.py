"""All sessions of this machine: made, found, listed, searched, removed.

    ~/.local/share/treadle/sessions/          (XDG_DATA_HOME)
      index.jsonl                             a memory of summaries; may be deleted
      project-1a2b3c4d/                       one folder a project: its name, a hash of its path
        261115-3fa9c1/                        one folder a session: see log/journal.py

Everything is found from the folders themselves, so a session that is there is listed, whatever
became of the index.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.errors import SessionInOtherFolder, SessionNotFound, StoreError
from treadle.sessions.index import SessionIndex, SessionSummary
from treadle.sessions.log.files import LocalFiles
from treadle.sessions.log.lock import acquire_lock, is_locked
from treadle.sessions.log.reader import FIRST_SEGMENT
from treadle.sessions.log.records import ForkPoint

if TYPE_CHECKING:
    from treadle.sessions.children import ChildSession
    from treadle.sessions.log.journal import Journal, ResumedSession

DEFAULT_PRUNE_DAYS = 90
DEFAULT_PRUNE_BYTES = 10 << 30
_ID_PATTERN = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,80}")


class PruneResult(msgspec.Struct, frozen=True):
    """What was removed to make room, and what it freed."""

    removed: tuple[SessionSummary, ...]
    freed_bytes: int
    kept_bytes: int


class Library:
    """The sessions under one root."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()

    # --- one session -----------------------------------------------------------------------

    def create(self, folder: Path, *, parent: ForkPoint | None = None) -> Journal:
        """A new session of this project."""
        from treadle.sessions.log.journal import Journal

        project = self.root / project_name(folder)
        while True:
            session_id = f"{time.strftime('%y%m%d')}-{secrets.token_hex(3)}"
            if not (project / session_id).exists():
                return Journal.create(
                    project / session_id, folder=str(folder.resolve()), parent=parent
                )

    def find(self, name: str, *, folder: Path | None = None) -> Path:
        """Where the session of this id is; the beginning of an id will do if it is the only one.

        With a folder the session has to be that folder's: SessionElsewhere says whose it is.
        Sessions of child agents are looked for if no other has this name.
        """
        if _ID_PATTERN.fullmatch(name) is None:
            raise SessionNotFound(f"{name!r} is not the id of a session; `treadle sessions` lists")
        found = _match_name(name, self.list_session_dirs()) or _match_name(
            name, self._list_child_dirs()
        )
        if not found:
            raise SessionNotFound(
                f"there is no session {name!r} under {self.root}; `treadle sessions` lists them"
            )
        if len(found) > 1:
            some = ", ".join(sorted(place.name for place in found)[:5])
            raise SessionNotFound(f"{name!r} is the beginning of {len(found)} sessions: {some}")
        if folder is not None and found[0].relative_to(self.root).parts[0] != project_name(folder):
            raise SessionInOtherFolder(found[0].name, self.get_summary(found[0]).folder)
        return found[0]

    def find_latest(self, folder: Path) -> Path | None:
        """The session of this folder that was written to last."""
        project = self.root / project_name(folder)
        found = [(status.st_mtime_ns, place) for place, status in _list_journals(str(project))]
        return Path(max(found)[1]) if found else None

    def resume(
        self, name: str, *, folder: Path | None = None, take_over: bool = False
    ) -> ResumedSession:
        """Open a session by its id, where it stopped."""
        from treadle.sessions.log.journal import resume

        return resume(self.find(name, folder=folder), take_over=take_over)

    def get_summary(self, session_dir: Path) -> SessionSummary:
        return SessionIndex(self.root).get(session_dir)

    def checkpoint_dir(self, folder: Path) -> Path:
        """Where the files of this project are kept; all of its sessions share what is the same."""
        return self.root.parent / "checkpoints" / project_name(folder)

    # --- all of them -----------------------------------------------------------------------

    def list_session_dirs(self) -> Iterator[Path]:
        for project in _list_folders(str(self.root)):
            for place, _ in _list_journals(project):
                yield Path(place)

    def list_summaries(
        self, *, folder: Path | None = None, limit: int | None = None
    ) -> list[SessionSummary]:
        """The sessions written to last come first."""
        root = str(self.root)
        projects = [f"{root}/{project_name(folder)}"] if folder is not None else _list_folders(root)
        found = [pair for project in projects for pair in _list_journals(project)]
        found.sort(key=lambda pair: pair[1].st_mtime_ns, reverse=True)
        index = SessionIndex(self.root)
        shown = [
            index.get_unchanged(Path(place), status) or index.get(Path(place))
            for place, status in found[:limit]
        ]
        index.save(shown)
        return shown

    def list_child_sessions(self, session_dirs: Iterable[Path]) -> list[list[ChildSession]]:
        """For each session its child agents and theirs, every one behind its parent."""
        from treadle.sessions.children import ChildSessions

        kinship = ChildSessions(self.root)
        found = [list(kinship.walk(place)) for place in session_dirs]
        kinship.save_index()
        return found

    def _list_child_dirs(self) -> Iterator[Path]:
        from treadle.sessions.children import list_descendants

        for place in self.list_session_dirs():
            yield from list_descendants(place)

    def describe_state(self, summary: SessionSummary) -> str:
        """What a person wants to know: running, parked, interrupted, done, or how it ended."""
        if is_locked(self.root / summary.key):
            return "running"
        if summary.suspended is not None:
            return f"parked ({summary.suspended.reason})"
        return "interrupted" if summary.state == "open" else summary.state

    def list_forks(self, session_id: str) -> list[SessionSummary]:
        """The sessions that read this one's entries."""
        return [
            summary
            for summary in self.list_summaries()
            if summary.parent is not None and summary.parent.session == session_id
        ]

    # --- making room -----------------------------------------------------------------------

    def remove(self, session_dir: Path, *, with_forks: bool = False) -> int:
        """Delete a session; how many bytes that frees. One that others read from is kept."""
        forks = self.list_forks(session_dir.name)
        if forks and not with_forks:
            names = ", ".join(fork.id for fork in forks[:5])
            raise StoreError(
                f"session {session_dir.name} is the beginning of {len(forks)} fork(s): {names}. "
                "Remove them too (--forks), or keep it."
            )
        freed = 0
        for fork in forks:
            freed += self.remove(self.root / fork.key, with_forks=True)
        lock = acquire_lock(
            session_dir, LocalFiles()
        )  # nobody has it open, and nobody opens it now
        try:
            freed += folder_size(session_dir)
            shutil.rmtree(session_dir)
        finally:
            os.close(lock)
        return freed

    def prune(
        self,
        *,
        days: float = DEFAULT_PRUNE_DAYS,
        max_bytes: int = DEFAULT_PRUNE_BYTES,
        dry_run: bool = False,
        now: float | None = None,
    ) -> PruneResult:
        """Remove what is older than `days`, then the oldest until all fit into `most_bytes`.

        A session that is open, parked, or the beginning of one that stays, stays too.
        """
        oldest_kept = (time.time() if now is None else now) - days * 86_400
        summaries = self.list_summaries()
        sizes = {summary.key: folder_size(self.root / summary.key) for summary in summaries}
        total, freed, removed = sum(sizes.values()), 0, []
        needed = {summary.parent.session for summary in summaries if summary.parent is not None}
        for summary in reversed(summaries):
            if summary.updated >= oldest_kept and total - freed <= max_bytes:
                continue
            place = self.root / summary.key
            if summary.suspended is not None or summary.id in needed or is_locked(place):
                continue
            if not dry_run:
                self.remove(place)
            freed += sizes[summary.key]
            removed.append(summary)
        return PruneResult(tuple(removed), freed, total - freed)


def default_root() -> Path:
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "treadle" / "sessions"


def project_name(folder: Path) -> str:
    """A name for a project that people recognise and that no other has."""
    real = str(folder.resolve())
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:8]
    readable = re.sub(r"[^0-9A-Za-z._-]+", "-", folder.resolve().name).strip("-.")[:40]
    return f"{readable or 'root'}-{digest}"


def folder_size(folder: Path) -> int:
    """What a folder takes on the disk."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{base}/{name}").st_size
            except OSError:
                continue
    return total


def _match_name(name: str, session_dirs: Iterable[Path]) -> list[Path]:
    """Those of this name, or else those whose name begins like it."""
    alike = [place for place in session_dirs if place.name.startswith(name)]
    return [place for place in alike if place.name == name] or alike


def _list_folders(root: str) -> list[str]:
    """The paths of the folders in one; strings, because there may be thousands."""
    try:
        with os.scandir(root) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _list_journals(project: str) -> Iterator[tuple[str, os.stat_result]]:
    for place in _list_folders(project):
        try:
            yield place, os.stat(f"{place}/{FIRST_SEGMENT}")  # noqa: PTH116 - hot
        except OSError:
            continue
