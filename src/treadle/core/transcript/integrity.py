"""The laws of a transcript, each with a name, a check and a repair.

    calls_answered_once   every call has one result, right after its reply, in the model's order
    answers_belong        every result belongs to an earlier call that has no other
    call_ids_unique       no two calls have the same id, and no id is empty
    no_empty_items        every item has content

Calls of the last reply may be open: that is work in progress, not a violation. A repair changes
the view of an imported or damaged history; the log is never rewritten. A history may begin with a
reply: the encoders add what a provider needs before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    CallOutcome,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
)
from treadle.core.transcript.transcript import Transcript

INTERRUPTED_RESULT = "The call was interrupted and its outcome is unknown."


class Violation(msgspec.Struct, frozen=True):
    """One violation: which law, at which item, and what is wrong."""

    law: str
    position: int
    problem: str

    def __str__(self) -> str:
        return f"{self.law}: item {self.position}: {self.problem}"


class Law(msgspec.Struct, frozen=True):
    name: str
    check: Callable[[Sequence[Item]], list[Violation]]
    repair: Callable[[Sequence[Item]], list[Item]]


def find_violations(items: Sequence[Item]) -> list[Violation]:
    """Every violation of every law."""
    if _is_lawful(items):
        return []
    return [violation for law in LAWS for violation in law.check(items)]


def _is_lawful(items: Sequence[Item]) -> bool:
    """Whether there is no violation, in one walk: nearly always so, and sessions are long."""
    seen: set[str] = set()
    unanswered: list[str] = []  # of the last reply, the first one at the end
    for item in items:
        if type(item) is ToolResultItem:
            if not unanswered or unanswered.pop() != item.call_id:
                return False
        elif unanswered or is_empty(item):
            return False
        elif type(item) is AssistantItem:
            ids = [part.id for part in item.content if type(part) is ToolCall]
            if ids:
                if len({*ids}) < len(ids) or not all(ids) or not seen.isdisjoint(ids):
                    return False
                seen.update(ids)
                unanswered = ids[::-1]
    return True


def repaired(transcript: Transcript) -> Transcript:
    """The history with all laws repaired; the same object if there is no violation."""
    return repair_round(transcript)[0]


def repair_round(transcript: Transcript) -> tuple[Transcript, tuple[ToolResultItem, ...]]:
    """The repaired history, and results that its open round has beyond it.

    A result of the last reply that follows a call without one waits for that call outside of the
    transcript: it is an early result. Its call has run and must not run again.
    """
    if not find_violations(transcript):
        return transcript, ()
    items: list[Item] = list(transcript)
    for law in LAWS[:-1]:
        items = law.repair(items)
    return Transcript(_repair_answers(items)), _find_early_results(items)


def make_interrupted_result(
    call: ToolCall, reason: str = INTERRUPTED_RESULT, outcome: CallOutcome = "interrupted"
) -> ToolResultItem:
    """The result of a call that did not run to its end."""
    return ToolResultItem(call.id, call.name, (Text(reason),), is_error=True, outcome=outcome)


# --- no_empty_items ----------------------------------------------------------------------


def is_empty(item: Item) -> bool:
    """Whether the item has no content that a provider accepts."""
    if isinstance(item, (NoticeItem, SummaryItem)):
        return not item.text.strip()
    if isinstance(item, ToolResultItem):
        return False  # an empty result is valid: the command printed nothing
    content = item.content
    if content and type(content[-1]) is not Text:
        return False
    return not [part for part in content if type(part) is not Text or part.text.strip()]


def _check_empty_items(items: Sequence[Item]) -> list[Violation]:
    return [
        Violation("no_empty_items", position, f"{type(item).__name__} without content")
        for position, item in enumerate(items)
        if is_empty(item)
    ]


def _repair_empty_items(items: Sequence[Item]) -> list[Item]:
    return [item for item in items if not is_empty(item)]


# --- call_ids_unique ---------------------------------------------------------------------


def _check_ids(items: Sequence[Item]) -> list[Violation]:
    found: list[Violation] = []
    seen: set[str] = set()
    for position, item in enumerate(items):
        for call in item.calls if isinstance(item, AssistantItem) else ():
            if not call.id:
                found.append(Violation("call_ids_unique", position, f"{call.name} has no id"))
            elif call.id in seen:
                found.append(Violation("call_ids_unique", position, f"{call.id} is used twice"))
            seen.add(call.id)
    return found


def _repair_ids(items: Sequence[Item]) -> list[Item]:
    """Rename repeated ids, and rename the results after a reply in the same order. The last reply
    keeps its ids: what is known about open calls is known by them."""
    mended: list[Item] = []
    replies = [item for item in items if isinstance(item, AssistantItem)]
    kept = {call.id for call in replies[-1].calls} if replies else set[str]()
    seen, left = set(kept), len(replies)
    renamed: dict[str, list[str]] = {}
    for item in items:
        if isinstance(item, AssistantItem):
            left -= 1
            if not left:
                seen -= kept
            renamed, content = {}, list(item.content)
            for number, part in enumerate(content):
                if type(part) is ToolCall:
                    fresh = content[number] = with_unique_id(part, seen.__contains__)
                    renamed.setdefault(part.id, []).append(fresh.id)
                    seen.add(fresh.id)
            if tuple(content) != item.content:
                item = msgspec.structs.replace(item, content=tuple(content))
        elif isinstance(item, ToolResultItem) and renamed.get(item.call_id):
            item = msgspec.structs.replace(item, call_id=renamed[item.call_id].pop(0))
        mended.append(item)
    return mended


def with_unique_id(call: ToolCall, is_taken: Callable[[str], bool]) -> ToolCall:
    """The call, with another id if its own is empty or taken."""
    call_id, number = call.id, 0
    while not call_id or is_taken(call_id):
        number += 1
        call_id = f"{call.id or 'call'}_{number}"
    return call if call_id == call.id else msgspec.structs.replace(call, id=call_id)


# --- answers_belong ----------------------------------------------------------------------


def _check_orphans(items: Sequence[Item]) -> list[Violation]:
    found: list[Violation] = []
    unanswered: set[str] = set()
    for position, item in enumerate(items):
        if isinstance(item, AssistantItem):
            unanswered.update(call.id for call in item.calls)
        elif isinstance(item, ToolResultItem):
            if item.call_id not in unanswered:
                problem = f"{item.call_id} answers no earlier call without an answer"
                found.append(Violation("answers_belong", position, problem))
            unanswered.discard(item.call_id)
    return found


def _repair_orphans(items: Sequence[Item]) -> list[Item]:
    orphans = {violation.position for violation in _check_orphans(items)}
    return [item for position, item in enumerate(items) if position not in orphans]


# --- calls_answered_once -----------------------------------------------------------------


def _check_answers(items: Sequence[Item]) -> list[Violation]:
    found: list[Violation] = []
    law = "calls_answered_once"
    for position, item in enumerate(items):
        if not isinstance(item, AssistantItem) or not item.calls:
            continue
        wanted = [call.id for call in item.calls]
        got = _answer_ids_after(items, position)
        is_open = position + 1 + len(got) >= len(items)
        if got == wanted or (is_open and got == wanted[: len(got)]):
            continue
        missing = [call_id for call_id in wanted if call_id not in got]
        if missing:
            found.append(Violation(law, position, f"no answer to {', '.join(missing)}"))
        elif sorted(got) == sorted(wanted):
            found.append(Violation(law, position, "the answers are not in the model's order"))
        else:
            found.append(Violation(law, position, "a call is answered more than once"))
    return found


def _answer_ids_after(items: Sequence[Item], position: int) -> list[str]:
    got: list[str] = []
    while (position := position + 1) < len(items):
        item = items[position]
        if not isinstance(item, ToolResultItem):
            break
        got.append(item.call_id)
    return got


def _repair_answers(items: Sequence[Item]) -> list[Item]:
    """Move each result behind its reply, in order; add one where it is missing."""
    answers: dict[str, ToolResultItem] = {}
    for item in items:
        if isinstance(item, ToolResultItem):
            answers.setdefault(item.call_id, item)
    mended: list[Item] = []
    others = [item for item in items if not isinstance(item, ToolResultItem)]
    for position, item in enumerate(others, start=1):
        mended.append(item)
        if not isinstance(item, AssistantItem):
            continue
        for call in item.calls:
            if call.id not in answers and position == len(others):
                break  # the last calls may be open: the loop will run them
            mended.append(answers.get(call.id) or make_interrupted_result(call, outcome="unknown"))
    return mended


def _find_early_results(items: Sequence[Item]) -> tuple[ToolResultItem, ...]:
    """Results of the last reply that follow a call without a result, in the model's order."""
    position = len(items) - 1
    results: dict[str, ToolResultItem] = {}
    while position >= 0 and isinstance(item := items[position], ToolResultItem):
        results[item.call_id] = item
        position -= 1
    if not results or position < 0 or not isinstance(reply := items[position], AssistantItem):
        return ()
    ids = [call.id for call in reply.calls]
    missing = next((n for n, call_id in enumerate(ids) if call_id not in results), len(ids))
    return tuple([results[call_id] for call_id in ids[missing:] if call_id in results])


LAWS: tuple[Law, ...] = (
    Law("no_empty_items", _check_empty_items, _repair_empty_items),
    Law("call_ids_unique", _check_ids, _repair_ids),
    Law("answers_belong", _check_orphans, _repair_orphans),
    Law("calls_answered_once", _check_answers, _repair_answers),
)
