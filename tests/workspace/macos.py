"""This system as macOS: what only Linux has is gone or fails. Run as a program it checks the
workspace there; the fork server of that workspace begins with `pretend`, too.

The sandbox is a `sandbox-exec` that writes down its profile and runs the command without one.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import errno
import fcntl
import io
import os
import socket
import subprocess
import sys
import tempfile
from typing import Any

GONE: dict[Any, str] = {
    os: "memfd_create pidfd_open O_PATH O_TMPFILE listxattr getxattr setxattr removexattr eventfd",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_OFD_SETLK F_OFD_SETLKW",
    socket: "MSG_CMSG_CLOEXEC",
}
GONE_FROM_C = ("prctl", "syscall", "statx")


def pretend() -> None:
    for module, names in GONE.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for module, name in (
        (os, "open"), (os, "listdir"), (os, "scandir"), (os, "stat"), (os, "readlink"),
        (io, "open"), (builtins, "open"),
    ):  # fmt: skip
        hide_proc(module, name)
    refuse_packets()
    really_load = ctypes.CDLL

    class Library(really_load):  # type: ignore[misc, valid-type]
        def __getattr__(self, name: str) -> Any:
            if name in GONE_FROM_C:
                raise AttributeError(name)
            return super().__getattr__(name)

    ctypes.CDLL = Library  # type: ignore[misc]
    sys.platform = "darwin"


def hide_proc(module: Any, name: str) -> None:
    really = getattr(module, name)

    def call(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return really(path, *arguments, **options)

    setattr(module, name, call)


def refuse_packets() -> None:
    really = socket.socketpair

    def socketpair(family: Any = None, type: Any = socket.SOCK_STREAM, proto: int = 0) -> Any:
        if type not in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))
        return really(family, type, proto)

    socket.socketpair = socketpair


def main(folder: str) -> None:
    pretend()
    from pathlib import Path

    from treadle.testing import check_workspace
    from treadle.workspace import processes
    from treadle.workspace.local import LocalWorkspace
    from treadle.workspace.options import WorkspaceOptions
    from treadle.workspace.sandbox.probe import find_leak

    *python, code = processes.FORK_SERVER
    here = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
    begun = f"{here}import macos; macos.pretend(); {code}"
    processes.FORK_SERVER = (*python, begun)  # type: ignore[assignment]
    folders = (Path(folder, str(number)) for number in range(100))

    async def make(sandbox: Any) -> LocalWorkspace:
        next_folder = next(folders)
        next_folder.mkdir()
        return await LocalWorkspace.open(next_folder, WorkspaceOptions(sandbox=sandbox))

    async def check() -> None:
        await check_workspace(lambda: make("off"))
        await check_workspace(lambda: make("required"))
        await check_tree(await make("off"))
        await check_leak(await make("required"))

    async def check_leak(workspace: LocalWorkspace) -> None:
        await workspace.prepare()
        leak = await find_leak(workspace)
        assert "wrote a file" in leak, "this sandbox confines nothing"
        assert "connected" in leak
        await workspace.aclose()

    async def check_tree(workspace: LocalWorkspace) -> None:
        nap = f"sleep {10**9 + os.getpid()}"
        done = await workspace.run(f"({nap} &); ({nap} &); echo over")
        assert done.output == "over\n", done
        assert not list_running(nap), "orphans of a command that ended are ended"
        running = await workspace.start(f"{nap} & {nap}")
        await running.kill()
        assert not list_running(nap), "a killed command leaves nothing"
        await workspace.aclose()

    asyncio.run(check())
    print("kept")


def list_running(command: str) -> list[str]:
    table = subprocess.run(["ps", "-axo", "stat=,args="], capture_output=True, text=True).stdout
    return [line for line in table.splitlines() if line.endswith(command) and line[0] != "Z"]


if __name__ == "__main__":
    tempfile.gettempdir()
    main(sys.argv[1])
