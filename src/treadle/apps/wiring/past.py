"""What was asked in the past, read off the sessions: the calls, and what somebody said to them.

For back-testing rules (policy/backtest); the sessions themselves are treadle.sessions' business.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.apps.wiring.rules import NOBODY_CAN_BE_ASKED, load_rules
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import ItemAdded, Ruling
from treadle.core.transcript.items import AssistantItem
from treadle.policy.backtest import BackTest, PastRuling, back_test
from treadle.policy.rulepolicy import situation_of
from treadle.policy.rules import Rule
from treadle.policy.rulesfile import given_rules
from treadle.policy.verdict import Call
from treadle.sessions.library import Library
from treadle.tools.steady import meant

if TYPE_CHECKING:
    from treadle.sessions.lines import Line


class Tested(msgspec.Struct, frozen=True):
    """What the rules would have meant; `unanswered` were questions that nobody could be asked."""

    result: BackTest
    unanswered: int


class Question(msgspec.Struct, frozen=True):
    """A call that the rules did not decide, and what came of it."""

    call: Call
    ruling: PastRuling
    is_unanswered: bool


def back_tested(
    rules: Sequence[str], folder: Path, *, everywhere: bool, library: Library | None = None
) -> Tested:
    """These allow rules against the past of this folder, or of all, each with its own rules."""
    library = library or Library()
    whole, unanswered = BackTest(), 0
    for place, sessions in _folders(library, None if everywhere else folder):
        questions = [question for one in sessions for question in asked(one, place)]
        unanswered += sum(question.is_unanswered for question in questions)
        if questions:
            past = ((question.call, question.ruling) for question in questions)
            in_force = load_rules(place)[0]()
            whole = _sum(
                whole, back_test(_parsed(rules, place), past, situation_of(place, in_force))
            )
    _parsed(rules, folder)  # a wrong rule is told also where there is no past
    return Tested(whole, unanswered)


def asked(place: Path, folder: Path) -> Iterator[Question]:
    """Every question of a session, in order."""
    from treadle.sessions.lines import decode
    from treadle.sessions.reading import Reading

    calls: dict[str, ToolCall] = {}
    for line, _ in Reading(place).lines():
        if not _may_matter(line):
            continue
        try:
            entry = decode(line.raw)
        except msgspec.DecodeError:
            continue  # a kind of a newer version
        match entry:
            case ItemAdded(item=AssistantItem() as reply):
                calls.update({call.id: call for call in reply.calls})
            case Ruling(call_id=call_id) if call_id in calls:
                yield _question(calls[call_id], entry, folder)
            case _:
                pass


def _may_matter(line: Line) -> bool:
    return line.kind == "ruling" or (line.kind == "item" and b'"type":"tool_call"' in line.raw)


def _question(call: ToolCall, ruling: Ruling, folder: Path) -> Question:
    # What nobody could answer was not refused by anybody.
    is_unanswered = ruling.decision == "deny" and ruling.reason.startswith(NOBODY_CAN_BE_ASKED)
    said: PastRuling = "denied" if ruling.decision == "deny" and not is_unanswered else "approved"
    tool, arguments = meant(call.name, call.arguments or {})
    return Question(Call(tool, arguments, str(folder)), said, is_unanswered)


def _folders(library: Library, only: Path | None) -> Iterator[tuple[Path, list[Path]]]:
    found: dict[str, list[Path]] = {}
    for summary in library.summaries(folder=only):
        found.setdefault(summary.folder, []).append(library.root / summary.key)
    for folder, sessions in found.items():
        yield Path(folder), sessions


def _parsed(rules: Sequence[str], folder: Path) -> tuple[Rule, ...]:
    root = os.path.realpath(folder)
    home = str(Path.home())
    return given_rules({"allow": list(rules)}, root=root, home=home, scope="this command").allow


def _sum(one: BackTest, two: BackTest) -> BackTest:
    return BackTest(
        one.questions + two.questions,
        one.covered + two.covered,
        one.denied + two.denied,
        one.denied_covered + two.denied_covered,
        (*one.examples, *two.examples),
        (*one.warnings, *two.warnings),
    )
