"""A question at the terminal: what ends it."""

from __future__ import annotations

import signal
import subprocess
import sys

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
