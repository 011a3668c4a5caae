"""Repairs a program with a small model: code decides the steps, the model only writes one line.

    no check is named                    list the folder, and take the tests that it has
    the check's output is not known      run the check
    its files have not been read         read them
    otherwise                            try N: undo the last try, change one line, check again
    the check passed                     report the change

A try asks the model for one line (line_edits.py). The grammar allows the lines not named yet, so
the model ranks them; a line with a high rank is asked for again with a higher temperature, or its
whole function. The state is read from the transcript at every request: edits and checks from the
calls, the rest from a RepairRecord in each reply. So a repair continues after a crash.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.transcript.content import Opaque, ToolCall
from treadle.core.transcript.items import AssistantItem, NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.embedded import prompt_text as prompt
from treadle.models.embedded.aids import check_output, line_edits
from treadle.models.embedded.aids.change_request import (
    asks_for_repair,
    find_names,
    find_project_check,
)
from treadle.models.embedded.aids.line_edits import FileRewrite, SourceLine
from treadle.models.embedded.server import CompletionChunk, LlamaServer
from treadle.models.embedded.small_toolset import SmallTool, to_short_call

INSTRUCTION = line_edits.INSTRUCTION
ORIGIN = "embedded"  # of the Opaque part with the record
GIVE_UP_TEXT = "I found no change that makes the check pass"
PASSED_MARKER = "[check passed]"  # printed by the check command itself
MAX_REFUSED_EDITS = 2  # in a row
MAX_FILES_PER_READ = 3
MAX_SOURCES = 6

# ("line", -1): the likeliest line not named yet · ("line", N): the line of rank N again, with a
# higher temperature · ("function", N): its whole function, the second time with that temperature
PLAN: tuple[tuple[str, int], ...] = (
    *(("line", -1), ("line", 0), ("line", -1), ("line", 0), ("line", -1), ("line", 0)),
    *(("function", 0), ("line", 1), ("line", -1), ("line", 0), ("line", 2), ("line", 1)),
    *(("line", -1), ("line", 0), ("function", 1), ("line", 1), ("line", -1), ("line", 0)),
    *(("function", 0), ("line", 2), ("line", 0), ("line", -1), ("line", 1), ("line", -1)),
)


class RepairRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a reply of a repair leaves in the transcript for the next request.

    It is stored as an Opaque part, which no model is shown.
    """

    steps_done: int = 0
    named_lines: tuple[tuple[str, int], ...] = ()  # path and number, the likeliest first
    gave_up: bool = False

    def to_part(self) -> Opaque:
        return Opaque(ORIGIN, msgspec.json.encode(self).decode())


PlannedCall = tuple[SmallTool, dict[str, Any]]


class RepairStep(msgspec.Struct, frozen=True):
    """The next reply: a text, calls, and what the next request must know."""

    text: str = ""
    calls: tuple[PlannedCall, ...] = ()
    record: RepairRecord | None = None
    has_failed: bool = False  # nothing is done, and no goal will say so


