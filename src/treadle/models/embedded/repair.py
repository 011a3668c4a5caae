"""Repairing with a small model: the engine drives, the model only fills in one line.

    the check's output is not known      run the check
    the files behind it were not read    read them
    otherwise                            Try N: undo the last try, change one line, check again
    the check passed                     say so

A try asks the model for one line (line_edits.py). The grammar holds the lines not named yet, so
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
from treadle.models.embedded import failure_parsing, line_edits, prompt
from treadle.models.embedded.line_edits import FileRewrite, SourceLine
from treadle.models.embedded.server import CompletionChunk, LlamaServer
from treadle.models.embedded.small_toolset import SmallTool

INSTRUCTION = line_edits.INSTRUCTION
GIVE_UP_TEXT = "I found no change that makes the check pass"
PASSED_MARKER = "[check passed]"
MAX_REFUSED_EDITS = 2  # edits in a row
MAX_FILES_PER_READ = 3  # files at once
MAX_SOURCES = 6

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


class RepairStep(msgspec.Struct, frozen=True):
    """What to do next: calls with what goes before them, or a last word."""

    text: str = ""
    calls: tuple[tuple[SmallTool, dict[str, Any]], ...] = ()


class RepairState(msgspec.Struct, frozen=True):
    """Where a repair stands, as the transcript tells it."""

    tools: dict[str, SmallTool]
    check: str
    output: str  # of the first failing check
    has_passed: bool
    awaits_check: bool  # the last change was not checked yet
    sources: dict[str, str]  # as they were before any try
    unreadable: frozenset[str]
    current: dict[str, str]  # as they are now
    tried: frozenset[tuple[str, str]]  # path and content of every try
    steps_done: int
    gave_up: bool  # every step was made in vain, and that was said
    refusal: str  # why edits fail, if they keep failing
    ranked_lines: tuple[tuple[str, int], ...]  # lines by path and number, the likeliest first


def read_repair_state(transcript: Transcript, tools: Sequence[SmallTool]) -> RepairState | None:
    """The repair that is asked for, if one is and the tools for it are there."""
    kit = {offer.short_name: offer for offer in tools}
    if "read" not in kit or "edit" not in kit:
        return None
    turn = _TurnReader(transcript, kit)
    if not turn.output and not (turn.check and "bash" in kit):
        return None
    return turn.to_state()


class _TurnReader:
    """Reads the present turn of a transcript, item by item."""

    def __init__(self, transcript: Transcript, tools: dict[str, SmallTool]) -> None:
        self.tools = tools
        self.check = self.output = ""
        self.has_passed = self.awaits_check = self.gave_up = False
        self.sources: dict[str, str] = {}
        self.unreadable: set[str] = set()
        self.current: dict[str, str] = {}
        self.tried: set[tuple[str, str]] = set()
        self.refusal = ""
        self.refusals = self.steps_done = 0
        self.ranked_lines: list[tuple[str, int]] = []
        self._open_calls: dict[str, ToolCall] = {}
        for item in _list_turn_items(transcript):
            match item:
                case UserItem():
                    self.check = failure_parsing.find_check_command(item.text)
                case NoticeItem() if item.next_move == "ask":
                    self._record_failure(item.text)
                    self.check = self.check or failure_parsing.find_goal_command(item.text)
                case AssistantItem():
                    self._open_calls.update({call.id: call for call in item.calls})
                    self._parse_try(item.text)
                case ToolResultItem() if item.call_id in self._open_calls:
                    self._record_result(self._open_calls.pop(item.call_id), item)
                case _:
                    pass

    def _record_failure(self, output: str) -> None:
        if failure_parsing.has_failure(output):
            self.output = self.output or output
            self.has_passed = self.awaits_check = False

    def _parse_try(self, text: str) -> None:
        if text.startswith(GIVE_UP_TEXT):
            self.gave_up = True
        for number, kind, line, path, right in _TRY.findall(text):
            self.steps_done = int(number)
            self.gave_up = False
            places = [one.split(" of ", 1) for one in right.split(", ") if " of " in one]
            named = [(where, int(which)) for which, where in places]
            if kind == "line":
                named.append((path, int(line)))
            self.ranked_lines += [place for place in named if place not in self.ranked_lines]

    def _record_result(self, call: ToolCall, result: ToolResultItem) -> None:
        for word in ("read", "edit", "bash"):
            offer = self.tools.get(word)
            if offer is None or offer.real_name != call.name:
                continue
            given = offer.to_short_arguments(call.arguments or {}) or {}
            {"read": self._record_read, "edit": self._record_edit, "bash": self._record_check}[
                word
            ](given, result)

    def _record_read(self, arguments: Mapping[str, Any], result: ToolResultItem) -> None:
        path = str(arguments.get("path", ""))
        if result.is_error:
            self.unreadable.add(path)
        elif path not in self.sources:
            self.sources[path] = self.current[path] = failure_parsing.strip_line_numbers(
                result.text
            )

    def _record_edit(self, arguments: Mapping[str, Any], result: ToolResultItem) -> None:
        path, old, new = (str(arguments.get(name, "")) for name in ("path", "old", "new"))
        text = self.current.get(path)
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
        self.current[path] = changed
        self.awaits_check = changed != self.sources[path]

    def _record_check(self, arguments: Mapping[str, Any], result: ToolResultItem) -> None:
        command = str(arguments.get("command", ""))
        if not self.check or self.check not in command:
            return
        self.awaits_check = False
        self.has_passed = PASSED_MARKER in result.text
        if not self.has_passed and not self.output:
            self.output = result.text

    def to_state(self) -> RepairState:
        return RepairState(
            tools=self.tools,
            check=self.check,
            output=self.output,
            has_passed=self.has_passed,
            awaits_check=self.awaits_check,
            sources=self.sources,
            unreadable=frozenset(self.unreadable),
            current=self.current,
            tried=frozenset(self.tried),
            steps_done=self.steps_done,
            gave_up=self.gave_up,
            refusal=self.refusal if self.refusals >= MAX_REFUSED_EDITS else "",
            ranked_lines=tuple(self.ranked_lines),
        )


def _list_turn_items(transcript: Transcript) -> list[Any]:
    start = 0
    for place in range(len(transcript) - 1, -1, -1):
        if isinstance(transcript[place], UserItem):
            start = place
            break
    return transcript[start:]


async def find_next_step(
    state: RepairState, server: LlamaServer
) -> AsyncGenerator[CompletionChunk | RepairStep, None]:
    """What the model was asked on the way (for the account), and at last the one next step."""
    if state.has_passed:
        yield RepairStep(_describe_changes(state))
    elif not state.output:
        yield RepairStep("I run the check first.", (_build_check_call(state),))
    elif unread := _find_unread_files(state):
        read = state.tools["read"]
        yield RepairStep("", tuple((read, {"path": path}) for path in unread))
    elif state.gave_up or state.refusal:
        reason = state.refusal.strip().partition("\n")[0]
        yield RepairStep(f"{GIVE_UP_TEXT}: {reason}" if reason else f"{GIVE_UP_TEXT}.")
    elif state.awaits_check:
        yield RepairStep(f"{_describe_changes(state)} The check has not been run on it yet.")
    else:
        async for found in _find_next_try(state, server):
            yield found


def _find_unread_files(state: RepairState) -> list[str]:
    """The files to read next: the check's own, what they import, and those in its output."""
    wanted = failure_parsing.find_command_files(state.check)
    for path, source in state.sources.items():
        wanted += failure_parsing.find_imported_files(path, source)
    wanted += failure_parsing.find_file_names(state.output)
    known = [*state.sources, *state.unreadable]
    fresh: list[str] = []
    for path in wanted:
        if not any(_is_same_path(path, other) for other in (*known, *fresh)):
            fresh.append(path)
    return fresh[:MAX_FILES_PER_READ] if len(state.sources) < MAX_SOURCES else []


