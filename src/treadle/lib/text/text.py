"""Small texts for people: suggestions, plurals, amounts, ages. Used by every part that prints.

Pure functions. See lib/text/sanitize.py for terminal escapes and lib/text/redaction.py for secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MIN_DOLLARS = 0.000001  # what is shown of a smaller amount


def suggest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that is nearest to a misspelt one, if one is near."""
    from difflib import get_close_matches  # rarely needed

    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def plural(count: int, noun: str, plural_noun: str = "") -> str:
    """`1 file`, `3 files`, `1,200 files`."""
    return f"{count:,} {noun if count == 1 else plural_noun or noun + 's'}"


def find_title(markdown: str) -> str:
    """The first line that is not blank, without the signs of a heading."""
    return markdown.strip().partition("\n")[0].strip("# \t\r")


def format_count(number: int) -> str:
    """`950`, `12.3k`, `450k`, `2M`, `4.5M`."""
    if number < 1_000:
        return str(number)
    if number < 999_500:
        return f"{number / 1_000:.1f}k" if number < 99_950 else f"{number / 1_000:.0f}k"
    return f"{number / 1_000_000:.1f}M".replace(".0M", "M")


def format_dollars(amount: float) -> str:
    """`$1,234.50`, `$0.02`, `$0.0047`: cents, or two digits that are not zero."""
    if amount <= 0 or amount >= 0.1:
        return f"${amount:,.2f}"
    if amount < MIN_DOLLARS:
        return f"<${MIN_DOLLARS:.6f}"
    whole, _, decimals = f"{float(f'{amount:.2g}'):.6f}".partition(".")
    return f"${whole}.{decimals.rstrip('0'):0<2}"


def format_cost(cost: float | None, known: float = 0.0) -> str:
    """`$1.20`, `unknown`, or `$1.20 + unknown` if `known` is a part of a cost that is not known."""
    if cost is not None:
        return format_dollars(cost)
    return f"{format_dollars(known)} + unknown" if known else "unknown"


def format_bytes(count: float) -> str:
    """`512 B`, `3.4 KB`, `1.1 GB`; a KB is 1,000 bytes."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def format_duration(seconds: float) -> str:
    """`8s`, `3m 05s`, `2h 10m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3_600}h {whole % 3_600 // 60:02}m"


def format_seconds(seconds: float) -> str:
    """`0.4s`, `12s`, `3m 05s`."""
    return f"{seconds:.1f}s" if 0 < seconds < 10 else format_duration(seconds)


def format_age(seconds: float) -> str:
    """`now`, `5m ago`, `3h ago`, `12d ago`."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return "now"


def shorten_middle(text: str, size: int) -> str:
    """The text on one line, of at most so many characters: its begin and its end."""
    line = " ".join(text.split())
    half = (size - 1) // 2
    return line if len(line) <= size else f"{line[:half]}…{line[-half:]}"


def shorten_home(path: str | Path) -> str:
    """A path with `~` in place of the home folder."""
    from pathlib import Path  # an agent is made without it

    text, home = str(path), str(Path.home())
    return "~" + text[len(home) :] if text == home or text.startswith(f"{home}/") else text


def fix_surrogates(text: str) -> str:
    """The text with lone surrogates joined or replaced: UTF-8 cannot encode them."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
