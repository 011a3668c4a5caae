"""What "always allow" would save: one rule for each part, the narrowest that is useful.

Proposes only. The person sees the rules first; who keeps them is `ruleset/rules_file.py`.
"""

from collections.abc import Iterable

import msgspec

from treadle.policy.evaluation.file_evaluator import PolicyContext
from treadle.policy.evaluation.permission_evaluator import PermissionEvaluator
from treadle.policy.evaluation.ruling import PolicyCall
from treadle.policy.ruleset.domains import parse_url_target
from treadle.policy.ruleset.rules import RuleSet, normalize_tool_name, parse_rule
from treadle.policy.shell.analysis.effects import Effects
from treadle.policy.shell.analysis.git import parse_git_command
from treadle.policy.shell.analysis.programs import analyze_effects
from treadle.policy.shell.ast import SimpleCommand, Word
from treadle.policy.shell.program_names import SHELLS, get_program_name
from treadle.policy.shell.syntax.parser import parse_command
from treadle.policy.wordset import word_set

# Subcommands that one approves once for all their arguments: they build, check or show. What
# publishes, deletes or installs is saved exactly as it was approved.
_ROUTINE_GIT_SUBCOMMANDS = word_set("add commit fetch switch mv")
_ROUTINE_SUBCOMMANDS = word_set(
    "test build check lint fmt format vet clippy doc bench ci ls list ps images logs info show "
    "tree outdated status get describe dev compile verify"
)
_SUBCOMMAND_PROGRAMS = word_set(
    "npm yarn pnpm bun cargo go docker kubectl pip pip3 uv poetry gh dotnet mvn gradle terraform "
    "just task helm bundle rake composer conda"
)
_SCRIPT_RUNNERS = word_set("npm yarn pnpm bun")  # `npm run NAME` names a script of the project

_PREFIX_PROGRAMS = word_set(
    "ls cat head tail wc grep rg find sort uniq cut tr diff sed awk jq tree stat file du "
    "mkdir touch pytest ruff mypy eslint prettier tsc jest vitest black isort flake8 pylint "
    "ctest rustfmt gofmt"
)


def suggest_rules(call: PolicyCall, context: PolicyContext) -> tuple[str, ...]:
    """The rules that would have allowed this call; () when no rule can."""
    key = normalize_tool_name(call.tool)
    if key == "bash":
        return _suggest_for_command_line(call, context)
    if key == "webfetch":
        host = parse_url_target(str(call.input.get("url", ""))).host
        return (f"WebFetch(domain:{host})",) if host else ()
    if key.startswith("mcp__"):
        return (call.tool,)
    path = next((v for k in ("path", "file_path") if isinstance(v := call.input.get(k), str)), None)
    if path is None:
        return (call.tool,)
    judge = PermissionEvaluator(context)
    place = judge.files.resolve(path, call.cwd or context.root)
    name = "Read" if key in ("read", "glob", "grep", "ls") else "Edit"
    return (f"{name}({_format_path_rule(place.path, context)})",)


def _suggest_for_command_line(call: PolicyCall, context: PolicyContext) -> tuple[str, ...]:
    text = call.input.get("command")
    if not isinstance(text, str):
        return ()
    facts = parse_command(text)
    if facts.doubts:
        return ()
    judge = PermissionEvaluator(context)
    rules: list[str] = []
    cwd = call.cwd or context.root
    for part in _list_leaf_commands(facts.commands):
        ruling = (
            judge.evaluate(PolicyCall("bash", {"command": part.source}, cwd)) if part.argv else None
        )
        if ruling is not None and ruling.outcome == "allow" and not part.redirects:
            continue
        proposed = _suggest_for_command(part, context, judge, cwd)
        if proposed is None:
            return ()  # no rule could cover the whole, so none is offered
        rules += proposed
    found = tuple(dict.fromkeys(rules))
    return found if _is_sufficient(found, call, context) else ()


