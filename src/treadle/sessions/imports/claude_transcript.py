"""Reads a transcript of Claude Code: ~/.claude/projects/FOLDER/ID.jsonl.

A line is a message, or a part of a reply: the parts have the id of the reply in common. Lines form
a tree by `parentUuid`, because a rewind begins a new branch: the conversation is the way from the
last line to the root, with the results of all calls on it. Lines of child agents are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.transcript.content import AssistantContent, Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, UserItem
from treadle.lib.text.word_set import word_set
from treadle.sessions.imports.foreign_session import (
    ForeignResult,
    ForeignSession,
    ForeignStep,
    ForeignSummary,
    get_list,
    get_text,
    parse_time,
    read_lines,
    read_parts,
)

# Lines beside the conversation: state of the screen, copies of files, hooks.
_OTHER_LINES = word_set(
    "agent-color agent-name agent-setting ai-title attachment attribution-snapshot custom-title "
    "file-history-snapshot last-prompt mode permission-mode pr-link progress queue-operation "
    "speculation-accept summary system tag task-summary worktree-state"
)
_TITLES = {"custom-title": "customTitle", "summary": "summary", "ai-title": "aiTitle"}
_COMMAND_PART = re.compile(
    r"<(command-name|command-message|command-args|local-command-stdout)>(.*?)</\1>", re.DOTALL
)
_LEFT_BRANCH = "of a branch that a rewind left"

ToolNamer = Callable[[str], str]  # our name of a tool, from theirs


def find_claude_transcripts() -> Iterator[Path]:
    """The transcripts of this machine, without those of child agents."""
    files = (Path.home() / ".claude" / "projects").glob("*/*.jsonl")
    return (file for file in sorted(files) if not file.name.startswith("agent-"))


def read_claude_transcript(file: Path, name_tool: ToolNamer) -> ForeignSession:
    session = ForeignSession("claude", file, file.stem)
    lines = list(_read_messages(file, session))
    chosen = _choose_lines(lines)
    if left := len(lines) - len(chosen):
        session.unread[_LEFT_BRANCH] += left
    builder = _SessionBuilder(session, name_tool)
    for line in chosen:
        builder.add(line)
    builder.end()
    return session


def _read_messages(file: Path, session: ForeignSession) -> Iterator[dict[str, Any]]:
    """The lines of the conversation; the session gets its folder and its title."""
    titles: dict[str, str] = {}
    for line in read_lines(file, session.unread):
        kind = get_text(line, "type")
        session.folder = session.folder or get_text(line, "cwd")
        if kind in _TITLES:
            titles[kind] = get_text(line, _TITLES[kind])
        if line.get("isSidechain"):
            continue
        is_boundary = kind == "system" and get_text(line, "subtype") == "compact_boundary"
        if kind in ("user", "assistant") or is_boundary:
            yield line
        elif kind in _OTHER_LINES:
            continue
        else:
            session.unread[f"line {kind or '?'}"] += 1
    session.title = next((titles[kind] for kind in _TITLES if titles.get(kind)), "")


def _choose_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those on the way from the last line to the root. If a line on it cannot be read, the line
    before it in the file takes its place."""
    parents: dict[str, str] = {}
    names, before = {get_text(line, "uuid") for line in lines}, ""
    for line in lines:
        parent = get_text(line, "parentUuid") or get_text(line, "logicalParentUuid")
        name = get_text(line, "uuid")
        parents[name] = parent if not parent or parent in names else before
        before = name
    on_way: set[str] = {""}  # a line without an id is in no tree
    at = get_text(lines[-1], "uuid") if lines else ""
    while at not in on_way:
        on_way.add(at)
        at = parents.get(at, "")
    # The results of calls that ran together hang side by side: the way has only one of them. So may
    # the parts of a reply.
    replies = {_get_reply_id(line) for line in lines if get_text(line, "uuid") in on_way}
    replies.discard("")
    calls = {
        get_text(block, "id")
        for line in lines
        if _get_reply_id(line) in replies
        for block in get_list(line.get("message"), "content")
    }
    return [
        line
        for line in lines
        if get_text(line, "uuid") in on_way
        or _get_reply_id(line) in replies
        or calls.intersection(_list_answered(line))
    ]


