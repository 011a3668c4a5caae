"""What the server does about a message of a tab."""

from __future__ import annotations

from treadle.apps.conversation.approval_text import open_network
from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.host import RestoreAction
from treadle.apps.web import dialogs
from treadle.apps.web.commands import list_summaries, run_command
from treadle.apps.web.held_session import HeldSession
from treadle.apps.web.hub import Hub
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import (
    Answer,
    AnyRequest,
    Complete,
    Completions,
    Earlier,
    EarlierBlocks,
    FillPrompt,
    GoTo,
    Interrupt,
    OpenDialog,
    Received,
    RestoreFiles,
    Resume,
    Rewind,
    RunCommand,
    Search,
    SearchResult,
    Send,
    ShowMessage,
    StopTask,
    TabReply,
    Trust,
    Withdraw,
)
from treadle.core.errors import ConfigError
from treadle.core.loop.driver import Driver
from treadle.core.transcript.content import UserContent
from treadle.core.transcript.items import UserItem


async def run_request(
    request: AnyRequest, hub: Hub, session: LiveSession, uploads: dict[str, UserContent]
) -> TabReply | None:
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
        case OpenDialog():
            return await dialogs.open_dialog(request.dialog, session, request.turn)
        case RunCommand(line=line):
            return await run_command(hub, session, line)
        case Complete(line=line):
            return Completions(line, await session.complete(line, list_summaries(session)))
        case Search(text=text):
            return SearchResult(text, await hub.search(text))
        case StopTask(task=task):
            await host.driver.tasks.cancel(task)
        case RestoreFiles():
            return await _restore_files(request, session)
        case Rewind():
            return await _rewind(request, session)
        case Trust():
            host.trust()
            host.approve_programs()
            await session.reopen_idle(host.reopen)
        case Earlier(first=first):
            return EarlierBlocks(max(0, first), session.feed.make_earlier(first))
    return None


async def run_held_request(request: AnyRequest, hub: Hub, session: HeldSession) -> TabReply | None:
    """The same for a session that another program has open: it can only be read."""
    match request:
        case Search(text=text):
            return SearchResult(text, await hub.search(text))
        case RunCommand(line="/fork"):
            return GoTo((await hub.fork(session.session_id)).session_id)
        case Earlier(first=first):
            return EarlierBlocks(max(0, first), session.feed.make_earlier(first))
    raise session.refuse()


def _send(request: Send, session: LiveSession, uploads: dict[str, UserContent]) -> TabReply:
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


def _answer(request: Answer, session: LiveSession) -> TabReply | None:
    question = session.find_question(request.question)
    if question is None:
        return ShowMessage("this question was answered already")
    conversation, approval = session.conversation, question.approval
    match request.answer:
        case "once":
            conversation.approve(question)
        case "network" if approval is not None:
            conversation.approve(question, arguments=open_network(approval))
        case "session":
            conversation.approve_for_session(question)
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


async def _restore_files(request: RestoreFiles, session: LiveSession) -> TabReply:
    host, include = session.host, request.include
    action: RestoreAction = "redo" if request.action == "redo" else "undo"
    if not request.is_skipped:
        _, changes = await host.preview_restore(action, include)
        if not any(one.author == "agent" or one.path in include for one in changes):
            return ShowMessage(f"no file was changed: select the files to {action}")
    restore = host.redo if action == "redo" else host.undo
    message = await restore(() if request.is_skipped else include)
    session.refresh_changed_files()
    return ShowMessage(message)


async def _rewind(request: Rewind, session: LiveSession) -> TabReply:
    session.require_idle()
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
