"""The next move, read off the transcript: the pure heart of the loop.

    last item                             move
    -----------------------------------   -------------------------------------------
    none                                  AwaitInput
    user, summary                         AskModel
    assistant with unanswered calls       RunTools(those calls)
    assistant that paused                 AskModel
    assistant otherwise                   Rest(reply)
    the last result of a round            AskModel
    notice                                as it says: ask, rest, or look before it

Because nothing else is consulted, a crash cannot lose the loop's place.
"""

from __future__ import annotations

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.transcript import Transcript


class AwaitInput(msgspec.Struct, frozen=True):
    """Nothing to do until somebody speaks."""


class AskModel(msgspec.Struct, frozen=True):
    """The model has the word."""


class RunTools(msgspec.Struct, frozen=True):
    """These calls of the last reply have no answer yet, in the model's order."""

    calls: tuple[ToolCall, ...]


class Rest(msgspec.Struct, frozen=True):
    """The model has answered and called for nothing."""

    reply: AssistantItem | None


Move = AwaitInput | AskModel | RunTools | Rest


def pending(transcript: Transcript) -> Move:
    """What comes next."""
    answered: set[str] = set()
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if type(item) is ToolResultItem:
            answered.add(item.call_id)
        elif type(item) is AssistantItem:
            return _move_after_reply(item, answered)
        elif type(item) is NoticeItem:
            if item.next_move == "ask":
                return AskModel()
            if item.next_move == "rest":
                return Rest(last_reply(transcript))
        elif type(item) is UserItem or type(item) is SummaryItem:
            return AskModel()
    return AwaitInput()


def _move_after_reply(reply: AssistantItem, answered: set[str]) -> Move:
    calls = reply.calls
    if not calls:
        return AskModel() if reply.stop == "pause" else Rest(reply)
    still_open = tuple([call for call in calls if call.id not in answered])
    return RunTools(still_open) if still_open else AskModel()


def last_reply(transcript: Transcript) -> AssistantItem | None:
    """The newest thing the model said, if it has spoken."""
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if type(item) is AssistantItem:
            return item
    return None
