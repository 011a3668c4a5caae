"""Repairing with a small model: the engine drives, the model only fills in one line.

    the check's output is not known      run the check
    the files behind it were not read    read them
    otherwise                            Try N: undo the last try, change one line, check again
    the check passed                     say so

A try asks the model for one thing: "Wrong: <a line of the file> / Right: <that line, right>".
The grammar holds the lines not yet named, so the model ranks them; a favoured line is asked for
again with some chance in it. Where this stands is read off the transcript at every request (the
tries say their number and lines), so it goes on after a crash. Every change is a real edit call.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.embedded import evidence, prompt
from treadle.models.embedded.grammar import literal
from treadle.models.embedded.server import Piece, Server
from treadle.models.embedded.toolkit import Offer

PASSED = "[check passed]"
LINE_TOKENS = 64
SOURCE_CHARS = 2_400

# greedy: the likeliest line not named yet · 0, 1, ...: that favourite again, with some chance
PLAN: tuple[str, ...] = (
    *("greedy", "greedy", "0", "0", "greedy", "1", "0", "greedy", "2", "1"),
    *("greedy", "0", "greedy", "1", "greedy", "greedy", "2", "0", "greedy", "greedy"),
)

INSTRUCTION = (
    prompt.turn(
        "system",
        "You repair programs. One line of the code is wrong. "
        "Copy the wrong line, then write it correctly.",
    )
    + prompt.turn(
        "user",
        "Code:\ndef last(items):\n    return items[len(items)]\n"
        "Check:\nFAIL: test_last\nIndexError: list index out of range",
    )
    + prompt.turn(
        "assistant", "Wrong: return items[len(items)]\nRight: return items[len(items) - 1]"
    )
    + prompt.turn(
        "user",
        'Code:\ndef greet(name):\n    return "Hello " + name\n'
        'Check:\nFAIL: test_greet\nself.assertEqual(greet("Ann"), "Hello, Ann!")\n'
        "AssertionError: 'Hello Ann' != 'Hello, Ann!'",
    )
    + prompt.turn(
        "assistant",
        'Wrong: return "Hello " + name\nRight: return "Hello, " + name + "!"',
    )
)

_TRY = re.compile(
    r"^Try (\d+): line (\d+) of (\S+?)\.(?: Lines that look right: ([^.]*)\.)?$", re.M
)


class Line(msgspec.Struct, frozen=True):
    """One line of a suspected file."""

    path: str
    number: int  # from 1
    text: str

    @property
    def bare(self) -> str:
        return self.text.strip()

    def __str__(self) -> str:
        return f"{self.number} of {self.path}"


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
        self.has_passed = self.awaits_check = False
        self.sources: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self.present: dict[str, str] = {}
        self.tried: set[tuple[str, str]] = set()
        self.steps_done = 0
        self.favourites: list[tuple[str, int]] = []
        self._open: dict[str, ToolCall] = {}
        for item in _present_turn(transcript):
            match item:
                case UserItem():
                    self.check = evidence.check_command(item.text)
                case NoticeItem() if item.then == "ask":
                    self._failed(item.text)
                    self.check = self.check or evidence.check_command(f"fix {item.text}")
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
        for number, line, path, right in _TRY.findall(text):
            self.steps_done = int(number)
            named = [tuple(one.rsplit(" of ", 1)) for one in right.split(", ") if " of " in one]
            for where, which in [*((p, int(n)) for n, p in named), (path, int(line))]:
                if (where, which) not in self.favourites:
                    self.favourites.append((where, which))

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
        self.tried.add((path, changed))
        if not result.is_error:
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
    elif task.awaits_check:
        yield Step(f"{_told(task)} The check has not been run on it yet.")
    else:
        async for found in _next_try(task, server):
            yield found


def _unread(task: Task) -> list[str]:
    """The files to read next: the check's own, those in its output, and what they import."""
    wanted = evidence.named_files(task.output) + evidence.command_files(task.check)
    for path, source in task.sources.items():
        wanted += evidence.imported_files(path, source)
    seen = {_known_as(path) for path in (*task.sources, *task.unreadable)}
    fresh = [path for path in dict.fromkeys(wanted) if _known_as(path) not in seen]
    return fresh[:3] if len(task.sources) < 6 else []


def _known_as(path: str) -> str:
    """Absolute in a traceback, relative in an import: one file by its last name."""
    return path.rpartition("/")[2]


def _checked(task: Task) -> tuple[Offer, dict[str, Any]]:
    return task.offers["bash"], {"command": f"{task.check} && echo '{PASSED}'"}


