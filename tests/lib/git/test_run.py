"""git runs, and little else does."""

import os
from pathlib import Path

import pytest

from tests.conftest import NoLeaks
from tests.lib.git.helpers import commit, git
from treadle.lib.git.run import GitError, find_git, run_git


def write_program(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, a="1")
    return tmp_path


async def test_neither_hooks_nor_the_file_monitor_run(repository: Path):
    write_program(repository / ".git/hooks/post-index-change", "touch ran")
    write_program(repository / "monitor", "touch ran")
    git(repository, "config", "core.fsmonitor", str(repository / "monitor"))
    (repository / "a").write_text("2")
    status = await run_git(repository, "status", "--porcelain", environment=os.environ)
    assert " M a\n" in status
    assert not (repository / "ran").exists()


async def test_an_error_has_the_words_of_git(repository: Path):
    with pytest.raises(GitError, match=r"git rev-parse: fatal: .*nothing") as caught:
        await run_git(repository, "rev-parse", "nothing", "--", environment=os.environ)
    assert caught.value.said.startswith("fatal: ")


async def test_git_that_does_not_end_is_killed_with_what_it_started(
    repository: Path, no_leaks: NoLeaks
):
    setting = ("alias.wait=!sleep 600",)
    with pytest.raises(GitError, match=r"git wait did not end in 0\.5 s"):
        await run_git(repository, "wait", environment=os.environ, settings=setting, timeout=0.5)


def test_a_program_of_the_folder_is_not_git(tmp_path: Path):
    write_program(tmp_path / "bin/git", "true")
    own = f"{tmp_path}/bin"
    assert find_git(tmp_path, {"PATH": f"{own}:{os.environ['PATH']}"}) == find_git(tmp_path)
    with pytest.raises(GitError, match="not installed"):
        find_git(tmp_path, {"PATH": "/nowhere"})
