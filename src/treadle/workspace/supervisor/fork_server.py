"""The loop of the fork server: keeps one idle supervisor ready, until the agent is gone.

Started by `processes.py` with a socket on fd 0, which carries only descriptors. The idle
supervisor takes a call from it and reports that; the next one is forked while the command runs.
"""

import _socket
import gc
import os
import select
import signal
import sys

from .process_tree import kill_descendants, kill_tree, read_process_table, signal_each
from .supervisor import Supervisor
from .syscalls import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_NAME,
    PR_SET_PDEATHSIG,
    send_message,
    set_process_option,
    write_small_file,
)

CALL_TAKEN = b"\0"  # in the wakeup pipe, beside signal numbers, which are never 0
RETRY_MS, MAX_RETRIES = 50, 100  # if the system cannot fork another process
SHUTDOWN_MS = 20_000  # time for supervisors to clean up and exit after the agent is gone
MAX_STOPS = 8  # a supervisor that is stopped more often is killed with its command


class ForkServer:
    """All supervisors of one agent: the idle one, and those with a command."""

    def __init__(self, listener: "_socket.socket", cgroup: str, max_pids: int) -> None:
        self.listener, self.cgroup, self.max_pids = listener, cgroup, max_pids
        self.idle_pid = 0
        self.supervisors: set[int] = set()
        self.stop_counts: dict[int, int] = {}
        self.cgroups: set[str] = set()
        self.wake_fd, self.wake_write_fd = os.pipe()
        os.set_blocking(self.wake_write_fd, False)

    def serve(self) -> None:
        signal.set_wakeup_fd(self.wake_write_fd)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poll = select.poll()
        poll.register(self.wake_fd, select.POLLIN)
        poll.register(self.listener.fileno(), 0)  # only its end: the calls are for supervisors
        is_connected, failures = True, 0
        while is_connected or self.supervisors:
            if is_connected and not self.idle_pid:
                try:
                    self.fork_supervisor()
                    failures = 0
                except OSError:
                    failures += 1
                    if failures > MAX_RETRIES:
                        return
            timeout = (RETRY_MS if failures else None) if is_connected else SHUTDOWN_MS
            ready = {fd for fd, _ in poll.poll(timeout)}
            if not ready and not is_connected:
                kill_descendants(os.getpid())
            if self.wake_fd in ready:
                if CALL_TAKEN in os.read(self.wake_fd, 4096):
                    self.idle_pid = 0
                self.reap()
            if self.listener.fileno() in ready:
                is_connected = False
                poll.unregister(self.listener.fileno())

    def fork_supervisor(self) -> None:
        pid = os.fork()
        if pid:
            self.idle_pid = pid
            self.supervisors.add(pid)
            if self.cgroup:
                self.cgroups.add(self.cgroup_of(pid))
            return
        control = -1
        try:
            signal.set_wakeup_fd(-1)
            set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
            set_process_option(PR_SET_NAME, b"treadle-superv")
            os.close(self.wake_fd)
            self.join_cgroup()
            fds = receive_descriptors(self.listener)
            # With a call it outlives the fork server; a stopped one continues then.
            set_process_option(PR_SET_PDEATHSIG, signal.SIGCONT)
            self.listener.close()
            if fds:
                control = fds[0]
                Supervisor(control, fds[1:], self.report_call_taken).serve()
        except Exception as error:  # noqa: BLE001 - the process ends here; the agent gets it
            kill_descendants(os.getpid())
            if control >= 0:
                send_message(control, ("failed", 0, "supervise", repr(error)))
        finally:
            os._exit(0)

    def report_call_taken(self) -> None:
        """In a supervisor: it has its command; the fork server has to fork the next one."""
        os.write(self.wake_write_fd, CALL_TAKEN)
        os.close(self.wake_write_fd)

    def reap(self) -> None:
        """Collect dead supervisors. The command of one that was killed is killed here."""
        has_orphans = False
        while self.supervisors:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                self.resume_stopped(pid)
                continue
            has_orphans |= status != 0 or pid not in self.supervisors
            self.supervisors.discard(pid)
            self.stop_counts.pop(pid, None)
            self.idle_pid = 0 if pid == self.idle_pid else self.idle_pid
        if has_orphans:
            children = read_process_table().get(os.getpid(), ())
            for pid in [pid for pid, _, _ in children if pid not in self.supervisors]:
                kill_tree(pid)
        self.remove_cgroups()

    def resume_stopped(self, pid: int) -> None:
        """Continue a stopped supervisor: its command would have no limits. One that is stopped
        too often is killed with its command."""
        self.stop_counts[pid] = self.stop_counts.get(pid, 0) + 1
        if pid in self.supervisors and self.stop_counts[pid] <= MAX_STOPS:
            signal_each([pid], signal.SIGCONT)
        else:
            kill_tree(pid)

    # A pids cgroup for each call. Joining one takes up to 10 ms, so the idle supervisor does it;
    # the command inherits it.

    def cgroup_of(self, pid: int) -> str:
        return f"{self.cgroup}/treadle-{pid}"

    def join_cgroup(self) -> None:
        if not self.cgroup:
            return
        group = self.cgroup_of(os.getpid())
        try:
            os.mkdir(group)  # noqa: PTH102 - pathlib would double the start-up
            write_small_file(group + "/pids.max", str(self.max_pids + 1))
            write_small_file(group + "/cgroup.procs", "0")
        except OSError:
            pass  # continue without a cgroup

    def remove_cgroups(self) -> None:
        """Remove the groups of dead supervisors; one that is not empty yet, the next time."""
        for group in self.cgroups - {self.cgroup_of(pid) for pid in self.supervisors}:
            try:
                os.rmdir(group)  # noqa: PTH106 - as above
            except FileNotFoundError:
                pass
            except OSError:
                continue
            self.cgroups.discard(group)


def receive_descriptors(listener: "_socket.socket") -> list[int]:
    """The descriptors of the next call; none if the agent is gone. They come with one byte, and no
    more is read: the next byte of the stream is for the next supervisor."""
    data, ancillary, _, _ = listener.recvmsg(1, 1024)
    fds: list[int] = []
    for _, _, packed in ancillary if data else ():
        fds += memoryview(packed[: len(packed) // 4 * 4]).cast("i").tolist()
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds


def main() -> None:
    gc.disable()  # a collection would copy pages that all supervisors share
    gc.freeze()
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # commands must not inherit ignored signals
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)
    set_process_option(PR_SET_NAME, b"treadle-forksrv")
    # A stopped fork server must continue when the agent ends, to notice it.
    set_process_option(PR_SET_PDEATHSIG, signal.SIGCONT)
    ForkServer(_socket.socket(fileno=0), sys.argv[1], int(sys.argv[2])).serve()
