"""The index as the real git writes it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from treadle.core.git_index import SKIP_WORKTREE, IndexEntries, write_entry

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
PATHS = ["a.txt", "src/deep/er.py", "src/deep/erlang.py", "src/x" + "y" * 200, "ünï"]


def git(folder: Path, *words: str) -> None:
    subprocess.run(("git", *IDENTITY, *words), cwd=folder, check=True, capture_output=True)


def make_index(folder: Path, version: int, *init: str) -> bytes:
    git(folder, "init", *init)
    for path in PATHS:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    git(folder, "add", ".")
    git(folder, "update-index", "--skip-worktree", "src/deep/er.py")
    git(folder, "update-index", "--assume-unchanged", "a.txt")
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * hash_chars(init)},inner")
    git(folder, "update-index", "--force-write-index", "--index-version", str(version))
    return (folder / ".git/index").read_bytes()


def hash_chars(init: tuple[str, ...]) -> int:
    return 64 if init else 40


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("init", [(), ("--object-format=sha256",)])
def test_the_entries_are_those_that_git_wrote(tmp_path: Path, version: int, init: tuple[str, ...]):
    index = make_index(tmp_path, version, *init)
    entries = IndexEntries(index, hash_chars(init) // 2)
    found = {entry.path: entry for entry in entries}
    assert entries.version == version
    assert sorted(found) == sorted([*PATHS, "inner"])
    assert [path for path, entry in found.items() if entry.is_submodule] == ["inner"]
    assert {path for path, entry in found.items() if entry.is_assumed} == {
        "a.txt",
        "src/deep/er.py",
    }


@pytest.mark.parametrize("version", [3, 4])
def test_an_entry_that_is_written_again_is_the_same(tmp_path: Path, version: int):
    index = make_index(tmp_path, version)
    entries = IndexEntries(index)
    pieces = [write_entry(entry, version, entry.second_flags) for entry in entries]
    assert b"".join(pieces) == index[12 : entries.end]
    marked = [write_entry(entry, version, SKIP_WORKTREE) for entry in IndexEntries(index)]
    changed = index[:12] + b"".join(marked)
    assert all(entry.is_assumed for entry in IndexEntries(changed))


@pytest.mark.parametrize("version", [3, 4])
def test_an_index_that_is_cut_off_or_none_at_all_is_an_error(tmp_path: Path, version: int):
    index = make_index(tmp_path, version)
    entries = IndexEntries(index)
    assert len(list(entries)) == len(PATHS) + 1
    for length in range(12, entries.end - 8):
        with pytest.raises(ValueError, match=r"index|not found"):
            list(IndexEntries(index[:length]))
    for wrong in (b"", b"DIRC", b"nothing like it", b"DIRC\0\0\0\x09\0\0\0\1"):
        with pytest.raises(ValueError, match="not an index"):
            list(IndexEntries(wrong))
