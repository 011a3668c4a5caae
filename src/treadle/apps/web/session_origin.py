"""The title and the usage of a fork, without what it has from its origin."""

from __future__ import annotations

from pathlib import Path

import msgspec

from treadle.apps.conversation.state.view_state import ViewState
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.sessions.index import make_title
from treadle.sessions.library import Library
from treadle.sessions.log.reader import read_header


class SessionOrigin(msgspec.Struct, frozen=True):
    """Of a session that is no fork all of this is empty. `title` is shown until there is a message
    of its own after `inherited` items. `usage` is what the fork itself used."""

    title: str = ""
    inherited: int = 0
    usage: Usage | None = None

    def find_title(self, history: Transcript) -> str:
        if self.title and not self.inherited:
            return self.title
        for position in range(self.inherited, len(history)):
            item = history[position]
            if isinstance(item, UserItem):
                return make_title(item)
        return self.title

    def without_inherited(self, view: ViewState) -> ViewState:
        """The view with the usage of the session alone: its origin has the rest."""
        return view if self.usage is None else msgspec.structs.replace(view, usage=self.usage)


def read_origin(session_dir: Path, history: Transcript) -> SessionOrigin:
    header = read_header(session_dir)
    if header is None or header.parent is None:
        return SessionOrigin()
    library = Library()
    summary = library.get_summary(session_dir)
    inherited = 0 if summary.title else len(history)
    return SessionOrigin(library.get_title(summary), inherited, summary.usage)
