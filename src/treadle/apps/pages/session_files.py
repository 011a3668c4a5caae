"""A session as a file: Markdown, HTML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from treadle.apps.conversation.commands.answers import CommandAnswer
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.errors import ConfigError
from treadle.lib.files.private_files import write_private_output
from treadle.sessions.export import read_blocks, render_json, render_markdown
from treadle.sessions.library import Library

FileFormat = Literal["markdown", "html", "json"]
FORMATS: dict[str, FileFormat] = {
    "": "markdown",
    ".md": "markdown",
    ".html": "html",
    ".json": "json",
}


def encode_session(kind: FileFormat, session_dir: Path) -> bytes:
    """The content of the file."""
    summary = Library().get_summary(session_dir)
    if kind == "json":
        return render_json(summary, session_dir)
    if kind == "html":
        from treadle.apps.pages.session_html import render_session_html

        return render_session_html(summary, session_dir).encode(errors="backslashreplace")
    text = render_markdown(summary, read_blocks(session_dir))
    return text.encode(errors="backslashreplace")


async def export_session(session: HostedSession, name: str) -> CommandAnswer:
    """`/export NAME`."""
    target = write_session(await session.flush(), session.folder, name)
    return CommandAnswer(f"exported to {target}")


def write_session(session_dir: Path, folder: Path, name: str) -> Path:
    """Write the session to a file of the folder, by default one named after it; its path. The end
    of the name says what it becomes."""
    suffix = Path(name).suffix.lower()
    if suffix not in FORMATS:
        known = ", ".join(filter(None, FORMATS))
        raise ConfigError(f"cannot export to {suffix} files; the file name may end in {known}")
    target = folder / (name or f"session-{session_dir.name}.md")
    if name and target.exists():
        raise ConfigError(f"{name} exists; choose another name, or remove it first")
    write_private_output(target, encode_session(FORMATS[suffix], session_dir))
    return target
