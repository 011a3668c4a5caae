"""The options that the terminal was started with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec


class TerminalOptions(msgspec.Struct, frozen=True):
    """`resume`: a session id, "" for the newest session here, None for a new one. `prompt` is the
    first message. `history_file` keeps the typed messages across sessions, `drafts_dir` what was
    typed and not sent. `picks_session`: the user chooses the session to resume. `is_inline`: in
    the scrollback, not on the full screen. `notify`, `reduced_motion` and
    `keys` are the settings. `program`: how it is started again here."""

    resume: str | None = None
    prompt: str = ""
    theme: str = ""
    is_plain: bool = False
    history_file: Path | None = None
    picks_session: bool = False
    is_inline: bool = False
    notify: str = "auto"
    reduced_motion: str = "off"
    drafts_dir: Path | None = None
    has_vim_keys: bool = False
    keys: Mapping[str, Any] = {}
    program: str = "treadle"
