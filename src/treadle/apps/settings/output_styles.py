"""Output styles: Markdown files whose text says how the agent speaks.

    .treadle/output-styles/NAME.md, .claude/output-styles/NAME.md   of the folder, and of $HOME

    ---
    name: Teacher                       without it: the name of the file
    description: Explains each step
    ---
    Explain why, before you say what.

The setting `output_style` chooses one; its text is a section of the system prompt. Those of a
folder are used if it is trusted. Used by the assembly and by `/output-style`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from treadle.apps.settings.load import symlink_boundary
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.lib.text import frontmatter

STYLE_FOLDERS = (".treadle/output-styles", ".claude/output-styles")
DEFAULT_STYLE = "default"
MAX_BYTES = 64 << 10


class OutputStyle(msgspec.Struct, frozen=True):
    name: str
    summary: str
    body: str
    file: Path


def find_output_styles(
    folder: Path, *, trusted: bool
) -> tuple[Mapping[str, OutputStyle], list[str]]:
    """The styles by name, and a line for each file that cannot be used. The folder's win over the
    user's of the same name."""
    styles: dict[str, OutputStyle] = {}
    problems: list[str] = []
    home = Path.home()
    for base in [folder, home] if trusted and folder != home else [home]:
        within = symlink_boundary(folder) if base is folder else None
        for file in (file for name in STYLE_FOLDERS for file in sorted((base / name).glob("*.md"))):
            try:
                style = _read_style(file, within)
            except (ConfigError, OSError) as error:
                problems.append(str(error))
            else:
                styles.setdefault(style.name, style)
    return styles, problems


def choose_output_style(
    name: str, folder: Path, *, trusted: bool, notes: list[str], must_exist: bool = False
) -> OutputStyle | None:
    """The style of this name; without it, None and a note, or a ConfigError if it `must_exist`."""
    if name in ("", DEFAULT_STYLE):
        return None
    styles, problems = find_output_styles(folder, trusted=trusted)
    notes += problems
    style = find_style(name, styles)
    if style is None:
        if must_exist:
            raise ConfigError(describe_missing_style(name, styles))
        notes.append(f"{describe_missing_style(name, styles)}; the default one is used")
    return style


def find_style(name: str, styles: Mapping[str, OutputStyle]) -> OutputStyle | None:
    """The style of this name; without one, that of the same letters in another case."""
    other_case = (one for one in styles.values() if one.name.lower() == name.lower())
    return styles.get(name) or next(other_case, None)


def describe_missing_style(name: str, styles: Mapping[str, OutputStyle]) -> str:
    known = ", ".join([DEFAULT_STYLE, *styles])
    return f"there is no output style {name!r}; there are: {known}"


def _read_style(file: Path, within: Path | None) -> OutputStyle:
    try:
        front, body = frontmatter.parse_frontmatter(read_text(file, MAX_BYTES, within=within))
    except frontmatter.FrontmatterError as error:
        raise ConfigError(f"{file}: {error}") from error
    if not body.strip():
        raise ConfigError(f"{file}: the style has no text")
    name = str(front.get("name") or file.stem).strip()
    return OutputStyle(name, str(front.get("description") or "")[:80], body.strip(), file)
