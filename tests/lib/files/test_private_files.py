from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from treadle.lib.files.private_files import (
    locked_update,
    write_private_file,
    write_private_output,
)


def test_a_private_file_is_for_its_owner_alone_and_no_draft_is_left(tmp_path: Path):
    file = tmp_path / "home" / "login.json"
    write_private_file(file, b"1")
    write_private_file(file, b"2")
    assert file.read_bytes() == b"2"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_file_that_the_user_names_is_private_and_a_link_or_a_pipe_stays(tmp_path: Path):
    file, link = tmp_path / "page.html", tmp_path / "link.html"
    file.write_text("before")
    file.chmod(0o644)
    link.symlink_to(file)
    write_private_output(link, b"page")
    assert (link.is_symlink(), file.read_bytes()) == (True, b"page")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    write_private_output(Path("/dev/null"), b"page")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(FileNotFoundError):
        write_private_output(tmp_path / "no/such/folder", b"page")
    assert not (tmp_path / "no").exists()


def test_an_error_names_the_file_and_not_its_draft(tmp_path: Path, monkeypatch):
    def is_full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", is_full)
    with pytest.raises(OSError) as raised:
        write_private_output(tmp_path / "page.html", b"page")
    assert raised.value.filename == str(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path):
    file = tmp_path / "rules"
    file.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError):
        locked_update(file, lambda: bytes(1 // 0))
    locked_update(file, lambda: None)
    assert file.read_bytes() == b"before"
    locked_update(file, lambda: file.read_bytes() + b"!")
    assert file.read_bytes() == b"before!"
