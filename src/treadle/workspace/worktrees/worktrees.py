"""The worktrees of the child agents of a folder.

    worktree = await worktrees.open("general-1-3fa9c1d2")      made, or as an interruption left it
    end = await worktree.finish(merge=True)                    merged or kept as a branch, removed

A worktree begins with the last commit, or with the uncommitted changes too. When its agent is done,
its changes are written into the folder if that touches nothing that the user changed; otherwise
they become the branch `treadle/NAME` of the worktree's name. Only then it is removed. A worktree
whose process was killed is found by the next one that opens a worktree here, and becomes a branch,
too; opened again by its name, it continues from there. Uses merge.py, worktree_git.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.lib.files.flock import try_lock, wait_for_lock
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.git.index import count_entries
from treadle.workspace.worktrees import merge
from treadle.workspace.worktrees.merge import WorktreeChange, WorktreeEnd, advise, describe_end
from treadle.workspace.worktrees.worktree_git import (
    RECORD_FILE,
    SCRATCH_PREFIX,
    Repository,
    WorktreeRecord,
    find_existing,
    find_git_dir,
    open_repository,
    read_record,
    remove_old_scratch,
    remove_tree,
)

BRANCH_FOLDER = "treadle"
BASE_TRAILER = "Treadle-Base"
MAX_FILES = 200_000
SPARE_BYTES = 256 << 20  # free space that a new worktree leaves

# Which of these paths, relative to the top of the repository, may not be written.
FindUnwritable = Callable[[Sequence[str]], Awaitable[list[str]]]


class Worktree:
    """One worktree at work. `top` is that of the repository, `root` the folder of the agent."""

    def __init__(
        self,
        owner: Worktrees,
        repository: Repository,
        name: str,
        git_dir: Path,
        record: WorktreeRecord,
    ) -> None:
        self.name = name
        self.top = owner.get_path(name)
        self.root = self.top / repository.folder.relative_to(repository.top)
        self.repository = repository
        self.git_dir = git_dir
        self.record = record
        self._owner = owner
        self._lock = try_lock(git_dir / RECORD_FILE)
        if self._lock is None:
            raise WorkspaceError(f"the worktree {name} is in use by another process")

    async def finish(
        self, *, merge: bool, find_unwritable: FindUnwritable | None = None
    ) -> WorktreeEnd:
        """Bring the changes back, or keep them as a branch, and remove the worktree. Once begun it
        is done, also if the caller is cancelled."""
        return await self._owner.run_to_end(
            self._owner.end_worktree(self, merge=merge, find_unwritable=find_unwritable)
        )

    async def run_git(self, *arguments: str) -> str:
        return await self.repository.run(*arguments, worktree=self.top, git_dir=self.git_dir)

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


class Worktrees:
    """The worktrees of one folder. `notify` gets lines for the user about leftovers."""

    def __init__(
        self,
        folder: Path,
        state_dir: Path,
        notify: Callable[[str], None] | None = None,
        *,
        max_files: int = MAX_FILES,
    ) -> None:
        self.folder = folder.resolve()
        self._state_dir = state_dir.resolve()
        self._notify = notify or (lambda text: None)
        self._max_files = max_files
        self._open: dict[str, Worktree] = {}
        self._changing = asyncio.Lock()
        self._ending: set[asyncio.Task[Any]] = set()

    def get_path(self, name: str) -> Path:
        return self._find_folder() / name

    def _find_folder(self) -> Path:
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:8]
        return self._state_dir / f"{self.folder.name[:40]}-{digest}"

    async def open(self, name: str, *, with_changes: bool = False) -> Worktree:
        """The worktree of this name: a new one, or the one that an interruption left, or with the
        changes that its branch has. WorkspaceError if it cannot be made."""
        await self.wait_for_ends()  # it may be about to become a branch
        repository = await open_repository(self.folder)
        async with self._change(repository):
            if name in self._open:
                return self._open[name]
            await self._keep_leftovers(repository, name)
            worktree = await self._take_up(repository, name)
            if worktree is None:
                worktree = await self._make(repository, name, with_changes=with_changes)
            self._open[name] = worktree
            return worktree

    async def has(self, name: str) -> bool:
        """Whether there is a worktree or a branch of this name."""
        repository = await open_repository(self.folder)
        path = self.get_path(name)
        git_dir = find_git_dir(repository, path)
        if git_dir is not None and path.is_dir() and read_record(git_dir) is not None:
            return True
        return bool(await repository.find_commit(format_ref(name)))

    async def aclose(self) -> None:
        """Keep the changes of all agents that were interrupted, also of killed processes, as
        branches."""
        await self.wait_for_ends()
        for worktree in list(self._open.values()):
            self.keep(worktree)
        await self.wait_for_ends()
        with contextlib.suppress(WorkspaceError):
            await self.keep_leftovers()

    async def keep_leftovers(self) -> None:
        """Keep as branches what agents of killed processes changed. Worktrees that are in use stay
        as they are."""
        if self._find_folder().is_dir():
            repository = await open_repository(self.folder)
            async with self._change(repository):
                await self._keep_leftovers(repository)

    def keep(self, worktree: Worktree) -> None:
        """Begin to turn the worktree of an interrupted agent into a branch. Does not wait for it:
        the user, who interrupted, must not either."""
        self._begin_end(self._keep(worktree))

    async def wait_for_ends(self) -> None:
        """Until the worktrees that are being ended have ended."""
        if self._ending:
            await asyncio.wait(self._ending)

    async def list_branches(self) -> list[str]:
        """The branches with changes of agents, also of earlier sessions."""
        repository = await open_repository(self.folder)
        found = await repository.run(
            "for-each-ref", "--format=%(refname:short)", f"refs/heads/{BRANCH_FOLDER}/"
        )
        return found.split()

    async def advise_on(self, branch: str) -> str:
        """What the user can do with one of these branches."""
        repository = await open_repository(self.folder)
        base = await self._read_base(repository, f"refs/heads/{branch}")
        return advise(branch, base, _find_top(repository))

    async def run_to_end(self, work: Any) -> WorktreeEnd:
        task: asyncio.Task[WorktreeEnd] = self._begin_end(work)
        return await asyncio.shield(task)

    def _begin_end(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _keep(self, worktree: Worktree) -> None:
        try:
            end = await self.end_worktree(worktree, merge=False)
        except WorkspaceError as error:
            worktree.release()
            self._notify(f"the worktree {worktree.top} is left: {error}")
        else:
            self._tell(worktree.name, end)

    async def end_worktree(
        self, worktree: Worktree, *, merge: bool, find_unwritable: FindUnwritable | None = None
    ) -> WorktreeEnd:
        """See `Worktree.finish`."""
        async with self._change(worktree.repository):
            if self._open.get(worktree.name, worktree) is not worktree:
                return WorktreeEnd("unchanged")
            end = await self._bring_back(worktree, merge, find_unwritable)
            if end.status != "left":
                await self._remove(worktree.top, worktree.git_dir)
            self._open.pop(worktree.name, None)
            worktree.release()
            return end

    @contextlib.asynccontextmanager
    async def _change(self, repository: Repository) -> AsyncIterator[None]:
        """One at a time makes, merges or removes worktrees of a repository, in all programs: one
        that is being made has no record yet, and must not look like a leftover."""
        async with self._changing, wait_for_lock(repository.common_dir):
            yield

    # --- making --------------------------------------------------------------------------

    async def _take_up(self, repository: Repository, name: str) -> Worktree | None:
        """The worktree that an interruption left; None if there is none, or it was not complete."""
        path = self.get_path(name)
        git_dir = find_git_dir(repository, path)
        if git_dir is None:
            if path.exists():  # made by nobody, or only begun
                await self._remove(path, None)
            return None
        record = read_record(git_dir)
        if record is None or not path.is_dir():  # it was being made, or removed
            await self._remove(path, git_dir)
            return None
        tip = await repository.find_commit(format_ref(name))
        if tip and await self._read_base(repository, tip) == record.base:
            record = msgspec.structs.replace(record, tip=tip)  # it was about to be removed
        return Worktree(self, repository, name, git_dir, record)

    async def _make(self, repository: Repository, name: str, *, with_changes: bool) -> Worktree:
        path = str(self.get_path(name))
        tip = await repository.find_commit(format_ref(name))
        if tip:
            record = WorktreeRecord(await self._read_base(repository, tip), tip)
        elif with_changes:
            record = WorktreeRecord(await self._snapshot(repository))
        else:
            record = WorktreeRecord(repository.head)
        start = tip or record.base
        return await self._add(repository, name, record, start, "--detach", "--lock", path, start)

    async def _add(
        self, repository: Repository, name: str, record: WorktreeRecord, start: str, *how: str
    ) -> Worktree:
        """Make a worktree of the commit `start`, by these words of `git worktree add`."""
        path = self.get_path(name)
        await self._check_size(repository, start)
        make_private_folder(path.parent)
        try:
            await repository.run("worktree", "add", "--quiet", *how)
            git_dir = find_git_dir(repository, path)
            if git_dir is None:
                raise WorkspaceError(f"git made no worktree at {path}")
            (git_dir / RECORD_FILE).write_bytes(msgspec.json.encode(record))
        except BaseException:
            await self.run_to_end(self._remove(path, find_git_dir(repository, path)))
            raise
        return Worktree(self, repository, name, git_dir, record)

    async def _check_size(self, repository: Repository, commit: str) -> None:
        count = count_entries(repository.git_dir / "index")
        if count > self._max_files:
            raise WorkspaceError(
                f"the repository has {count:,} files; a worktree is made of at most "
                f"{self._max_files:,}. Work in the folder itself"
            )
        if await repository.read_setting("extensions.partialclone"):
            return  # the sizes are not known here: git would fetch every file
        listed = await repository.run("ls-tree", "-r", "-l", "-z", commit)
        sizes = (line.partition("\t")[0].split()[-1] for line in listed.split("\0")[:-1])
        needed = sum(int(size) for size in sizes if size.isdigit())
        free = shutil.disk_usage(find_existing(self._state_dir)).free
        if needed + SPARE_BYTES > free:
            raise WorkspaceError(
                f"a worktree needs {needed >> 20:,} MB, and the disk has only {free >> 20:,} MB "
                "free. Work in the folder itself"
            )

    async def _snapshot(self, repository: Repository) -> str:
        """A commit with the uncommitted changes of the folder. The index stays as it is."""
        index = self._make_scratch()
        try:
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(repository.git_dir / "index", index)
            await repository.run("add", "--all", index=index)
            tree = (await repository.run("write-tree", index=index)).strip()
        finally:
            index.unlink(missing_ok=True)
        if tree == (await repository.run("rev-parse", f"{repository.head}^{{tree}}")).strip():
            return repository.head
        text = "Uncommitted changes that an agent began with"
        made = await repository.run("commit-tree", tree, "-p", repository.head, "-m", text)
        return made.strip()

    async def _read_base(self, repository: Repository, tip: str) -> str:
        """The commit that the changes in a branch of ours are compared with."""
        wanted = f"--format=%(trailers:key={BASE_TRAILER},valueonly)"
        base = (await repository.run("log", "-1", wanted, tip)).strip()
        return await repository.find_commit(base) if base else tip

    # --- ending --------------------------------------------------------------------------

    async def _bring_back(
        self, worktree: Worktree, should_merge: bool, find_unwritable: FindUnwritable | None
    ) -> WorktreeEnd:
        repository, record = worktree.repository, worktree.record
        await worktree.run_git("add", "--all")
        tree = (await worktree.run_git("write-tree")).strip()
        changes = await merge.list_changes(repository, record.base, tree)
        files = tuple(change.path for change in changes)
        if not changes:
            await self._delete_branch(worktree)
            return WorktreeEnd("unchanged")
        submodules = tuple(change.path for change in changes if change.is_submodule)
        if submodules:  # git would store a name, not the files
            return WorktreeEnd("left", files, refused=submodules, path=str(worktree.top))
        refused: tuple[str, ...] = ()
        if should_merge:
            refused = await self._merge(worktree, changes, tree, find_unwritable)
            if not refused:
                await self._delete_branch(worktree)
                return WorktreeEnd("merged", files)
        branch = await self._commit(worktree, tree)
        return WorktreeEnd("kept", files, branch, record.base, _find_top(repository), refused)

    async def _merge(
        self,
        worktree: Worktree,
        changes: Sequence[WorktreeChange],
        tree: str,
        find_unwritable: FindUnwritable | None,
    ) -> tuple[str, ...]:
        """Write the changes into the folder; if that is not possible, the paths that prevent it."""
        if find_unwritable is not None:
            denied = await find_unwritable([change.path for change in changes])
            if denied:
                return tuple(denied)
        scratch = self._make_scratch()
        try:
            conflicts = await merge.find_conflicts(worktree.repository, changes, scratch)
            if not conflicts:
                await merge.write_changes(worktree.repository, changes, tree, scratch)
            return tuple(conflicts)
        finally:
            scratch.unlink(missing_ok=True)

    async def _commit(self, worktree: Worktree, tree: str) -> str:
        """Store the tree in the branch of the worktree; its name."""
        repository, record = worktree.repository, worktree.record
        head = (await worktree.run_git("rev-parse", "HEAD")).strip()
        commits = [one for one in (head, record.tip) if one and one != record.base]
        parents = [word for one in dict.fromkeys(commits or [record.base]) for word in ("-p", one)]
        text = f"Changes of the agent {worktree.name}\n\n{BASE_TRAILER}: {record.base}\n"
        made = (await repository.run("commit-tree", tree, *parents, "-m", text)).strip()
        ref = format_ref(worktree.name)
        # An empty old value means that the branch must not exist.
        await repository.run("update-ref", ref, made, record.tip or "0" * len(made))
        return ref.removeprefix("refs/heads/")

    async def _delete_branch(self, worktree: Worktree) -> None:
        """Delete our branch, whose changes are in the folder, unless the user changed it."""
        if worktree.record.tip:
            delete = ("update-ref", "-d", format_ref(worktree.name), worktree.record.tip)
            with contextlib.suppress(WorkspaceError):
                await worktree.repository.run(*delete)

    async def _remove(self, path: Path, git_dir: Path | None) -> None:
        """Remove the files, and what git knows of the worktree. The record goes first: a worktree
        that is half removed must not be taken for one in which an agent deleted files."""
        if git_dir is not None:
            (git_dir / RECORD_FILE).unlink(missing_ok=True)
        await asyncio.to_thread(remove_tree, path)
        if git_dir is not None:
            await asyncio.to_thread(remove_tree, git_dir)
        for folder in (path.parent, path.parent.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()

    async def _keep_leftovers(self, repository: Repository, except_name: str = "") -> None:
        """Keep what agents of killed processes changed as branches."""
        folder = self._find_folder()
        await asyncio.to_thread(remove_old_scratch, self._state_dir)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name == except_name or path.name in self._open or not path.is_dir():
                continue
            try:
                worktree = await self._take_up(repository, path.name)
                if worktree is None:
                    continue
                end = await self._bring_back(worktree, False, None)
                if end.status != "left":
                    await self._remove(worktree.top, worktree.git_dir)
                worktree.release()
                self._tell(path.name, end)
            except WorkspaceError:
                continue  # another process uses it, or it cannot be read: it stays

    def _tell(self, name: str, end: WorktreeEnd) -> None:
        if end.status in ("kept", "left"):
            self._notify(f"agent {name}: {describe_end(end)}")

    def _make_scratch(self) -> Path:
        """A path for an index of git, of which there is no file yet."""
        make_private_folder(self._state_dir)
        return self._state_dir / f"{SCRATCH_PREFIX}{os.urandom(6).hex()}"


def _find_top(repository: Repository) -> str:
    """The way from the folder to the top of the repository; "" if that is the folder."""
    is_top = repository.folder == repository.top
    return "" if is_top else os.path.relpath(repository.top, repository.folder)


def format_ref(name: str) -> str:
    return f"refs/heads/{BRANCH_FOLDER}/{name}"
