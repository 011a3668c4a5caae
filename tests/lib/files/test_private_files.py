from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.lib.files.private_files import locked_update, write_private_file

ADD_LINES = """
import sys
from pathlib import Path
from treadle.lib.files.private_files import locked_update

file, name = Path(sys.argv[1]), sys.argv[2]
for number in range(25):
    locked_update(file, lambda before: (before or b"") + f"{name} {number}\\n".encode())
"""


def test_programs_that_change_a_file_at_once_lose_nothing(tmp_path: Path):
    file = tmp_path / "home" / "rules"
    command = [sys.executable, "-c", ADD_LINES, str(file)]
    programs = [subprocess.Popen([*command, name]) for name in ("a", "b", "c", "d")]
    assert [program.wait() for program in programs] == [0] * 4
    assert sorted(file.read_text().split("\n")[:-1]) == sorted(
        f"{name} {number}" for name in ("a", "b", "c", "d") for number in range(25)
    )


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
        locked_update(file, lambda before: bytes(1 // 0))
    locked_update(file, lambda before: None)
    assert file.read_bytes() == b"before"
    locked_update(file, lambda before: (before or b"") + b"!")
    assert file.read_bytes() == b"before!"
