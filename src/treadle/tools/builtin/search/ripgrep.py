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

from treadle.core.contracts.workspace import ProgramResult
from treadle.core.errors import ToolError, WorkspaceError
from treadle.tools.builtin.session import CallSite

TIMEOUT = 30.0
MAX_OUTPUT_BYTES = 16 << 20
# Hidden files are looked at, but not the insides of version control.
DEFAULT_OPTIONS = (
    "--no-config",
    "--color=never",
    "--hidden",
    "--glob=!.git",
    "--glob=!.jj",
    "--glob=!.hg",
)


@cache
def find_ripgrep() -> str:
    """The program of the wheel, beside this Python; else one on the PATH."""
    folders = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    beside = next((path for folder in folders if (path := folder / "rg").is_file()), None)
    found = str(beside) if beside is not None else shutil.which("rg")
    if found is None:
        raise ToolError("ripgrep is not installed; search with bash (grep -rn, find) instead")
    return found


async def run_ripgrep(
    site: CallSite, options: Sequence[str], path: Path
) -> tuple[ProgramResult, Path]:
    """Run it over a folder or a file: how it ended, and the folder that its paths start from."""
    try:
        return await _run_in_folder(site, options, path, "./"), path
    except WorkspaceError:
        # Not a folder: a file in one, or nothing at all, which ripgrep will say.
        return await _run_in_folder(site, options, path.parent, f"./{path.name}"), path.parent


async def _run_in_folder(
    site: CallSite, options: Sequence[str], folder: Path, target: str
) -> ProgramResult:
    # From inside the folder, because ripgrep reads patterns with a slash from where it stands.
    argv = [find_ripgrep(), *DEFAULT_OPTIONS, *options, "--", target]
    done = await site.execute(argv, timeout=TIMEOUT, limit=MAX_OUTPUT_BYTES, cwd=folder)
    if done.exit_code not in (0, 1) and not done.stdout and not done.timed_out:
        words = done.stderr.decode(errors="replace").strip().removeprefix("rg: ")
        raise ToolError(words[:2_000] or "ripgrep failed without a word")
    return done


class PathFormatter:
    """Ripgrep's paths as the model would write them. By text alone: there may be thousands."""

    def __init__(self, folder: Path, site: CallSite) -> None:
        top = site.display_path(folder)
        self._top = "" if top == "." else top.rstrip("/") + "/"

    def format_path(self, name: bytes) -> str:
        return self._top + name.removeprefix(b"./").decode(errors="replace")


def incomplete_warning(done: ProgramResult) -> str:
    """What a reader of an incomplete answer must know."""
    if done.timed_out:
        return f"\n(stopped after {TIMEOUT:g} s; there may be more: narrow the path or the pattern)"
    return "\n(there was more than could be held; narrow it)" if done.is_truncated else ""
