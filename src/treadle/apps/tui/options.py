"""How the terminal was started."""

from __future__ import annotations

from pathlib import Path

import msgspec


class TerminalOptions(msgspec.Struct, frozen=True):
    """`resume` is an id, "" for the last session here, None for a new one. `prompt` is said first.
    `history` is the file that remembers what was typed."""

    resume: str | None = None
    prompt: str = ""
    theme: str = ""
    is_plain: bool = False
    history_file: Path | None = None
