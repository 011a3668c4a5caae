"""Where the program starts: by ./treadle, by `python -m treadle`, and by the installed command.

It holds nothing but the door to the command line, so that a start pays for no more, and the way
out: an interpreter that takes its modules apart one by one would add a fifth to a short run.
"""

from __future__ import annotations

import sys

from treadle.apps.cli.main import run


def main() -> int:
    exit_code = run(sys.argv[1:])
    if "asyncio" in sys.modules:
        leave(exit_code)
    return exit_code


def leave(exit_code: int) -> None:
    """End the process now; commands have closed what they opened."""
    import os

    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            exit_code = exit_code or 74  # nobody took what was printed: exits.DISK
    os._exit(exit_code)


if __name__ == "__main__":
    sys.exit(main())
