"""What the server does about a message of a tab."""

from __future__ import annotations

import msgspec

from treadle.apps.conversation.approval_text import (
    answer_approval,
    find_coverage,
    make_confirmation,
)
from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.commands.answers import CommandAnswer, ScreenChange, catch_errors
from treadle.apps.conversation.commands.table import list_summaries, run_command
from treadle.apps.conversation.state.blocks import CodeBlock
from treadle.apps.conversation.state.markdown_stream import split_markdown
from treadle.apps.pages.session_files import export_session
from treadle.apps.web.held_session import HeldSession
from treadle.apps.web.hub import Hub
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import (
    Answer,
    AnyRequest,
    AskForecast,
    Choose,
    Complete,
    Completions,
    Download,
    DropHunk,
    Earlier,
    EarlierBlocks,
    FillPrompt,
    GoTo,
    Interrupt,
    OpenPane,
    Problem,
    Received,
    Resume,
    RunCommand,
    RunInPane,
    Search,
    SearchResult,
    Send,
    ShowDialog,
    ShowInbox,
    ShowMessage,
    StopTask,
    TabReply,
    Withdraw,
)
from treadle.apps.web.panes import drop_review_hunk, show_pane
from treadle.apps.web.render.dialogs import (
    render_budget_dialog,
    render_choices,
    render_files_dialog,
    render_help_dialog,
)
from treadle.apps.web.render.inbox import render_inbox
from treadle.apps.web.uploads import Uploads
from treadle.core.errors import ConfigError
from treadle.core.transcript.items import UserItem


async def run_request(
    request: AnyRequest, hub: Hub, session: LiveSession, uploads: Uploads
) -> TabReply | None:
    """Do what a tab asks for, once. Problems are TreadleErrors with a message for the user."""
    return await session.run_once(request.id, lambda: _run(request, hub, session, uploads))


async def _run(
    request: AnyRequest, hub: Hub, session: LiveSession, uploads: Uploads
) -> TabReply | None:
    conversation = session.conversation
    match request:
        case Send():
            return _send(request, session, uploads)
        case Interrupt():
            session.interrupt()
            text, session.returned_text = session.returned_text, ""
            return FillPrompt(text) if text else None
        case Resume():
            conversation.continue_turn()
        case Withdraw(index=index):
            queued = conversation.list_queued()
            if 0 <= index < len(queued) and conversation.withdraw(queued[index]):
                return FillPrompt(queued[index].text)
        case Answer():
            asked = await hub.find(request.session) if request.session else session
            return await _confirm_answer(request, asked, session) or _answer(request, asked)
        case ShowInbox():
            return ShowDialog(render_inbox(await hub.list_waiting()))
        case RunCommand(line=line):
            return await show_answer(hub, session, await run_command(session.opened, line))
        case Choose():
            return await answer_question(hub, session, request)
        case Complete(line=line):
            return Completions(line, await session.complete(line, list_summaries(session.opened)))
        case AskForecast(text=text):
            if await session.opened.forecast.update(text):
                session.mark_changed()
        case Search(text=text):
            return SearchResult(text, await hub.search(text))
        case StopTask(task=task):
            await session.opened.driver.tasks.cancel(task)
        case Earlier(first=first):
            return EarlierBlocks(max(0, first), session.feed.make_earlier(first))
        case OpenPane(name=name, part=part):
            return await show_pane(session, name, part)
        case RunInPane(name=name, line=line):
            answer = await run_command(session.opened, line)
            return await show_pane(session, name, "", answer.note)
        case DropHunk():
            return await drop_review_hunk(session, request)
    return None


async def run_held_request(request: AnyRequest, hub: Hub, session: HeldSession) -> TabReply | None:
    """The same for a session that another program has open: it can only be read."""
    match request:
        case Search(text=text):
            return SearchResult(text, await hub.search(text))
        case AskForecast():
            return None
        case ShowInbox():
            return ShowDialog(render_inbox(await hub.list_waiting()))
        case Answer(answer="always" | "network"):
            raise ConfigError("open the session that asks to allow this")
        case Answer() if request.session:
            return _answer(request, await hub.find(request.session))
        case Send(text=text):
            session.steer(text, request.id)
            return Received(request.id)
        case Interrupt():
            session.stop()
            return None
        case RunCommand(line="/fork"):
            return GoTo((await hub.fork(session.session_id)).session_id)
        case Earlier(first=first):
            return EarlierBlocks(max(0, first), session.feed.make_earlier(first))
    raise session.refuse()


