"""What bisect.py, bisect_answers.py and whatif.py share: files of a checkpoint in another folder, a
run of the agent there, the check, and the search by halves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from treadle.apps.console.console import UsageError, print_line, report_errors
from treadle.apps.console.exit_codes import ABORTED, TERMINATED
from treadle.apps.settings.folder_rules import is_trusted, open_trust_store
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import Settings
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.sessions.library import Library
from treadle.workspace.worktrees.worktrees import BRANCH_FOLDER, Worktree

DEFAULT_MAX_COST = 5.0  # for all runs together
MAX_TITLE = 70
MAX_LINES = 5  # of the output of a check
NOT_RUN = (126, 127)  # exit codes of a shell: the command cannot be run, or is not found
FOLDER_VARIABLE = "TREADLE_FOLDER"  # the folder of the session, for a check in another one


def run_trial(name: str, work: Coroutine[Any, Any, int]) -> int:
    """The exit code. SIGTERM ends the work as ctrl+c does: what it has made is removed."""
    received: list[int] = []

    def end(number: int, frame: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, end)
    code = report_errors(name, lambda: asyncio.run(work))
    return TERMINATED if received and code == ABORTED else code


def load_trial_settings(folder: Path, max_cost: str | None) -> tuple[Settings, float]:
    """The settings for runs in worktrees of a folder, and what all of them may cost."""
    if not is_trusted(folder):
        raise UsageError(f"worktrees let git run in {folder}; trust it first (`treadle trust`)")
    flags = {} if max_cost is None else {"max_cost": max_cost}
    settings = load_settings(folder, flags, is_trusted=lambda: True)
    return settings, DEFAULT_MAX_COST if settings.max_cost is None else settings.max_cost


async def write_files(library: Library, folder: Path, root: Path, tree: str) -> None:
    """Give `root` the files that a checkpoint of `folder` has."""
    from treadle.workspace.checkpoints.checkpoints import Checkpoints

    checkpoints = Checkpoints(root, library.checkpoint_dir(folder))
    try:
        result = await checkpoints.apply((await checkpoints.take()).tree, tree)
    finally:
        checkpoints.close()
    if result.skipped:
        paths = ", ".join(one.path for one in result.skipped)
        raise WorkspaceError(f"{root}: cannot be written: {paths}")


class CheckNotRun(UsageError):
    """The check did not run to its end, so it says nothing about the files."""


async def run_check(folder: Path, root: Path, command: str, timeout: float) -> CommandResult:
    """Run the command in `root`, in the sandbox of the settings of `folder`. Raises CheckNotRun if
    it cannot be run, or reaches its limit."""
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.workspace.options import WorkspaceOptions

    settings = load_settings(folder, {}, is_trusted=lambda: is_trusted(folder))
    options = WorkspaceOptions(sandbox=settings.sandbox, network=settings.network, env=settings.env)
    workspace = LazyWorkspace(root, lambda: options)
    try:
        # Not by the options: those are filtered, as what the user's shell has.
        environment = {FOLDER_VARIABLE: str(folder)}
        done = await workspace.run(command, env=environment, timeout=timeout)
    finally:
        await workspace.aclose()
    if done.timed_out or done.exit_code in NOT_RUN:
        raise CheckNotRun(f"({done.describe_failure()}){format_output(done)}")
    return done


def format_output(check: CommandResult) -> str:
    """The last lines of its output, each on a line of its own."""
    lines = [f"    {escape_invisible(line)}" for line in check.output.splitlines()]
    return "\n".join(["", *lines[-MAX_LINES:]])


async def run_agent(
    root: Path,
    session_id: str,
    options: Sequence[str],
    prompt: str | None,
    max_cost: float,
    **variables: str,
) -> dict[str, Any]:
    """The report of a run of `treadle -p` in `root`; without a prompt it continues the turn."""
    words = ["-p", "--resume", session_id, "--output-format", "json", *options]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "treadle", *words, "--max-cost", f"{max_cost:g}"),
        *(() if prompt is None else ("--", prompt)),
        cwd=root,
        env={**os.environ, **variables},
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.communicate()
    try:
        report: dict[str, Any] = json.loads(out)
    except ValueError:
        said = err.decode(errors="replace").strip()
        raise WorkspaceError(f"{root.name}: {said or 'it printed no report'}") from None
    return report


async def remove_worktree(worktree: Worktree) -> None:
    """With its branch, whatever is in it."""
    open_trust_store().distrust(worktree.root)
    await worktree.repository.run("worktree", "remove", "--force", str(worktree.top))
    branch = f"{BRANCH_FOLDER}/{worktree.name}"
    await worktree.repository.run("branch", "--quiet", "-D", branch)


async def find_first(
    count: int, passes: Callable[[int], Awaitable[bool]], first: str
) -> tuple[int, int] | None:
    """The neighbours of which the first one passes and the second one fails; None, and that is
    printed, if the last one passes or the first one fails."""
    if await passes(count - 1):
        print_line("nothing is broken at the end of the session")
        return None
    if not await passes(0):
        print_line(f"it was broken {first} (--from N begins after a later turn)")
        return None
    good, bad = 0, count - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if await passes(middle) else (good, middle)
    return good, bad


def shorten(text: str) -> str:
    return escape_invisible(" ".join(strip_escapes(text).split())[:MAX_TITLE])
