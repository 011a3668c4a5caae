"""Rules as people write them: `Bash(git status:*)`, `Read(src/**)`, `WebFetch(domain:x.org)`.

A rule is a value that knows what it matches; it decides nothing. Lists of them (allow, ask, deny)
are read from settings in `rules_file.py`, and weighed in `evaluation/permission_evaluator.py`. An invalid rule is an error.
"""

import fnmatch
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.policy.ruleset.domains import normalize_host
from treadle.policy.ruleset.path_patterns import PathPattern, compile_path_pattern
from treadle.policy.ruleset.spellings import Spellings, WordTexts, matches_loosely
from treadle.policy.shell.ast import Word
from treadle.policy.shell.syntax.words import InvalidWord, read_word

RuleListName = Literal["allow", "ask", "deny"]

READ_TOOLS = frozenset({"read", "glob", "grep", "ls"})
WRITE_TOOLS = frozenset({"write", "edit", "multiedit", "applypatch", "notebookedit"})
_WORD_SEPARATOR = "\x1f"


class RuleOrigin(msgspec.Struct, frozen=True):
    """Where a rule was written. `scope` is what the user calls the place."""

    scope: str = "given"
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.scope}: {self.file}:{self.line}" if self.file else self.scope


class CommandPattern(msgspec.Struct, frozen=True):
    """The inside of `Bash(…)`: words, and whether more may follow."""

    words: tuple[str, ...]
    assignments: tuple[str, ...] = ()
    is_prefix: bool = False
    regex: str = ""  # a regular expression over the joined words, when `*` stands among them

    @property
    def is_blanket(self) -> bool:
        """Whether it covers every command."""
        return not self.words

    @property
    def has_program_name(self) -> bool:
        """Whether it says which program is meant."""
        return bool(self.words) and "*" not in self.words[0]

    def allows(self, spellings: Spellings) -> bool:
        """Whether these words are covered, each in its place."""
        return any(self._matches(form) for form in spellings.strict)

    def is_exact_match(self, argv: Sequence[Word]) -> bool:
        """Whether the rule names this very command, to the last word."""
        if self.regex or len(self.words) != len(argv) or self.is_blanket:
            return False
        if self.is_prefix and len(self.words) == 1:
            return False  # it names a program, and whatever it is given
        return all(word.text == mine for word, mine in zip(argv, self.words, strict=True))

    def _matches(self, texts: WordTexts) -> bool:
        if self.regex:
            known = _WORD_SEPARATOR.join(t if t is not None else "\0" for t in texts)
            return re.fullmatch(self.regex, known, re.DOTALL) is not None
        head = texts[: len(self.words)]
        return head == self.words and (self.is_prefix or len(texts) == len(head))

    def forbids(self, spellings: Spellings) -> bool:
        """Whether a deny or ask rule means these words: by any path, in any order of options."""
        if self.is_blanket or any(self._matches(form) for form in spellings.loose):
            return True
        return not self.regex and any(
            matches_loosely(form, self.words, prefix=self.is_prefix) for form in spellings.loose
        )


class DomainPattern(msgspec.Struct, frozen=True):
    """The inside of `WebFetch(domain:…)`; `*.x.org` is every host beneath x.org."""

    host: str

    def forbids(self, host: str) -> bool:
        """Whether a deny or ask rule means this host: the one it names, and all beneath it."""
        return self.matches(host) or host.endswith("." + self.host)

    def matches(self, host: str) -> bool:
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host or self.host == "*"


class Rule(msgspec.Struct, frozen=True):
    """One rule of one list, with the place it comes from."""

    text: str
    tool: str  # folded, as `tool_key` makes it
    pattern: CommandPattern | PathPattern | DomainPattern | None = None
    origin: RuleOrigin = RuleOrigin()

    @property
    def command_pattern(self) -> CommandPattern | None:
        """The pattern over commands, if this is a rule about them."""
        if self.tool != "bash":
            return None
        return self.pattern if isinstance(self.pattern, CommandPattern) else CommandPattern(())

    def matches_tool(self, key: str) -> bool:
        """Whether the rule's tool is this one, or its server, or the family it belongs to."""
        if self.tool.startswith("mcp__"):
            return _matches_mcp_tool(self.tool, key)
        return self.tool == key or _get_tool_family(self.tool) == _get_tool_family(key)


class RuleSet(msgspec.Struct, frozen=True):
    """All rules in force, most of them from settings."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def __add__(self, other: "RuleSet") -> "RuleSet":
        return RuleSet(self.allow + other.allow, self.ask + other.ask, self.deny + other.deny)


class InvalidRule(ValueError):
    """A rule that cannot be understood; the message says what to write instead."""


def normalize_tool_name(name: str) -> str:
    """A tool's name as rules compare it: without regard to case, or to `_` in our own names."""
    folded = name.casefold()
    return folded if folded.startswith("mcp__") else folded.replace("_", "").replace("-", "")


def _get_tool_family(key: str) -> str:
    if key in WRITE_TOOLS:
        return "write"
    return "read" if key == "read" else key


