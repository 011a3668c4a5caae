"""Worktrees of whole sessions: real repositories; what is the user's is never removed."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.workspace.test_worktrees import git, list_branches, list_worktrees, repository
from treadle.core.errors import WorkspaceError
from treadle.workspace.worktrees.session_worktrees import SessionWorktrees, describe_session_end
from treadle.workspace.worktrees.worktrees import Worktrees

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
__all__ = ["repository"]


def open_all(folder: Path) -> SessionWorktrees:
    return SessionWorktrees(folder, folder.parent / "sessions")


async def test_one_without_changes_is_removed_with_its_branch(repository: Path):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    assert list_branches(repository) == ["treadle/fix"]
    assert (worktree.root / "a.txt").read_text() == "one\n"
    end = await worktrees.leave(worktree)
    assert end.status == "unchanged"
    assert not worktree.top.exists()
    assert list_branches(repository) == []
    assert list_worktrees(repository) == 1


@pytest.mark.parametrize("name", ["a.txt", "new.txt", "secret.log"])
async def test_one_with_a_changed_new_or_ignored_file_stays(repository: Path, name: str):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    (worktree.root / name).write_text("mine\n")
    end = await worktrees.leave(worktree)
    assert (end.status, end.files, end.branch) == ("left", (name,), "treadle/fix")
    assert f"stays, with 1 uncommitted or ignored path, on the branch treadle/fix: {end.path}" in (
        describe_session_end("fix", end)
    )
    again = await worktrees.enter("fix")
    assert (again.root / name).read_text() == "mine\n"
    again.release()


async def test_one_with_commits_stays_until_the_folder_has_them(repository: Path):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    (worktree.root / "a.txt").write_text("mine\n")
    git(worktree.root, "commit", "-q", "-a", "-m", "mine")
    end = await worktrees.leave(worktree)
    assert (end.status, end.files) == ("left", ())
    git(repository, "merge", "-q", "treadle/fix")
    end = await worktrees.leave(await worktrees.enter("fix"))
    assert end.status == "unchanged"
    assert list_branches(repository) == []
    assert (repository / "a.txt").read_text() == "mine\n"


async def test_a_branch_that_was_there_before_is_continued_and_stays(repository: Path):
    git(repository, "branch", "treadle/fix")
    tip = git(repository, "rev-parse", "HEAD").strip()
    git(repository, "commit", "-q", "--allow-empty", "-m", "later")
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    assert worktree.record.tip == tip
    assert (await worktrees.leave(worktree)).status == "unchanged"
    assert list_branches(repository) == ["treadle/fix"]


async def test_a_commit_on_no_branch_stays(repository: Path):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    git(worktree.root, "switch", "-q", "--detach")
    git(worktree.root, "commit", "-q", "--allow-empty", "-m", "mine")
    end = await worktrees.leave(worktree)
    assert end.status == "left"
    told = describe_session_end("fix", end)
    assert "on no branch" in told
    (advice,) = re.findall("`(git merge [^`]+)`", told)
    await asyncio.to_thread(subprocess.run, ["sh", "-c", advice], cwd=repository, check=True)
    assert git(repository, "log", "-1", "--format=%s") == "mine"


async def test_the_branch_that_the_worktree_is_on_at_the_end_is_merged(repository: Path):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    git(worktree.root, "switch", "-q", "-c", "other")
    git(worktree.root, "commit", "-q", "--allow-empty", "-m", "mine")
    told = describe_session_end("fix", await worktrees.leave(worktree))
    assert "on the branch other" in told
    assert "`git merge other`" in told


async def test_a_branch_with_commits_survives_a_removed_worktree(repository: Path):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    git(worktree.root, "commit", "-q", "--allow-empty", "-m", "mine")
    git(worktree.root, "switch", "-q", "--detach", "main")
    assert (await worktrees.leave(worktree)).status == "unchanged"
    assert list_branches(repository) == ["treadle/fix"]
    again = await worktrees.enter("fix")
    assert git(again.root, "log", "-1", "--format=%s") == "mine"
    again.release()


async def test_files_that_git_does_not_know_are_never_removed(repository: Path):
    worktrees = open_all(repository)
    path = worktrees.get_path("fix")
    path.mkdir(parents=True)
    (path / "notes.txt").write_text("mine\n")
    with pytest.raises(WorkspaceError, match="git knows no worktree at"):
        await worktrees.enter("fix")
    assert (path / "notes.txt").read_text() == "mine\n"


async def test_a_deleted_worktree_is_made_again(repository: Path):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    worktree.release()
    shutil.rmtree(worktree.top)
    again = await worktrees.enter("fix")
    assert (again.root / "a.txt").is_file()
    again.release()


async def test_it_is_used_by_one_session_at_a_time(repository: Path):
    worktree = await open_all(repository).enter("fix")
    with pytest.raises(WorkspaceError, match="the worktree fix is in use by another process"):
        await open_all(repository).enter("fix")
    worktree.release()


async def test_child_agents_of_the_folder_leave_it_alone(repository: Path):
    worktrees = open_all(repository)
    worktree = await worktrees.enter("fix")
    (worktree.root / "a.txt").write_text("mine\n")
    worktree.release()
    children = Worktrees(repository, repository.parent / "children")
    await (await children.open("one")).finish(merge=True)
    await children.aclose()
    assert (worktree.root / "a.txt").read_text() == "mine\n"


@pytest.mark.parametrize("name", ["", "a b", "../up", "a..b", "-x", "x.lock", "é", "a" * 61])
async def test_a_wrong_name_is_refused(repository: Path, name: str):
    with pytest.raises(WorkspaceError, match="is no name for a worktree"):
        await open_all(repository).enter(name)
