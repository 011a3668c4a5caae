"""Rules as people write them: `Bash(git status:*)`, `Read(src/**)`, `WebFetch(domain:x.org)`.

A rule is a value that knows what it matches; it decides nothing. Lists of them (allow, ask, deny)
are read from settings in `rulesfile.py`, and weighed in `judge.py`. An invalid rule is an error.
"""

import fnmatch
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.policy.domains import normal_host
from treadle.policy.forms import Forms, Texts, means
from treadle.policy.patterns import PathPattern, compile_pattern
from treadle.policy.shell.facts import Word
from treadle.policy.shell.words import BadWord, read_word

ListName = Literal["allow", "ask", "deny"]

READING = frozenset({"read", "glob", "grep", "ls"})
WRITING = frozenset({"write", "edit", "multiedit", "applypatch", "notebookedit"})
_JOINT = "\x1f"


class Origin(msgspec.Struct, frozen=True):
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
    prefix: bool = False
    wild: str = ""  # a regular expression over the joined words, when `*` stands among them

    @property
    def blanket(self) -> bool:
        """Whether it covers every command."""
        return not self.words

    @property
    def names_program(self) -> bool:
        """Whether it says which program is meant."""
        return bool(self.words) and "*" not in self.words[0]

    def allows(self, forms: Forms) -> bool:
        """Whether these words are covered, each in its place."""
        return any(self._covers(form) for form in forms.strict)

    def spells_out(self, argv: Sequence[Word]) -> bool:
        """Whether the rule names this very command, to the last word."""
        if self.wild or len(self.words) != len(argv) or self.blanket:
            return False
        if self.prefix and len(self.words) == 1:
            return False  # it names a program, and whatever it is given
        return all(word.text == mine for word, mine in zip(argv, self.words, strict=True))

    def _covers(self, texts: Texts) -> bool:
        if self.wild:
            known = _JOINT.join(t if t is not None else "\0" for t in texts)
            return re.fullmatch(self.wild, known, re.DOTALL) is not None
        head = texts[: len(self.words)]
        return head == self.words and (self.prefix or len(texts) == len(head))

    def forbids(self, forms: Forms) -> bool:
        """Whether a deny or ask rule means these words: by any path, in any order of options."""
        if self.blanket or any(self._covers(form) for form in forms.wide):
            return True
        return not self.wild and any(
            means(form, self.words, prefix=self.prefix) for form in forms.wide
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
    body: CommandPattern | PathPattern | DomainPattern | None = None
    origin: Origin = Origin()

    @property
    def command(self) -> CommandPattern | None:
        """The pattern over commands, if this is a rule about them."""
        if self.tool != "bash":
            return None
        return self.body if isinstance(self.body, CommandPattern) else CommandPattern(())

    def names_tool(self, key: str) -> bool:
        """Whether the rule's tool is this one, or its server, or the family it belongs to."""
        if self.tool.startswith("mcp__"):
            return _mcp_matches(self.tool, key)
        return self.tool == key or _family(self.tool) == _family(key)


class RuleSet(msgspec.Struct, frozen=True):
    """All rules in force, most of them from settings."""

    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()

    def __add__(self, other: "RuleSet") -> "RuleSet":
        return RuleSet(self.allow + other.allow, self.ask + other.ask, self.deny + other.deny)


class InvalidRule(ValueError):
    """A rule that cannot be understood; the message says what to write instead."""


def tool_key(name: str) -> str:
    """A tool's name as rules compare it: without regard to case, or to `_` in our own names."""
    folded = name.casefold()
    return folded if folded.startswith("mcp__") else folded.replace("_", "").replace("-", "")


def _family(key: str) -> str:
    if key in WRITING:
        return "write"
    return "read" if key == "read" else key


def _mcp_matches(rule: str, key: str) -> bool:
    if not key.startswith("mcp__"):
        return False
    server, _, tool = rule[5:].partition("__")
    their_server, _, their_tool = key[5:].partition("__")
    if server != their_server:
        return False
    return not tool or fnmatch.fnmatchcase(their_tool, tool)


_RULE = re.compile(r"([A-Za-z_*][\w.*-]*)\s*(?:\((.*)\))?", re.DOTALL)


def parse_rule(text: str, root: str = "/", home: str = "~", origin: Origin = Origin()) -> Rule:  # noqa: B008 (a frozen value)
    """Read one rule; `root` is where paths of its settings begin."""
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise InvalidRule(f"{text!r} is not a rule; write Tool or Tool(what)")
    name, inside = match.group(1), match.group(2)
    key = tool_key(name)
    if "*" in name and not key.startswith("mcp__"):
        raise InvalidRule(f"{text!r}: a tool's name cannot hold * (only mcp__server__* can)")
    if key.startswith("mcp__"):
        _check_mcp(text, key, inside)
    if inside is None:
        return Rule(text.strip(), key, None, origin)
    try:
        return Rule(text.strip(), key, _body(key, inside.strip(), root, home), origin)
    except ValueError as error:
        raise InvalidRule(f"{text!r}: {error}") from error


def _check_mcp(text: str, key: str, inside: str | None) -> None:
    server = key[5:].partition("__")[0]
    if inside is not None:
        raise InvalidRule(f"{text!r}: a rule about an MCP tool takes no parentheses")
    if not server or "*" in server:
        raise InvalidRule(f"{text!r}: name one server, as in mcp__server__*")


def _body(
    key: str, inside: str, root: str, home: str
) -> CommandPattern | PathPattern | DomainPattern:
    if key == "bash":
        return parse_command_pattern(inside)
    if key in READING or key in WRITING:
        return compile_pattern(inside, root, home)
    if key == "webfetch":
        kind, _, host = inside.partition(":")
        if kind.strip() != "domain" or not host.strip():
            raise ValueError("write WebFetch(domain:host)")
        return DomainPattern(normal_host(host.strip()))
    raise ValueError("this tool takes no parentheses in a rule")


_WORD = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"\\])+""", re.DOTALL)


