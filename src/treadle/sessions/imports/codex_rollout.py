"""Reads a transcript of Codex: ~/.codex/sessions/YEAR/MONTH/DAY/rollout-TIME-ID.jsonl.

A line is `{"timestamp", "type", "payload"}`; the oldest versions have the payload alone. The
conversation are the lines `response_item`. Messages of the user that have no event `user_message`
are texts of the program for the model, and are left out.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.transcript.content import AssistantContent, Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, UserItem, join_text
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

_SHELLS = frozenset({"bash", "sh", "zsh"})
_SHELL_TOOLS = frozenset({"shell", "exec_command", "container.exec", "shell_command"})
_ITEMS = word_set(
    "message reasoning function_call function_call_output custom_tool_call "
    "custom_tool_call_output local_shell_call"
)
_OTHER_ITEMS = frozenset({"ghost_snapshot", "web_search_call", "compaction_trigger"})
_OTHER_LINES = frozenset({"event_msg", "turn_context", "state", "world_state"})
_BY_PROGRAM = "message of the program to the model"


def find_codex_rollouts() -> Iterator[Path]:
    """The transcripts of this machine."""
    home = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    return iter(sorted((home / "sessions").rglob("rollout-*.jsonl")))


def read_codex_rollout(file: Path) -> ForeignSession:
    session = ForeignSession("codex", file, file.stem.removeprefix("rollout-"))
    lines = list(read_lines(file, session.unread))
    typed = [
        get_text(line.get("payload"), "message")
        for line in lines
        if _get_kinds(line) == ("event_msg", "user_message")
    ]
    reader = _RolloutReader(session, set(typed) if typed else None)
    for line in lines:
        reader.add(line)
    reader.end_reply()
    return session


def _get_kinds(line: dict[str, Any]) -> tuple[str, str]:
    return get_text(line, "type"), get_text(line.get("payload"), "type")


class _RolloutReader:
    """Adds the lines in their order. `typed`: what the user wrote, None if it is not known."""

    def __init__(self, session: ForeignSession, typed: set[str] | None) -> None:
        self._session = session
        self._typed = typed
        self._model = ""
        self._time = 0.0
        self._reply: list[AssistantContent] = []

    def add(self, line: dict[str, Any]) -> None:
        kind, payload, session = get_text(line, "type"), line.get("payload"), self._session
        self._time = parse_time(get_text(line, "timestamp")) or self._time
        if kind == "session_meta" or (not kind and "id" in line):
            meta = payload if isinstance(payload, dict) else line
            session.id = get_text(meta, "id") or session.id
            session.folder = session.folder or get_text(meta, "cwd")
        elif kind == "response_item" and isinstance(payload, dict):
            self._add_item(payload)
        elif kind in _ITEMS:
            self._add_item(line)
        elif kind == "compacted":
            self.end_reply()
            if text := get_text(payload, "message"):
                session.steps.append(ForeignStep(self._time, ForeignSummary(text)))
        elif kind == "turn_context":
            self._model = get_text(payload, "model") or self._model
            session.folder = session.folder or get_text(payload, "cwd")
        elif kind == "event_msg" and get_text(payload, "type") == "thread_name_updated":
            session.title = get_text(payload, "thread_name")
        elif kind not in _OTHER_LINES and get_text(line, "record_type") not in _OTHER_LINES:
            session.unread[f"line {kind or '?'}"] += 1

    def end_reply(self) -> None:
        """What the model wrote up to here is one reply."""
        if self._reply:
            item = AssistantItem(tuple(self._reply), model=self._model)
            self._session.steps.append(ForeignStep(self._time, item))
            self._reply = []

    def _add_item(self, item: dict[str, Any]) -> None:
        match kind := get_text(item, "type"):
            case "message":
                self._add_message(item)
            case "reasoning":
                texts = [get_text(one, "text") for one in get_list(item, "summary")]
                if text := "\n\n".join(filter(None, texts)):
                    self._begin_reply()
                    self._reply.append(Thinking(text))
            case "function_call" | "custom_tool_call" | "local_shell_call":
                self._begin_reply()
                self._reply.append(_read_call(item))
            case "function_call_output" | "custom_tool_call_output":
                self._session.results.setdefault(
                    get_text(item, "call_id"), self._read_result(item.get("output"))
                )
            case _ if kind not in _OTHER_ITEMS:
                self._session.unread[f"item {kind or '?'}"] += 1

    def _begin_reply(self) -> None:
        """A reply ends where the results of its calls are."""
        results = self._session.results
        if any(isinstance(one, ToolCall) and one.id in results for one in self._reply):
            self.end_reply()

    def _add_message(self, item: dict[str, Any]) -> None:
        session = self._session
        content = read_parts(get_list(item, "content"), session.unread)
        match get_text(item, "role"):
            case "assistant":
                self._begin_reply()
                self._reply += [part for part in content if isinstance(part, Text)]
            case "user" if self._typed is None or join_text(content) in self._typed:
                self.end_reply()
                if content:
                    session.steps.append(ForeignStep(self._time, UserItem(content)))
            case _:
                session.unread[_BY_PROGRAM] += 1

    def _read_result(self, output: object) -> ForeignResult:
        if isinstance(output, str):
            return _unwrap_output(output)
        if isinstance(output, dict):
            text = get_text(output, "content")
            return ForeignResult((Text(text),) if text else (), output.get("success") is False)
        return ForeignResult(read_parts(get_list({"all": output}, "all"), self._session.unread))


def _unwrap_output(text: str) -> ForeignResult:
    """A result that is an object with the output of a command and its exit code."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("output"), str):
        return ForeignResult((Text(text),) if text else ())
    metadata, output = value.get("metadata"), get_text(value, "output")
    code = metadata.get("exit_code") if isinstance(metadata, dict) else None
    return ForeignResult((Text(output),) if output else (), code not in (None, 0))


def _read_call(item: dict[str, Any]) -> ToolCall:
    """A call, with our name and arguments if it runs a command or applies a patch."""
    call_id, name = get_text(item, "call_id") or get_text(item, "id"), get_text(item, "name")
    raw = get_text(item, "arguments") or "{}"
    if item.get("type") == "local_shell_call":
        return _make_shell_call(call_id, item.get("action")) or ToolCall(call_id, "shell", "{}")
    if item.get("type") == "custom_tool_call":
        key = "patch" if name == "apply_patch" else "input"
        raw = msgspec.json.encode({key: get_text(item, "input")}).decode()
    elif name in _SHELL_TOOLS:
        try:
            arguments = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            arguments = None
        return _make_shell_call(call_id, arguments) or ToolCall(call_id, name, raw)
    return ToolCall(call_id, name, raw)


def _make_shell_call(call_id: str, arguments: object) -> ToolCall | None:
    command = get_text(arguments, "cmd") or get_text(arguments, "command")
    words = arguments.get("command") if isinstance(arguments, dict) else None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        is_line = len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS
        command = words[2] if is_line and words[1] in ("-c", "-lc") else shlex.join(words)
    if not command:
        return None
    return ToolCall(call_id, "bash", msgspec.json.encode({"command": command}).decode())