def _is_same_path(one: str, other: str) -> bool:
    """Absolute in a traceback, relative in an import: the shorter one is the other's end."""
    short, long = sorted((one.removeprefix("./"), other.removeprefix("./")), key=len)
    return short == long or long.endswith(f"/{short}")


def _build_check_call(state: RepairState) -> tuple[SmallTool, dict[str, Any]]:
    return state.tools["bash"], {"command": f"{state.check} && echo '{PASSED_MARKER}'"}


def _describe_changes(state: RepairState) -> str:
    """What was changed, in a sentence or two."""
    told: list[str] = []
    for path, text in state.current.items():
        before, after = state.sources[path].splitlines(), text.splitlines()
        for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after).get_opcodes():
            old, new = (" ".join(" ".join(part).split()) for part in (before[a:b], after[c:d]))
            if kind != "equal":
                told.append(f"In {path}, `{old}` became `{new}`.")
    if state.has_passed:
        told.append(f"`{state.check}` passes.")
    return " ".join(told)


async def _find_next_try(
    state: RepairState, server: LlamaServer
) -> AsyncGenerator[CompletionChunk | RepairStep, None]:
    """Asks for changes until one is new, and tries that."""
    search = _EditSearch(state)
    for change, place in search.repeat_on_equal_lines(state.tried):
        if (change.path, change.source) not in state.tried:
            yield _build_try(state, state.steps_done, place, change, ())
            return
    await server.load_prefix(INSTRUCTION)
    for number in range(state.steps_done, len(PLAN)):
        asked = search.build_question(number)
        if asked is None:
            continue
        piece = await server.complete_text(asked.prompt, **asked.options)
        yield piece
        for change, place in search.parse_answer(asked, piece.text):
            if (change.path, change.source) not in state.tried:
                yield _build_try(state, number + 1, place, change, search.unchanged_lines)
                return
    yield RepairStep(f"{GIVE_UP_TEXT}: {len(state.tried)} were tried.", _build_undo_calls(state))