def parse_command_pattern(inside: str) -> CommandPattern:
    """`git status:*`, `npm run *` or a whole command."""
    if not inside:
        raise ValueError("an empty command")
    if inside in ("*", ":*", "**"):
        return CommandPattern(())
    prefix = inside.endswith(":*") or (inside.endswith(" *") and "*" not in inside[:-2])
    text = inside[:-2] if prefix else inside
    try:
        carried = text.encode("utf-8", "surrogatepass").decode("latin-1")  # as `words` takes it
        if re.sub(_WORD, "", carried).strip():
            raise BadWord("an open quote")
        words = [w for piece in _WORD.findall(carried) for w in read_word(piece, {})]
    except BadWord as bad:
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
    if any(w.glob and "*" in (w.text or "") for w in words):
        stars = [w.glob for w in words[assigned:]]
        more = f"(?:{_JOINT}.*)?" if prefix or inside.endswith(" *") else ""
        rest_wild = rest[:-1] if not prefix and rest[-1] == "*" and len(rest) > 1 else rest
        more = more or (f"(?:{_JOINT}.*)?" if rest_wild != rest else "")
        wild = _JOINT.join(
            re.escape(w).replace(r"\*", ".*") if star else re.escape(w)
            for w, star in zip(rest_wild, stars, strict=False)
        )
        wild += more
    return CommandPattern(tuple(rest), tuple(texts[:assigned]), prefix, wild)


def warning(rule: Rule) -> str:
    """What a person should hear before such an allow rule is saved, or ""."""
    command = rule.command
    if command is None:
        return ""
    if command.blanket:
        return "this allows every command"
    first = command.words[0]
    if command.prefix and len(command.words) == 1 and _runs_anything(first):
        return f"{first} can run any code: this rule allows nearly everything"
    return ""


def _runs_anything(name: str) -> bool:
    names = {
        "python", "perl", "ruby", "node", "deno", "bun", "php", "sh", "bash", "zsh", "sudo", "ssh",
        "make", "npx", "uvx", "docker", "xargs", "env", "eval", "npm", "yarn", "pnpm", "uv",
        "cargo", "go", "lua", "fish", "pwsh", "busybox",
    }  # fmt: skip
    return name.rstrip("0123456789.") in names
