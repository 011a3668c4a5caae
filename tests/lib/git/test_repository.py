"""Where the parts of a repository are, and what is checked out: as the real git says."""

import os
from pathlib import Path

import pytest

from tests.lib.git.helpers import commit, git
from treadle.lib.git.repository import (
    find_own_repository,
    find_repository,
    is_git_folder,
    read_branch,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "feature/x")
    commit(folder)
    return folder


def test_the_branch_is_read_off_the_files_of_git(repository: Path, tmp_path: Path):
    (repository / "a/b").mkdir(parents=True)
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    assert read_branch(tmp_path) == ""
    assert read_branch(repository) == read_branch(repository / "a/b") == "feature/x"
    assert read_branch(tmp_path / "linked") == "other"
    git(repository, "checkout", "-q", "--detach")
    assert read_branch(repository) == git(repository, "rev-parse", "HEAD")[:8]
    (repository / ".git/HEAD").unlink()
    os.mkfifo(repository / ".git/HEAD")
    assert read_branch(repository) == ""


def test_linked_worktrees_and_submodules_have_their_own_repository(
    repository: Path, tmp_path: Path
):
    linked, inner = tmp_path / "linked", repository / "inner"
    git(repository, "worktree", "add", "-q", str(linked))
    git(repository, "submodule", "--quiet", "add", str(linked), "inner")
    for folder in (repository, linked, inner):
        found = find_own_repository(folder / ".git")
        assert found is not None
        shown = git(folder, "rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir")
        assert [found.git_folder, found.common] == shown.split()
        assert is_git_folder(Path(found.common))
        assert find_repository(folder / "x") == folder


def test_a_file_does_not_make_another_repository_ones_own(repository: Path, tmp_path: Path):
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    link = tmp_path / ".git"
    for target in (repository / ".git", repository / ".git/worktrees/linked", tmp_path):
        link.write_text(f"gitdir: {target}\n")
        assert find_own_repository(link) is None
    link.unlink()
    link.symlink_to(repository / ".git")
    assert find_own_repository(link) is None
