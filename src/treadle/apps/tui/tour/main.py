"""`treadle tour`: runs the tour in a temporary folder and home, and removes both.

Nothing of the user is read or written: settings, sessions and trust are those of the temporary
home. Called by the command line by its name.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.apps.console.console import UsageError, report_errors
from treadle.apps.console.exit_codes import SUCCESS, USAGE_ERROR
from treadle.apps.console.help_option import wants_help
from treadle.core.extras import require_extra

USAGE = """\
usage: treadle tour

Learn the terminal in two minutes, by doing: prompt, approval, undo, modes, rewind. It works in a
temporary folder with a scripted model: no key, no network, no cost, and nothing is left behind.
ctrl+d leaves it at any moment."""


def run(arguments: list[str]) -> int:
    if wants_help(arguments):
        print(USAGE)
        return SUCCESS
    if arguments:
        print(f"treadle tour: unknown argument {arguments[0]!r}\n{USAGE}", file=sys.stderr)
        return USAGE_ERROR
    return report_errors("treadle tour", _run)


def _run() -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("not a terminal; the tour needs one")
    require_extra("tui")
    with temporary_home() as folder:
        return _run_app(folder)


def _run_app(folder: Path) -> int:
    from treadle.apps.tui.options import TerminalOptions
    from treadle.apps.tui.tour.app import TourApp, make_tour_session

    app = TourApp(make_tour_session(folder), TerminalOptions(reduced_motion="auto"))
    app.run()
    tour = getattr(app, "tour", None)
    if tour is not None and tour.is_finished:
        print("That was the tour. Start with `treadle` in a folder of yours.")
    return app.return_code or 0


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A folder to work in, below a home of its own; both are removed afterwards."""
    names = [name for name in os.environ if name.startswith(("XDG_", "TREADLE_"))]
    before = {name: os.environ[name] for name in (*names, "HOME") if name in os.environ}
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="treadle-tour-") as place:
        folder = Path(place, "project").resolve()
        folder.mkdir()
        for name in names:
            del os.environ[name]
        os.environ["HOME"] = place
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.environ.pop("HOME", None)
            os.environ.update(before)
            os.chdir(here)
