"""Questions on a terminal that only prints lines: numbered options, answered by a line.

The counterpart of the dialogs of the full screen (widgets/dialogs.py). Used by plain.py, which
reads and prints the lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from treadle.apps.conversation.approval_text import ApprovalAnswer, list_risk_lines
from treadle.apps.conversation.block_text import replace_controls
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import Question
from treadle.apps.tui.dialog_lock import DialogLock
from treadle.apps.tui.questions import ApprovalQuestion
from treadle.core.steps import PendingApproval
from treadle.lib.text.sanitize import escape_invisible

OWN_WORDS = ", or your own words"  # of a question of the model
LineAnswer = TypeVar("LineAnswer")
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){4,}")  # they could hide the beginning of a command


class LineTerminal(Protocol):
    """Prints and reads lines: the plain frontend."""

    def write(self, text: str) -> None: ...

    def write_wrapped(self, text: str) -> None: ...

    @property
    def is_in_reply(self) -> bool:
        """Whether a reply is being printed."""

    async def ask_line(
        self, prompt: str, by_user: bool, is_answer: Callable[[str], bool]
    ) -> str | None:
        """The next line. One that was begun before the question, and could be an answer
        (`is_answer`) by accident, is not taken as one."""

    def take_other_line(self, line: str, count: int, by_user: bool) -> bool:
        """A line that names none of `count` options; whether it answered the question all the
        same. `by_user`: of a question that the user opened."""

    async def run_editor(self, text: str) -> tuple[str, str]: ...


class PlainQuestions:
    """Implements questions.QuestionView."""

    # a line has no initial text
    hidden_answers: frozenset[ApprovalAnswer] = frozenset({"edit"})
    hidden_plan_answers: frozenset[str] = frozenset({"edit"})

    def __init__(self, terminal: LineTerminal, lock: DialogLock) -> None:
        self._terminal = terminal
        self._lock = lock

    async def choose(self, question: Question) -> str | None:
        lines = [f"{change.sign} {change.path}{change.note}" for change in question.changes]
        message = question.message or "\n".join(lines)
        async with self._lock.dialog():
            if message:
                self._terminal.write_wrapped(f"{message}\n\n")
            return await self._choose_one(
                question.title, question.options, question.by_user, question.takes_text
            )

    async def choose_several(self, title: str, options: Sequence[ChoiceOption]) -> list[int] | None:
        async with self._lock.dialog():
            self._print_options(options)
            prompt = f"{_ask_number(title, options)}, several with commas{OWN_WORDS}: "
            return await self._ask_for(
                prompt, options, lambda line: find_options(options, line) or None
            )

    async def choose_approval(self, question: ApprovalQuestion) -> str | None:
        approval, preview = question.approval, question.approval.preview
        shown = preview.text if preview is not None else approval.call.raw
        lines = list_risk_lines(approval)
        risks = [f"{'! ' if line.is_marked else ''}{line.text}" for line in lines]
        reason = escape_invisible(approval.reason)
        text = _BLANK_LINES.sub(_name_blank_lines, escape_invisible(shown, keep="\n\t"))
        parts = (question.title, text, *risks, reason)
        async with self._lock.dialog():
            self._terminal.write("\n" + "".join(f"{part}\n" for part in parts if part))
            while True:
                answer = await self._choose_one("Allow", question.options, False)
                if answer != "whole" or preview is None:
                    return answer
                self._terminal.write(escape_invisible(preview.whole, keep="\n\t") + "\n")

    async def choose_plan(
        self, title: str, plan: str, options: Sequence[ChoiceOption]
    ) -> str | None:
        async with self._lock.dialog():
            self._terminal.write_wrapped("\n" + escape_invisible(plan, keep="\n\t") + "\n\n")
            return await self._choose_one(title, options, False)

    async def choose_calls(
        self, title: str, approvals: Sequence[PendingApproval], options: Sequence[ChoiceOption]
    ) -> tuple[str, list[int]] | None:
        async with self._lock.dialog():
            self._terminal.write(f"\n{title}\n")
            self._print_options(options)
            prompt = "A number opens a call; y 1,3 or y all allows, n 1,3 or n all denies: "
            return await self._ask_for(
                prompt, options, lambda line: parse_call_answer(options, line)
            )

    async def run_editor(self, text: str) -> tuple[str, str]:
        async with self._lock.dialog():
            return await self._terminal.run_editor(text)

    async def ask_text(
        self, prompt: str, text: str = "", *, by_user: bool = True, draft: str = ""
    ) -> str | None:
        async with self._lock.dialog():
            return await self._terminal.ask_line(f"{prompt}\n> ", by_user, lambda line: False)

    async def _choose_one(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        by_user: bool,
        takes_text: bool = False,
    ) -> str | None:
        self._print_options(options)
        prompt = f"{_ask_number(title, options)}{OWN_WORDS if takes_text else ''}: "
        chosen = await self._ask_for(
            prompt, options, lambda line: find_option(options, line), by_user=by_user
        )
        return chosen.value if chosen is not None else None

    def _print_options(self, options: Sequence[ChoiceOption]) -> None:
        if self._terminal.is_in_reply:
            self._terminal.write("\n")
        for number, option in enumerate(options, 1):
            description = f" ({option.description})" if option.description else ""
            key = f" [{option.key}]" if option.key else ""
            line = f"  {number} {option.label}{description}{key}\n"
            self._terminal.write(replace_controls(line))

    async def _ask_for(
        self,
        prompt: str,
        options: Sequence[ChoiceOption],
        parse: Callable[[str], LineAnswer | None],
        *,
        by_user: bool = False,
    ) -> LineAnswer | None:
        """What a line answers; None if the line is empty, or answered in the user's own words."""
        while True:
            line = await self._terminal.ask_line(
                prompt, by_user, lambda line: parse(line) is not None
            )
            if line is None or not line.strip():
                return None
            answer = parse(line)
            if answer is not None:
                return answer
            if self._terminal.take_other_line(line, len(options), by_user):
                return None


