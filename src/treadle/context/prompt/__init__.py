"""The system prompt: sections in a stable order, byte for byte the same from turn to turn.

    identity · how to work · how to change things · for this family of models · environment ·
    memory files · skills · output style · the user's additions

Built-in sections are Markdown files beside this one. Changes during a session are not written
here: they are appended to the conversation as notices, so that the cached prefix of the request
stays valid.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.workspace import NetworkAccess
from treadle.core.transcript.items import NoticeItem

SECTION_DIR = Path(__file__).parent
_BEFORE_POINT, _TOOL = re.compile("^(?=- )", re.MULTILINE), re.compile("- <!-- (\\w+) --> ")
UNATTENDED_TEXT = (
    "The user cannot answer questions during this run: decide, and say at the end what you chose."
)
ATTENDED_TEXT = (
    "The user reads your replies from now on and can answer questions: ask them in your reply."
)


class PromptSection(msgspec.Struct, frozen=True):
    """A named part of the prompt."""

    name: str
    text: str


class SystemPrompt(msgspec.Struct, frozen=True):
    """The sections, in order; those without text are left out."""

    sections: tuple[PromptSection, ...]

    @property
    def text(self) -> str:
        joined = "\n\n".join(section.text.strip() for section in self.sections if section.text)
        return sys.intern(joined)  # sessions with the same prompt share one text

    def format_sizes(self) -> str:
        """The size of each section, for the user."""
        rows = [(section.name, len(section.text)) for section in self.sections if section.text]
        rows.append(("all", len(self.text)))
        width = max(len(name) for name, _ in rows)
        lines = (f"{name:{width}}  {n:>7,} chars  ~{n // 4:>6,} tokens" for name, n in rows)
        return "\n".join(lines)


def make_attendance_notice(is_attended: bool) -> NoticeItem:
    """Instead of other instructions, which would break the prompt cache."""
    text = ATTENDED_TEXT if is_attended else UNATTENDED_TEXT
    return NoticeItem(text, "attendance", data={"attended": is_attended})


@cache
def read_section(name: str, tools: frozenset[str] | None = None) -> str:
    """The text of a built-in section, for an agent with these tools; None: with all. A point that
    begins with the name of a tool in a comment is for those that have it."""
    text = (SECTION_DIR / f"{name}.md").read_text(encoding="utf-8")
    points = [(_TOOL.match(point), point) for point in _BEFORE_POINT.split(text)]
    return "".join(
        f"- {point[found.end() :]}" if found else point
        for found, point in points
        if not found or tools is None or found[1] in tools
    )


def find_family(card: ModelCard) -> str:
    """The section for a model: where the guides of its maker differ from ours."""
    name = card.name.lower()
    if "patch" in card.abilities:
        return "gpt"
    return next((family for family in ("claude", "gemini") if family in name), "open")


def build_prompt(
    *,
    family: str = "",
    environment: str = "",
    memory: str = "",
    skills: str = "",
    user_text: str = "",
    for_small_model: bool = False,
    own_text: str = "",
    style: str = "",
) -> SystemPrompt:
    """The prompt of a session; `for_small_model` gives one of a few sentences. `family`: see
    `find_family`. `own_text` stands in place of the agent's identity and ways; `style` says how
    it speaks."""
    own = {"own text": own_text} if own_text else {}
    if for_small_model:
        sections = own or {"identity": read_section("small")}
        sections = {**sections, "style": style, "added": user_text}
    else:
        default = {
            "identity": read_section("identity"),
            "working": read_section("working"),
            "changes": read_section("changes"),
            "family": read_section(family) if family else "",
        }
        sections = {
            **(own or default),
            "environment": environment,
            "memory": memory,
            "skills": skills,
            "style": style,
            "added": user_text,
        }
    return SystemPrompt(tuple(PromptSection(name, text) for name, text in sections.items()))


def describe_commands(sandbox: str, *, network: NetworkAccess) -> str:
    """What commands can write and reach, by the settings of these names."""
    if sandbox == "off":
        return "no sandbox; they have the rights and the network of the user"
    if sandbox == "read-only":
        return (
            "in a sandbox; they can write only to a /tmp of their own, not to these folders; the "
            "rest of the home folder and files that may contain secrets are hidden; no network"
        )
    reach = "the network is reachable" if network else "no network"
    if isinstance(network, tuple) and network:
        reach = f"of the network only {', '.join(network)} by http and https, through a proxy"
    return (
        "in a sandbox; they can write only to these folders and to a /tmp of their own; "
        f"the rest of the home folder is hidden from them; {reach}"
    )


def describe_environment(
    folder: Path,
    *,
    added_folders: Sequence[Path] = (),
    today: datetime | None = None,
    commands: str = "",
) -> str:
    """The environment of the model's work; fixed when the session begins."""
    day = (today or datetime.now(UTC)).strftime("%Y-%m-%d")
    shell = Path(os.environ.get("SHELL") or "/bin/sh").name
    lines = [
        "# Environment",
        f"- Working folder: {folder}",
        f"- Platform: {platform.system()} {platform.machine()}, shell {shell}",
        f"- Date: {day}",
    ]
    if added_folders:
        lines.insert(2, f"- Also open to you: {', '.join(map(str, added_folders))}")
    if commands:
        lines.append(f"- Commands: {commands}")
    return "\n".join(lines)
