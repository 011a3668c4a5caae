"""Parts that are made at first use: workspace, policy, reminders.

A run that makes no tool call pays for none of them. They behave like the real objects; only the
first call is slower. `LazyWorkspace.preload` starts early, while the model still writes a call.
Used by assemble.py and `treadle replay`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

import msgspec

from treadle.apps.settings.managed_policy import ManagedPolicy
from treadle.context.prompt import make_attendance_notice
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import PermissionRequest, Verdict
from treadle.core.contracts.workspace import NetworkAccess, Workspace
from treadle.core.errors import WorkspaceError
from treadle.core.transcript.transcript import Transcript
from treadle.lib.tasks import forget_result
from treadle.lib.text.redaction import redact

if TYPE_CHECKING:
    from treadle.context.memory import Memory, MemoryFile
    from treadle.context.reminders import Reminders
    from treadle.permissions.modes import PermissionMode
    from treadle.permissions.policy import AskJudge, RulePolicy
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.tools.builtin import BuiltinSource
    from treadle.workspace.container import ContainerOptions
    from treadle.workspace.local import LocalWorkspace
    from treadle.workspace.options import WorkspaceOptions

T = TypeVar("T")
P = ParamSpec("P")


class Lazy(Generic[T]):
    """A value that is made when `get` is called first."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []

    @property
    def is_made(self) -> bool:
        return bool(self._made)

    def get(self) -> T:
        if not self._made:
            self._made.append(self._make())
        return self._made[0]


# ------------------------------------------------------------------ workspace


def _forward(
    method: Callable[[LocalWorkspace], Callable[P, Coroutine[Any, Any, T]]],
    waits: Callable[[Mapping[str, object]], bool] = lambda options: False,
) -> Callable[Concatenate[LazyWorkspace, P], Coroutine[Any, Any, T]]:
    """A method of the real workspace. `waits`, given the keyword arguments, says whether the call
    has to wait for the sandbox check."""

    async def call(self: LazyWorkspace, /, *args: P.args, **kwargs: P.kwargs) -> T:
        local = await self.open() if waits(kwargs) else self.get_local()
        return await method(local)(*args, **kwargs)

    return call


def _if_sandboxed(options: Mapping[str, object]) -> bool:
    return not options.get("read_only") and options.get("sandboxed") is not False


