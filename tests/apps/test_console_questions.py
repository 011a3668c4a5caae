"""A question at the terminal: what ends it. And how an error of the system is said."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

from treadle.apps.console.console import describe_os_error

ASK = """
import asyncio
from treadle.apps.console.console import ask_line

async def main():
    print("got", ask_line("which? "), flush=True)

asyncio.run(main())
"""


def test_ctrl_c_ends_a_question_below_an_event_loop():
    """The loop would only note the signal, and the question would wait for a line."""
    program = [sys.executable, "-c", ASK]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe) as asking:
        assert asking.stdout is not None
        assert asking.stdout.read(7) == b"which? "
        asking.send_signal(signal.SIGINT)
        out, _ = asking.communicate(b"all\n")
    assert out == b""
    assert asking.returncode != 0


def test_an_error_of_the_system_is_said_without_its_number():
    full = os.strerror(errno.ENOSPC)
    assert describe_os_error(OSError(errno.ENOSPC, full)) == full
    assert describe_os_error(OSError(errno.ENOSPC, full, "page.html")) == f"page.html: {full}"
