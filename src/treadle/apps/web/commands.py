"""Shows the answers of slash commands on the page: as messages, dialogs, or another session.

The commands themselves are conversation/commands/table.py.
"""

from __future__ import annotations

from treadle.apps.conversation.commands.answers import CommandAnswer, ScreenChange, catch_errors
from treadle.apps.conversation.state.blocks import CodeBlock
from treadle.apps.pages.session_files import export_session
from treadle.apps.web.hub import Hub
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import (
    Choose,
    Download,
    FillPrompt,
    GoTo,
    Problem,
    ShowDialog,
    ShowMessage,
    TabReply,
)
from treadle.apps.web.panes import show_pane
from treadle.apps.web.render.dialogs import (
    render_budget_dialog,
    render_choices,
    render_files_dialog,
    render_help_dialog,
)


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
