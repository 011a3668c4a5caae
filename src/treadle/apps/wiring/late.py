"""What is made when it is needed: the workspace, and the policy that judges calls in it.

A run that only talks pays for neither. `warm` begins to make both, for a host that sees a call
coming while the model still writes it. Both keep their contracts: nobody can tell but by the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.core.contracts.policy import Deny, Proposal, Verdict
from treadle.core.contracts.workspace import Completed, FileContent, Running

if TYPE_CHECKING:
    from treadle.policy.modes import Mode
    from treadle.policy.rulepolicy import RulePolicy
    from treadle.policy.rules import RuleSet
    from treadle.workspace.local import Executed, LocalWorkspace, Options
    from treadle.workspace.processes import Process


class LateWorkspace:
    """A local workspace that opens with its first use; the contract, and what tools use beyond."""

    def __init__(
        self,
        root: Path,
        options: Callable[[], Options],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._root = root.resolve()
        self._options = options
        self._tell = tell
        self._opening: asyncio.Task[LocalWorkspace] | None = None
        self._is_closed = False

    def warm(self) -> None:
        """Begin to open it, and go on."""
        if self._opening is None and not self._is_closed:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(_seen)

    async def opened(self) -> LocalWorkspace:
        self.warm()
        if self._opening is None:
            from treadle.core.errors import WorkspaceError

            raise WorkspaceError("the workspace is closed")
        return await asyncio.shield(self._opening)

    async def _open(self) -> LocalWorkspace:
        from treadle.workspace.local import LocalWorkspace

        options = self._options()
        workspace = await LocalWorkspace.open(self._root, options)
        if self._tell is not None and not workspace.sandboxed and options.sandbox != "off":
            self._tell(f"commands run without a sandbox: {workspace.sandbox_problem}")
        return workspace

    @property
    def root(self) -> Path:
        return self._root

    def resolve(self, path: str) -> Path:
        if self._opening is not None and self._opening.done():
            return self._opening.result().resolve(path)
        from treadle.workspace.files import place

        options = self._options()
        folders = (*options.added, *options.readable)
        root, rest = place((self._root, *(f.resolve() for f in folders)), self._root, path)
        return root / rest

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        return await (await self.opened()).read(path, limit=limit)

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        return await (await self.opened()).write(path, data, expected=expected, mode=mode)

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        await (await self.opened()).remove(path, expected=expected)

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[str], None] | None = None,
        confined: bool | None = None,
        network: bool | None = None,
    ) -> Completed:
        return await (await self.opened()).run(
            command,
            cwd=cwd,
            env=env,
            timeout=timeout,
            on_output=on_output,
            confined=confined,
            network=network,
        )

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        confined: bool | None = None,
        network: bool | None = None,
    ) -> Running:
        return await (await self.opened()).start(
            command, cwd=cwd, env=env, confined=confined, network=network
        )

    async def execute(self, argv: Sequence[str], **options: Any) -> Executed:
        return await (await self.opened()).execute(argv, **options)

    async def spawn(
        self, argv: Sequence[str], descriptors: Mapping[int, int], **options: Any
    ) -> Process:
        return await (await self.opened()).spawn(argv, descriptors, **options)

    async def aclose(self) -> None:
        self._is_closed = True
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
        try:
            await (await opening).aclose()
        except asyncio.CancelledError:
            pass
        except Exception:  # noqa: BLE001 - it never opened, and whoever needed it was told so
            pass


class LatePolicy:
    """The rules' verdicts, from a judge that is made with the first call."""

    def __init__(
        self,
        workspace: LateWorkspace,
        rules: Callable[[], RuleSet],
        *,
        mode: Mode,
        interactive: bool,
        added: tuple[str, ...] = (),
        keep: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        self._workspace = workspace
        self._rules = rules
        self._mode: Mode = mode
        self._interactive = interactive
        self._added = added
        self._keep = keep
        self._made: RulePolicy | None = None
        self._judged = ""  # the session whose call is being judged
        # Where the next command of a session would run; its tools know.
        self.stands: Callable[[str], str] | None = None
        # Awaited before a call that is not denied, so before its effect.
        self.before: Callable[[Proposal], Awaitable[None]] | None = None

    @property
    def mode(self) -> Mode:
        return self._mode

    def change_mode(self, mode: Mode) -> None:
        """The person chose another mode."""
        self._mode = mode
        if self._made is not None:
            self._made.change_mode(mode)

    async def decide(self, proposal: Proposal) -> Verdict:
        policy = await self.policy()
        self._judged = proposal.session_id
        verdict = await policy.decide(proposal)
        if self.before is not None and not isinstance(verdict, Deny):
            await self.before(proposal)
        return verdict

    async def remember(self, proposal: Proposal, rules: tuple[str, ...]) -> None:
        await (await self.policy()).remember(proposal, rules)

    async def policy(self) -> RulePolicy:
        if self._made is None:
            # Whether commands are walled in is known only when the workspace is open.
            workspace = await self._workspace.opened()
            self._made = self._make(sandboxed=workspace.sandboxed)
        return self._made

    def _make(self, *, sandboxed: bool) -> RulePolicy:
        from treadle.policy.rulepolicy import RulePolicy, situation_of

        async def keep(rules: tuple[str, ...]) -> None:
            if self._keep is not None:
                self._keep(rules)

        return RulePolicy(
            situation_of(self._workspace.root, self._rules(), self._added),
            mode=self._mode,
            interactive=self._interactive,
            sandboxed=sandboxed,
            cwd=self._cwd,
            keep=keep,
        )

    def _cwd(self) -> str:
        root = str(self._workspace.root)
        return self.stands(self._judged) if self.stands is not None else root


def _seen(task: asyncio.Task[LocalWorkspace]) -> None:
    if not task.cancelled():
        task.exception()  # raised again to whoever needs the workspace
