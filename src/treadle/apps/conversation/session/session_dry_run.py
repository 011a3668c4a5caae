"""A session that is a dry run: what it has recorded, and how that is carried out in the session.

assembly/dry_run/ records it, and makes the calls. commands/dry_run.py asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treadle.apps.assembly.dry_run.recorded_calls import (
    CallPlayer,
    Effect,
    edit_effect,
    format_message,
    list_effects,
)
from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.core.contracts.observer import BaseObserver
from treadle.core.errors import ConfigError
from treadle.core.events import Event, TurnFinished
from treadle.core.transcript.items import Item, ToolResultItem, UserItem, to_user_item
from treadle.lib.text.text import plural
from treadle.tools.undo import DRY_RUN_KEY


class SessionDryRun:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session
        self._edited: dict[str, str] = {}  # arguments by the ID of the call

    async def change(self, *, is_on: bool) -> None:
        await self._session.reconfigure(dry_run=is_on)

    def list_effects(self) -> list[Effect]:
        """What waits, with the arguments that the user gave it."""
        effects = list_effects(self._session.driver.history)
        for number, one in enumerate(list(effects), 1):
            if text := self._edited.get(one.call.id):
                edit_effect(effects, str(number), text)
        return effects

    def edit(self, number: str, arguments: str) -> None:
        effects = self.list_effects()
        edit_effect(effects, number, arguments)
        self._edited[effects[int(number) - 1].call.id] = arguments

    def start(self, chosen: Sequence[Effect]) -> UserItem:
        """The message of the turn that carries these out."""
        dry_run = self._session.agent_session.parts.dry_run
        if dry_run is None:
            raise ConfigError("this session is no dry run any more: /dry-run on continues it")
        dry_run.player = CallPlayer(chosen)
        return to_user_item(format_message(self.list_effects(), chosen))


class DryRunReport(BaseObserver):
    """Names the calls that a turn has recorded."""

    kinds = frozenset({TurnFinished})

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._count = 0

    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, ToolResultItem) and item.data and DRY_RUN_KEY in item.data:
            self._count += 1

    def on_event(self, event: Event) -> None:
        count, self._count = self._count, 0
        if count:
            self._notify(
                f"dry run: {plural(count, 'call')} recorded, nothing is changed; /apply shows "
                "them, and carries them out"
            )
