"""One call: start the command, read its output, end its process tree, report how it ended.

Forked by fork_server.py; the agent controls it over its control socket. Whatever happens to the
agent, to the command or to this process, no process of the command stays.
"""

import fcntl
import os
import resource
import select
import signal
import time

from .output_buffer import OutputBuffer
from .process_tree import (
    is_memory_exceeded,
    kill_descendants,
    known_groups,
    list_descendants,
    read_process_table,
    signal_each,
)
from .set_aside import set_aside_made
from .syscalls import (
    IS_LINUX,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    count_oom_kills,
    enlarge_pipe,
    receive_message,
    restrict_to_ruleset,
    send_message,
    set_process_option,
    write_small_file,
)

TYPE_CHECKING = False  # importing typing takes 15 ms
if TYPE_CHECKING:
    from collections.abc import Callable

PROGRESS_INTERVAL = 0.1
STRAY_GRACE = 0.1  # seconds between TERM and KILL for processes that a command left running
MEMORY_INTERVAL = 0.5  # seconds between two measurements; one takes some milliseconds
TRAILER_BYTES = 1 << 16  # of a whole pipe
TIOCSCTTY = 0x540E if IS_LINUX else 0x20007461  # termios would be one more import
KILL_LIMIT = 5.0  # seconds to wait for a process in uninterruptible sleep