def _is_sufficient(rules: tuple[str, ...], call: PolicyCall, context: PolicyContext) -> bool:
    """Whether the call would not be asked again: a rule that does not help is not offered."""
    added = tuple(parse_rule(r, context.root, context.home) for r in rules)
    wider = msgspec.structs.replace(context, rules=context.rules + RuleSet(allow=added))
    return PermissionEvaluator(wider).evaluate(call).outcome == "allow"


def _list_leaf_commands(commands: Iterable[SimpleCommand]) -> Iterable[SimpleCommand]:
    for part in commands:
        if part.inner and part.wrapper_kind == "transparent":
            if part.redirects:
                yield SimpleCommand((), (), part.redirects, part.source, part.cd_paths)
            yield from _list_leaf_commands(part.inner)
        else:
            yield part


def _suggest_for_command(
    command: SimpleCommand, context: PolicyContext, evaluator: PermissionEvaluator, cwd: str
) -> list[str] | None:
    if command.doubts or command.cd_paths is None or any(w.text is None for w in command.argv):
        return None
    rules: list[str] = []
    effects = analyze_effects(command)
    written = [r.target for r in command.redirects if r.effect in ("write", "both") and r.target]
    for word in [*written, *effects.writes]:
        if word.text is None or word.is_glob:
            return None
        for here in _list_cwds(command, evaluator, cwd):
            place = evaluator.files.resolve(word.text, here)
            if place.path == "/dev/null" or evaluator.files.evaluate(word.text, "write", here).rule:
                continue
            rules.append(f"Edit({_format_path_rule(place.path, context)})")
    for word in effects.reads:
        for here in _list_cwds(command, evaluator, cwd):
            if word.text and evaluator.files.evaluate(word.text, "read", here).outcome == "ask":
                place = evaluator.files.resolve(word.text, here)
                rules.append(f"Read({_format_path_rule(place.path, context)})")
    if command.argv and (effects.doubts or command.assignments or not effects.is_read_only):
        words = _format_command_rule(command, effects)
        assigned = "".join(f"{a.name}={_quote(a.value)} " for a in command.assignments)
        rules.append(f"Bash({assigned}{words})")
    return rules


def _list_cwds(command: SimpleCommand, evaluator: PermissionEvaluator, cwd: str) -> Iterable[str]:
    """The folders in which the part may run."""
    for moves in command.cd_paths or ():
        here = cwd
        for step in moves:
            here = evaluator.files.resolve(step, here).path
        yield here


def _format_command_rule(command: SimpleCommand, effects: Effects) -> str:
    """The narrowest useful pattern: a prefix where arguments cannot run anything, else exact."""
    words = command.argv
    exact = " ".join(_quote(w) for w in words)
    name = get_program_name(words[0]) or ""
    if (
        effects.doubts
        or effects.has_inline_code
        or effects.writes
        or command.inner
        or name in SHELLS
    ):
        return exact
    texts = [w.text or "" for w in words]
    if name == "git":
        line = parse_git_command(words[1:])
        subcommand = line.subcommand.text if line.subcommand else None
        routine = subcommand in _ROUTINE_GIT_SUBCOMMANDS or effects.is_read_only
        return f"git {subcommand}:*" if routine and len(words) > 1 else exact
    if name in _SUBCOMMAND_PROGRAMS and len(texts) > 1 and texts[1] in _ROUTINE_SUBCOMMANDS:
        return f"{name} {texts[1]}:*"
    if name in _SCRIPT_RUNNERS and texts[1:2] == ["run"] and len(texts) > 2 and texts[2][0] != "-":
        return f"{name} run {_quote(words[2])}:*"
    if name in _PREFIX_PROGRAMS and not effects.primary_writes:
        return f"{name}:*"
    return exact


def _quote(word: Word) -> str:
    text = word.text or ""
    if text and all(c.isalnum() or c in "_-./=:,@%+~[]" for c in text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _format_path_rule(path: str, context: PolicyContext) -> str:
    root = context.root.rstrip("/")
    if path.startswith(root + "/"):
        return path[len(root) :]
    home = context.home.rstrip("/")
    return "~" + path[len(home) :] if path.startswith(home + "/") else "/" + path
