"""The imports of a memory file: `@path` in its text, outside of code.

    @docs/style.md                       a line of its own: the text of the file takes its place
    See @README.md and @~/.claude/me.md  inside a line: the file follows as one of its own

Pure functions; memory.py reads the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

_WHOLE_LINE = re.compile(r"@(?P<path>[^\s`@]+)\s*")
_MENTION = re.compile(r"(?<![\w@`/.:])@(?P<path>[^\s`@]+)")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_CODE_SPAN = re.compile(r"(`+)(?:(?!\1).)*\1")
# Folders of the home whose Markdown files a project may import: they hold instructions.
HOME_FOLDERS = (".claude", ".treadle", ".codex")


def replace_imports(text: str, replace: Callable[[str], str]) -> str:
    """The text with each import on a line of its own replaced."""
    lines: list[str] = []
    for line, is_code in _walk_lines(text):
        import_ = None if is_code else _WHOLE_LINE.fullmatch(line)
        lines.append(line if import_ is None else replace(import_["path"]))
    return "\n".join(lines)


def list_mentions(text: str) -> list[str]:
    """The paths that are mentioned inside lines, each once."""
    paths: dict[str, None] = {}
    for line, is_code in _walk_lines(text):
        if is_code or _WHOLE_LINE.fullmatch(line):
            continue
        for mention in _MENTION.finditer(_CODE_SPAN.sub(" ", line)):
            paths[mention["path"].rstrip(".,;:!?)'\"*_]")] = None
    return [path for path in paths if path]


def resolve_import(path: str, file: Path, home: Path) -> Path:
    """The real path of an import."""
    target = home / path[2:] if path.startswith("~/") else file.parent / path
    return Path(os.path.realpath(target))


def may_import(target: Path, root: Path, home: Path) -> bool:
    """Whether a file of a project may import this one: a file of the project, or instructions of
    the user. Anything else in the home may be a secret."""
    if target.is_relative_to(root):
        return True
    folders = [Path(os.path.realpath(home / name)) for name in HOME_FOLDERS]
    return target.suffix == ".md" and any(map(target.is_relative_to, folders))


def _walk_lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is in a block of code."""
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
            yield line, True
        elif mark and mark[1].startswith(fence):
            fence = ""
            yield line, True
        else:
            yield line, bool(fence)
