# ruff: noqa: ASYNC240 - real files, and waiting for what other processes do

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from tests.workspace.helpers import opened
from treadle.core.errors import WorkspaceError
from treadle.workspace import files, temp_files

pytestmark = pytest.mark.filterwarnings("error")


async def test_what_was_written_is_read_back_with_its_digest(folder: Path) -> None:
    async with opened(folder) as workspace:
        written = await workspace.write("a/b/c.txt", b"one\r\ntwo\n")
        found = await workspace.read("a/b/c.txt")
    assert found == written
    assert found.data == b"one\r\ntwo\n"
    assert (folder / "a/b/c.txt").read_bytes() == b"one\r\ntwo\n"


async def test_a_limit_cuts_the_data_and_not_the_digest(folder: Path) -> None:
    async with opened(folder) as workspace:
        whole = await workspace.write("f", b"x" * 3_000_000)
        part = await workspace.read("f", limit=10)
    assert part.data == b"x" * 10
    assert part.is_truncated
    assert (part.size, part.digest) == (whole.size, whole.digest)


async def test_an_existing_file_keeps_its_mode_and_a_new_one_follows_the_umask(
    folder: Path,
) -> None:
    script = folder / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    umask = os.umask(0o027)
    try:
        async with opened(folder) as workspace:
            await workspace.write("run.sh", b"new")
            await workspace.write("fresh", b"")
            await workspace.write("private", b"", mode=0o600)
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE((folder / n).stat().st_mode) for n in ("run.sh", "fresh", "private")]
    assert modes == [0o750, 0o640, 0o600]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_a_file_of_another_user_stays_theirs(folder: Path) -> None:
    (folder / "theirs").write_text("old")
    os.chown(folder / "theirs", 1000, 1000)
    async with opened(folder) as workspace:
        await workspace.write("theirs", b"new")
    assert (folder / "theirs").stat().st_uid == 1000


async def test_an_edited_file_keeps_its_extended_attributes(folder: Path) -> None:
    path = folder / "f"
    path.write_text("old")
    path.chmod(0o640)
    try:
        os.setxattr(path, "user.origin", b"camera")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    async with opened(folder) as workspace:
        await workspace.write("f", b"new")
    assert (path.read_bytes(), os.getxattr(path, "user.origin")) == (b"new", b"camera")
    assert path.stat().st_mode & 0o777 == 0o640


