"""What is made when it is needed: the workspace, and the policy that judges calls in it.

A run that only talks pays for neither. `warm` begins to make both, for a host that sees a call
coming while the model still writes it. Both keep their contracts: nobody can tell but by the clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.core.contracts.policy import Deny, Proposal, Verdict
from treadle.core.contracts.workspace import Completed, Executed, FileContent, Running
from treadle.core.errors import WorkspaceError

if TYPE_CHECKING:
    from treadle.policy.modes import Mode
    from treadle.policy.rulepolicy import RulePolicy
    from treadle.policy.rules import RuleSet
    from treadle.workspace.local import LocalWorkspace, Options
    from treadle.workspace.processes import Process


class LateWorkspace:
    """A local workspace that is made with its first use: the contract, and what tools use beyond.

    Files and programs outside of the walls need no more; what goes by the walls waits for them.
    """

    def __init__(
        self,
        root: Path,
        options: Callable[[], Options],
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._root = root.resolve()
        self._options = options
        self._tell = tell
        self._made: LocalWorkspace | None = None
        self._warming: asyncio.Task[LocalWorkspace] | None = None
        self._is_closed = False

    def warm(self) -> None:
        """Begin to make it and its walls, and go on."""
        if self._warming is None and not self._is_closed:
            self._warming = asyncio.get_running_loop().create_task(self.opened())
            self._warming.add_done_callback(_seen)

    def local(self) -> LocalWorkspace:
        """The workspace itself, whether or not its walls are known."""
        if self._is_closed:
            raise WorkspaceError("the workspace is closed")
        if self._made is None:
            from treadle.workspace.local import LocalWorkspace

            self._made = LocalWorkspace(self._root, self._options())
        return self._made

    async def opened(self) -> LocalWorkspace:
        """The workspace, once it is known whether commands are walled in."""
        local = self.local()
        await local.prepare()
        tell, self._tell = self._tell, None
        if tell is not None and not local.sandboxed and self._options().sandbox != "off":
            tell(f"commands run without a sandbox: {local.sandbox_problem}")
        return local

    @property
    def root(self) -> Path:
        return self._root

    def resolve(self, path: str, *, changing: bool = False) -> Path:
        return self.local().resolve(path, changing=changing)

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        return await self.local().read(path, limit=limit)

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        return await self.local().write(path, data, expected=expected, mode=mode)

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        await self.local().remove(path, expected=expected)

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

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
        limit: int = 8 << 20,
        confined: bool | None = None,
        reading: bool = False,
    ) -> Executed:
        local = self.local() if reading or confined is False else await self.opened()
        return await local.execute(
            argv,
            cwd=cwd,
            env=env,
            timeout=timeout,
            stdin=stdin,
            limit=limit,
            confined=confined,
            reading=reading,
        )

    async def spawn(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        return await self.local().spawn(argv, descriptors, cwd=cwd, env=env)

    async def aclose(self) -> None:
        self._is_closed = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.wait({self._warming})
        if self._made is not None:
            await self._made.aclose()


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