def _untag(text: str) -> str:
    """What the user typed as a slash command, and what it printed, without the tags."""
    parts = _COMMAND_PART.findall(text)
    if _COMMAND_PART.sub("", text).strip() or not parts:
        return text
    found = {name: inside.strip() for name, inside in parts}
    command = f"{found.get('command-name', '')} {found.get('command-args', '')}"
    return "\n".join(filter(None, (command.strip(), found.get("local-command-stdout"))))


def _get_reply_id(line: dict[str, Any]) -> str:
    is_reply = line.get("type") == "assistant"
    return get_text(line.get("message"), "id") or get_text(line, "uuid") if is_reply else ""


def _list_answered(line: dict[str, Any]) -> Iterable[str]:
    blocks = get_list(line.get("message"), "content") if line.get("type") == "user" else []
    return (get_text(block, "tool_use_id") for block in blocks if "tool_use_id" in block)


class _SessionBuilder:
    """Adds the lines in their order; the parts of a reply are one step."""

    def __init__(self, session: ForeignSession, name_tool: ToolNamer) -> None:
        self._session = session
        self._name_tool = name_tool
        self._replies: dict[str, int] = {}  # the number of its step, by the id of a reply

    def add(self, line: dict[str, Any]) -> None:
        if line.get("type") == "assistant":
            self._add_reply(line)
        elif line.get("type") == "user":
            self._add_user(line)

    def end(self) -> None:
        """Replies of which nothing could be read are no steps."""
        steps = self._session.steps
        steps[:] = [
            one for one in steps if not isinstance(one.value, AssistantItem) or one.value.content
        ]

    def _add_reply(self, line: dict[str, Any]) -> None:
        if line.get("isApiErrorMessage"):
            return  # an error that the program wrote in the place of a reply
        message, session = line.get("message"), self._session
        content = [*self._read_reply(get_list(message, "content"), session.unread)]
        number = self._replies.setdefault(_get_reply_id(line), len(session.steps))
        if number == len(session.steps):
            item = AssistantItem((), model=get_text(message, "model"))
            session.steps.append(ForeignStep(_get_time(line), item))
        step = session.steps[number]
        assert isinstance(step.value, AssistantItem), "the step of a reply"
        whole = msgspec.structs.replace(step.value, content=(*step.value.content, *content))
        session.steps[number] = ForeignStep(step.time, whole)

    def _read_reply(
        self, blocks: list[dict[str, Any]], unread: Counter[str]
    ) -> Iterator[AssistantContent]:
        for block in blocks:
            match kind := get_text(block, "type"):
                case "text":
                    if text := get_text(block, "text"):
                        yield Text(text)
                case "thinking":
                    if text := get_text(block, "thinking"):
                        yield Thinking(text)  # no signature: it belongs to the other program
                case "redacted_thinking":
                    pass
                case "tool_use":
                    raw = msgspec.json.encode(block.get("input") or {}).decode()
                    name = self._name_tool(get_text(block, "name"))
                    yield ToolCall(get_text(block, "id"), name, raw)
                case _:
                    unread[f"block {kind or '?'}"] += 1

    def _add_user(self, line: dict[str, Any]) -> None:
        message, session = line.get("message"), self._session
        blocks = get_list(message, "content")
        plain = get_text(message, "content")
        if line.get("isCompactSummary"):
            text = plain or "\n".join(get_text(block, "text") for block in blocks)
            session.steps.append(ForeignStep(_get_time(line), ForeignSummary(text)))
            return
        for block in blocks:
            if get_text(block, "type") == "tool_result":
                self._add_result(block)
        if line.get("isMeta"):
            return  # written by the program for the model
        own = [block for block in blocks if get_text(block, "type") != "tool_result"]
        parts = (Text(plain),) if plain else read_parts(own, session.unread)
        shown = [Text(_untag(one.text)) if isinstance(one, Text) else one for one in parts]
        content = tuple(one for one in shown if not isinstance(one, Text) or one.text)
        if content:
            session.steps.append(ForeignStep(_get_time(line), UserItem(content)))

    def _add_result(self, block: dict[str, Any]) -> None:
        plain = get_text(block, "content")
        parts = read_parts(get_list(block, "content"), self._session.unread)
        content = (Text(plain),) if plain else parts
        result = ForeignResult(content, block.get("is_error") is True)
        self._session.results.setdefault(get_text(block, "tool_use_id"), result)


def _get_time(line: dict[str, Any]) -> float:
    return parse_time(get_text(line, "timestamp"))