def _name_blank_lines(found: re.Match[str]) -> str:
    return f"\n[{found[0].count(chr(10)) - 1} blank lines]\n"


def _ask_number(title: str, options: Sequence[ChoiceOption]) -> str:
    return f"{title}{'' if title.endswith('?') else ','} 1 to {len(options)}"


def find_option(options: Sequence[ChoiceOption], line: str) -> ChoiceOption | None:
    """The option that a line names: by its number or key, its label or the label's first word."""
    answer = line.strip().lower()
    if answer.isdigit() and 1 <= int(answer) <= len(options):
        return options[int(answer) - 1]
    for option in options:
        label = option.label.lower()
        if answer and answer in (option.key, label, label.partition(",")[0]):
            return option
    return None


def find_options(options: Sequence[ChoiceOption], line: str) -> list[int]:
    """The positions of the options that a line names, separated by commas; [] if one is unknown."""
    found = [find_option(options, part) for part in line.split(",")]
    return [options.index(option) for option in found if option] if all(found) else []


def parse_call_answer(options: Sequence[ChoiceOption], line: str) -> tuple[str, list[int]] | None:
    """`2`, `y 1,3`, `n all`: what to do with which of the listed calls; None if it is no answer."""
    words = line.strip().lower().split(maxsplit=1)
    action = {"y": "once", "n": "deny"}.get(words[0]) if words else None
    if action is None or len(words) == 1:
        places = find_options(options, line) if words and words[0].isdigit() else []
        return ("open", places) if len(places) == 1 else None
    if words[1] == "all":
        return action, list(range(len(options)))
    numbers = words[1].replace(" ", "")
    places = find_options(options, numbers) if numbers.replace(",", "").isdigit() else []
    return (action, places) if places else None
