"""Permission rules: `Bash(git status:*)`, `Read(src/**)`, `WebFetch(domain:x.org)`.

A rule is a value that knows what it matches; it decides nothing. `rules_file.py` reads the lists
(allow, ask, deny) from settings, `verdict.py` applies them. An invalid rule is an error.
"""

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from treadle.lib.http.hosts import DomainPattern, parse_domain, parse_domains
from treadle.lib.shell.ast import strip_version
from treadle.lib.text.text import suggest
from treadle.lib.text.word_set import word_set
from treadle.permissions.ruleset.command_patterns import CommandPattern, parse_command_pattern
from treadle.permissions.ruleset.path_patterns import FolderCopy, PathPattern, compile_path_pattern

Outcome = Literal["allow", "ask", "deny"]
RULE_LISTS: tuple[Outcome, ...] = ("allow", "ask", "deny")

READ_TOOLS = frozenset({"read", "glob", "grep", "ls"})
# Names for writing by any tool; a tool with a name of its own has rules that are only about it.
EDIT_TOOLS = frozenset({"write", "edit", "multiedit", "applypatch", "renamesymbol"})
NOTEBOOK_TOOLS = frozenset({"notebookedit"})
WRITE_TOOLS = EDIT_TOOLS | NOTEBOOK_TOOLS
TOOL_NAMES_WITH_PATTERNS = (
    "Bash", "Read", "Glob", "Grep", "Ls", "Write", "Edit", "WebFetch", "Sandbox",
)  # fmt: skip
SANDBOX_REQUESTS = ("network", "off")


class RuleOrigin(msgspec.Struct, frozen=True):
    """Where a rule was written. `scope` is a name for the user, such as "this project"."""

    scope: str = "given"
    file: str = ""
    line: int = 0
    is_managed: bool = False  # by the owner of the machine: no mode changes what it says

    def __str__(self) -> str:
        return f"{self.scope}: {self.file}:{self.line}" if self.file else self.scope


class SandboxPattern(msgspec.Struct, frozen=True):
    """The pattern in `Sandbox(…)`: what a command may ask of its sandbox. `domain`: of the network
    only these hosts."""

    request: str
    domain: DomainPattern | None = None


RulePattern = CommandPattern | PathPattern | DomainPattern | SandboxPattern


class Rule(msgspec.Struct, frozen=True):
    """One rule, and where it was written."""

    text: str
    tool: str  # as `normalize_tool_name` returns it
    pattern: RulePattern | None = None
    origin: RuleOrigin = RuleOrigin()

    @property
    def command_pattern(self) -> CommandPattern | None:
        """The command pattern, if this is a rule about commands."""
        if self.tool != "bash":
            return None
        return self.pattern if isinstance(self.pattern, CommandPattern) else CommandPattern(())

    def matches_tool(self, key: str) -> bool:
        """Whether the rule is about this tool, its server, or its family of tools."""
        if self.tool.startswith("mcp__"):
            return _matches_mcp_tool(self.tool, key)
        return self.tool == key or (self.tool in EDIT_TOOLS and key in WRITE_TOOLS)


class RuleSet(msgspec.Struct, frozen=True):
    """The three lists of rules."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def __add__(self, other: "RuleSet") -> "RuleSet":
        return RuleSet(self.allow + other.allow, self.ask + other.ask, self.deny + other.deny)

    def filter(self, tools: Collection[str]) -> "RuleSet":
        """The rules about these tools, in the same lists."""
        lists = (self.allow, self.ask, self.deny)
        return RuleSet(*(tuple(r for r in rules if r.tool in tools) for rules in lists))

    def add_copy(self, copy: FolderCopy) -> "RuleSet":
        """The rules for a copy of a folder: those about paths in it hold for the same paths."""
        return self._change_paths(lambda pattern: pattern.add_copy(copy))

    def add_roots(self, roots: Sequence[str]) -> "RuleSet":
        """With added folders: deny and ask rules about a name at any depth hold in them, too."""
        return self._change_paths(lambda pattern: pattern.add_roots(roots)) if roots else self

    def _change_paths(self, change: Callable[[PathPattern], PathPattern]) -> "RuleSet":
        def change_rule(rule: Rule) -> Rule:
            if not isinstance(rule.pattern, PathPattern):
                return rule
            return msgspec.structs.replace(rule, pattern=change(rule.pattern))

        lists = (self.allow, self.ask, self.deny)
        return RuleSet(*(tuple(map(change_rule, rules)) for rules in lists))

    def list_forbidding(self) -> list[tuple[Outcome, Rule]]:
        """The deny rules and then the ask rules, each with the name of its list."""
        return [*(("deny", rule) for rule in self.deny), *(("ask", rule) for rule in self.ask)]


class _ToolRules(NamedTuple):
    forbidding: tuple[tuple[Outcome, Rule], ...]  # the deny rules first
    allow: tuple[Rule, ...]


class FileRules:
    """The rules about files of one rule set, by the tool that they are for."""

    def __init__(self, rules: RuleSet) -> None:
        # Rules for `Read` apply to the search tools as well, those for `Edit` to notebooks.
        tools = {"write": EDIT_TOOLS, **{tool: {"read", tool} for tool in READ_TOOLS}}
        tools |= {tool: EDIT_TOOLS | {tool} for tool in NOTEBOOK_TOOLS}
        self.by_tool: dict[str, _ToolRules] = {}
        for tool, names in tools.items():
            own = rules.filter(names)
            self.by_tool[tool] = _ToolRules(tuple(own.list_forbidding()), own.allow)
        self.reading = [rule for _, rule in self.by_tool["read"].forbidding]
        writing = [rule.pattern for _, rule in self.by_tool["write"].forbidding]
        self.restricts_writing = any(isinstance(pattern, PathPattern) for pattern in writing)
        self.unsearchable = [
            rule.pattern
            for outcome, rule in self.by_tool["grep"].forbidding
            if outcome == "deny" and isinstance(rule.pattern, PathPattern)
        ]


class InvalidRule(ValueError):
    """A rule that cannot be parsed; the message tells what to write instead."""


@lru_cache(maxsize=512)
def normalize_tool_name(name: str) -> str:
    """A tool's name as rules compare it: ignores case, and `_` and `-` in built-in names."""
    folded = name.casefold()
    return folded if folded.startswith("mcp__") else folded.replace("_", "").replace("-", "")


