"""What a resumed session has from before: its title, and what a fork has from its origin."""

from __future__ import annotations

from pathlib import Path

import msgspec

from treadle.apps.conversation.state.view_state import ViewState
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.sessions.index import make_title
from treadle.sessions.library import Library


class SessionOrigin(msgspec.Struct, frozen=True):
    """`title` is shown until there is a message of its own after `inherited` items. `usage` is what
    a fork itself used; None if the session is no fork."""

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
    library = Library()
    summary = library.get_summary(session_dir)
    is_fork = summary.parent is not None
    return SessionOrigin(
        library.get_title(summary),
        len(history) if is_fork and not summary.title else 0,
        summary.usage if is_fork else None,
    )
