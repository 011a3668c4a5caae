"""The Unix sockets of the host that a sandboxed command could see, such as one below /opt.

A socket is reached by its path, whatever the network namespace is, and a read-only mount does not
prevent it. Used by `bubblewrap.py`, which hides them. Sockets in the workspace are found by
`tree_scan.py`: some of them belong to commands.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path


def list_host_sockets(is_visible: Callable[[str], bool]) -> list[str]:
    """The paths of bound sockets that exist and are visible inside."""
    try:
        lines = Path("/proc/net/unix").read_bytes().splitlines()[1:]
    except OSError:
        return []
    named = {os.fsdecode(line.split(None, 7)[7]) for line in lines if b" /" in line}
    visible = {path for path in map(os.path.realpath, named) if is_visible(path)}
    return sorted(filter(_is_socket, visible))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
