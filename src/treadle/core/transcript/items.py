"""The parts of a transcript, in the order in which they happened.

    UserItem        what a person said
    AssistantItem   one whole reply of a model, with its calls
    ToolResultItem  the one answer to one call
    NoticeItem      what the engine tells the model (a reminder, a finished task)
    SummaryItem     what stands for older items after a compaction

Values only. Which sequences are legal is said by integrity.py; what follows one, by pending.py.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    ResultContent,
    Text,
    ToolCall,
    UserContent,
    fix_surrogates,
)
from treadle.core.transcript.usage import Usage

StopReason = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "pause", "refusal", "context", "aborted"
]

# What a notice does to the next move: lets the model speak, ends the turn, or changes nothing.
NoticeEffect = Literal["ask", "rest", "same"]

# What became of a call. finished: the tool ran to its end, with or without an error.
# denied: it did not run. interrupted: it was stopped. unknown: it may have had its effect.
# recovered: an earlier process had carried it out, and a probe confirmed it.
CallOutcome = Literal["finished", "denied", "interrupted", "unknown", "recovered"]


class UserItem(msgspec.Struct, frozen=True, tag="user", omit_defaults=True, dict=True):
    """A person's message. `steered` marks one that came while the agent was working."""

    content: tuple[UserContent, ...]
    steered: bool = False

    @property
    def text(self) -> str:
        return _join_text(self.content)


class AssistantItem(msgspec.Struct, frozen=True, tag="assistant", omit_defaults=True, dict=True):
    """One reply of a model, whole. `stop` says why it ended, `model` who spoke."""

    content: tuple[AssistantContent, ...]
    stop: StopReason = "end_turn"
    model: str = ""
    usage: Usage = Usage()
    response_id: str = ""

    @property
    def text(self) -> str:
        return _join_text(self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.content if type(part) is ToolCall])


class ToolResultItem(msgspec.Struct, frozen=True, tag="tool_result", omit_defaults=True, dict=True):
    """The answer to one call. `content` is for the model, `display` for the person.

    `total_chars` is the length before it was cut; `full_output` names where all of it is.
    `data` holds facts for programs (a task id, a working directory); no model sees it.
    """

    call_id: str
    name: str
    content: tuple[ResultContent, ...]
    is_error: bool = False
    is_truncated: bool = False
    total_chars: int = 0
    display: str = ""
    full_output: str = ""
    outcome: CallOutcome = "finished"
    data: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return _join_text(self.content)


class NoticeItem(msgspec.Struct, frozen=True, tag="notice", omit_defaults=True, dict=True):
    """Something the engine tells the model. `kind` and `data` are for programs."""

    text: str
    kind: str = "notice"
    next_move: NoticeEffect = msgspec.field(default="same", name="then")
    data: dict[str, Any] | None = None


class SummaryItem(msgspec.Struct, frozen=True, tag="summary", omit_defaults=True, dict=True):
    """Stands for `replaces` older items, which stay in the log."""

    text: str
    replaces: int = 0


Item = UserItem | AssistantItem | ToolResultItem | NoticeItem | SummaryItem


def to_user_item(user_input: str | UserItem | UserContent | tuple[UserContent, ...]) -> UserItem:
    """What a caller may give as input, as an item."""
    if isinstance(user_input, str):
        return UserItem((Text(fix_surrogates(user_input)),))
    if isinstance(user_input, (Text, Image, Document)):
        user_input = (user_input,)
    if not isinstance(user_input, UserItem):
        user_input = UserItem(tuple(user_input))
    content = tuple(
        [
            Text(fix_surrogates(part.text)) if type(part) is Text else part
            for part in user_input.content
        ]
    )
    return (
        user_input
        if content == user_input.content
        else msgspec.structs.replace(user_input, content=content)
    )


def _join_text(content: tuple[AssistantContent | ResultContent, ...]) -> str:
    if len(content) == 1 and type(content[0]) is Text:
        return content[0].text
    return "".join([part.text for part in content if type(part) is Text])
