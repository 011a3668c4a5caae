"""The items of a transcript.

    UserItem        a message of the user
    AssistantItem   one complete reply of a model, with its calls
    ToolResultItem  the result of one call
    NoticeItem      a text from the engine to the model (a reminder, a finished task)
    SummaryItem     replaces older items after a compaction

Values only. integrity.py says which sequences are valid, pending.py what the next move is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
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
    check_files,
    check_parts,
)
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import fix_surrogates

StopReason = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "pause", "refusal", "context", "aborted"
]

# The next move after a notice: a model call, the end of the turn, or the same move as without it.
NoticeEffect = Literal["ask", "rest", "same"]

# How a call ended. finished: the tool returned or failed. denied: it did not run. interrupted: it
# was cancelled. unknown: it may or may not have had its effect. recovered: an earlier process ran
# it, and a probe confirmed the effect.
CallOutcome = Literal["finished", "denied", "interrupted", "unknown", "recovered"]


Metadata = Mapping[str, str | int | float | bool]
CALL_KEY = "task_call"  # in the metadata of a message to a child agent: the call that sent it

# What the engine itself tells in `TurnResult.metadata`; a caller cannot use these names.
ENGINE_METADATA = frozenset(
    {
        "blocked",
        "detail",
        "interrupt_reason",
        "interrupted",
        "paused",
        "stop_hook",
        "truncated",
    }
)


class UserItem(msgspec.Struct, frozen=True, tag="user", omit_defaults=True, dict=True):
    """A message of the user. `steered`: it arrived while the agent was working. `metadata` is the
    caller's own, for the turn that answers the message; no model reads it."""

    content: tuple[UserContent, ...]
    steered: bool = False
    metadata: Metadata | None = None

    def __post_init__(self) -> None:
        if type(self.content) is not tuple:
            check_parts(self.content)  # raises
        if self.metadata:
            check_metadata(self.metadata)

    @property
    def text(self) -> str:
        return join_text(self.content)

    @property
    def first_text(self) -> str:
        """What the user wrote; the texts after it are attachments."""
        return next((part.text for part in self.content if isinstance(part, Text)), "")


class AssistantItem(msgspec.Struct, frozen=True, tag="assistant", omit_defaults=True, dict=True):
    """One complete reply of a model. `stop` is the reason for its end, `model` its name.

    `refusal_reason`: why it is a refusal, in the provider's own word (SAFETY, a category, cyber).
    """

    content: tuple[AssistantContent, ...]
    stop: StopReason = "end_turn"
    model: str = ""
    usage: Usage = Usage()
    response_id: str = ""
    refusal_reason: str = ""

    @property
    def text(self) -> str:
        return join_text(self.content)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        kept: tuple[ToolCall, ...] | None = self.__dict__.get("calls")
        if kept is None:
            kept = tuple([part for part in self.content if type(part) is ToolCall])
            self.__dict__["calls"] = kept
        return kept


# What a note of the engine is about: arguments that the user edited or the engine corrected, or an
# output that was cut.
NoteKind = Literal["edited", "truncated", "corrected"]


class ResultNote(msgspec.Struct, frozen=True, gc=False):
    """What the engine tells the model about a call, with its result."""

    kind: NoteKind
    text: str


