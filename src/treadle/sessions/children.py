"""The sessions of child agents: folders inside the session of their parent.

    project-1a2b3c4d/261115-3fa9c1/children/toolu-7c9f02/        see log/journal.py
    project-1a2b3c4d/261115-3fa9c1/children/toolu-7c9f02/children/…

Uses index.py; used by library.py, history.py and cost.py.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.errors import SessionNotFound
from treadle.sessions.log.reader import FIRST_SEGMENT

if TYPE_CHECKING:
    from treadle.sessions.summaries import SessionIndex, SessionSummary

CHILDREN_DIR = "children"
CHILDREN_INDEX = "children.jsonl"


class ChildSession(msgspec.Struct, frozen=True):
    """A child agent's session; `depth` is 1 for the direct children of the session."""

    depth: int
    parent: str
    summary: SessionSummary


class ChildSessions:
    """Summaries of child sessions. They have an index file of their own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._index: SessionIndex | None = None
        self._summaries: list[SessionSummary] = []

    def walk(self, session_dir: Path, depth: int = 1) -> Iterator[ChildSession]:
        """All descendants, each after its parent, the oldest first."""
        summaries = [one for one in map(self._summarize, list_children(session_dir)) if one]
        self._summaries += summaries
        for summary in sorted(summaries, key=lambda summary: summary.created):
            yield ChildSession(depth, session_dir.name, summary)
            yield from self.walk(self._root / summary.key, depth + 1)

    def save_index(self) -> None:
        if self._index is not None:
            self._index.save(self._summaries)

    def _summarize(self, child: Path) -> SessionSummary | None:
        if self._index is None:
            from treadle.sessions.summaries import SessionIndex

            self._index = SessionIndex(self._root, CHILDREN_INDEX)
        try:
            status = (child / FIRST_SEGMENT).stat()
            return self._index.get_unchanged(child, status) or self._index.get(child)
        except (OSError, SessionNotFound):
            return None  # nothing is written yet


def make_child_session_id(parent_id: str, call_id: str) -> str:
    """The id of the session of a call's child: the same whenever it is computed. The provider chose
    the id of the call."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in call_id).strip("-")[:60]
    digest = hashlib.sha256(f"{parent_id}/{call_id}".encode()).hexdigest()[:6]
    return f"{plain or 'call'}-{digest}"


def list_children(session_dir: Path) -> list[Path]:
    """The sessions of the direct children."""
    try:
        with os.scandir(f"{session_dir}/{CHILDREN_DIR}") as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [session_dir / CHILDREN_DIR / name for name in sorted(names)]


def list_descendants(session_dir: Path) -> Iterator[Path]:
    """The sessions of all children, each after its parent."""
    for child in list_children(session_dir):
        yield child
        yield from list_descendants(child)


def find_parent(session_dir: Path) -> Path | None:
    """The parent of a child session; None for other sessions."""
    return session_dir.parent.parent if session_dir.parent.name == CHILDREN_DIR else None


def find_root(session_dir: Path) -> Path:
    """The session at the top, which the user started."""
    parent = find_parent(session_dir)
    return session_dir if parent is None else find_root(parent)
