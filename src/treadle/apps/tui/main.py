"""Entry point of the terminal: makes the session, runs a frontend, returns the exit code.

The command line calls `start`; a caller with its own session calls `run`. Textual is imported only
for the full screen.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.console.console import UsageError
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import treadle_home
from treadle.apps.tui.options import TerminalOptions
from treadle.core.extras import require_extra

if TYPE_CHECKING:
    from treadle.apps.tui.app import TerminalApp

FRAME_RATE_VARIABLE = "TEXTUAL_FPS"
# At Textual's own 60 a letter that follows a frame takes three times as long to the screen. What is
# streamed has a slower rate of its own (schedule_frame).
FRAME_RATE = "120"
USE_INSTEAD = "use -p PROMPT for one task, or --plain"


def start(
    folder: Path,
    flags: Mapping[str, object] | None = None,
    *,
    resume: str | None = None,
    prompt: str = "",
    allow: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    until: str = "",
    dry_run: bool = False,
    plain: bool = False,
    picks_session: bool = False,
    program: str = "treadle",
) -> int:
    """Open the terminal in a folder. `flags` are settings by name; invalid ones raise."""
    from treadle.apps.assembly import SessionOptions
    from treadle.apps.settings.folder_rules import is_trusted

    settings = load_settings(folder, flags, is_trusted=lambda: is_trusted(folder))
    given = SessionOptions(allow=allow, deny=deny, until=until, dry_run=dry_run)
    session = HostedSession(folder, flags, given)
    home = treadle_home()
    options = TerminalOptions(
        resume,
        prompt,
        settings.theme,
        plain,
        history_file=home / "history.jsonl",
        drafts_dir=home / "drafts",
        has_vim_keys=settings.vim_keys,
        picks_session=picks_session,
        is_inline=settings.screen == "inline",
        notify=settings.notify,
        reduced_motion=settings.reduced_motion,
        keys=settings.keys,
        program=program,
    )
    return run(session, options)


def run(session: HostedSession, options: TerminalOptions) -> int:
    """Run until the user quits; the exit code."""
    if _is_plain(options.is_plain):
        from treadle.apps.tui.plain import run_plain

        return run_plain(session, options)
    check_screen(options.is_plain)
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # exported by some shells; not updated on resize
    _set_frame_rate()
    app: TerminalApp
    if options.is_inline:
        from treadle.apps.tui.inline import InlineApp

        app = InlineApp(session, options)
    else:
        from treadle.apps.tui.app import TerminalApp

        app = TerminalApp(session, options)
    app.run(inline=options.is_inline, mouse=not options.is_inline)
    for text in app.unshown_messages:
        print(redact_for_display(text))
    if app.resume_hint:
        print(app.resume_hint)
    return app.return_code or 0


def _set_frame_rate() -> None:
    """Load Textual with our frame rate, and leave no variable behind for the commands."""
    is_set = FRAME_RATE_VARIABLE in os.environ
    os.environ.setdefault(FRAME_RATE_VARIABLE, FRAME_RATE)
    importlib.import_module("textual.constants")  # reads it
    if not is_set:
        del os.environ[FRAME_RATE_VARIABLE]


def check_screen(is_plain: bool, instead: str = USE_INSTEAD) -> None:
    """Raise an error if the full screen is wanted and there is no terminal, or no packages.
    `instead` is what works without a terminal."""
    if not _is_plain(is_plain):
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(f"not a terminal; {instead}")
        require_extra("tui", "--plain and -p work without it")


def _is_plain(wanted: bool) -> bool:
    """Whether the plain mode is wanted, or the terminal can do no more."""
    return wanted or os.environ.get("TERM", "") in ("dumb", "unknown")
