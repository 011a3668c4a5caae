"""The rules that "always allow" would save: the narrowest useful one for each command.

Suggests only. The user sees the rules first; `ruleset/rules_file.py` saves them.
"""

from collections.abc import Iterable, Iterator

from treadle.core.contracts.tool import Access
from treadle.lib.files.paths import NULL_DEVICE
from treadle.lib.shell.analysis.git import parse_git_command
from treadle.lib.shell.ast import SHELLS, Effects, SimpleCommand, Word, get_program_name
from treadle.lib.shell.syntax.parser import parse_command
from treadle.lib.text.word_set import word_set
from treadle.permissions.context import PolicyContext
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.permission_evaluator import PermissionEvaluator
from treadle.permissions.ruleset.domains import parse_url_target
from treadle.permissions.ruleset.rules import normalize_tool_name
from treadle.permissions.ruling import PolicyCall

# Subcommands that build, check or show: suggested with any arguments. Commands that publish,
# delete or install are suggested exactly as they were approved.
_ROUTINE_GIT_SUBCOMMANDS = word_set("add commit fetch switch mv")
_ROUTINE_SUBCOMMANDS = word_set(
    "test build check lint fmt format vet clippy doc bench ci ls list ps images logs info show "
    "tree outdated status get describe dev compile verify"
)
_MAX_COMMANDS = 40
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
    """The rules that would allow this call; () if no rule can."""
    key = normalize_tool_name(call.tool)
    if key == "bash":
        return _suggest_for_command_line(call, context)
    if key == "webfetch":
        host = parse_url_target(call.access.url or "").host
        return (f"WebFetch(domain:{host})",) if host else ()
    if not call.access.files:
        return (call.tool,)
    rules = []
    for file in call.access.files:
        resolved = FileEvaluator(context).resolve(file.path, call.access.cwd or context.root)
        name = "Read" if file.mode == "read" else "Edit"
        rules.append(f"{name}({_format_path_rule(resolved.path, context)})")
    return tuple(rules)


def _suggest_for_command_line(call: PolicyCall, context: PolicyContext) -> tuple[str, ...]:
    parsed = parse_command(call.access.command or "")
    if parsed.doubts:
        return ()
    evaluator = PermissionEvaluator(context)
    rules: list[str] = []
    cwd = call.access.cwd or context.root
    commands = dict.fromkeys(_list_leaf_commands(parsed.commands))
    if len(commands) > _MAX_COMMANDS:
        return ()  # more rules than the user can read
    for command in commands:
        if command.argv and not command.redirects:
            alone = PolicyCall("bash", Access(command=command.source, cwd=cwd))
            if evaluator.evaluate(alone).outcome == "allow":
                continue
        suggested = _suggest_for_command(command, context, evaluator.files, cwd)
        if suggested is None:
            return ()  # no rule can cover the whole line
        rules += suggested
    # A rule that does not prevent the same question is not suggested.
    unique = tuple(dict.fromkeys(rules))
    after = PermissionEvaluator(context.with_allow_rules(unique, "suggested"))
    return unique if after.evaluate(call).outcome == "allow" else ()


def _list_leaf_commands(commands: Iterable[SimpleCommand]) -> Iterator[SimpleCommand]:
    for command in commands:
        if command.inner and command.wrapper_kind == "transparent":
            if command.redirects:
                yield SimpleCommand((), (), command.redirects, command.source, command.cd_paths)
            yield from _list_leaf_commands(command.inner)
        else:
            yield command


def _suggest_for_command(
    command: SimpleCommand, context: PolicyContext, files: FileEvaluator, start: str
) -> list[str] | None:
    if command.doubts or command.cd_paths is None or any(w.text is None for w in command.argv):
        return None
    rules: list[str] = []
    effects = command.effects
    cwds = [cwd for cd_path in command.cd_paths for cwd in files.list_cwds(cd_path, start)]
    written = [r.target for r in command.redirects if r.effect in ("write", "both") and r.target]
    for word in [*written, *effects.writes]:
        if word.text is None or word.is_glob:
            return None
        for cwd in cwds:
            path = files.resolve(word.text, cwd).path
            if path != NULL_DEVICE and not files.evaluate(word.text, "write", cwd).rule:
                rules.append(f"Edit({_format_path_rule(path, context)})")
    for word in effects.reads:
        for cwd in cwds:
            if word.text and files.evaluate(word.text, "read", cwd).outcome == "ask":
                path = files.resolve(word.text, cwd).path
                rules.append(f"Read({_format_path_rule(path, context)})")
    if command.argv and (effects.doubts or command.assignments or not effects.is_read_only):
        assigned = "".join(f"{a.name}={_quote(a.value)} " for a in command.assignments)
        rules.append(f"Bash({assigned}{_format_command_rule(command, effects)})")
    return rules


def _format_command_rule(command: SimpleCommand, effects: Effects) -> str:
    """The narrowest useful pattern: a prefix if arguments cannot run anything, else exact."""
    words = command.argv
    exact = " ".join(_quote(w) for w in words)
    name = get_program_name(words[0]) or ""
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
    if text and all(c.isalnum() or c in "_-./=:,@%+~[]" for c in text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _format_path_rule(path: str, context: PolicyContext) -> str:
    root = context.root.rstrip("/")
    if path.startswith(root + "/"):
        return path[len(root) :]
    home = context.home.rstrip("/")
    return "~" + path[len(home) :] if path.startswith(home + "/") else "/" + path