class RepairState:
    """The state of a repair, read from the current turn of a transcript."""

    def __init__(self, transcript: Transcript, tools: dict[str, SmallTool]) -> None:
        self.tools = tools
        self.check = ""
        self.is_check_named = True  # by the user or a goal; else it was found in the folder
        self.needs_listing = False  # to find the check
        self.has_goal = False
        self.request = ""
        self.output = ""  # of the first failing check
        self.has_passed = False
        self.awaits_check = False  # the last change has not been checked
        self.sources: dict[str, str] = {}  # before any try
        self.unreadable: set[str] = set()
        self.current: dict[str, str] = {}  # now
        self.tried: set[tuple[str, str]] = set()  # path and content of every try
        self.steps_done = 0
        self.gave_up = False  # every step of the plan failed, and a reply says so
        self.refusal = ""  # why edits fail, if they keep failing
        self.ranked_lines: list[tuple[str, int]] = []  # path and number, the likeliest first
        self._refusals = 0  # in a row
        self._open_calls: dict[str, ToolCall] = {}
        for item in transcript[max(0, prompt.find_last_input(transcript)) :]:
            match item:
                case UserItem():
                    self.request = item.text
                    self.check = check_output.find_check_command(item.text)
                    self.is_check_named = bool(self.check)
                    self.needs_listing = not self.check and asks_for_repair(item.text)
                case NoticeItem() if item.next_move == "ask":
                    self.has_goal, self.needs_listing = True, False
                    self._record_failure(item.text)
                    self.check = self.check or str((item.data or {}).get("goal_command", ""))
                case AssistantItem():
                    self._open_calls.update({call.id: call for call in item.calls})
                    self._read_record(item)
                case ToolResultItem() if item.call_id in self._open_calls:
                    self._record_result(self._open_calls.pop(item.call_id), item)
                case _:
                    pass

    def _record_failure(self, output: str) -> None:
        if check_output.has_failure(output):
            self.output = self.output or output
            self.has_passed = self.awaits_check = False

    def _read_record(self, item: AssistantItem) -> None:
        for part in item.content:
            if isinstance(part, Opaque) and part.origin == ORIGIN:
                record = msgspec.json.decode(part.json, type=RepairRecord)
                self.gave_up = record.gave_up
                self.steps_done = record.steps_done
                new = [line for line in record.named_lines if line not in self.ranked_lines]
                self.ranked_lines += new

    def _record_result(self, call: ToolCall, result: ToolResultItem) -> None:
        if to_short_call(call, self.tools.values()) == ("ls", {"path": "."}):
            self._record_listing(result)
            return
        readers = {"read": self._record_read, "edit": self._record_edit, "bash": self._record_check}
        for name, record in readers.items():
            tool = self.tools.get(name)
            if tool is not None and tool.real_name == call.name:
                record(tool.to_short_arguments(call.arguments or {}) or {}, result)

    def _record_listing(self, result: ToolResultItem) -> None:
        if self.needs_listing and not result.is_error:
            self.check = find_project_check(self.request, find_names(result.text))
        self.needs_listing = False

    def _record_read(self, arguments: Mapping[str, Any], result: ToolResultItem) -> None:
        path = str(arguments.get("path", ""))
        if result.is_error:
            self.unreadable.add(path)
        elif path not in self.sources:
            source = check_output.strip_line_numbers(result.text)
            self.sources[path] = self.current[path] = source

    def _record_edit(self, arguments: Mapping[str, Any], result: ToolResultItem) -> None:
        path, old, new = (str(arguments.get(name, "")) for name in ("path", "old", "new"))
        text = self.current.get(path)
        if text is None or old not in text:
            return
        changed = text.replace(old, new, 1)
        if changed != self.sources[path]:
            self.tried.add((path, changed))
        if result.is_error:
            self._refusals += 1
            self.refusal = result.text if self._refusals >= MAX_REFUSED_EDITS else ""
            return
        self._refusals, self.refusal = 0, ""
        self.current[path] = changed
        self.awaits_check = changed != self.sources[path]

    def _record_check(self, arguments: Mapping[str, Any], result: ToolResultItem) -> None:
        command = str(arguments.get("command", ""))
        if not self.check or self.check not in command:
            return
        self.awaits_check = False
        self.has_passed = PASSED_MARKER in result.text
        is_first = not self.output
        is_useless = self.has_passed or check_output.cannot_run(result.text)
        if not self.is_check_named and is_first and (is_useless or result.outcome == "denied"):
            self.check, self.has_passed = "", False  # it says nothing about what is wrong
            return
        if not self.has_passed and not self.output:
            self.output = result.text


def read_repair_state(transcript: Transcript, tools: Sequence[SmallTool]) -> RepairState | None:
    """The repair that the user asks for; None if it is none, or the tools for it are missing."""
    by_name = {tool.short_name: tool for tool in tools}
    if "read" not in by_name or "edit" not in by_name:
        return None
    state = RepairState(transcript, by_name)
    can_check = state.check or (state.needs_listing and "ls" in by_name)
    return state if state.output or (can_check and "bash" in by_name) else None