class Supervisor:
    """Runs the command of one call."""

    def __init__(self, control: int, fds: list[int], on_call_taken: "Callable[[], None]") -> None:
        self.control, self.fds, self.on_call_taken = control, fds, on_call_taken
        self.output_buffer: OutputBuffer | None = None
        self.status: int | None = None
        self.timed_out = self.killed = self.orphaned = self.memory_exceeded = False
        self.disk_exceeded = 0  # the limit in bytes
        self.measure_at = time.monotonic() + MEMORY_INTERVAL
        self.kill_at: float | None = None
        self.reported_at, self.reported_total = 0.0, 0

    def serve(self) -> None:
        request = receive_message(self.control)
        if not isinstance(request, dict):
            return
        self.request = request
        set_process_option(PR_SET_CHILD_SUBREAPER, 1)
        self.oom_before = count_oom_kills()
        self.wake_fd, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(self.wake_fd, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.free_before = self.measure_free_space()
        problem = self.start()
        if problem:
            send_message(self.control, ("failed", *problem))
            return
        send_message(self.control, ("started", self.main_pid, os.getpid()))
        self.watch()
        self.finish()

    # Starting

    def start(self) -> tuple[int, str, str] | None:
        """Fork and exec the command; (errno, step, detail) if that failed."""
        request = self.request
        outputs: list[tuple[int, int]] = []  # (child's fd, write end)
        if request["capture_output"]:
            reading, writing = self.open_output()
            outputs += [(1, writing), (2, writing)]
            file_names = ("output_file", "output_file_limit", "always_output_file")
            names = ("head", "tail", *file_names, "secrets")
            self.output_buffer = OutputBuffer(reading, *(request[name] for name in names))
        self.trailer_fd, trailer_write = os.pipe()
        outputs.append((request["trailer_fd"], trailer_write))
        failed, failed_write = os.pipe()
        self.main_pid = os.fork()
        if self.main_pid == 0:
            self.exec_command(outputs, failed_write)
        known_groups.add(self.main_pid)
        self.on_call_taken()
        kept = set() if self.output_buffer is None else {self.output_buffer.fd}
        for fd in {failed_write, *(fd for _, fd in outputs), *self.fds} - kept:
            os.close(fd)
        problem = os.read(failed, 4096)
        os.close(failed)
        self.deadline = time.monotonic() + request["timeout"] if request["timeout"] else None
        if problem:
            os.waitpid(self.main_pid, 0)
            number, step, detail = problem.decode(errors="replace").split(" ", 2)
            return int(number), step, detail
        return None

    def open_output(self) -> tuple[int, int]:
        """Where the output is read, and what the command writes to: a pipe, or its terminal."""
        request = self.request
        if request["terminal"] is not None:
            return self.fds[request["terminal"]], self.fds[dict(request["descriptors"])[0]]
        reading, writing = os.pipe()
        enlarge_pipe(reading, 1 << 20)
        return reading, writing

    def exec_command(self, outputs: list[tuple[int, int]], error_fd: int) -> None:
        """In the child: reset signals, apply the limits, exec. Never returns."""
        request, step = self.request, "setup"
        try:
            os.setsid()
            set_process_option(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            step = "chdir"
            os.chdir(request["cwd"])
            step = "limit"
            self.apply_limits()
            step = "descriptors"
            passed = [(n, self.fds[i]) for n, i in request["descriptors"]]
            # The numbers up to here are for the command: the trailer's and the sandbox's.
            move_up = (fcntl.F_DUPFD_CLOEXEC, request["trailer_fd"] + 2)
            moved = [(n, fcntl.fcntl(fd, *move_up)) for n, fd in passed + outputs]
            error_fd = fcntl.fcntl(error_fd, *move_up)
            for target, source in moved:
                os.dup2(source, target)
            if request["terminal"] is not None and not request["in_bubblewrap"]:
                fcntl.ioctl(0, TIOCSCTTY, 0)  # Ctrl-C and job control need it
            if request["landlock_ruleset"] is not None:
                step = "restrict"
                restrict_to_ruleset(self.fds[request["landlock_ruleset"]])
            step = "exec"
            os.execvpe(request["argv"][0], request["argv"], request["env"])
        except OSError as error:
            os.write(error_fd, f"{error.errno} {step} ".encode())
        except BaseException as error:  # noqa: BLE001 - the child must not continue as a copy of us
            os.write(error_fd, f"0 {step} {error!r}".encode(errors="replace"))
        os._exit(127)

    def apply_limits(self) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core files with what was in memory
        if self.request["nproc"]:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            limit = self.request["nproc"]
            limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))
        try:
            # If memory runs out, the kernel should kill the command before the agent.
            write_small_file("/proc/self/oom_score_adj", "500")
        except OSError:
            pass

    # Watching

    def watch(self) -> None:
        """Until the command has ended: its first process, or with `wait_for_tree` the tree."""
        while not self.is_over():
            self.poll_once(self.next_timeout())
            now = time.monotonic()
            if self.deadline is not None and now >= self.deadline:
                self.timed_out, self.deadline = True, None
                self.terminate()
            if self.kill_at is not None and now >= self.kill_at:
                self.kill()
            if now >= self.measure_at:
                self.check_use()

    def check_use(self) -> None:
        """Kill what uses more memory, or takes more of the disk, than it may."""
        limit = self.request["max_memory"]
        if limit and not self.killed and is_memory_exceeded(os.getpid(), limit):
            self.memory_exceeded = True
            self.kill()
        room = self.request["disk"][1] or self.free_before // 2
        if room and not self.killed and self.free_before - self.measure_free_space() > room:
            self.disk_exceeded = room
            self.kill()
        self.measure_at = time.monotonic() + MEMORY_INTERVAL

    def measure_free_space(self) -> int:
        """The free bytes of the command's disk; 0 if that is not limited."""
        try:
            status = os.statvfs(self.request["disk"][0])
        except OSError:
            return 0
        return status.f_bavail * status.f_frsize

    def is_over(self) -> bool:
        alive = self.reap()
        return self.status is not None and not (alive and self.request["wait_for_tree"])

    def next_timeout(self) -> float | None:
        times = [t for t in (self.deadline, self.kill_at) if t is not None]
        if (
            self.request["max_memory"] or self.free_before or not IS_LINUX
        ):  # orphans end without a signal to us
            times.append(self.measure_at)
        if self.reported_total < self.output_total():
            times.append(self.reported_at + PROGRESS_INTERVAL)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def poll_once(self, timeout: float | None) -> None:
        """Wait for output, a message of the agent or a dead child, and handle it."""
        poll = select.poll()
        poll.register(self.wake_fd, select.POLLIN)
        if not self.orphaned:
            poll.register(self.control, select.POLLIN)
        buffer = self.output_buffer
        if buffer is not None and buffer.is_open:
            poll.register(buffer.fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000 + 1)}
        if self.wake_fd in ready:
            os.read(self.wake_fd, 4096)
        if buffer is not None and buffer.fd in ready:
            buffer.read_available()
        if self.control in ready:
            self.handle_command()
        self.report_progress()

    def handle_command(self) -> None:
        match receive_message(self.control):
            case None:  # the agent is gone, or has closed this call
                self.orphaned = True
                self.kill()
            case ("kill",):
                self.kill()
            case ("terminate",):
                self.terminate()

    def output_total(self) -> int:
        return 0 if self.output_buffer is None else self.output_buffer.total

    def report_progress(self) -> None:
        """Progress, at most ten times a second; dropped if the agent does not read."""
        total, now = self.output_total(), time.monotonic()
        if not self.request["progress"] or self.orphaned:
            self.reported_total = total
        if self.output_buffer is None or total == self.reported_total:
            return
        if now < self.reported_at + PROGRESS_INTERVAL:
            return
        fresh = self.output_buffer.latest()[-(total - self.reported_total) :]
        self.reported_at, self.reported_total = now, total
        poll = select.poll()
        poll.register(self.control, select.POLLOUT)
        if poll.poll(0):
            try:
                send_message(self.control, ("output", total, fresh))
            except OSError:
                pass

    def reap(self) -> bool:
        """Collect dead children; True while others live."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not IS_LINUX and bool(list_descendants(os.getpid()))
            if pid == 0:
                return True
            if pid == self.main_pid:
                self.status = status

    # Ending

    def terminate(self) -> None:
        """TERM now, KILL after the grace period. Bubblewrap's own two processes get no TERM: their
        end would kill everything inside at once."""
        inner = {pid for pid, _, _ in read_process_table().get(self.main_pid, ())}
        spared = {self.main_pid, *inner} if self.request["in_bubblewrap"] else set()
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
        buffer = self.output_buffer
        if buffer is not None:  # a process outside the tree may hold the pipe and write for ever
            while buffer.is_open and buffer.read_available() and time.monotonic() < until:
                pass
        os.set_blocking(self.trailer_fd, False)
        try:
            trailer = os.read(self.trailer_fd, TRAILER_BYTES)[-8192:]
        except BlockingIOError:
            trailer = b""
        status = self.status or 0
        suspicious = os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 137
        outcome = {
            "status": status,
            "timed_out": self.timed_out,
            "memory_exceeded": self.memory_exceeded,
            "disk_exceeded": self.disk_exceeded,
            "killed": self.killed,
            "out_of_memory": suspicious and not self.killed and count_oom_kills() > self.oom_before,
            "trailer": trailer,
            "left": left,
            "stream": {} if buffer is None else buffer.report(),
        }
        if self.orphaned:
            if self.request["cleanup"]:
                set_aside_made(self.request["set_aside_dir"], **self.request["cleanup"])
        else:
            send_message(self.control, ("exited", outcome))

    def kill_strays(self) -> list[str]:
        """End the processes that the command left running; returns their names."""
        left: list[str] = []
        if self.request["in_bubblewrap"]:
            self.wait_children(time.monotonic() + STRAY_GRACE)  # the kernel kills them all
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