def _matches_mcp_tool(rule: str, key: str) -> bool:
    server, _, tool = rule[5:].partition("__")
    their_server, _, their_tool = key[5:].partition("__")
    if not key.startswith("mcp__") or server not in (their_server, "*"):
        return False
    return not tool or fnmatch.fnmatchcase(their_tool, tool)


_NO_ORIGIN = RuleOrigin()
_RULE_SYNTAX = re.compile(r"([A-Za-z_*][\w.*-]*)\s*(?:\((.*)\))?", re.DOTALL)


def parse_rule(
    text: str, root: str = "/", home: str = "~", origin: RuleOrigin = _NO_ORIGIN
) -> Rule:
    """Parse one rule; `root` is the folder that its paths are relative to."""
    text = text.strip()
    match = _RULE_SYNTAX.fullmatch(text)
    if match is None:
        raise InvalidRule(f"{text!r} is not a rule; write Tool or Tool(pattern)")
    name, body = match.group(1), match.group(2)
    key = normalize_tool_name(name)
    if "*" in name and not key.startswith("mcp__"):
        raise InvalidRule(f"{text!r}: a tool's name cannot contain * (only mcp__server__* can)")
    if key.startswith("mcp__"):
        _check_mcp_rule(text, key, body)
    if body is None:
        return Rule(text, key, None, origin)
    try:
        return Rule(text, key, _parse_pattern(key, body.strip(), root, home), origin)
    except ValueError as error:
        raise InvalidRule(f"{text!r}: {error}") from error


def _check_mcp_rule(text: str, key: str, body: str | None) -> None:
    server = key[5:].partition("__")[0]
    if body is not None:
        raise InvalidRule(f"{text!r}: a rule about an MCP tool takes no parentheses")
    if not server or "*" in server:
        raise InvalidRule(f"{text!r}: name one server, as in mcp__server__*")


def _parse_pattern(key: str, body: str, root: str, home: str) -> RulePattern:
    if key == "bash":
        return parse_command_pattern(body)
    if key in READ_TOOLS or key in WRITE_TOOLS:
        return compile_path_pattern(body, root, home)
    if key == "webfetch":
        kind, _, host = body.partition(":")
        if kind.strip() != "domain" or not host.strip():
            raise ValueError("write WebFetch(domain:host)")
        return parse_domain(host)
    if key == "sandbox":
        request, colon, host = body.partition(":")
        if request not in SANDBOX_REQUESTS or (colon and request != "network"):
            raise ValueError("write Sandbox(network), Sandbox(network:x.org) or Sandbox(off)")
        return SandboxPattern(request, parse_domains([host])[0] if colon else None)
    known = {name.lower(): name for name in TOOL_NAMES_WITH_PATTERNS}
    near = suggest(key, known)
    hint = f"; did you mean {known[near]}(…)?" if near and near != key else ""
    raise ValueError(f"only {', '.join(TOOL_NAMES_WITH_PATTERNS)} take a pattern{hint}")


_WORD_SYNTAX = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)


_RUNS_ANY_CODE = word_set(
    "python perl ruby node deno bun php sh bash zsh sudo ssh make npx uvx docker xargs env eval "
    "npm yarn pnpm uv cargo go lua fish pwsh busybox"
)


def describe_rule_risk(rule: Rule) -> str:
    """A warning for the user before such an allow rule is saved, or ""."""
    if rule.tool == "sandbox":
        return "this allows it to every command that may run"
    command = rule.command_pattern
    if command is None:
        return ""
    if not command.words:
        return "this allows every command"
    first = command.words[0]
    if command.is_prefix and len(command.words) == 1 and strip_version(first) in _RUNS_ANY_CODE:
        return f"{first} can run any code: this rule allows nearly everything"
    return ""


def sort_widest_first(rules: Iterable[Rule]) -> list[Rule]:
    """Allow rules in the order in which a user should see them."""
    return sorted(rules, key=_measure_narrowness)


def _measure_narrowness(rule: Rule) -> int:
    """0 for a rule about all that a tool does, or that runs any code; 2 for one without a `*`."""
    if rule.pattern is None or describe_rule_risk(rule) or rule.text.endswith(("(**)", "(*)")):
        return 0
    return 1 if "*" in rule.text else 2
