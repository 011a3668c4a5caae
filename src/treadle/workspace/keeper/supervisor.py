"""One call: start the command, spool its output, end its tree, tell how it went.

Forked by the keeper (program.py) and obeying the agent over its control socket. Whatever happens
to the agent, to the command or to this very process, nothing of the command stays.
"""

import fcntl
import os
import resource
import select
import signal
import time

from .kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    libc,
    oom_kills,
    receive,
    restrict_to_ruleset,
    send,
    write_small,
)
from .spool import Spool
from .trees import children_of_all, descendants, kill_below, signal_each

TYPE_CHECKING = False  # importing typing takes 15 ms
if TYPE_CHECKING:
    from collections.abc import Callable

PROGRESS_EVERY = 0.1
FREE = 200  # descriptors from here on are nobody's: none is passed to a command
STRAY_GRACE = 0.1  # what a finished command left running gets TERM, then this long, then KILL
KILL_LIMIT = 5.0  # a process in uninterruptible sleep cannot be waited for longer than this


class Supervisor:
    """One call: start the command, spool its output, end its tree, tell how it went."""

    def __init__(self, control: int, fds: list[int], begun: "Callable[[], None]") -> None:
        self.control, self.fds, self.begun = control, fds, begun
        self.spool: Spool | None = None
        self.status: int | None = None
        self.timed_out = self.killed = self.orphaned = False
        self.kill_at: float | None = None
        self.told_at, self.told_total = 0.0, 0

    def serve(self) -> None:
        request = receive(self.control)
        if not isinstance(request, dict):
            return
        self.request = request
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.oom_before = oom_kills()
        self.wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self.wake, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        problem = self.start()
        if problem:
            send(self.control, ("failed", *problem))
            return
        send(self.control, ("started", self.main, os.getpid()))
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
            self.spool = Spool(reading, *(request[name] for name in names))
        self.trailer, trailer_write = os.pipe()
        outputs.append((request["trailer"], trailer_write))
        failed, failed_write = os.pipe()
        self.main = os.fork()
        if self.main == 0:
            self.become_command(outputs, failed_write)
        self.begun()
        for fd in {failed_write, *(fd for _, fd in outputs), *self.fds}:
            os.close(fd)
        problem = os.read(failed, 4096)
        os.close(failed)
        self.deadline = time.monotonic() + request["timeout"] if request["timeout"] else None
        if problem:
            os.waitpid(self.main, 0)
            number, _, what = problem.decode(errors="replace").partition(" ")
            return int(number), what
        return None

    def become_command(self, outputs: list[tuple[int, int]], failed: int) -> None:
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
            self.limit()
            step = "pass descriptors"
            given = [(n, self.fds[i]) for n, i in request["pass"]]
            moved = [(n, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FREE)) for n, fd in given + outputs]
            failed = fcntl.fcntl(failed, fcntl.F_DUPFD_CLOEXEC, FREE)
            for target, source in moved:
                os.dup2(source, target)
            if request["landlock"] is not None:
                step = "restrict"
                restrict_to_ruleset(self.fds[request["landlock"]])
            step = "run " + request["argv"][0]
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except OSError as error:
            os.write(failed, f"{error.errno} {step}".encode())
        except BaseException as error:  # noqa: BLE001 - this child must not live on as a copy of us
            os.write(failed, f"0 {step}: {error!r}".encode())
        os._exit(127)

    def limit(self) -> None:
        if self.request["nproc"]:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            most = self.request["nproc"]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        try:
            # Short of memory, the kernel is to take the command before the agent.
            write_small("/proc/self/oom_score_adj", "500")
        except OSError:
            pass

    # Watching

    def watch(self) -> None:
        """Until the command is over: the shell, or the whole tree for one that may linger."""
        while not self.over():
            self.turn(self.next_wake())
            now = time.monotonic()
            if self.deadline is not None and now >= self.deadline:
                self.timed_out, self.deadline = True, None
                self.terminate()
            if self.kill_at is not None and now >= self.kill_at:
                self.kill()

    def over(self) -> bool:
        alive = self.reap()
        return self.status is not None and not (alive and self.request["linger"])

    def next_wake(self) -> float | None:
        times = [t for t in (self.deadline, self.kill_at) if t is not None]
        if self.told_total < self.total():
            times.append(self.told_at + PROGRESS_EVERY)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def turn(self, timeout: float | None) -> None:
        """Wait for output, the agent or a dead child, and deal with what came."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if not self.orphaned:
            poll.register(self.control, select.POLLIN)
        spool = self.spool
        if spool is not None and spool.open:
            poll.register(spool.fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000 + 1)}
        if self.wake in ready:
            os.read(self.wake, 4096)
        if spool is not None and spool.fd in ready:
            spool.pump()
        if self.control in ready:
            self.obey()
        self.tell()

    def obey(self) -> None:
        match receive(self.control):
            case None:  # the agent is gone, or wants nothing more of this call
                self.orphaned = True
                self.kill()
            case ("kill",):
                self.kill()
            case ("terminate",):
                self.terminate()

    def total(self) -> int:
        return 0 if self.spool is None else self.spool.total

    def tell(self) -> None:
        """Progress, at most ten times a second; dropped when the agent is not reading."""
        total, now = self.total(), time.monotonic()
        if not self.request["progress"] or self.orphaned:
            self.told_total = total
        if self.spool is None or total == self.told_total:
            return
        if now < self.told_at + PROGRESS_EVERY:
            return
        fresh = self.spool.latest()[-(total - self.told_total) :]
        self.told_at, self.told_total = now, total
        os.set_blocking(self.control, False)
        try:
            send(self.control, ("output", total, fresh))
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
            if pid == self.main:
                self.status = status

    # Ending

    def terminate(self) -> None:
        """TERM now, KILL after the grace. Under bubblewrap its two own processes are spared:
        their end would be a KILL for everything inside, with no grace at all."""
        families = children_of_all()
        inner = {pid for pid, _, _ in families.get(self.main, ())}
        spared = {self.main, *inner} if self.request["wrapped"] else set()
        below = [pid for pid, _ in descendants(os.getpid()) if pid not in spared]
        signal_each(below, signal.SIGTERM)
        signal_each(below, signal.SIGCONT)
        self.kill_at = time.monotonic() + self.request["grace"]

    def kill(self) -> None:
        self.killed, self.kill_at, self.deadline = True, None, None
        kill_below(os.getpid())

    def finish(self) -> None:
        left = self.end_strays() if self.reap() else []
        until = time.monotonic() + STRAY_GRACE
        spool = self.spool
        if spool is not None:  # a holder outside the tree may write for ever
            while spool.open and spool.pump() and time.monotonic() < until:
                pass
        os.set_blocking(self.trailer, False)
        try:
            trailer = os.read(self.trailer, 8192)
        except BlockingIOError:
            trailer = b""
        status = self.status or 0
        suspicious = os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 137
        outcome = {
            "status": status,
            "timed_out": self.timed_out,
            "killed": self.killed,
            "out_of_memory": suspicious and not self.killed and oom_kills() > self.oom_before,
            "trailer": trailer,
            "left": left,
            "stream": {} if spool is None else spool.report(),
        }
        if not self.orphaned:
            send(self.control, ("exited", outcome))

    def end_strays(self) -> list[str]:
        """End what the command left behind; the names of what had to be ended."""
        left: list[str] = []
        if self.request["wrapped"]:
            self.settle(time.monotonic() + STRAY_GRACE)  # the kernel is ending them all
        elif not self.killed:
            left = [name for _, name in descendants(os.getpid())]
            self.terminate()
            grace = self.request["grace"] if self.timed_out else STRAY_GRACE
            self.settle(time.monotonic() + grace)
        until = time.monotonic() + KILL_LIMIT
        while self.reap() and time.monotonic() < until:
            kill_below(os.getpid())
            self.settle(time.monotonic() + 0.05)
        return left

    def settle(self, until: float) -> None:
        while self.reap() and (now := time.monotonic()) < until and not self.orphaned:
            self.turn(until - now)
