"""One call: start the command, spool its output, end its tree, tell how it went.

Forked by the keeper (fork_server.py) and obeying the agent over its control socket. Whatever happens
to the agent, to the command or to this very process, nothing of the command stays.
"""

import fcntl
import os
import resource
import select
import signal
import time

from .output_buffer import OutputBuffer
from .process_tree import kill_descendants, list_descendants, read_process_table, signal_each
from .syscalls import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    count_oom_kills,
    libc,
    receive_message,
    restrict_to_ruleset,
    send_message,
    write_small_file,
)

TYPE_CHECKING = False  # importing typing takes 15 ms
if TYPE_CHECKING:
    from collections.abc import Callable

PROGRESS_INTERVAL = 0.1
FIRST_FREE_FD = 200  # descriptors from here on are nobody's: none is passed to a command
STRAY_GRACE = 0.1  # what a finished command left running gets TERM, then this long, then KILL
KILL_LIMIT = 5.0  # a process in uninterruptible sleep cannot be waited for longer than this


class Supervisor:
    """One call: start the command, spool its output, end its tree, tell how it went."""

    def __init__(self, control: int, fds: list[int], on_call_taken: "Callable[[], None]") -> None:
        self.control, self.fds, self.on_call_taken = control, fds, on_call_taken
        self.output_buffer: OutputBuffer | None = None
        self.status: int | None = None
        self.timed_out = self.killed = self.orphaned = False
        self.kill_at: float | None = None
        self.reported_at, self.reported_total = 0.0, 0

    def serve(self) -> None:
        request = receive_message(self.control)
        if not isinstance(request, dict):
            return
        self.request = request
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.oom_before = count_oom_kills()
        self.wake_fd, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self.wake_fd, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        problem = self.start()
        if problem:
            send_message(self.control, ("failed", *problem))
            return
        send_message(self.control, ("started", self.main_pid, os.getpid()))
        self.watch()
        self.finish()

    # Starting

    def start(self) -> tuple[int, str] | None:
        """Fork and exec the command; (errno, what was tried) when that failed."""
        request = self.request
        outputs: list[tuple[int, int]] = []  # (child's fd, write end)
        if request["spooled"]:
            reading, writing = os.pipe()
            try:
                fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 1 << 20)
            except OSError:
                pass  # past the user's pipe quota: a narrow pipe does as well
            outputs += [(1, writing), (2, writing)]
            names = ("head", "tail", "side", "cap", "always", "secrets")
            self.output_buffer = OutputBuffer(reading, *(request[name] for name in names))
        self.trailer_fd, trailer_write = os.pipe()
        outputs.append((request["trailer"], trailer_write))
        failed, failed_write = os.pipe()
        self.main_pid = os.fork()
        if self.main_pid == 0:
            self.exec_command(outputs, failed_write)
        self.on_call_taken()
        for fd in {failed_write, *(fd for _, fd in outputs), *self.fds}:
            os.close(fd)
        problem = os.read(failed, 4096)
        os.close(failed)
        self.deadline = time.monotonic() + request["timeout"] if request["timeout"] else None
        if problem:
            os.waitpid(self.main_pid, 0)
            number, _, what = problem.decode(errors="replace").partition(" ")
            return int(number), what
        return None

    def exec_command(self, outputs: list[tuple[int, int]], error_fd: int) -> None:
        """In the child: shed what is the agent's, take on the limits, exec. Never returns."""
        request, step = self.request, "set up"
        try:
            os.setsid()
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            step = "enter " + request["cwd"]
            os.chdir(request["cwd"])
            step = "limit"
            self.apply_limits()
            step = "pass descriptors"
            given = [(n, self.fds[i]) for n, i in request["pass"]]
            moved = [
                (n, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD))
                for n, fd in given + outputs
            ]
            error_fd = fcntl.fcntl(error_fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD)
            for target, source in moved:
                os.dup2(source, target)
            if request["landlock"] is not None:
                step = "restrict"
                restrict_to_ruleset(self.fds[request["landlock"]])
            step = "run " + request["argv"][0]
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except OSError as error:
            os.write(error_fd, f"{error.errno} {step}".encode())
        except BaseException as error:  # noqa: BLE001 - this child must not live on as a copy of us
            os.write(error_fd, f"0 {step}: {error!r}".encode())
        os._exit(127)

    def apply_limits(self) -> None:
        if self.request["nproc"]:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            most = self.request["nproc"]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        try:
            # Short of memory, the kernel is to take the command before the agent.
            write_small_file("/proc/self/oom_score_adj", "500")
        except OSError:
            pass

    # Watching

    def watch(self) -> None:
        """Until the command is over: the shell, or the whole tree for one that may linger."""
        while not self.is_over():
            self.poll_once(self.next_timeout())
            now = time.monotonic()
            if self.deadline is not None and now >= self.deadline:
                self.timed_out, self.deadline = True, None
                self.terminate()
            if self.kill_at is not None and now >= self.kill_at:
                self.kill()

    def is_over(self) -> bool:
        alive = self.reap()
        return self.status is not None and not (alive and self.request["linger"])

    def next_timeout(self) -> float | None:
        times = [t for t in (self.deadline, self.kill_at) if t is not None]
        if self.reported_total < self.output_total():
            times.append(self.reported_at + PROGRESS_INTERVAL)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def poll_once(self, timeout: float | None) -> None:
        """Wait for output, the agent or a dead child, and deal with what came."""
        poll = select.poll()
        poll.register(self.wake_fd, select.POLLIN)
        if not self.orphaned:
            poll.register(self.control, select.POLLIN)
        spool = self.output_buffer
        if spool is not None and spool.is_open:
            poll.register(spool.fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000 + 1)}
        if self.wake_fd in ready:
            os.read(self.wake_fd, 4096)
        if spool is not None and spool.fd in ready:
            spool.read_available()
        if self.control in ready:
            self.handle_command()
        self.report_progress()

    def handle_command(self) -> None:
        match receive_message(self.control):
            case None:  # the agent is gone, or wants nothing more of this call
                self.orphaned = True
                self.kill()
            case ("kill",):
                self.kill()
            case ("terminate",):
                self.terminate()

    def output_total(self) -> int:
        return 0 if self.output_buffer is None else self.output_buffer.total

    def report_progress(self) -> None:
        """Progress, at most ten times a second; dropped when the agent is not reading."""
        total, now = self.output_total(), time.monotonic()
        if not self.request["progress"] or self.orphaned:
            self.reported_total = total
        if self.output_buffer is None or total == self.reported_total:
            return
        if now < self.reported_at + PROGRESS_INTERVAL:
            return
        fresh = self.output_buffer.latest()[-(total - self.reported_total) :]
        self.reported_at, self.reported_total = now, total
        os.set_blocking(self.control, False)
        try:
            send_message(self.control, ("output", total, fresh))
        except OSError:
            pass
        os.set_blocking(self.control, True)

    def reap(self) -> bool:
        """Collect the dead; True while children live."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.main_pid:
                self.status = status

    # Ending

    def terminate(self) -> None:
        """TERM now, KILL after the grace. Under bubblewrap its two own processes are spared:
        their end would be a KILL for everything inside, with no grace at all."""
        families = read_process_table()
        inner = {pid for pid, _, _ in families.get(self.main_pid, ())}
        spared = {self.main_pid, *inner} if self.request["wrapped"] else set()
        below = [pid for pid, _ in list_descendants(os.getpid()) if pid not in spared]
        signal_each(below, signal.SIGTERM)
        signal_each(below, signal.SIGCONT)
        self.kill_at = time.monotonic() + self.request["grace"]

    def kill(self) -> None:
        self.killed, self.kill_at, self.deadline = True, None, None
        kill_descendants(os.getpid())

    def finish(self) -> None:
        left = self.kill_strays() if self.reap() else []
        until = time.monotonic() + STRAY_GRACE
        spool = self.output_buffer
        if spool is not None:  # a holder outside the tree may write for ever
            while spool.is_open and spool.read_available() and time.monotonic() < until:
                pass
        os.set_blocking(self.trailer_fd, False)
        try:
            trailer = os.read(self.trailer_fd, 8192)
        except BlockingIOError:
            trailer = b""
        status = self.status or 0
        suspicious = os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 137
        outcome = {
            "status": status,
            "timed_out": self.timed_out,
            "killed": self.killed,
            "out_of_memory": suspicious and not self.killed and count_oom_kills() > self.oom_before,
            "trailer": trailer,
            "left": left,
            "stream": {} if spool is None else spool.report(),
        }
        if not self.orphaned:
            send_message(self.control, ("exited", outcome))

    def kill_strays(self) -> list[str]:
        """End what the command left behind; the names of what had to be ended."""
        left: list[str] = []
        if self.request["wrapped"]:
            self.wait_children(time.monotonic() + STRAY_GRACE)  # the kernel is ending them all
        elif not self.killed:
            left = [name for _, name in list_descendants(os.getpid())]
            self.terminate()
            grace = self.request["grace"] if self.timed_out else STRAY_GRACE
            self.wait_children(time.monotonic() + grace)
        until = time.monotonic() + KILL_LIMIT
        while self.reap() and time.monotonic() < until:
            kill_descendants(os.getpid())
            self.wait_children(time.monotonic() + 0.05)
        return left

    def wait_children(self, until: float) -> None:
        while self.reap() and (now := time.monotonic()) < until and not self.orphaned:
            self.poll_once(until - now)