class LazyWorkspace:
    """A local workspace that is made at first use. Implements Workspace, and `spawn`.

    File access and programs outside the sandbox do not wait for the sandbox check; commands do.
    """

    def __init__(
        self,
        root: Path,
        options: Callable[[], WorkspaceOptions],
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self._root = root.resolve()
        self._options = options
        self._warn = warn
        self._local = Lazy(self._make_local)
        self._preload_task: asyncio.Task[LocalWorkspace] | None = None
        self._is_closed = False

    def preload(self) -> None:
        """Start to make the workspace and its sandbox in the background."""
        if self._preload_task is None and not self._is_closed:
            self._preload_task = asyncio.get_running_loop().create_task(self._preload())
            self._preload_task.add_done_callback(forget_result)  # `open` raises it again

    async def _preload(self) -> LocalWorkspace:
        # In threads: keys and frames do not wait for the modules that the first call needs.
        await asyncio.to_thread(_import_workspace)
        if self._options().sandbox != "off":
            await asyncio.to_thread(_import_sandbox)
        return await self.open()

    def _make_local(self) -> LocalWorkspace:
        from treadle.workspace.local import LocalWorkspace

        return LocalWorkspace(self._root, self._options())

    def get_local(self) -> LocalWorkspace:
        """The real workspace, even if the sandbox check is not done."""
        if self._is_closed:
            raise WorkspaceError("the workspace is closed")
        return self._local.get()

    async def open(self) -> LocalWorkspace:
        """The real workspace, after the sandbox check."""
        local = self.get_local()
        await local.prepare()
        warn, self._warn = self._warn, None
        if warn is not None and self.sandbox_problem:
            warn(f"commands run without a sandbox: {self.sandbox_problem}")
        return local

    @property
    def sandbox_problem(self) -> str:
        """Why commands run without the sandbox that is wanted; "" if they run in it, or if that is
        not known yet."""
        if not self._local.is_made or not self._local.get().lacks_sandbox:
            return ""
        return self._local.get().sandbox_problem

    @property
    def root(self) -> Path:
        return self._root

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        return self.get_local().resolve(path, for_write=for_write)

    def resolve_outside(self, path: str) -> Path:
        return self.get_local().resolve_outside(path)

    read = _forward(lambda local: local.read)
    read_outside = _forward(lambda local: local.read_outside)
    execute_outside = _forward(lambda local: local.execute_outside)
    write = _forward(lambda local: local.write)
    remove = _forward(lambda local: local.remove)
    run = _forward(lambda local: local.run, lambda options: True)
    start = _forward(lambda local: local.start, lambda options: True)
    execute = _forward(lambda local: local.execute, _if_sandboxed)
    spawn = _forward(lambda local: local.spawn)

    async def release(self) -> None:
        """Close the real workspace; the next use makes another one."""
        task, self._preload_task = self._preload_task, None
        local, self._local = self._local, Lazy(self._make_local)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        if local.is_made:
            await local.get().aclose()

    async def aclose(self) -> None:
        """Close it for good."""
        self._is_closed = True
        await self.release()


def _import_workspace() -> None:
    import treadle.permissions.policy
    import treadle.workspace.local  # noqa: F401


def _import_sandbox() -> None:
    import treadle.workspace.sandbox.bubblewrap  # noqa: F401


# ------------------------------------------------------------------ policy


class PolicyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies of an agent and of its children have in common.

    `is_contained`: commands run in containers, not in the sandbox of the workspace. `network` is
    that of the sandbox or the container.
    """

    interactive: bool
    added_folders: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    is_contained: bool = False
    network: NetworkAccess = True
    policy: ManagedPolicy = ManagedPolicy()


class LazyPolicy:
    """A Policy over the permission rules, made at the first call."""

    def __init__(
        self,
        workspace: LazyWorkspace,
        rules: Callable[[], RuleSet],
        mode: PermissionMode,
        options: PolicyOptions,
        save_rules: Callable[[tuple[str, ...]], None] = lambda rules: None,
    ) -> None:
        self._workspace = workspace
        self._rules = rules
        self._mode: PermissionMode = mode
        self._options = options
        self._save_rules = save_rules
        self._session_rules: tuple[str, ...] = ()
        self._granted: tuple[str, ...] = ()
        self.has_checkpoints = False  # before the first decision
        self.judge: AskJudge | None = None  # the same
        self._policy = Lazy(self._make_policy)

    @property
    def mode(self) -> PermissionMode:
        return self._mode

    def change_mode(self, mode: PermissionMode) -> None:
        from treadle.permissions.modes import choose_narrower

        self._mode = mode = choose_narrower(mode, self._options.policy.widest_mode)
        if self._policy.is_made:
            self._policy.get().change_mode(mode)

    def allow_for_session(self, rules: tuple[str, ...]) -> None:
        """Rules that the user accepted until this session is closed."""
        self._session_rules += rules
        if self._policy.is_made:
            self._policy.get().allow_for_session(rules)

    def grant(self, rules: tuple[str, ...]) -> None:
        """Allow these for a turn; () ends it."""
        self._granted = rules
        if self._policy.is_made:
            self._policy.get().grant(rules)

    async def decide(self, request: PermissionRequest) -> Verdict:
        return await (await self.get_policy()).decide(request)

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        await (await self.get_policy()).save_rules(request, rules)

    async def get_policy(self) -> RulePolicy:
        if not self._policy.is_made:
            await self._workspace.open()  # the rules depend on whether there is a sandbox
        return self._policy.get()

    async def get_find_denied(self) -> Callable[[Sequence[str]], list[str]]:
        """Which of some files a search leaves out."""
        return (await self.get_policy()).find_denied

    def _make_policy(self) -> RulePolicy:
        from treadle.permissions.policy import RulePolicy, build_policy_context

        async def save(rules: tuple[str, ...]) -> None:
            self._save_rules(rules)

        options, has_sandbox = self._options, self._workspace.get_local().sandboxed
        context = build_policy_context(
            self._workspace.root, self._rules(), options.added_folders, options.readable
        )
        policy = RulePolicy(
            # The search tools and the sandbox leave out what a rule denies: see toolset.py.
            msgspec.structs.replace(
                context,
                has_checkpoints=self.has_checkpoints,
                tools_skip_denied=True,
                sandbox_hides_denied=has_sandbox and not options.is_contained,
                sandbox_network=options.network,
                widest_network=options.policy.widest_network,
                accepts_rules=not options.policy.managed_rules_only,
            ),
            mode=self._mode,
            widest_mode=options.policy.widest_mode,
            interactive=options.interactive,
            sandboxed=has_sandbox or options.is_contained,
            save_rules=save,
            judge=self.judge,
        )
        policy.allow_for_session(self._session_rules)
        policy.grant(self._granted)
        return policy


# ------------------------------------------------------------------ reminders


class LazyReminders:
    """A Mutator before each model call, except for the first of a session that is not in plan
    mode."""

    name = "reminders"
    for_children = False  # each has its own: see children.py
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
        is_attended: bool = True,
        began_attended: bool = True,
        find_seen_digest: Callable[[str], str] | None = None,
        more_memory: bool = False,
        check_read: Callable[[Path], str] = lambda path: "",
    ) -> None:
        self._check_read = check_read
        self._find_seen_digest = find_seen_digest or (lambda digest: digest)
        self._is_attended = is_attended
        self._began_attended = began_attended
        self._builtin = builtin
        self._root = root
        self._memory = memory
        self._more_memory = more_memory
        self._trusted = trusted
        self._secrets = secrets
        self._mode = mode
        self._first_mode = mode()
        self._reminders = Lazy(self._make_reminders)
        self._reported: set[str] = set()  # the sessions whose hooks know the memory files

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if context.session_id not in self._reported:
            self._reported.add(context.session_id)
            for file in self._memory.files if self._memory is not None else ():
                await context.run_hooks("instructions_loaded", file.describe_load())
        # With one message, nothing can have changed since the model saw it.
        is_first = len(context.transcript) < 2 and self._mode() == self._first_mode != "plan"
        if is_first and not self._reminders.is_made:
            if self._is_attended == self._began_attended:
                return None
            return Transcript([*context.transcript, make_attendance_notice(self._is_attended)])
        return await self._reminders.get().mutate(context)

    def _make_reminders(self) -> Reminders:
        from treadle.context.memory import Memory
        from treadle.context.reminders import ChangedFiles, ChangedMemory, Reminders

        files = self._iter_seen_paths if self._trusted else None
        memory = ChangedMemory(
            self._memory or Memory(),
            self._root,
            files=files,
            more=self._more_memory,
            check_read=self._check_read,
        )
        return Reminders(
            changed_files=ChangedFiles(self._get_seen_files, self._make_digest),
            changed_memory=lambda session_id: self._redact_files(memory(session_id)),
            mode=_start_with_mode(self._first_mode, self._mode),
            is_attended=self._is_attended,
            began_attended=self._began_attended,
        )

    def _make_digest(self, data: bytes) -> str:
        """What the tools saw of a file with this content on disk."""
        return self._find_seen_digest(hashlib.sha256(data).hexdigest())

    def _redact_files(self, files: list[MemoryFile]) -> list[MemoryFile]:
        replace, secrets = msgspec.structs.replace, self._secrets
        return [replace(file, text=redact(secrets, file.text)) for file in files]

    def _get_seen_files(self, session_id: str) -> dict[Path, str]:
        seen_files = self._builtin.sessions.get(session_id).seen_files
        return {path: seen.digest for path, seen in seen_files.items()}

    def _iter_seen_paths(self, session_id: str) -> Iterator[Path]:
        """The files below the root which the session read or wrote."""
        for path in self._builtin.sessions.get(session_id).seen_files:
            if path.is_relative_to(self._root):
                yield path


def _start_with_mode(first: str, mode: Callable[[], str]) -> Callable[[], str]:
    """`mode`, except that the first answer is the mode in which the session was opened."""
    answers = iter((first,))
    return lambda: next(answers, None) or mode()


# ------------------------------------------------------------------ containers


class Containers:
    """Makes the workspaces of an agent whose commands run in containers: its own, and those of its
    children in worktrees."""

    def __init__(
        self,
        options: ContainerOptions,
        outputs_dir: Path | None,
        secrets: tuple[str, ...],
    ) -> None:
        self._options = options
        self._outputs_dir, self._secrets = outputs_dir, secrets
        self._clients: list[LazyWorkspace] = []

    def make_workspace(self, files: Workspace, rules: Callable[[], RuleSet]) -> Workspace:
        """Commands in containers, held to the deny rules; files as in the workspace that is
        given."""
        from treadle.apps.settings.folder_rules import make_file_denials
        from treadle.workspace.container import ContainerWorkspace, make_client_options

        client = LazyWorkspace(
            files.root, lambda: make_client_options(self._outputs_dir, self._secrets)
        )
        self._clients.append(client)
        return ContainerWorkspace(
            files.root,
            self._options,
            files=files,
            client=client,
            get_denials=lambda: make_file_denials(rules()),
        )

    async def release(self) -> None:
        """Close what is open; it opens again when it is used."""
        for client in self._clients:
            await client.release()
