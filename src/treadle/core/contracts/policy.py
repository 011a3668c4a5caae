"""The contract of a policy: may this call happen?

The loop asks about every well-formed call before its effect. It asks again about the same call if
its arguments changed, if it may start early, after the user has answered about another call of the
reply, or after a restart. Rules and permission modes are defined in permissions/. Used by
core/loop/calls/prepare.py.
"""

from __future__ import annotations

from typing import Generic, Literal, Protocol, cast

import msgspec

from treadle.core.contracts.model import CallModel
from treadle.core.contracts.tool import NO_ACCESS, Access, ToolSpec
from treadle.core.contracts.wrapped import call_directly
from treadle.core.transcript.content import Arguments
from treadle.core.type_variables import ContextDepsT, PartDepsT
from treadle.lib.logger import logger


class PermissionRequest(msgspec.Struct, Generic[ContextDepsT], frozen=True):
    """A call to decide on. `access` says what it uses, and from which folder; `deps` is what the
    run was given: `PermissionRequest[Shop]`. A policy that asks a model does so by `call_model`,
    with the purpose "judge"."""

    session_id: str
    call_id: str
    tool: ToolSpec
    arguments: Arguments
    summary: str
    access: Access = NO_ACCESS
    call_model: CallModel = call_directly
    deps: ContextDepsT = cast(ContextDepsT, None)


class Allow(msgspec.Struct, frozen=True):
    reason: str = ""


class Deny(msgspec.Struct, frozen=True):
    """The call is denied. The model reads the reason.

    `kind` "headless": the call needs approval, and the run has no user to ask.
    """

    reason: str
    kind: Literal["policy", "headless"] = "policy"


# write, delete, recursive_delete, outside (of the folder): of a path. discard: changes or commits
# that git may lose. network, send: of a host. force_push: can overwrite or delete on the remote.
# remote_code: runs what it downloads. other_user: as root or another user. no_sandbox: outside it.
# not_kept (a path), no_network (a host): the sandbox, in which the command runs, prevents it.
RiskKind = Literal[
    "write",
    "delete",
    "recursive_delete",
    "discard",
    "network",
    "send",
    "force_push",
    "outside",
    "remote_code",
    "other_user",
    "no_sandbox",
    "not_kept",
    "no_network",
]


class Risk(msgspec.Struct, frozen=True):
    """Something that a call would do and that the user should know before an approval."""

    kind: RiskKind
    target: str = ""  # the path, host or command; "" if it is not known


class Ask(msgspec.Struct, frozen=True):
    """The user has to decide. `rules` are what "always" would save; they are shown before.

    `kind` "question": the call is itself a question to the user, which approval cannot answer.
    `wider_mode` is the permission mode in which the user would not be asked, if one may be offered.
    """

    reason: str
    rules: tuple[str, ...] = ()
    kind: Literal["approval", "question"] = "approval"
    risks: tuple[Risk, ...] = ()
    wider_mode: str = ""


Verdict = Allow | Deny | Ask
GUESSED = "the arguments were not written as the tool takes them, and are a guess: {guesses}"


def require_approval(verdict: Verdict, tool: ToolSpec, guesses: str = "") -> Verdict:
    """The verdict on a call of this tool: the user decides if the tool needs an approval, and if an
    irreversible call has values that were guessed; `guesses` says which."""
    if not isinstance(verdict, Allow):
        return verdict
    if tool.needs_approval:
        return Ask(f"every call of `{tool.name}` needs the user's approval")
    if guesses and tool.effect == "irreversible":
        return Ask(GUESSED.format(guesses=guesses))
    return verdict


class Policy(Protocol[PartDepsT]):
    """Decides on tool calls.

    Promises: the same request under the same rules gets the same verdict; an internal error
    results in Deny or Ask, never in Allow.
    A policy must not run anything, and neither a model nor a repository may widen it.
    """

    async def decide(self, request: PermissionRequest[PartDepsT]) -> Verdict: ...

    async def save_rules(
        self, request: PermissionRequest[PartDepsT], rules: tuple[str, ...]
    ) -> None:
        """The user chose "always": save these rules."""


class BasePolicy(Generic[PartDepsT]):
    """A policy that saves no rules. A subclass defines `decide`."""

    async def decide(self, request: PermissionRequest[PartDepsT]) -> Verdict:
        raise NotImplementedError(f"{type(self).__name__} does not define `decide`")

    async def save_rules(
        self, request: PermissionRequest[PartDepsT], rules: tuple[str, ...]
    ) -> None:
        return None


class AllowAll(BasePolicy):
    """Allows every call."""

    async def decide(self, request: PermissionRequest) -> Verdict:
        return Allow()


NOT_ALLOWED = (
    "this agent has no policy, and {name} changes files or runs commands. The program that made "
    "the agent can allow it: Agent(policy=...) with rules or AllowAll(), Agent(approve=...) with a "
    "function that decides, or treadle.coding_agent(folder, permission_mode=...)"
)


class DefaultPolicy(BasePolicy):
    """The policy of an agent that was given none: the program's own tools run.

    A tool that needs a policy (`ToolSpec.needs_policy`), as the built-in ones that change
    something do, runs if the approver says so, and is denied without an approver.
    """

    def __init__(self, *, can_ask: bool) -> None:
        self._can_ask = can_ask
        self._reported: set[str] = set()  # tools

    async def decide(self, request: PermissionRequest) -> Verdict:
        return self.judge(request.tool)

    def judge(self, tool: ToolSpec) -> Verdict:
        if not tool.needs_policy:
            return Allow()
        if self._can_ask:
            return Ask("this agent has no policy, and the call may change something")
        reason = NOT_ALLOWED.format(name=tool.name)
        if tool.name not in self._reported:
            self._reported.add(tool.name)
            logger.warning("%s is denied: %s", tool.name, reason)
        return Deny(reason, "headless")
