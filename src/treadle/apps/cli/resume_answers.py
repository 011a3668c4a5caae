"""What a turn that was put off waits for, in words, and what a person says to it.

A ruling goes to the loop as to any other call. An answer to a question is written down as the
result of the call that asked, before anything goes on: it is never asked again. Above stand
headless.py and commands/resume.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from treadle.apps.assembly import AgentSession
from treadle.core.contracts.tool import Tool
from treadle.core.errors import LoopError
from treadle.core.loop.truncation import truncate
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import EarlyResult, View, fold_entries
from treadle.core.transcript.pending import RunTools, pending
from treadle.tools.builtin.conversation.ask import AskTool, make_answer_output, parse_question

MAX_ANSWER_CHARS = 100_000


class ResumeInput(NamedTuple):
    """A person's word: True or a reason against calls that wait, and answers in their order."""

    decision: bool | str | None = None
    answers: tuple[str, ...] = ()


def format_resume_hint(session_id: str, reason: str) -> str:
    """How to go on with it."""
    match reason:
        case "approval":
            return f"treadle resume {session_id} --approve, or --deny REASON"
        case "question":
            return f"treadle resume {session_id} --answer TEXT"
        case "budget":
            return f"treadle resume {session_id} with a higher limit"
        case _:
            return f"treadle resume {session_id} goes on there"


def format_questions(calls: tuple[ToolCall, ...]) -> str:
    """The questions in one line, with their choices."""
    lines = [_format_question(call) for call in calls]
    if len(lines) == 1:
        return lines[0]
    numbered = "; ".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return f"{len(lines)} questions, one --answer each: {numbered}"


def _format_question(call: ToolCall) -> str:
    question = parse_question(call.arguments or {})
    choices = " | ".join(choice.label for choice in question.choices)
    text = f"{question.question} [{choices}]" if choices else question.question
    return " ".join(text.split())


async def record_answers(session: AgentSession, answers: tuple[str, ...]) -> AgentSession:
    """Go on with these answers, once they are on the disk; the first goes to the first question.

    A LoopError says that nothing, or less, was asked.
    """
    view = session.view or View()
    calls = _find_open_questions(view, session.agent.config.source.tools())
    if len(answers) > len(calls):
        was_asked = f"{len(calls)} of them were asked" if calls else "nothing was asked"
        raise LoopError(f"--answer: {was_asked} by session {session.store.session_id}")
    settled = [
        EarlyResult(truncate(call, make_answer_output(text), MAX_ANSWER_CHARS))
        for call, text in zip(calls, answers, strict=False)
    ]
    for entry in settled:
        session.store.append(entry)
    await session.store.flush()
    return msgspec.structs.replace(session, view=fold_entries(settled, view))


def _find_open_questions(view: View, tools: Sequence[Tool]) -> list[ToolCall]:
    """The calls that wait for an answer; one that is malformed gets another."""
    move = pending(view.transcript)
    tool = next((tool for tool in tools if tool.spec.name == AskTool.name), None)
    if tool is None or not isinstance(move, RunTools):
        return []
    return [
        call
        for call in move.calls
        if call.name == AskTool.name
        and call.id not in view.early_results
        and call.arguments is not None
        and tool.check(call.arguments) is None
    ]