async def find_next_step(
    state: RepairState, server: LlamaServer
) -> AsyncGenerator[CompletionChunk | RepairStep, None]:
    """The completions that were needed (for the usage), then the next step."""
    if state.has_passed:
        yield RepairStep(_describe_changes(state))
    elif state.needs_listing and not state.output:
        yield RepairStep("", ((state.tools["ls"], {"path": "."}),))
    elif not state.output:
        yield RepairStep("I run the check first.", (_build_check_call(state),))
    elif unread := _find_unread_files(state):
        read = state.tools["read"]
        yield RepairStep("", tuple((read, {"path": path}) for path in unread))
    elif state.gave_up or state.refusal:
        reason = state.refusal.strip().partition("\n")[0]
        yield _give_up(state, f": {reason}" if reason else ".")
    elif state.awaits_check:
        yield RepairStep(f"{_describe_changes(state)} The check has not been run on it yet.")
    else:
        async for step in _find_next_try(state, server):
            yield step


def _give_up(state: RepairState, ending: str, calls: tuple[PlannedCall, ...] = ()) -> RepairStep:
    record = RepairRecord(state.steps_done, gave_up=True)
    return RepairStep(GIVE_UP_TEXT + ending, calls, record, not calls and not state.has_goal)


def _find_unread_files(state: RepairState) -> list[str]:
    """The files to read next: those of the check command, their imports, those in the output."""
    wanted = check_output.find_command_files(state.check)
    for path, source in state.sources.items():
        wanted += check_output.find_imported_files(path, source)
    wanted += check_output.find_file_names(state.output)
    known = [*state.sources, *state.unreadable]
    unread: list[str] = []
    for path in wanted:
        if not any(_is_same_path(path, other) for other in (*known, *unread)):
            unread.append(path)
    return unread[:MAX_FILES_PER_READ] if len(state.sources) < MAX_SOURCES else []


def _is_same_path(left: str, right: str) -> bool:
    """A path is absolute in a traceback and relative in an import: one ends with the other."""
    short, long = sorted((left.removeprefix("./"), right.removeprefix("./")), key=len)
    return short == long or long.endswith(f"/{short}")


def _build_check_call(state: RepairState) -> PlannedCall:
    return state.tools["bash"], {"command": f"{state.check} && echo '{PASSED_MARKER}'"}


def _describe_changes(state: RepairState) -> str:
    """What was changed, in a sentence or two."""
    sentences: list[str] = []
    for path, text in state.current.items():
        before, after = state.sources[path].splitlines(), text.splitlines()
        for kind, a, b, c, d in difflib.SequenceMatcher(None, before, after).get_opcodes():
            old, new = (" ".join(" ".join(part).split()) for part in (before[a:b], after[c:d]))
            if kind != "equal":
                sentences.append(f"In {path}, `{old}` became `{new}`.")
    if state.has_passed:
        sentences.append(f"`{state.check}` passes.")
    return " ".join(sentences)


async def _find_next_try(
    state: RepairState, server: LlamaServer
) -> AsyncGenerator[CompletionChunk | RepairStep, None]:
    """Asks the model for changes until one is new; the step is to try it."""
    search = _EditSearch(state)
    for change in search.repeat_on_equal_lines(state.tried):
        if (change.path, change.source) not in state.tried:
            yield _build_try(state, state.steps_done, change, ())
            return
    await server.load_prefix(INSTRUCTION)
    for number in range(state.steps_done, len(PLAN)):
        question = search.build_question(number)
        if question is None:
            continue
        completion = await server.complete_text(question.prompt, **question.options)
        yield completion
        for change in search.parse_answer(question, completion.text):
            if (change.path, change.source) not in state.tried:
                yield _build_try(state, number + 1, change, search.unchanged_lines)
                return
    yield _give_up(state, f": {len(state.tried)} were tried.", _build_undo_calls(state))


class _Question(msgspec.Struct, frozen=True):
    """A question to the model: one of these lines, or the function around the first."""

    kind: str
    prompt: str
    options: dict[str, Any]
    lines: tuple[SourceLine, ...]


