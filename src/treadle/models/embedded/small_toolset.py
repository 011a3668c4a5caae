"""The few tools that a small model is shown, and how its short calls become real ones.

A coding agent has a dozen tools with pages of description; a small model handles seven, one
line each. A tool is recognised by its name and its schema together; one that is not, is offered
as it is while there is room and its arguments are plain. Above it stand prompt.py and model.py.
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
    """An argument: what the small model calls it, and what the tool does."""

    short_name: str
    real_name: str
    json_type: str = "string"
    choices: tuple[str, ...] = ()


class SmallTool(msgspec.Struct, frozen=True):
    """One call shape. `template` turns the fields into one command, for a tool made of another."""

    short_name: str
    real_name: str
    fields: tuple[ArgumentField, ...]
    description: str
    command_template: str = ""

    def format_signature(self) -> str:
        shown = "".join(f',"{field.short_name}":…' for field in self.fields)
        return f'{{"tool":"{self.short_name}"{shown}}} {self.description}'

    def to_real_arguments(self, short_arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The real arguments for what the small model gave."""
        if self.command_template:
            target = str(short_arguments.get("path", ".")) or "."
            return {self.fields[0].real_name: self.command_template + shlex.quote(target)}
        return {
            field.real_name: short_arguments[field.short_name]
            for field in self.fields
            if field.short_name in short_arguments
        }

    def to_short_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the small model would have given for these real arguments, if it could have."""
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
    aliases: frozenset[str]
    required: tuple[str, ...]
    description: str
    optional: tuple[str, ...] = ()


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


ARGUMENT_SYNONYMS = {
    "path": ("path", "file_path", "filepath", "filename", "file", "directory", "dir", "folder"),
    "old": ("old", "old_string", "old_str", "old_text", "search", "find"),
    "new": ("new", "new_string", "new_str", "new_text", "replace", "replacement"),
    "content": ("content", "contents", "text", "file_text", "data"),
    "command": ("command", "cmd", "script"),
    "pattern": ("pattern", "query", "regex", "glob", "name"),
}

KNOWN_TOOLS = (
    KnownTool(
        "ls", _split_names("ls list listdir listfiles listdirectory"), (), "list files", ("path",)
    ),
    KnownTool(
        "read", _split_names("read readfile view viewfile cat openfile"), ("path",), "show a file"
    ),
    KnownTool(
        "grep", _split_names("grep search searchtext ripgrep rg"), ("pattern",), "search in files"
    ),
    KnownTool("glob", _split_names("glob find findfiles"), ("pattern",), "find files by name"),
    KnownTool(
        "bash", _split_names("bash shell run execute exec terminal"), ("command",), "run a command"
    ),
    KnownTool(
        "edit",
        _split_names("edit editfile replace strreplace"),
        ("path", "old", "new"),
        "change a file",
    ),
    KnownTool(
        "write",
        _split_names("write writefile createfile create"),
        ("path", "content"),
        "make a file",
    ),
)


def select_small_tools(
    tools: Sequence[ToolSpec], *, max_tools: int = MAX_TOOLS
) -> tuple[SmallTool, ...]:
    """What the small model is offered of these tools."""
    offers: list[SmallTool] = []
    taken: set[str] = set()
    for role in KNOWN_TOOLS:
        for spec in tools:
            if spec.name not in taken and (offer := _match_known_tool(role, spec)) is not None:
                offers.append(offer)
                taken.add(spec.name)
                break
    if not any(offer.short_name == "ls" for offer in offers):
        offers[:0] = _build_ls_from_bash(offers)
    for spec in tools:
        if (
            spec.name not in taken
            and len(offers) < max_tools
            and (offer := _pass_through(spec)) is not None
        ):
            offers.append(offer)
    return tuple(offers[:max_tools])


def format_call(call: ToolCall, small_tools: Iterable[SmallTool]) -> str:
    """A call of the history in the small model's own words."""
    arguments = call.arguments or {}
    for offer in small_tools:
        if (
            offer.real_name == call.name
            and (given := offer.to_short_arguments(arguments)) is not None
        ):
            return to_compact_json({"tool": offer.short_name, **given})
    return to_compact_json({"tool": call.name, **arguments})


def to_compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _match_known_tool(known: KnownTool, spec: ToolSpec) -> SmallTool | None:
    if re.sub(r"[^a-z]", "", spec.name.lower()) not in known.aliases:
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
    return SmallTool(known.short_name, spec.name, tuple(fields), known.description)


def _build_ls_from_bash(small_tools: Sequence[SmallTool]) -> list[SmallTool]:
    """Looking around is the first thing a small model must get right: it gets its own word."""
    for offer in small_tools:
        if offer.short_name == "bash":
            field = ArgumentField("path", offer.fields[0].real_name)
            return [
                SmallTool("ls", offer.real_name, (field,), "list files", command_template="ls -a ")
            ]
    return []


def _pass_through(spec: ToolSpec) -> SmallTool | None:
    fields: list[ArgumentField] = []
    properties = spec.schema.get("properties", {})
    for name in spec.schema.get("required", ()):
        about = properties.get(name, {})
        choices = tuple(str(choice) for choice in about.get("enum", ()))
        kind = about.get("type", "string" if choices else "")
        if kind not in PLAIN_TYPES:
            return None
        fields.append(ArgumentField(name, name, kind, choices))
    first = re.split(r"(?<=[.!?])\s|\n", spec.description.strip(), maxsplit=1)[0]
    return SmallTool(spec.name, spec.name, tuple(fields), first[:80])
