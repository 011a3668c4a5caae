"""The next move of the loop, as a pure function of the transcript.

    last item                             move
    -----------------------------------   -------------------------------------------
    none                                  AwaitInput
    user, summary                         AskModel
    assistant with open calls             RunTools(those calls)
    assistant that paused                 AskModel
    assistant otherwise                   Rest(reply)
    the last result of a round            AskModel
    notice                                its `next_move`: ask, rest, or that of the item before

The move depends on nothing else, so a crash cannot lose the position of the loop.
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
    """The loop waits for input of the user."""


class AskModel(msgspec.Struct, frozen=True):
    """The next step is a model call."""


class RunTools(msgspec.Struct, frozen=True):
    """These calls of the last reply have no result yet, in the model's order."""

    calls: tuple[ToolCall, ...]


class Rest(msgspec.Struct, frozen=True):
    """The last reply has no calls: the turn can end."""

    reply: AssistantItem | None


Move = AwaitInput | AskModel | RunTools | Rest


def pending(transcript: Transcript) -> Move:
    """The next move."""
    answered: set[str] = set()
    for item in reversed(transcript):
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
    """The last reply of the model, if there is one."""
    for item in reversed(transcript):
        if type(item) is AssistantItem:
            return item
    return None
