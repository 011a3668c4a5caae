"""What commits have, read from object files that any program may have written."""

import os
import time
from pathlib import Path

import pytest

from tests.conftest import NoLeaks
from tests.lib.git.helpers import commit, git
from tests.patience import SOON
from treadle.lib.git import objects
from treadle.lib.git.objects import GitHistory


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, old="then", other="x")
    commit(folder, old="now")
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_an_older_commit_is_found_at_its_path(
    repository: Path, packed: bool, no_leaks: NoLeaks
):
    if packed:
        git(repository, "gc", "-q")
    history = GitHistory(repository / ".git", repository)
    file = repository / "old"
    for text, name, is_found in (("then", "old", True), ("x", "old", False), ("x", "other", True)):
        file.write_text(text)
        assert history.has_file(file, name) is is_found
    file.unlink()
    file.symlink_to("then")
    assert not history.has_file(file, "old")


def test_a_later_commit_does_not_count(repository: Path):
    history = GitHistory(repository / ".git", repository)
    commit(repository, old="later")
    assert not history.has_file(repository / "old", "old")
    assert GitHistory(repository / ".git", repository).has_file(repository / "old", "old")


def test_the_configuration_of_the_repository_is_not_read(repository: Path):
    (repository / ".git/config").write_text("[core\n")
    assert GitHistory(repository / ".git", repository).has_file(repository / "old", "old")


def test_a_program_of_the_folder_is_not_run(repository: Path, monkeypatch: pytest.MonkeyPatch):
    program = repository / "bin/git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert GitHistory(repository / ".git", repository).has_file(repository / "old", "old")
    assert not (repository / "ran").exists()


def test_an_object_that_is_a_pipe_does_not_block(
    repository: Path, monkeypatch: pytest.MonkeyPatch, no_leaks: NoLeaks
):
    monkeypatch.setattr(objects, "MAX_SECONDS", 0.2)
    history = GitHistory(repository / ".git", repository)
    tree = git(repository, "rev-parse", "HEAD^{tree}").strip()
    loose = repository / ".git/objects" / tree[:2] / tree[2:]
    loose.unlink()
    os.mkfifo(loose)
    begin = time.monotonic()
    assert not history.has_file(repository / "old", "old")
    assert not history.has_file(repository / "old", "old")
    assert time.monotonic() - begin < SOON
