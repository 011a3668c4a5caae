"""The output of a command, in bounded memory, with secrets redacted.

Used by the supervisor, which calls `read_available` when there is something to read.
"""

import ctypes
import errno
import os

from .syscalls import libc

CHUNK_BYTES = 1 << 18
PROGRESS_BYTES = 8192
REDACTED = b"[redacted]"

memmem = libc.memmem
memmem.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
memmem.restype = ctypes.c_void_p


class OutputBuffer:
    """One output stream: its head and tail in memory, the whole in a file up to a limit."""

    def __init__(
        self,
        fd: int,
        head: int,
        tail: int,
        path: str,
        file_limit: int,
        always_file: bool,
        secrets: "list[bytes]",
    ) -> None:
        self.fd, self.head_size, self.tail_size = fd, head, tail
        self.path, self.file_limit, self.always_file = path, file_limit, always_file
        self.redactor = StreamRedactor(secrets) if secrets else None
        self.head, self.tail = bytearray(), bytearray()
        self.total = self.spilled = 0
        self.file_fd = -1
        self.is_open = True
        os.set_blocking(fd, False)

    def read_available(self, rounds: int = 16) -> bool:
        """Read what is available; False if nothing more can be read now."""
        for _ in range(rounds):
            try:
                data = os.read(self.fd, CHUNK_BYTES)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.EIO:  # the end of a terminal that no process has open
                    raise
                data = b""
            if not data:
                self.is_open = False
                self.append(b"", last=True)
                return False
            self.append(data)
        return True

    def append(self, data: bytes, last: bool = False) -> None:
        if self.redactor is not None:
            data = self.redact(self.redactor, data, last)
        self.total += len(data)
        room = self.head_size - len(self.head)
        self.head += data[:room] if room > 0 else b""
        self.tail += data[room:] if room > 0 else data
        if self.file_fd >= 0:
            self.write_file(data)
        elif self.path and (self.always_file or self.total > self.head_size + self.tail_size):
            self.open_file()
        if len(self.tail) > 2 * self.tail_size:
            del self.tail[: -self.tail_size or None]

    def redact(self, redactor: "StreamRedactor", data: bytes, last: bool) -> bytes:
        """The data without the secrets. Data that will not be shown is skipped, not searched."""
        skipped = len(data) - 2 * self.tail_size - redactor.longest
        if skipped <= 0 or not self.is_full:
            return redactor.redact(data, last)
        self.total += skipped + len(redactor.held)
        redactor.held = b""
        self.tail.clear()
        data = redactor.redact(data[skipped:], last)
        # A secret that was cut in two here ends within the length of the longest.
        self.total += len(data[: redactor.longest])
        return data[redactor.longest :]

    @property
    def is_full(self) -> bool:
        """Whether only the tail still needs data."""
        done = self.spilled >= self.file_limit if self.file_fd >= 0 else not self.path
        return done and len(self.head) >= self.head_size

    def open_file(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            self.file_fd = os.open(self.path, flags, 0o600)
        except OSError:
            self.path = ""
            return
        self.write_file(bytes(self.head + self.tail))

    def write_file(self, data: bytes) -> None:
        data = data[: max(0, self.file_limit - self.spilled)]
        try:
            while data:
                written = os.write(self.file_fd, data)
                self.spilled += written
                data = data[written:]
        except OSError:
            self.file_limit = self.spilled  # a full disk ends the file, never the command

    def report(self) -> dict[str, object]:
        if self.is_open:  # a process may still hold the pipe
            self.append(b"", last=True)
        tail = self.tail[-self.tail_size :] if self.tail_size else b""
        path = self.path if self.file_fd >= 0 else ""
        return {
            "head": bytes(self.head),
            "tail": bytes(tail),
            "total": self.total,
            "path": path,
            "spilled": self.spilled,
        }

    def latest(self) -> bytes:
        return bytes((self.tail or self.head)[-PROGRESS_BYTES:])


class StreamRedactor:
    """Redacts secrets in a stream, also where a read cut one in two.

    What may be the beginning of a secret is held back until that is known: never more than the
    longest secret.
    """

    def __init__(self, secrets: "list[bytes]") -> None:
        self.secrets = sorted(secrets, key=len, reverse=True)
        self.longest = len(self.secrets[0])
        self.first_bytes = frozenset(secret[0] for secret in self.secrets)
        self.held = b""

    def redact(self, data: bytes, last: bool = False) -> bytes:
        """The data that is ready, redacted; all of it if it is the last."""
        data = self.held + data if self.held else data
        ready = len(data)
        if not last and not self.first_bytes.isdisjoint(data[1 - self.longest :]):
            # A secret that begins before this position is complete.
            ready = min(find_partial_start(data, secret) for secret in self.secrets)
        if not any(contains(data, secret) for secret in self.secrets):
            self.held = data[ready:]
            return data[:ready]
        return self.replace_secrets(data, ready)

    def replace_secrets(self, data: bytes, ready: int) -> bytes:
        import re  # rarely needed, and it would double the start-up time of the fork server

        pieces, end = [], 0
        for found in re.finditer(b"|".join(map(re.escape, self.secrets)), data):
            if found.start() >= ready:
                break
            pieces += [data[end : found.start()], REDACTED]
            end = found.end()
        ready = max(ready, end)
        self.held = data[ready:]
        return b"".join([*pieces, data[end:ready]])


def contains(data: bytes, secret: bytes) -> bool:
    # For outputs of many megabytes several times as fast as `in`.
    return memmem(data, len(data), secret, len(secret)) is not None


def find_partial_start(data: bytes, secret: bytes) -> int:
    """Where the secret may begin at the end of the data; the data's length if it does not."""
    start = data.find(secret[:1], max(0, len(data) - len(secret) + 1))
    while start >= 0 and not secret.startswith(data[start:]):
        start = data.find(secret[:1], start + 1)
    return len(data) if start < 0 else start
