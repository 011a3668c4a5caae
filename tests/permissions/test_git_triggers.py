"""Configuration that only some reading commands of git turn into a program that runs."""

import subprocess
from pathlib import Path

import pytest

from tests.permissions.test_git_config import configure, evaluate, git, repository

__all__ = ["repository"]
HELP = (
    "[help]\n\tformat = web\n\tbrowser = x\n\thtmlPath = http://localhost\n"
    '[browser "x"]\n\tcmd = {run}\n'
)
MERGE = '[merge "x"]\n\tdriver = {run} %O %A %B\n'
HIDDEN_SECTION = "[core]\n\tx = a\\\n[user]\n\tfsmonitor = {run}\n"


def make_program(root: Path) -> Path:
    """A program that leaves a marker when it runs."""
    marker = root.parent / f"{root.name}-ran"
    (root / "evil").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (root / "evil").chmod(0o755)
    return marker


def run(root: Path, command: str) -> None:
    subprocess.run(["bash", "-c", command], cwd=root, check=False, capture_output=True)


def merge_with_conflict(root: Path) -> None:
    """A merge in which a file with a merge driver changed on both sides."""
    (root / ".git/info/attributes").write_text("* merge=x\n")
    git(root, "commit", "-qam", "second")
    git(root, "checkout", "-qb", "side", "HEAD~1")
    (root / "src/a.py").write_text("x = 3\n")
    git(root, "commit", "-qam", "third")
    git(root, "merge", "-q", "-s", "ours", "-m", "merge", "-")


@pytest.mark.parametrize("command", ["git diff --help", "git show --help", "git status --help"])
def test_help_asks_where_the_repository_chooses_the_browser(repository, command):
    assert evaluate(repository, command) == "allow"
    marker = make_program(repository)
    configure(repository, HELP)
    run(repository, command)
    assert marker.exists()
    assert evaluate(repository, command) == "ask"
    assert evaluate(repository, "git status") == "allow"


def test_a_program_that_lists_the_commits_of_other_repositories_asks(repository):
    command = "git -C shared log --alternate-refs"
    git(repository, "clone", "-q", "--shared", ".", "shared")
    assert evaluate(repository, command) == "allow"
    marker = make_program(repository)
    configure(repository / "shared", f"[core]\n\talternateRefsCommand = {repository}/evil\n")
    run(repository, command)
    assert marker.exists()
    assert evaluate(repository, command) == "ask"


@pytest.mark.parametrize(
    ("command", "config"),
    [
        ("git show --diff-merges=remerge", ""),
        ("git show --diff-merges=on", "[log]\n\tdiffMerges = remerge\n"),
        ("git log -p -m", "[log]\n\tdiffMerges = remerge\n"),
        ("git diff-tree -p -m --diff-merges=r HEAD", ""),
    ],
)
def test_a_merge_that_is_done_again_asks_if_a_merge_driver_would_run(repository, command, config):
    merge_with_conflict(repository)
    assert evaluate(repository, command) == "allow"
    marker = make_program(repository)
    configure(repository, MERGE + config)
    run(repository, command)
    assert marker.exists()
    assert evaluate(repository, command) == "ask"
    assert evaluate(repository, "git log -p") == "allow"


@pytest.mark.parametrize("command", ["git -C sub status", "cd sub && git status"])
@pytest.mark.parametrize("content", [{}, {"HEAD": "x\n"}, {"config": "[core]\n"}])
def test_an_invalid_git_folder_does_not_hide_the_repository_above_it(repository, command, content):
    (repository / "sub/.git").mkdir(parents=True)
    for name, text in content.items():
        (repository / "sub/.git" / name).write_text(text)
    assert evaluate(repository, command) == "allow"
    marker = make_program(repository)
    configure(repository, "[core]\n\tfsmonitor = {run}\n")
    run(repository, command)
    assert marker.exists()
    assert evaluate(repository, command) == "ask"
    assert evaluate(repository, command, "plan") == "deny"


def test_a_bare_repository_beside_an_empty_git_folder_asks(repository):
    git(repository, "init", "-q", "--bare", "sub")
    (repository / "sub/.git").mkdir()
    assert evaluate(repository, "git -C sub log") == "ask"


@pytest.mark.parametrize("command", ["git -C sub status", "cd sub && git status"])
def test_a_folder_with_a_head_and_the_objects_of_another_one_asks(repository, command):
    """All of it can be checked in: a clone brings it."""
    marker = make_program(repository)
    for folder in ("sub/wt", "x/objects", "x/refs"):
        (repository / folder).mkdir(parents=True)
    assert evaluate(repository, command) == "allow"
    (repository / "sub/HEAD").write_text("ref: refs/heads/main\n")
    (repository / "sub/commondir").write_text("../x\n")
    (repository / "x/config").write_text(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n"
    )
    (repository / "sub/config.worktree").write_text(
        f"[core]\n\tbare = false\n\tworktree = wt\n\tfsmonitor = {repository}/evil\n"
    )
    run(repository, command)
    assert marker.exists()
    assert evaluate(repository, command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "touch src/HEAD",
        "mkdir -p src/Head",
        "cp src/a.py src/HEAD",
        "cp -r made src/made",
        "touch made/config",
        "mkdir -p made/objects",
        "echo x > made/hooks/post-checkout",
        "touch made/refs/heads/x",
    ],
)
def test_what_makes_a_folder_a_git_folder_is_no_plain_edit(repository, command):
    (repository / "made").mkdir()
    (repository / "made/HEAD").write_text("ref: refs/heads/main\n")
    assert evaluate(repository, "touch src/config made/b", "accept-edits") == "allow"
    assert evaluate(repository, command, "accept-edits") == "ask"


@pytest.mark.parametrize(
    ("command", "config"),
    [
        ("git log -p --submodule=diff", ""),
        ("git log -p", "[diff]\n\tsubmodule = diff\n"),
        ("git diff HEAD~1 HEAD", "[diff]\n\tsubmodule = diff\n"),
    ],
)
def test_the_configuration_of_a_submodule_of_an_older_commit_counts(repository, command, config):
    git(repository, "clone", "-q", ".", "sub")
    git(repository, "add", "sub")
    git(repository, "commit", "-qm", "with")
    git(repository, "rm", "-q", "--cached", "sub")
    git(repository, "commit", "-qm", "without")
    configure(repository, config)
    assert evaluate(repository, command) == "allow"
    marker = make_program(repository)
    inner = repository / "sub/.git/config"
    inner.write_text(inner.read_text() + f"[diff]\n\texternal = {repository}/evil\n")
    run(repository, command)
    assert marker.exists()
    assert evaluate(repository, command) == "ask"


def test_a_section_inside_of_a_value_is_not_a_section(repository):
    marker = make_program(repository)
    configure(repository, HIDDEN_SECTION)
    run(repository, "git status")
    assert marker.exists()
    assert evaluate(repository, "git status") == "ask"


@pytest.mark.parametrize(
    "config",
    [
        '[alias]\n\tx = "!f() { \\\n\t  git status; \\\n\t}; f"\n[user]\n\tname = a # b \\\n',
        "[core]\r\n\tautocrlf = true\r\n",
        '[branch "a\\"b]"]\n\tremote = origin ; [core]\n',
        '[merge "npm"]\n\tdriver = npx x\n[help]\n\tformat = web\n',
    ],
)
def test_ordinary_values_over_several_lines_are_not_asked_about(repository, config):
    file = repository / ".git/config"
    file.write_text(file.read_text() + config)
    assert subprocess.run(["git", "status"], cwd=repository, check=False).returncode == 0
    assert evaluate(repository, "git status") == "allow"
