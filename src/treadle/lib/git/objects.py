"""Which files the commits of a repository have, by path, content and type.

The branches and tags are read when the history is opened; later ones do not count. Others may write
to the object files, so each object is compared with its name, which is the hash of its content. git
unpacks the objects (`cat-file`), in a plain repository: it runs nothing that this one names.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.git.run import GitError, find_git, plain_repository

MAX_COMMITS = 2000
"""How many commits are searched, those of branches first; some 0.2 ms each."""

MAX_SECONDS = 5.0
"""How long git may take for one search: an object file that is a named pipe makes it wait."""

MAX_OBJECT_BYTES = 8 << 20
MAX_REFS_BYTES = 32 << 20
MAX_REFLOG_BYTES = 1 << 20
MAX_REF_FILES = 20_000

_ID = re.compile(rb"\b[0-9a-f]{40}\b")
_SYMLINK, _REGULAR = b"120000", b"100"


class GitHistory:
    """The commits that a repository has now, and their ancestors. `not_in` is a folder from which
    no program is run."""

    def __init__(self, git: Path, not_in: Path) -> None:
        self._objects = _ObjectReader(git / "objects", not_in)
        self._waiting = deque(_read_tips(git))
        self._seen: set[bytes] = set()
        self._roots: dict[bytes, None] = {}  # the trees of the commits so far, in order
        self._entries: dict[tuple[bytes, bytes], tuple[bytes, bytes] | None] = {}

    def has_file(self, path: Path, name: str) -> bool:
        """Whether a commit has at `name` what is at `path` now: the same file or symlink."""
        found = _read_blob(path)
        if found is None:
            return False
        mode, data = found
        digest, parts = _hash_object(b"blob", data), os.fsencode(name).split(b"/")
        with self._objects.opened():
            for root in self._list_roots() if self._objects.read(digest)[0] else ():
                entry = self._find_entry(root, parts)
                if entry is not None and entry[1] == digest and entry[0].startswith(mode):
                    return True
        return False

    def _list_roots(self) -> Iterator[bytes]:
        yield from list(self._roots)
        while self._waiting and len(self._seen) < MAX_COMMITS:
            name = self._waiting.popleft()
            if name in self._seen:
                continue
            self._seen.add(name)
            kind, data = self._objects.read(name)
            lines = data.partition(b"\n\n")[0].splitlines()
            if kind == b"tag":
                self._waiting.extendleft(_read_names(lines, b"object "))
            if kind != b"commit":
                continue
            self._waiting.extend(_read_names(lines, b"parent "))
            for root in _read_names(lines[:1], b"tree "):
                if root not in self._roots:
                    self._roots[root] = None
                    yield root

    def _find_entry(self, tree: bytes, parts: list[bytes]) -> tuple[bytes, bytes] | None:
        for at, part in enumerate(parts):
            key = tree, part
            if key not in self._entries:
                self._entries[key] = _find_in_tree(self._objects.read(tree), part)
            entry = self._entries[key]
            if entry is None or at == len(parts) - 1:
                return entry
            tree = entry[1]
        return None


class _ObjectReader:
    """Reads objects while it is opened. What is missing, forged or too large is (b"", b"")."""

    def __init__(self, folder: Path, not_in: Path) -> None:
        self._folder, self._not_in = folder, not_in
        self._process: subprocess.Popen[bytes] | None = None
        self._timed_out = False

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        try:
            program = "" if self._timed_out else find_git(self._not_in)
        except GitError:
            program = ""
        if not program:
            yield
            return
        with plain_repository(GIT_OBJECT_DIRECTORY=str(self._folder)) as environment:
            process = subprocess.Popen(
                (program, "cat-file", "--batch"),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            timer = threading.Timer(MAX_SECONDS, self._stop, (process,))
            timer.start()
            try:
                self._process = process
                yield
            finally:
                self._process = None
                timer.cancel()
                process.kill()
                process.communicate()
                timer.join()

    def read(self, name: bytes) -> tuple[bytes, bytes]:
        """The type and the content of an object."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return b"", b""
        try:
            process.stdin.write(name.hex().encode() + b"\n")
            process.stdin.flush()
            _, kind, size = process.stdout.readline().split()
            if int(size) > MAX_OBJECT_BYTES:
                self._process = None  # the rest is not read
                return b"", b""
            data = process.stdout.read(int(size) + 1)[:-1]
        except (OSError, ValueError):  # missing, or git has ended
            return b"", b""
        return (kind, data) if _hash_object(kind, data) == name else (b"", b"")

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        self._timed_out = True
        process.kill()


def _read_blob(path: Path) -> tuple[bytes, bytes] | None:
    """The mode of a file or symlink as a tree begins it, and its content."""
    with contextlib.suppress(OSError):
        return _SYMLINK, os.fsencode(path.readlink())
    data = LOCAL_FILES.read(str(path), MAX_OBJECT_BYTES)
    return None if data is None else (_REGULAR, data)


def _read_names(lines: list[bytes], field: bytes) -> list[bytes]:
    """The objects that a field of a commit or a tag names."""
    names = [line.removeprefix(field) for line in lines if line.startswith(field)]
    return [bytes.fromhex(name.decode()) for name in names if _ID.fullmatch(name)]


def _hash_object(kind: bytes, data: bytes) -> bytes:
    """The name of an object."""
    head = b"%b %d\0" % (kind, len(data))
    return hashlib.sha1(head + data, usedforsecurity=False).digest()


def _find_in_tree(found: tuple[bytes, bytes], name: bytes) -> tuple[bytes, bytes] | None:
    """(mode, object) of an entry of a tree."""
    kind, data = found
    at = 0
    while kind == b"tree" and at < len(data):
        end = data.find(b"\0", at)
        if end < 0:
            break
        mode, _, entry = data[at:end].partition(b" ")
        at = end + 21
        if entry == name:
            return mode, data[end + 1 : at]
    return None


def _read_tips(git: Path) -> list[bytes]:
    """The objects that HEAD, branches, remotes and tags name, then those of HEAD's reflog."""
    texts = [_read(git / "HEAD", MAX_REFLOG_BYTES)]
    for folder in ("heads", "remotes", "", "tags"):
        names = {"heads", "remotes", "tags"} if not folder else set()
        texts += _read_refs(git / "refs" / folder, names)
        if folder == "remotes":
            texts.append(_read(git / "packed-refs", MAX_REFS_BYTES))
    texts.append(_read(git / "logs/HEAD", MAX_REFLOG_BYTES))
    found = (name for text in texts for name in _ID.findall(text))
    return [bytes.fromhex(name.decode()) for name in dict.fromkeys(found)]


def _read_refs(top: Path, without: set[str]) -> list[bytes]:
    texts: list[bytes] = []
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name not in without]
        texts += [_read(Path(folder) / file, 200) for file in files]
        if len(texts) > MAX_REF_FILES:
            break
    return texts


def _read(file: Path, limit: int) -> bytes:
    return LOCAL_FILES.read(str(file), limit) or b""