def _send(request: Send, session: LiveSession, uploads: Uploads) -> TabReply:
    text = request.text.rstrip()
    if text.startswith("!") and len(text) > 1:
        session.shell_commands.start(text[1:].strip())
        return Received(request.id)
    opened = session.opened
    item = Attachments(opened.folder, opened.list_added_folders).build_item(text)
    parts = uploads.take(request.attachments)
    session.submit(UserItem((*item.content, *parts)))
    return Received(request.id)


async def _confirm_answer(
    request: Answer, asked: LiveSession, session: LiveSession
) -> TabReply | None:
    """The second question, in the tab of `session`, about an answer that allows more than a call;
    with what the rules would have covered."""
    waiting = asked.conversation.questions.waiting
    question = asked.numbered.find(request.question, waiting)
    if question is None or question.approval is None:
        return None
    approval, is_always = question.approval, request.answer == "always"
    coverage = await find_coverage(approval.rules, asked.opened.folder) if is_always else ""
    confirmation = make_confirmation(approval, request.answer, coverage)
    if confirmation is None:
        return None

    async def answer(value: str) -> CommandAnswer:
        reply = _answer(request, asked) if value == "yes" else None
        return CommandAnswer(reply.text if isinstance(reply, ShowMessage) else "")

    first = confirmation.options[0].value
    confirmation = msgspec.structs.replace(confirmation, then=answer, current=first)
    number = session.numbered.add_command_question(confirmation)
    return ShowDialog(render_choices(number, confirmation))


def _answer(request: Answer, session: LiveSession) -> TabReply | None:
    questions = session.conversation.questions
    question = session.numbered.find(request.question, questions.waiting)
    if question is None:
        return ShowMessage("this question was answered already")
    if question.approval is None:
        answer = None if request.answer == "none" else request.text
        questions.answer(question, answer)
    elif not answer_approval(questions, question, request.answer, request.text, request.arguments):
        raise ConfigError(f"unknown answer {request.answer!r}")
    return None


async def answer_question(hub: Hub, session: LiveSession, choice: Choose) -> TabReply | None:
    """What follows the user's choice in a dialog."""
    question = session.numbered.take_command_question(choice.question)
    if question is None:
        return ShowMessage("this question was answered already")
    if choice.include is not None and question.restore is not None:
        running = question.restore(choice.include)
    else:
        running = question.then(choice.value)
    answer = await catch_errors(running)
    if question.changes:
        session.refresh_changed_files()
    return await show_answer(hub, session, answer)


async def show_answer(hub: Hub, session: LiveSession, answer: CommandAnswer) -> TabReply | None:
    if answer.message is not None:
        session.conversation.submit(answer.message)
    if answer.screen is not None:
        reply = await _change_screen(hub, session, answer.screen, answer.note)
        if reply is not None:
            return reply
    if answer.question is not None:
        question = answer.question
        number = session.numbered.add_command_question(question)
        render = render_files_dialog if question.restore is not None else render_choices
        return ShowDialog(render(number, question))
    if answer.tone == "error":
        return Problem(answer.note, "command")
    if answer.is_table:
        session.conversation.show_block(CodeBlock("", answer.note))
        return None
    if answer.is_markdown:
        for block in split_markdown(answer.note):
            session.conversation.show_block(block)
        return None
    return ShowMessage(answer.note) if answer.note else None


async def _change_screen(
    hub: Hub, session: LiveSession, change: ScreenChange, note: str
) -> TabReply | None:
    """None if the page has no such screen."""
    match change.name:
        case "review":
            return await show_pane(session, "review", change.value)
        case "settings" | "permissions" | "context" | "servers":
            return await show_pane(session, change.name, "")
        case "help":
            return ShowDialog(render_help_dialog(change.rows))
        case "limits":
            return ShowDialog(render_budget_dialog(session.opened.limits.list_limits()))
        case "panel":
            return ShowMessage(f"{change.value}\n\n{change.note}")
        case "prompt":
            session.show_message(note)
            return FillPrompt(change.value)
        case "export" if not change.value:
            await session.opened.flush()
            return Download(f"/export/{session.session_id}")
        case "export":
            exported = await catch_errors(export_session(session.opened, change.value))
            return await show_answer(hub, session, exported)
        case "session" if change.fork and change.resume:
            return GoTo((await hub.fork(change.resume)).session_id)
        case "session" if change.resume:
            return GoTo(await hub.find_name(change.resume))
        case "session":
            folder = change.folder or str(session.opened.folder)
            return GoTo((await hub.create(folder)).session_id)
    return None
