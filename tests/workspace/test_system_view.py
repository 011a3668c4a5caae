"""The copy of /etc that sandboxed commands see: one for all agents of a user."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.workspace.sandbox import system_view
from treadle.workspace.sandbox.system_view import SystemView, list_system_options
from treadle.workspace.supervisor.syscalls import IS_LINUX

pytestmark = pytest.mark.skipif(not IS_LINUX, reason="mounts of Linux")


def find_copy(copies: Path) -> Path:
    options = SystemView(copies).list_options(network=False)
    return Path(options[options.index("/etc") - 1])


def test_agents_share_one_copy(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(find_copy, [tmp_path / "system"] * 8))
    assert len(found) == 1
    assert set((tmp_path / "system").iterdir()) == found
    assert (tmp_path / "system").stat().st_mode & 0o077 == 0


def test_a_changed_file_makes_a_new_copy_and_unused_ones_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_copy(tmp_path / "system")
    assert (first / "passwd").read_bytes() == Path("/etc/passwd").read_bytes()
    real = system_view._list_small

    def list_changed(source: str, name: str) -> list[system_view._Entry] | None:
        found = real(source, name)
        return [one._replace(version=(*one.version, 1)) for one in found] if found else found

    monkeypatch.setattr(system_view, "_list_small", list_changed)
    second = find_copy(tmp_path / "system")
    assert {first, second} == set((tmp_path / "system").iterdir())
    os.utime(first, (0, 0))
    monkeypatch.setattr(system_view, "_list_small", lambda *_: None)
    third = find_copy(tmp_path / "system")
    assert {second, third} == set((tmp_path / "system").iterdir())


def test_without_a_place_for_the_copy_there_are_mounts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    options = SystemView(tmp_path / "file" / "system").list_options(network=False)
    assert options == list_system_options(network=False)
