"""The seam to the system: what Linux has and other systems do not, with what is used instead there;
small files, and the messages of the fork server's sockets.

Imports only modules that are built in or small, because imports are start-up time. Where the
workspace differs from system to system it asks `IS_LINUX`; process_tree.py has the processes.
"""

import ctypes
import errno
import fcntl
import marshal
import os
import sys

IS_LINUX = sys.platform == "linux"
O_PATH: int = getattr(os, "O_PATH", os.O_RDONLY)  # elsewhere a folder has to be readable
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SYS_LANDLOCK_RESTRICT_SELF = 446
LENGTH_BYTES = 4
F_GETPATH = 50  # of macOS
AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
STATX_BTIME = 0x800
STATX_BYTES, BTIME_AT = 256, 80  # struct statx, and the place of stx_btime in it
PIPE_BYTES = 1 << 16  # of a pipe whose size cannot be asked

libc = ctypes.CDLL(None, use_errno=True)


def call_linux(number: int, *arguments: object) -> int:
    """A system call of Linux by its number; elsewhere -1 with ENOSYS."""
    if not IS_LINUX:
        ctypes.set_errno(errno.ENOSYS)
        return -1
    return int(libc.syscall(number, *arguments))


def set_process_option(option: int, value: "int | bytes") -> None:
    """prctl; elsewhere nothing. What then is missing: a supervisor that is killed leaves its
    command running, and orphans are found by their process group (process_tree.py)."""
    if IS_LINUX:
        libc.prctl(option, value, 0, 0, 0)


def raise_on_error(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def restrict_to_ruleset(ruleset: int) -> None:
    raise_on_error(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    raise_on_error(call_linux(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0))


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def open_memory_file(name: str, data: bytes) -> int:
    """A descriptor from which the data can be read; closed by the caller."""
    if IS_LINUX:
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        import tempfile

        fd, path = tempfile.mkstemp(prefix=name)
        os.unlink(path)  # noqa: PTH108 - as short as the rest
    write_all(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def find_path(fd: int) -> str:
    """A path that leads to what a descriptor has open."""
    if IS_LINUX:
        return f"/proc/self/fd/{fd}"
    return os.fsdecode(fcntl.fcntl(fd, F_GETPATH, bytes(1024)).rstrip(b"\0"))


def change_mode(fd: int, mode: int) -> None:
    """chmod of what is open, also with O_PATH."""
    if IS_LINUX:
        os.chmod(find_path(fd), mode)  # noqa: PTH101 - pathlib would double the start-up
    else:
        os.fchmod(fd, mode)


def is_born_before(path: str, time_ns: int) -> "bool | None":
    """Whether a file was created before a time; None if the system does not tell. No command can
    change that time, other than those of `os.stat`: what is older than the session was not made by
    one of its commands."""
    import struct

    buffer = ctypes.create_string_buffer(STATX_BYTES)
    try:
        result = libc.statx(AT_FDCWD, os.fsencode(path), AT_SYMLINK_NOFOLLOW, STATX_BTIME, buffer)
    except AttributeError:  # an old C library, or another system
        return None
    (mask,) = struct.unpack_from("=I", buffer)
    if result != 0 or not mask & STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, BTIME_AT)
    return bool(seconds * 1_000_000_000 + nanoseconds < time_ns)


def enlarge_pipe(fd: int, size: int) -> int:
    """Make the buffer of a pipe larger if that can be done; returns its size."""
    if not IS_LINUX:
        return PIPE_BYTES
    try:
        return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
    except OSError:  # past the user's pipe quota: a smaller pipe works too
        return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def encode_message(message: object) -> bytes:
    """A message for a stream: its length, then its bytes."""
    data = marshal.dumps(message)  # type: ignore[arg-type]  # importing typing takes 15 ms
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def take_messages(received: bytearray) -> "list[object]":
    """The whole messages at the start of what was received, which loses them."""
    found: list[object] = []
    while len(received) >= LENGTH_BYTES:
        end = LENGTH_BYTES + int.from_bytes(received[:LENGTH_BYTES], "little")
        if len(received) < end:
            break
        found.append(marshal.loads(received[LENGTH_BYTES:end]))
        del received[:end]
    return found


def send_message(control: int, message: tuple[object, ...]) -> None:
    write_all(control, encode_message(message))


def receive_message(control: int) -> object:
    """The next whole message, or None if the agent is gone."""
    length = read_exactly(control, LENGTH_BYTES)
    data = read_exactly(control, int.from_bytes(length, "little"))
    return marshal.loads(data) if data else None


def read_exactly(fd: int, size: int) -> bytes:
    """This many bytes; fewer if the other end is closed."""
    data = b""
    while len(data) < size:
        try:
            more = os.read(fd, size - len(data))
        except ConnectionResetError:
            return b""
        if not more:
            return b""
        data += more
    return data


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
