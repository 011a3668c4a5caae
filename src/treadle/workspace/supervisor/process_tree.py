"""Process trees as /proc shows them, and how to kill them.

Used by the supervisor for its command, by the fork server for the command of a killed supervisor,
and by the agent if both of them were stopped.
"""

import os
import signal

from .syscalls import read_small_file

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read_process_table() -> dict[int, list[tuple[int, str, str]]]:
    """Parent id to (id, state, name) of its children, for every process in /proc."""
    children_by_parent: dict[int, list[tuple[int, str, str]]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are wanted, not paths
        if not entry.isdigit():
            continue
        try:
            stat = read_small_file(f"/proc/{entry}/stat")
        except OSError:
            continue
        name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :]
        state, parent = rest.split(" ", 2)[:2]
        children_by_parent.setdefault(int(parent), []).append((int(entry), state, name))
    return children_by_parent


def list_descendants(root: int) -> list[tuple[int, str]]:
    """(id, name) of every living process below `root`, parents before their children."""
    children_by_parent, found, waiting = read_process_table(), [], [root]
    while waiting:
        for pid, state, name in children_by_parent.get(waiting.pop(0), ()):
            waiting.append(pid)
            if state not in "ZX":
                found.append((pid, name))
    return found


def measure_memory(root: int) -> int:
    """Bytes of memory that the processes below `root` do not share with others."""
    pages = 0
    for pid, _ in list_descendants(root):
        try:
            resident, shared = read_small_file(f"/proc/{pid}/statm").split()[1:3]
        except (OSError, ValueError):
            continue  # it has just ended
        pages += int(resident) - int(shared)
    return pages * PAGE_BYTES


def signal_each(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def kill_descendants(root: int) -> None:
    """SIGKILL to every descendant. All are stopped first: a stopped tree cannot fork away."""
    stopped: set[int] = set()
    while fresh := [pid for pid, _ in list_descendants(root) if pid not in stopped]:
        signal_each(fresh, signal.SIGSTOP)
        stopped.update(fresh)
    signal_each(list(stopped), signal.SIGKILL)


def kill_tree(root: int) -> None:
    """SIGKILL to a process and every descendant."""
    kill_descendants(root)
    signal_each([root], signal.SIGKILL)


def kill_stopped_supervisors(fork_server_pid: int, supervisor_pid: int) -> None:
    """Kill the supervisors that are stopped or traced, with their descendants: those of the fork
    server, and this one, whatever its parent is now."""
    for parent, children in read_process_table().items():
        for pid, state, _ in children:
            if state in "Tt" and (parent == fork_server_pid or pid == supervisor_pid):
                kill_tree(pid)
