"""Slash commands about sessions: another one, a copy, a file; its history, its queued messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import CommandAnswer, Question, ScreenChange
from treadle.apps.conversation.conversation import wait_for_queue_change
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.undo import FileChange
from treadle.core.errors import SessionInOtherFolder, SessionNotFound, TreadleError
from treadle.core.transcript.items import UserItem
from treadle.lib.text.text import format_age, plural
from treadle.sessions.summaries import STATE_LABELS

MAX_LABEL_CHARS = 300
NO_OTHER = "there is no other session in this folder"
NO_MESSAGE = "no message is queued"
QUEUE_CHANGED = "the queue has changed, so its list was closed"
_QUEUE_ACTIONS = (
    ChoiceOption("edit", "Edit", key="e"),
    ChoiceOption("remove", "Remove", key="r"),
    ChoiceOption("earlier", "Move up", key="u"),
    ChoiceOption("later", "Move down", key="d"),
)


async def run_clear(session: HostedSession, arguments: str) -> CommandAnswer:
    return CommandAnswer(screen=ScreenChange("session", folder=arguments))


async def run_resume(session: HostedSession, arguments: str) -> CommandAnswer:
    named = await asyncio.to_thread(_find_id, session, arguments) if arguments else ""
    if named:
        return CommandAnswer(screen=ScreenChange("session", resume=named))
    question = ask_for_session(
        session, "Resume a session", without=session.driver.session_id, words=arguments
    )
    missing = f"has {arguments!r} in its title; `treadle sessions search` searches the texts"
    none = f"no other session of this folder {missing}" if arguments else NO_OTHER
    return question or CommandAnswer(none, "warning" if arguments else "plain")


def _find_id(session: HostedSession, name: str) -> str:
    """The session that is meant by an id or by words; "" if there are several, or none."""
    try:
        return session.library.find(name, folder=session.folder, by_words=True).name
    except SessionInOtherFolder:
        raise
    except SessionNotFound:
        return ""


async def run_rename(session: HostedSession, arguments: str) -> CommandAnswer:
    name = session.saved.name
    if not arguments:
        named = f"this session is named {name!r}" if name else "this session has no name"
        return CommandAnswer(f"{named}; /rename NAME gives it one")
    session.saved.rename(arguments)
    return CommandAnswer(f"this session is named {session.saved.name!r}")


def ask_for_session(
    session: HostedSession, title: str, *, without: str = "", words: str = ""
) -> CommandAnswer | None:
    """The sessions of the folder, last used first, of these words; None if there is none."""
    now, options = time.time(), list[ChoiceOption]()
    for one in session.saved.list_sessions(words=words):
        if one.id != without:
            age, turns = format_age(now - one.updated), plural(one.turns, "turn")
            kind = "treadle -p · " if one.is_run else ""
            state = STATE_LABELS.get(one.state, one.state)
            description = f"{kind}{age} · {turns} · {state} · {one.id}"
            options.append(ChoiceOption(one.id, one.title or "(no messages)", description))

    async def preview(session_id: str) -> Sequence[str | FileChange]:
        try:
            return [*await session.saved.preview(session_id), ""]
        except (TreadleError, OSError) as error:
            return [f"no preview: {error}", ""]

    async def resume(session_id: str) -> CommandAnswer:
        return CommandAnswer(screen=ScreenChange("session", resume=session_id))

    if not options:
        return None
    return CommandAnswer(
        question=Question(title, options, resume, is_filterable=True, preview=preview)
    )


async def run_fork(session: HostedSession, arguments: str) -> CommandAnswer:
    forked = arguments or session.driver.session_id
    if not arguments and not len(session.driver.history):
        return CommandAnswer("this session is empty: there is nothing to fork", "warning")
    note = f"this session is a fork of {forked}, which stays unchanged"
    return CommandAnswer(note, screen=ScreenChange("session", resume=forked, fork=True))


async def run_compact(session: HostedSession, arguments: str) -> CommandAnswer:
    if await session.require_conversation().compact(arguments):
        return CommandAnswer()  # the compaction itself tells what it did
    return CommandAnswer("nothing was compacted")  # a note says why


async def run_uncompact(session: HostedSession, arguments: str) -> CommandAnswer:
    when = "again" if session.require_conversation().uncompact() else "already"
    return CommandAnswer(f"the model sees the whole history {when}")


async def run_export(session: HostedSession, arguments: str) -> CommandAnswer:
    if not len(session.driver.history):
        return CommandAnswer("this session is empty: there is nothing to export", "warning")
    return CommandAnswer(screen=ScreenChange("export", arguments))


# ------------------------------------------------------------------ queued messages


async def run_queue(session: HostedSession, arguments: str) -> CommandAnswer:
    """Questions with numbered answers; the full screen has a list with keys of its own."""
    conversation = session.require_conversation()
    queued = conversation.list_queued()
    if not queued:
        return CommandAnswer(NO_MESSAGE)

    async def expire() -> str:
        await wait_for_queue_change(conversation)
        return QUEUE_CHANGED

    async def choose_action(position: str) -> CommandAnswer:
        item = queued[int(position)]
        title = "What to do with this message?"
        return CommandAnswer(
            question=Question(
                title, _QUEUE_ACTIONS, lambda action: change(item, action), expires=expire
            )
        )

    async def change(item: UserItem, action: str) -> CommandAnswer:
        if action in ("earlier", "later"):
            conversation.move_queued(item, -1 if action == "earlier" else 1)
        elif conversation.withdraw(item) and action == "edit":
            session.callbacks.return_messages([item])
        return CommandAnswer()

    options = list_queued_options(queued)
    question = Question("Queued messages", options, choose_action, expires=expire)
    return CommandAnswer(question=question, screen=ScreenChange("queue"))


def list_queued_options(queued: Sequence[UserItem]) -> list[ChoiceOption]:
    """An option for each queued message; its value is the position."""
    labels = (" ".join(item.text[:MAX_LABEL_CHARS].split()) for item in queued)
    return [ChoiceOption(str(number), label or "(image)") for number, label in enumerate(labels)]
