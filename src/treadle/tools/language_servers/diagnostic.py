"""A problem that a server or a checker reports, and how it is shown to the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from treadle.lib.text.sanitize import strip_escapes

MAX_MESSAGE_CHARS = 200
MAX_SHOWN = 10

DiagnosticKey = tuple[Path, bool, str, str]


class Diagnostic(msgspec.Struct, frozen=True):
    """`line` and `column` count from 1. `source_line` is the text that it is about: lines move when
    others are inserted, so two problems are the same if their texts are."""

    path: Path
    line: int
    column: int
    message: str
    is_error: bool = True
    source_line: str = ""

    @property
    def key(self) -> DiagnosticKey:
        return self.path, self.is_error, self.message, self.source_line


def count_keys(diagnostics: Iterable[Diagnostic]) -> Counter[DiagnosticKey]:
    return Counter(one.key for one in diagnostics)


def find_new(diagnostics: Iterable[Diagnostic], known: Counter[DiagnosticKey]) -> list[Diagnostic]:
    """Those that are not among the known ones."""
    left, new = Counter(known), list[Diagnostic]()
    for one in diagnostics:
        left[one.key] -= 1
        if left[one.key] < 0:
            new.append(one)
    return new


def clean_message(text: str) -> str:
    """One line of a limited length."""
    line = " ".join(strip_escapes(text).split())
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[: MAX_MESSAGE_CHARS - 3]}..."


def format_diagnostics(name: str, found: Sequence[Diagnostic], root: Path) -> str:
    """A few lines for the model, errors first."""
    ordered = sorted(found, key=lambda one: (not one.is_error, str(one.path), one.line))
    shown = [
        f"{format_path(one.path, root)}:{one.line}:{one.column} "
        f"{'error' if one.is_error else 'warning'}: {one.message}"
        for one in ordered[:MAX_SHOWN]
    ]
    rest = len(ordered) - MAX_SHOWN
    shown += [f"... {rest} more"] if rest > 0 else []
    title = f"[{name}: {len(ordered)} new problem{'s' if len(ordered) > 1 else ''}]"
    return "\n".join([title, *shown])


def format_path(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
