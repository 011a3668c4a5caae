"""Which memory files are read, what they import, and which rules are about certain files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from treadle.context.memory import read_memory, read_user_memory
from treadle.context.memory_files import find_memory_root
from treadle.context.reminders import ChangedMemory


@pytest.fixture
def root(own_place: Path) -> Path:
    return own_place / "cwd"


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def texts(root: Path, **more: Any) -> list[str]:
    return [file.text for file in read_memory(root, home=Path.home(), **more).files]


def test_a_mention_in_a_line_brings_the_file_and_most_words_with_an_at_are_none(root: Path):
    write(root / "CLAUDE.md", "See @docs/a.md, ask @someone, `@docs/b.md`, mail me@docs/b.md")
    write(root / "docs/a.md", "First.")
    write(root / "docs/b.md", "Second.")
    memory = read_memory(root)
    assert [file.text for file in memory.files][1:] == ["First."]
    assert memory.problems == ()


def test_imports_are_followed_five_deep(root: Path):
    for number in range(8):
        write(root / f"n{number}.md", f"level {number}, then @n{number + 1}.md")
    write(root / "CLAUDE.md", "start @n0.md")
    memory = read_memory(root)
    assert [file.path.name for file in memory.files][-1] == "n4.md"
    assert "more than 5 levels deep" in memory.problems[0]


def test_a_project_imports_instructions_of_the_home_and_nothing_else_of_it(root: Path):
    write(Path.home() / ".claude/mine.md", "My way.")
    write(Path.home() / ".ssh/id_rsa", "the key")
    write(root / "CLAUDE.md", "@~/.claude/mine.md\n@~/.ssh/id_rsa\nand @~/.ssh/id_rsa here")
    memory = read_memory(root, home=Path.home())
    assert "My way." in memory.text
    assert "the key" not in memory.text
    assert [("outside the workspace" in problem) for problem in memory.problems] == [True, True]
    assert memory.text.count("(@~/.ssh/id_rsa was left out)") == 2


def test_the_users_own_file_imports_from_anywhere(root: Path):
    write(Path.home() / "notes.md", "A note.")
    write(Path.home() / ".claude/CLAUDE.md", "Read @~/notes.md and @more.md")
    write(Path.home() / ".claude/more.md", "More.")
    found = [file.text for file in read_user_memory(root, Path.home()).files]
    assert found[1:] == ["A note.", "More."]


def test_an_override_takes_the_place_of_its_file(root: Path):
    write(root / "AGENTS.md", "old")
    write(root / "AGENTS.override.md", "new")
    write(Path.home() / ".codex/AGENTS.md", "of the user")
    assert texts(root) == ["of the user", "new"]
    write(Path.home() / ".codex/AGENTS.override.md", "for now")
    write(root / "AGENTS.override.md", "")
    assert texts(root) == ["for now", "old"]


def test_files_of_cursor_and_gemini_are_read_only_if_wanted(root: Path):
    write(root / "GEMINI.md", "gemini")
    write(root / ".cursorrules", "old rules")
    write(root / ".cursor/rules/always.mdc", "---\nalwaysApply: true\n---\nalways")
    write(root / ".cursor/rules/maybe.mdc", "---\ndescription: About prices\n---\nlong text")
    write(root / ".cursor/rules/ts.mdc", "---\nglobs: *.ts,*.tsx\nalwaysApply: false\n---\ntypes")
    assert texts(root) == []
    memory = read_memory(root, more=True)
    found = [file.text for file in memory.files]
    maybe = root / ".cursor/rules/maybe.mdc"
    about = f"About prices (read {maybe} if this applies)"
    assert found == ["gemini", "old rules", "always", about]
    [rule] = memory.path_rules
    assert rule.patterns.matches(root / "src/deep/a.tsx")
    assert not rule.patterns.matches(root / "src/a.py")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/**/*.ts", "src/a.ts", True),
        ("src/**/*.ts", "src/a/b.ts", True),
        ("**/*.{ts,tsx}", "a.tsx", True),
        ("*.md", "README.md", True),
        ("*.md", "docs/a.md", False),
        ("src/*", "src/a/b.py", False),
        ("tests/**", "tests/a/b.py", True),
    ],
)
def test_a_rule_is_about_the_files_of_its_paths(root: Path, pattern: str, path: str, matches: bool):
    write(root / ".claude/rules/x.md", f'---\npaths: "{pattern}"\n---\nrule')
    [rule] = read_memory(root).path_rules
    assert rule.patterns.matches(root / path) is matches


def test_a_rule_of_the_user_is_about_files_of_the_project(root: Path):
    write(Path.home() / ".claude/rules/x.md", "---\npaths: src/*.py\n---\nbe brief")
    for memory in (read_memory(root, home=Path.home()), read_user_memory(root, Path.home())):
        assert memory.files == ()
        [rule] = memory.path_rules
        assert rule.patterns.matches(root / "src/a.py")
        assert not rule.patterns.matches(root / "a.py")


def test_a_rule_comes_once_its_file_is_touched_and_again_when_it_changes(root: Path):
    file = write(root / ".claude/rules/x.md", "---\npaths: src/*.py\n---\nbe brief")
    touched: list[Path] = []
    changes = ChangedMemory(read_memory(root), root, files=lambda session: touched)
    assert changes("s") == []
    touched.append(root / "src/a.py")
    assert [one.text for one in changes("s")] == ["be brief"]
    write(file, "---\npaths: src/*.py\n---\nbe brief and kind")
    assert [one.text for one in changes("s")] == ["be brief and kind"]


def test_the_repository_is_where_git_is_and_only_the_users_own(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    below = root / "a/b"
    below.mkdir(parents=True)
    assert find_memory_root(below) == below
    (root / ".git").mkdir()
    assert find_memory_root(below) == root
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert find_memory_root(below) == below
