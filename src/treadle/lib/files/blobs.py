"""Contents in files that are named by their SHA-256: the same content is stored once.

A missing or damaged one is detected when it is read. Sessions keep what is too long for a line of
their log in them.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from treadle.lib.files.file_system import Files, write_all


class Blobs:
    """The blobs of one folder."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files
        self._durable_names: set[str] = set()  # stored by this process, with their folders synced

    def path(self, name: str) -> Path:
        return self._directory / name[:2] / name

    def put(self, data: bytes) -> str:
        """Store the content durably, all or nothing; returns its name."""
        name = hashlib.sha256(data).hexdigest()
        if name in self._durable_names and self.path(name).is_file():
            return name
        if self.get(name) is None:
            self._write(self.path(name), data)
        # Also if the file was there: the sync of its folder may have failed before.
        for folder in (self.path(name).parent, self._directory, self._directory.parent):
            self._files.sync_folder(folder)
        self._durable_names.add(name)
        return name

    def _write(self, path: Path, data: bytes) -> None:
        files, name = self._files, path.name
        files.make_folder(path.parent)
        draft = path.with_name(f".{name}.{os.urandom(4).hex()}")
        try:
            fd = files.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                write_all(files, fd, data)
                files.sync(fd)
            finally:
                files.close(fd)
            files.rename(draft, path)
        except OSError:
            files.unlink(draft)
            raise

    def get(self, name: str) -> bytes | None:
        """The content, or None if it is missing or damaged."""
        try:
            data = self.path(name).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == name else None
