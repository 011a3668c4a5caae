"""The policy that an agent is given: rules, a mode, and whether a person can be asked.

A thin face over the judge for the engine's contract. It holds its rules as they were when it was
made; only `remember`, which the person causes, adds to them.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.policy.evaluation.file_evaluator import PolicyContext
from treadle.policy.evaluation.permission_evaluator import PermissionEvaluator
from treadle.policy.evaluation.rule_suggestions import suggest_rules
from treadle.policy.evaluation.ruling import PolicyCall, PolicyRuling
from treadle.policy.modes import EDIT_MODES, PermissionMode, apply_headless, apply_mode
from treadle.policy.ruleset.rules import RuleOrigin, RuleSet, normalize_tool_name, parse_rule

NO_RULES = RuleSet()


class SaveRules(Protocol):
    """Who saves what the person always allows (a settings file, usually)."""

    def __call__(self, rules: tuple[str, ...]) -> Awaitable[None]: ...


class RulePolicy:
    """Decides by rules. Implements `core.contracts.policy.Policy`.

    `cwd` tells where the next command would run. `sandboxed` says that commands run inside the
    sandbox. `changed` tells whether a tool's definition differs from the approved one.
    """

    def __init__(
        self,
        context: PolicyContext,
        *,
        mode: PermissionMode = "ask",
        interactive: bool = True,
        sandboxed: bool = False,
        get_cwd: Callable[[], str] | None = None,
        is_tool_changed: Callable[[str], bool] | None = None,
        save_rules: SaveRules | None = None,
    ) -> None:
        self._context = context
        self._interactive = interactive
        self._sandboxed = sandboxed
        self._get_cwd = get_cwd
        self._is_tool_changed = is_tool_changed
        self._save_rules = save_rules
        self._mode: PermissionMode = mode
        self._evaluator = self._make_evaluator()

    @property
    def mode(self) -> PermissionMode:
        return self._mode

    def change_mode(self, mode: PermissionMode) -> None:
        """The person chose another mode."""
        self._mode = mode
        self._evaluator = self._make_evaluator()

    @property
    def rules(self) -> RuleSet:
        return self._context.rules

    async def decide(self, request: PermissionRequest) -> Verdict:
        try:
            call = self._make_call(request)
            ruling = self.evaluate(call)
        except Exception as error:  # noqa: BLE001 (an error inside is never an Allow)
            return Deny(f"The call could not be judged: {error!r}")
        match ruling.outcome:
            case "allow":
                return Allow(ruling.reason)
            case "deny":
                return Deny(ruling.reason)
        return Ask(ruling.reason, suggest_rules(call, self._context))

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        """Keep rules that the person was shown and accepted."""
        situation = self._context
        added = tuple(
            parse_rule(r, situation.root, situation.home, RuleOrigin("always allow")) for r in rules
        )
        if self._save_rules is not None:
            await self._save_rules(rules)
        wider = situation.rules + RuleSet(allow=added)
        self._context = msgspec.structs.replace(situation, rules=wider)
        self._evaluator = self._make_evaluator()

    def evaluate(self, call: PolicyCall) -> PolicyRuling:
        """The ruling on a call in the present mode, for showing as well as for deciding."""
        rules = self._context.rules
        careful = any(r.tool == "bash" for r in (*rules.deny, *rules.ask))
        ruling = apply_mode(
            self._evaluator.evaluate(call), call, self._mode, has_command_rules=careful
        )
        return ruling if self._interactive else apply_headless(ruling)

    def _make_call(self, request: PermissionRequest) -> PolicyCall:
        tool = request.tool
        return PolicyCall(
            tool.name,
            request.arguments,
            self._get_cwd() if self._get_cwd is not None else self._context.root,
            is_pure=tool.effect == "pure"
            and not normalize_tool_name(tool.name).startswith("mcp__"),
            is_definition_changed=self._is_tool_changed is not None
            and self._is_tool_changed(tool.name),
            is_sandboxed=self._sandboxed,
        )

    def _make_evaluator(self) -> PermissionEvaluator:
        granted = self._mode in EDIT_MODES
        return PermissionEvaluator(msgspec.structs.replace(self._context, accept_edits=granted))


def build_policy_context(
    root: str | os.PathLike[str],
    rules: RuleSet = NO_RULES,
    extra_roots: tuple[str, ...] = (),
) -> PolicyContext:
    """The situation in a folder of this machine, by its real path."""
    real = os.path.realpath(root)
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 (kept as text)
    return PolicyContext(real, home, rules, tuple(os.path.realpath(r) for r in extra_roots))
