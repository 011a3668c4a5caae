"""Repairing with a small model: the engine drives, the model only fills in one line.

    the check's output is not known      run the check
    the files behind it were not read    read them
    otherwise                            Try N: undo the last try, change one line, check again
    the check passed                     say so

A try asks the model for one line (candidates.py). The grammar holds the lines not named yet, so
the model ranks them; a favoured one is asked for again with some chance in it, or its whole
function. Where this stands is read off the transcript at every request (the tries say their
number and lines), so it goes on after a crash. Every change is a real edit call.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.embedded import candidates, evidence, prompt
from treadle.models.embedded.candidates import Change, Line
from treadle.models.embedded.server import Piece, Server
from treadle.models.embedded.toolkit import Offer

INSTRUCTION = candidates.INSTRUCTION
GIVING_UP = "I found no change that makes the check pass"
PASSED = "[check passed]"
MOST_REFUSALS = 2  # edits in a row
MOST_READ = 3  # files at once
MOST_SOURCES = 6

# line: the likeliest one not named yet · line N: favourite N again, with some chance ·
# function N: the function around favourite N, the second time with some chance
PLAN: tuple[tuple[str, int], ...] = (
    *(("line", -1), ("line", 0), ("line", -1), ("line", 0), ("line", -1), ("line", 0)),
    *(("function", 0), ("line", 1), ("line", -1), ("line", 0), ("line", 2), ("line", 1)),
    *(("line", -1), ("line", 0), ("function", 1), ("line", 1), ("line", -1), ("line", 0)),
    *(("function", 0), ("line", 2), ("line", 0), ("line", -1), ("line", 1), ("line", -1)),
)

_TRY = re.compile(
    r"^Try (\d+): (line|function at line) (\d+) of (\S+?)\."
    r"(?: Lines that look right: ([^\n]*)\.)?$",
    re.MULTILINE,
)


class Step(msgspec.Struct, frozen=True):
    """What to do next: calls with what goes before them, or a last word."""

    text: str = ""
    calls: tuple[tuple[Offer, dict[str, Any]], ...] = ()


class Task(msgspec.Struct, frozen=True):
    """Where a repair stands, as the transcript tells it."""

    offers: dict[str, Offer]
    check: str
    output: str  # of the first failing check
    has_passed: bool
    awaits_check: bool  # the last change was not checked yet
    sources: dict[str, str]  # as they were before any try
    unreadable: frozenset[str]
    present: dict[str, str]  # as they are now
    tried: frozenset[tuple[str, str]]  # path and content of every try
    steps_done: int
    gave_up: bool  # every step was made in vain, and that was said
    refusal: str  # why edits fail, if they keep failing
    favourites: tuple[tuple[str, int], ...]  # lines by path and number, the likeliest first


def task(transcript: Transcript, offers: Sequence[Offer]) -> Task | None:
    """The repair that is asked for, if one is and the tools for it are there."""
    kit = {offer.word: offer for offer in offers}
    if "read" not in kit or "edit" not in kit:
        return None
    turn = _Turn(transcript, kit)
    if not turn.output and not (turn.check and "bash" in kit):
        return None
    return turn.task()


class _Turn:
    """Reads the present turn of a transcript, item by item."""

    def __init__(self, transcript: Transcript, kit: dict[str, Offer]) -> None:
        self.kit = kit
        self.check = self.output = ""
        self.has_passed = self.awaits_check = self.gave_up = False
        self.sources: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self.present: dict[str, str] = {}
        self.tried: set[tuple[str, str]] = set()
        self.refusal = ""
        self.refusals = self.steps_done = 0
        self.favourites: list[tuple[str, int]] = []
        self._open: dict[str, ToolCall] = {}
        for item in _present_turn(transcript):
            match item:
                case UserItem():
                    self.check = evidence.check_command(item.text)
                case NoticeItem() if item.then == "ask":
                    self._failed(item.text)
                    self.check = self.check or evidence.goal_command(item.text)
                case AssistantItem():
                    self._open.update({call.id: call for call in item.calls})
                    self._read_try(item.text)
                case ToolResultItem() if item.call_id in self._open:
                    self._take(self._open.pop(item.call_id), item)
                case _:
                    pass

    def _failed(self, output: str) -> None:
        if evidence.is_failure(output):
            self.output = self.output or output
            self.has_passed = self.awaits_check = False

    def _read_try(self, text: str) -> None:
        if text.startswith(GIVING_UP):
            self.gave_up = True
        for number, kind, line, path, right in _TRY.findall(text):
            self.steps_done = int(number)
            self.gave_up = False
            places = [one.split(" of ", 1) for one in right.split(", ") if " of " in one]
            named = [(where, int(which)) for which, where in places]
            if kind == "line":
                named.append((path, int(line)))
            self.favourites += [place for place in named if place not in self.favourites]

    def _take(self, call: ToolCall, result: ToolResultItem) -> None:
        for word in ("read", "edit", "bash"):
            offer = self.kit.get(word)
            if offer is None or offer.tool != call.name:
                continue
            given = offer.recall(call.arguments or {}) or {}
            {"read": self._seen, "edit": self._changed, "bash": self._ran}[word](given, result)

    def _seen(self, given: Mapping[str, Any], result: ToolResultItem) -> None:
        path = str(given.get("path", ""))
        if result.is_error:
            self.unreadable.add(path)
        elif path not in self.sources:
            self.sources[path] = self.present[path] = evidence.without_numbers(result.text)

    def _changed(self, given: Mapping[str, Any], result: ToolResultItem) -> None:
        path, old, new = (str(given.get(name, "")) for name in ("path", "old", "new"))
        text = self.present.get(path)
        if text is None or old not in text:
            return
        changed = text.replace(old, new, 1)
        if changed != self.sources[path]:
            self.tried.add((path, changed))
        if result.is_error:
            self.refusals += 1
            self.refusal = result.text
            return
        self.refusals = 0
        self.present[path] = changed
        self.awaits_check = changed != self.sources[path]

    def _ran(self, given: Mapping[str, Any], result: ToolResultItem) -> None:
        command = str(given.get("command", ""))
        if not self.check or self.check not in command:
            return
        self.awaits_check = False
        self.has_passed = PASSED in result.text
        if not self.has_passed and not self.output:
            self.output = result.text

    def task(self) -> Task:
        return Task(
            offers=self.kit,
            check=self.check,
            output=self.output,
            has_passed=self.has_passed,
            awaits_check=self.awaits_check,
            sources=self.sources,
            unreadable=frozenset(self.unreadable),
            present=self.present,
            tried=frozenset(self.tried),
            steps_done=self.steps_done,
            gave_up=self.gave_up,
            refusal=self.refusal if self.refusals >= MOST_REFUSALS else "",
            favourites=tuple(self.favourites),
        )


def _present_turn(transcript: Transcript) -> list[Any]:
    start = 0
    for place in range(len(transcript) - 1, -1, -1):
        if isinstance(transcript[place], UserItem):
            start = place
            break
    return transcript[start:]


async def moves(task: Task, server: Server) -> AsyncGenerator[Piece | Step, None]:
    """What the model was asked on the way (for the account), and at last the one next step."""
    if task.has_passed:
        yield Step(_told(task))
    elif not task.output:
        yield Step("I run the check first.", (_checked(task),))
    elif unread := _unread(task):
        read = task.offers["read"]
        yield Step("", tuple((read, {"path": path}) for path in unread))
    elif task.gave_up or task.refusal:
        reason = task.refusal.strip().partition("\n")[0]
        yield Step(f"{GIVING_UP}: {reason}" if reason else f"{GIVING_UP}.")
    elif task.awaits_check:
        yield Step(f"{_told(task)} The check has not been run on it yet.")
    else:
        async for found in _next_try(task, server):
            yield found


def _unread(task: Task) -> list[str]:
    """The files to read next: the check's own, what they import, and those in its output."""
    wanted = evidence.command_files(task.check)
    for path, source in task.sources.items():
        wanted += evidence.imported_files(path, source)
    wanted += evidence.named_files(task.output)
    known = [*task.sources, *task.unreadable]
    fresh: list[str] = []
    for path in wanted:
        if not any(_is_same(path, other) for other in (*known, *fresh)):
            fresh.append(path)
    return fresh[:MOST_READ] if len(task.sources) < MOST_SOURCES else []


