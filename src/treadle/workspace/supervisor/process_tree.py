"""Process trees as /proc shows them, or `ps` where there is none, and how to kill them.

Used by the supervisor for its command, by the fork server for the command of a killed supervisor,
and by the agent if both of them were stopped.
"""

import os
import signal

from .syscalls import IS_LINUX, read_small_file

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PS = ["/bin/ps", "-axo", "pid=,ppid=,pgid=,uid=,rss=,stat=,ucomm="]

known_groups: set[int] = set()  # process groups of our descendants, where orphans are not ours


def read_process_table() -> dict[int, list[tuple[int, str, str]]]:
    """Parent id to (id, state, name) of its children, for every process."""
    if not IS_LINUX:
        return adopt_orphans(run_ps())
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


def run_ps() -> list[tuple[int, int, int, int, int, str, str]]:
    """(id, parent, group, user, resident kilobytes, state, name) of every process."""
    reading, writing = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1)]
    pid = os.posix_spawn(PS[0], PS, {"PATH": "/usr/bin:/bin"}, file_actions=actions)
    os.close(writing)
    data = b""
    while more := os.read(reading, 1 << 16):
        data += more
    os.close(reading)
    os.waitpid(pid, 0)
    rows = [line.split(None, 6) for line in data.decode(errors="replace").splitlines()]
    found = [(*map(int, row[:5]), row[5][0], row[6]) for row in rows if len(row) == 7]
    return [row for row in found if row[0] != pid]  # type: ignore[misc]


def adopt_orphans(
    rows: "list[tuple[int, int, int, int, int, str, str]]",
) -> dict[int, list[tuple[int, str, str]]]:
    """The children of each process. Without a subreaper another process gets the orphans: one whose
    process group was seen below us is counted as our child."""
    children_by_parent: dict[int, list[tuple[int, str, str]]] = {}
    group_of = {pid: group for pid, _, group, _, _, _, _ in rows}
    ours = {pid for pid, group in group_of.items() if group in known_groups} | {os.getpid()}
    for pid, parent, group, _, _, state, name in rows:
        is_orphan = group in known_groups and parent not in ours
        children = children_by_parent.setdefault(os.getpid() if is_orphan else parent, [])
        children.append((pid, state, name))
    waiting = [os.getpid()]
    while waiting:
        below = [pid for pid, _, _ in children_by_parent.get(waiting.pop(), ())]
        known_groups.update(group_of[pid] for pid in below)
        waiting += below
    known_groups.discard(os.getpgrp())
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


def is_memory_exceeded(root: int, limit: int) -> bool:
    """Whether the processes below `root` use more than `limit` bytes: memory that they do not
    share with others, and memory files."""
    pids = [pid for pid, _ in list_descendants(root)]
    if not IS_LINUX:
        return sum(row[4] for row in run_ps() if row[0] in pids) * 1024 > limit
    private = 0
    for pid in pids:
        try:
            resident, shared = read_small_file(f"/proc/{pid}/statm").split()[1:3]
        except (OSError, ValueError):
            continue  # it has just ended
        private += (int(resident) - int(shared)) * PAGE_BYTES
    # The memory files of the whole system are known fast, those of some processes are not.
    if private + _read_kilobytes("/proc/meminfo", "Shmem:") <= limit:
        return private > limit
    mapped = sum(_read_kilobytes(f"/proc/{pid}/smaps_rollup", "Pss_Shmem:") for pid in pids)
    return private + max(mapped, _measure_open_memory_files(pids)) > limit


def _measure_open_memory_files(pids: "list[int]") -> int:
    """Bytes of the memory files (memfd) that processes have open; they need not be mapped."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - names are wanted
        except OSError:
            continue
        for descriptor in descriptors:
            path = f"/proc/{pid}/fd/{descriptor}"
            try:
                if os.readlink(path).startswith("/memfd:"):  # noqa: PTH115 - as above
                    status = os.stat(path)  # noqa: PTH116 - as above
                    sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
            except OSError:
                continue  # closed meanwhile
    return sum(sizes.values())


def _read_kilobytes(path: str, field: str) -> int:
    """The bytes that a line of a file in /proc says; 0 if there is none."""
    try:
        text = read_small_file(path)
        at = text.index(field) + len(field)
        return int(text[at:].split(None, 1)[0]) * 1024
    except (OSError, ValueError):
        return 0


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
