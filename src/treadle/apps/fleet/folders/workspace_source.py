"""Fills the folder of a run from what its task names: a repository, a folder or an archive.

    repository   fetched from a local mirror, at the commit; with a commit it has no later history
    folder       a copy; the original is only read
    archive      .tar (also compressed) or .zip, unpacked; one top folder is left out

Used by workspaces.py. A source that is missing or unusable is a WorkspaceError that says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.tasks.exercises import SOLUTION_FOLDER, is_exercise
from treadle.core.errors import WorkspaceError
from treadle.lib.files.flock import wait_for_lock
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.git.run import GitError, run_git
from treadle.workspace.environment import build_environment

GIT_SECONDS = 1800.0
GIT_SETTINGS = ("gc.auto=0", "advice.detachedHead=false")
MAX_ARCHIVE_BYTES = 8 << 30
_COMMIT = re.compile(r"[0-9A-Za-z][0-9A-Za-z._/@^~-]*")
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]+@")


async def fill_folder(task: FleetTask, target: Path, mirrors: Path, commit: str = "") -> str:
    """Make `target` and fill it; returns the commit of a repository, else "".

    `commit` is the one to use in place of the task's: that of the first time.
    """
    if task.repository:
        return await _clone(task.repository, commit or task.commit or "", task, target, mirrors)
    if task.folder:
        await asyncio.to_thread(_copy_folder, Path(task.folder), target)
    elif task.archive:
        await asyncio.to_thread(_unpack, Path(task.archive), target)
    else:
        await asyncio.to_thread(target.mkdir, parents=True)
    return ""


# --- repositories --------------------------------------------------------------------------


async def _clone(repository: str, commit: str, task: FleetTask, target: Path, mirrors: Path) -> str:
    if commit and not _COMMIT.fullmatch(commit):
        raise WorkspaceError(f"{commit!r} cannot be a commit; give its hash, a tag or a branch")
    mirror = mirrors / _mirror_name(repository)
    await asyncio.to_thread(make_private_folder, mirrors)
    async with wait_for_lock(mirror.with_suffix(".lock")):  # one at a time makes or updates it
        found = await _update_mirror(repository, commit, mirror)
        await _fetch_from(mirror, target, found, has_later=not task.commit)
    if not task.commit:
        url = _USER_OF_URL.sub("", repository)
        await _run_git("remote", "add", "origin", url, cwd=target)
    await _run_git("reset", "-q", "--hard", found, cwd=target)
    return found


async def _fetch_from(mirror: Path, target: Path, commit: str, *, has_later: bool) -> None:
    """A repository of its own: git sends it the objects, so it shares no file with the mirror, and
    without `has_later` it has none of a later commit, which may hold the solution."""
    branch = (await _run_git("rev-parse", "--abbrev-ref", "HEAD", cwd=mirror)).strip()
    branch = "main" if branch == "HEAD" else branch  # it names none
    words = ("init", "-q", "--template=", f"--initial-branch={branch}", "--", str(target))
    await _run_git(*words, cwd=mirror)
    refs = [f"{commit}:refs/heads/{branch}"]
    if has_later:
        refs.append("+refs/heads/*:refs/remotes/origin/*")
    options = ("-q", "--no-tags", "--update-head-ok")
    await _run_git("fetch", *options, "--", str(mirror), *refs, cwd=target)
    await asyncio.to_thread((target / ".git/FETCH_HEAD").unlink, missing_ok=True)


async def _update_mirror(repository: str, commit: str, mirror: Path) -> str:
    """Make or update the mirror; the hash of the commit, or of the newest one."""
    name = _USER_OF_URL.sub("", repository)
    try:
        if not await asyncio.to_thread(mirror.exists):
            partial = mirror.with_suffix(".partial")
            await asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True)
            options = ("--mirror", "--no-hardlinks", "--template=")
            words = ("clone", "-q", *options, "--", repository, str(partial))
            await _run_git(*words, cwd=mirror.parent)
            # A run gets one commit, wherever it is in the history.
            await _run_git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=partial)
            partial.rename(mirror)
        elif not commit or not await _find_commit(mirror, commit):
            await _run_git("fetch", "-q", "--prune", "origin", cwd=mirror)
    except WorkspaceError as error:
        raise WorkspaceError(
            f"the repository {name} cannot be read: {error}; check its address and your access"
        ) from error
    found = await _find_commit(mirror, commit or "HEAD")
    if not found:
        raise WorkspaceError(f"the repository {name} has no commit {commit or 'yet'!r}")
    return found


async def _find_commit(mirror: Path, commit: str) -> str:
    """The whole hash, or "" if there is no such commit."""
    try:
        words = ("rev-parse", "--quiet", "--verify", f"{commit}^{{commit}}")
        return (await _run_git(*words, cwd=mirror)).strip()
    except WorkspaceError:
        return ""


def _mirror_name(repository: str) -> str:
    last = repository.rstrip("/").rpartition("/")[2].removesuffix(".git")
    words = re.sub(r"[^0-9A-Za-z._-]+", "-", last)[:40]
    return f"{hashlib.sha256(repository.encode()).hexdigest()[:12]}-{words}.mirror"


async def _run_git(*words: str, cwd: Path) -> str:
    """Standard output; a WorkspaceError with git's last line if it fails."""
    environment = build_environment(os.environ, sandboxed=False, extra={"GIT_CONFIG_NOSYSTEM": "1"})
    try:
        return await run_git(
            cwd, *words, environment=environment, settings=GIT_SETTINGS, timeout=GIT_SECONDS
        )
    except GitError as error:
        lines = _USER_OF_URL.sub("", error.said).splitlines()
        reasons = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines[-1:]
        raise WorkspaceError("; ".join(reasons) or str(error)) from error


