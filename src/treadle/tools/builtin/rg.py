"""Ripgrep: where it is, and how it is asked.

`glob` and `grep` stand above. Its configuration file is never read, its patterns never run
programs, it follows no links.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from treadle.core.contracts.workspace import Executed
from treadle.core.errors import ToolError, WorkspaceError
from treadle.tools.builtin.desk import Seat

SECONDS = 30.0
MOST_BYTES = 16 << 20
# Hidden files are looked at, but not the insides of version control.
USUAL = ("--no-config", "--color=never", "--hidden", "--glob=!.git", "--glob=!.jj", "--glob=!.hg")


@cache
def ripgrep() -> str:
    """The program of the wheel, beside this Python; else one on the PATH."""
    folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    beside = next((path for folder in folders if (path := folder / "rg").is_file()), None)
    found = str(beside) if beside is not None else shutil.which("rg")
    if found is None:
        raise ToolError("ripgrep is not installed; search with bash (grep -rn, find) instead")
    return found


async def search(seat: Seat, options: Sequence[str], place: Path) -> tuple[Executed, Path]:
    """Run it over a folder or a file: how it ended, and the folder that its paths start from."""
    try:
        return await _searched(seat, options, place, "./"), place
    except WorkspaceError:
        # Not a folder: a file in one, or nothing at all, which ripgrep will say.
        return await _searched(seat, options, place.parent, f"./{place.name}"), place.parent


async def _searched(seat: Seat, options: Sequence[str], folder: Path, what: str) -> Executed:
    # From inside the folder, because ripgrep reads patterns with a slash from where it stands.
    argv = [ripgrep(), *USUAL, *options, "--", what]
    done = await seat.execute(argv, timeout=SECONDS, limit=MOST_BYTES, cwd=folder)
    if done.exit_code not in (0, 1) and not done.stdout and not done.timed_out:
        words = done.stderr.decode(errors="replace").strip().removeprefix("rg: ")
        raise ToolError(words[:2_000] or "ripgrep failed without a word")
    return done


class Names:
    """Ripgrep's paths as the model would write them. By text alone: there may be thousands."""

    def __init__(self, folder: Path, seat: Seat) -> None:
        top = seat.shown(folder)
        self._top = "" if top == "." else top.rstrip("/") + "/"

    def shown(self, name: bytes) -> str:
        return self._top + name.removeprefix(b"./").decode(errors="replace")


def warning(done: Executed) -> str:
    """What a reader of an incomplete answer must know."""
    if done.timed_out:
        return f"\n(stopped after {SECONDS:g} s; there may be more: narrow the path or the pattern)"
    return "\n(there was more than could be held; narrow it)" if done.is_truncated else ""