class _EditSearch:
    """Builds the questions of the plan, and turns the answers into changes."""

    def __init__(self, state: RepairState) -> None:
        self.sources = state.sources
        failing = check_output.extract_failure(state.output)
        self.lines = line_edits.list_suspect_lines(state.sources)
        self.line_groups = line_edits.group_suspect_lines(self.lines, failing)
        self.prompt_start = line_edits.build_question(state.sources, failing)
        by_position = {(line.path, line.number): line for line in self.lines}
        self.ranked_lines = [by_position[key] for key in state.ranked_lines if key in by_position]
        self.unchanged_lines: list[SourceLine] = []  # named, but written as they are

    def build_question(self, number: int) -> _Question | None:
        kind, which = PLAN[number]
        lines = self._find_ranked_lines(which) if which >= 0 else self._list_unnamed_lines()
        if not lines:
            return None
        if kind == "line":
            heat = line_edits.RETRY_TEMPERATURE if which >= 0 else 0.0
            options = line_edits.build_line_options(lines, temperature=heat, seed=number)
            return _Question(kind, self.prompt_start + prompt.start_reply(), options, tuple(lines))
        source = self.sources[lines[0].path]
        span = line_edits.find_function(source, lines[0])
        if span is None:
            return None
        heat = line_edits.RETRY_TEMPERATURE if (kind, which) in PLAN[:number] else 0.0
        start = line_edits.start_function(source, span[0])
        options = line_edits.build_function_options(source, span[0], temperature=heat, seed=number)
        return _Question(kind, self.prompt_start + prompt.start_reply(start), options, tuple(lines))

    def parse_answer(self, question: _Question, text: str) -> list[FileRewrite]:
        """The changes that an answer means."""
        if question.kind == "function":
            return self._build_function_rewrites(question.lines[0], text)
        wrong, written = line_edits.parse_line_answer(text)
        same = [line for line in question.lines if line.stripped == wrong]
        self.ranked_lines += [line for line in same if line not in self.ranked_lines]
        if not written or written == wrong:
            self.unchanged_lines += same
            return []
        return [line_edits.replace_line(self.sources[line.path], line, written) for line in same]

    def _build_function_rewrites(self, line: SourceLine, body: str) -> list[FileRewrite]:
        source = self.sources[line.path]
        span = line_edits.find_function(source, line)
        assert span is not None
        change = line_edits.replace_function(source, line.path, *span, body)
        return [change] if change is not None and change.source != source else []

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

    def repeat_on_equal_lines(self, tried: set[tuple[str, str]]) -> list[FileRewrite]:
        """What was tried on one line, for the other lines with the same text."""
        changes: list[FileRewrite] = []
        for path, text in sorted(tried):
            pairs = zip(self.sources[path].splitlines(), text.splitlines(), strict=False)
            changed = [(old.strip(), new.strip()) for old, new in pairs if old != new]
            if len(changed) != 1:
                continue
            for line in self.lines:
                if line.stripped == changed[0][0]:
                    source = self.sources[line.path]
                    changes.append(line_edits.replace_line(source, line, changed[0][1]))
        return changes


def _build_try(
    state: RepairState, number: int, change: FileRewrite, unchanged_lines: Sequence[SourceLine]
) -> RepairStep:
    text = f"Try {number}: {change.location}."
    if unchanged_lines:
        text += f" Lines that look right: {', '.join(str(line) for line in unchanged_lines)}."
    edit = _build_edit_call(state, change.path, state.sources[change.path], change.source)
    check = (_build_check_call(state),) if state.check and "bash" in state.tools else ()
    named = [*unchanged_lines, *([change.line] if change.line is not None else [])]
    record = RepairRecord(number, tuple((line.path, line.number) for line in named))
    return RepairStep(text, (*_build_undo_calls(state), edit, *check), record)


def _build_undo_calls(state: RepairState) -> tuple[PlannedCall, ...]:
    return tuple(
        _build_edit_call(state, path, text, state.sources[path])
        for path, text in state.current.items()
        if text != state.sources[path]
    )


def _build_edit_call(state: RepairState, path: str, old: str, new: str) -> PlannedCall:
    """The smallest edit of whole lines from one text to the other whose old text is unique."""
    before, after = old.splitlines(), new.splitlines()
    start = 0
    while start < min(len(before), len(after)) - 1 and before[start] == after[start]:
        start += 1
    tail = 0
    while tail < min(len(before), len(after)) - start - 1 and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    while start > 0 and old.count("\n".join(before[start : len(before) - tail])) > 1:
        start -= 1
    old_text = "\n".join(before[start : len(before) - tail])
    new_text = "\n".join(after[start : len(after) - tail])
    return state.tools["edit"], {"path": path, "old": old_text, "new": new_text}
