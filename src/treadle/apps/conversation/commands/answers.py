"""What a slash command answers: a note, a question, a message to the model, a change of screen.

Values that every host shows in its own way. table.py has the commands that make them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Literal

import msgspec

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.state.blocks import Tone
from treadle.apps.conversation.undo import FileChange
from treadle.core.errors import TreadleError
from treadle.core.transcript.items import UserItem

ScreenName = Literal[
    "agents",  # those at work, as a list to choose from
    "changed-settings",
    "context",
    "export",  # the session as a file
    "help",
    "limits",
    "panel",  # Markdown, until the user closes it
    "permissions",
    "prompt",  # a text for the user to edit
    "queue",
    "quit",
    "review",  # the changes of a scope (change_review.py), by file and hunk
    "servers",
    "session",  # another one: see `resume` and `fork`
    "settings",
    "theme",
    "tour",
    "vim",
    "watch",  # an agent at work, by its key; "" ends it
]


async def _end(value: str) -> CommandAnswer:
    return CommandAnswer()


class Question(msgspec.Struct, frozen=True):
    """A choice of the user; `then` gets its value. Closed without a choice, the command ends.

    `message` is shown above the options, `current` is the value to start at. `changes` are the
    files that the choice is about: a host where the user can mark files one by one calls
    `restore` (`restore_label`) with the marked ones instead, or `then` with one of `beside_files`;
    `included` are marked at first. `default`: what a host may take without asking. `preview`: lines
    about an option. `by_user`: the user opened it. `takes_text`: a text that the user sends answers
    it, too. `closed`: what closing it means. `expires`
    returns when the question has lost its sense, with a note about it.
    """

    title: str
    options: Sequence[ChoiceOption]
    then: Callable[[str], Awaitable[CommandAnswer]] = _end
    message: str = ""
    current: str = ""
    is_filterable: bool = False
    by_user: bool = True
    takes_text: bool = False
    default: str = ""
    closed: str | None = None
    changes: Sequence[FileChange] = ()
    included: Collection[str] = ()
    restore: Callable[[Collection[str]], Awaitable[CommandAnswer]] | None = None
    restore_label: str = ""
    beside_files: Sequence[ChoiceOption] = ()
    preview: Callable[[str], Awaitable[Sequence[str | FileChange]]] | None = None
    expires: Callable[[], Awaitable[str]] | None = None


class ScreenChange(msgspec.Struct, frozen=True):
    """A host without such a screen shows the note of the answer. For `session`: a new one, one to
    `resume`, or a fork of it; `folder` is that of a new one, "" for the same."""

    name: ScreenName
    value: str = ""
    title: str = ""
    note: str = ""
    resume: str | None = None
    fork: bool = False
    folder: str = ""
    rows: Sequence[tuple[str, str]] = ()


class CommandAnswer(msgspec.Struct, frozen=True):
    """`is_table`: the note is more than a few lines, in columns; `is_markdown`: it is a document.
    `message` is for the model."""

    note: str = ""
    tone: Tone = "plain"
    is_table: bool = False
    is_markdown: bool = False
    question: Question | None = None
    message: UserItem | None = None
    screen: ScreenChange | None = None


Chooser = Callable[[Question], Awaitable[str | None]]


async def ask_questions(answer: CommandAnswer, choose: Chooser) -> CommandAnswer | None:
    """The answer after its questions; None if the user closed one."""
    while answer.question is not None:
        question = answer.question
        chosen = await choose(question)
        chosen = question.closed if chosen is None else chosen
        if chosen is None:
            return None
        answer = await catch_errors(question.then(chosen))
    return answer


async def catch_errors(
    running: Awaitable[CommandAnswer], name: str = "the command"
) -> CommandAnswer:
    """The answer of a command; what it raises is an answer, too."""
    try:
        return await running
    except (TreadleError, OSError, ValueError) as error:
        return CommandAnswer(str(error), "error")
    except Exception as error:  # noqa: BLE001 - a fault in a command does not end the session
        return CommandAnswer(f"{name} failed: {type(error).__name__}: {error}", "error")
