"""What a turn that was put off waits for, in words, and what a person says to it.

A ruling goes to the loop as to any other call. An answer to a question is written down as the
result of the call that asked, before anything goes on: it is never asked again. Above stand
headless.py and resume.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from treadle.apps.wiring import Wired
from treadle.core.contracts.tool import Tool
from treadle.core.errors import LoopError
from treadle.core.loop.capping import capped
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import Settled, View, fold
from treadle.core.transcript.pending import RunTools, pending
from treadle.tools.builtin.ask import AskTool, answered, question_in

MOST_CHARS = 100_000


class Word(NamedTuple):
    """A person's word: True or a reason against calls that wait, and answers in their order."""

    ruling: bool | str | None = None
    answers: tuple[str, ...] = ()


def how(session: str, reason: str) -> str:
    """How to go on with it."""
    match reason:
        case "approval":
            return f"treadle resume {session} --approve, or --deny REASON"
        case "question":
            return f"treadle resume {session} --answer TEXT"
        case "budget":
            return f"treadle resume {session} with a higher limit"
        case _:
            return f"treadle resume {session} goes on there"


def asked(calls: tuple[ToolCall, ...]) -> str:
    """The questions in one line, with their choices."""
    lines = [_asked(call) for call in calls]
    if len(lines) == 1:
        return lines[0]
    numbered = "; ".join(f"{number}. {line}" for number, line in enumerate(lines, 1))
    return f"{len(lines)} questions, one --answer each: {numbered}"


def _asked(call: ToolCall) -> str:
    question = question_in(call.arguments or {})
    choices = " | ".join(choice.label for choice in question.choices)
    text = f"{question.question} [{choices}]" if choices else question.question
    return " ".join(text.split())


async def answer(wired: Wired, answers: tuple[str, ...]) -> Wired:
    """Go on with these answers, once they are on the disk; the first goes to the first question.

    A LoopError says that nothing, or less, was asked.
    """
    view = wired.view or View()
    calls = _questions(view, wired.agent.equipment.source.tools())
    if len(answers) > len(calls):
        was_asked = f"{len(calls)} of them were asked" if calls else "nothing was asked"
        raise LoopError(f"--answer: {was_asked} by session {wired.store.session_id}")
    settled = [
        Settled(capped(call, answered(text), MOST_CHARS))
        for call, text in zip(calls, answers, strict=False)
    ]
    for entry in settled:
        wired.store.append(entry)
    await wired.store.flush()
    return msgspec.structs.replace(wired, view=fold(settled, view))


def _questions(view: View, tools: Sequence[Tool]) -> list[ToolCall]:
    """The calls that wait for an answer; one that is malformed gets another."""
    move = pending(view.transcript)
    tool = next((tool for tool in tools if tool.spec.name == AskTool.name), None)
    if tool is None or not isinstance(move, RunTools):
        return []
    return [
        call
        for call in move.calls
        if call.name == AskTool.name
        and call.id not in view.settled
        and call.arguments is not None
        and tool.check(call.arguments) is None
    ]
