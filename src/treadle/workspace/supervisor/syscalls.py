"""System calls, small files and the packets of the fork server's sockets.

Imports only modules that are built in or small, because imports are start-up time. The rest of
the workspace uses `libc`, `raise_on_error` and the packets too.
"""

import ctypes
import marshal
import os

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SYS_LANDLOCK_RESTRICT_SELF = 446
PACKET_BYTES = 60_000

libc = ctypes.CDLL(None, use_errno=True)


def raise_on_error(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def restrict_to_ruleset(ruleset: int) -> None:
    raise_on_error(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    raise_on_error(libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def open_memory_file(name: str, data: bytes) -> int:
    """A descriptor from which the data can be read; closed by the caller."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def encode_packets(message: object) -> "list[bytes]":
    """A message as packets, each led by 0 (more follow) or 1 (last)."""
    data = marshal.dumps(message)  # type: ignore[arg-type]  # importing typing takes 15 ms
    starts = range(0, len(data), PACKET_BYTES)
    return [bytes([at == starts[-1]]) + data[at : at + PACKET_BYTES] for at in starts]


def send_message(control: int, message: tuple[object, ...]) -> None:
    for packet in encode_packets(message):
        os.write(control, packet)


def receive_message(control: int) -> object:
    """The next whole message, or None if the agent is gone."""
    data = b""
    while True:
        try:
            packet = os.read(control, PACKET_BYTES + 1)
        except ConnectionResetError:
            return None
        if not packet:
            return None
        data += packet[1:]
        if packet[0] == 1:
            return marshal.loads(data)


def read_small_file(path: str) -> str:
    """Without the buffers of open(), for speed: /proc is read while a command waits."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 16384).decode(errors="replace")
    finally:
        os.close(fd)


def write_small_file(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def count_oom_kills() -> int:
    try:
        _, found, rest = read_small_file("/proc/vmstat").partition("\noom_kill ")
    except OSError:
        return 0
    return int(rest.split()[0]) if found else 0
