from __future__ import annotations

import stat
from pathlib import Path

import pytest

from treadle.lib.files.private_files import locked_update, write_private_file


def test_a_private_file_is_for_its_owner_alone_and_no_draft_is_left(tmp_path: Path):
    file = tmp_path / "home" / "login.json"
    write_private_file(file, b"1")
    write_private_file(file, b"2")
    assert file.read_bytes() == b"2"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path):
    file = tmp_path / "rules"
    file.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError):
        locked_update(file, lambda: bytes(1 // 0))
    locked_update(file, lambda: None)
    assert file.read_bytes() == b"before"
    locked_update(file, lambda: file.read_bytes() + b"!")
    assert file.read_bytes() == b"before!"
