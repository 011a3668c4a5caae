"""The slash commands in the editor: as it completes them, and their answers as text or a message.

The commands themselves are conversation/commands/table.py. Used by session.py.
"""

from __future__ import annotations

from acp.schema import AvailableCommand, AvailableCommandInput, UnstructuredCommandInput

from treadle.apps.acp.questions import EditorQuestions
from treadle.apps.conversation.commands import table
from treadle.apps.conversation.commands.answers import CommandAnswer, ask_questions, catch_errors
from treadle.apps.conversation.commands.expansion import begins_with_path
from treadle.apps.conversation.session.hosted_session import HostedSession

NOTHING_CHANGED = CommandAnswer("nothing was changed")
DONE = CommandAnswer("done")  # other hosts show it elsewhere


def list_available(session: HostedSession) -> list[AvailableCommand]:
    """All commands, as the editor completes them; prompts of MCP servers are commands, too."""
    return [
        AvailableCommand(
            name=name,
            description=summary or name,
            input=AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)) if hint else None,
        )
        for name, summary, hint in table.list_commands(session)
    ]


async def run_command(
    line: str, session: HostedSession, questions: EditorQuestions
) -> CommandAnswer | None:
    """Run `/name arguments`; None if the line is a message that begins with a path. Tables are
    blocks of code, so that the editor keeps their columns."""
    if begins_with_path(line, dict(table.list_summaries(session))):
        return None
    answer = await table.run_command(session, line)
    answer = await ask_questions(answer, questions.choose) or NOTHING_CHANGED
    if answer.screen is not None and answer.screen.name == "export":
        from treadle.apps.pages.session_files import export_session

        answer = await catch_errors(export_session(session, answer.screen.value))
    if answer.is_table:
        return CommandAnswer(f"```\n{answer.note}\n```")
    return answer if answer.note or answer.message is not None else DONE
