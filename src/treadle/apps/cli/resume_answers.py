"""What a suspended turn waits for, as text, and the user's input for it.

A decision goes to the loop as for any other call. An answer is stored as the result of the call
that asked, before the turn continues, so it is never asked again. Used by headless.py and
commands/resume.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from treadle.apps.assembly import AgentSession
from treadle.core.contracts.tool import Tool
from treadle.core.errors import LoopError
from treadle.core.loop.calls.tool_round import truncate
from treadle.core.transcript import RunTools, ToolCall, pending
from treadle.core.transcript.entries import EarlyResult
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.lib.text.text import plural
from treadle.tools.builtin.conversation.ask import AskTool, make_answer_output, parse_question

MAX_ANSWER_CHARS = 100_000


class ResumeInput(NamedTuple):
    """The user's input: True approves the open calls, a reason denies them; `answers` in order."""

    decision: bool | str | None = None
    answers: tuple[str, ...] = ()


def format_resume_hint(session_id: str, reason: str) -> str:
    options = {
        "approval": " --approve, or --deny REASON",
        "question": " --answer TEXT",
        "budget": " --max-cost USD, or the option of another limit",
    }
    return f"to continue: treadle resume {session_id}{options.get(reason, '')}"


def format_questions(calls: tuple[ToolCall, ...]) -> str:
    """The questions and their choices in one line."""
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
    """Store the answers, the first for the first question; returns the session to continue with.

    Raises LoopError if there are more answers than questions.
    """
    view = session.state or SessionState()
    calls = _find_open_questions(view, session.agent.config.source.tools())
    if len(answers) > len(calls):
        asked = plural(len(calls), "question") if calls else "no question"
        raise LoopError(f"--answer: session {session.store.session_id} has {asked}")
    results = [
        EarlyResult(truncate(call, make_answer_output(text), MAX_ANSWER_CHARS))
        for call, text in zip(calls, answers, strict=False)
    ]
    for entry in results:
        session.store.append(entry)
    await session.store.flush()
    return msgspec.structs.replace(session, state=fold_entries(results, view))


def _find_open_questions(view: SessionState, tools: Sequence[Tool]) -> list[ToolCall]:
    """The calls that wait for an answer; a malformed call gets an error from the loop."""
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