def _is_same(one: str, other: str) -> bool:
    """Absolute in a traceback, relative in an import: the shorter one is the other's end."""
    short, long = sorted((one.removeprefix("./"), other.removeprefix("./")), key=len)
    return short == long or long.endswith(f"/{short}")


def _checked(task: Task) -> tuple[Offer, dict[str, Any]]:
    return task.offers["bash"], {"command": f"{task.check} && echo '{PASSED}'"}


def _told(task: Task) -> str:
    """What was changed, in a sentence or two."""
    told: list[str] = []
    for path, text in task.present.items():
        before, after = task.sources[path].splitlines(), text.splitlines()
        for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after).get_opcodes():
            old, new = (" ".join(" ".join(part).split()) for part in (before[a:b], after[c:d]))
            if kind != "equal":
                told.append(f"In {path}, `{old}` became `{new}`.")
    if task.has_passed:
        told.append(f"`{task.check}` passes.")
    return " ".join(told)


async def _next_try(task: Task, server: Server) -> AsyncGenerator[Piece | Step, None]:
    """Asks for changes until one is new, and tries that."""
    search = _Search(task)
    for change, place in search.siblings(task.tried):
        if (change.path, change.source) not in task.tried:
            yield _try(task, task.steps_done, place, change, ())
            return
    await server.bake(INSTRUCTION)
    for number in range(task.steps_done, len(PLAN)):
        asked = search.ask(number)
        if asked is None:
            continue
        piece = await server.text(asked.prompt, **asked.options)
        yield piece
        for change, place in search.heard(asked, piece.text):
            if (change.path, change.source) not in task.tried:
                yield _try(task, number + 1, place, change, search.right)
                return
    yield Step(f"{GIVING_UP}: {len(task.tried)} were tried.", _undo(task))


