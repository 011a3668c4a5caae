"""Contents by hash, in files: each content is stored once.

Folders are objects too (the list of their entries), so a tree is named by one hash, and trees
share equal parts. Readable only by the user; written atomically.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from treadle.lib.files.private_files import make_private_folder

# left, ignored: it existed, but its content is not stored. A version that stored no ignored entry
# also stored no mode of a folder (0).
NodeKind = Literal["file", "link", "folder", "left", "ignored"]


class TreeNode(msgspec.Struct, frozen=True, array_like=True):
    """One entry of a folder: its kind, its permissions, and the hash of its content."""

    name: str
    kind: NodeKind
    mode: int
    hash: str


class ObjectStore:
    """The contents of the checkpoints of a folder, which are in `checkpoint_dir`."""

    def __init__(self, checkpoint_dir: Path) -> None:
        self._root = checkpoint_dir / "objects"
        self._known: set[str] = set()

    def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()[:40]
        if name in self._known:
            return name
        path = self._path(name)
        if not path.exists():
            make_private_folder(path.parent)
            draft = path.with_name(f".{name}.{secrets.token_hex(4)}")
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(zlib.compress(data, 1))
                draft.replace(path)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        self._known.add(name)
        return name

    def get(self, name: str) -> bytes:
        """The content; OSError if it is missing, ValueError if it does not match its hash."""
        try:
            data = zlib.decompress(self._path(name).read_bytes())
        except zlib.error as error:
            raise ValueError(f"object {name} is damaged: {error}") from error
        if hashlib.sha256(data).hexdigest()[:40] != name:
            raise ValueError(f"object {name} is damaged: its content has changed")
        return data

    def put_folder(self, nodes: Iterable[TreeNode]) -> str:
        # Python's json keeps names that are not valid UTF-8 as escapes; msgspec does not.
        return self.put(json.dumps([msgspec.to_builtins(node) for node in nodes]).encode())

    def get_folder(self, name: str) -> list[TreeNode]:
        return msgspec.convert(json.loads(self.get(name)), list[TreeNode])

    def find_files(self, trees: Iterable[str]) -> dict[str, Path]:
        """The files of all contents that these trees need, by their names."""
        paths = {name: self._path(name) for name in self._find_needed(trees)}
        return {name: path for name, path in paths.items() if path.is_file()}

    def _find_needed(self, trees: Iterable[str]) -> set[str]:
        needed: set[str] = set()
        left = list(trees)
        while left:
            name = left.pop()
            if name in needed:
                continue
            needed.add(name)
            try:
                nodes = self.get_folder(name)
            except (OSError, ValueError):
                continue
            needed.update(node.hash for node in nodes if node.kind != "folder")
            left += [node.hash for node in nodes if node.kind == "folder"]
        return needed

    def adopt(self, files: Iterable[Path]) -> None:
        """Move files of another store here. None is replaced: its name is its hash."""
        for file in files:
            path = self._path(file.name)
            make_private_folder(path.parent)
            if not path.exists():
                file.rename(path)

    def prune(self, trees: Iterable[str]) -> int:
        """Remove what none of these trees needs; returns the bytes freed."""
        needed, freed = self._find_needed(trees), 0
        for path in self._root.glob("??/*"):
            if path.name not in needed:
                freed += path.stat().st_size
                path.unlink(missing_ok=True)
        return freed

    def forget(self) -> None:
        """Another program may remove contents from now on."""
        self._known.clear()

    def _path(self, name: str) -> Path:
        return self._root / name[:2] / name
