"""Lines for a person: nothing in them speaks to the terminal (core/sanitize.py).

    say     a line on standard output
    warn    a line on standard error; that it is closed harms nothing

Names, rules and other words of strangers inside of a line go through `visible` as well, so that
none of them looks like a line of ours. Every command prints with these. JSON needs neither:
json.dumps writes ASCII.
"""

from __future__ import annotations

import sys

from treadle.core.sanitize import strip_escapes


def print_line(text: str = "", *, end: str = "\n") -> None:
    print(strip_escapes(text), end=end)


def print_error(text: str, style: str = "") -> None:
    """`style` is the number of a colour or weight."""
    safe = strip_escapes(text)
    try:
        print(f"\x1b[{style}m{safe}\x1b[0m" if style else safe, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
