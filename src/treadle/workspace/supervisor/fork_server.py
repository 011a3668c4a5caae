"""The keeper's own loop: a supervisor that waits for the next call, until the agent is gone.

Started by `processes.py` with a socket on fd 0, over which only descriptors come. The waiting one
takes a call from there by itself and says so; the next is forked while the command already runs.
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
    libc,
    send_message,
    write_small_file,
)

CALL_TAKEN = b"\0"  # beside the numbers of signals, which are never 0
RETRY_MS, MAX_RETRIES = 50, 100  # where the system has no room for another process
SHUTDOWN_MS = 1000  # supervisors whose agent is gone have this long to end by themselves
MAX_STOPS = 8  # a supervisor that is stopped more often than this is ended with its command


class ForkServer:
    """Every supervisor of one agent: the one that waits, and those at work."""

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
        poll.register(self.listener.fileno(), 0)  # its end alone: what comes is not for us
        is_wanted, refused = True, 0
        while is_wanted or self.supervisors:
            if is_wanted and not self.idle_pid:
                try:
                    self.fork_supervisor()
                    refused = 0
                except OSError:
                    refused += 1
                    if refused > MAX_RETRIES:
                        return
            patience = (RETRY_MS if refused else None) if is_wanted else SHUTDOWN_MS
            ready = {fd for fd, _ in poll.poll(patience)}
            if not ready and not is_wanted:
                kill_descendants(os.getpid())
            if self.wake_fd in ready:
                if CALL_TAKEN in os.read(self.wake_fd, 4096):
                    self.idle_pid = 0
                self.reap()
            if self.listener.fileno() in ready:
                is_wanted = False
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
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            libc.prctl(PR_SET_NAME, b"treadle-call", 0, 0, 0)
            os.close(self.wake_fd)
            self.join_cgroup()
            fds = receive_descriptors(self.listener)
            # With a call it outlives the keeper, even one that was stopped before.
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)
            self.listener.close()
            if fds:
                control = fds[0]
                Supervisor(control, fds[1:], self.report_call_taken).serve()
        except Exception as error:  # noqa: BLE001 - nobody above could hear it
            kill_descendants(os.getpid())
            if control >= 0:
                send_message(control, ("failed", 0, f"watch over the command: {error!r}"))
        finally:
            os._exit(0)

    def report_call_taken(self) -> None:
        """In a supervisor: it has its command, somebody else has to wait for the next call."""
        os.write(self.wake_write_fd, CALL_TAKEN)
        os.close(self.wake_write_fd)

    def reap(self) -> None:
        """Collect dead supervisors. One that was killed leaves its command to us: it is ended."""
        is_bereaved = False
        while self.supervisors:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                self.resume_stopped(pid)
                continue
            is_bereaved |= status != 0 or pid not in self.supervisors
            self.supervisors.discard(pid)
            self.stop_counts.pop(pid, None)
            self.idle_pid = 0 if pid == self.idle_pid else self.idle_pid
        if is_bereaved:
            mine = read_process_table().get(os.getpid(), ())
            for pid in [pid for pid, _, _ in mine if pid not in self.supervisors]:
                kill_tree(pid)
        self.remove_cgroups()

    def resume_stopped(self, pid: int) -> None:
        """A stopped supervisor goes on: its command would be without limits and without end. One
        that is stopped again and again is ended with it."""
        self.stop_counts[pid] = self.stop_counts.get(pid, 0) + 1
        if pid in self.supervisors and self.stop_counts[pid] <= MAX_STOPS:
            signal_each([pid], signal.SIGCONT)
        else:
            kill_tree(pid)

    # A pids cgroup for each call. To join one takes the kernel up to some 10 ms, so it is done
    # while the supervisor waits; the command is born into it.

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
            pass  # as where there is none

    def remove_cgroups(self) -> None:
        """Remove the groups of the dead; one that is not empty yet, the next time."""
        for group in self.cgroups - {self.cgroup_of(pid) for pid in self.supervisors}:
            try:
                os.rmdir(group)  # noqa: PTH106 - as above
            except FileNotFoundError:
                pass
            except OSError:
                continue
            self.cgroups.discard(group)


def receive_descriptors(listener: "_socket.socket") -> list[int]:
    """Those of the next call; none when the agent is gone."""
    data, ancillary, _, _ = listener.recvmsg(16, 1024, 0x40000000)  # MSG_CMSG_CLOEXEC
    fds: list[int] = []
    for _, _, packed in ancillary if data else ():
        fds += memoryview(packed[: len(packed) // 4 * 4]).cast("i").tolist()
    return fds


def main() -> None:
    gc.disable()  # a collection would copy pages that every supervisor shares
    gc.freeze()
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # commands must not inherit what a nohup ignores
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_NAME, b"treadle-keeper", 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)  # even stopped it sees the agent's end
    ForkServer(_socket.socket(fileno=0), sys.argv[1], int(sys.argv[2])).serve()