# --- folders and archives ------------------------------------------------------------------


def _copy_folder(source: Path, target: Path) -> None:
    source = source.expanduser()
    if not source.is_dir():
        raise WorkspaceError(f"the folder {source} does not exist; give another one")
    if target.resolve().is_relative_to(source.resolve()):
        raise WorkspaceError(f"{source} contains the folder of the runs, {target.parent}")
    if (source / ".git").is_file():
        raise WorkspaceError(
            f"{source} is a git worktree, whose copy would write to the original; give its "
            "repository (repository and commit)"
        )
    hidden = {SOLUTION_FOLDER} if is_exercise(source) else set()

    def omit(folder: str, names: list[str]) -> set[str]:
        special = {name for name in names if _is_special(Path(folder, name))}
        return special | (hidden if folder == str(source) else set())

    try:
        shutil.copytree(source, target, symlinks=True, ignore=omit)
    except (OSError, shutil.Error) as error:
        raise WorkspaceError(f"{source} cannot be copied: {_describe(error)}") from error


def _is_special(path: Path) -> bool:
    """A socket, pipe or device, which a copy cannot have."""
    mode = path.lstat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def _describe(error: OSError | shutil.Error) -> str:
    problems = error.args[0] if isinstance(error, shutil.Error) else None
    if isinstance(problems, list) and problems:
        path, _, problem = problems[0]
        return f"{path}: {problem}"
    return str(error)


def _unpack(archive: Path, target: Path) -> None:
    archive = archive.expanduser()
    if not archive.is_file():
        raise WorkspaceError(f"the archive {archive} does not exist; give another one")
    unpacked = target.with_name(f"{target.name}.unpacked")
    unpacked.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, unpacked)
        else:
            _unpack_tar(archive, unpacked)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, RuntimeError) as error:
        raise WorkspaceError(f"the archive {archive} cannot be unpacked: {error}") from error
    top = list(unpacked.iterdir())
    if len(top) == 1 and top[0].is_dir() and not top[0].is_symlink():
        top[0].rename(target)
        unpacked.rmdir()
    else:
        unpacked.rename(target)


def _unpack_tar(archive: Path, folder: Path) -> None:
    total = 0

    def check(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        nonlocal total
        total += member.size
        _check_size(archive, total)
        return tarfile.data_filter(member, path)  # nothing outside of the folder, no devices

    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter=check)


def _unpack_zip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        _check_size(archive, sum(member.file_size for member in opened.infolist()))
        opened.extractall(folder)
        for member in opened.infolist():
            mode = member.external_attr >> 16 & 0o777
            path = folder / member.filename
            if mode and path.is_file():
                path.chmod(mode | 0o600)


def _check_size(archive: Path, size: int) -> None:
    if size > MAX_ARCHIVE_BYTES:
        limit = MAX_ARCHIVE_BYTES >> 30
        raise WorkspaceError(
            f"the archive {archive} holds more than {limit} GiB; use a smaller one"
        )
