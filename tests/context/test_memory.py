from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.context.memory import (
    MAX_FILE_CHARS,
    append_memory,
    read_memory,
    read_nested_memory,
    reread_changed,
)
from treadle.core.errors import ConfigError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = (tmp_path / "repo").resolve()
    root.mkdir()
    return root


def write(file: Path, text: str | bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def test_files_are_read_from_home_down_to_the_folder(root: Path, tmp_path: Path):
    write(tmp_path / "home/.treadle/AGENTS.md", "I like tabs.")
    write(root / "AGENTS.md", "Use uv.")
    write(root / "src/CLAUDE.md", "No prints.")
    memory = read_memory(root, root / "src", tmp_path / "home")
    assert [file.text for file in memory.files] == ["I like tabs.", "Use uv.", "No prints."]
    assert memory.problems == ()
    assert "Use uv." in memory.text


def test_a_link_from_one_name_to_the_other_is_read_once(root: Path):
    write(root / "AGENTS.md", "Use uv.")
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    assert len(read_memory(root).files) == 1


def test_imports_are_followed_inside_the_workspace(root: Path):
    write(root / "AGENTS.md", "Before\n@docs/style.md\nAfter, and mail@example.org stays")
    write(root / "docs/style.md", "Be plain.")
    assert read_memory(root).files[0].text == (
        "Before\nBe plain.\nAfter, and mail@example.org stays"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("@AGENTS.md", "is a circular import"),
        ("@../secret.md", "outside the workspace"),
        ("@/etc/passwd", "outside the workspace"),
        ("@nowhere.md", "does not exist"),
        ("@out.md", "outside the workspace"),
    ],
)
def test_an_import_that_cannot_be_is_left_out_with_a_sentence(root: Path, line: str, words: str):
    write(root.parent / "secret.md", "the password")
    (root / "out.md").symlink_to(root.parent / "secret.md")
    write(root / "AGENTS.md", f"Hello\n{line}\n")
    memory = read_memory(root)
    assert words in memory.problems[0]
    assert "password" not in memory.text
    assert "root:" not in memory.text


def test_two_files_that_import_each_other_end(root: Path):
    write(root / "AGENTS.md", "@b.md")
    write(root / "b.md", "@AGENTS.md")
    assert "is a circular import" in read_memory(root).problems[0]


def test_a_link_out_of_the_workspace_is_not_read(root: Path):
    write(root.parent / "secret.md", "the password")
    (root / "AGENTS.md").symlink_to(root.parent / "secret.md")
    memory = read_memory(root)
    assert memory.files == ()
    assert f"AGENTS.md: leaves {root} through a symlink; it is not read" in memory.problems[0]


def test_a_huge_file_is_cut_and_a_binary_one_left_out(root: Path):
    write(root / "AGENTS.md", "x" * 1_000_000)
    write(root / "CLAUDE.md", b"\x7fELF\0\0")
    memory = read_memory(root)
    assert len(memory.files) == 1
    assert len(memory.text) < 50_000
    assert len(memory.problems) == 2


def test_what_changed_is_told_and_the_rest_is_not(root: Path):
    write(root / "AGENTS.md", "Use uv.\n@more.md")
    write(root / "more.md", "And ruff.")
    memory = read_memory(root)
    assert reread_changed(memory).files == ()
    write(root / "AGENTS.md", "Use pip.")
    assert [file.text for file in reread_changed(memory).files] == ["Use pip."]


def test_a_deeper_folder_brings_its_own_files_once(root: Path):
    write(root / "AGENTS.md", "Use uv.")
    write(root / "src/AGENTS.md", "No prints.")
    memory = read_memory(root)
    found = read_nested_memory(root, root / "src", [file.path for file in memory.files])
    assert [file.text for file in found.files] == ["No prints."]


def test_remembering_appends_one_line(root: Path):
    append_memory(root / "AGENTS.md", "Use uv,\nnot pip.")
    append_memory(root / "AGENTS.md", "Be brief.")
    assert (root / "AGENTS.md").read_text() == "- Use uv, not pip.\n- Be brief.\n"


def test_remembering_writes_into_no_file_elsewhere_and_waits_for_no_pipe(root: Path):
    write(root.parent / "rc", "mine\n")
    file = root / "AGENTS.md"
    for target in ("../rc", "../made"):
        file.symlink_to(target)
        with pytest.raises(ConfigError, match="through a symlink"):
            append_memory(file, "x")
        file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="is a named pipe"):
        append_memory(file, "x")
    assert (root.parent / "rc").read_text() == "mine\n"
    assert not (root.parent / "made").exists()


# ------------------------------------------------------------------ files that turn into others


def test_a_changed_file_is_read_as_carefully_as_the_first_time(root: Path):
    write(root.parent / "secret", "the password")
    write(root / "AGENTS.md", "Use uv.")
    memory = read_memory(root)
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").symlink_to("../secret")
    [file] = reread_changed(memory).files
    assert "through a symlink" in file.text
    assert "password" not in file.text


