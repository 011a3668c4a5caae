"""A SnapshotStore in a folder, which several machines of a test share."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path


class FolderSnapshots:
    fleet_id = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put_blob(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, self._folder / key, data)

    async def get_blob(self, key: str) -> bytes | None:
        try:
            return await asyncio.to_thread((self._folder / key).read_bytes)
        except FileNotFoundError:
            return None

    def _put(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        partial.write_bytes(data)
        partial.rename(path)
