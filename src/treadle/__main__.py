"""Where the program starts: by ./treadle, by `python -m treadle`, and by the installed command.

It holds nothing but the door to the command line, so that a start pays for no more.
"""

from __future__ import annotations

import sys

from treadle.apps.cli.main import run


def main() -> int:
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
