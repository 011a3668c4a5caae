"""Where the sessions of child agents are: within that of the session they work for.

    project-1a2b3c4d/261115-3fa9c1/children/toolu-7c9f02/        see journal.py
    project-1a2b3c4d/261115-3fa9c1/children/toolu-7c9f02/children/…

Below stands summary.py; library.py asks here when somebody wants to know.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from treadle.core.errors import SessionUnknown
from treadle.sessions.reading import FIRST
from treadle.sessions.summary import Index, Summary

CHILDREN = "children"
INDEX = "children.jsonl"


class Kin(msgspec.Struct, frozen=True):
    """A child agent's session; `depth` is 1 for those that the session itself started."""

    depth: int
    parent: str
    summary: Summary


class Kinship:
    """Reads many families. Their index is not that of the sessions which people look for first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._index: Index | None = None
        self._seen: list[Summary] = []

    def of(self, place: Path, depth: int = 1) -> Iterator[Kin]:
        """The oldest first."""
        found = [summary for child in children(place) if (summary := self._look(child))]
        self._seen += found
        for summary in sorted(found, key=lambda one: one.created):
            yield Kin(depth, place.name, summary)
            yield from self.of(self._root / summary.key, depth + 1)

    def remember(self) -> None:
        if self._index is not None:
            self._index.remember(self._seen)

    def _look(self, child: Path) -> Summary | None:
        if self._index is None:
            self._index = Index(self._root, INDEX)
        try:
            return self._index.fresh(child, (child / FIRST).stat()) or self._index.look(child)
        except (OSError, SessionUnknown):
            return None  # it has written nothing yet


def children(session: Path) -> list[Path]:
    """The sessions of the agents that this one started."""
    try:
        with os.scandir(f"{session}/{CHILDREN}") as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [session / CHILDREN / name for name in sorted(names)]


def descendants(session: Path) -> Iterator[Path]:
    """Those, and theirs; every one behind its parent."""
    for child in children(session):
        yield child
        yield from descendants(child)


def parent_of(session: Path) -> Path | None:
    """The session that a child works for."""
    return session.parent.parent if session.parent.name == CHILDREN else None


def root_of(session: Path) -> Path:
    """The session that a person began."""
    parent = parent_of(session)
    return session if parent is None else root_of(parent)
