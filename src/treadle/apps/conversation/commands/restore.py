"""`/undo`, `/redo` and `/rewind`: which files are restored is asked where they may be the user's.

What happens to files is session/file_undo.py.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec.json import encode

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import CommandAnswer, Question, ScreenChange
from treadle.apps.conversation.session.file_undo import RestoreAction, normalize_paths
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.saved_sessions import TurnLine
from treadle.apps.conversation.undo import FileChange, describe_changes, join_paths
from treadle.core.errors import ConfigError, SessionNotFound, TreadleError
from treadle.core.transcript.items import to_user_item
from treadle.lib.text.text import format_age, plural

if TYPE_CHECKING:
    from treadle.tools.undo import UndoStep

NOTHING_CHANGED = "nothing was changed"
UNDO_EFFECTS = """\
Take back what the last turn did: make exactly these calls, in this order, one at a time. Stop at \
the first that fails, and say which were done.

{calls}"""
REWIND_TITLE = "Rewind to before this message"
_REWIND_SCOPES = (
    ChoiceOption("both", "Conversation and files", key="b"),
    ChoiceOption("conversation", "Conversation only", key="c"),
)


async def run_undo(session: HostedSession, arguments: str) -> CommandAnswer:
    try:
        return await _restore(session, "undo", arguments)
    except TreadleError as error:
        effects = await _describe_effects(session)
        if not effects:
            raise
        return CommandAnswer(f"{error}\n{effects}")


async def run_redo(session: HostedSession, arguments: str) -> CommandAnswer:
    return await _restore(session, "redo", arguments)


async def run_effects(session: HostedSession, arguments: str) -> CommandAnswer:
    """`/effects` lists what the last turn did beyond files; `/effects undo` lets the model make the
    calls that take it back, which are decided on like any other."""
    if arguments not in ("", "undo"):
        raise ConfigError("usage: /effects lists them, /effects undo takes them back")
    steps = await _list_effects(session)
    calls = [
        f"{one.tool} {encode(one.arguments).decode()}"
        for one in steps
        if one.tool and one.tries.state != "unknown"
    ]
    if arguments == "undo" and calls:
        return CommandAnswer(message=to_user_item(UNDO_EFFECTS.format(calls="\n".join(calls))))
    if not steps:
        return CommandAnswer("no turn had effects beyond files")
    return CommandAnswer(_format_effects(steps))


async def _list_effects(session: HostedSession) -> list[UndoStep]:
    from treadle.sessions.log.journal import read_entries
    from treadle.tools.undo import plan_undo

    try:
        entries = read_entries(await session.flush())
    except SessionNotFound:  # it is on disk from its first message on
        entries = []
    return plan_undo(entries, session.agent_session.agent.config.source.tools())


def _format_effects(steps: Sequence[UndoStep]) -> str:
    lines = [
        f"{one.summary} by {one.describe_inverse()}" if one.tool else f"{one.summary}: {one.reason}"
        for one in steps
    ]
    can_undo = any(one.tool for one in steps)
    end = "/effects undo takes back what can be" if can_undo else "nothing can be taken back"
    return "\n".join([*lines, end])


async def _describe_effects(session: HostedSession) -> str:
    """What `/undo` leaves, since it is no file, and could be taken back; "" if there is nothing."""
    steps = [one for one in await _list_effects(session) if one.tool]
    return f"done beyond files, and still there:\n{_format_effects(steps)}" if steps else ""


async def _restore(session: HostedSession, action: RestoreAction, path: str) -> CommandAnswer:
    named = normalize_paths([path] if path else [])
    try:
        title, changes = await session.undo.preview(action, named)
    except SessionNotFound:  # it is on disk from its first message on
        return CommandAnswer(f"nothing to {action} yet: this session is new")
    unnamed = [change for change in changes if change.path not in named]
    asked = [one for one in unnamed if one.is_doubtful or one.author == "both"]

    async def run(include: Collection[str]) -> CommandAnswer:
        done = await session.undo.run(action, include)
        effects = await _describe_effects(session) if action == "undo" else ""
        return CommandAnswer("\n".join(filter(None, (done, effects))))

    async def run_marked(include: Collection[str]) -> CommandAnswer:
        if not any(one.author == "agent" or one.path in include for one in changes):
            return CommandAnswer(f"no file was changed: select the files to {action}")
        return await run(include)

    async def run_for_authors(authors: str) -> CommandAnswer:
        if not authors:
            return CommandAnswer(NOTHING_CHANGED)
        include = [change.path for change in asked if change.author in authors.split()]
        return await run([*named, *include])

    options = _list_restore_options(action, unnamed)
    is_skippable = not named and all(one.author in ("both", "user") for one in changes)
    if asked:
        title = f"{title}: {_name_authors(asked)}"
    else:
        label = _capitalize(describe_changes([one for one in changes if one.author != "user"]))
        options = [ChoiceOption("agent", label, key="y"), ChoiceOption("", "No", key="n")]
    return CommandAnswer(
        question=Question(
            title,
            options,
            run_for_authors,
            changes=changes,
            included=named,
            restore=run_marked,
            restore_label=action.capitalize(),
            beside_files=[ChoiceOption("agent", "Skip this turn")] if is_skippable else (),
            default="" if asked else "agent",
        )
    )


def _list_restore_options(
    action: RestoreAction, changes: Sequence[FileChange]
) -> list[ChoiceOption]:
    """Which files an undo or redo restores: values are authors, separated by spaces. The first one
    changes nothing: files of the user are concerned. If there are no others, it counts as done."""
    both = [change for change in changes if change.author == "both"]
    doubtful = [change for change in changes if change.is_doubtful]
    agent = [change for change in changes if change.author == "agent"]
    options = [ChoiceOption("", "Change nothing", key="n")]
    if not (doubtful or agent):
        label = f"Change nothing; the next /{action} goes on to another turn"
        options = [ChoiceOption("agent", label, key="n")]
    if doubtful:
        label = _capitalize(describe_changes([*agent, *doubtful]))
        options.append(ChoiceOption("agent unknown", label, key="y"))
    if agent:
        label = f"Only what the agent changed: {describe_changes(agent)}"
        options.append(ChoiceOption("agent", label, key="o"))
    if both:
        label = _capitalize(_name_users_changes(both))
        options.append(ChoiceOption("agent unknown both", label, key="a"))
    return options


def _name_authors(changes: Sequence[FileChange]) -> str:
    """`you changed a.txt since; who changed b.txt is not known`."""
    both = [change.path for change in changes if change.author == "both"]
    doubtful = [change.path for change in changes if change.is_doubtful]
    parts = [f"you changed {join_paths(both)} since"] if both else []
    parts += [f"who changed {join_paths(doubtful)} is not known"] if doubtful else []
    return "; ".join(parts)


def _name_users_changes(changes: Sequence[FileChange]) -> str:
    contain = "it contains" if len(changes) == 1 else "they contain"
    return f"{describe_changes(changes)} too ({contain} your changes)"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------ rewind


async def run_rewind(session: HostedSession, arguments: str) -> CommandAnswer:
    try:
        listed = session.saved.list_turns()
    except SessionNotFound:
        return CommandAnswer("nothing to rewind yet: this session is new")
    turns = {turn.turn_id: turn for turn in reversed(listed)}
    if not turns:
        return CommandAnswer("there is no turn to rewind to")

    async def preview(turn_id: str) -> Sequence[str | FileChange]:
        return await _preview_files(session, turns[turn_id]) or ["no file would change"]

    async def ask_about_files(turn_id: str) -> CommandAnswer:
        return await _ask_scope(session, turns[turn_id])

    now, options = time.time(), list[ChoiceOption]()
    for turn in turns.values():
        label = " ".join(turn.text.split())[:200] or "(continued without a message)"
        options.append(ChoiceOption(turn.turn_id, label, format_age(now - turn.time)))
    question = Question(REWIND_TITLE, options, ask_about_files, is_filterable=True, preview=preview)
    return CommandAnswer(question=question)


async def _ask_scope(session: HostedSession, turn: TurnLine) -> CommandAnswer:
    changes = await _preview_files(session, turn)
    doubtful = [change.path for change in changes if change.is_doubtful]
    both = [change.path for change in changes if change.author == "both"]
    restored = [change for change in changes if change.is_doubtful or change.author == "agent"]

    async def rewind(include: Collection[str] | None) -> CommandAnswer:
        summary = await session.undo.rewind(turn.turn_id, include)
        files = f"; files: {summary}" if summary else ""
        note = f"rewound to before turn {turn.number}{files}"
        return CommandAnswer(note, screen=ScreenChange("prompt", turn.text))

    async def rewind_scope(scope: str) -> CommandAnswer:
        included = [*doubtful, *both] if scope == "all" else doubtful
        return await rewind(None if scope == "conversation" else included)

    return CommandAnswer(
        question=Question(
            f"{plural(len(restored), 'file')} would change" if changes else REWIND_TITLE,
            _list_rewind_scopes(changes),
            rewind_scope,
            changes=changes,
            restore=rewind,
            restore_label=_REWIND_SCOPES[0].label,
            beside_files=_REWIND_SCOPES[1:],
            default="" if restored or both else "conversation",
        )
    )


def _list_rewind_scopes(changes: Sequence[FileChange]) -> tuple[ChoiceOption, ...]:
    """With a choice for the files that the agent and then the user changed, by their names. What
    changes no file of the user comes first."""
    both = [change for change in changes if change.author == "both"]
    may_be_users = any(change.is_doubtful for change in changes)
    scopes = _REWIND_SCOPES[::-1] if both or may_be_users else _REWIND_SCOPES
    if not both:
        return scopes
    label = f"Conversation and files, and {_name_users_changes(both)}"
    return (*scopes, ChoiceOption("all", label, key="a"))


async def _preview_files(session: HostedSession, turn: TurnLine) -> list[FileChange]:
    try:
        return await session.undo.preview_rewind(turn.turn_id) if turn.has_files else []
    except TreadleError:
        return []
