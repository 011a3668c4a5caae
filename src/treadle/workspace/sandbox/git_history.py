"""Which files the commits of a repository have, by path, content and type.

The branches and tags are read when a workspace is opened; what their commits have at a path may
come back by a checkout. Commands can write to the object files, so each object that is read is
compared with its name, which is the hash of its content. It runs no git: the settings of a
repository could run code. Used by `repositories.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from treadle.workspace.sandbox.git_folders import READ_FLAGS, read_regular_file

MAX_COMMITS = 2000
"""How many commits are searched, those of branches first; some 0.2 ms each."""

MAX_OBJECT_BYTES = 8 << 20
MAX_REFS_BYTES = 32 << 20
MAX_REFLOG_BYTES = 1 << 20
MAX_REF_FILES = 20_000
MAX_DELTA_DEPTH = 200

_ID = re.compile(rb"\b[0-9a-f]{40}\b")
_TYPES = {1: b"commit", 2: b"tree", 3: b"blob", 4: b"tag"}
_OFFSET_DELTA, _NAMED_DELTA = 6, 7
_SYMLINK, _REGULAR = b"120000", b"100"


class GitHistory:
    """The commits that a repository has now, and their ancestors; later ones do not count."""

    def __init__(self, git: Path) -> None:
        self._objects = _ObjectReader(git / "objects")
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
        digest, parts = hash_object(b"blob", data), os.fsencode(name).split(b"/")
        with self._objects.opened():
            for root in self._list_roots() if self._objects.has(digest) else ():
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


def _read_blob(path: Path) -> tuple[bytes, bytes] | None:
    """The mode of a file or symlink as a tree begins it, and its content."""
    with contextlib.suppress(OSError):
        return _SYMLINK, os.fsencode(path.readlink())
    data = read_regular_file(path, MAX_OBJECT_BYTES)
    return None if data is None else (_REGULAR, data)


def _read_names(lines: list[bytes], field: bytes) -> list[bytes]:
    """The objects that a field of a commit or a tag names."""
    names = [line.removeprefix(field) for line in lines if line.startswith(field)]
    return [bytes.fromhex(name.decode()) for name in names if _ID.fullmatch(name)]


def hash_object(kind: bytes, data: bytes) -> bytes:
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


# ------------------------------------------------------------------ branches and tags


def _read_tips(git: Path) -> list[bytes]:
    """The objects that HEAD, branches, remotes and tags name, then those of HEAD's reflog."""
    texts = [read_regular_file(git / "HEAD", MAX_REFLOG_BYTES) or b""]
    for folder in ("heads", "remotes", "", "tags"):
        names = {"heads", "remotes", "tags"} if not folder else set()
        texts += _read_refs(git / "refs" / folder, names)
        if folder == "remotes":
            texts.append(read_regular_file(git / "packed-refs", MAX_REFS_BYTES) or b"")
    texts.append(read_regular_file(git / "logs/HEAD", MAX_REFLOG_BYTES) or b"")
    found = (name for text in texts for name in _ID.findall(text))
    return [bytes.fromhex(name.decode()) for name in dict.fromkeys(found)]


def _read_refs(top: Path, without: set[str]) -> list[bytes]:
    texts: list[bytes] = []
    for folder, names, files in os.walk(top):
        names[:] = [name for name in names if name not in without]
        texts += [read_regular_file(Path(folder) / file, 200) or b"" for file in files]
        if len(texts) > MAX_REF_FILES:
            break
    return texts


# ------------------------------------------------------------------ objects


