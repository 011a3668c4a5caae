"""Whatever links a command left on the way: checkpoints stay inside of their folder."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.apps.program import run
from tests.workspace.helpers import back_to
from treadle.core.checkpoint_limits import MAX_DEPTH
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.workspace.checkpoints.checkpoints import Checkpoints
from treadle.workspace.checkpoints.safe_tree import SafeTree

SECRET = "do not read"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def kept(root: Path, store: Path) -> Iterator[Checkpoints]:
    with closing(Checkpoints(root, store, max_file_bytes=1 << 20)) as checkpoints:
        yield checkpoints


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the project, which must be after the test what it was before."""
    place = tmp_path / "outside"
    (place / "sub").mkdir(parents=True)
    for name in ("keys", "sub/keys"):
        (place / name).write_text(SECRET)
        (place / name).chmod(0o600)
    before = look(place)
    yield place
    assert look(place) == before


def look(place: Path) -> dict[str, tuple[int, int, int, str]]:
    """Everything that a write, a rename or a change of mode would leave a trace in."""
    found = {}
    for path in (place, *sorted(place.rglob("*"))):
        status = path.lstat()
        text = path.read_text() if path.is_file() else ""
        found[str(path)] = (status.st_ino, status.st_mode, status.st_ctime_ns, text)
    return found


def contents(store: Path) -> list[bytes]:
    return [zlib.decompress(path.read_bytes()) for path in (store / "objects").glob("??/*")]


def fill(folder: Path, text: str) -> None:
    (folder / "sub").mkdir(parents=True, exist_ok=True)
    for name in ("keys", "sub/keys", "other"):
        (folder / name).write_text(text)


# ------------------------------------------------------------------ the whole story


def bash(command: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


async def test_undo_redo_and_rewind_of_a_turn_that_put_a_link_to_the_home_in_a_folders_place():
    private = Path.home() / ".ssh"
    private.mkdir()
    (private / "authorized_keys").write_text("mine")
    Path("d/deep").mkdir(parents=True)
    for name in ("d/authorized_keys", "d/deep/new"):
        Path(name).write_text("the repository's")
    freely = ("--permission-mode", "bypass", "--sandbox", "off", "--output-format", "json")
    replies = [bash("rm -r d && ln -s ~/.ssh d && ls d/authorized_keys"), FakeReply("Done.")]
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "go", *freely)
    before, session = look(private), ran.lines[0]["session_id"]
    assert (ran.code, Path("d").is_symlink()) == (0, True)
    back = (["undo", "--yes"], ["sessions", "rewind", session, "1", "--files", "--yes"])
    for number, words in enumerate(back):
        done = await run(None, *words)
        assert (done.code, done.err) == (0, "")
        assert (Path("d").is_symlink(), Path("d/deep/new").exists()) == (False, True)
        assert Path("d/authorized_keys").read_text() == "the repository's"
        assert look(private) == before
        if number == 0:
            assert (await run(None, "redo")).code == 0
            assert Path("d").readlink() == private
            assert look(private) == before


# ------------------------------------------------------------------ while paths are swapped


SWAPS = """
import ctypes, os, shutil, sys
folder, spare, outside = sys.argv[1:]
exchange = ctypes.CDLL(None).renameat2
print(flush=True)
while True:
    try:
        if not os.path.islink(spare):
            shutil.rmtree(spare, ignore_errors=True)
            os.symlink(outside, spare)
    except OSError:
        pass
    for _ in range(2):
        exchange(-100, folder.encode(), -100, spare.encode(), 2)
"""


@contextmanager
def swapped_all_the_time(folder: Path, outside: Path) -> Iterator[None]:
    """A process that puts a link in the folder's place and takes it away again, in a loop."""
    spare = folder.parent / ".git/spare"  # where checkpoints do not look
    spare.parent.mkdir()
    words = [sys.executable, "-c", SWAPS, *map(str, (folder, spare, outside))]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


async def test_two_hundred_restores_while_a_folder_is_swapped_for_a_link_touch_nothing_outside(
    root: Path, kept: Checkpoints, store: Path, outside: Path
) -> None:
    trees = []
    for text in ("one", "two"):
        fill(root / "d", text)
        (root / "calm").write_text(text)
        trees.append((await kept.take()).tree)
    (root / "d/other").unlink()
    trees.append((await kept.take()).tree)
    with swapped_all_the_time(root / "d", outside):
        for number in range(200):
            old, new = trees[number % 3], trees[(number + 1) % 3]
            if number % 4 == 3:
                await kept.apply(old, new)
            else:
                await back_to(kept, new)
    assert all(SECRET.encode() not in data for data in contents(store))
    left = await back_to(kept, trees[0])
    assert left.skipped == ()
    assert (root / "d/sub/keys").read_text() == (root / "calm").read_text() == "one"


async def test_changes_of_a_folder_that_is_swapped_for_a_link_all_the_time_stay_inside(
    root: Path, outside: Path
) -> None:
    """Without a look before each, so that most of them meet the link."""
    fill(root / "d", "one")
    ground = SafeTree(root)
    refused = 0
    with swapped_all_the_time(root / "d", outside):
        for number in range(2000):
            for change in changes_of(ground, number):
                try:
                    change()
                except OSError:
                    refused += 1
    ground.close()
    assert refused > 0


