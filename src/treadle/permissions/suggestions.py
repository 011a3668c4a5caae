"""The rules that "always allow" would save: the narrowest useful one for each command.

A function of the findings on the call. Suggests only: the user sees the rules first, and
`ruleset/rules_file.py` saves them. Used by `policy.py`.
"""

import re
from collections.abc import Iterator, Sequence

from treadle.lib.files.file_view import NULL_DEVICE, CachedFileSystemView
from treadle.lib.shell.analysis.code_input import runs_input
from treadle.lib.shell.analysis.git import parse_git_command
from treadle.lib.shell.ast import SHELLS, SimpleCommand, Word
from treadle.lib.shell.syntax.parser import parse_command
from treadle.lib.text.word_set import word_set
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.findings import PolicyCall, PolicyContext, PolicyFinding, PolicyRuling
from treadle.permissions.ruleset.command_patterns import parse_command_pattern
from treadle.permissions.ruleset.domains import parse_url_target
from treadle.permissions.ruleset.rules import Rule, normalize_tool_name, parse_rule
from treadle.permissions.verdict import PermissionEvaluator

# Subcommands that build, check or show: suggested with any arguments. Commands that publish,
# delete or install are suggested exactly as they were approved.
_ROUTINE_GIT_SUBCOMMANDS = word_set("add commit fetch switch mv")
_ROUTINE_SUBCOMMANDS = word_set(
    "test build check lint fmt format vet clippy doc bench ls list ps images logs info show "
    "tree outdated status get describe dev compile verify"
)
_MAX_COMMANDS = 40
_MAX_TRIED = 6
_PLAIN_TEXT = re.compile(r"[\w./=:,@%+~\[\]-]+")
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


def suggest_rules(
    call: PolicyCall,
    evaluator: PermissionEvaluator,
    ruling: PolicyRuling | None = None,
    view: CachedFileSystemView | None = None,
) -> tuple[str, ...]:
    """The rules that would allow this call; () if no rule can. `ruling`: that of the evaluator, if
    it is known already."""
    key = normalize_tool_name(call.tool)
    if key == "bash":
        return _suggest_for_line(call, evaluator, ruling or evaluator.evaluate(call, view), view)
    if key == "webfetch":
        target = parse_url_target(call.access.url or "")
        port = f":{target.port}" if target.port else ""
        is_named = bool(target.host) and not (port and ":" in target.host)  # no port of an address
        return (f"WebFetch(domain:{target.host}{port})",) if is_named else ()
    if not call.access.files:
        return (call.tool,)
    rules, files = [], evaluator.open_files(view)
    for file in call.access.files:
        resolved = files.resolve(file.path, call.access.cwd or files.context.root)
        name = "Read" if file.mode == "read" else "Edit"
        rules.append(_format_path_rule(name, resolved.path, files.context))
    return tuple(rules)


def _suggest_for_line(
    call: PolicyCall,
    evaluator: PermissionEvaluator,
    ruling: PolicyRuling,
    view: CachedFileSystemView | None,
    *,
    is_exact: bool = False,
) -> tuple[str, ...]:
    """`is_exact`: rules with all words of the commands, if no shorter ones cover the line."""
    if parse_command(call.access.command or "").doubts:
        return ()
    files, cwd = evaluator.open_files(view), call.access.cwd or evaluator.context.root
    commands = dict(_list_leaf_commands(ruling.findings))
    if len(commands) > _MAX_COMMANDS:
        return ()  # more rules than the user can read
    rules: dict[str, Rule] = {}
    for command, needs_no_rule in commands.items():
        try:
            suggested = (
                []
                if needs_no_rule
                else _suggest_for_command(command, files, cwd, is_exact=is_exact)
            )
        except ValueError:
            return ()  # there are words that a rule cannot contain
        if suggested is None:
            return ()  # no rule can cover the whole line
        for rule in suggested:
            rules[rule.text] = rule
    # A rule that does not prevent the same question is not suggested.
    if evaluator.with_rules([*rules.values()]).evaluate(call, view).outcome != "allow":
        if is_exact:
            return ()
        return _suggest_for_line(call, evaluator, ruling, view, is_exact=True)
    for text in [*rules] if 1 < len(rules) <= _MAX_TRIED else ():
        others = [rule for other, rule in rules.items() if other != text]
        if others and evaluator.with_rules(others).evaluate(call, view).outcome == "allow":
            del rules[text]  # the others are enough
    return tuple(rules)


