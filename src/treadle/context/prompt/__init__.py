"""The system prompt: sections in a stable order, byte for byte the same from turn to turn.

    identity · how to work · instructions of the tools · environment · memory files · skills ·
    the user's additions

Built-in sections are Markdown files beside this one. Changes during a session are not written
here: they are appended to the conversation as notices, so that the cached prefix of the request
stays valid.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

SECTION_DIR = Path(__file__).parent
UNATTENDED_INSTRUCTION = (
    "The user cannot answer questions during this run: decide, and say at the end what you chose."
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
        return "\n\n".join(section.text.strip() for section in self.sections if section.text)

    def format_sizes(self) -> str:
        """The size of each section, for the user."""
        rows = [(section.name, len(section.text)) for section in self.sections if section.text]
        rows.append(("all", len(self.text)))
        width = max(len(name) for name, _ in rows)
        lines = (f"{name:{width}}  {n:>7,} chars  ~{n // 4:>6,} tokens" for name, n in rows)
        return "\n".join(lines)


def read_section(name: str) -> str:
    """The text of a built-in section."""
    return (SECTION_DIR / f"{name}.md").read_text(encoding="utf-8")


def build_prompt(
    *,
    environment: str = "",
    tools: str = "",
    memory: str = "",
    skills: str = "",
    user_text: str = "",
    for_small_model: bool = False,
) -> SystemPrompt:
    """The prompt of a session; `for_small_model` gives one of a few sentences."""
    if for_small_model:
        sections = {"identity": read_section("small"), "added": user_text}
    else:
        sections = {
            "identity": read_section("identity"),
            "working": read_section("working"),
            "tools": tools,
            "environment": environment,
            "memory": memory,
            "skills": skills,
            "added": user_text,
        }
    return SystemPrompt(tuple(PromptSection(name, text) for name, text in sections.items()))


def describe_environment(
    folder: Path,
    *,
    added_folders: Sequence[Path] = (),
    today: datetime | None = None,
    git: str = "",
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
    if git:
        lines.append(f"- Git: {git}")
    return "\n".join(lines)
