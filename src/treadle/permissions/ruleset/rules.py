"""Permission rules: `Bash(git status:*)`, `Read(src/**)`, `WebFetch(domain:x.org)`.

A rule is a value that knows what it matches; it decides nothing. `rules_file.py` reads the lists
(allow, ask, deny) from settings, evaluation/ applies them. An invalid rule is an error.
"""

import fnmatch
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import msgspec

from treadle.lib.shell.ast import Word, strip_version
from treadle.lib.shell.syntax.words import ASSIGNMENT, InvalidWord, encode_source, read_word
from treadle.lib.text.text import suggest
from treadle.lib.text.word_set import word_set
from treadle.permissions.ruleset.domains import normalize_host
from treadle.permissions.ruleset.path_patterns import PathPattern, compile_path_pattern
from treadle.permissions.ruleset.spellings import Spellings, WordTexts, matches_loosely

Outcome = Literal["allow", "ask", "deny"]
RULE_LISTS: tuple[Outcome, ...] = ("allow", "ask", "deny")

READ_TOOLS = frozenset({"read", "glob", "grep", "ls"})
# Names for writing by any tool; a tool with a name of its own has rules that are only about it.
EDIT_TOOLS = frozenset({"write", "edit", "multiedit", "applypatch"})
NOTEBOOK_TOOLS = frozenset({"notebookedit"})
WRITE_TOOLS = EDIT_TOOLS | NOTEBOOK_TOOLS
TOOL_NAMES_WITH_PATTERNS = (
    "Bash", "Read", "Glob", "Grep", "Ls", "Write", "Edit", "WebFetch", "Sandbox",
)  # fmt: skip
SANDBOX_REQUESTS = ("network", "off")
_WORD_SEPARATOR = "\x1f"


class RuleOrigin(msgspec.Struct, frozen=True):
    """Where a rule was written. `scope` is a name for the user, such as "this project"."""

    scope: str = "given"
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.scope}: {self.file}:{self.line}" if self.file else self.scope


class CommandPattern(msgspec.Struct, frozen=True):
    """The pattern in `Bash(…)`: words, and whether more may follow."""

    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    is_prefix: bool = False
    regex: str = ""  # over the joined words, if there is a `*` among them

    @property
    def is_blanket(self) -> bool:
        """Whether it covers every command."""
        return not self.words

    @property
    def has_program_name(self) -> bool:
        """Whether it names a program."""
        return bool(self.words) and "*" not in self.words[0]

    def allows(self, spellings: Spellings) -> bool:
        """Whether an allow rule matches these words, each at its position."""
        return any(self._matches(texts) for texts in spellings.strict)

    def is_exact_match(self, argv: Sequence[Word]) -> bool:
        """Whether the rule contains the whole command, to the last word."""
        if self.regex or len(self.words) != len(argv) or self.is_blanket:
            return False
        if self.is_prefix and len(self.words) == 1:
            return False  # it names a program with any arguments
        return tuple(word.text for word in argv) == self.words

    def _matches(self, texts: WordTexts) -> bool:
        if self.regex:
            known = _WORD_SEPARATOR.join(t if t is not None else "\0" for t in texts)
            return re.fullmatch(self.regex, known, re.DOTALL) is not None
        head = texts[: len(self.words)]
        return head == self.words and (self.is_prefix or len(texts) == len(head))

    def forbids(self, spellings: Spellings) -> bool:
        """Whether a deny or ask rule matches: by any path, with options in any order."""
        if self.is_blanket or any(self._matches(texts) for texts in spellings.loose):
            return True
        return not self.regex and any(
            matches_loosely(texts, self.words, prefix=self.is_prefix) for texts in spellings.loose
        )


class DomainPattern(msgspec.Struct, frozen=True):
    """The pattern in `WebFetch(domain:…)`; `*.x.org` is every host below x.org."""

    host: str

    def forbids(self, host: str) -> bool:
        """Whether a deny or ask rule matches: the host it names, and all below it."""
        return self.matches(host) or host.endswith("." + self.host)

    def matches(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host or self.host == "*"


class SandboxPattern(msgspec.Struct, frozen=True):
    """The pattern in `Sandbox(…)`: what a command may ask of its sandbox."""

    request: str


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

    def list_forbidding(self) -> list[tuple[Outcome, Rule]]:
        """The deny rules and then the ask rules, each with the name of its list."""
        return [*(("deny", rule) for rule in self.deny), *(("ask", rule) for rule in self.ask)]


class InvalidRule(ValueError):
    """A rule that cannot be parsed; the message tells what to write instead."""


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
        return DomainPattern(normalize_host(host.strip()))
    if key == "sandbox":
        if body not in SANDBOX_REQUESTS:
            raise ValueError("write Sandbox(network) or Sandbox(off)")
        return SandboxPattern(body)
    known = {name.lower(): name for name in TOOL_NAMES_WITH_PATTERNS}
    near = suggest(key, known)
    hint = f"; did you mean {known[near]}(…)?" if near and near != key else ""
    raise ValueError(f"only {', '.join(TOOL_NAMES_WITH_PATTERNS)} take a pattern{hint}")


_WORD_SYNTAX = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)


def parse_command_pattern(text: str) -> CommandPattern:
    """Parse `git status:*`, `npm run *` or a whole command."""
    if not text:
        raise ValueError("an empty command")
    if text in ("*", ":*", "**"):
        return CommandPattern(())
    prefix = text.endswith(":*") or (text.endswith(" *") and "*" not in text[:-2])
    words = _read_words(text[:-2] if prefix else text)
    texts = [w.text or "" for w in words]
    assigned = 0
    while assigned < len(texts) and ASSIGNMENT.match(texts[assigned]):
        assigned += 1
    if assigned == len(texts):
        raise ValueError("no command after the assignments")
    regex = ""
    if any(w.is_glob and "*" in (w.text or "") for w in words):
        regex = _make_regex(words[assigned:], prefix, text.endswith(" *"))
    return CommandPattern(tuple(texts[assigned:]), tuple(texts[:assigned]), prefix, regex)


def _read_words(text: str) -> list[Word]:
    source = encode_source(text)
    try:
        if re.sub(_WORD_SYNTAX, "", source).strip():
            raise InvalidWord("an open quote")
        return [w for piece in _WORD_SYNTAX.findall(source) for w in read_word(piece, {})]
    except InvalidWord as error:
        hint = "one rule names one command, without operators or expansions"
        raise ValueError(f"{error}; {hint}") from error


def _make_regex(words: list[Word], prefix: bool, ends_with_star: bool) -> str:
    """The pattern of a rule with `*` among its words; a last word `*` is any number of words."""
    if not prefix and words[-1].text == "*" and len(words) > 1:
        words, ends_with_star = words[:-1], True
    joined = _WORD_SEPARATOR.join(
        re.escape(w.text or "").replace(r"\*", ".*") if w.is_glob else re.escape(w.text or "")
        for w in words
    )
    return joined + (f"(?:{_WORD_SEPARATOR}.*)?" if prefix or ends_with_star else "")


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
    if command.is_blanket:
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