class _Question(msgspec.Struct, frozen=True):
    """A question to the model: for one of these lines, or for the function around the first."""

    kind: str
    prompt: str
    options: dict[str, Any]
    lines: tuple[SourceLine, ...]


class _EditSearch:
    """The questions of a plan, and what to make of the answers."""

    def __init__(self, state: RepairState) -> None:
        self.sources = state.sources
        failing = failure_parsing.extract_failure(state.output)
        self.lines = line_edits.list_suspect_lines(state.sources)
        self.line_groups = line_edits.group_suspect_lines(self.lines, failing)
        self.prompt_start = line_edits.build_question(state.sources, failing)
        by_place = {(line.path, line.number): line for line in self.lines}
        self.ranked_lines = [by_place[place] for place in state.ranked_lines if place in by_place]
        self.unchanged_lines: list[SourceLine] = []  # named, but left as they were

    def build_question(self, number: int) -> _Question | None:
        kind, which = PLAN[number]
        among = self._find_ranked_lines(which) if which >= 0 else self._list_unnamed_lines()
        if not among:
            return None
        if kind == "line":
            chance = line_edits.RETRY_TEMPERATURE if which >= 0 else 0.0
            options = line_edits.build_line_options(among, temperature=chance, seed=number)
            return _Question(kind, self.prompt_start + prompt.start_reply(), options, tuple(among))
        place = line_edits.find_function(self.sources[among[0].path], among[0])
        if place is None:
            return None
        chance = line_edits.RETRY_TEMPERATURE if (kind, which) in PLAN[:number] else 0.0
        source = self.sources[among[0].path]
        start = line_edits.start_function(source, place[0])
        options = line_edits.build_function_options(
            source, place[0], temperature=chance, seed=number
        )
        return _Question(kind, self.prompt_start + prompt.start_reply(start), options, tuple(among))

    def parse_answer(self, question: _Question, text: str) -> list[tuple[FileRewrite, str]]:
        """The changes that an answer amounts to, each with the words for its place."""
        if question.kind == "function":
            return self._build_function_rewrites(question.lines[0], text)
        wrong, written = line_edits.parse_line_answer(text)
        same = [line for line in question.lines if line.stripped == wrong]
        self.ranked_lines += [line for line in same if line not in self.ranked_lines]
        if not written or written == wrong:
            self.unchanged_lines += same
            return []
        return [
            (line_edits.replace_line(self.sources[line.path], line, written), f"line {line}")
            for line in same
        ]

    def _build_function_rewrites(
        self, line: SourceLine, body: str
    ) -> list[tuple[FileRewrite, str]]:
        source = self.sources[line.path]
        place = line_edits.find_function(source, line)
        assert place is not None
        change = line_edits.replace_function(source, line.path, *place, body)
        if change is None or change.source == source:
            return []
        return [(change, f"function at line {place[0]} of {line.path}")]

    def _list_unnamed_lines(self) -> list[SourceLine]:
        named = {line.stripped for line in self.ranked_lines}
        for lines in self.line_groups:
            if left := [line for line in lines if line.stripped not in named]:
                return left
        return []

    def _find_ranked_lines(self, rank: int) -> list[SourceLine]:
        texts = list(dict.fromkeys(line.stripped for line in self.ranked_lines))
        wanted = texts[rank] if rank < len(texts) else None
        return [line for line in self.lines if line.stripped == wanted]

    def repeat_on_equal_lines(
        self, tried: frozenset[tuple[str, str]]
    ) -> list[tuple[FileRewrite, str]]:
        """What was tried on one line, for the other lines that read the same."""
        found: list[tuple[FileRewrite, str]] = []
        for path, text in sorted(tried):
            pairs = zip(self.sources[path].splitlines(), text.splitlines(), strict=False)
            changed = [(old.strip(), new.strip()) for old, new in pairs if old != new]
            if len(changed) != 1:
                continue
            for line in self.lines:
                if line.stripped == changed[0][0]:
                    change = line_edits.replace_line(self.sources[line.path], line, changed[0][1])
                    found.append((change, f"line {line}"))
        return found


def _build_try(
    state: RepairState,
    number: int,
    location: str,
    change: FileRewrite,
    unchanged_lines: Sequence[SourceLine],
) -> RepairStep:
    said = f"Try {number}: {location}."
    if unchanged_lines:
        said += f" Lines that look right: {', '.join(str(line) for line in unchanged_lines)}."
    edit = _build_edit_call(state, change.path, state.sources[change.path], change.source)
    check = (_build_check_call(state),) if state.check and "bash" in state.tools else ()
    return RepairStep(said, (*_build_undo_calls(state), edit, *check))


def _build_undo_calls(state: RepairState) -> tuple[tuple[SmallTool, dict[str, Any]], ...]:
    return tuple(
        _build_edit_call(state, path, text, state.sources[path])
        for path, text in state.current.items()
        if text != state.sources[path]
    )


def _build_edit_call(
    state: RepairState, path: str, old: str, new: str
) -> tuple[SmallTool, dict[str, Any]]:
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
    return state.tools["edit"], given
