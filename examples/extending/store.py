"""A store of your own: a file of lines for each session."""

import asyncio
import os
import threading
from pathlib import Path

from treadle import Agent
from treadle.contracts import Entry, StoreError, decode_entry, encode_entry
from treadle.models import Scripted


class LineStore:
    def __init__(self, path: Path) -> None:
        self.session_id, self._path = path.stem, path
        self.write_error: StoreError | None = None
        self._queue, self._lock = list[bytes](), threading.Lock()
        path.touch(mode=0o600)
        self._size = path.read_bytes().rfind(b"\n") + 1  # a crash may leave half a line: no entry

    @property
    def is_empty(self) -> bool:
        return not self._size and not self._queue

    def append(self, entry: Entry) -> None:
        try:
            self._queue.append(encode_entry(entry) + b"\n")
        except (TypeError, ValueError) as error:
            raise StoreError(f"{type(entry).__name__} cannot be stored: {error}") from error

    async def flush(self) -> None:
        await asyncio.shield(asyncio.to_thread(self._write))  # a cancelled flush writes all

    def _write(self) -> None:
        with self._lock:
            data = b"".join(batch := tuple(self._queue))
            try:
                with self._path.open("r+b") as file:
                    file.seek(self._size)  # over what a failed write left
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:  # the queue stays: the same entries can be flushed again
                self.write_error = StoreError(f"{self._path}: {error.strerror}")
                raise self.write_error from error
            self.write_error, self._size = None, self._size + len(data)
            del self._queue[: len(batch)]

    async def load(self) -> list[Entry]:
        data = await asyncio.to_thread(self._path.read_bytes)
        return [decode_entry(line) for line in data[: self._size].splitlines()]

    async def aclose(self) -> None:
        await self.flush()


if __name__ == "__main__":
    agent = Agent(Scripted(["Hi, Ada."]), store=lambda name: LineStore(Path(f"{name}.jsonl")))
    print(agent.run_sync("I am Ada.", session="ada").text)
