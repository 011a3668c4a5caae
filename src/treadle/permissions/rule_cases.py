"""Permission cases: a call, the rules, and the expected verdict.

One JSON object per line: `id`, `rules`, `tool`, `input`, `cwd`, `expect`, and `setup` with `files`,
`links` and `hardlinks` of the workspace, `trusted` (the user trusts the folder) and `sandboxed`
(commands run in the sandbox, or not). A line that is not a case is an error of its own.

`/ws` is the workspace and `/home/u` the home; both are created in a temporary folder and mapped to
these paths.

Tools that are not calls: `remember` (approve one command, evaluate another) and `startup` (what a
folder may do before it is trusted). `sandbox` cases are skipped: the tests of the sandbox run them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from treadle.core.contracts.tool import Access
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text
from treadle.lib.files.file_view import FileSystemView
from treadle.permissions.findings import PolicyCall, PolicyContext
from treadle.permissions.modes import PermissionMode
from treadle.permissions.policy import RulePolicy
from treadle.permissions.ruleset.rules import InvalidRule
from treadle.permissions.ruleset.rules_file import parse_rules
from treadle.permissions.suggestions import suggest_rules
from treadle.permissions.trust import (
    TrustStore,
    filter_project_front_matter,
    filter_project_settings,
)
from treadle.permissions.verdict import PermissionEvaluator

# (tool, arguments, working directory) -> what the call touches
DescribeAccess = Callable[[str, dict[str, Any], str], Access]

ROOT, HOME = "/ws", "/home/u"
NOT_EVALUATED, ERROR = "not judged", "error"


class CaseSetup(msgspec.Struct, frozen=True):
    """The workspace of a case."""

    files: dict[str, str] = {}
    links: dict[str, str] = {}
    hardlinks: dict[str, str] = {}
    trusted: bool = False
    sandboxed: bool | None = None  # None: as the caller of `run_cases` says


NO_SETUP = CaseSetup()


class RuleCase(msgspec.Struct, frozen=True):
    """One line of a file of cases; `problem` if the line is not a case."""

    id: str
    tool: str
    input: dict[str, Any]
    rules: dict[str, list[str]] = {}
    cwd: str = ROOT
    expect: str = ""
    setup: CaseSetup = NO_SETUP
    problem: str = ""
    category: str = ""
    expect_accept_edits: str = ""  # in the mode accept-edits, if that differs from `expect`


class CaseResult(msgspec.Struct, frozen=True):
    """The verdict on a case."""

    id: str
    verdict: str
    reason: str
    expect: str = ""

    @property
    def is_unexpected(self) -> bool:
        """Whether the case failed; a line that cannot be evaluated always did."""
        if self.verdict == ERROR:
            return self.expect != ERROR
        return bool(self.expect) and self.verdict not in (self.expect, NOT_EVALUATED)


def read_cases(file: Path) -> list[RuleCase]:
    """The cases of a file. A wrong line becomes a case with the problem and the line number."""
    cases: list[RuleCase] = []
    for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                # Not msgspec: cases contain escapes that a strict parser rejects.
                cases.append(msgspec.convert(json.loads(line), RuleCase))
            except ValueError as error:  # also bytes that are not UTF-8
                problem = f"{file}:{number}: not a case: {error}"
                cases.append(RuleCase(f"line {number}", "", {}, problem=problem))
    return cases


def run_cases(
    cases: list[RuleCase],
    describe_access: DescribeAccess,
    mode: PermissionMode = "ask",
    *,
    is_sandboxed: bool = False,
) -> Iterator[CaseResult]:
    """Evaluate each case in its own workspace; cases without setup share an empty one.

    `describe_access` says what a call touches: the one of the built-in tools, usually.
    `is_sandboxed` is for the cases that do not say whether commands run in the sandbox."""
    with TemporaryDirectory(prefix="treadle-case-") as top:
        for number, case in enumerate(cases):
            is_bare = case.setup == NO_SETUP and case.tool not in ("startup", "sandbox")
            folder = Path(top) / ("empty" if is_bare else str(number))
            if case.setup.sandboxed is None:
                setup = msgspec.structs.replace(case.setup, sandboxed=is_sandboxed)
                case = msgspec.structs.replace(case, setup=setup)
            try:
                verdict, reason = _evaluate_case(case, folder, describe_access, mode)
            except (InvalidRule, OSError, ValueError, KeyError) as error:
                verdict, reason = ERROR, str(error)
            yield CaseResult(case.id, verdict, reason, case.expect)


def _evaluate_case(
    case: RuleCase, folder: Path, describe_access: DescribeAccess, mode: PermissionMode
) -> tuple[str, str]:
    if case.problem:
        return ERROR, case.problem
    workspace, home = folder / "ws", folder / "home"
    for path in (workspace, home):
        path.mkdir(parents=True, exist_ok=True)
    _build_workspace(workspace, case.setup)
    if case.tool == "sandbox":
        return NOT_EVALUATED, "enforced by the kernel: the tests of the sandbox run it"
    if case.tool == "startup":
        is_trusted = case.setup.trusted or bool(case.input.get("trusted"))
        return _run_startup_case(case.input, workspace, home, is_trusted=is_trusted)
    rules = parse_rules(case.rules, root=ROOT, home=HOME)
    view = FileSystemView(((ROOT, str(workspace)), (HOME, str(home))))
    context = PolicyContext(
        ROOT,
        HOME,
        rules,
        file_system=view,
        has_checkpoints=True,
        tools_skip_denied=True,
        sandbox_hides_denied=bool(case.setup.sandboxed),
    )
    if case.tool == "remember":
        return _run_remember_case(case, context)
    call = _make_call(case, describe_access)
    policy = RulePolicy(context, mode=mode, sandboxed=bool(case.setup.sandboxed))
    ruling = policy.evaluate(call)
    return ruling.outcome, ruling.reason


def _build_workspace(workspace: Path, setup: CaseSetup) -> None:
    for name, content in setup.files.items():
        _make_parent(workspace, name).write_text(content)
    for name, target in setup.links.items():
        _make_parent(workspace, name).symlink_to(target)
    for name, target in setup.hardlinks.items():
        _make_parent(workspace, name).hardlink_to(workspace / target)


def _make_parent(workspace: Path, name: str) -> Path:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _make_call(case: RuleCase, describe_access: DescribeAccess) -> PolicyCall:
    tool = case.tool
    if tool == "mcp":
        # The name of an MCP tool always begins with the name of its server.
        name = str(case.input.get("name", ""))
        server = re.sub("_+", "_", str(case.input.get("server", "")))
        own = name.startswith(f"mcp__{server}__" if server else "mcp__")
        tool = name if own else f"mcp__{server}__{name}"
    return PolicyCall(
        tool,
        describe_access(tool, case.input, case.cwd),
        is_definition_changed=bool(case.input.get("schema_changed")),
        is_sandboxed=bool(case.setup.sandboxed),
    )


def _run_remember_case(case: RuleCase, context: PolicyContext) -> tuple[str, str]:
    approved = PolicyCall("bash", Access(command=case.input["approved"], cwd=case.cwd))
    saved = suggest_rules(approved, PermissionEvaluator(context))
    evaluator = PermissionEvaluator(context.with_allow_rules(saved, "saved"))
    then = Access(command=case.input["then"], cwd=case.cwd)
    ruling = evaluator.evaluate(PolicyCall("bash", then))
    return ruling.outcome, f"saved {', '.join(saved) or 'nothing'}; {ruling.reason}"


def _run_startup_case(
    case_input: Mapping[str, Any], workspace: Path, home: Path, *, is_trusted: bool
) -> tuple[str, str]:
    """What a folder may do when a session starts in it: `deny` means nothing."""
    trust = TrustStore(home / "trust.json")
    if "argv" in case_input:
        if any(str(a).startswith("--settings") for a in case_input["argv"]):
            return "allow", "an argument of its own"
        return "deny", "only whole arguments are flags"
    for name, content in case_input.get("files", {}).items():
        if content.startswith("symlink -> "):
            _make_parent(workspace, name).symlink_to(content.removeprefix("symlink -> "))
            try:
                read_text(workspace / name, within=workspace)
            except (ConfigError, FileNotFoundError):
                return "deny", f"the symlink {name} leaves the workspace and is not read"
        else:
            _make_parent(workspace, name).write_text(content)
    if is_trusted:
        trust.trust(workspace)
    trusted = trust.is_trusted(workspace)
    for name, content in case_input.get("files", {}).items():
        if "approved earlier" in content:
            trust.approve(workspace, "server", name, {"command": "as approved"})
            state = trust.get_approval_state(workspace, "server", name, {"command": content})
            return ("allow" if state == "approved" else "ask"), f"its definition is {state}"
        effect = _describe_effect(name, content, trusted=trusted)
        if effect:
            return "allow", f"{name} takes effect: {effect}"
    if trusted:
        return "allow", "the folder is trusted"
    return "deny", "nothing from a folder runs or adds permissions until it is trusted"


def _describe_effect(name: str, content: str, *, trusted: bool) -> str:
    """What would run or add permissions after the trust filters, or ""."""
    if name.endswith("settings.json"):
        try:
            settings = json.loads(content)
        except ValueError:
            return ""  # an error at the start of the session
        kept = filter_project_settings(settings, is_trusted=trusted)
        narrowing = kept.pop("permissions", {})
        return ", ".join([*kept, *(k for k in narrowing if k not in ("ask", "deny"))])
    if name.endswith(".md") and content.startswith("---"):
        keys = {line.partition(":")[0].strip(): "" for line in content.splitlines() if ":" in line}
        kept = filter_project_front_matter(keys, is_trusted=trusted)
        return ", ".join(k for k in kept if k not in ("name", "description"))
    return ""
