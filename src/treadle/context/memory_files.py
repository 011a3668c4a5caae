"""Which memory files exist, and which of them apply to certain files only.

    of the user       ~/.treadle/AGENTS.md · ~/.codex/AGENTS.override.md, else AGENTS.md
                      ~/.claude/CLAUDE.md · ~/.claude/rules/**/*.md
    of each folder    AGENTS.override.md, else AGENTS.md · CLAUDE.md · .claude/CLAUDE.md
                      .claude/rules/**/*.md · CLAUDE.local.md
    if wanted         GEMINI.md · .cursorrules · .cursor/rules/**/*.mdc, and ~/.gemini/GEMINI.md

A rule with `paths` (`globs` in an .mdc file) applies when the work touches such a file. Reads the
front matter of rules, and no other text: memory.py reads that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from treadle.lib.files.protected_paths import GIT_FOLDER
from treadle.lib.git.repository import find_repository
from treadle.lib.text.frontmatter import Frontmatter, parse_list

PROJECT_FILES = (
    *("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md"),
    *(".claude/CLAUDE.md", ".claude/rules"),
)
CURSOR_AND_GEMINI_FILES = ("GEMINI.md", ".cursorrules", ".cursor/rules")
KEPT_LINES = "memory.json"  # below the home of Treadle: see memory_lines.py
MAX_RULES = 100  # of one folder
_BRACES = re.compile(r"\{([^{}]*)\}")


class FoundFile(msgspec.Struct, frozen=True):
    """A file that may exist. `within`: the folder that its symlinks must not leave; None for the
    user's own. `is_rule`: it may begin with front matter, whose paths are relative to `base`."""

    path: Path
    within: Path | None
    is_rule: bool = False
    base: Path | None = None


def find_memory_root(folder: Path) -> Path:
    """The root of the repository that holds the folder; the folder itself if there is none.

    As for git, a repository of another user does not count.
    """
    root = find_repository(folder)
    if root is None:
        return folder
    owners = {os.getuid(), root.stat().st_uid, (root / GIT_FOLDER).stat().st_uid}
    return root if len(owners) == 1 else folder


def find_user_files(home: Path, root: Path, *, more: bool) -> Iterator[FoundFile]:
    """The user's own files; the paths of rules are relative to `root`. `more`: those for Gemini."""
    claude = home / ".claude"
    yield FoundFile(home / ".treadle" / "AGENTS.md", None)
    yield FoundFile(_choose_agents_file(home / ".codex"), None)
    yield FoundFile(claude / "CLAUDE.md", None)
    for rule in _list_rules(claude / "rules", "*.md"):
        yield FoundFile(rule, None, is_rule=True, base=root)
    if more:
        yield FoundFile(home / ".gemini" / "GEMINI.md", None)


def find_folder_files(folder: Path, root: Path, *, more: bool) -> Iterator[FoundFile]:
    """The files of one folder of a repository. `more`: those for Cursor and Gemini, too."""
    yield FoundFile(_choose_agents_file(folder), root)
    yield FoundFile(folder / "CLAUDE.md", root)
    yield FoundFile(folder / ".claude" / "CLAUDE.md", root)
    for rule in _list_rules(folder / ".claude" / "rules", "*.md"):
        yield FoundFile(rule, root, is_rule=True, base=folder)
    if more:
        yield FoundFile(folder / "GEMINI.md", root)
        yield FoundFile(folder / ".cursorrules", root)
        for rule in _list_rules(folder / ".cursor" / "rules", "*.mdc"):
            yield FoundFile(rule, root, is_rule=True, base=folder)
    yield FoundFile(folder / "CLAUDE.local.md", root)


def _choose_agents_file(folder: Path) -> Path:
    override = folder / "AGENTS.override.md"
    try:
        return override if override.stat().st_size else folder / "AGENTS.md"
    except OSError:
        return folder / "AGENTS.md"


def _list_rules(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.rglob(pattern))[:MAX_RULES] if folder.is_dir() else []


# ------------------------------------------------------------------ rules for certain files


class FilePatterns(msgspec.Struct, frozen=True):
    """The files that a rule is about: patterns relative to a folder."""

    base: Path
    patterns: tuple[str, ...]

    def matches(self, path: Path) -> bool:
        if not path.is_relative_to(self.base):
            return False
        relative = path.relative_to(self.base).as_posix()
        return any(_compile_pattern(pattern).fullmatch(relative) for pattern in self.patterns)


def read_patterns(found: FoundFile, head: Frontmatter) -> FilePatterns | None:
    """The patterns of a rule; None if it always applies."""
    is_cursor = found.path.suffix == ".mdc"
    if is_cursor and str(head.get("alwaysApply", "")).lower() == "true":
        return None
    listed = parse_list(head.get("globs" if is_cursor else "paths")) or []
    # A comma inside of braces does not end a pattern.
    patterns = _join_braces(listed)
    if not patterns or found.base is None:
        return None
    if is_cursor:  # there a name without a folder is one at any depth
        patterns = [one if "/" in one else f"**/{one}" for one in patterns]
    return FilePatterns(found.base, tuple(patterns))


def describe_optional_rule(found: FoundFile, head: Frontmatter) -> str:
    """The text for a rule of Cursor that the model may read if it wants to, or ""."""
    description = str(head.get("description") or "").strip()
    is_optional = found.path.suffix == ".mdc" and description and not head.get("globs")
    if not is_optional or str(head.get("alwaysApply", "")).lower() == "true":
        return ""
    return f"{description} (read {found.path} if this applies)"


def _join_braces(parts: list[str]) -> list[str]:
    joined: list[str] = []
    for part in parts:
        if joined and joined[-1].count("{") > joined[-1].count("}"):
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return [part.removeprefix("./").strip("\"'") for part in joined if part]


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """`**` is any folders, `*` and `?` stay within a name, `{a,b}` is one of them."""
    if braces := _BRACES.search(pattern):
        start, end = braces.span()
        variants = [pattern[:start] + one + pattern[end:] for one in braces[1].split(",")]
        return re.compile("|".join(f"(?:{_compile_pattern(one).pattern})" for one in variants))
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(known.get(part) or re.escape(part) for part in parts))
