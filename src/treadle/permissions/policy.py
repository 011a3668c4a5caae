"""The policy of an agent: decides calls by rules, a mode, and whether the user can be asked.

    decide(request) -> verdict    the ruling of `verdict.py`, in a mode of `modes.py`; about an Ask
                                  also its risks and the rules that would allow it

Implements the contract of the engine. It keeps the rules that it is made with; only `save_rules`,
which the user causes, adds to them.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from copy import copy

from msgspec.structs import replace

from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.errors import error_text
from treadle.lib.files.file_view import CachedFileSystemView
from treadle.permissions.findings import PolicyCall, PolicyContext, PolicyRuling
from treadle.permissions.modes import EDIT_MODES, PermissionMode, apply_mode, choose_narrower
from treadle.permissions.risks import list_risks
from treadle.permissions.ruleset.rules import InvalidRule, RuleSet, normalize_tool_name, parse_rule
from treadle.permissions.suggestions import suggest_rules
from treadle.permissions.verdict import PermissionEvaluator, stays_sandboxed

NO_RULES = RuleSet()
HEADLESS_DENIAL = (
    "This call needs the user's approval, and this run has no user to ask ({reason}). "
    "Do it another way, or say in your answer what was left undone."
)


# Saves the rules that the user always allows, usually in a settings file.
SaveRules = Callable[[tuple[str, ...]], Awaitable[None]]


# Why the user should be asked about a call that would run; "" if there is no objection.
AskJudge = Callable[[PermissionRequest], Awaitable[str]]


class RulePolicy:
    """Decides by rules. Implements `core.contracts.policy.Policy`.

    `widest_mode` is the widest that the mode can be changed to. `sandboxed` means that commands run
    inside the sandbox; `read_only`, that they can change nothing there and reach no network, so
    that they may run in plan mode. `is_tool_changed` tells whether a tool's
    definition differs from the approved one. `judge` may turn an allow of the mode `auto` into a
    question.
    """

    def __init__(
        self,
        context: PolicyContext,
        *,
        mode: PermissionMode = "ask",
        widest_mode: PermissionMode = "bypass",
        interactive: bool = True,
        sandboxed: bool = False,
        read_only: bool = False,
        is_tool_changed: Callable[[str], bool] | None = None,
        save_rules: SaveRules | None = None,
        judge: AskJudge | None = None,
    ) -> None:
        self._context = context
        self._judge = judge
        self._interactive = interactive
        self._sandboxed = sandboxed
        self._read_only = read_only
        self._is_tool_changed = is_tool_changed
        self._save_rules = save_rules
        self._widest_mode = widest_mode
        self._mode = choose_narrower(mode, widest_mode)
        self._granted: tuple[str, ...] = ()
        self._make_evaluators()

    async def decide(self, request: PermissionRequest) -> Verdict:
        try:
            call = self._make_call(request)
            view = CachedFileSystemView(self._context.file_system.mounts)
            ruling = self.evaluate(call, view)
            is_judged = self._judge is not None and self._mode == "auto" and _needs_judge(ruling)
            if is_judged and self._judge and (objection := await self._judge(request)):
                return self._ask(replace(ruling, reason=f"the judge: {objection}"), call, view)
            return self._make_verdict(call, ruling, view)
        except Exception as error:  # noqa: BLE001 (an error inside is never an Allow)
            return Deny(f"the policy could not evaluate the call: {error_text(error)}")

    def evaluate(self, call: PolicyCall, view: CachedFileSystemView | None = None) -> PolicyRuling:
        """The ruling on a call in the present mode."""
        ruling = self._evaluator.evaluate(call, view)
        if self._mode == "ask":
            return ruling
        if self._mode == "bypass" and self._is_asked_by_owner(call, view):
            return ruling
        has_command_rules = bool(self._evaluator.command_rules.forbidding)
        return apply_mode(
            ruling,
            call,
            self._mode,
            has_command_rules=has_command_rules,
            is_read_only=self._read_only,
        )

    def _is_asked_by_owner(self, call: PolicyCall, view: CachedFileSystemView | None) -> bool:
        """Whether an ask rule of the managed policy is about the call."""
        managed = tuple(rule for rule in self._context.rules.ask if rule.origin.is_managed)
        if not managed:
            return False
        context = replace(self._context, rules=RuleSet(ask=managed))
        found = PermissionEvaluator(context).evaluate(call, view).findings
        return any(finding.outcome == "ask" and finding.rule for finding in found)

    def _make_call(self, request: PermissionRequest) -> PolicyCall:
        name = request.tool.name
        is_mcp = normalize_tool_name(name).startswith("mcp__")
        return PolicyCall(
            name,
            request.access,
            is_pure=request.tool.effect == "pure" and not is_mcp,
            is_definition_changed=self._is_tool_changed is not None and self._is_tool_changed(name),
            is_sandboxed=self._sandboxed,
        )

    def _make_verdict(
        self, call: PolicyCall, ruling: PolicyRuling, view: CachedFileSystemView
    ) -> Verdict:
        if ruling.outcome == "allow":
            return Allow(ruling.reason)
        if ruling.outcome == "deny":
            return Deny(ruling.reason)
        # A suggestion is for the mode `ask`, and without what was granted for this turn.
        own = ruling if self._evaluator is self._plain_evaluator else None
        is_used = self._interactive and self.accepts_rules
        rules = suggest_rules(call, self._plain_evaluator, own, view) if is_used else ()
        return self._ask(ruling, call, view, rules)

    def _ask(
        self,
        ruling: PolicyRuling,
        call: PolicyCall,
        view: CachedFileSystemView,
        rules: tuple[str, ...] = (),
    ) -> Verdict:
        if not self._interactive:
            return Deny(HEADLESS_DENIAL.format(reason=ruling.reason), "headless")
        is_sandboxed = stays_sandboxed(call)
        return Ask(
            ruling.reason,
            rules,
            risks=list_risks(call.access, self._context, is_sandboxed=is_sandboxed, view=view),
            wider_mode=self._find_wider_mode(call) if call.access.files else "",
        )

    def _find_wider_mode(self, call: PolicyCall) -> str:
        """`accept-edits`, if that mode would allow this change of files."""
        is_change = any(file.mode == "write" for file in call.access.files)
        is_forbidden = choose_narrower("accept-edits", self._widest_mode) != "accept-edits"
        if self._mode != "ask" or not is_change or is_forbidden:
            return ""
        context = replace(self._evaluator.context, accept_edits=True)
        ruling = PermissionEvaluator(context).evaluate(call)
        return "accept-edits" if ruling.outcome == "allow" else ""

    # ---------------------------------------------------------------- what the user changes

    @property
    def mode(self) -> PermissionMode:
        return self._mode

    def change_mode(self, mode: PermissionMode) -> None:
        """The user chose another mode."""
        self._mode = choose_narrower(mode, self._widest_mode)
        self._make_evaluators()

    def grant(self, rules: tuple[str, ...]) -> None:
        """Allow these for a turn, for a command that the user started; () ends it."""
        self._granted = tuple(rule for rule in rules if self._is_valid(rule))
        self._make_evaluators()

    def _is_valid(self, rule: str) -> bool:
        try:
            parse_rule(rule, self._context.root, self._context.home)
        except InvalidRule:
            return False
        return True

    def narrow(self, mode: str, *, read_only: bool = False) -> "RulePolicy":
        """This policy for a child agent: itself, or a copy in `mode` if that allows less.
        `read_only`: the sandbox of the child is."""
        narrower = choose_narrower(self._mode, mode)
        if narrower == self._mode and not read_only:
            return self
        narrowed = copy(self)
        narrowed._read_only = self._read_only or read_only
        narrowed.change_mode(narrower)
        return narrowed

    def find_denied(self, paths: Sequence[str]) -> list[str]:
        """The files among `paths` that a search may not read: real paths, without symlinks."""
        return self._evaluator.open_files().find_denied(paths)

    def explain_unreadable(self, path: str) -> str:
        """Why a file that a file of the project names is not read: the deny or ask rule about it,
        by any of its names, or that it may contain secrets; "" if it may be read."""
        files, root = self._plain_evaluator.open_files(), self._context.root
        found = files.check_read_rules(path, root)
        if found is None:
            finding = files.evaluate(path, "read", root)
            is_asked = finding.outcome != "allow" and finding.kind != "outside_read"
            return finding.reason if is_asked else ""
        effect = "denies reading it" if found.outcome == "deny" else "asks before it is read"
        return f"the rule {found.rule} {effect}"

    @property
    def rules(self) -> RuleSet:
        return self._context.rules

    @property
    def accepts_rules(self) -> bool:
        return self._context.accepts_rules

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        """Add and save rules that the user was shown and accepted."""
        context = self._context.with_allow_rules(rules, "always allow")
        if self._save_rules is not None and self.accepts_rules:
            await self._save_rules(rules)
        self._context = context
        self._make_evaluators()

    def allow_for_session(self, rules: tuple[str, ...]) -> None:
        """Add rules that the user was shown and accepted; they are not saved."""
        self._context = self._context.with_allow_rules(rules, "this session")
        self._make_evaluators()

    def _make_evaluators(self) -> None:
        self._evaluator = self._plain_evaluator = PermissionEvaluator(self._context)
        if self._mode in EDIT_MODES or self._granted:
            context = replace(self._context, accept_edits=self._mode in EDIT_MODES)
            context = context.with_allow_rules(self._granted, "the command that you started")
            self._evaluator = PermissionEvaluator(context)


def _needs_judge(ruling: PolicyRuling) -> bool:
    """Whether the mode allows it, and not only rules of the user; what only reads is harmless."""
    is_allowed = ruling.outcome == "allow"
    return is_allowed and any(not (one.is_read_only or one.rule) for one in ruling.findings)


def build_policy_context(
    root: str | os.PathLike[str],
    rules: RuleSet = NO_RULES,
    extra_roots: tuple[str, ...] = (),
    readable: tuple[str, ...] = (),
) -> PolicyContext:
    """The context of a folder on this machine, by real paths."""
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 (kept as text)
    real_roots = tuple(os.path.realpath(extra) for extra in extra_roots)
    return PolicyContext(
        os.path.realpath(root),
        home,
        rules,
        real_roots,
        readable=tuple(os.path.realpath(folder) for folder in readable),
    )
