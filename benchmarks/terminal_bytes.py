"""How many bytes the terminal gets for one reply: full screen and inline, at two sizes.

    python benchmarks/terminal_bytes.py [--seconds 20]

The real program on a pseudo-terminal; the same reply of 15.7 kB of Markdown, streamed over so many
seconds by a provider on loopback. Printed: the bytes from the message to the end of the turn.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

REPLY_CHARS = 15_700
CHUNKS = 400
LIMIT = 70_000
LAST = "That is the end of the reply."


def make_reply() -> str:
    """Headings, paragraphs, lists and code, as models write them."""
    parts: list[str] = []
    while sum(map(len, parts)) < REPLY_CHARS - len(LAST):
        number = len(parts) + 1
        sentence = f"Part {number} explains how the parser reads a token and what follows it. "
        code = f"```python\ndef part_{number}(text):\n    return text.split()\n```\n\n"
        points = "".join(f"- point {one} of part {number}\n" for one in range(3))
        parts.append(f"## Part {number}\n\n{sentence * 4}\n\n{points}\n{code}")
    return "".join(parts)[: REPLY_CHARS - len(LAST) - 2] + "\n\n" + LAST


async def measure(size: tuple[int, int], mode: str, seconds: float) -> int:
    from tests.apps.tui.closed_terminal import ClosableTerminal
    from treadle.testing.provider.answers import ProviderFault
    from treadle.testing.provider.script import FakeReply
    from treadle.testing.provider.server import ProviderServer

    text = make_reply()
    step = -(-len(text) // CHUNKS)
    chunks = tuple(text[at : at + step] for at in range(0, len(text), step))
    paced = ProviderFault("paced", times=-1, seconds=seconds / len(chunks))
    async with ProviderServer([FakeReply(chunks)], strict=False, faults=[paced]) as server:
        on = ClosableTerminal(server, *([mode] if mode else []), size=size)

        def work() -> int:
            on.trust()
            before = len(on.shown)
            on.send("go")
            on.wait(lambda: LAST.split()[-1].encode() in on.shown[before:])
            size = -1
            while len(on.shown) != size:  # until nothing is written for a second
                size = len(on.shown)
                time.sleep(1)
            return size - before

        used = await asyncio.to_thread(work)
        await asyncio.to_thread(on.close)
        return used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20)
    seconds, is_over = parser.parse_args().seconds, False
    for size in ((80, 24), (120, 40)):
        for mode in ("", "--inline"):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                os.environ["HOME"] = home
                folder = Path(home) / "project"
                folder.mkdir()
                os.chdir(folder)
                used = asyncio.run(measure(size, mode, seconds))
            is_over = is_over or used > LIMIT
            print(f"{size[0]}x{size[1]} {mode or 'full screen'}: {used / 1000:.0f} kB", flush=True)
    return 1 if is_over else 0


if __name__ == "__main__":
    sys.exit(main())
