"""Diagnostics after edits: what a call that changed files made worse is added to its result.

    checkers = {"*.py": ["ruff check --quiet {files}"], "*.ts": ["npx tsc --noEmit"]}

`{files}` stands for the changed files that the pattern fits. A checker runs as a command of the
workspace, in its sandbox, for a limited time. A checker that finds nothing says nothing. Besides,
`diagnostics` are those of the language servers that are installed (tools/language_servers), which
need no configuration; what they find late is told at the end of the turn. It blocks no call.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, Protocol

from treadle.core.contracts.hook import Block, Change, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.tool import Access
from treadle.core.contracts.workspace import CommandResult, Workspace
from treadle.core.errors import ConfigError, WorkspaceError

CHECKER_TIMEOUT = 20.0  # seconds for one checker
MAX_CHARS = 4_000
NOT_FOUND = 127  # the exit code of a shell for a program that is not installed
LATE_REPORT = "After your last changes, the language server reports errors that are new. Fix them, \
or say why they stay."
_FILES = "{files}"


class NewDiagnostics(Protocol):
    """Finds what edits of a session made worse; "" is nothing. Each waits for a limited time."""

    async def before_edit(self, session_id: str, paths: Sequence[Path]) -> None: ...

    async def after_edit(self, session_id: str, paths: Sequence[Path]) -> str: ...

    async def at_turn_end(self, session_id: str) -> str: ...


class Checkers:
    """A hook. `checkers` are commands by pattern of file names; see `read_checkers`."""

    points: frozenset[HookPoint] = frozenset(
        {"before_effect", "post_tool_use", "stop", "subagent_stop"}
    )
    timeout = None  # each checker has its own

    def __init__(
        self,
        workspace: Workspace,
        checkers: Mapping[str, Sequence[str]],
        diagnostics: NewDiagnostics | None = None,
    ) -> None:
        self._workspace = workspace
        self._checkers = checkers
        self._diagnostics = diagnostics
        self._missing: set[str] = set()  # commands that are not installed: not tried again

    async def run(self, hook_input: HookInput[Any]) -> HookAnswer | None:
        data, session_id = hook_input.data, hook_input.session_id
        if hook_input.point in ("stop", "subagent_stop"):
            late = await self._diagnostics.at_turn_end(session_id) if self._diagnostics else ""
            return Block(f"{LATE_REPORT}\n{late}") if late else None
        access: Access = data["access"]
        changed = [file.path for file in access.files if file.mode == "write"]
        if hook_input.point == "before_effect":
            if changed and self._diagnostics is not None:
                await self._diagnostics.before_edit(session_id, self._resolve(changed, access.cwd))
            return None
        if data["is_error"] or not data["tool_response"] or not changed:
            return None
        reports = [
            await self._check(command, files, access.cwd)
            for command, files in self._choose(changed, access.cwd)
        ]
        if self._diagnostics is not None:
            paths = self._resolve(changed, access.cwd)
            reports.append(await self._diagnostics.after_edit(session_id, paths))
        found = [report for report in reports if report]
        return Change(text="\n\n".join([data["tool_response"], *found])) if found else None

    def _resolve(self, changed: Sequence[str], cwd: str) -> list[Path]:
        """The real paths of those that are in the workspace."""
        paths: list[Path] = []
        for path in changed:
            with contextlib.suppress(WorkspaceError):
                paths.append(self._workspace.resolve(str(Path(cwd, Path(path).expanduser()))))
        return paths

    def _choose(self, changed: Sequence[str], cwd: str) -> list[tuple[str, list[str]]]:
        """The commands to run, each once, with the files that they are for."""
        root = self._workspace.root
        full = {p: os.path.normpath(Path(root, cwd, Path(p).expanduser())) for p in changed}
        chosen: dict[str, list[str]] = {}
        for pattern, commands in self._checkers.items():
            files = [path for path in changed if _fits(full[path], pattern, root)]
            for command in commands if files else ():
                chosen.setdefault(command, []).extend(files)
        return [
            (command, files) for command, files in chosen.items() if command not in self._missing
        ]

    async def _check(self, command: str, files: Sequence[str], cwd: str) -> str:
        line = command.replace(_FILES, shlex.join(dict.fromkeys(files)))
        try:
            done = await self._workspace.run(line, cwd=cwd or None, timeout=CHECKER_TIMEOUT)
        except WorkspaceError as error:
            return f"[{command}: {error}]"
        if done.exit_code == NOT_FOUND:
            self._missing.add(command)
            return f"[{command}: not installed; it is not tried again]"
        return _format_report(command, done)


def _fits(path: str, pattern: str, root: Path) -> bool:
    shown = path if PurePath(pattern).is_absolute() else path.removeprefix(f"{root}{os.sep}")
    names = (PurePath(path).name, shown)
    patterns = (pattern, pattern.replace("**/", ""))  # `**/` is also no folder at all
    return any(fnmatchcase(name, one) for name in names for one in patterns)


def _format_report(command: str, done: CommandResult) -> str:
    if done.timed_out:
        return f"[{command} did not end within {CHECKER_TIMEOUT:g} s]"
    if done.exit_code == 0:
        return ""
    text = done.output.strip()
    more = len(text) - MAX_CHARS
    rest = f"\n... [{more} more characters]" if more > 0 else ""
    return f"[{command} reports, after this change]\n{text[:MAX_CHARS]}{rest}"


def read_checkers(table: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The setting `checkers`: a command, or a list of them, by pattern; else ConfigError."""
    checkers: dict[str, tuple[str, ...]] = {}
    for pattern, given in table.items():
        commands = given if isinstance(given, list) else [given]
        texts = tuple(one for one in commands if isinstance(one, str) and one.strip())
        if len(texts) != len(commands) or not texts:
            problem = f"the value for {pattern!r} is {given!r:.80}"
            raise ConfigError(f'checkers: {problem}; write a command, "ruff check {_FILES}"')
        checkers[pattern] = texts
    return checkers
