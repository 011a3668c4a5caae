"""The files of a work tree that the configuration of its repository makes git run, or read as more
configuration: hooks, included files, and programs of every other setting (core.sshCommand,
filters, helpers, aliases) by the words that are files.

The configuration may be in another folder: of a linked worktree, a submodule, the user. Used by
the policy and the sandbox, which protect these files. Knows no rules.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import stat
from collections.abc import Iterator
from os.path import normpath

import msgspec

from treadle.lib.files.file_view import FileView
from treadle.lib.files.protected_paths import GIT_FOLDER, fold_case
from treadle.lib.git.config import drop_subsection, read_config
from treadle.lib.git.repository import find_bare_part, list_parents, open_repository
from treadle.lib.text.word_set import word_set

HARMLESS_KEYS = word_set(
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

_DATA_KEYS = word_set(
    "core.worktree core.excludesfile commit.template blame.ignorerevsfile mailmap.file"
)
"""Settings that name files with text, not programs."""

_NO_WORD = re.compile(r"[\s!;&|\"'`()$<>={}]+")
_MAX_FILES = 50  # of configuration, with the included ones
_MAX_CHARS = 10_000


def list_configured_files(files: FileView, worktree: str, home: str) -> list[str]:
    """Absolute paths below the work tree; they may not be there yet."""
    found = dict[str, None]()
    for file, is_own, key, value in _list_settings(files, worktree, home):
        name = drop_subsection(key)
        if not value or name in HARMLESS_KEYS or name in _DATA_KEYS:
            continue
        if name == "core.hookspath":
            paths = [f"{worktree}/{value}" if value[0] not in "/~" else value]
        elif _is_include(key):
            paths = [_resolve_include(file, value, home)]
        else:
            paths = [*_list_programs(files, worktree, value[:_MAX_CHARS], is_own=is_own)]
        found |= dict.fromkeys(map(normpath, paths))
    return [path for path in found if path.startswith(f"{worktree}/")]


def _list_settings(
    files: FileView, worktree: str, home: str
) -> Iterator[tuple[str, bool, str, str]]:
    """(file, whether it is the repository's own, key, value), also of included files."""
    todo = [(file, True) for file in open_repository(files, worktree).config_files]
    todo += [(f"{home}/{name}", False) for name in (".gitconfig", ".config/git/config")]
    for file, is_own in todo:  # it grows meanwhile
        for key, value in read_config(files, file) or ():
            yield file, is_own, key, value
            if _is_include(key) and value and len(todo) < _MAX_FILES:
                todo.append((_resolve_include(file, value, home), is_own))


def _is_include(key: str) -> bool:
    return drop_subsection(key) in ("include.path", "includeif.path")


def _resolve_include(file: str, value: str, home: str) -> str:
    if value.startswith("~/"):
        return home + value[1:]
    return value if value.startswith("/") else f"{file.rpartition('/')[0]}/{value}"


def _list_programs(files: FileView, worktree: str, value: str, *, is_own: bool) -> Iterator[str]:
    """The files among the words of a command, in the top folder or in one that is named, too
    (`cd tools && ./x`); and a first word, or one with `./`, that could become one. Settings of
    the user (not `is_own`) are for all repositories: there, a file has a `/`."""
    words = dict.fromkeys(filter(None, _NO_WORD.split(value)))
    with contextlib.suppress(ValueError):
        words |= dict.fromkeys(shlex.split(value.removeprefix("!")))
    # What is left of `$PWD/x` begins with a slash.
    plain = [word.removeprefix(worktree).lstrip("/") for word in words]
    folders = [w for w in plain if w and _get_kind(files, f"{worktree}/{w}") == stat.S_IFDIR]
    for at, word in enumerate(plain):
        if not word or not (is_own or "/" in word):
            continue
        kind = _get_kind(files, f"{worktree}/{word}")
        is_program = word.startswith("./") or (is_own and at == 0 and "/" in word)
        if kind == stat.S_IFREG or (kind == 0 and is_program):
            yield f"{worktree}/{word}"
        for folder in folders:
            if _get_kind(files, f"{worktree}/{folder}/{word}") == stat.S_IFREG:
                yield f"{worktree}/{folder}/{word}"


def _get_kind(files: FileView, path: str) -> int:
    status = files.lstat(path)
    return 0 if status is None else stat.S_IFMT(status.st_mode)


class ConfiguredFiles(msgspec.Struct):
    """What git runs, or takes for a repository, as long as nothing changes."""

    files: FileView
    home: str
    found: dict[str, list[str]] = {}

    def find_part(self, path: str) -> tuple[str, ...]:
        """The name of what is protected because of git, if `path` is it or in it; else ()."""
        if part := find_bare_part(self.files, path):
            return part
        for folder in list_parents(path.rpartition("/")[0]):
            for file in self._list(folder):
                if f"{path}/".startswith(f"{file}/"):
                    return (fold_case(file.rpartition("/")[2]),)
        return ()

    def find_below(self, path: str) -> str:
        """The name of a file in this folder that git runs, or ""."""
        for folder in list_parents(path):
            for file in self._list(folder):
                if file.startswith(f"{path}/"):
                    return file.rpartition("/")[2]
        return ""

    def _list(self, folder: str) -> list[str]:
        if folder not in self.found:
            has_git = bool(folder) and self.files.lstat(f"{folder}/{GIT_FOLDER}") is not None
            found = list_configured_files(self.files, folder, self.home) if has_git else []
            self.found[folder] = found
        return self.found[folder]
