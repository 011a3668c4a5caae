"""Lines for a person: nothing in them speaks to the terminal (core/terminal.py).

    say     a line on standard output
    warn    a line on standard error; that it is closed harms nothing

Names, rules and other words of strangers inside of a line go through `visible` as well, so that
none of them looks like a line of ours. Every command prints with these. JSON needs neither:
json.dumps writes ASCII.
"""

from __future__ import annotations

import sys

from treadle.core.terminal import harmless


def say(text: str = "", *, end: str = "\n") -> None:
    print(harmless(text), end=end)


def warn(text: str, style: str = "") -> None:
    """`style` is the number of a colour or weight."""
    safe = harmless(text)
    try:
        print(f"\x1b[{style}m{safe}\x1b[0m" if style else safe, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