def test_a_folder_on_the_way_that_became_a_link_leads_nowhere(root: Path):
    write(root.parent / "elsewhere/AGENTS.md", "the password")
    write(root / "src/AGENTS.md", "No prints.")
    memory = read_memory(root, root / "src")
    (root / "src").rename(root / "old")
    (root / "src").symlink_to("../elsewhere")
    [file] = reread_changed(memory).files
    assert "through a symlink" in file.text
    assert "password" not in file.text


@pytest.mark.parametrize(
    ("become", "words"),
    [
        (os.mkfifo, "is a named pipe"),
        (os.mkdir, "is a folder"),
        (lambda path: path.symlink_to("/dev/zero"), "through a symlink"),
        (lambda path: path.symlink_to(path.name), "was deleted"),
        (lambda path: path.write_bytes(b"a\0b"), "is binary"),
        (lambda path: None, "was deleted"),
    ],
)
def test_what_is_no_text_file_any_more_is_told_and_not_waited_for(root: Path, become, words: str):
    write(root / "AGENTS.md", "Use uv.")
    memory = read_memory(root)
    (root / "AGENTS.md").unlink()
    become(root / "AGENTS.md")
    [file] = reread_changed(memory).files
    assert words in file.text
    assert read_nested_memory(root, root, [file.path]).files == ()


def test_what_was_no_file_from_the_start_is_left_out_with_a_sentence(root: Path):
    os.mkfifo(root / "AGENTS.md")
    (root / "CLAUDE.md").mkdir()
    os.mkfifo(root / "pipe.md")
    (root / "loop.md").symlink_to("loop.md")
    write(root / "CLAUDE.local.md", f"@pipe.md\n@loop.md\n@{'n' * 300}.md\n")
    memory = read_memory(root)
    assert len(memory.files) == 1
    assert [problem.count(root.name) > 0 for problem in memory.problems] == [True] * 5
    for words in (
        "AGENTS.md: is a named pipe",
        "CLAUDE.md: is a folder",
        "@pipe.md is not allowed",
    ):
        assert any(words in problem for problem in memory.problems)


def test_a_file_without_end_costs_its_beginning(root: Path):
    with (root / "AGENTS.md").open("wb") as file:
        file.write(b"Use uv.\n" + b"x" * MAX_FILE_CHARS * 5)
        file.truncate(1 << 40)  # a hole: it takes no room on the disk
    memory = read_memory(root)
    assert memory.text.startswith("# Instructions")
    assert "Use uv." in memory.text
    assert reread_changed(memory).files == ()


def test_the_users_own_file_may_be_a_link(root: Path, tmp_path: Path):
    write(tmp_path / "dotfiles/AGENTS.md", "I like tabs.")
    (tmp_path / "home/.treadle").mkdir(parents=True)
    (tmp_path / "home/.treadle/AGENTS.md").symlink_to(tmp_path / "dotfiles/AGENTS.md")
    memory = read_memory(tmp_path / "home", home=tmp_path / "home")
    assert [file.text for file in memory.files] == ["I like tabs."]
    write(tmp_path / "dotfiles/AGENTS.md", "I like spaces.")
    assert [file.text for file in reread_changed(memory).files] == ["I like spaces."]


def deny_secrets(path: Path) -> str:
    return "the rule Read(*.key) denies reading it" if path.suffix == ".key" else ""


@pytest.mark.parametrize("text", ["@docs/a.key", "See @docs/a.key for it", "@docs/symlink.md"])
def test_a_file_that_may_not_be_read_is_not_imported(root: Path, text: str):
    write(root / "CLAUDE.md", f"Before\n{text}\nAfter")
    write(root / "docs/a.key", "the secret")
    (root / "docs/symlink.md").symlink_to("a.key")
    memory = read_memory(root, check_read=deny_secrets)
    assert "the secret" not in memory.text
    assert "After" in memory.text
    [problem] = memory.problems
    assert text.split("@")[1].split()[0] in problem
    assert "the rule Read(*.key) denies reading it; it is left out" in problem


def test_a_memory_file_that_is_a_symlink_to_an_unreadable_file_is_left_out(root: Path):
    write(root / "a.key", "the secret")
    (root / "AGENTS.md").symlink_to("a.key")
    write(root / "src/CLAUDE.md", "Import\n@../a.key")
    memory = read_memory(root, check_read=deny_secrets)
    assert memory.files == ()
    assert "is a symlink to" in memory.problems[0]
    nested = read_nested_memory(root, root / "src", (), check_read=deny_secrets)
    assert "the secret" not in nested.text


def test_a_memory_file_that_becomes_a_symlink_to_an_unreadable_file_is_no_longer_used(root: Path):
    write(root / "a.key", "the secret")
    write(root / "AGENTS.md", "Use uv.")
    memory = read_memory(root, check_read=deny_secrets)
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").symlink_to("a.key")
    [changed] = reread_changed(memory, deny_secrets).files
    assert "the secret" not in changed.text
    assert "the rule Read(*.key) denies reading it" in changed.text


def test_the_users_own_memory_file_may_import_what_the_rules_deny_to_the_agent(root, tmp_path):
    write(tmp_path / "home/.claude/CLAUDE.md", "@~/mine.key")
    write(tmp_path / "home/mine.key", "my text")
    assert "my text" in read_memory(root, None, tmp_path / "home", check_read=deny_secrets).text
