"""What is made when it is needed: the workspace, and the policy that judges calls in it.

A run that only talks pays for neither. `warm` begins to make both, for a host that sees a call
coming while the model still writes it. Both keep their contracts: nobody can tell but by the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.hook import HookAnswer, HookInput, HookPoint
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import Deny, PermissionRequest, Verdict
from treadle.core.contracts.workspace import (
    CommandResult,
    FileContent,
    ProgramResult,
    RunningCommand,
)
from treadle.core.errors import WorkspaceError
from treadle.core.redaction import redact
from treadle.core.transcript.transcript import Transcript

if TYPE_CHECKING:
    from treadle.policy.modes import PermissionMode
    from treadle.policy.policy import RulePolicy
    from treadle.policy.ruleset.rules import RuleSet
    from treadle.workspace.local import LocalWorkspace, WorkspaceOptions
    from treadle.workspace.processes import Process


class LazyWorkspace:
    """A local workspace that is made with its first use: the contract, and what tools use beyond.

    Files and programs outside of the walls need no more; what goes by the walls waits for them.
    """

    def __init__(
        self,
        root: Path,
        options: Callable[[], WorkspaceOptions],
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self._root = root.resolve()
        self._options = options
        self._notify = notify
        self._local: LocalWorkspace | None = None
        self._preload_task: asyncio.Task[LocalWorkspace] | None = None
        self._is_closed = False

    def preload(self) -> None:
        """Begin to make it and its walls, and go on."""
        if self._preload_task is None and not self._is_closed:
            self._preload_task = asyncio.get_running_loop().create_task(self.open())
            self._preload_task.add_done_callback(_consume_exception)

    def get_local(self) -> LocalWorkspace:
        """The workspace itself, whether or not its walls are known."""
        if self._is_closed:
            raise WorkspaceError("the workspace is closed")
        if self._local is None:
            from treadle.workspace.local import LocalWorkspace

            self._local = LocalWorkspace(self._root, self._options())
        return self._local

    async def open(self) -> LocalWorkspace:
        """The workspace, once it is known whether commands are walled in."""
        local = self.get_local()
        await local.prepare()
        tell, self._notify = self._notify, None
        if tell is not None and not local.sandboxed and self._options().sandbox != "off":
            tell(f"commands run without a sandbox: {local.sandbox_problem}")
        return local

    @property
    def root(self) -> Path:
        return self._root

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        return self.get_local().resolve(path, for_write=for_write)

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        return await self.get_local().read(path, limit=limit)

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        return await self.get_local().write(path, data, expected=expected, mode=mode)

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        await self.get_local().remove(path, expected=expected)

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[str], None] | None = None,
        sandboxed: bool | None = None,
        network: bool | None = None,
    ) -> CommandResult:
        return await (await self.open()).run(
            command,
            cwd=cwd,
            env=env,
            timeout=timeout,
            on_output=on_output,
            sandboxed=sandboxed,
            network=network,
        )

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        sandboxed: bool | None = None,
        network: bool | None = None,
    ) -> RunningCommand:
        return await (await self.open()).start(
            command, cwd=cwd, env=env, sandboxed=sandboxed, network=network
        )

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
        limit: int = 8 << 20,
        sandboxed: bool | None = None,
        read_only: bool = False,
    ) -> ProgramResult:
        local = self.get_local() if read_only or sandboxed is False else await self.open()
        return await local.execute(
            argv,
            cwd=cwd,
            env=env,
            timeout=timeout,
            stdin=stdin,
            limit=limit,
            sandboxed=sandboxed,
            read_only=read_only,
        )

    async def spawn(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        return await self.get_local().spawn(argv, descriptors, cwd=cwd, env=env)

    async def aclose(self) -> None:
        self._is_closed = True
        if self._preload_task is not None:
            self._preload_task.cancel()
            await asyncio.wait({self._preload_task})
        if self._local is not None:
            await self._local.aclose()


class LazyPolicy:
    """The rules' verdicts, from a judge that is made with the first call."""

    def __init__(
        self,
        workspace: LazyWorkspace,
        rules: Callable[[], RuleSet],
        *,
        mode: PermissionMode,
        interactive: bool,
        added_folders: tuple[str, ...] = (),
        save_rules: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        self._workspace = workspace
        self._rules = rules
        self._mode: PermissionMode = mode
        self._interactive = interactive
        self._added_folders = added_folders
        self._save_rules = save_rules
        self._policy: RulePolicy | None = None
        self._session_id = ""  # the session whose call is being judged
        # Where the next command of a session would run; its tools know.
        self.session_cwd: Callable[[str], str] | None = None
        # Awaited before a call that is not denied, so before its effect.
        self.before_call: Callable[[PermissionRequest], Awaitable[None]] | None = None

    @property
    def mode(self) -> PermissionMode:
        return self._mode

    def change_mode(self, mode: PermissionMode) -> None:
        """The person chose another mode."""
        self._mode = mode
        if self._policy is not None:
            self._policy.change_mode(mode)

    async def decide(self, request: PermissionRequest) -> Verdict:
        policy = await self.get_policy()
        self._session_id = request.session_id
        verdict = await policy.decide(request)
        if self.before_call is not None and not isinstance(verdict, Deny):
            await self.before_call(request)
        return verdict

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        await (await self.get_policy()).save_rules(request, rules)

    async def get_policy(self) -> RulePolicy:
        if self._policy is None:
            # Whether commands are walled in is known only when the workspace is open.
            workspace = await self._workspace.open()
            self._policy = self._make_policy(sandboxed=workspace.sandboxed)
        return self._policy

    def _make_policy(self, *, sandboxed: bool) -> RulePolicy:
        from treadle.policy.policy import RulePolicy, build_policy_context

        async def keep(rules: tuple[str, ...]) -> None:
            if self._save_rules is not None:
                self._save_rules(rules)

        return RulePolicy(
            build_policy_context(self._workspace.root, self._rules(), self._added_folders),
            mode=self._mode,
            interactive=self._interactive,
            sandboxed=sandboxed,
            get_cwd=self._cwd,
            save_rules=keep,
        )

    def _cwd(self) -> str:
        root = str(self._workspace.root)
        return self.session_cwd(self._session_id) if self.session_cwd is not None else root


def _consume_exception(task: asyncio.Task[LocalWorkspace]) -> None:
    if not task.cancelled():
        task.exception()  # raised again to whoever needs the workspace


if TYPE_CHECKING:
    from treadle.context.memory import Memory, MemoryFile
    from treadle.context.reminders import Reminders
    from treadle.tools.builtin import BuiltinSource


class LazyReminders:
    """A Mutator before each model call but a session's first; `at_stop` is its Hook."""

    name = "reminders"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(
        self,
        builtin: BuiltinSource,
        root: Path,
        memory: Memory | None,
        mode: Callable[[], str],
        *,
        trusted: bool,
        secrets: tuple[str, ...] = (),
    ) -> None:
        self._builtin = builtin
        self._root = root
        self._memory = memory
        self._trusted = trusted
        self._secrets = secrets
        self._mode = mode
        self._first_mode = mode()
        self._reminders: Reminders | None = None
        self.stop_hook = _StopHook(self)

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if (
            self._reminders is None
            and len(context.transcript) < 2
            and self._mode() == self._first_mode
        ):
            return None  # one message: nothing was seen that could have changed since
        return await self.get_reminders().mutate(context)

    def get_reminders(self) -> Reminders:
        if self._reminders is None:
            from treadle.context.memory import Memory
            from treadle.context.reminders import ChangedFiles, ChangedMemory, Reminders

            folders = self._iter_seen_folders if self._trusted else None
            memory = ChangedMemory(self._memory or Memory(), self._root, folders)
            self._reminders = Reminders(
                changed_files=ChangedFiles(self._get_seen_files),
                changed_memory=lambda session_id: self._redact_files(memory(session_id)),
                mode=_start_with_mode(self._first_mode, self._mode),
            )
        return self._reminders

    def _redact_files(self, files: list[MemoryFile]) -> list[MemoryFile]:
        return [
            msgspec.structs.replace(file, text=redact(self._secrets, file.text)) for file in files
        ]

    @property
    def is_created(self) -> bool:
        return self._reminders is not None

    def _get_seen_files(self, session_id: str) -> dict[Path, str]:
        notes = self._builtin.sessions.get(session_id)
        return {path: seen.digest for path, seen in notes.seen_files.items()}

    def _iter_seen_folders(self, session_id: str) -> Iterator[Path]:
        """Below the root, where the session saw files."""
        for path in self._builtin.sessions.get(session_id).seen_files:
            if path.parent != self._root and path.is_relative_to(self._root):
                yield path.parent


class _StopHook:
    points: frozenset[HookPoint] = frozenset({"stop"})

    def __init__(self, reminders: LazyReminders) -> None:
        self._reminders = reminders

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        return (
            await self._reminders.get_reminders().stop_hook.run(hook_input)
            if self._reminders.is_created
            else None
        )


def _start_with_mode(first: str, mode: Callable[[], str]) -> Callable[[], str]:
    """The first answer is the mode that the prompt was written for."""
    answers = iter((first,))
    return lambda: next(answers, None) or mode()
