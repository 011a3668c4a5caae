"""Worktrees of child agents: real repositories, and what becomes of each change."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from treadle.core.errors import WorkspaceError
from treadle.workspace.worktrees import worktrees
from treadle.workspace.worktrees.merge import describe_end
from treadle.workspace.worktrees.worktree_git import RECORD_FILE, Repository
from treadle.workspace.worktrees.worktrees import Worktrees

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def list_branches(folder: Path) -> list[str]:
    return git(folder, "branch", "--list", "treadle/*", "--format=%(refname:short)").split()


def list_worktrees(folder: Path) -> int:
    return git(folder, "worktree", "list", "--porcelain").count("worktree ")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "src" / "b.txt").write_text("two\n")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def open_all(folder: Path, told: list[str] | None = None, **options: int) -> Worktrees:
    notify = told.append if told is not None else None
    return Worktrees(folder, folder.parent / "state", notify, **options)


def describe_kept(folder: Path) -> str:
    commits = f"{git(folder, 'rev-parse', 'HEAD')[:12]} treadle/one"
    return (
        "agent one: It did not finish, so nothing is merged. All its changes are in the branch "
        f"treadle/one: a.txt. See them with `git diff {commits}`, take them over with "
        f"`git diff --binary {commits} | git apply` (if git refuses that, commit your own changes "
        "and add `--3way`), delete them with `git branch -D treadle/one`."
    )


def run_advice(folder: Path, text: str, added: str = "") -> None:
    """Run the command of the text that takes the changes over."""
    command = text.partition("take them over with `")[2].partition("`")[0]
    subprocess.run(command + added, shell=True, cwd=folder, check=True, capture_output=True)


async def test_changes_are_merged_and_nothing_is_left(repository: Path):
    worktrees = open_all(repository)
    one = await worktrees.open("one")
    (one.root / "a.txt").write_text("ONE\n")
    (one.root / "src" / "b.txt").unlink()
    (one.root / "new").mkdir()
    (one.root / "new" / "c d.txt").write_text("new\n")
    (one.root / "link").symlink_to("a.txt")
    (one.root / "run.sh").write_text("#!/bin/sh\n")
    (one.root / "run.sh").chmod(0o755)
    end = await one.finish(merge=True)
    assert (end.status, len(end.files)) == ("merged", 5)
    assert (repository / "a.txt").read_text() == "ONE\n"
    assert (repository / "new" / "c d.txt").read_text() == "new\n"
    assert (repository / "link").readlink() == Path("a.txt")
    assert (repository / "run.sh").stat().st_mode & 0o100
    assert not (repository / "src").exists()
    assert git(repository, "diff", "--cached", "--name-only") == ""  # the index is the user's
    assert (list_branches(repository), list_worktrees(repository)) == ([], 1)
    assert not (repository.parent / "state" / "project").exists()
    assert list((repository.parent / "state").glob("*/*")) == []


async def test_a_worktree_without_changes_leaves_nothing(repository: Path):
    end = await (await open_all(repository).open("one")).finish(merge=True)
    assert (end.status, list_worktrees(repository)) == ("unchanged", 1)


async def test_what_the_user_changed_is_not_touched_and_the_changes_become_a_branch(
    repository: Path,
):
    one = await open_all(repository).open("one")
    (one.root / "a.txt").write_text("from the agent\n")
    (one.root / "c.txt").write_text("new\n")
    (repository / "a.txt").write_text("from the user\n")
    end = await one.finish(merge=True)
    assert (end.status, end.branch, end.refused) == ("kept", "treadle/one", ("a.txt",))
    assert (repository / "a.txt").read_text() == "from the user\n"
    assert not (repository / "c.txt").exists()  # all or nothing
    assert git(repository, "show", "treadle/one:a.txt") == "from the agent"
    assert git(repository, "show", "treadle/one:c.txt") == "new"
    assert list_worktrees(repository) == 1


async def test_the_advised_command_adds_the_changes_to_those_of_the_user(repository: Path):
    (repository / "a.txt").write_text("".join(f"{number}\n" for number in range(20)))
    git(repository, "commit", "-qam", "more lines")
    one = await open_all(repository).open("one")
    text = (repository / "a.txt").read_text()
    (one.root / "a.txt").write_text(text + "from the agent\n")
    (one.root / "c.bin").write_bytes(bytes(range(256)))
    git(one.root, "add", "-A")
    git(one.root, "commit", "-q", "-m", "a commit of the agent")
    (one.root / "d.txt").write_text("after the commit\n")
    (repository / "a.txt").write_text("from the user\n" + text)
    end = await one.finish(merge=True)
    assert end.refused == ("a.txt",)
    run_advice(repository, describe_end(end))
    assert (repository / "a.txt").read_text() == f"from the user\n{text}from the agent\n"
    assert (repository / "c.bin").read_bytes() == bytes(range(256))
    assert (repository / "d.txt").read_text() == "after the commit\n"


async def test_the_advised_command_works_beside_the_changes_that_the_agent_began_with(
    repository: Path,
):
    (repository / "a.txt").write_text("uncommitted\n")
    (repository / "u.txt").write_text("untracked\n")
    (repository / "src" / "b.txt").write_text("uncommitted too\n")
    worktrees = open_all(repository / "src")
    one = await worktrees.open("one", with_changes=True)
    (one.top / "a.txt").write_text("uncommitted\nfrom the agent\n")
    end = await one.finish(merge=False)
    assert await worktrees.advise_on("treadle/one") in describe_end(end)
    run_advice(repository / "src", describe_end(end))
    assert (repository / "a.txt").read_text() == "uncommitted\nfrom the agent\n"
    assert (repository / "u.txt").read_text() == "untracked\n"
    assert (repository / "src" / "b.txt").read_text() == "uncommitted too\n"


async def test_the_advised_command_refuses_a_conflict_until_the_user_has_committed(
    repository: Path,
):
    one = await open_all(repository).open("one")
    (one.root / "a.txt").write_text("from the agent\n")
    (repository / "a.txt").write_text("from the user\n")
    text = describe_end(await one.finish(merge=True))
    with pytest.raises(subprocess.CalledProcessError):
        run_advice(repository, text)
    assert (repository / "a.txt").read_text() == "from the user\n"
    git(repository, "commit", "-qam", "of the user")
    with pytest.raises(subprocess.CalledProcessError):  # 1: there is a conflict to resolve
        run_advice(repository, text, " --3way")
    merged = (repository / "a.txt").read_text()
    assert "<<<<<<<" in merged
    assert "from the user" in merged
    assert "from the agent" in merged


async def test_an_untracked_file_of_the_user_is_not_overwritten(repository: Path):
    one = await open_all(repository).open("one")
    (one.root / "notes").mkdir()
    (one.root / "notes" / "n.txt").write_text("from the agent\n")
    (repository / "notes").write_text("a file of the user\n")
    end = await one.finish(merge=True)
    assert (end.status, end.refused) == ("kept", ("notes/n.txt",))
    assert (repository / "notes").read_text() == "a file of the user\n"


async def test_a_symlink_of_the_user_does_not_lead_the_merge_out_of_the_folder(repository: Path):
    one = await open_all(repository).open("one")
    (one.root / "src" / "b.txt").write_text("from the agent\n")
    outside = repository.parent / "outside"
    shutil.move(repository / "src", outside)
    (repository / "src").symlink_to(outside)
    end = await one.finish(merge=True)
    assert end.status == "kept"
    assert (outside / "b.txt").read_text() == "two\n"


async def test_a_dirty_folder_begins_at_the_last_commit_or_with_its_changes(repository: Path):
    (repository / "a.txt").write_text("uncommitted\n")
    (repository / "u.txt").write_text("untracked\n")
    (repository / "x.log").write_text("ignored\n")
    before = git(repository, "status", "--porcelain")
    worktrees = open_all(repository)
    plain, copied = await worktrees.open("plain"), await worktrees.open("copy", with_changes=True)
    assert (plain.root / "a.txt").read_text() == "one\n"
    assert not (plain.root / "u.txt").exists()
    assert (copied.root / "a.txt").read_text() == "uncommitted\n"
    assert (copied.root / "u.txt").read_text() == "untracked\n"
    assert not (copied.root / "x.log").exists()
    assert git(repository, "status", "--porcelain") == before
    assert (await plain.finish(merge=True)).status == "unchanged"
    (copied.root / "a.txt").write_text("uncommitted\nand more\n")
    assert (await copied.finish(merge=True)).status == "merged"
    assert (repository / "a.txt").read_text() == "uncommitted\nand more\n"


async def test_a_bare_repository_has_no_files_to_work_on(repository: Path):
    git(repository, "clone", "-q", "--bare", ".", "../bare.git")
    with pytest.raises(WorkspaceError, match="bare repository"):
        await open_all(repository.parent / "bare.git").open("one")
    with pytest.raises(WorkspaceError, match="has no git repository"):
        await open_all(repository.parent).open("one")


async def test_a_repository_without_a_commit_says_so(tmp_path: Path):
    git(tmp_path, "init", "-q")
    with pytest.raises(WorkspaceError, match="no commit yet"):
        await open_all(tmp_path).open("one")


async def test_a_shallow_clone_works_as_any_other(repository: Path):
    (repository / "a.txt").write_text("second\n")
    git(repository, "commit", "-q", "-a", "-m", "second")
    git(repository.parent, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    shallow = repository.parent / "shallow"
    one = await open_all(shallow).open("one")
    (one.root / "a.txt").write_text("third\n")
    assert (await one.finish(merge=True)).status == "merged"
    assert (shallow / "a.txt").read_text() == "third\n"


async def test_a_huge_repository_is_refused_before_anything_is_written(repository: Path):
    with pytest.raises(WorkspaceError, match="has 3 files; a worktree is made of at most 2"):
        await open_all(repository, max_files=2).open("one")
    assert list_worktrees(repository) == 1


async def test_a_full_disk_is_noticed_before_anything_is_written(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    usage = shutil.disk_usage(repository)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(WorkspaceError, match="the disk has only 1 MB free"):
        await open_all(repository).open("one")


async def test_a_folder_inside_the_repository_is_the_same_folder_in_the_worktree(repository: Path):
    one = await open_all(repository / "src").open("one")
    assert (one.root / "b.txt").read_text() == "two\n"
    (one.root / "b.txt").write_text("TWO\n")
    await one.finish(merge=True)
    assert (repository / "src" / "b.txt").read_text() == "TWO\n"


async def test_what_a_killed_process_left_is_taken_up_by_its_name(repository: Path):
    left = await open_all(repository).open("one")
    (left.root / "a.txt").write_text("half\n")
    left.release()  # as the kernel does
    again = await open_all(repository).open("one")
    assert (again.root / "a.txt").read_text() == "half\n"
    assert (await again.finish(merge=True)).status == "merged"


async def test_what_a_killed_process_left_becomes_a_branch_that_can_be_continued(repository: Path):
    left = await open_all(repository).open("one")
    (left.root / "a.txt").write_text("half\n")
    left.release()
    told: list[str] = []
    worktrees = open_all(repository, told)
    await (await worktrees.open("two")).finish(merge=True)
    assert told == [describe_kept(repository)]
    again = await worktrees.open("one")
    assert (again.root / "a.txt").read_text() == "half\n"
    (again.root / "a.txt").write_text("whole\n")
    end = await again.finish(merge=True)
    assert (end.status, list_branches(repository)) == ("merged", [])
    assert (repository / "a.txt").read_text() == "whole\n"


async def test_a_worktree_that_another_process_uses_is_left_alone(repository: Path):
    busy = await open_all(repository).open("one")
    other = open_all(repository)
    await (await other.open("two")).finish(merge=True)
    assert busy.root.is_dir()
    with pytest.raises(WorkspaceError, match="in use by another process"):
        await other.open("one")
    busy.release()


async def test_a_worktree_that_was_only_begun_is_made_again(repository: Path):
    begun = await open_all(repository).open("one")
    begun.release()
    (begun.git_dir / RECORD_FILE).unlink()
    (begun.root / "a.txt").unlink()  # not checked out yet
    again = await open_all(repository).open("one")
    assert (again.root / "a.txt").read_text() == "one\n"
    assert (await again.finish(merge=True)).status == "unchanged"


async def test_a_process_that_was_killed_after_the_branch_was_made_continues_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    async def die(*_: object) -> None:
        raise WorkspaceError("killed")

    left = await open_all(repository).open("one")
    (left.root / "a.txt").write_text("half\n")
    with monkeypatch.context() as patch:
        patch.setattr(Worktrees, "_remove", die)
        with pytest.raises(WorkspaceError, match="killed"):
            await left.finish(merge=False)
    left.release()
    again = await open_all(repository).open("one")
    (again.root / "c.txt").write_text("more\n")
    end = await again.finish(merge=False)
    assert (end.status, end.files) == ("kept", ("a.txt", "c.txt"))
    assert git(repository, "show", "--format=", "--name-only", end.branch) == "c.txt"
    assert list_worktrees(repository) == 1


@pytest.mark.parametrize("is_gone", [False, True], ids=["half removed", "removed"])
async def test_a_kill_while_a_worktree_is_removed_deletes_no_file_of_the_user(
    repository: Path, monkeypatch: pytest.MonkeyPatch, is_gone: bool
):
    def die_halfway(path: Path) -> None:
        (path / "a.txt").unlink()
        if is_gone:
            shutil.rmtree(path)
        raise WorkspaceError("killed")

    left = await open_all(repository).open("one")
    (left.root / "c.txt").write_text("new\n")
    with monkeypatch.context() as patch:
        patch.setattr(worktrees, "remove_tree", die_halfway)
        with pytest.raises(WorkspaceError, match="killed"):
            await left.finish(merge=True)
    left.release()
    every = open_all(repository)
    assert not await every.has("one")
    again = await every.open("one")
    assert (await again.finish(merge=True)).status == "unchanged"
    assert (repository / "a.txt").exists()
    assert (repository / "c.txt").read_text() == "new\n"
    assert list_worktrees(repository) == 1


async def test_closing_keeps_what_interrupted_agents_changed(repository: Path):
    told: list[str] = []
    worktrees = open_all(repository, told)
    one, two = await worktrees.open("one"), await worktrees.open("two")
    (one.root / "a.txt").write_text("half\n")
    await worktrees.aclose()
    assert told == [describe_kept(repository)]
    assert (list_worktrees(repository), two.root.exists()) == (1, False)


async def test_a_merge_that_is_cancelled_is_done_all_the_same(repository: Path):
    worktrees = open_all(repository)
    one = await worktrees.open("one")
    (one.root / "a.txt").write_text("ONE\n")
    ending = asyncio.create_task(one.finish(merge=True))
    await asyncio.sleep(0)
    ending.cancel()
    await asyncio.wait([ending])
    await worktrees.aclose()
    assert (repository / "a.txt").read_text() == "ONE\n"
    assert list_worktrees(repository) == 1


async def test_four_at_once_merge_one_after_the_other(repository: Path):
    worktrees = open_all(repository)

    async def work(name: str) -> str:
        worktree = await worktrees.open(name)
        (worktree.root / f"{name}.txt").write_text(name)
        return (await worktree.finish(merge=True)).status

    names = ["one", "two", "three", "four"]
    assert await asyncio.gather(*map(work, names)) == ["merged"] * 4
    assert [(repository / f"{name}.txt").read_text() for name in names] == names


async def test_a_repository_that_an_agent_made_inside_is_left_with_its_files(repository: Path):
    one = await open_all(repository).open("one")
    inner = one.root / "inner"
    inner.mkdir()
    (inner / "f.txt").write_text("f\n")
    git(inner, "init", "-q")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "inner")
    end = await one.finish(merge=True)
    assert (end.status, end.refused, end.path) == ("left", ("inner",), str(one.top))
    assert (inner / "f.txt").read_text() == "f\n"


async def test_hooks_of_the_repository_do_not_run(repository: Path):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    one = await open_all(repository).open("one")
    assert not (one.root / "ran").exists()
    one.release()


async def test_a_git_file_that_an_agent_changed_is_not_followed(repository: Path):
    one = await open_all(repository).open("one")
    fake = one.root / "fake"
    git(repository.parent, "init", "-q", "--bare", str(fake))
    (one.root / ".git").write_text(f"gitdir: {fake}\n")
    (one.root / "a.txt").write_text("ONE\n")
    end = await one.finish(merge=True)
    assert "a.txt" in end.files
    assert (end.status, list_worktrees(repository)) == ("merged", 1)


async def test_files_that_may_not_be_written_keep_the_changes_in_a_branch(repository: Path):
    one = await open_all(repository).open("one")
    (one.root / "a.txt").write_text("ONE\n")

    async def deny(paths: object) -> list[str]:
        return ["a.txt"]

    end = await one.finish(merge=True, find_unwritable=deny)
    assert (end.status, end.refused) == ("kept", ("a.txt",))
    assert (repository / "a.txt").read_text() == "one\n"


async def test_commits_of_an_agent_stay_in_its_branch(repository: Path):
    one = await open_all(repository).open("one")
    (one.root / "a.txt").write_text("ONE\n")
    git(one.root, "commit", "-q", "-a", "-m", "a commit of the agent")
    (one.root / "src" / "b.txt").write_text("TWO\n")
    end = await one.finish(merge=False)
    assert end.files == ("a.txt", "src/b.txt")
    assert "a commit of the agent" in git(repository, "log", "--format=%s", end.branch)


async def test_submodules_that_are_not_in_the_worktree_stay_as_they_are(repository: Path):
    inner = repository.parent / "inner"
    inner.mkdir()
    (inner / "f.txt").write_text("f\n")
    git(inner, "init", "-q")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "inner")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner))
    git(repository, "commit", "-q", "-m", "with a submodule")
    one = await open_all(repository).open("one")
    (one.root / "a.txt").write_text("ONE\n")
    end = await one.finish(merge=True)
    assert (end.status, end.files) == ("merged", ("a.txt",))
    assert (repository / "inner" / "f.txt").read_text() == "f\n"


async def test_closing_keeps_what_killed_processes_left_of_the_same_folder(repository: Path):
    left = await open_all(repository).open("one")
    (left.root / "a.txt").write_text("half\n")
    left.release()
    told: list[str] = []
    await open_all(repository, told).aclose()
    assert told == [describe_kept(repository)]
    assert list_worktrees(repository) == 1


async def test_a_folder_that_is_a_worktree_itself_has_worktrees_of_its_own(repository: Path):
    git(repository, "worktree", "add", "--quiet", "-b", "side", "../side")
    side = repository.parent / "side"
    (side / "a.txt").write_text("side\n")
    git(side, "commit", "-q", "-a", "-m", "on the side")
    one = await open_all(side).open("one")
    assert (one.root / "a.txt").read_text() == "side\n"
    (one.root / "a.txt").write_text("ONE\n")
    assert (await one.finish(merge=True)).status == "merged"
    assert ((side / "a.txt").read_text(), (repository / "a.txt").read_text()) == ("ONE\n", "one\n")
    assert list_worktrees(repository) == 2


async def test_line_ends_that_git_converts_are_no_changes(repository: Path):
    (repository / ".gitattributes").write_text("*.txt text eol=crlf\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "line ends")
    (repository / "a.txt").write_bytes(b"one\r\n")
    one = await open_all(repository).open("one")
    assert (one.root / "a.txt").read_bytes() == b"one\r\n"
    (one.root / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    assert (await one.finish(merge=True)).status == "merged"
    assert (repository / "a.txt").read_bytes() == b"one\r\ntwo\r\n"


async def test_a_worktree_that_another_program_is_making_is_no_leftover(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    """The checkout of a large repository takes seconds, in which there is no record of it."""
    run, made, proceed = Repository.run, asyncio.Event(), asyncio.Event()

    async def run_slowly(self: Repository, *arguments: str, **options: Any) -> str:
        output = await run(self, *arguments, **options)
        if arguments[:2] == ("worktree", "add"):
            made.set()
            await proceed.wait()
        return output

    monkeypatch.setattr(Repository, "run", run_slowly)
    opening = asyncio.create_task(open_all(repository).open("one"))
    await made.wait()
    ending = asyncio.create_task(open_all(repository).aclose())  # a session of another program
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(ending), 0.2)
    proceed.set()
    worktree = await opening
    await ending
    assert (worktree.root / "a.txt").read_text() == "one\n"
    await worktree.finish(merge=False)
