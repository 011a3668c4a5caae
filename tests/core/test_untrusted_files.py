from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import open_file, read_prefix, read_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("the password")
    (tmp_path / "ws" / "sub").mkdir(parents=True)
    return tmp_path / "ws"


def problem(file: Path, within: Path | None) -> str:
    with pytest.raises(ConfigError) as caught:
        read_text(file, within=within)
    said = str(caught.value)
    assert str(file) in said
    assert "\n" not in said
    return said


def test_a_file_is_read_with_or_without_the_mark_of_an_editor(folder: Path):
    (folder / "a").write_bytes(b"\xef\xbb\xbfwords\r\n")
    assert read_text(folder / "a", within=folder) == "words\r\n"
    assert read_text(folder / "a", within=None) == "words\r\n"


def test_no_file_is_said_as_ever(folder: Path):
    (folder / "file").write_text("x")
    (folder / "dangling").symlink_to("../nothing")
    (folder / "loop").symlink_to("loop")
    for name in ("nothing", "nothing/below", "file/below", "dangling", "loop", "loop/below"):
        for within in (folder, None):
            with pytest.raises(FileNotFoundError):
                read_text(folder / name, within=within)


def test_links_inside_are_followed_and_links_out_are_not(folder: Path):
    (folder / "sub" / "fine").write_text("fine")
    (folder / "inner").symlink_to("sub/fine")
    (folder / "through").symlink_to("sub")
    (folder / "out").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    (folder / "itself").symlink_to(".")
    assert read_text(folder / "inner", within=folder) == "fine"
    assert read_text(folder / "through" / "fine", within=folder) == "fine"
    assert read_text(folder / "itself" / "inner", within=folder) == "fine"
    for name in ("out", "up/secret", "../secret", "itself/../secret"):
        assert "through a symlink" in problem(folder / name, folder)
    assert read_text(folder / "out", within=None) == "the password"


def test_the_folder_may_be_reached_by_a_link(folder: Path):
    (folder / "a").write_text("words")
    (folder.parent / "alias").symlink_to("ws")
    alias = folder.parent / "alias"
    assert read_text(alias / "a", within=alias) == "words"
    assert read_text(alias / "a", within=folder) == "words"


def test_a_second_name_of_a_file_could_be_one_elsewhere(folder: Path):
    (folder / "hard").hardlink_to(folder.parent / "secret")
    assert "hard link" in problem(folder / "hard", folder)
    assert read_text(folder / "hard", within=None) == "the password"


@pytest.mark.parametrize("bounded", [True, False])
def test_what_is_no_file_is_refused_and_not_waited_for(folder: Path, bounded: bool):
    within = folder if bounded else None
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
    assert "is a named pipe" in problem(folder / "pipe", within)
    assert "is a socket" in problem(folder / "socket", within)
    assert "is a folder" in problem(folder / "sub", within)
    (folder / "zero").symlink_to("/dev/zero")
    assert ("through a symlink" if bounded else "is a device") in problem(folder / "zero", within)
    problem(folder / ("n" * 300), within)
    problem(folder / "nul\0", within)


def test_a_file_without_end_costs_no_more_than_its_limit(folder: Path):
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room on the disk
    assert "larger than 1,024 KiB" in problem(folder / "huge", folder)
    assert read_prefix(folder / "huge", 10, within=folder) == bytes(10)
    assert "cannot be read" in problem(Path("/proc/self/mem"), None)


def test_what_is_not_text_is_said_with_its_line(folder: Path):
    (folder / "a").write_bytes(b"one\ntwo \xff\n")
    assert "a:2: not UTF-8 text" in problem(folder / "a", folder)


def test_a_link_that_appears_while_we_look_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """The moment between the look and the opening, made to last."""
    (folder / "sub" / "a").write_text("fine")
    (folder.parent / "elsewhere").mkdir()
    (folder.parent / "elsewhere" / "a").write_text("the password")
    real = os.path.realpath

    def swapped_after(path: str | Path) -> str:
        found = real(path)
        if Path(path).name == "a" and (folder / "sub").is_dir():
            (folder / "sub").rename(folder / "old")
            (folder / "sub").symlink_to("../elsewhere")
        return str(found)

    monkeypatch.setattr(os.path, "realpath", swapped_after)
    with pytest.raises((ConfigError, FileNotFoundError)):
        read_text(folder / "sub" / "a", within=folder)


def test_a_file_is_made_inside_and_nowhere_else(folder: Path):
    flags = os.O_WRONLY | os.O_CREAT
    os.close(open_file(folder / "new", flags, within=folder))
    assert (folder / "new").is_file()
    (folder / "dangling").symlink_to("../made")
    with pytest.raises(ConfigError, match="through a symlink"):
        open_file(folder / "dangling", flags, within=folder)
    assert not (folder.parent / "made").exists()


def test_no_descriptor_is_left_behind(folder: Path):
    os.mkfifo(folder / "pipe")
    (folder / "a").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("pipe", "a", "sub", "nothing", "sub/nothing"):
        for within in (folder, None):
            try:
                read_text(folder / name, within=within)
            except (ConfigError, FileNotFoundError):
                continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
