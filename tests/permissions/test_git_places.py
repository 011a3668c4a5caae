"""Repositories that make git read files of other folders while it only reads."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.permissions.test_git_config import READS, configure, evaluate, git, repository

__all__ = ["repository"]


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another repository, with a secret in its commit and its file."""
    folder = tmp_path_factory.mktemp("other")
    git(folder, "init", "-q", ".")
    (folder / "secret").write_text("SECRET\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def show(root: Path, command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], cwd=root, check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_another_work_tree_asks(repository, other):
    blob = show(repository, "git rev-parse HEAD:src/a.py").strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},secret")
    assert evaluate(repository, "git diff", "plan") == "allow"
    configure(repository, f"[core]\n\tworktree = {other}\n")
    assert "SECRET" in show(repository, "git diff -- secret")
    assert evaluate(repository, "git diff") == "ask"
    assert evaluate(repository, "git diff", "plan") == "deny"


def test_a_git_file_that_names_another_repository_asks(repository, other):
    shutil.rmtree(repository / ".git")
    (repository / ".git").write_text(f"gitdir: {other}/.git\n")
    assert "SECRET" in show(repository, "git log -p")
    assert {c: o for c in READS if (o := evaluate(repository, c)) != "ask"} == {}


def test_a_git_folder_that_is_a_symlink_to_another_repository_asks(repository, other):
    shutil.rmtree(repository / ".git")
    (repository / ".git").symlink_to(other / ".git")
    assert "SECRET" in show(repository, "git log -p")
    assert evaluate(repository, "git log -p") == "ask"


def test_a_git_folder_that_shares_the_parts_of_another_repository_asks(repository, other):
    shutil.rmtree(repository / ".git")
    fake = repository / "fake"
    fake.mkdir()
    (repository / ".git").write_text("gitdir: fake\n")
    (fake / "HEAD").write_text((other / ".git/HEAD").read_text())
    (fake / "commondir").write_text(f"{other}/.git\n")
    (fake / "gitdir").write_text(f"{repository}/.git\n")
    assert "SECRET" in show(repository, "git log -p")
    assert evaluate(repository, "git log -p") == "ask"


@pytest.mark.parametrize("kind", ["alternates", "objects", "pack"])
def test_objects_of_another_repository_ask_where_content_is_printed(repository, other, kind):
    blob = show(other, "git rev-parse HEAD:secret").strip()
    objects = repository / ".git/objects"
    assert evaluate(repository, f"git show {blob}") == "allow"
    if kind == "alternates":
        (objects / "info/alternates").write_text(f"{other}/.git/objects\n")
    elif kind == "objects":
        shutil.rmtree(objects)
        objects.symlink_to(other / ".git/objects")
    else:
        git(other, "repack", "-qad")
        shutil.rmtree(objects / "pack")
        (objects / "pack").symlink_to(other / ".git/objects/pack")
    assert "SECRET" in show(repository, f"git show {blob}")
    assert evaluate(repository, f"git show {blob}") == "ask"
    assert evaluate(repository, "git log -p") == "ask"
    assert evaluate(repository, "git status") == "allow"


@pytest.mark.parametrize("file", [".env", "../outside"])
def test_a_file_that_the_configuration_makes_git_print_asks(repository, file):
    (repository / file).write_text("SECRET\n")
    configure(repository, f"[blame]\n\tignoreRevsFile = {file}\n")
    assert "SECRET" in show(repository, "git blame src/a.py")
    assert evaluate(repository, "git blame src/a.py") == "ask"


def test_a_list_of_commits_in_the_folder_is_not_asked_about(repository):
    (repository / ".git-blame-ignore-revs").write_text("")
    configure(repository, "[blame]\n\tignoreRevsFile = .git-blame-ignore-revs\n")
    assert evaluate(repository, "git blame src/a.py") == "allow"


def test_ordinary_places_of_a_repository_are_not_asked_about(repository):
    git(repository, "commit", "-qam", "second")
    git(repository, "worktree", "add", "-q", "../linked-place")
    git(repository, "clone", "-q", "--shared", ".", "inner")
    git(repository, "submodule", "add", "-q", str(repository), "sub")
    folders = {
        "the repository": repository,
        "a linked worktree": repository.parent / "linked-place",
        "a submodule": repository / "sub",
        "a folder of it": repository / "src",
    }
    lines = ["git status", "git log -p", "git diff", "git show HEAD", "git blame src/a.py"]
    asked = {
        (name, line): outcome
        for name, folder in folders.items()
        for line in lines
        if (outcome := evaluate(folder, line)) != "allow"
    }
    assert asked == {}
    assert evaluate(repository, "git -C inner log -p") == "allow"
    assert evaluate(repository, "git -C sub log -p") == "allow"


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("BISECT_LOG", "git bisect log"),
        ("worktrees/a/locked", "git worktree list --porcelain"),
        ("rebase-merge/done", "git status"),
        ("MERGE_MSG", "git status"),
        ("info/exclude", "git status"),
        ("refs/heads/x", "git branch"),
    ],
)
def test_a_link_among_the_files_of_git_asks(repository, other, place, line):
    file = repository / ".git" / place
    file.parent.mkdir(parents=True, exist_ok=True)
    assert evaluate(repository, line) == "allow"
    file.unlink(missing_ok=True)
    file.symlink_to(other / "secret")
    assert evaluate(repository, line) == "ask"
    file.unlink()
    (repository / ".env").write_text("KEY=1")
    file.symlink_to(repository / ".env")
    assert evaluate(repository, line) == "ask"
    file.unlink()
    file.symlink_to(repository / ".git/HEAD")
    assert evaluate(repository, line) == "allow"


def test_a_partial_clone_asks_before_it_shows_content(repository):
    configure(repository, '[remote "origin"]\n\turl = ./other\n\tpromisor = true\n')
    shown = ("git log -p -1", "git show HEAD", "git diff HEAD~1 HEAD", "git grep x HEAD")
    assert {line: evaluate(repository, line) for line in shown} == dict.fromkeys(shown, "ask")
    assert evaluate(repository, "git status") == "allow"
    assert evaluate(repository, "git log --oneline") == "allow"


def test_more_files_of_git_than_can_be_checked_ask(repository, monkeypatch):
    monkeypatch.setattr("treadle.permissions.git_evaluator._MAX_NAMES", 100)
    for n in range(80):
        (repository / f".git/refs/heads/x{n}").touch()
    assert evaluate(repository, "git status") == "allow"
    for n in range(80, 120):
        (repository / f".git/refs/heads/x{n}").touch()
    assert evaluate(repository, "git status") == "ask"