def changes_of(ground: SafeTree, number: int) -> list[Callable[[], object]]:
    return [
        lambda: ground.write("d/keys", b"ours", 0o666),
        lambda: ground.write_symlink("d/sub/link", b"/etc"),
        lambda: ground.make_folder(f"d/new{number}/deeper"),
        lambda: ground.remove("d/sub/keys"),
        lambda: ground.remove_folder("d/sub"),
    ]


@pytest.mark.parametrize("kind", ["link", "folder link", "pipe", "large"])
async def test_a_file_that_becomes_something_else_before_it_is_opened_is_left_out(
    kind: str,
    root: Path,
    kept: Checkpoints,
    store: Path,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    really = os.open

    def open_late(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a" and (root / "a").is_file():
            (root / "a").unlink()
            put(root / "a", kind, outside)
        return really(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", open_late)
    taken = await kept.take()
    assert ([skipped.path for skipped in taken.skipped], taken.file_count) == (["a"], 1)
    assert b"b" in contents(store)
    assert all(SECRET.encode() not in data for data in contents(store))


def put(path: Path, kind: str, outside: Path) -> None:
    match kind:
        case "link":
            path.symlink_to(outside / "keys")
        case "folder link":
            path.symlink_to(outside)
        case "pipe":
            os.mkfifo(path)
        case "large":
            path.write_bytes(b"x" * (2 << 20))


# ------------------------------------------------------------------ what stands in the way


@pytest.mark.parametrize("kind", ["link", "folder link", "pipe", "file"])
@pytest.mark.parametrize("way", ["restore", "apply"])
async def test_what_stands_where_a_folder_has_to_be_makes_room(
    way: str, kind: str, root: Path, kept: Checkpoints, outside: Path
) -> None:
    fill(root / "d", "one")
    before = (await kept.take()).tree
    shutil.rmtree(root / "d")
    put(root / "d", kind, outside)
    if kind == "file":
        (root / "d").write_text("a file")
    after = (await kept.take()).tree
    done = await (back_to(kept, before) if way == "restore" else kept.apply(after, before))
    assert done.skipped == ()
    assert (root / "d/sub/keys").read_text() == "one"
    if kind != "pipe":
        assert (await kept.apply(before, after)).skipped == ()
        assert (root / "d").is_symlink() is ("link" in kind)


async def test_a_link_that_came_after_the_turn_is_named_and_the_rest_is_undone(
    root: Path, kept: Checkpoints, outside: Path
) -> None:
    (root / "calm").write_text("old")
    before = (await kept.take()).tree
    fill(root / "d", "new")
    (root / "calm").write_text("new")
    after = (await kept.take()).tree
    await kept.apply(after, before)
    (root / "d").symlink_to(outside)
    redone = await kept.apply(before, after)
    assert (root / "calm").read_text() == "new"
    assert (root / "d").is_symlink()
    assert {skipped.reason for skipped in redone.skipped} == {
        "d is not a folder any more; symlinks are not followed"
    }
    assert {"d/keys", "d/other", "d/sub/keys"} <= {skipped.path for skipped in redone.skipped}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder link"])
async def test_rules_are_not_read_through_a_link_or_from_a_pipe(
    kind: str, root: Path, kept: Checkpoints, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("a\n")
    put(root / ".gitignore", kind, tmp_path)
    (root / "a").write_text("kept")
    assert (await kept.take()).file_count == (1 if kind == "pipe" else 2)


async def test_what_lies_too_deep_is_left_alone_with_a_word(
    root: Path, kept: Checkpoints, outside: Path
) -> None:
    deep = root.joinpath(*"d" * (MAX_DEPTH + 1))
    deep.mkdir(parents=True)
    (deep / "file").write_text("deep")
    (root / "a").write_text("one")
    first = await kept.take()
    assert [skipped.reason for skipped in first.skipped] == [f"more than {MAX_DEPTH} folders deep"]
    (root / "a").write_text("two")
    await back_to(kept, first.tree)
    assert (root / "a").read_text() == "one"
    assert (deep / "file").read_text() == "deep"


async def test_a_folder_that_could_not_be_looked_into_is_not_taken_for_an_empty_one(
    root: Path, kept: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root / "d", "one")
    (root / "a").write_text("one")
    really = os.open

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "d":
            raise PermissionError(13, "Permission denied")
        return really(path, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        closed = await kept.take()
    assert [skipped.path for skipped in closed.skipped] == ["d"]
    (root / "a").write_text("two")
    opened = await kept.take()
    left = await back_to(kept, closed.tree)
    assert {skipped.reason for skipped in left.skipped} == {"its earlier content is not stored"}
    assert (root / "a").read_text() == "one"
    assert (root / "d/sub/keys").read_text() == "one"
    (root / "a").write_text("two")
    undone = await kept.apply(opened.tree, closed.tree)
    assert {skipped.reason for skipped in undone.skipped} == {"its earlier content is not stored"}
    assert (root / "a").read_text() == "one"
    assert (root / "d/sub/keys").read_text() == "one"


@pytest.mark.parametrize("path", ["../outside/keys", "d/../../outside/keys", "..", "/etc", "d//x"])
def test_a_path_that_leads_upwards_is_refused(path: str, root: Path, outside: Path) -> None:
    fill(root / "d", "one")
    ground = SafeTree(root)
    for change in (ground.remove, ground.remove_folder, ground.make_folder):
        with pytest.raises(ValueError, match="not a path below"):
            change(path)
    with pytest.raises(ValueError, match="not a path below"):
        ground.write(path, b"x", 0o600)
    ground.close()