def _told(task: Task) -> str:
    """What was changed, in a sentence or two."""
    told: list[str] = []
    for path, text in task.present.items():
        for old, new in zip(task.sources[path].splitlines(), text.splitlines(), strict=False):
            if old != new:
                told.append(f"In {path}, `{old.strip()}` became `{new.strip()}`.")
    if task.has_passed:
        told.append(f"`{task.check}` passes.")
    return " ".join(told)


async def _next_try(task: Task, server: Server) -> AsyncGenerator[Piece | Step, None]:
    lines = _suspects(task)
    by_place = {(line.path, line.number): line for line in lines}
    favourites = [by_place[place] for place in task.favourites if place in by_place]
    asked = INSTRUCTION + _question(task, lines) + prompt.begin()
    right: list[Line] = []
    await server.bake(INSTRUCTION)
    for number in range(task.steps_done, len(PLAN)):
        among = _among(PLAN[number], lines, favourites)
        if not among:
            continue
        chance = 0.0 if PLAN[number] == "greedy" else 0.9
        piece = await server.text(asked, **_one_line(among, chance, number))
        yield piece
        wrong, written = _read(piece.text)
        same = [line for line in among if line.bare == wrong]
        favourites += [line for line in same if line not in favourites]
        fresh = [line for line in same if _is_new(task, line, written)]
        if fresh:
            yield _try(task, number + 1, fresh[0], written, right)
            return
        right += same
    yield Step(f"I tried {len(task.tried)} changes and none makes the check pass.", _undo(task))


def _suspects(task: Task) -> list[Line]:
    """Every line that may be the wrong one."""
    found: list[Line] = []
    for path, source in task.sources.items():
        if evidence.is_test(path):
            continue
        for number, text in enumerate(source.splitlines(), 1):
            if _may_be_wrong(text.strip()):
                found.append(Line(path, number, text))
    return found


def _may_be_wrong(bare: str) -> bool:
    plain = ("#", "//", '"""', "'''", "import ", "from ", "class ", "@", "fi", "done", "esac")
    return len(bare) > 3 and not bare.startswith(plain) and bare not in ("else:", "try:", "else")


def _question(task: Task, lines: Sequence[Line]) -> str:
    paths = dict.fromkeys(line.path for line in lines)
    code = "\n".join(task.sources[path].strip("\n") for path in paths)
    said = f"Code:\n{prompt.clipped(code, SOURCE_CHARS)}\nCheck:\n{evidence.excerpt(task.output)}"
    return prompt.turn("user", said)


def _among(step: str, lines: Sequence[Line], favourites: Sequence[Line]) -> list[Line]:
    if step == "greedy":
        named = {line.bare for line in favourites}
        return [line for line in lines if line.bare not in named]
    texts = list(dict.fromkeys(line.bare for line in favourites))
    wanted = texts[int(step)] if int(step) < len(texts) else None
    return [line for line in lines if line.bare == wanted]


def _one_line(among: Sequence[Line], chance: float, seed: int) -> dict[str, Any]:
    ways = " | ".join(literal(text) for text in dict.fromkeys(line.bare for line in among))
    rule = f'root ::= "Wrong: " ({ways}) "\\nRight: " [^\\n]+ "\\n"'
    return {"grammar": rule, "temperature": chance, "seed": seed, "n_predict": LINE_TOKENS}


def _read(text: str) -> tuple[str, str]:
    wrong, _, written = text.partition("\nRight: ")
    return wrong.removeprefix("Wrong: "), written.strip()


def _is_new(task: Task, line: Line, written: str) -> bool:
    if not written or written == line.bare:
        return False
    return (line.path, _with(task.sources[line.path], line, written)) not in task.tried


def _with(source: str, line: Line, written: str) -> str:
    lines = source.splitlines(keepends=True)
    indent = line.text[: len(line.text) - len(line.text.lstrip())]
    lines[line.number - 1] = f"{indent}{written}\n"
    return "".join(lines)


def _try(task: Task, number: int, line: Line, written: str, right: Sequence[Line]) -> Step:
    said = f"Try {number}: line {line}."
    if right:
        said += f" Lines that look right: {', '.join(str(one) for one in right)}."
    source = task.sources[line.path]
    change = _edit(task, line.path, source, _with(source, line, written))
    check = (_checked(task),) if task.check and "bash" in task.offers else ()
    return Step(said, (*_undo(task), change, *check))


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
