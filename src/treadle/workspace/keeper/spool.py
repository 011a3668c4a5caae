"""What a command prints, in bounded memory, and without the values that are to stay unknown.

Above it stands the supervisor, which calls `pump` when there is something to read.
"""

import ctypes
import os

from .kernel import libc

CHUNK = 1 << 18
PROGRESS_BYTES = 8192
REDACTED = b"[redacted]"

memmem = libc.memmem
memmem.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
memmem.restype = ctypes.c_void_p


class Spool:
    """One output stream: its head and tail in memory, the whole in a side file up to a cap."""

    def __init__(
        self,
        fd: int,
        head: int,
        tail: int,
        path: str,
        cap: int,
        always: bool,
        secrets: "list[bytes]",
    ) -> None:
        self.fd, self.head_size, self.tail_size = fd, head, tail
        self.path, self.cap, self.always = path, cap, always
        self.veil = Veil(secrets) if secrets else None
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
                self.keep(b"", last=True)
                return False
            self.keep(data)
        return True

    def keep(self, data: bytes, last: bool = False) -> None:
        if self.veil is not None:
            data = self.veiled(self.veil, data, last)
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

    def veiled(self, veil: "Veil", data: bytes, last: bool) -> bytes:
        """The data without the secrets. Of what only the tail could show, no more is looked at."""
        unseen = len(data) - 2 * self.tail_size - veil.longest
        if unseen <= 0 or not self.is_full:
            return veil.over(data, last)
        self.total += unseen + len(veil.held)
        veil.held = b""
        self.tail.clear()
        data = veil.over(data[unseen:], last)
        # A value that was cut in two here ends within the length of the longest.
        self.total += len(data[: veil.longest])
        return data[veil.longest :]

    @property
    def is_full(self) -> bool:
        """Whether everything but the tail has what it takes."""
        done = self.spilled >= self.cap if self.side >= 0 else not self.path
        return done and len(self.head) >= self.head_size

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
        if self.open:  # somebody may still write to it
            self.keep(b"", last=True)
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


class Veil:
    """Takes values out of a stream, wherever it was cut into pieces.

    What may be the beginning of a value is held back until it is known to be one or not, so never
    more than the longest value.
    """

    def __init__(self, secrets: "list[bytes]") -> None:
        self.secrets = sorted(secrets, key=len, reverse=True)
        self.longest = len(self.secrets[0])
        self.firsts = frozenset(secret[0] for secret in self.secrets)
        self.held = b""

    def over(self, data: bytes, last: bool = False) -> bytes:
        """What can be told now, without the values; all of it, if it is the last."""
        data = self.held + data if self.held else data
        told = len(data)
        if not last and not self.firsts.isdisjoint(data[1 - self.longest :]):
            # What begins before this place is whole: otherwise it would have begun earlier.
            told = min(begun(data, secret) for secret in self.secrets)
        if not any(holds(data, secret) for secret in self.secrets):
            self.held = data[told:]
            return data[:told]
        return self.cleaned(data, told)

    def cleaned(self, data: bytes, told: int) -> bytes:
        import re  # rarely needed, and it would double the keeper's start

        pieces, end = [], 0
        for found in re.finditer(b"|".join(map(re.escape, self.secrets)), data):
            if found.start() >= told:
                break
            pieces += [data[end : found.start()], REDACTED]
            end = found.end()
        told = max(told, end)
        self.held = data[told:]
        return b"".join([*pieces, data[end:told]])


def holds(data: bytes, secret: bytes) -> bool:
    # On outputs of many megabytes several times as fast as `in`.
    return memmem(data, len(data), secret, len(secret)) is not None


def begun(data: bytes, secret: bytes) -> int:
    """Where the value may have begun at the end of the data; the data's length if it has not."""
    start = data.find(secret[:1], max(0, len(data) - len(secret) + 1))
    while start >= 0 and not secret.startswith(data[start:]):
        start = data.find(secret[:1], start + 1)
    return len(data) if start < 0 else start
