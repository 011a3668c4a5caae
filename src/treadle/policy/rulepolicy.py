"""The policy that an agent is given: rules, a mode, and whether a person can be asked.

A thin face over the judge for the engine's contract. It holds its rules as they were when it was
made; only `remember`, which the person causes, adds to them.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from treadle.core.contracts.policy import Allow, Ask, Deny, Proposal, Verdict
from treadle.policy.files import Situation
from treadle.policy.judge import Judge
from treadle.policy.modes import GRANTS_EDITS, Mode, apply_mode, headless
from treadle.policy.remember import propose_rules
from treadle.policy.rules import Origin, RuleSet, parse_rule, tool_key
from treadle.policy.verdict import Call, Ruling

NO_RULES = RuleSet()


class KeepRules(Protocol):
    """Who saves what the person always allows (a settings file, usually)."""

    def __call__(self, rules: tuple[str, ...]) -> Awaitable[None]: ...


class RulePolicy:
    """Decides by rules. Implements `core.contracts.policy.Policy`.

    `cwd` tells where the next command would run. `sandboxed` says that commands run inside the
    sandbox. `changed` tells whether a tool's definition differs from the approved one.
    """

    def __init__(
        self,
        situation: Situation,
        *,
        mode: Mode = "ask",
        interactive: bool = True,
        sandboxed: bool = False,
        cwd: Callable[[], str] | None = None,
        changed: Callable[[str], bool] | None = None,
        keep: KeepRules | None = None,
    ) -> None:
        self._situation = situation
        self._interactive = interactive
        self._sandboxed = sandboxed
        self._cwd = cwd
        self._changed = changed
        self._keep = keep
        self._mode: Mode = mode
        self._judge = self._make_judge()

    @property
    def mode(self) -> Mode:
        return self._mode

    def change_mode(self, mode: Mode) -> None:
        """The person chose another mode."""
        self._mode = mode
        self._judge = self._make_judge()

    @property
    def rules(self) -> RuleSet:
        return self._situation.rules

    async def decide(self, proposal: Proposal) -> Verdict:
        try:
            call = self._call(proposal)
            ruling = self.rule(call)
        except Exception as error:  # noqa: BLE001 (an error inside is never an Allow)
            return Deny(f"The call could not be judged: {error!r}")
        match ruling.outcome:
            case "allow":
                return Allow(ruling.reason)
            case "deny":
                return Deny(ruling.reason)
        return Ask(ruling.reason, propose_rules(call, self._situation))

    async def remember(self, proposal: Proposal, rules: tuple[str, ...]) -> None:
        """Keep rules that the person was shown and accepted."""
        situation = self._situation
        added = tuple(
            parse_rule(r, situation.root, situation.home, Origin("always allow")) for r in rules
        )
        if self._keep is not None:
            await self._keep(rules)
        wider = situation.rules + RuleSet(allow=added)
        self._situation = msgspec.structs.replace(situation, rules=wider)
        self._judge = self._make_judge()

    def rule(self, call: Call) -> Ruling:
        """The ruling on a call in the present mode, for showing as well as for deciding."""
        rules = self._situation.rules
        careful = any(r.tool == "bash" for r in (*rules.deny, *rules.ask))
        ruling = apply_mode(self._judge.judge(call), call, self._mode, careful=careful)
        return ruling if self._interactive else headless(ruling)

    def _call(self, proposal: Proposal) -> Call:
        tool = proposal.tool
        return Call(
            tool.name,
            proposal.arguments,
            self._cwd() if self._cwd is not None else self._situation.root,
            pure=tool.effect == "pure" and not tool_key(tool.name).startswith("mcp__"),
            changed=self._changed is not None and self._changed(tool.name),
            sandboxed=self._sandboxed,
        )

    def _make_judge(self) -> Judge:
        granted = self._mode in GRANTS_EDITS
        return Judge(msgspec.structs.replace(self._situation, edits_granted=granted))


def situation_of(
    root: str | os.PathLike[str],
    rules: RuleSet = NO_RULES,
    extra_roots: tuple[str, ...] = (),
) -> Situation:
    """The situation in a folder of this machine, by its real path."""
    real = os.path.realpath(root)
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 (kept as text)
    return Situation(real, home, rules, tuple(os.path.realpath(r) for r in extra_roots))