def _matches_mcp_tool(rule: str, key: str) -> bool:
    if not key.startswith("mcp__"):
        return False
    server, _, tool = rule[5:].partition("__")
    their_server, _, their_tool = key[5:].partition("__")
    if server != their_server:
        return False
    return not tool or fnmatch.fnmatchcase(their_tool, tool)


_RULE_SYNTAX = re.compile(r"([A-Za-z_*][\w.*-]*)\s*(?:\((.*)\))?", re.DOTALL)


def parse_rule(
    text: str, root: str = "/", home: str = "~", origin: RuleOrigin = RuleOrigin()
) -> Rule:
    """Read one rule; `root` is where paths of its settings begin."""
    match = _RULE_SYNTAX.fullmatch(text.strip())
    if match is None:
        raise InvalidRule(f"{text!r} is not a rule; write Tool or Tool(what)")
    name, inside = match.group(1), match.group(2)
    key = normalize_tool_name(name)
    if "*" in name and not key.startswith("mcp__"):
        raise InvalidRule(f"{text!r}: a tool's name cannot hold * (only mcp__server__* can)")
    if key.startswith("mcp__"):
        _check_mcp_rule(text, key, inside)
    if inside is None:
        return Rule(text.strip(), key, None, origin)
    try:
        return Rule(text.strip(), key, _parse_pattern(key, inside.strip(), root, home), origin)
    except ValueError as error:
        raise InvalidRule(f"{text!r}: {error}") from error


def _check_mcp_rule(text: str, key: str, body: str | None) -> None:
    server = key[5:].partition("__")[0]
    if body is not None:
        raise InvalidRule(f"{text!r}: a rule about an MCP tool takes no parentheses")
    if not server or "*" in server:
        raise InvalidRule(f"{text!r}: name one server, as in mcp__server__*")


def _parse_pattern(
    key: str, body: str, root: str, home: str
) -> CommandPattern | PathPattern | DomainPattern:
    if key == "bash":
        return parse_command_pattern(body)
    if key in READ_TOOLS or key in WRITE_TOOLS:
        return compile_path_pattern(body, root, home)
    if key == "webfetch":
        kind, _, host = body.partition(":")
        if kind.strip() != "domain" or not host.strip():
            raise ValueError("write WebFetch(domain:host)")
        return DomainPattern(normalize_host(host.strip()))
    raise ValueError("this tool takes no parentheses in a rule")


_WORD_SYNTAX = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)


def parse_command_pattern(text_pattern: str) -> CommandPattern:
    """`git status:*`, `npm run *` or a whole command."""
    if not text_pattern:
        raise ValueError("an empty command")
    if text_pattern in ("*", ":*", "**"):
        return CommandPattern(())
    prefix = text_pattern.endswith(":*") or (
        text_pattern.endswith(" *") and "*" not in text_pattern[:-2]
    )
    text = text_pattern[:-2] if prefix else text_pattern
    try:
        carried = text.encode("utf-8", "surrogatepass").decode("latin-1")  # as `words` takes it
        if re.sub(_WORD_SYNTAX, "", carried).strip():
            raise InvalidWord("an open quote")
        words = [w for piece in _WORD_SYNTAX.findall(carried) for w in read_word(piece, {})]
    except InvalidWord as bad:
        hint = "one rule names one command, without operators or expansions"
        raise ValueError(f"{bad}; {hint}") from bad
    texts = [w.text or "" for w in words]
    assigned = 0
    while assigned < len(texts) and re.match(r"[A-Za-z_]\w*=", texts[assigned]):
        assigned += 1
    if assigned == len(texts):
        raise ValueError("no command after the assignments")
    rest = texts[assigned:]
    wild = ""
    if any(w.is_glob and "*" in (w.text or "") for w in words):
        stars = [w.is_glob for w in words[assigned:]]
        more = f"(?:{_WORD_SEPARATOR}.*)?" if prefix or text_pattern.endswith(" *") else ""
        rest_wild = rest[:-1] if not prefix and rest[-1] == "*" and len(rest) > 1 else rest
        more = more or (f"(?:{_WORD_SEPARATOR}.*)?" if rest_wild != rest else "")
        wild = _WORD_SEPARATOR.join(
            re.escape(w).replace(r"\*", ".*") if star else re.escape(w)
            for w, star in zip(rest_wild, stars, strict=False)
        )
        wild += more
    return CommandPattern(tuple(rest), tuple(texts[:assigned]), prefix, wild)


def describe_rule_risk(rule: Rule) -> str:
    """What a person should hear before such an allow rule is saved, or ""."""
    command = rule.command_pattern
    if command is None:
        return ""
    if command.is_blanket:
        return "this allows every command"
    first = command.words[0]
    if command.is_prefix and len(command.words) == 1 and _can_run_anything(first):
        return f"{first} can run any code: this rule allows nearly everything"
    return ""


def _can_run_anything(name: str) -> bool:
    names = {
        "python", "perl", "ruby", "node", "deno", "bun", "php", "sh", "bash", "zsh", "sudo", "ssh",
        "make", "npx", "uvx", "docker", "xargs", "env", "eval", "npm", "yarn", "pnpm", "uv",
        "cargo", "go", "lua", "fish", "pwsh", "busybox",
    }  # fmt: skip
    return name.rstrip("0123456789.") in names
