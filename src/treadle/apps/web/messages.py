"""The messages between a tab and the server: what a tab asks for, and what it gets as the answer.

The changes of a session are not here: feed.py.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from treadle.apps.conversation.commands.change_review import LAST_TURN, ReviewScope
from treadle.apps.conversation.completion import Completion

PaneName = Literal["review", "settings", "permissions", "context", "servers", "memory"]


class Request(
    msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True, kw_only=True
):
    """The base of all messages from a tab; `do` says which one it is. `id` is the tab's: what comes
    again under the same one, because the connection broke, is done once. Lookups have none."""

    id: str = ""


class Send(Request, frozen=True, tag="send"):
    """A message of the user, or a command after `!`. `attachments` are ids of uploads."""

    text: str
    attachments: tuple[str, ...] = ()


class Interrupt(Request, frozen=True, tag="interrupt"):
    pass


class Resume(Request, frozen=True, tag="resume"):
    """Continue the unfinished turn."""


class Withdraw(Request, frozen=True, tag="withdraw"):
    """Take back a queued message, by its position."""

    index: int


class Answer(Request, frozen=True, tag="answer"):
    """The answer to a question: once, network, session, always, edit (with `arguments`), deny (with
    `text` as the reason), answer (with `text`), none. `session`: another one than the tab's."""

    question: int
    answer: str
    session: str = ""
    text: str = ""
    arguments: dict[str, Any] = {}


class ShowInbox(Request, frozen=True, tag="inbox"):
    """The open questions of all sessions."""


class RunCommand(Request, frozen=True, tag="command"):
    """A slash command, `/name arguments`."""

    line: str


class Complete(Request, frozen=True, tag="complete"):
    """The completions of the text before the cursor."""

    line: str


class AskForecast(Request, frozen=True, tag="forecast"):
    """The user pauses in the first message: what it would cost is among the meters then."""

    text: str


class Search(Request, frozen=True, tag="search"):
    """The sessions with this text in a message, a call or a result."""

    text: str


class StopTask(Request, frozen=True, tag="stop_task"):
    """Stop a background task."""

    task: str


class Choose(Request, frozen=True, tag="choose"):
    """The answer to the question of a command: the value of an option, or the marked files."""

    question: int
    value: str = ""
    include: tuple[str, ...] | None = None


class Earlier(Request, frozen=True, tag="earlier"):
    """The blocks before the first one that the tab has."""

    first: int


class OpenPane(Request, frozen=True, tag="pane"):
    """A pane in place of the conversation (panes.py). `part` says what of it is shown."""

    name: PaneName
    part: str = ""


class RunInPane(Request, frozen=True, tag="pane_command"):
    """A slash command that changes what a pane shows; the answer is the pane with its note."""

    name: PaneName
    line: str


class DropHunk(Request, frozen=True, tag="drop_hunk"):
    """Take back one hunk of a review: that with this key, of several the one with this number."""

    scope: ReviewScope
    key: str
    number: int = 0
    turn: int = LAST_TURN


AnyRequest = (
    Send
    | Interrupt
    | Resume
    | Withdraw
    | Answer
    | ShowInbox
    | RunCommand
    | Complete
    | AskForecast
    | Search
    | StopTask
    | Choose
    | Earlier
    | OpenPane
    | RunInPane
    | DropHunk
)


class TabReply(msgspec.Struct, frozen=True, tag_field="kind"):
    """The base of what a tab gets beside the changes of its session."""


class ShowDialog(TabReply, frozen=True, tag="dialog"):
    html: str


class ShowPane(TabReply, frozen=True, tag="pane"):
    """`note` is a line about what was done."""

    name: PaneName
    part: str
    html: str
    note: str = ""


class ShowMessage(TabReply, frozen=True, tag="message"):
    text: str


class FillPrompt(TabReply, frozen=True, tag="prompt"):
    """A text that belongs into the prompt: a message that was taken back."""

    text: str


class GoTo(TabReply, frozen=True, tag="go"):
    """Show another session. `is_replacement`: the one that the tab shows is gone; what the user
    wrote there goes along."""

    session: str
    is_replacement: bool = False


class Download(TabReply, frozen=True, tag="download"):
    """Load a file from this address of the server."""

    address: str


class Completions(TabReply, frozen=True, tag="completions"):
    """What the line that was asked about can become."""

    line: str
    found: list[Completion]


class SearchResult(TabReply, frozen=True, tag="found"):
    text: str
    html: str


class EarlierBlocks(TabReply, frozen=True, tag="earlier"):
    first: int
    blocks: list[tuple[int, str]]


class Received(TabReply, frozen=True, tag="received"):
    """The message with this id has arrived and will not be lost."""

    id: str


class ListUpdate(TabReply, frozen=True, tag="list"):
    """The list of sessions, and how many of them wait for the user. Sent whenever it changes."""

    html: str
    waiting: int


class Alive(TabReply, frozen=True, tag="alive"):
    """The server is there: sent when nothing else was for a while."""


class Problem(TabReply, frozen=True, tag="problem"):
    """What the tab asked for could not be done. `request` is what it was; "open": the session."""

    text: str
    request: str = ""
    id: str = ""
