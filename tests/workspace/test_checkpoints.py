"""Going back to a turn gives exactly the files of that turn, and touches nothing else."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from tests.workspace.helpers import back_to
from treadle.agents.agent import Agent
from treadle.core.contracts.tool import Access, FileAccess
from treadle.core.errors import WorkspaceError
from treadle.core.transcript.entries import Checkpoint, Entry
from treadle.models.scripted import Say, Scripted
from treadle.testing.tools import RecordingTool
from treadle.workspace.checkpoints.checkpoints import Checkpoints, prune_store
from treadle.workspace.checkpoints.recorder import CheckpointRecorder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def kept(root: Path, tmp_path: Path) -> Iterator[Checkpoints]:
    with closing(Checkpoints(root, tmp_path / "store", max_file_bytes=1 << 20)) as checkpoints:
        yield checkpoints


def picture(root: Path) -> dict[str, object]:
    """Everything in a folder: contents, permissions, links, empty folders."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777)
    return found


def some_file(root: Path, chance: random.Random) -> Path | None:
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    return chance.choice(files) if files else None


def random_turn(root: Path, chance: random.Random) -> None:
    """What an agent may do to a folder in a turn, by its tools or by a shell."""
    for _ in range(chance.randint(1, 4)):
        name = chance.choice("abcdefgh") + chance.choice(["", "/x", "/y/z", ".txt", " ä\udcff"])
        path, old = root / name, some_file(root, chance)
        what = chance.choice(
            ["write", "edit", "shell", "delete", "rename", "chmod", "link", "mkdir", "turn", "turn"]
        )
        if not is_within(path.parent if what in ("link", "turn") else path, root):
            continue  # a sandbox does not let a command write through a symlink out of it
        try:
            if what == "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(chance.randbytes(chance.randint(0, 200)))
            elif what == "edit" and old is not None:
                # The same length, at once: neither size nor, perhaps, the time tells.
                data = bytearray(old.read_bytes())
                if data:
                    data[chance.randrange(len(data))] ^= 1
                old.write_bytes(data)
            elif what == "shell":
                command = (
                    'rm -f d; mkdir -p d && echo "$1" >> d/log && rm -f a.txt && cp -r d "e$1"'
                )
                subprocess.run(["sh", "-c", command, "sh", str(chance.random())], cwd=root)
            elif what == "delete" and old is not None:
                old.unlink()
            elif what == "rename" and old is not None:
                old.rename(path)
            elif what == "chmod" and old is not None:
                old.chmod(chance.choice([0o644, 0o755, 0o600]))
            elif what == "link":
                path.symlink_to(chance.choice(LINKS))
            elif what == "mkdir":
                path.mkdir(parents=True)
            elif what == "turn":
                turn_into(path, chance)
        except OSError:
            continue


LINKS = ["a", "nowhere", "../outside", "../outside/x", "../../outside", "."]