class _ObjectReader:
    """Reads objects, loose and packed. What is damaged or too large is (b"", b"")."""

    def __init__(self, folder: Path) -> None:
        others = (read_regular_file(folder / "info/alternates", MAX_REFLOG_BYTES) or b"").split()
        self._folders = [folder, *(folder / os.fsdecode(other) for other in others)]
        self._packs: list[_Pack] = []

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Pack files are open only inside: a `git gc` replaces them."""
        with contextlib.ExitStack() as stack:
            indexes = [path for folder in self._folders for path in folder.glob("pack/*.idx")]
            self._packs = [pack for path in indexes if (pack := _open_pack(path, stack))]
            yield
        self._packs = []

    def has(self, name: bytes) -> bool:
        is_loose = any(path.exists() for path in self._list_loose(name))
        return is_loose or any(pack.find(name) is not None for pack in self._packs)

    def read(self, name: bytes) -> tuple[bytes, bytes]:
        """The type and the content of an object."""
        loose = [_read_loose(path) for path in self._list_loose(name)]
        for found in (*loose, *self._read_packed(name, 0)):
            if found is not None and hash_object(*found) == name:
                return found
        return b"", b""

    def _list_loose(self, name: bytes) -> list[Path]:
        text = name.hex()
        return [folder / text[:2] / text[2:] for folder in self._folders]

    def _read_packed(self, name: bytes, depth: int) -> Iterator[tuple[bytes, bytes]]:
        for pack in self._packs:
            offset = pack.find(name)
            found = None if offset is None else self._read_at(pack, offset, depth)
            if found is not None:
                yield found

    def _read_at(self, pack: _Pack, offset: int, depth: int) -> tuple[bytes, bytes] | None:
        if depth > MAX_DELTA_DEPTH:
            return None
        try:
            kind, size, at = pack.read_header(offset)
            if kind in _TYPES:
                return _TYPES[kind], pack.inflate(at, size)
            if kind == _OFFSET_DELTA:
                distance, at = pack.read_distance(at)
                base = self._read_at(pack, offset - distance, depth + 1)
            elif kind == _NAMED_DELTA:
                base = next(self._read_packed(pack.read(at, 20), depth + 1), None)
                at += 20
            else:
                return None
            return (
                None if base is None else (base[0], _apply_delta(base[1], pack.inflate(at, size)))
            )
        except (OSError, ValueError, IndexError, zlib.error):
            return None


def _read_loose(path: Path) -> tuple[bytes, bytes] | None:
    data = read_regular_file(path, MAX_OBJECT_BYTES)
    if data is None:
        return None
    try:
        head, _, body = zlib.decompressobj().decompress(data, MAX_OBJECT_BYTES).partition(b"\0")
    except zlib.error:
        return None
    return head.partition(b" ")[0], body


class _Pack:
    """A pack file and its index of version 2. Read piece by piece, not mapped: a command may
    shorten the file."""

    def __init__(self, index: int, data: int) -> None:
        self._index, self._data = index, data
        table = os.pread(index, 1032, 0)
        if table[:8] != b"\xfftOc\0\0\0\x02" or len(table) < 1032:
            raise ValueError("not an index of version 2")
        self._table = [int.from_bytes(table[at : at + 4]) for at in range(8, 1032, 4)]

    def find(self, name: bytes) -> int | None:
        """Where an object begins in the pack."""
        low, high = (self._table[name[0] - 1] if name[0] else 0), self._table[name[0]]
        while low < high:
            middle = (low + high) // 2
            found = os.pread(self._index, 20, 1032 + middle * 20)
            if found == name:
                return self._read_offset(middle)
            low, high = (middle + 1, high) if found < name else (low, middle)
        return None

    def _read_offset(self, number: int) -> int:
        total = self._table[255]
        at = 1032 + total * 24
        offset = int.from_bytes(os.pread(self._index, 4, at + number * 4))
        if offset >> 31:
            large = at + total * 4 + (offset & 0x7FFFFFFF) * 8
            offset = int.from_bytes(os.pread(self._index, 8, large))
        return offset

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._data, size, at)

    def read_header(self, at: int) -> tuple[int, int, int]:
        """The type and the size of an object, and where its data begins."""
        data = self.read(at, 16)
        kind, size, shift, used = (data[0] >> 4) & 7, data[0] & 15, 4, 1
        while data[used - 1] & 0x80:
            size |= (data[used] & 0x7F) << shift
            shift, used = shift + 7, used + 1
        return kind, size, at + used

    def read_distance(self, at: int) -> tuple[int, int]:
        data = self.read(at, 16)
        distance, used = data[0] & 0x7F, 1
        while data[used - 1] & 0x80:
            distance = ((distance + 1) << 7) | (data[used] & 0x7F)
            used += 1
        return distance, at + used

    def inflate(self, at: int, size: int) -> bytes:
        if size > MAX_OBJECT_BYTES:
            raise ValueError("too large")
        inflater, out = zlib.decompressobj(), b""
        while len(out) < size and not inflater.eof:
            piece = self.read(at, size + 4096)
            if not piece:
                break
            at += len(piece)
            out += inflater.decompress(piece, size - len(out))
        return out


def _open_pack(index: Path, stack: contextlib.ExitStack) -> _Pack | None:
    try:
        fds = []
        for path in (index, index.with_suffix(".pack")):
            fds.append(os.open(path, READ_FLAGS))
            stack.callback(os.close, fds[-1])
            if not stat.S_ISREG(os.fstat(fds[-1]).st_mode):
                return None
        return _Pack(*fds)
    except (OSError, ValueError):
        return None


def _apply_delta(base: bytes, delta: bytes) -> bytes:
    """The object that a delta makes of another one."""
    at = _skip_number(delta, _skip_number(delta, 0))
    out = bytearray()
    while at < len(delta):
        command = delta[at]
        at += 1
        if command & 0x80:
            offset = size = 0
            for bit in range(4):
                if command >> bit & 1:
                    offset |= delta[at] << (8 * bit)
                    at += 1
            for bit in range(3):
                if command >> (4 + bit) & 1:
                    size |= delta[at] << (8 * bit)
                    at += 1
            out += base[offset : offset + (size or 0x10000)]
        else:
            out += delta[at : at + command]
            at += command
        if not command or len(out) > MAX_OBJECT_BYTES:
            raise ValueError("not a delta")
    return bytes(out)


def _skip_number(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1