class ToolResultItem(msgspec.Struct, frozen=True, tag="tool_result", omit_defaults=True, dict=True):
    """The answer to one call. `content` is the tool's, for the model; `display` is for the person.

    `total_chars` is the length before it was cut; `full_output` names where all of it is.
    `data` holds facts for programs (a task id, a working directory); no model sees it.
    `notes` are the engine's own words, which the model reads with the content (`model_parts`); old
    logs have them in the content.
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
    notes: tuple[ResultNote, ...] = ()

    @property
    def text(self) -> str:
        return join_text(self.content)

    @property
    def model_parts(self) -> list[tuple[int, ResultContent]]:
        """What a model reads: each part of the content with its number, and the notes."""
        return _add_notes(self.content, self.notes)

    @property
    def model_text(self) -> str:
        return self._join_with(self.notes)

    @property
    def user_text(self) -> str:
        """The text for a person, who knows about the arguments: only a cut is told."""
        if not self.notes:
            return self.text
        return self._join_with([note for note in self.notes if note.kind == "truncated"])

    def _join_with(self, notes: Sequence[ResultNote]) -> str:
        if not notes:
            return self.text
        return join_text(tuple([part for _, part in _add_notes(self.content, notes)]))

    @property
    def edited_arguments(self) -> str | None:
        """The arguments of the run as JSON, if the user edited those of the model."""
        approval = (self.data or {}).get("approval")
        edited = approval.get("edited") if isinstance(approval, dict) else None
        return edited if isinstance(edited, str) else None


class NoticeItem(msgspec.Struct, frozen=True, tag="notice", omit_defaults=True, dict=True):
    """A text from the engine to the model. `kind` and `data` are for programs."""

    text: str
    kind: str = "notice"
    next_move: NoticeEffect = msgspec.field(default="same", name="then")
    data: dict[str, Any] | None = None


class SummaryItem(msgspec.Struct, frozen=True, tag="summary", omit_defaults=True, dict=True):
    """Replaces `replaces` older items, which stay in the log."""

    text: str
    replaces: int = 0


Item = UserItem | AssistantItem | ToolResultItem | NoticeItem | SummaryItem


def to_user_item(
    user_input: str | UserItem | UserContent | Sequence[str | UserContent],
    metadata: Metadata | None = None,
) -> UserItem:
    """Convert the input of a caller to an item. TypeError if it is none."""
    if metadata:
        check_metadata(metadata)
        own = {fix_surrogates(key): _to_plain(value) for key, value in metadata.items()}
        _check_names(own)
        return msgspec.structs.replace(to_user_item(user_input), metadata=own)
    if isinstance(user_input, str):
        return UserItem((Text(fix_surrogates(user_input)),))
    if isinstance(user_input, (Text, Image, Document)):
        user_input = (user_input,)
    if not isinstance(user_input, UserItem):
        given: object = user_input
        if not isinstance(given, Iterable) or isinstance(given, (Mapping, bytes)):
            raise TypeError(
                "a prompt is a text, or a list of texts, images and documents; got "
                f"{given!r:.80}. Earlier messages are given as `history`"
            )
        parts = [Text(part) if isinstance(part, str) else part for part in user_input]
        user_input = UserItem(tuple(parts))
    content = user_input.content
    check_parts(content)
    check_files(content)
    _check_names(user_input.metadata or {})
    fixed = tuple([Text(fix_surrogates(p.text)) if type(p) is Text else p for p in content])
    return user_input if fixed == content else msgspec.structs.replace(user_input, content=fixed)


def check_items(items: Sequence[object]) -> None:
    """TypeError if one of these is no item, or has content of another kind."""
    for index, item in enumerate(items):
        if not isinstance(item, Item):
            raise TypeError(
                f"[{index}] is {item!r:.80}; expected a UserItem, an AssistantItem or another item"
            )
        content: object = getattr(item, "content", ())
        try:
            if not isinstance(item, AssistantItem) or not isinstance(content, tuple):
                check_parts(content)
        except TypeError as error:
            raise TypeError(f"[{index}]: {error}") from None


def check_metadata(metadata: object) -> None:
    """TypeError if something in it could not be stored in a log."""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a dict of names and values, not {metadata!r}")
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise TypeError(f"metadata: the name {key!r} is not a text")
        if not isinstance(value, (str, int, float, bool)):
            raise TypeError(f"metadata {key!r}: {value!r} is not a text, a number or a bool")
        if isinstance(value, float) and not isfinite(value):
            raise TypeError(f"metadata {key!r}: {value!r} is not a finite number")


def _check_names(metadata: Metadata) -> None:
    if reserved := ENGINE_METADATA & metadata.keys():
        name = min(reserved)
        raise TypeError(f"metadata {name!r} is a name of the engine's own: use another one")


def _to_plain(value: str | int | float | bool) -> str | int | float | bool:
    """The value without a type of the caller's own, which a log cannot hold."""
    if isinstance(value, str):
        return fix_surrogates(str.__str__(value))
    if isinstance(value, bool):
        return value
    return float(value) if isinstance(value, float) else int(value)


def _add_notes(
    content: tuple[ResultContent, ...], notes: Sequence[ResultNote]
) -> list[tuple[int, ResultContent]]:
    """The numbered parts with the notes: about a cut where the text ends, about a correction at the
    end, about an edit before all. A part that is only a note has a number of no other part."""
    parts: list[tuple[int, ResultContent]] = list(enumerate(content))
    for note in notes:
        texts = [(at, part.text) for at, (_, part) in enumerate(parts) if type(part) is Text]
        at, text = texts[-1] if texts else (-1, "")
        if note.kind == "edited":
            parts.insert(0, (len(content), Text(note.text)))
        elif texts and (note.kind == "truncated" or at == len(parts) - 1):
            between = "" if note.kind == "truncated" else "\n"
            parts[at] = (parts[at][0], Text(f"{text}{between}{note.text}"))
        else:
            parts.append((len(content), Text(note.text)))
    return parts


def join_text(content: tuple[AssistantContent | ResultContent, ...]) -> str:
    if len(content) == 1 and type(content[0]) is Text:
        return content[0].text
    return "".join([part.text for part in content if type(part) is Text])
