"""The few tools of a small model, and how its short calls become real calls.

A coding agent has a dozen tools with pages of description; a small model can use seven, with one
line each. A tool is recognised by its name and its schema together; another tool is offered
unchanged if there is room and its arguments are simple. Used by most modules of this folder.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import ToolCall

MAX_TOOLS = 7
PLAIN_TYPES = {"string", "integer", "number", "boolean"}


class ArgumentField(msgspec.Struct, frozen=True):
    """An argument: its name for the small model, and its name in the real tool."""

    short_name: str
    real_name: str
    json_type: str = "string"
    choices: tuple[str, ...] = ()


class SmallTool(msgspec.Struct, frozen=True):
    """One form of a call. `command_template` builds a command, for `ls` made from `bash`."""

    short_name: str
    real_name: str
    fields: tuple[ArgumentField, ...]
    description: str
    command_template: str = ""
    all_name: str = ""  # the argument of an edit that means every occurrence
    fixed_arguments: Mapping[str, Any] = {}  # real ones that every call has

    def format_signature(self) -> str:
        fields = "".join(f',"{field.short_name}":…' for field in self.fields)
        return f'{{"tool":"{self.short_name}"{fields}}} {self.description}'

    def to_real_arguments(self, short_arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The real arguments for those of the small model."""
        if self.command_template:
            target = str(short_arguments.get("path", ".")) or "."
            return {self.fields[0].real_name: self.command_template + shlex.quote(target)}
        every = {self.all_name: True} if self.all_name and short_arguments.get("all") else {}
        return {**self.fixed_arguments, **every} | {
            field.real_name: short_arguments[field.short_name]
            for field in self.fields
            if field.short_name in short_arguments
        }

    def to_short_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """The small model's arguments for these real ones; None if it cannot express them."""
        if self.command_template:
            command = arguments.get(self.fields[0].real_name)
            if not isinstance(command, str) or not command.startswith(self.command_template):
                return None
            return {"path": command.removeprefix(self.command_template).strip("'")}
        return {
            field.short_name: arguments[field.real_name]
            for field in self.fields
            if field.real_name in arguments
        }


class KnownTool(msgspec.Struct, frozen=True):
    short_name: str
    aliases: str
    required: tuple[str, ...]
    description: str
    optional: tuple[str, ...] = ()


ARGUMENT_SYNONYMS = {
    "path": ("path", "file_path", "filepath", "filename", "file", "directory", "dir", "folder"),
    "old": ("old", "old_string", "old_str", "old_text", "search", "find"),
    "new": ("new", "new_string", "new_str", "new_text", "replace", "replacement"),
    "content": ("content", "contents", "text", "file_text", "data"),
    "command": ("command", "cmd", "script"),
    "pattern": ("pattern", "query", "regex", "glob", "name"),
}

KNOWN_TOOLS = (
    KnownTool("ls", "ls list listdir listfiles listdirectory", (), "list files", ("path",)),
    KnownTool("read", "read readfile view viewfile cat openfile", ("path",), "show a file"),
    KnownTool("grep", "grep search searchtext ripgrep rg", ("pattern",), "search in files"),
    KnownTool("glob", "glob find findfiles", ("pattern",), "find files by name"),
    KnownTool("bash", "bash shell run execute exec terminal", ("command",), "run a command"),
    KnownTool("edit", "edit editfile replace strreplace", ("path", "old", "new"), "change a file"),
    KnownTool("write", "write writefile createfile create", ("path", "content"), "make a file"),
)


def select_small_tools(tools: Sequence[ToolSpec]) -> tuple[SmallTool, ...]:
    """The small model's versions of these tools."""
    selected: list[SmallTool] = []
    used: set[str] = set()
    for known in KNOWN_TOOLS:
        for spec in tools:
            if spec.name not in used and (small := _match_known_tool(known, spec)) is not None:
                selected.append(small)
                used.add(spec.name)
                break
    if not any(small.short_name == "ls" for small in selected):
        selected[:0] = _build_ls_from_bash(selected)
    for spec in tools:
        if spec.name in used or len(selected) >= MAX_TOOLS:
            continue
        if (small := _pass_through(spec)) is not None:
            selected.append(small)
    return tuple(selected[:MAX_TOOLS])


def to_short_call(
    call: ToolCall, small_tools: Iterable[SmallTool]
) -> tuple[str, dict[str, Any]] | None:
    """The short name and arguments of a real call; None if the small model cannot make it."""
    for tool in small_tools:
        if tool.real_name == call.name:
            arguments = tool.to_short_arguments(call.arguments or {})
            if arguments is not None:
                return tool.short_name, arguments
    return None


def format_call(call: ToolCall, small_tools: Iterable[SmallTool]) -> str:
    """A call of the history in the form of the small model."""
    name, arguments = to_short_call(call, small_tools) or (call.name, call.arguments or {})
    return to_compact_json({"tool": name, **arguments})


def to_compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _match_known_tool(known: KnownTool, spec: ToolSpec) -> SmallTool | None:
    if re.sub(r"[^a-z]", "", spec.name.lower()) not in known.aliases.split():
        return None
    properties = spec.schema.get("properties", {})
    fields: list[ArgumentField] = []
    for short in (*known.required, *known.optional):
        real = next((name for name in ARGUMENT_SYNONYMS[short] if name in properties), None)
        if real is not None:
            fields.append(ArgumentField(short, real))
        elif short in known.required:
            return None
    covered = {field.real_name for field in fields}
    if not covered.issuperset(spec.schema.get("required", ())):
        return None
    every = "replace_all" if known.short_name == "edit" and "replace_all" in properties else ""
    return SmallTool(
        known.short_name,
        spec.name,
        tuple(fields),
        known.description,
        all_name=every,
        fixed_arguments=_find_fixed_arguments(known, properties),
    )


def _find_fixed_arguments(known: KnownTool, properties: Mapping[str, Any]) -> dict[str, str]:
    """A search shows the lines that it found: a small model does not ask for them."""
    shows_lines = "content" in str(properties.get("output_mode", ""))
    return {"output_mode": "content"} if known.short_name == "grep" and shows_lines else {}


def _build_ls_from_bash(small_tools: Sequence[SmallTool]) -> list[SmallTool]:
    """Listing files is what a small model needs most: it gets a tool of its own."""
    for tool in small_tools:
        if tool.short_name == "bash":
            field = ArgumentField("path", tool.fields[0].real_name)
            return [SmallTool("ls", tool.real_name, (field,), "list files", "ls -a ")]
    return []


def _pass_through(spec: ToolSpec) -> SmallTool | None:
    fields: list[ArgumentField] = []
    properties = spec.schema.get("properties", {})
    for name in spec.schema.get("required", ()):
        schema = properties.get(name, {})
        choices = tuple(str(choice) for choice in schema.get("enum", ()))
        kind = schema.get("type", "string" if choices else "")
        if kind not in PLAIN_TYPES:
            return None
        fields.append(ArgumentField(name, name, kind, choices))
    first = re.split(r"(?<=[.!?])\s|\n", spec.description.strip(), maxsplit=1)[0]
    return SmallTool(spec.name, spec.name, tuple(fields), first[:80])
