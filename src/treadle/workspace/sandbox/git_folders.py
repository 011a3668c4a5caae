"""The git folders around and inside a workspace, as the sandbox sees them.

Which git folders outside the workspace belong to it (a repository above it, the one that it is a
linked worktree or a submodule of), and whether what a command made in a git folder is harmless. It
runs no git: the settings of a repository could run code. Used by `bubblewrap.py` and
`created_paths.py`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from treadle.lib.files.protected_paths import GIT_FOLDER, PROTECTED_IN_WORKTREE
from treadle.lib.text.word_set import word_set

MAX_CONFIG_BYTES = 1 << 20
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?")

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_RISKY_VALUE = re.compile(r'::|["\\]')
"""`::` names a program that is run. Quotes and backslashes inside could hide it."""

_HARMLESS_KEYS = word_set(
    """
    core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase
    core.precomposeunicode core.symlinks core.autocrlf core.eol core.safecrlf core.abbrev
    extensions.objectformat extensions.refstorage extensions.partialclone remote.url
    remote.fetch remote.tagopt remote.promisor remote.partialclonefilter branch.remote
    branch.merge branch.rebase submodule.active submodule.url user.name user.email
    init.defaultbranch pull.rebase pull.ff push.default push.autosetupremote
    """
)
"""Settings that `git init`, `git clone` and `git remote` write, and that run nothing."""


# ------------------------------------------------------------------ outside the workspace


class OuterRepository(NamedTuple):
    """The repository of a folder. `git` has its index; `needed` are git folders outside of it."""

    worktree: Path
    git: Path
    needed: list[Path]


def find_outer_repository(root: Path, homes: Sequence[Path]) -> OuterRepository | None:
    """What git needs to read outside of `root` in order to work in it."""
    for folder in (root, *root.parents):
        if folder != root and (folder in homes or folder == Path("/")):
            return None  # a repository of the home folder is not the project's
        entry = folder / GIT_FOLDER
        if entry.is_symlink() or not entry.exists():
            continue
        git, needed = entry, [] if folder == root else [entry]
        if entry.is_file():
            linked = _find_linked(entry)
            needed += linked
            git = (read_git_link(entry) or entry).resolve() if linked else entry
        elif not is_git_folder(entry):
            continue
        needed = [path for path in needed if not path.is_relative_to(root)]
        return OuterRepository(folder, git, needed)
    return None


def _find_linked(link: Path) -> list[Path]:
    """The git folders that a `.git` file names. They have to name it too: a file of the project
    must not make any other folder of the user visible."""
    target = read_git_link(link)
    if target is None:
        return []
    target = target.resolve()
    back = read_text(target / "gitdir")
    if back is not None:  # of a linked worktree
        common, is_ours = target.parent.parent, join_path(target, back) == link
        is_ours = is_ours and target.parent.name == "worktrees"
    else:  # of a submodule
        worktree = dict(read_settings(target / "config")).get("core.worktree", "")
        common, is_ours = target, bool(worktree) and join_path(target, worktree) == link.parent
    return [common] if is_ours and is_git_folder(common) else []


def list_worktree_links(git: str) -> list[Path]:
    """The `.git` files of the linked worktrees of a repository. git removes what it knows of a
    worktree whose file it does not see. Each file has to name the repository: commands can write
    to the list, and must not choose what becomes visible."""
    folders = [Path(folder) for folder in list_worktrees(git)]
    links = [join_path(folder, read_text(folder / "gitdir") or "") for folder in folders]
    return [
        link
        for link, folder in zip(links, folders, strict=True)
        if link.name == GIT_FOLDER
        and os.path.realpath(link) == str(link)
        and read_git_link(link) == folder
    ]


def list_worktree_parts(git: str) -> list[str]:
    """The protected parts of the linked worktrees of a repository; symlinks are such parts."""
    folders = list_worktrees(git)
    links = [path for path in (f"{git}/worktrees", *folders) if os.path.islink(path)]  # noqa: PTH114 - it may be unreadable
    return links + [f"{folder}/{part}" for folder in folders for part in PROTECTED_IN_WORKTREE]


def list_worktrees(git: str) -> list[str]:
    """What a repository knows of its linked worktrees: the entries of `.git/worktrees`."""
    try:
        with os.scandir(f"{git}/worktrees") as entries:
            return [entry.path for entry in entries]
    except OSError:
        return []


def read_git_link(link: Path) -> Path | None:
    """The folder that a `.git` file names."""
    kind, _, target = (read_text(link) or "").strip().partition(":")
    return join_path(link.parent, target) if kind == "gitdir" else None


def join_path(folder: Path, text: str) -> Path:
    """The path in a file of git, which may be relative to the folder of the file."""
    return Path(os.path.normpath(folder / text.strip()))


def is_git_folder(path: Path) -> bool:
    """Whether git takes it for a git folder."""
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and (path / "refs").is_dir()


def find_configured_paths(root: Path) -> list[str]:
    """The paths inside a repository that its configuration makes git run, or read as more
    configuration: hooks (core.hooksPath), a program (core.fsmonitor), included files."""
    git, found = root / GIT_FOLDER, list[str]()
    for key, value in read_settings(git / "config"):
        text = re.split("[#;]", value)[0].strip().strip('"')
        if key == "core.fsmonitor":
            if "/" not in text:
                continue  # a switch, or a program of the system
            path = os.path.normpath(root / text.split(" ")[0])
        elif key == "core.hookspath":
            path = os.path.normpath(root / text)
        elif key in ("include.path", "includeif.path"):
            path = os.path.normpath(git / text)
        else:
            continue
        if text and path.startswith(f"{root}/"):
            found.append(path[len(str(root)) + 1 :])
    return found


# ------------------------------------------------------------------ made by a command


def list_harmful_parts(path: Path, root: Path) -> list[Path]:
    """What git on the host would run or follow, in a `.git` folder or file that was made."""
    if path.is_symlink():
        return [path]
    if path.is_file():
        return [] if _is_link_into(path, root / GIT_FOLDER) else [path]
    return list_harmful_files(path, is_module=False) + list_harmful_modules(path / "modules")


def list_harmful_modules(folder: Path) -> list[Path]:
    """The same for the git folders of submodules in `.git/modules`."""
    if folder.is_symlink():
        return [folder]
    parts: list[Path] = []
    for module in _list_modules(folder):
        parts += [module] if module.is_symlink() else list_harmful_files(module, is_module=True)
    return parts


def list_harmful_files(git: Path, *, is_module: bool) -> list[Path]:
    """The same for one git folder, without the modules in it."""
    harmful = [
        file
        for name in ("config.worktree", "commondir", "info/attributes")
        if os.path.lexists(file := git / name)
    ]
    config = git / "config"
    if os.path.lexists(config) and not is_harmless_config(config, is_module=is_module):
        harmful.append(config)
    return harmful + list_hooks(git / "hooks")


def list_hooks(hooks: Path) -> list[Path]:
    """The hooks that git runs; samples are none."""
    if hooks.is_symlink():
        return [hooks]
    if not hooks.is_dir():
        return []
    return [hook for hook in hooks.iterdir() if hook.suffix != ".sample" or hook.is_symlink()]


def is_harmless_config(path: Path, *, is_module: bool = False) -> bool:
    """Whether a git configuration has only settings that run nothing."""
    settings = None if path.is_symlink() else list(read_settings(path))
    if settings is None:
        return False
    allowed = _HARMLESS_KEYS | ({"core.worktree"} if is_module else set())
    return all(key in allowed and not _RISKY_VALUE.search(value) for key, value in settings)


def _list_modules(folder: Path) -> Iterator[Path]:
    """The git folders of submodules; their names may have slashes."""
    for top, names, files in os.walk(folder):
        if "HEAD" in files:
            yield Path(top)
            names[:] = [name for name in names if name == "modules"]
        for name in names:
            if (Path(top) / name).is_symlink():
                yield Path(top) / name


def _is_link_into(link: Path, git: Path) -> bool:
    """Whether a `.git` file names a worktree or submodule of the repository of the workspace."""
    target = read_git_link(link)
    if target is None or git.is_symlink():
        return False
    inside = [git / "worktrees", git / "modules"]
    if Path(os.path.realpath(target)) != target or not any(map(target.is_relative_to, inside)):
        return False
    files = list_harmful_files(target, is_module=True)
    common = read_text(target / "commondir")
    if target.parent == git / "worktrees" and common and join_path(target, common) == git:
        files = [file for file in files if file.name != "commondir"]
    return not files


# ------------------------------------------------------------------ reading


def read_settings(path: Path) -> Iterator[tuple[str, str]]:
    """(key, value) of a configuration, keys without subsections; a line that is not understood
    is a key of its own, which no list has."""
    text = read_text(path)
    if text is None:
        yield "unreadable", ""
        return
    section = ""
    # Only this character ends a line for git, so a comment may have others in it.
    for line in text.replace("\r\n", "\n").split("\n"):
        if _CONTROL.search(line):
            yield "control character", ""
            continue
        line = line.strip()
        if not line or line[0] in "#;":
            continue
        header = _SECTION.match(line)
        if header is not None:
            section, line = header.group(1).lower(), line[header.end() :].strip()
            if not line:
                continue
        entry = _ENTRY.fullmatch(line)
        if entry is None or line.endswith("\\"):
            yield f"not understood: {line[:80]}", ""
            continue
        value = (entry.group(2) or "").strip()
        is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
        yield f"{section}.{entry.group(1).lower()}", value[1:-1] if is_quoted else value


def read_text(path: Path) -> str | None:
    """What is in a small regular file; None if it is none."""
    data = read_regular_file(path, MAX_CONFIG_BYTES)
    return None if data is None else data.decode(errors="replace")


def read_regular_file(path: Path, limit: int) -> bytes | None:
    """What is in a regular file; None if it is none, or longer. It waits for no named pipe."""
    try:
        fd = os.open(path, READ_FLAGS)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        os.close(fd)
