"""What a command prints, in bounded memory.

Above it stands the supervisor, which calls `pump` when there is something to read.
"""

import os

CHUNK = 1 << 18
PROGRESS_BYTES = 8192


class Spool:
    """One output stream: its head and tail in memory, the whole in a side file up to a cap."""

    def __init__(self, fd: int, head: int, tail: int, path: str, cap: int, always: bool) -> None:
        self.fd, self.head_size, self.tail_size = fd, head, tail
        self.path, self.cap, self.always = path, cap, always
        self.head, self.tail = bytearray(), bytearray()
        self.total = self.spilled = 0
        self.side = -1
        self.open = True
        os.set_blocking(fd, False)

    def pump(self, rounds: int = 16) -> bool:
        """Read what is there; False when nothing more can be read now."""
        for _ in range(rounds):
            try:
                data = os.read(self.fd, CHUNK)
            except BlockingIOError:
                return False
            if not data:
                self.open = False
                return False
            self.keep(data)
        return True

    def keep(self, data: bytes) -> None:
        self.total += len(data)
        room = self.head_size - len(self.head)
        self.head += data[:room] if room > 0 else b""
        self.tail += data[room:] if room > 0 else data
        if self.side >= 0:
            self.spill(data)
        elif self.path and (self.always or self.total > self.head_size + self.tail_size):
            self.begin_spill()
        if len(self.tail) > 2 * self.tail_size:
            del self.tail[: -self.tail_size or None]

    def begin_spill(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            self.side = os.open(self.path, flags, 0o600)
        except OSError:
            self.path = ""
            return
        self.spill(bytes(self.head + self.tail))

    def spill(self, data: bytes) -> None:
        data = data[: max(0, self.cap - self.spilled)]
        try:
            while data:
                written = os.write(self.side, data)
                self.spilled += written
                data = data[written:]
        except OSError:
            self.cap = self.spilled  # a full disk ends the side file, never the command

    def report(self) -> dict[str, object]:
        tail = self.tail[-self.tail_size :] if self.tail_size else b""
        path = self.path if self.side >= 0 else ""
        return {
            "head": bytes(self.head),
            "tail": bytes(tail),
            "total": self.total,
            "path": path,
            "spilled": self.spilled,
        }

    def latest(self) -> bytes:
        return bytes((self.tail or self.head)[-PROGRESS_BYTES:])
