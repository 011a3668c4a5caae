"""The keeper's own loop: a supervisor for each call, until the agent is gone.

Started by `processes.py` with a socket on fd 0, over which only descriptors come.
"""

import _socket
import gc
import os
import select
import signal

from .kernel import PR_SET_CHILD_SUBREAPER, PR_SET_NAME, libc, send
from .supervisor import Supervisor
from .trees import children_of_all, kill_below, signal_each


def reap_supervisors(supervisors: set[int]) -> None:
    """Collect dead supervisors. One that was killed leaves its command to us: it is ended."""
    bereaved = False
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            break
        bereaved |= status != 0 or pid not in supervisors
        supervisors.discard(pid)
    if not bereaved:
        return
    strays = [pid for pid, _, _ in children_of_all().get(os.getpid(), ()) if pid not in supervisors]
    for pid in strays:
        kill_below(pid)
        signal_each([pid], signal.SIGKILL)


def keep(listening: "_socket.socket") -> None:
    """Fork a supervisor for each call until the agent is gone."""
    supervisors: set[int] = set()
    wake, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(listening.fileno(), select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
            reap_supervisors(supervisors)
        if listening.fileno() not in ready:
            continue
        fds = take_descriptors(listening)
        if not fds:
            return
        pid = os.fork()
        if pid == 0:
            try:
                os.close(wake)
                os.close(wake_write)
                listening.close()
                libc.prctl(PR_SET_NAME, b"treadle-call", 0, 0, 0)
                Supervisor(fds[0], fds[1:]).serve()
            except Exception as error:  # noqa: BLE001 - nobody above could hear it
                kill_below(os.getpid())
                send(fds[0], ("failed", 0, f"watch over the command: {error!r}"))
            finally:
                os._exit(0)
        supervisors.add(pid)
        for fd in fds:
            os.close(fd)


def take_descriptors(listening: "_socket.socket") -> list[int]:
    data, ancillary, _, _ = listening.recvmsg(16, 1024, 0x40000000)  # MSG_CMSG_CLOEXEC
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
    keep(_socket.socket(fileno=0))