def _list_leaf_commands(findings: Sequence[PolicyFinding]) -> Iterator[tuple[SimpleCommand, bool]]:
    """The commands for which there can be a rule, and whether they need none."""
    for finding in findings:
        command = finding.command
        if command is None:
            continue
        if command.inner and command.wrapper_kind == "transparent":
            if command.redirects:
                parts = ((), (), command.redirects, command.source, command.cd_paths)
                yield SimpleCommand(*parts), False
            yield from _list_leaf_commands(finding.inner)
        else:
            is_plain = bool(command.argv) and not command.redirects
            yield command, is_plain and finding.outcome == "allow"


def _suggest_for_command(
    command: SimpleCommand, files: FileEvaluator, start: str, *, is_exact: bool
) -> list[Rule] | None:
    if command.doubts or command.cd_paths is None:
        return None
    for word in command.argv:
        if word.text is None:
            return None
    rules: list[Rule] = []
    effects, context = command.effects, files.context
    written = [r.target for r in command.redirects if r.effect in ("write", "both") and r.target]
    written += effects.writes
    places: list[tuple[str, str]] = []
    if written or effects.reads:
        cwds = files.file_system.list_folders(command.cd_paths, start, files.home)
        for word in written:
            if word.text is None or word.is_glob:
                return None
            for cwd in cwds:
                path = files.resolve(word.text, cwd).path
                if path != NULL_DEVICE and not files.evaluate(word.text, "write", cwd).rule:
                    places.append(("Edit", path))
        places += [
            ("Read", files.resolve(word.text, cwd).path)
            for word in effects.reads
            for cwd in cwds
            if word.text and files.evaluate(word.text, "read", cwd).outcome == "ask"
        ]
    for name, path in places:
        rules.append(parse_rule(_format_path_rule(name, path, context), context.root, context.home))
    if command.argv and (effects.doubts or command.assignments or not effects.is_read_only):
        text = _format_command_rule(command, is_exact=is_exact)
        is_script = command.program in _SCRIPT_RUNNERS and text.endswith(":*")
        if not is_script and runs_input(command):
            return None  # a rule would allow any other code there
        rules.append(Rule(f"Bash({text})", "bash", parse_command_pattern(text)))
    return rules


def _format_command_rule(command: SimpleCommand, *, is_exact: bool) -> str:
    """The narrowest useful pattern: a prefix if arguments cannot run anything, else exact."""
    assigned = [f"{a.name}={_quote(a.value)}" for a in command.assignments]
    words = " ".join(map(_quote, command.argv)) if is_exact else _format_words(command)
    return " ".join([*assigned, words])


def _format_words(command: SimpleCommand) -> str:
    words, effects, name = command.argv, command.effects, command.program or ""
    exact = " ".join(map(_quote, words))
    if effects.doubts or effects.has_inline_code or effects.writes or command.inner:
        return exact
    if name in SHELLS:
        return exact
    texts = [w.text or "" for w in words]
    if name == "git":
        git = parse_git_command(words[1:])
        subcommand = git.subcommand.text if git.subcommand else None
        is_routine = subcommand in _ROUTINE_GIT_SUBCOMMANDS or effects.is_read_only
        return f"git {subcommand}:*" if is_routine and len(words) > 1 else exact
    if name in _SUBCOMMAND_PROGRAMS and len(texts) > 1 and texts[1] in _ROUTINE_SUBCOMMANDS:
        return f"{name} {texts[1]}:*"
    if name in _SCRIPT_RUNNERS and texts[1:2] == ["run"] and len(texts) > 2 and texts[2][0] != "-":
        return f"{name} run {_quote(words[2])}:*"
    if name in _PREFIX_PROGRAMS and not effects.primary_writes:
        return f"{name}:*"
    return exact


def _quote(word: Word) -> str:
    """The word as a rule contains it; `~` and `[` need no quotes there, unlike in shlex.quote."""
    text = word.text or ""
    if _PLAIN_TEXT.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _format_path_rule(name: str, path: str, context: PolicyContext) -> str:
    root, home = context.root.rstrip("/"), context.home.rstrip("/")
    if path.startswith(root + "/"):
        text = path[len(root) :]
    else:
        text = "~" + path[len(home) :] if path.startswith(home + "/") else "/" + path
    return f"{name}({text})"