def turn_into(path: Path, chance: random.Random) -> None:
    """Whatever it was: a link, a file or a folder with the names that lie outside, too."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    match chance.choice(["link", "file", "folder"]):
        case "link":
            path.symlink_to(chance.choice(LINKS))
        case "file":
            path.write_text("a file")
        case "folder":
            (path / "y").mkdir(parents=True)
            for name in ("x", "y/z"):
                (path / name).write_text(str(chance.random()))


def is_within(path: Path, root: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def sentinel(root: Path) -> Path:
    """What the links out of the root lead to; it has the names that lie inside, too."""
    outside = root.parent / "outside"
    (outside / "y").mkdir(parents=True)
    for name in ("x", "y/z"):
        (outside / name).write_text("secret")
    return outside


async def back_to_any_turn(root: Path, kept: Checkpoints, seed: int, turns: int) -> None:
    chance = random.Random(seed)
    outside = sentinel(root)
    untouched = picture(outside), outside.stat().st_mtime_ns
    history = []
    for _ in range(turns):
        random_turn(root, chance)
        history.append(((await kept.take()).tree, picture(root)))
    steps = [*pairwise(reversed(history)), *pairwise(history)]
    for number, ((old, _), (new, expected)) in enumerate(steps):  # all undone, then redone
        assert (await kept.apply(old, new)).skipped == (), f"seed {seed}, step {number}"
        assert picture(root) == expected, f"seed {seed}, step {number}"
    order = list(range(turns))
    chance.shuffle(order)
    for turn in order:
        tree, expected = history[turn]
        restored = await back_to(kept, tree)
        assert picture(root) == expected, f"seed {seed}, turn {turn}"
        assert restored.skipped == ()
        assert (await kept.take()).tree == tree
    assert (picture(outside), outside.stat().st_mtime_ns) == untouched


@pytest.mark.parametrize("seed", range(3))
async def test_any_of_twelve_random_turns_comes_back_exactly(
    seed: int, root: Path, kept: Checkpoints
) -> None:
    await back_to_any_turn(root, kept, seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 105))
async def test_any_of_fifty_random_turns_comes_back_exactly(
    seed: int, root: Path, kept: Checkpoints
) -> None:
    await back_to_any_turn(root, kept, seed, 50)


async def test_an_unchanged_folder_is_not_read_again(root: Path, kept: Checkpoints) -> None:
    for number in range(50):
        path = root / f"{number}.txt"
        path.write_text(str(number))
        os.utime(path, (1000, 1000))
    first = await kept.take()
    assert (first.file_count, first.read_count) == (50, 50)
    # The kernel's clock may stand still for some milliseconds: then everything is read again.
    while (again := await kept.take()).read_count:
        assert again.tree == first.tree
    (root / "7.txt").write_text("seven")
    assert (await kept.take()).read_count == 1


async def test_a_named_file_is_stored_although_it_is_ignored(kept: Checkpoints, root: Path):
    (root / ".gitignore").write_text("*.log\nbuild/\n")
    (root / "build/deep").mkdir(parents=True)
    for name in ("a.log", "b.log", "build/deep/x", "build/deep/y"):
        (root / name).write_text("1")
    await kept.take()
    named = ["a.log", "build/deep/x"]
    assert kept.leaves_out(["a.log"])
    assert kept.leaves_out(["build/deep/x"])
    assert not kept.leaves_out(["missing", ".gitignore"])
    first = await kept.take(named)
    assert not kept.leaves_out(named)
    assert kept.leaves_out(["b.log"])
    for name in ("a.log", "b.log", "build/deep/x", "build/deep/y"):
        (root / name).write_text("2")
    (root / "build/new").write_text("2")
    second = await kept.take()
    changes = [one.path for one in await kept.diff(first.tree, second.tree)]
    assert changes == named
    await kept.apply(second.tree, first.tree)
    assert [(root / name).read_text() for name in named] == ["1", "1"]
    assert [(root / name).read_text() for name in ("b.log", "build/deep/y", "build/new")] == [
        "2"
    ] * 3


async def test_calls_that_run_together_each_store_the_ignored_file_that_they_name(
    root: Path, kept: Checkpoints
):
    (root / ".gitignore").write_text("*.log\n")
    for name in ("a.log", "b.log"):
        (root / name).write_text("1")
    entries: list[Entry] = []
    recorder = CheckpointRecorder(kept, entries.append)
    for name in ("a.log", "b.log"):
        access = Access(files=(FileAccess(name, "write"),))
        await recorder.begin(("s", name), name, "turn", access)
        (root / name).write_text("2")
    for name in ("a.log", "b.log"):
        await recorder.end(("s", name))
    trees = [one.tree for one in entries if isinstance(one, Checkpoint)]
    for after, before in pairwise(reversed(trees)):
        await kept.apply(after, before)
    assert [(root / name).read_text() for name in ("a.log", "b.log")] == ["1", "1"]


async def test_what_git_ignores_is_neither_kept_nor_removed(root: Path, kept: Checkpoints) -> None:
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / "build").mkdir()
    (root / "build/out").write_text("made")
    (root / "a.log").write_text("old")
    (root / "src.py").write_text("one")
    before = await kept.take()
    assert before.file_count == 2
    (root / ".gitignore").unlink()
    (root / "a.log").write_text("new")
    (root / "src.py").write_text("two")
    await back_to(kept, before.tree)
    assert (root / "src.py").read_text() == "one"
    assert (root / "build/out").read_text() == "made"
    assert (root / "a.log").read_text() == "new"


async def test_git_is_never_touched(root: Path, kept: Checkpoints) -> None:
    run = lambda *words: subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)  # noqa: E731
    run("init", "-q")
    (root / "a").write_text("one")
    run("add", "a")
    before = picture(root / ".git")
    tree = (await kept.take()).tree
    (root / "a").write_text("two")
    await kept.take()
    await back_to(kept, tree)
    assert picture(root / ".git") == before
    assert (root / "a").read_text() == "one"


async def test_a_huge_file_is_left_alone_with_a_word(root: Path, kept: Checkpoints) -> None:
    (root / "huge").write_bytes(b"x" * (1 << 21))
    (root / "small").write_text("one")
    first = await kept.take()
    assert [(skipped.path, skipped.reason) for skipped in first.skipped] == [
        ("huge", "larger than 1 MiB")
    ]
    (root / "huge").write_text("it shrank")
    (root / "small").write_bytes(b"y" * (1 << 21))
    restored = await back_to(kept, first.tree)
    assert (root / "huge").read_text() == "it shrank"
    assert (root / "small").stat().st_size == 1 << 21
    assert [skipped.path for skipped in restored.skipped] == ["huge", "small"]


async def test_undo_and_redo_carry_only_the_turns_changes(root: Path, kept: Checkpoints) -> None:
    for name in "abc":
        (root / name).write_text("old")
    before = (await kept.take()).tree
    (root / "a").write_text("new")
    (root / "b").unlink()
    (root / "d/e").mkdir(parents=True)
    (root / "d/e/f").write_text("made")
    after = (await kept.take()).tree
    (root / "c").write_text("mine")  # the person's own, after the turn
    undone = await kept.apply(after, before)
    assert undone.skipped == ()
    assert sorted(picture(root)) == ["a", "b", "c"]
    assert [(root / name).read_text() for name in "abc"] == ["old", "old", "mine"]
    await kept.apply(before, after)
    assert (root / "a").read_text() == "new"
    assert not (root / "b").exists()
    assert (root / "d/e/f").read_text() == "made"
    assert (root / "c").read_text() == "mine"


async def test_undo_leaves_alone_what_was_changed_since(root: Path, kept: Checkpoints) -> None:
    (root / "a").write_text("old")
    before = (await kept.take()).tree
    (root / "a").write_text("new")
    after = (await kept.take()).tree
    (root / "a").write_text("mine")
    undone = await kept.apply(after, before)
    assert (root / "a").read_text() == "mine"
    assert [skipped.path for skipped in undone.skipped] == ["a"]


async def test_the_changes_of_a_turn_are_named(root: Path, kept: Checkpoints) -> None:
    (root / "a").write_text("1")
    (root / "b").write_text("1")
    old = (await kept.take()).tree
    (root / "a").write_text("2")
    (root / "b").unlink()
    (root / "c").write_text("1")
    new = (await kept.take()).tree
    found = [(change.path, change.kind) for change in await kept.diff(old, new)]
    assert found == [("a", "changed"), ("b", "removed"), ("c", "added")]


async def test_a_sweep_keeps_what_a_tree_needs(
    root: Path, kept: Checkpoints, tmp_path: Path
) -> None:
    (root / "a").write_text("one" * 100)
    first = (await kept.take()).tree
    (root / "a").write_text("two" * 100)
    second = (await kept.take()).tree
    store = tmp_path / "store"
    assert prune_store(store, list) is None  # `kept` may have stored what no log names yet
    kept.close()
    assert (prune_store(store, lambda: [first]) or 0) > 0
    with pytest.raises(WorkspaceError, match="does not exist any more"):
        await kept.apply(first, second)
    await back_to(kept, first)
    assert (root / "a").read_text() == "one" * 100


async def test_a_folder_of_too_many_files_says_so(root: Path, tmp_path: Path) -> None:
    few = Checkpoints(root, tmp_path / "store", max_files=3)
    for number in range(5):
        (root / str(number)).touch()
    with closing(few), pytest.raises(WorkspaceError, match="more than 3 files"):
        await few.take()


async def test_a_turn_is_kept_before_and_after_it(root: Path, kept: Checkpoints) -> None:
    entries: list[Entry] = []

    def work(arguments: object) -> str:
        (root / "made").write_text("by the turn")
        return "ok"

    keeping = CheckpointRecorder(kept, entries.append)
    agent = Agent(
        Scripted([Say(calls=[("record", {})]), "done"]),
        [RecordingTool(answer=work, effect="irreversible")],
        hooks=[keeping.hook],
        mutators=[keeping.mutator],
    )
    await agent.run("go")
    before, after = [entry for entry in entries if isinstance(entry, Checkpoint)]
    assert before.turn_id == after.turn_id == "turn-1"
    await kept.apply(after.tree, before.tree)
    assert not (root / "made").exists()


async def test_undo_brings_a_private_folder_back_with_its_permissions(
    root: Path, kept: Checkpoints
) -> None:
    for name, mode in (("private", 0o700), ("private/read-only", 0o500), ("open", 0o777)):
        (root / name).mkdir()
        (root / name / "file").write_text("kept")
        (root / name).chmod(mode)
    before = (await kept.take()).tree
    shutil.rmtree(root / "private")
    shutil.rmtree(root / "open")
    after = (await kept.take()).tree
    assert (await kept.apply(after, before)).skipped == ()
    modes = [(root / name).stat().st_mode & 0o777 for name in ("private", "private/read-only")]
    assert (modes, (root / "open").stat().st_mode & 0o777) == ([0o700, 0o500], 0o777)
    assert (root / "private/read-only/file").read_text() == "kept"


async def test_undo_does_not_write_through_a_hard_link_to_another_file(
    root: Path, kept: Checkpoints
) -> None:
    (root / "mine").write_text("mine")
    (root / "p").write_text("old")
    before = (await kept.take()).tree
    (root / "p").unlink()
    (root / "p").hardlink_to(root / "mine")
    after = (await kept.take()).tree
    assert (await kept.apply(after, before)).skipped == ()
    assert ((root / "mine").read_text(), (root / "p").read_text()) == ("mine", "old")