async def test_an_edited_file_stays_the_same_under_its_other_name(folder: Path) -> None:
    path = folder / "f"
    path.write_text("old and long")
    path.chmod(0o640)
    (folder / "other").hardlink_to(path)
    async with opened(folder) as workspace:
        await workspace.write("f", b"new")
    assert path.samefile(folder / "other")
    assert ((folder / "other").read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)
    assert sorted(one.name for one in folder.iterdir()) == ["f", "other"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_a_file_of_another_user_keeps_a_group_that_the_user_belongs_to(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "theirs").write_text("old")
    os.chown(folder / "theirs", 1234, 4321)
    really = os.fchown

    def as_a_member_of_the_group(fd: int, uid: int, gid: int) -> None:
        if uid not in (-1, os.getuid()):
            raise PermissionError(1, "Operation not permitted")
        really(fd, uid, gid)

    monkeypatch.setattr(os, "fchown", as_a_member_of_the_group)
    async with opened(folder) as workspace:
        await workspace.write("theirs", b"new")
    status = (folder / "theirs").stat()
    assert (status.st_uid, status.st_gid) == (os.getuid(), 4321)


async def test_fault_71_a_file_that_changed_since_it_was_read_is_not_overwritten(
    folder: Path,
) -> None:
    target = folder / "f"
    async with opened(folder) as workspace:
        read = await workspace.write("f", b"mine")
        target.write_bytes(b"theirs")
        with pytest.raises(WorkspaceError, match="changed since it was read"):
            await workspace.write("f", b"mine again", expected=read.digest)
        with pytest.raises(WorkspaceError, match="changed since it was read"):
            await workspace.remove("f", expected=read.digest)
        assert target.read_bytes() == b"theirs"
        target.unlink()
        with pytest.raises(WorkspaceError, match="removed since it was read"):
            await workspace.write("f", b"mine again", expected=read.digest)
        target.write_bytes(b"theirs")
        with pytest.raises(WorkspaceError, match="exists already"):
            await workspace.write("f", b"", expected="")
    assert target.read_bytes() == b"theirs"


async def test_fault_72_of_two_edits_at_once_the_second_sees_the_conflict(folder: Path) -> None:
    async with opened(folder) as workspace:
        read = await workspace.write("f", b"base")
        edits = [workspace.write("f", b"edit %d" % n, expected=read.digest) for n in range(10)]
        outcomes = await asyncio.gather(*edits, return_exceptions=True)
    refused = [one for one in outcomes if isinstance(one, WorkspaceError)]
    assert len(refused) == 9
    won = next(n for n, one in enumerate(outcomes) if not isinstance(one, BaseException))
    assert (folder / "f").read_bytes() == b"edit %d" % won


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
async def test_fault_66_what_is_no_regular_file_is_refused_at_once(folder: Path, kind: str) -> None:
    target = folder / "odd"
    held: list[socket.socket] = []
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "socket":
        held.append(socket.socket(socket.AF_UNIX))
        held[0].bind(os.path.relpath(target))
    elif kind == "folder":
        target.mkdir()
    else:
        try:
            os.mknod(target, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root can make devices")
    try:
        async with opened(folder) as workspace:
            with pytest.raises(WorkspaceError):
                await workspace.read("odd")
            with pytest.raises(WorkspaceError):
                await workspace.write("odd", b"x")
    finally:
        for one in held:
            one.close()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/random", "/proc/kmsg", "/proc/self/mem"])
async def test_fault_66_endless_files_of_the_system_are_refused(folder: Path, path: str) -> None:
    async with opened(folder, readable=(Path("/dev"), Path("/proc"))) as workspace:
        with pytest.raises(WorkspaceError):
            await workspace.read(path, limit=100)


async def test_a_file_of_unknown_size_is_read_up_to_the_limit(folder: Path) -> None:
    async with opened(folder, readable=(Path("/proc/sys"),)) as workspace:
        found = await workspace.read("/proc/sys/kernel/ostype", limit=3)
    assert found.data == b"Lin"


KILLED = """
    import asyncio, os, signal, sys
    from pathlib import Path
    from treadle.workspace.local import LocalWorkspace
    from treadle.workspace.options import WorkspaceOptions

    async def main():
        workspace = await LocalWorkspace.open(Path(sys.argv[1]), WorkspaceOptions(sandbox="off"))
        os.rename = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
        await workspace.write("sub/f", b"new")

    asyncio.run(main())
"""


async def test_fault_70_a_writer_killed_before_the_rename_leaves_nothing_behind(
    folder: Path,
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/f").write_bytes(b"old")
    killed = subprocess.run(  # noqa: ASYNC221 - it kills itself
        [sys.executable, "-c", textwrap.dedent(KILLED), str(folder)],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    left = sorted(path.name for path in (folder / "sub").iterdir())
    assert len(left) == 2
    assert left[0].startswith(".treadle-tmp-")
    async with opened(folder):
        pass
    assert [path.name for path in (folder / "sub").iterdir()] == ["f"]
    assert (folder / "sub/f").read_bytes() == b"old"


async def test_the_temporary_file_of_a_living_writer_is_left_alone(folder: Path) -> None:
    async with opened(folder) as first:
        with first._temp_files.reserve_name(folder) as name:
            (folder / name).write_bytes(b"")
            async with opened(folder):
                assert (folder / name).exists()
        (folder / name).unlink()


async def test_fault_10_a_full_disk_leaves_the_old_file_intact(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "f").write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    async with opened(folder) as workspace:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(WorkspaceError, match="no space is left"):
            await workspace.write("f", b"new")
        monkeypatch.undo()
    assert [path.name for path in folder.iterdir()] == ["f"]
    assert (folder / "f").read_bytes() == b"old"


async def test_fault_74_what_cannot_be_written_or_read_is_an_error_that_says_why(
    folder: Path,
) -> None:
    (folder / "fixed").write_bytes(b"")
    (folder / "fixed").chmod(0o444)
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    async with opened(folder) as workspace:
        with pytest.raises(WorkspaceError, match="read-only"):
            await workspace.write("fixed", b"x")
        with pytest.raises(WorkspaceError, match=r"loop|symbolic"):
            await workspace.read("a")
        with pytest.raises(WorkspaceError, match="too long"):
            await workspace.write("n" * 300, b"x")
        with pytest.raises(WorkspaceError, match="too long"):
            await workspace.read("d/" * 3000 + "f")
        for path, kind in (("missing", "not_found"), (".", "is_folder"), ("fixed/f", "not_folder")):
            with pytest.raises(WorkspaceError) as caught:
                await workspace.read(path)
            assert caught.value.kind == kind
        with pytest.raises(WorkspaceError) as caught:
            await workspace.run("true", cwd="missing")
        assert caught.value.kind == "bad_cwd"
        with pytest.raises(WorkspaceError, match="NUL"):
            await workspace.read("a\0b")


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "link/passwd", "~/x", "sub/../../x"])
async def test_paths_that_lead_out_of_the_workspace_are_refused(folder: Path, path: str) -> None:
    (folder / "link").symlink_to("/etc")
    (folder / "sub").mkdir()
    async with opened(folder) as workspace:
        with pytest.raises(WorkspaceError, match="outside"):
            workspace.resolve(path)
        with pytest.raises(WorkspaceError, match="outside"):
            await workspace.read(path)
        with pytest.raises(WorkspaceError, match="outside"):
            await workspace.write(path, b"x")
        with pytest.raises(WorkspaceError, match="outside"):
            await workspace.remove(path)


async def test_links_inside_are_followed_and_written_through(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real/f").write_bytes(b"old")
    (folder / "relative").symlink_to("real/f")
    (folder / "absolute").symlink_to(folder / "real/f")
    async with opened(folder) as workspace:
        await workspace.write("relative", b"new")
        assert (await workspace.read("absolute")).data == b"new"
        await workspace.remove("absolute")
    assert (folder / "relative").is_symlink()
    assert (folder / "real/f").read_bytes() == b"new"


@pytest.mark.parametrize("without_openat2", [False, True])
def test_a_link_made_after_the_path_was_judged_is_no_way_out(
    folder: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch, without_openat2: bool
) -> None:
    if without_openat2:
        monkeypatch.setattr(files, "SYS_OPENAT2", 9999)
    secret = own_place / "secret"
    secret.mkdir()
    (secret / "f").write_bytes(b"secret")
    (folder / "sub").mkdir()
    root, rest = files.locate([folder], folder, "sub/f")
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to(secret)
    with pytest.raises(WorkspaceError, match="leaves the workspace"):
        files.read(root, rest)
    with pytest.raises(WorkspaceError):
        files.remove(root, rest)
    assert (secret / "f").read_bytes() == b"secret"


def test_without_openat2_files_are_read_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SYS_OPENAT2", 9999)
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/f").write_bytes(b"here")
    assert files.read(folder, "a/b/f").data == b"here"
    with pytest.raises(WorkspaceError, match="does not exist"):
        files.read(folder, "a/none")


async def test_added_folders_are_written_and_readable_ones_are_not(
    folder: Path, own_place: Path
) -> None:
    added, readable = own_place / "added", own_place / "readable"
    added.mkdir()
    readable.mkdir()
    (readable / "f").write_bytes(b"look")
    async with opened(folder, extra_roots=(added,), readable=(readable,)) as workspace:
        await workspace.write(str(added / "f"), b"x")
        assert (await workspace.read(str(readable / "f"))).data == b"look"
        with pytest.raises(WorkspaceError, match="outside"):
            await workspace.write(str(readable / "f"), b"x")
    shutil.rmtree(added)


async def test_what_is_protected_is_not_changed_by_another_name(folder: Path) -> None:
    """A symlink may have replaced a folder since the approval."""
    (folder / ".git/hooks").mkdir(parents=True)
    (folder / ".git/hooks/old").write_text("kept")
    (folder / "AGENTS.md").write_text("one")
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    (folder / "d").symlink_to(".git/hooks")
    async with opened(folder) as workspace:
        for attempt in (
            workspace.write("d/pre-commit", b"x"),
            workspace.write(str(folder / "d/pre-commit"), b"x"),
            workspace.remove("d/old"),
        ):
            with pytest.raises(WorkspaceError, match="which is protected"):
                await attempt
        with pytest.raises(WorkspaceError, match="which is protected"):
            workspace.resolve("d/old", for_write=True)
        assert workspace.resolve("d/old") == folder / ".git/hooks/old"
        await workspace.write("CLAUDE.md", b"two")
        await workspace.write(".git/hooks/old", b"changed")  # under its own name, where allowed
    assert (folder / "AGENTS.md").read_bytes() == b"two"
    assert [path.name for path in (folder / ".git/hooks").iterdir()] == ["old"]


async def test_parallel_first_writes_leave_no_descriptor_and_no_lock_file_behind(
    folder: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = own_place / "registry"
    temps, barrier = temp_files.TempFiles(registry), threading.Barrier(8)
    really = temp_files.try_lock

    def lock_slowly(path: Path, flags: int) -> int | None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(0.2)  # all of them at once, if they are let in
        return really(path, flags)

    monkeypatch.setattr(temp_files, "try_lock", lock_slowly)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts, with its own descriptor
    write = lambda n: files.write(folder, f"{n}", b"x", temps, None, None)  # noqa: E731
    await asyncio.gather(*(asyncio.to_thread(write, number) for number in range(8)))
    temps.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert list(registry.iterdir()) == []
