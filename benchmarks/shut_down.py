"""How long the program takes to end when its terminal is closed, while a command runs.

    python benchmarks/shut_down.py [--times 100]

Each time: the real program on a pseudo-terminal, a trust question, a reply of hundreds of renders,
a running command; then the terminal is closed, every second time without SIGHUP. Printed: the
median, the longest time, and the commands that were left. The exit code is 1 if a run took longer
than two seconds or left its command.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

LIMIT = 2.0  # seconds


async def run_once(number: int) -> tuple[float, bool]:
    """The seconds to the end, and whether the command was left behind."""
    from tests.apps.tui.closed_terminal import ClosableTerminal, is_running, make_replies
    from treadle.testing.provider.server import ProviderServer

    seconds = 2_000_000 + number
    async with ProviderServer(make_replies(seconds), strict=False) as server:
        given = ["--allow=Bash", *(["--inline"] if number % 4 > 1 else [])]
        on = ClosableTerminal(server, *given, has_signal=number % 2 == 0)
        await asyncio.to_thread(on.work, seconds)
        began = time.monotonic()
        await asyncio.to_thread(on.close)
        while is_running(seconds) and time.monotonic() - began < 2 * LIMIT:
            time.sleep(0.02)  # noqa: ASYNC251 - nothing else runs
        return time.monotonic() - began, is_running(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=100)
    times, left = [], 0
    for number in range(parser.parse_args().times):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            os.environ["HOME"] = home
            folder = Path(home) / "project"
            folder.mkdir()
            os.chdir(folder)
            took, is_left = asyncio.run(run_once(number))
        times.append(took)
        left += is_left
        print(f"{number + 1}: {took:.2f} s", flush=True)
    late = sum(took > LIMIT for took in times)
    print(f"median {statistics.median(times):.2f} s, longest {max(times):.2f} s")
    print(f"{len(times) - late} of {len(times)} within {LIMIT:g} s, commands left: {left}")
    return 1 if late or left else 0


if __name__ == "__main__":
    sys.exit(main())
