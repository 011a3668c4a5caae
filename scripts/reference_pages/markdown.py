"""The parts of a reference page: entries below headings and lists, which a narrow screen can show.

A table has at most three columns, all of short texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MARK = "<!-- Written by scripts/reference.py: change what it reads, then run it. -->"


def make_page(title: str, *parts: str) -> str:
    return "\n\n".join([MARK, f"# {title}", *parts]) + "\n"


def code(text: str) -> str:
    return f"`{text}`"


def list_codes(texts: Iterable[str], separator: str = ", ") -> str:
    return separator.join(map(code, texts))


def make_list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def make_entry(title: str, text: str, lines: Sequence[str] = ()) -> str:
    """A heading, a sentence, and a list of facts."""
    return "\n\n".join(part for part in (f"## {title}", text, make_list(lines)) if part)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, on one line and with a period."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    found = re.match(r".*?(?:[.:](?= |$)|$)", paragraph)
    sentence = found[0].rstrip(".:") if found else paragraph
    return f"{sentence[:1].upper()}{sentence[1:]}."


def make_sentence(text: str) -> str:
    """A text of the program, which begins without a capital, as a sentence."""
    end = "" if text.endswith((".", "?", "!")) else "."
    is_name = "_" in text.partition(" ")[0]
    return f"{text[0] if is_name else text[0].upper()}{text[1:]}{end}"
