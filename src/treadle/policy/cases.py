"""Permission cases: a call, the rules, and the verdict that is expected.

One JSON object a line: `id`, `rules`, `tool`, `input`, `cwd`, `expect`, and `setup` with `files`,
`links` and `hardlinks` of the workspace. `/ws` is the workspace and `/home/u` the home; both are
made in a temporary folder and shown to the judge at those places.

Kinds that are no calls: `remember` (approve one command, judge another), `startup` (what a folder
may do before it is trusted). `sandbox` belongs to the sandbox's own suite and is passed over.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.textfile import read_text
from treadle.policy.files import Situation
from treadle.policy.judge import Judge
from treadle.policy.paths import View
from treadle.policy.remember import propose_rules
from treadle.policy.rules import InvalidRule
from treadle.policy.rulesfile import given_rules
from treadle.policy.trust import (
    TrustStore,
    front_matter_of_folder,
    settings_of_folder,
)
from treadle.policy.verdict import Call

ROOT, HOME = "/ws", "/home/u"
NOT_JUDGED = "not judged"


class Case(msgspec.Struct, frozen=True):
    """One line of a file of cases."""

    id: str
    tool: str
    input: dict[str, Any]
    rules: dict[str, list[str]] = {}
    cwd: str = ROOT
    expect: str = ""
    setup: dict[str, dict[str, str]] = {}


class Outcome(msgspec.Struct, frozen=True):
    """What came of a case."""

    id: str
    verdict: str
    reason: str
    expect: str = ""

    @property
    def differs(self) -> bool:
        return bool(self.expect) and self.verdict not in (self.expect, NOT_JUDGED)


def read_cases(file: Path) -> list[Case]:
    """The cases of a file; a line that is not one is a ConfigError with its number."""
    cases: list[Case] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                # The plain parser: cases hold escapes that a strict one refuses.
                cases.append(msgspec.convert(json.loads(line), Case))
            except ValueError as error:
                raise ConfigError(f"{file}:{number}: not a case: {error}") from error
    return cases


def run_cases(cases: list[Case]) -> Iterator[Outcome]:
    """Judge each case in a workspace of its own; those that need none share an empty one."""
    with TemporaryDirectory(prefix="treadle-case-") as top:
        for number, case in enumerate(cases):
            bare = not case.setup and case.tool not in ("startup", "sandbox")
            folder = Path(top) / ("empty" if bare else str(number))
            try:
                verdict, reason = _judge(case, folder)
            except InvalidRule as error:
                verdict, reason = "error", str(error)
            yield Outcome(case.id, verdict, reason, case.expect)


def _judge(case: Case, folder: Path) -> tuple[str, str]:
    workspace, home = folder / "ws", folder / "home"
    for place in (workspace, home):
        place.mkdir(parents=True, exist_ok=True)
    _build(workspace, case.setup)
    if case.tool == "sandbox":
        return NOT_JUDGED, "judged by the kernel: the sandbox's own tests run it"
    if case.tool == "startup":
        return _startup(case.input, workspace, home)
    rules = given_rules(case.rules, root=ROOT, home=HOME)
    view = View(((ROOT, str(workspace)), (HOME, str(home))))
    situation = Situation(ROOT, HOME, rules, view=view)
    if case.tool == "remember":
        return _remember(case, situation)
    ruling = Judge(situation).judge(_call(case))
    return ruling.outcome, ruling.reason


def _build(workspace: Path, setup: Mapping[str, Mapping[str, str]]) -> None:
    for name, content in setup.get("files", {}).items():
        _parent(workspace, name).write_text(content)
    for name, target in setup.get("links", {}).items():
        _parent(workspace, name).symlink_to(target)
    for name, target in setup.get("hardlinks", {}).items():
        _parent(workspace, name).hardlink_to(workspace / target)


def _parent(workspace: Path, name: str) -> Path:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _call(case: Case) -> Call:
    tool = case.tool
    if tool == "mcp":
        # A server's tool is always known by its server's name, whatever it calls itself.
        name = str(case.input.get("name", ""))
        server = re.sub("_+", "_", str(case.input.get("server", "")))
        own = name.startswith(f"mcp__{server}__" if server else "mcp__")
        tool = name if own else f"mcp__{server}__{name}"
    return Call(tool, case.input, case.cwd, changed=bool(case.input.get("schema_changed")))


def _remember(case: Case, situation: Situation) -> tuple[str, str]:
    approved = Call("bash", {"command": case.input["approved"]}, case.cwd)
    saved = propose_rules(approved, situation)
    rules = given_rules({"allow": list(saved)}, root=ROOT, home=HOME)
    wider = msgspec.structs.replace(situation, rules=situation.rules + rules)
    ruling = Judge(wider).judge(Call("bash", {"command": case.input["then"]}, case.cwd))
    return ruling.outcome, f"saved {', '.join(saved) or 'nothing'}; {ruling.reason}"


def _startup(given: Mapping[str, Any], workspace: Path, home: Path) -> tuple[str, str]:
    """What a folder may do when a session starts in it: `deny` means that it may not."""
    trust = TrustStore(home / "trust.json")
    if "argv" in given:
        flags = [a for a in given["argv"] if str(a).startswith("--settings")]
        if flags:
            return "allow", "a flag of its own"
        return "deny", "flags are whole arguments; text inside a value is text"
    for name, content in given.get("files", {}).items():
        if content.startswith("symlink -> "):
            _parent(workspace, name).symlink_to(content.removeprefix("symlink -> "))
            try:
                read_text(workspace / name, within=workspace)
            except (ConfigError, FileNotFoundError):
                return "deny", f"{name} leads out of the workspace and is not read"
        else:
            _parent(workspace, name).write_text(content)
    if given.get("trusted"):
        trust.trust(workspace)
    trusted = trust.trusts(workspace)
    for name, content in given.get("files", {}).items():
        if "approved earlier" in content:
            trust.approve(workspace, "server", name, {"command": "as approved"})
            state = trust.approval(workspace, "server", name, {"command": content})
            return ("allow" if state == "approved" else "ask"), f"its definition is {state}"
        effect = _takes_effect(name, content, trusted=trusted)
        if effect:
            return "allow", f"{name} takes effect: {effect}"
    if trusted:
        return "allow", "the folder is trusted"
    return "deny", "nothing of a folder runs or widens anything until it is trusted"


def _takes_effect(name: str, content: str, *, trusted: bool) -> str:
    """What of a file would widen or run something, as the trust filters leave it."""
    if name.endswith("settings.json"):
        try:
            settings = json.loads(content)
        except ValueError:
            return ""  # refused with file and line before anything starts
        left = settings_of_folder(settings, trusted=trusted)
        narrowing = left.pop("permissions", {})
        return ", ".join([*left, *(k for k in narrowing if k not in ("ask", "deny"))])
    if name.endswith(".md") and content.startswith("---"):
        keys = {line.partition(":")[0].strip(): "" for line in content.splitlines() if ":" in line}
        left = front_matter_of_folder(keys, trusted=trusted)
        return ", ".join(k for k in left if k not in ("name", "description"))
    return ""
