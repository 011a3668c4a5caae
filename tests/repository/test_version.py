"""`treadle --version` in every kind of checkout: the commit is read without git."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from treadle import _version

COMMIT = "3e7b8ef6a81c4d5e9f00112233445566778899aa"


def read_commit(root: Path) -> str:
    package = root / "src" / "treadle"
    package.mkdir(parents=True, exist_ok=True)
    copied = shutil.copy(_version.__file__, package)
    commit: str = runpy.run_path(str(copied))["read_commit"]()
    return commit


def write_files(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    "files",
    [
        {".git/HEAD": f"{COMMIT}\n"},
        {".git/HEAD": "ref: refs/heads/main\n", ".git/refs/heads/main": f"{COMMIT}\n"},
        {
            ".git/HEAD": "ref: refs/heads/a/b\n",
            ".git/packed-refs": f"# pack-refs with: peeled\n{'0' * 40} refs/heads/b\n"
            f"{COMMIT} refs/heads/a/b\n",
        },
        {
            ".git": "gitdir: main/.git/worktrees/one\n",
            "main/.git/worktrees/one/HEAD": "ref: refs/heads/one\n",
            "main/.git/worktrees/one/commondir": "../..\n",
            "main/.git/refs/heads/one": f"{COMMIT}\n",
        },
        {"src/treadle/_commit.txt": f"{COMMIT[:12]}\n"},
    ],
    ids=["detached", "branch", "packed", "worktree", "built"],
)
def test_the_commit_of_a_checkout_is_found(tmp_path: Path, files: dict[str, str]):
    write_files(tmp_path, files)
    assert read_commit(tmp_path) == COMMIT[:12]


@pytest.mark.parametrize(
    "files",
    [{}, {".git/HEAD": "ref: refs/heads/empty\n"}, {".git/config": ""}, {".git": "gitdir: gone\n"}],
    ids=["no git", "no commit", "no head", "moved"],
)
def test_without_a_commit_the_version_stands_alone(tmp_path: Path, files: dict[str, str]):
    write_files(tmp_path, files)
    assert read_commit(tmp_path) == ""


def test_a_head_that_is_not_text_is_no_commit(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert read_commit(tmp_path) == ""
