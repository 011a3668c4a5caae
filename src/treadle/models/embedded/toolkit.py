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

MOST_OFFERS = 7
PLAIN = {"string", "integer", "number", "boolean"}


class Field(msgspec.Struct, frozen=True):
    """An argument: what the small model calls it, and what the tool does."""

    short: str
    real: str
    kind: str = "string"
    choices: tuple[str, ...] = ()


class Offer(msgspec.Struct, frozen=True):
    """One call shape. `template` turns the fields into one command, for a tool made of another."""

    word: str
    tool: str
    fields: tuple[Field, ...]
    about: str
    template: str = ""

    def shape(self) -> str:
        shown = "".join(f',"{field.short}":…' for field in self.fields)
        return f'{{"tool":"{self.word}"{shown}}} {self.about}'

    def compose(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The real arguments for what the small model gave."""
        if self.template:
            target = str(given.get("path", ".")) or "."
            return {self.fields[0].real: self.template + shlex.quote(target)}
        return {field.real: given[field.short] for field in self.fields if field.short in given}

    def recall(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What the small model would have given for these real arguments, if it could have."""
        if self.template:
            command = arguments.get(self.fields[0].real)
            if not isinstance(command, str) or not command.startswith(self.template):
                return None
            return {"path": command.removeprefix(self.template).strip("'")}
        return {
            field.short: arguments[field.real] for field in self.fields if field.real in arguments
        }


class Role(msgspec.Struct, frozen=True):
    word: str
    names: frozenset[str]
    needs: tuple[str, ...]
    about: str
    may: tuple[str, ...] = ()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SYNONYMS = {
    "path": ("path", "file_path", "filepath", "filename", "file", "directory", "dir", "folder"),
    "old": ("old", "old_string", "old_str", "old_text", "search", "find"),
    "new": ("new", "new_string", "new_str", "new_text", "replace", "replacement"),
    "content": ("content", "contents", "text", "file_text", "data"),
    "command": ("command", "cmd", "script"),
    "pattern": ("pattern", "query", "regex", "glob", "name"),
}

ROLES = (
    Role("ls", _names("ls list listdir listfiles listdirectory"), (), "list files", ("path",)),
    Role("read", _names("read readfile view viewfile cat openfile"), ("path",), "show a file"),
    Role("grep", _names("grep search searchtext ripgrep rg"), ("pattern",), "search in files"),
    Role("glob", _names("glob find findfiles"), ("pattern",), "find files by name"),
    Role("bash", _names("bash shell run execute exec terminal"), ("command",), "run a command"),
    Role(
        "edit", _names("edit editfile replace strreplace"), ("path", "old", "new"), "change a file"
    ),
    Role("write", _names("write writefile createfile create"), ("path", "content"), "make a file"),
)


def toolkit(tools: Sequence[ToolSpec], *, most: int = MOST_OFFERS) -> tuple[Offer, ...]:
    """What the small model is offered of these tools."""
    offers: list[Offer] = []
    taken: set[str] = set()
    for role in ROLES:
        for spec in tools:
            if spec.name not in taken and (offer := _in_role(role, spec)) is not None:
                offers.append(offer)
                taken.add(spec.name)
                break
    if not any(offer.word == "ls" for offer in offers):
        offers[:0] = _listing(offers)
    for spec in tools:
        if spec.name not in taken and len(offers) < most and (offer := _as_it_is(spec)) is not None:
            offers.append(offer)
    return tuple(offers[:most])


def spoken(call: ToolCall, offers: Iterable[Offer]) -> str:
    """A call of the history in the small model's own words."""
    arguments = call.arguments or {}
    for offer in offers:
        if offer.tool == call.name and (given := offer.recall(arguments)) is not None:
            return compact({"tool": offer.word, **given})
    return compact({"tool": call.name, **arguments})


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_role(role: Role, spec: ToolSpec) -> Offer | None:
    if re.sub(r"[^a-z]", "", spec.name.lower()) not in role.names:
        return None
    properties = spec.schema.get("properties", {})
    fields: list[Field] = []
    for short in (*role.needs, *role.may):
        real = next((name for name in SYNONYMS[short] if name in properties), None)
        if real is not None:
            fields.append(Field(short, real))
        elif short in role.needs:
            return None
    covered = {field.real for field in fields}
    if not covered.issuperset(spec.schema.get("required", ())):
        return None
    return Offer(role.word, spec.name, tuple(fields), role.about)


def _listing(offers: Sequence[Offer]) -> list[Offer]:
    """Looking around is the first thing a small model must get right: it gets its own word."""
    for offer in offers:
        if offer.word == "bash":
            field = Field("path", offer.fields[0].real)
            return [Offer("ls", offer.tool, (field,), "list files", template="ls -a ")]
    return []


def _as_it_is(spec: ToolSpec) -> Offer | None:
    fields: list[Field] = []
    properties = spec.schema.get("properties", {})
    for name in spec.schema.get("required", ()):
        about = properties.get(name, {})
        choices = tuple(str(choice) for choice in about.get("enum", ()))
        kind = about.get("type", "string" if choices else "")
        if kind not in PLAIN:
            return None
        fields.append(Field(name, name, kind, choices))
    first = re.split(r"(?<=[.!?])\s|\n", spec.description.strip(), maxsplit=1)[0]
    return Offer(spec.name, spec.name, tuple(fields), first[:80])
