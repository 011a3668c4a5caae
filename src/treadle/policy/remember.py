"""What "always allow" would save: one rule for each part, the narrowest that is useful.

Proposes only. The person sees the rules first; who keeps them is `rulesfile.py`.
"""

from collections.abc import Iterable

import msgspec

from treadle.policy.domains import read_address
from treadle.policy.files import Situation
from treadle.policy.judge import Judge
from treadle.policy.listed import listed
from treadle.policy.rules import RuleSet, parse_rule, tool_key
from treadle.policy.shell.effects import Effects
from treadle.policy.shell.facts import Part, Word
from treadle.policy.shell.git import git_line
from treadle.policy.shell.programs import effects_of
from treadle.policy.shell.tree import read_command
from treadle.policy.shell.wrappers import SHELLS, program_name
from treadle.policy.verdict import Call

# Subcommands that one approves once for all their arguments: they build, check or show. What
# publishes, deletes or installs is saved exactly as it was approved.
_GIT_ROUTINE = listed("add commit fetch switch mv")
_ROUTINE = listed(
    "test build check lint fmt format vet clippy doc bench ci ls list ps images logs info show "
    "tree outdated status get describe dev compile verify"
)
_TOOLS = listed(
    "npm yarn pnpm bun cargo go docker kubectl pip pip3 uv poetry gh dotnet mvn gradle terraform "
    "just task helm bundle rake composer conda"
)
_RUNNERS = listed("npm yarn pnpm bun")  # `npm run NAME` names a script of the project

_PREFIXED = listed(
    "ls cat head tail wc grep rg find sort uniq cut tr diff sed awk jq tree stat file du "
    "mkdir touch pytest ruff mypy eslint prettier tsc jest vitest black isort flake8 pylint "
    "ctest rustfmt gofmt"
)


def propose_rules(call: Call, situation: Situation) -> tuple[str, ...]:
    """The rules that would have allowed this call; () when no rule can."""
    key = tool_key(call.tool)
    if key == "bash":
        return _for_command(call, situation)
    if key == "webfetch":
        host = read_address(str(call.input.get("url", ""))).host
        return (f"WebFetch(domain:{host})",) if host else ()
    if key.startswith("mcp__"):
        return (call.tool,)
    path = next((v for k in ("path", "file_path") if isinstance(v := call.input.get(k), str)), None)
    if path is None:
        return (call.tool,)
    judge = Judge(situation)
    place = judge.files.place(path, call.cwd or situation.root)
    name = "Read" if key in ("read", "glob", "grep", "ls") else "Edit"
    return (f"{name}({_path_rule(place.path, situation)})",)


def _for_command(call: Call, situation: Situation) -> tuple[str, ...]:
    text = call.input.get("command")
    if not isinstance(text, str):
        return ()
    facts = read_command(text)
    if facts.doubts:
        return ()
    judge = Judge(situation)
    rules: list[str] = []
    cwd = call.cwd or situation.root
    for part in _leaves(facts.parts):
        ruling = judge.judge(Call("bash", {"command": part.source}, cwd)) if part.argv else None
        if ruling is not None and ruling.outcome == "allow" and not part.redirects:
            continue
        proposed = _for_part(part, situation, judge, cwd)
        if proposed is None:
            return ()  # no rule could cover the whole, so none is offered
        rules += proposed
    found = tuple(dict.fromkeys(rules))
    return found if _suffice(found, call, situation) else ()


def _suffice(rules: tuple[str, ...], call: Call, situation: Situation) -> bool:
    """Whether the call would not be asked again: a rule that does not help is not offered."""
    added = tuple(parse_rule(r, situation.root, situation.home) for r in rules)
    wider = msgspec.structs.replace(situation, rules=situation.rules + RuleSet(allow=added))
    return Judge(wider).judge(call).outcome == "allow"


def _leaves(parts: Iterable[Part]) -> Iterable[Part]:
    for part in parts:
        if part.inner and part.wrapping == "transparent":
            if part.redirects:
                yield Part((), (), part.redirects, part.source, part.moves)
            yield from _leaves(part.inner)
        else:
            yield part


def _for_part(part: Part, situation: Situation, judge: Judge, cwd: str) -> list[str] | None:
    if part.doubts or part.moves is None or any(w.text is None for w in part.argv):
        return None
    rules: list[str] = []
    effects = effects_of(part)
    written = [r.target for r in part.redirects if r.effect in ("write", "both") and r.target]
    for word in [*written, *effects.writes]:
        if word.text is None or word.glob:
            return None
        for here in _standings(part, judge, cwd):
            place = judge.files.place(word.text, here)
            if place.path == "/dev/null" or judge.files.judge(word.text, "write", here).rule:
                continue
            rules.append(f"Edit({_path_rule(place.path, situation)})")
    for word in effects.reads:
        for here in _standings(part, judge, cwd):
            if word.text and judge.files.judge(word.text, "read", here).outcome == "ask":
                place = judge.files.place(word.text, here)
                rules.append(f"Read({_path_rule(place.path, situation)})")
    if part.argv and (effects.doubts or part.assignments or not effects.plain):
        words = _command_rule(part, effects)
        assigned = "".join(f"{a.name}={_quote(a.value)} " for a in part.assignments)
        rules.append(f"Bash({assigned}{words})")
    return rules


def _standings(part: Part, judge: Judge, cwd: str) -> Iterable[str]:
    """The folders in which the part may run."""
    for moves in part.moves or ():
        here = cwd
        for step in moves:
            here = judge.files.place(step, here).path
        yield here


def _command_rule(part: Part, effects: Effects) -> str:
    """The narrowest useful pattern: a prefix where arguments cannot run anything, else exact."""
    words = part.argv
    exact = " ".join(_quote(w) for w in words)
    name = program_name(words[0]) or ""
    if effects.doubts or effects.inline or effects.writes or part.inner or name in SHELLS:
        return exact
    texts = [w.text or "" for w in words]
    if name == "git":
        line = git_line(words[1:])
        subcommand = line.subcommand.text if line.subcommand else None
        routine = subcommand in _GIT_ROUTINE or effects.plain
        return f"git {subcommand}:*" if routine and len(words) > 1 else exact
    if name in _TOOLS and len(texts) > 1 and texts[1] in _ROUTINE:
        return f"{name} {texts[1]}:*"
    if name in _RUNNERS and texts[1:2] == ["run"] and len(texts) > 2 and texts[2][0] != "-":
        return f"{name} run {_quote(words[2])}:*"
    if name in _PREFIXED and not effects.makes:
        return f"{name}:*"
    return exact


def _quote(word: Word) -> str:
    text = word.text or ""
    if text and all(c.isalnum() or c in "_-./=:,@%+~[]" for c in text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _path_rule(path: str, situation: Situation) -> str:
    root = situation.root.rstrip("/")
    if path.startswith(root + "/"):
        return path[len(root) :]
    home = situation.home.rstrip("/")
    return "~" + path[len(home) :] if path.startswith(home + "/") else "/" + path