class _Asked(msgspec.Struct, frozen=True):
    """A question to the model: for one of these lines, or for the function around the first."""

    kind: str
    prompt: str
    options: dict[str, Any]
    among: tuple[Line, ...]


class _Search:
    """The questions of a plan, and what to make of the answers."""

    def __init__(self, task: Task) -> None:
        self.sources = task.sources
        failing = evidence.excerpt(task.output)
        self.lines = candidates.suspects(task.sources)
        self.circles = candidates.circles(self.lines, failing)
        self.begun = candidates.question(task.sources, failing)
        by_place = {(line.path, line.number): line for line in self.lines}
        self.favourites = [by_place[place] for place in task.favourites if place in by_place]
        self.right: list[Line] = []  # named, but left as they were

    def ask(self, number: int) -> _Asked | None:
        kind, which = PLAN[number]
        among = self._favourite(which) if which >= 0 else self._unnamed()
        if not among:
            return None
        if kind == "line":
            chance = candidates.CHANCE if which >= 0 else 0.0
            options = candidates.line_options(among, chance=chance, seed=number)
            return _Asked(kind, self.begun + prompt.begin(), options, tuple(among))
        place = candidates.function_around(self.sources[among[0].path], among[0])
        if place is None:
            return None
        chance = candidates.CHANCE if (kind, which) in PLAN[:number] else 0.0
        source = self.sources[among[0].path]
        start = candidates.function_start(source, place[0])
        options = candidates.function_options(source, place[0], chance=chance, seed=number)
        return _Asked(kind, self.begun + prompt.begin(start), options, tuple(among))

    def heard(self, asked: _Asked, text: str) -> list[tuple[Change, str]]:
        """The changes that an answer amounts to, each with the words for its place."""
        if asked.kind == "function":
            return self._functions(asked.among[0], text)
        wrong, written = candidates.read_line(text)
        same = [line for line in asked.among if line.bare == wrong]
        self.favourites += [line for line in same if line not in self.favourites]
        if not written or written == wrong:
            self.right += same
            return []
        return [
            (candidates.with_line(self.sources[line.path], line, written), f"line {line}")
            for line in same
        ]

    def _functions(self, line: Line, body: str) -> list[tuple[Change, str]]:
        source = self.sources[line.path]
        place = candidates.function_around(source, line)
        assert place is not None
        change = candidates.with_function(source, line.path, *place, body)
        if change is None or change.source == source:
            return []
        return [(change, f"function at line {place[0]} of {line.path}")]

    def _unnamed(self) -> list[Line]:
        named = {line.bare for line in self.favourites}
        for lines in self.circles:
            if left := [line for line in lines if line.bare not in named]:
                return left
        return []

    def _favourite(self, which: int) -> list[Line]:
        texts = list(dict.fromkeys(line.bare for line in self.favourites))
        wanted = texts[which] if which < len(texts) else None
        return [line for line in self.lines if line.bare == wanted]

    def siblings(self, tried: frozenset[tuple[str, str]]) -> list[tuple[Change, str]]:
        """What was tried on one line, for the other lines that read the same."""
        found: list[tuple[Change, str]] = []
        for path, text in sorted(tried):
            pairs = zip(self.sources[path].splitlines(), text.splitlines(), strict=False)
            changed = [(old.strip(), new.strip()) for old, new in pairs if old != new]
            if len(changed) != 1:
                continue
            for line in self.lines:
                if line.bare == changed[0][0]:
                    change = candidates.with_line(self.sources[line.path], line, changed[0][1])
                    found.append((change, f"line {line}"))
        return found


def _try(task: Task, number: int, place: str, change: Change, right: Sequence[Line]) -> Step:
    said = f"Try {number}: {place}."
    if right:
        said += f" Lines that look right: {', '.join(str(line) for line in right)}."
    edit = _edit(task, change.path, task.sources[change.path], change.source)
    check = (_checked(task),) if task.check and "bash" in task.offers else ()
    return Step(said, (*_undo(task), edit, *check))


def _undo(task: Task) -> tuple[tuple[Offer, dict[str, Any]], ...]:
    return tuple(
        _edit(task, path, text, task.sources[path])
        for path, text in task.present.items()
        if text != task.sources[path]
    )


def _edit(task: Task, path: str, old: str, new: str) -> tuple[Offer, dict[str, Any]]:
    """The smallest edit of whole lines that leads from one text to the other and fits once."""
    before, after = old.splitlines(), new.splitlines()
    start = 0
    while start < min(len(before), len(after)) - 1 and before[start] == after[start]:
        start += 1
    tail = 0
    while tail < min(len(before), len(after)) - start - 1 and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    while start > 0 and old.count("\n".join(before[start : len(before) - tail])) > 1:
        start -= 1
    given = {
        "path": path,
        "old": "\n".join(before[start : len(before) - tail]),
        "new": "\n".join(after[start : len(after) - tail]),
    }
    return task.offers["edit"], given
