"""The index as the real git writes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.lib.git.helpers import commit, git
from treadle.lib.git.index import list_entries, read_version
from treadle.lib.git.index_file import IndexFile, copy_partial_index

PATHS = ["a.txt", "src/deep/er.py", "src/deep/erlang.py", "src/x" + "y" * 200, "ünï"]


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
    hash_size = hash_chars(init) // 2
    found = {entry.path: entry for entry in list_entries(index, hash_size)}
    file = IndexFile(tmp_path / ".git/index", hash_size)
    for path, entry in found.items():
        assert file.find(path) == entry._replace(
            second_flags=0 if version < 4 else entry.second_flags
        )
    assert file.find("er.py") is file.find("src/deep") is None
    assert read_version(index) == version
    assert sorted(found) == sorted([*PATHS, "inner"])
    assert [path for path, entry in found.items() if entry.is_submodule] == ["inner"]
    assert {path for path, entry in found.items() if entry.is_assumed} == {
        "a.txt",
        "src/deep/er.py",
    }


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("init", [(), ("--object-format=sha256",)])
def test_git_trusts_an_entry_that_is_settled(tmp_path: Path, version: int, init: tuple[str, ...]):
    make_index(tmp_path, version, *init)
    file, path = (
        IndexFile(tmp_path / ".git/index", hash_chars(init) // 2),
        tmp_path / "src/deep/erlang.py",
    )
    # As if the index was written in the same moment: git does not trust such an entry.
    moment = path.stat().st_mtime_ns
    os.utime(tmp_path / ".git/index", ns=(moment, moment))
    entry = file.find("src/deep/erlang.py")
    assert entry is not None
    settled = file.settle(entry, path.stat())
    assert settled.time_ns < entry.time_ns
    assert settled == file.find("src/deep/erlang.py")
    path.write_bytes(b"x" * settled.size)
    os.utime(path, ns=(settled.time_ns, settled.time_ns))
    git(
        tmp_path,
        "-c",
        "core.checkStat=minimal",
        "-c",
        "core.trustctime=false",
        "diff",
        "--exit-code",
        "src/deep/erlang.py",
    )


@pytest.mark.parametrize("version", [3, 4])
def test_an_index_that_is_cut_off_or_none_at_all_is_an_error(tmp_path: Path, version: int):
    index = make_index(tmp_path, version)
    entries = list(list_entries(index))
    assert len(entries) == len(PATHS) + 1
    for length in range(12, entries[-1].start + 62):
        with pytest.raises(ValueError, match=r"index|not found"):
            list(list_entries(index[:length]))
    for wrong in (b"", b"DIRC", b"nothing like it", b"DIRC\0\0\0\x09\0\0\0\1"):
        with pytest.raises(ValueError, match="not an index"):
            list(list_entries(wrong))


def test_a_partial_index_marks_what_is_elsewhere(tmp_path: Path):
    make_index(tmp_path, 4)
    copy = tmp_path / ".git/copy"
    assert copy_partial_index(tmp_path / ".git/index", copy, ["src"], tmp_path)
    marked = {entry.path for entry in list_entries(copy.read_bytes()) if entry.second_flags}
    assert marked == {"a.txt", "ünï", "inner", "src/deep/er.py"}
    assert not copy_partial_index(tmp_path / "missing", copy, ["src"], tmp_path)


def test_a_conflict_does_not_keep_a_partial_index_from_being_made(tmp_path: Path):
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, a="1", b="1")
    git(tmp_path, "checkout", "-q", "-b", "other")
    commit(tmp_path, a="2")
    git(tmp_path, "checkout", "-q", "main")
    commit(tmp_path, a="3")
    with pytest.raises(subprocess.CalledProcessError):
        git(tmp_path, "merge", "other")
    copy = tmp_path / ".git/copy"
    assert copy_partial_index(tmp_path / ".git/index", copy, ["sub"], tmp_path)
    assert [e.path for e in list_entries(copy.read_bytes()) if e.second_flags] == ["b"]
