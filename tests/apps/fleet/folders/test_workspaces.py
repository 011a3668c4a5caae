from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.apps.fleet.folders.folder_snapshots import FolderSnapshots
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.folders.workspaces import (
    RunWorkspaces,
    decode_snapshot,
    encode_snapshot,
)
from treadle.apps.fleet.task import FleetTask
from treadle.core.errors import ConfigError, WorkspaceError


class Machines:
    """Two machines with one store of snapshots."""

    def __init__(self, tmp_path: Path) -> None:
        store = FolderSnapshots(tmp_path / "store")
        self.one = RunWorkspaces(tmp_path / "machine1", store)
        self.two = RunWorkspaces(tmp_path / "machine2", store)


@pytest.fixture
def machines(tmp_path):
    return Machines(tmp_path)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    ran = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def make_repository(folder: Path) -> tuple[str, str]:
    """Two commits; their hashes."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "trunk")
    hashes = []
    for text in ("broken", "solved"):
        (folder / "code.txt").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", text)
        hashes.append(git(folder, "rev-parse", "HEAD"))
    git(folder, "tag", "v2")
    return hashes[0], hashes[1]


def list_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git/" not in str(path)
    }


async def test_a_repository_is_cloned_at_the_commit_without_later_history(tmp_path, machines):
    first, second = make_repository(tmp_path / "origin")
    task = FleetTask(prompt="x", repository=str(tmp_path / "origin"), commit=first)
    folder = await machines.one.prepare(task, "r1")
    assert list_files(folder) == {"code.txt": "broken"}
    assert git(folder, "status", "--porcelain", "--branch") == "## trunk"
    assert second not in git(folder, "log", "--all", "--format=%H")
    assert git(folder, "tag") == ""
    assert git(folder, "remote") == ""
    assert "solved" not in git(folder, "reflog")


async def test_a_run_shares_no_file_with_the_repository_and_has_no_object_of_a_later_commit(
    tmp_path, machines
):
    """What a run does to its objects reaches neither the user's repository nor other runs, and the
    solution cannot be found in them."""
    origin = tmp_path / "origin"
    first, second = make_repository(origin)
    folders = [
        await machines.one.prepare(FleetTask(prompt="x", repository=str(origin), commit=one), name)
        for name, one in (("r1", first), ("r2", None))
    ]
    objects = [path for one in (*folders, origin) for path in (one / ".git").rglob("*")]
    objects += [*(tmp_path / "machine1/mirrors").rglob("*")]
    assert {path.stat().st_nlink for path in objects if path.is_file()} == {1}
    kinds = git(folders[0], "cat-file", "--batch-check", "--batch-all-objects").splitlines()
    assert sorted(line.split()[1] for line in kinds) == ["blob", "commit", "tree"]
    assert git(folders[1], "cat-file", "-t", second) == "commit"
    for path in (folders[0] / ".git/objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_text("damaged")
    git(origin, "fsck", "--strict")
    task = FleetTask(prompt="y", repository=str(origin), commit=first)
    git(await machines.one.prepare(task, "r3"), "fsck", "--strict")


async def test_the_repository_of_a_run_survives_its_machine_as_a_whole(tmp_path, machines):
    """Also if the run packed it anew, with a pack that is larger than a snapshot."""
    origin = tmp_path / "origin"
    make_repository(origin)
    (origin / "big.bin").write_bytes(os.urandom(9 << 20))
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "big")
    task = FleetTask(prompt="x", repository=str(origin))
    folder = await machines.one.prepare(task, "r1")
    (folder / "work.txt").write_text("an hour of work")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "work of the agent")
    git(folder, "switch", "-qc", "other")
    (folder / "staged.txt").write_text("staged")
    git(folder, "add", ".")
    (folder / "work.txt").write_text("changed")
    git(folder, "stash", "push", "-q", "work.txt")
    git(folder, "gc", "-q", "--prune=now")
    before = [
        git(folder, *words) for words in (["status", "--short"], ["log", "--oneline", "--all"])
    ]
    await machines.one.snapshot("r1", 1)
    assert (tmp_path / "store/workspaces/r1/snapshot").stat().st_size < 100_000
    restored = await machines.two.restore(task, "r1")
    git(restored.path, "fsck", "--strict")
    assert [
        git(restored.path, *words)
        for words in (["status", "--short"], ["log", "--oneline", "--all"])
    ] == before
    assert git(restored.path, "branch", "--show-current") == "other"
    assert git(restored.path, "stash", "list").startswith("stash@{0}")


async def test_a_repository_that_cannot_be_restored_whole_is_an_error(tmp_path, machines):
    origin = tmp_path / "origin"
    first, _ = make_repository(origin)
    task = FleetTask(prompt="x", repository=str(origin))
    folder = await machines.one.prepare(task, "r1")
    git(folder, "commit", "-q", "--allow-empty", "-m", "work of the agent")
    await machines.one.snapshot("r1", 1)
    snapshot = decode_snapshot(await machines.one._snapshots.get_blob("workspaces/r1/snapshot"))
    lost = msgspec.structs.replace(snapshot, commit=first)  # a source without the later commit
    await machines.one._snapshots.put_blob("workspaces/r1/snapshot", encode_snapshot(lost))
    again = FleetTask(prompt="x", repository=str(origin), commit=first)
    with pytest.raises(WorkspaceError, match="repository of the run cannot be restored"):
        await machines.two.restore(again, "r1")


async def test_a_repository_without_room_in_a_snapshot_is_that_of_the_task_again(tmp_path):
    store = FolderSnapshots(tmp_path / "store")
    origin = tmp_path / "origin"
    make_repository(origin)
    one = RunWorkspaces(tmp_path / "m1", store, max_total_bytes=20_000)
    task = FleetTask(prompt="x", repository=str(origin))
    folder = await one.prepare(task, "r1")
    (folder / "large.bin").write_bytes(os.urandom(30_000))
    (folder / "small.txt").write_text("small")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "large")
    await one.snapshot("r1", 1)
    restored = await RunWorkspaces(tmp_path / "m2", store).restore(task, "r1")
    assert ".git, large.bin" in restored.lost_effects[1]
    git(restored.path, "fsck", "--strict")
    assert git(restored.path, "status", "--short") == "?? small.txt"


async def test_the_folder_of_a_run_that_went_on_elsewhere_is_removed(tmp_path, machines):
    task = FleetTask(prompt="x")
    for name in ("lost", "kept"):
        await machines.one.prepare(task, name)
    await machines.two.restore(task, "lost")
    await machines.one.remove_all_lost()
    await machines.two.remove_all_lost()
    assert [path.name for path in (tmp_path / "machine1").iterdir()] == ["kept"]
    assert [path.name for path in (tmp_path / "machine2").iterdir()] == ["lost"]


async def test_a_worker_that_begins_removes_no_folder_that_another_one_is_making(tmp_path):
    class WatchedSnapshots(FolderSnapshots):
        async def put_blob(self, key: str, data: bytes) -> None:
            await other.remove_all_lost()
            await super().put_blob(key, data)
            await other.remove_all_lost()

    other = RunWorkspaces(tmp_path / "machine", FolderSnapshots(tmp_path / "store"))
    one = RunWorkspaces(tmp_path / "machine", WatchedSnapshots(tmp_path / "store"))
    for _ in range(2):
        folder = await one.prepare(FleetTask(prompt="x"), "r1")
        await other.remove_all_lost()
        assert folder.is_dir()


async def test_a_repository_without_a_commit_is_cloned_as_it_is_now(tmp_path, machines):
    make_repository(tmp_path / "origin")
    task = FleetTask(prompt="x", repository=str(tmp_path / "origin"))
    folder = await machines.one.prepare(task, "r1")
    assert list_files(folder) == {"code.txt": "solved"}
    assert git(folder, "remote", "get-url", "origin") == str(tmp_path / "origin")
    (tmp_path / "origin/code.txt").write_text("newer")
    git(tmp_path / "origin", "commit", "-qam", "newer")
    again = await machines.one.prepare(task, "r2")
    assert list_files(again) == {"code.txt": "newer"}


async def test_many_runs_of_one_repository_at_once_have_a_folder_each(tmp_path, machines):
    first, _ = make_repository(tmp_path / "origin")
    task = FleetTask(prompt="x", repository=str(tmp_path / "origin"), commit=first)
    folders = await asyncio.gather(*(machines.one.prepare(task, f"r{n}") for n in range(5)))
    assert len(set(folders)) == 5
    assert all(list_files(folder) == {"code.txt": "broken"} for folder in folders)


async def test_runs_that_wait_for_one_mirror_leave_threads_for_the_one_that_makes_it(
    tmp_path, machines
):
    """With few threads, those that waited for the lock had all of them."""
    first, _ = make_repository(tmp_path / "origin")
    with ThreadPoolExecutor(1) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        task = FleetTask(prompt="x", repository=str(tmp_path / "origin"), commit=first)
        folders = await asyncio.gather(*(machines.one.prepare(task, f"r{n}") for n in range(4)))
        assert len(set(folders)) == 4


async def test_the_trees_that_an_index_keeps_are_restored(tmp_path, machines):
    make_repository(tmp_path / "origin")
    task = FleetTask(prompt="x", repository=str(tmp_path / "origin"))
    folder = await machines.one.prepare(task, "r1")
    (folder / "new.txt").write_text("new")
    git(folder, "add", "-A")
    git(folder, "write-tree")
    await machines.one.snapshot("r1", 1)
    restored = await machines.two.restore(task, "r1")
    git(restored.path, "fsck", "--strict")
    assert "new.txt" in git(restored.path, "status", "--short")


async def test_the_files_of_a_run_are_exported_to_a_relative_folder(
    tmp_path, machines, monkeypatch
):
    make_repository(tmp_path / "origin")
    task = FleetTask(prompt="x", repository=str(tmp_path / "origin"))
    await machines.one.prepare(task, "r1")
    monkeypatch.chdir(tmp_path)
    await machines.two.export(task, "r1", Path("looked/at"))
    assert list_files(tmp_path / "looked/at")["code.txt"] == "solved"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repository": "/no/such/repository"}, "cannot be read.*check its address"),
        ({"repository": "--upload-pack=touch x", "commit": "main"}, "cannot be read"),
        ({"repository": "ORIGIN", "commit": "0123abc"}, "has no commit '0123abc'"),
        ({"repository": "ORIGIN", "commit": "--all"}, "cannot be a commit"),
        ({"folder": "/no/such/folder"}, "does not exist"),
        ({"archive": "/no/such/archive.tar"}, "does not exist"),
    ],
)
async def test_a_source_that_cannot_be_had_is_named(tmp_path, machines, fields, message):
    make_repository(tmp_path / "origin")
    origin = str(tmp_path / "origin")
    given = {name: text.replace("ORIGIN", origin) for name, text in fields.items()}
    with pytest.raises(WorkspaceError, match=message):
        await machines.one.prepare(FleetTask(prompt="x", **given), "r1")


async def test_the_password_of_an_address_is_in_no_message(machines):
    task = FleetTask(prompt="x", repository="https://me:secret@localhost:1/x.git")
    with pytest.raises(WorkspaceError) as caught:
        await machines.one.prepare(task, "r1")
    assert "secret" not in str(caught.value)


async def test_a_folder_is_copied_and_the_original_stays(tmp_path, machines):
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub/a.txt").write_text("a")
    (source / "link").symlink_to("sub/a.txt")
    os.mkfifo(source / "pipe")
    folder = await machines.one.prepare(FleetTask(prompt="x", folder=str(source)), "r1")
    assert (folder / "link").readlink() == Path("sub/a.txt")
    assert not (folder / "pipe").exists()
    (folder / "sub/a.txt").write_text("changed")
    assert (source / "sub/a.txt").read_text() == "a"


async def test_the_solution_of_an_exercise_is_not_copied(tmp_path, machines):
    for name, text in (
        (".docs/instructions.md", "do it"),
        (".meta/config.json", json.dumps({"files": {}})),
        (".meta/example.py", "the solution"),
        ("code.py", ""),
    ):
        (tmp_path / "ex" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ex" / name).write_text(text)
    folder = await machines.one.prepare(FleetTask(prompt="x", folder=str(tmp_path / "ex")), "r1")
    assert list(list_files(folder)) == [".docs/instructions.md", "code.py"]


async def test_a_git_worktree_is_refused_because_its_copy_writes_to_the_original(
    tmp_path, machines
):
    make_repository(tmp_path / "origin")
    git(tmp_path / "origin", "worktree", "add", "-q", str(tmp_path / "tree"))
    with pytest.raises(WorkspaceError, match="git worktree"):
        await machines.one.prepare(FleetTask(prompt="x", folder=str(tmp_path / "tree")), "r1")


def make_tar(path: Path, names: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in names.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


async def test_archives_are_unpacked_without_their_one_top_folder(tmp_path, machines):
    make_tar(tmp_path / "a.tar.gz", {"top/a.txt": "a", "top/sub/b.txt": "b"})
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "a")
        archive.writestr("sub/b.txt", "b")
    for run, name in (("r1", "a.tar.gz"), ("r2", "a.zip")):
        task = FleetTask(prompt="x", archive=str(tmp_path / name))
        folder = await machines.one.prepare(task, run)
        assert list_files(folder) == {"a.txt": "a", "sub/b.txt": "b"}


async def test_an_archive_that_leaves_the_folder_or_is_none_is_refused(tmp_path, machines):
    make_tar(tmp_path / "bad.tar", {"../../outside.txt": "x"})
    (tmp_path / "none.tar").write_text("no archive")
    for name in ("bad.tar", "none.tar"):
        with pytest.raises(WorkspaceError, match="cannot be unpacked"):
            await machines.one.prepare(FleetTask(prompt="x", archive=str(tmp_path / name)), "r1")
    assert not list(tmp_path.rglob("outside.txt"))


async def test_fault_103_a_lost_machine_is_restored_from_the_last_snapshot(tmp_path, machines):
    first, _ = make_repository(tmp_path / "origin")
    task = FleetTask(prompt="x", repository=str(tmp_path / "origin"), commit=first)
    folder = await machines.one.prepare(task, "r1")
    (folder / "code.txt").write_text("fixed")
    (folder / "new").mkdir()
    (folder / "new/run.sh").write_text("echo hi")
    (folder / "new/run.sh").chmod(0o755)
    (folder / "link").symlink_to("new/run.sh")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "my work")
    mine = git(folder, "rev-parse", "HEAD")
    assert await machines.one.snapshot("r1", 3) == "r1@3"
    (folder / "later.txt").write_text("lost")

    restored = await machines.two.restore(task, "r1")
    assert (restored.snapshot, restored.step, restored.is_intact) == ("r1@3", 3, False)
    expected = {"code.txt": "fixed", "link": "echo hi", "new/run.sh": "echo hi"}
    assert list_files(restored.path) == expected
    assert os.access(restored.path / "new/run.sh", os.X_OK)
    assert git(restored.path, "rev-parse", "HEAD") == mine
    assert git(restored.path, "status", "--porcelain") == ""
    assert "at the end of step 3" in restored.lost_effects[0]


async def test_deleted_files_and_changed_kinds_are_restored(tmp_path, machines):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("gone", "file_to_folder", "stays", "mode"):
        (source / name).write_text(name)
    (source / "folder_to_file").mkdir()
    (source / "folder_to_file/x").write_text("x")
    task = FleetTask(prompt="x", folder=str(source))
    folder = await machines.one.prepare(task, "r1")
    (folder / "gone").unlink()
    (folder / "file_to_folder").unlink()
    (folder / "file_to_folder").mkdir()
    (folder / "file_to_folder/y").write_text("y")
    (folder / "folder_to_file/x").unlink()
    (folder / "folder_to_file").rmdir()
    (folder / "folder_to_file").write_text("z")
    (folder / "mode").chmod(0o600)
    await machines.one.snapshot("r1", 1)
    path = (await machines.two.restore(task, "r1")).path
    assert list_files(path) == {
        "file_to_folder/y": "y",
        "folder_to_file": "z",
        "mode": "mode",
        "stays": "stays",
    }
    assert (path / "mode").stat().st_mode & 0o777 == 0o600
    await machines.two.snapshot("r1", 2)  # of what was restored: the same changes
    third = RunWorkspaces(tmp_path / "machine3", FolderSnapshots(tmp_path / "store"))
    assert list_files((await third.restore(task, "r1")).path) == list_files(path)


async def test_a_worker_that_died_leaves_its_folder_to_the_next_one_on_the_machine(machines):
    task = FleetTask(prompt="x")
    folder = await machines.one.prepare(task, "r1")
    (folder / "half.txt").write_text("half")
    restored = await machines.one.restore(task, "r1")
    assert (restored.path, restored.is_intact, restored.lost_effects) == (folder, True, ())
    assert list_files(folder) == {"half.txt": "half"}


async def test_a_folder_is_out_of_date_after_another_machine_had_the_run(machines):
    task = FleetTask(prompt="x")
    folder = await machines.one.prepare(task, "r1")
    (folder / "one.txt").write_text("1")
    await machines.one.snapshot("r1", 1)
    other = (await machines.two.restore(task, "r1")).path
    (other / "two.txt").write_text("2")
    await machines.two.snapshot("r1", 2)
    back = await machines.one.restore(task, "r1")
    assert not back.is_intact
    assert list_files(back.path) == {"one.txt": "1", "two.txt": "2"}


async def test_a_machine_lost_before_the_first_snapshot_says_so(machines):
    task = FleetTask(prompt="x")
    await machines.one.prepare(task, "r1")
    restored = await machines.two.restore(task, "r1")
    assert "since the run began are lost" in restored.lost_effects[0]
    assert (await machines.two.restore(task, "never-begun")).lost_effects == ()


async def test_what_has_no_room_in_a_snapshot_is_named(tmp_path):
    store = FolderSnapshots(tmp_path / "store")
    one = RunWorkspaces(tmp_path / "m1", store, max_file_bytes=1000, max_total_bytes=1500)
    task = FleetTask(prompt="x")
    folder = await one.prepare(task, "r1")
    for name, size in (("big.bin", 2000), ("a.bin", 900), ("b.bin", 901), ("small.txt", 5)):
        (folder / name).write_text("x" * size)
    await one.snapshot("r1", 1)
    restored = await RunWorkspaces(tmp_path / "m2", store).restore(task, "r1")
    assert sorted(list_files(restored.path)) == ["a.bin", "small.txt"]
    assert "2 paths" in restored.lost_effects[1]
    assert "b.bin, big.bin" in restored.lost_effects[1]


async def test_a_snapshot_holds_only_what_the_run_changed(tmp_path, machines):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(50):
        (source / f"{number}.bin").write_bytes(os.urandom(10_000))
    folder = await machines.one.prepare(FleetTask(prompt="x", folder=str(source)), "r1")
    (folder / "1.bin").write_text("changed")
    await machines.one.snapshot("r1", 1)
    assert (tmp_path / "store/workspaces/r1/snapshot").stat().st_size < 1000


async def test_the_folder_of_a_run_can_be_removed_also_if_it_is_read_only(machines):
    folder = await machines.one.prepare(FleetTask(prompt="x"), "r1")
    (folder / "locked").mkdir()
    (folder / "locked/file").write_text("x")
    (folder / "locked").chmod(0o500)
    await machines.one.remove("r1")
    assert not folder.parent.exists()
    await machines.one.remove("r1")


async def test_an_id_cannot_name_a_folder_elsewhere(machines):
    for name in ("../x", "a/b", ""):
        with pytest.raises(ConfigError):
            await machines.one.prepare(FleetTask(prompt="x"), name)


async def test_a_damaged_snapshot_is_an_error_and_no_path_of_it_leaves_the_folder(
    tmp_path, machines
):
    from treadle.apps.fleet.folders.workspace_snapshot import FolderChanges, SavedPath
    from treadle.apps.fleet.folders.workspaces import WorkspaceSnapshot

    task = FleetTask(prompt="x")
    await machines.one.prepare(task, "r1")
    store = FolderSnapshots(tmp_path / "store")
    link = SavedPath(b"a", 0o120777, 0, os.fsencode(tmp_path))
    evil = SavedPath(b"a/evil", 0o100644, 0, b"x")
    up = SavedPath(b"../evil", 0o100644, 0, b"x")
    for data in (
        b"damaged",
        encode_snapshot(WorkspaceSnapshot(1, "p", "", FolderChanges((link, evil), ()))),
        encode_snapshot(WorkspaceSnapshot(1, "p", "", FolderChanges((up,), ()))),
        encode_snapshot(WorkspaceSnapshot(1, "p", "", FolderChanges((), (b"../../store",)))),
    ):
        await store.put_blob("workspaces/r1/snapshot", data)
        with pytest.raises(WorkspaceError, match="snapshot"):
            await machines.two.restore(task, "r1")
    assert not list(tmp_path.rglob("evil"))
    assert (tmp_path / "store").exists()


async def test_runs_of_two_fleets_with_one_id_have_folders_of_their_own(tmp_path):
    task = FleetTask(prompt="x")
    folders = []
    for name in ("one", "two"):
        database = await open_database(f"sqlite:{tmp_path / name}.db")
        folders.append(await RunWorkspaces(tmp_path / "runs", database).prepare(task, "r1"))
        (folders[-1] / "file").write_text(name)
        assert await RunWorkspaces(tmp_path / "runs", database).has_latest("r1")
        await database.aclose()
    assert [(folder / "file").read_text() for folder in folders] == ["one", "two"]
