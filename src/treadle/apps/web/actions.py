"""What a tab asks for, as messages, and what the server does about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.host import FileChange
from treadle.apps.conversation.modes import MODE_DESCRIPTIONS
from treadle.apps.web.hub import Hub
from treadle.apps.web.open_session import OpenSession
from treadle.apps.web.render.dialogs import (
    render_choices,
    render_files_dialog,
    render_rewind_dialog,
    render_trust_dialog,
)
from treadle.core.errors import ConfigError
from treadle.core.loop.driver import Driver
from treadle.core.transcript.content import UserContent
from treadle.core.transcript.items import UserItem


class Request(msgspec.Struct, frozen=True, tag_field="do", forbid_unknown_fields=True):
    """The base of all messages from a tab; `do` says which one it is."""


class Send(Request, frozen=True, tag="send"):
    """A message of the user. `id` is the tab's, so that it counts once; `attachments` are ids of
    uploads."""

    text: str
    id: str
    attachments: tuple[str, ...] = ()


class Interrupt(Request, frozen=True, tag="interrupt"):
    pass


class Resume(Request, frozen=True, tag="resume"):
    """Continue the unfinished turn."""


class Withdraw(Request, frozen=True, tag="withdraw"):
    """Take back a queued message, by its position."""

    index: int


class Answer(Request, frozen=True, tag="answer"):
    """The answer to a question: once, always, edited (with `arguments`), deny (with `text` as the
    reason), answer (with `text`), none."""

    question: int
    answer: str
    text: str = ""
    arguments: dict[str, Any] = {}


class Ask(Request, frozen=True, tag="ask"):
    """Open a dialog: mode, model, undo, redo, rewind, trust."""

    dialog: str
    turn: str = ""


class ChangeMode(Request, frozen=True, tag="mode"):
    mode: str


class ChangeModel(Request, frozen=True, tag="model"):
    model: str


class ChangeLimit(Request, frozen=True, tag="limit"):
    setting: str
    value: float | None = None


class RestoreFiles(Request, frozen=True, tag="restore"):
    """Undo or redo the changes of files; `include` are files that the user changed, too."""

    action: str
    include: tuple[str, ...] = ()


class Rewind(Request, frozen=True, tag="rewind"):
    turn: str
    files: bool = False
    include: tuple[str, ...] = ()


class Fork(Request, frozen=True, tag="fork"):
    before_turn: str | None = None


class Trust(Request, frozen=True, tag="trust"):
    """Trust the folder, and approve the programs that the dialog listed."""


class Earlier(Request, frozen=True, tag="earlier"):
    """The blocks before the first one that the tab has."""

    first: int


AnyRequest = (
    Send
    | Interrupt
    | Resume
    | Withdraw
    | Answer
    | Ask
    | ChangeMode
    | ChangeModel
    | ChangeLimit
    | RestoreFiles
    | Rewind
    | Fork
    | Trust
    | Earlier
)


class Reply(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """The base of what a tab gets as the answer to its request."""


class ShowDialog(Reply, frozen=True, tag="dialog"):
    html: str


class ShowMessage(Reply, frozen=True, tag="message"):
    text: str


class FillPrompt(Reply, frozen=True, tag="prompt"):
    """A text that belongs into the prompt: a message that was taken back."""

    text: str


class GoTo(Reply, frozen=True, tag="go"):
    """Show another session. `is_replacement`: the one that the tab shows is gone; what the user
    wrote there goes along."""

    session: str
    is_replacement: bool = False


class EarlierBlocks(Reply, frozen=True, tag="earlier"):
    first: int
    blocks: list[tuple[int, str]]


class Received(Reply, frozen=True, tag="received"):
    """The message with this id has arrived and will not be lost."""

    id: str


async def run_request(
    request: AnyRequest, hub: Hub, session: OpenSession, uploads: dict[str, UserContent]
) -> Reply | None:
    """Do what a tab asks for. Problems are TreadleErrors with a message for the user."""
    conversation, host = session.conversation, session.host
    match request:
        case Send():
            return _send(request, session, uploads)
        case Interrupt():
            session.interrupt()
            text, session.returned_text = session.returned_text, ""
            return FillPrompt(text) if text else None
        case Resume():
            conversation.resume()
        case Withdraw(index=index):
            queued = conversation.list_queued()
            if 0 <= index < len(queued) and conversation.withdraw(queued[index]):
                return FillPrompt(queued[index].text)
        case Answer():
            return _answer(request, session)
        case Ask():
            return await _open_dialog(request, session)
        case ChangeMode(mode=mode):
            host.change_mode(mode)
            session.refresh_facts()
        case ChangeModel(model=name):
            await _reopen_idle(session, lambda: host.change_model(name))
        case ChangeLimit(setting=setting, value=value):
            await _reopen_idle(session, lambda: host.change_limit(setting, value))
        case RestoreFiles(action=action, include=include):
            restore = host.redo if action == "redo" else host.undo
            return ShowMessage(await restore(include))
        case Rewind():
            return await _rewind(request, session)
        case Fork(before_turn=turn):
            return GoTo((await hub.fork(session.session_id, turn)).session_id)
        case Trust():
            host.trust()
            host.approve_programs()
            await _reopen_idle(session, host.reopen)
        case Earlier(first=first):
            return EarlierBlocks(max(0, first), session.feed.make_earlier(first))
    return None


def _send(request: Send, session: OpenSession, uploads: dict[str, UserContent]) -> Reply:
    text = request.text.rstrip()
    if text.startswith("!") and len(text) > 1:
        session.run_shell_command(text[1:].strip())
        return Received(request.id)
    missing = [one for one in request.attachments if one not in uploads]
    if missing:
        raise ConfigError("an attachment was not uploaded completely; attach it again")
    item = Attachments(session.host.folder, session.host.list_added_folders).build_item(text)
    parts = [uploads.pop(one) for one in request.attachments]
    session.submit(UserItem((*item.content, *parts)), request.id)
    return Received(request.id)


def _answer(request: Answer, session: OpenSession) -> Reply | None:
    question = session.find_question(request.question)
    if question is None:
        return ShowMessage("this question was answered already")
    conversation, approval = session.conversation, question.approval
    match request.answer:
        case "once":
            conversation.approve(question)
        case "always":
            conversation.approve(question, always=True)
        case "edited" if approval is not None:
            arguments = {**(approval.call.arguments or {}), **request.arguments}
            conversation.approve(question, arguments=arguments)
        case "deny":
            conversation.deny(question, request.text.strip())
        case "answer":
            conversation.answer(question, request.text)
        case "none":
            conversation.answer(question, None)
        case _:
            raise ConfigError(f"unknown answer {request.answer!r}")
    return None


async def _open_dialog(request: Ask, session: OpenSession) -> Reply:
    host = session.host
    match request.dialog:
        case "mode":
            modes = [(mode, mode, MODE_DESCRIPTIONS.get(mode, "")) for mode in host.modes]
            return ShowDialog(render_choices("Permission mode", "mode", modes, host.mode))
        case "model":
            models = [(name, name, about) for name, about in host.list_models()]
            return ShowDialog(render_choices("Model", "model", models, host.model.name))
        case "undo":
            return _show_files("undo", await host.preview_undo())
        case "redo":
            return _show_files("redo", await host.preview_redo())
        case "rewind" if not request.turn:
            return ShowDialog(render_rewind_dialog(host.list_turns()))
        case "rewind":
            changes = await host.preview_rewind(request.turn)
            return ShowDialog(render_files_dialog("rewind", changes, request.turn))
        case "trust":
            programs = host.list_unapproved_programs()
            return ShowDialog(render_trust_dialog(host.list_extension_files(), programs))
    raise ConfigError(f"unknown dialog {request.dialog!r}")


def _show_files(action: str, changes: Sequence[FileChange]) -> Reply:
    if not changes:
        return ShowMessage(f"there is nothing to {action}")
    return ShowDialog(render_files_dialog(action, changes))


async def _rewind(request: Rewind, session: OpenSession) -> Reply:
    if session.is_busy:
        raise ConfigError("the agent is working; stop the turn first")
    texts = [turn.text for turn in session.host.list_turns() if turn.turn_id == request.turn]
    message = ""

    async def rewind() -> Driver:
        nonlocal message
        files, include = request.files, request.include
        driver, message = await session.host.rewind(request.turn, files=files, include=include)
        return driver

    await session.reopen(rewind)
    if message:
        session.show_note(f"files: {message}")
    return FillPrompt(texts[0] if texts else "")


async def _reopen_idle(session: OpenSession, open_driver: Callable[[], Awaitable[Driver]]) -> None:
    if session.is_busy:
        raise ConfigError("the agent is working; stop the turn first")
    await session.reopen(open_driver)
