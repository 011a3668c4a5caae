"""Whether a command line may run: a rule covers every command in it, and none is denied.

Combines what the line does (shell/), what the rules say, and which paths it reads and writes. Used
by `permission_evaluator.py`.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from treadle.lib.files.paths import NULL_DEVICE, CachedFileSystemView, is_inside
from treadle.lib.shell.analysis.overrides import drop_script_words, find_overrides
from treadle.lib.shell.analysis.programs import describe_command, is_interpreter
from treadle.lib.shell.ast import (
    Effects,
    ParsedCommand,
    SimpleCommand,
    Word,
    get_program_name,
    strip_version,
)
from treadle.lib.shell.syntax.parser import parse_command
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.text import plural
from treadle.lib.text.word_set import word_set
from treadle.permissions.command_rules import CommandRules, covers_inner
from treadle.permissions.context import PolicyContext
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.listed_names import (
    find_search_of_listed,
    is_found_name,
    is_listed_name,
)
from treadle.permissions.path_access import PathAccess
from treadle.permissions.ruleset.rules import CommandPattern, Rule
from treadle.permissions.ruleset.spellings import list_spellings
from treadle.permissions.ruling import PolicyFinding
from treadle.permissions.word_values import list_values

_SAFE_VARIABLES = word_set(
    "LANG LANGUAGE TZ NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE TERM COLORTERM COLUMNS "
    "LINES CI PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED NODE_ENV RUST_BACKTRACE "
    "RUST_LOG GOOS GOARCH GOARM CGO_ENABLED DEBUG VERBOSE LOG_LEVEL PORT DEBIAN_FRONTEND "
    "SOURCE_DATE_EPOCH"
)
_HARMLESS_VARIABLES = word_set(
    "HOME PWD OLDPWD USER LOGNAME SHELL LANG TERM HOSTNAME UID EUID RANDOM SECONDS LINENO "
    "BASH_VERSION OSTYPE PATH TMPDIR"
)
_LOCAL_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_EDIT_PROGRAMS = frozenset({"mkdir", "touch", "cp", "mv", "tee", "sed"})
_SPLIT_CHARS = re.compile(r"[\s*?\[\\]")
_MAX_CHARS = 200_000
_PROGRAM_NAME = re.compile(r"[\w.+-]+")
_TIME_ZONE = re.compile(r"\w+(?:/[\w+-]+)+")
# A carriage return asks instead: text from other systems contains them.
_CONTROL_CHARS = compile_lazily(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# Blanks at which bash does not split, invisible characters, and marks that change direction.
_INVISIBLE_CHARS = compile_lazily(
    r"[\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class CommandEvaluator:
    """Evaluates command lines in one context."""

    def __init__(self, context: PolicyContext, files: FileEvaluator) -> None:
        self._context = context
        self._files = files
        self._rules = CommandRules(context.rules)

    def evaluate(
        self, text: str, cwd: str, *, is_sandboxed: bool = False
    ) -> tuple[tuple[PolicyFinding, ...], ParsedCommand | None]:
        """The findings on a command line, at least one, and the parsed line."""
        malformed = _find_malformation(text)
        if malformed:
            return (PolicyFinding(text, "deny", malformed),), None
        parsed = parse_command(text)
        cached = CachedFileSystemView(self._context.file_system.mounts)
        files = FileEvaluator(replace(self._context, file_system=cached))
        paths = PathAccess(files, cwd, self._rules, is_sandboxed=is_sandboxed)
        line = _LineEvaluator(self._context, paths, self._rules, parsed)
        findings = (
            *filter(None, map(self._find_forbidding_deep, parsed.guessed_commands)),
            *map(line.evaluate, parsed.commands),
            *self._check_line(parsed, cwd),
        )
        nothing = PolicyFinding(text, "allow", "does nothing", is_read_only=True)
        return findings or (nothing,), parsed

    def _find_forbidding_deep(self, command: SimpleCommand) -> PolicyFinding | None:
        """The forbidding rule for a command of a line that was not understood."""
        finding = self._rules.find_forbidding(command, list_spellings(command.argv))
        for inner in command.inner:
            finding = finding or self._find_forbidding_deep(inner)
        return finding

    def _check_line(self, parsed: ParsedCommand, cwd: str) -> Iterator[PolicyFinding]:
        """What is wrong with the line as a whole."""
        for doubt in parsed.doubts:
            yield PolicyFinding(parsed.text, "ask", doubt)
        if _INVISIBLE_CHARS.search(parsed.text) or "\r" in parsed.text:
            yield PolicyFinding(parsed.text, "ask", "it contains invisible characters")
        if not is_inside(self._files.resolve(cwd, cwd).path, self._context.roots):
            yield PolicyFinding(cwd, "ask", "the working directory is outside the folder")


class _LineEvaluator:
    """Evaluates the simple commands of one line."""

    def __init__(
        self, context: PolicyContext, paths: PathAccess, rules: CommandRules, parsed: ParsedCommand
    ) -> None:
        self._context = context
        self._rules = rules
        self._parsed = parsed
        self._paths = paths
        self._found: dict[tuple[SimpleCommand, bool, bool], PolicyFinding] = {}

    def evaluate(
        self, command: SimpleCommand, is_covered: bool = False, is_exact: bool = False
    ) -> PolicyFinding:
        """The finding on one simple command, with its inner commands.

        `is_covered`: the rule for the wrapper around it names its program. `is_exact`: a rule
        contains the whole command around it.
        """
        key = (command, is_covered, is_exact)
        if key not in self._found:  # a line may repeat a command hundreds of times
            self._found[key] = self._evaluate(command, is_covered, is_exact)
        return self._found[key]

    def _evaluate(self, command: SimpleCommand, is_covered: bool, is_exact: bool) -> PolicyFinding:
        spellings = list_spellings(command.argv)
        forbidden = self._rules.find_forbidding(command, spellings)
        if forbidden is not None and forbidden.outcome == "deny":
            return forbidden
        search = find_search_of_listed(command, self._parsed)
        if search is not None and self._paths.has_no_options():
            outside = self._paths.find_symlink_out(command)
            return outside or self.evaluate(describe_command(search), is_covered, is_exact)
        rule, pattern = self._rules.find_allowing(command, spellings) or (None, None)
        is_exact = is_exact or (pattern is not None and pattern.is_exact_match(command.argv))
        effects = command.effects
        covers = is_covered or is_exact
        inner = tuple(
            self.evaluate(c, covers or covers_inner(pattern, command, spellings, c), is_exact)
            for c in command.inner
        )
        listed = [w for w in command.argv[1:] if is_listed_name(w, command, self._parsed)]
        findings = (*inner, *self._paths.evaluate(command, effects, is_exact, listed))
        denied = next((f for f in findings if f.outcome == "deny"), forbidden)
        if denied is not None:
            return _wrap_finding(command, denied, inner)
        doubt = self._find_doubt(command, effects, pattern, is_exact)
        if not doubt and not is_exact and (pattern is not None or is_covered):
            doubt = self._check_overrides(command, effects, pattern)
        questions = [f for f in findings if f.outcome == "ask"]
        # The question that no mode may answer comes first.
        asked = max(questions, key=lambda f: f.must_ask, default=None)
        if asked is not None and (asked.must_ask or not doubt):
            return _wrap_finding(command, asked, inner)
        if doubt:
            return PolicyFinding(command.source, "ask", doubt, inner=inner)
        return self._evaluate_coverage(command, effects, rule, inner, is_covered)

    def _evaluate_coverage(
        self,
        command: SimpleCommand,
        effects: Effects,
        rule: Rule | None,
        inner: tuple[PolicyFinding, ...],
        is_covered: bool,
    ) -> PolicyFinding:
        """Whether the command is harmless or covered by a rule, if nothing else forbids it."""
        reason = _find_harmless_reason(command, effects, inner)
        if reason:
            is_read_only = all(f.is_read_only for f in inner) and not _writes_by_redirect(command)
            return PolicyFinding(command.source, "allow", reason, "", is_read_only, inner)
        if rule is not None:
            reason = f"rule {rule.text}"
            return PolicyFinding(command.source, "allow", reason, rule.text, inner=inner)
        if is_covered:
            reason = "the rule for the command around it names it"
            return PolicyFinding(command.source, "allow", reason, inner=inner)
        if self._context.accept_edits and get_program_name(command.argv[0]) in _EDIT_PROGRAMS:
            return PolicyFinding(command.source, "allow", "edits inside the folder are accepted")
        return PolicyFinding(command.source, "ask", "no rule allows it", inner=inner)

    def _find_doubt(
        self,
        command: SimpleCommand,
        effects: Effects,
        pattern: CommandPattern | None,
        is_exact: bool,
    ) -> str:
        """Why no rule can cover the command, or why the matching rule does not; "" if it does."""
        if command.doubts and not is_exact:
            return command.doubts[0]
        return (
            _check_program(command)
            or _check_assignments(command, pattern)
            or self._check_arguments(command, effects)
            or ("" if is_exact else self._check_effects(command, effects, pattern))
        )

    def _check_arguments(self, command: SimpleCommand, effects: Effects) -> str:
        for word in command.argv[1:]:
            is_known = word.text is not None or word.is_process_substitution
            is_listed = is_listed_name(word, command, self._parsed) and (
                is_found_name(word, command, self._parsed) or self._paths.has_no_options()
            )
            if not is_known and not is_listed and not self._is_harmless(word, effects):
                return f"the value of {word.source} is known only when the command runs"
            if word.is_glob:
                names = self._paths.expand_glob(command, word)
                if names is None:
                    return f"{word.source} matches too many names to check"
                if any(name.startswith("-") and name != word.text for name in names):
                    return f"{word.source} matches a file whose name is an option"
                if word.may_split and not self._stay_whole(word, names):
                    return f"the value of {word.source} may become several words"
        return ""

    def _stay_whole(self, word: Word, names: Sequence[str]) -> bool:
        """Whether the shell does not split names, and expands none of them once more."""
        are_plain = all(name == word.text or not _SPLIT_CHARS.search(name) for name in names)
        return are_plain and "IFS" not in self._parsed.assigned_variables

    def _is_harmless(self, word: Word, effects: Effects) -> bool:
        """Whether a word that is not static cannot change what the command does."""
        known = self._parsed.assigned_variables | _HARMLESS_VARIABLES
        return (
            effects.is_print_only and word.is_plain_data and known.issuperset(word.variable_names)
        )

    def _check_effects(
        self, command: SimpleCommand, effects: Effects, pattern: CommandPattern | None
    ) -> str:
        if effects.doubts:
            return effects.doubts[0]
        if pattern is not None and pattern.has_program_name:
            return ""
        if effects.has_inline_code:
            return _describe_inline_code(command)
        return self._check_mentioned_programs(command, effects) if pattern is not None else ""

    def _check_overrides(
        self, command: SimpleCommand, effects: Effects, pattern: CommandPattern | None
    ) -> str:
        """Why a prefix rule does not cover words after its own ones; "" if it does."""
        if effects.is_read_only or (pattern is not None and pattern.is_blanket):
            return ""
        is_plain = pattern is not None and not pattern.regex
        named = command.argv[: len(pattern.words)] if is_plain and pattern is not None else ()
        name = get_program_name(command.argv[0]) or ""
        words = drop_script_words(name, command.argv[1:])
        rest = [word for word in words if not any(word is n for n in named)]
        found = find_overrides(name, words)
        for word in rest:
            if any(word is override for override in found.words):
                return (
                    f"{word.source} can make {name} run other code, and the rule does not name it"
                )
            if len(named) > 1 and any(word is target for target in found.targets):
                return f"{word.source} is for another target or project than the rule names"
        if is_interpreter(name) and len(named) < 2:
            return ""  # the rule allows any script
        outside = self._paths.find_outside(command, effects, rest)
        return f"{outside} is outside the folder, and the rule does not name it" if outside else ""

    def _check_mentioned_programs(self, command: SimpleCommand, effects: Effects) -> str:
        """An unknown program may run a program that is named in its arguments."""
        if effects != Effects(mentions=effects.mentions, is_opaque=effects.is_opaque):
            return ""
        for word in command.argv[1:]:
            for text in list_values(word.text or ""):
                named = self._rules.forbidden_programs.intersection(_PROGRAM_NAME.findall(text))
                if named:
                    return f"it may run {min(named)}, which a rule restricts"
        return ""


def _find_harmless_reason(
    command: SimpleCommand, effects: Effects, inner: Sequence[PolicyFinding]
) -> str:
    """Why a command needs no rule; "" if it needs one."""
    if not command.argv:
        return "only data"
    if inner and command.wrapper_kind == "transparent":
        return "the command inside it is allowed"
    if effects.is_read_only:
        return "only reads"
    name = get_program_name(command.argv[0])
    if name in ("cd", "pushd") or (name == "popd" and len(command.argv) == 1):
        return "only changes the folder"
    return ""


def _writes_by_redirect(command: SimpleCommand) -> bool:
    return any(
        r.effect in ("write", "both") and (r.target is None or r.target.text != NULL_DEVICE)
        for r in command.redirects
    )


def _check_program(command: SimpleCommand) -> str:
    if not command.argv:
        return ""
    program = command.argv[0]
    if program.text is None:
        return "the program is known only when the command runs"
    if program.is_glob and program.text not in ("[", "[["):
        return "the name of the command is a pattern"
    return ""


def _describe_inline_code(command: SimpleCommand) -> str:
    """Why a command with code of its own needs a rule that names its program."""
    words = command.argv
    for program, option, module in zip(words, words[1:], words[2:], strict=False):
        is_python = strip_version(get_program_name(program) or "") == "python"
        if is_python and option.text == "-m":
            return f"-m runs the code of the module {module.source}"
    return "code on the command line"


def _check_assignments(command: SimpleCommand, pattern: CommandPattern | None) -> str:
    allowed = pattern.assignments if pattern is not None else ()
    for assigned in command.assignments:
        is_allowed = f"{assigned.name}={assigned.value.text}" in allowed
        if not is_allowed and not _is_safe_assignment(command, assigned.name, assigned.value):
            return f"{assigned.name} may change which programs run"
    return ""


def _is_safe_assignment(command: SimpleCommand, name: str, value: Word) -> bool:
    if value.text is None and not value.is_plain_data:
        return False
    if name in _SAFE_VARIABLES or name.startswith("LC_"):
        # Programs look up locales, terminals and time zones as files in a system folder.
        is_zone = name == "TZ" and _TIME_ZONE.fullmatch(value.text or "")
        return bool(is_zone) or not any(c in (value.text or "") for c in "/\\")
    is_local = not command.argv and bool(_LOCAL_VARIABLE.fullmatch(name))
    return is_local and not name.endswith("_proxy")


def _wrap_finding(
    command: SimpleCommand, finding: PolicyFinding, inner: tuple[PolicyFinding, ...]
) -> PolicyFinding:
    prefix = f"{finding.subject}: " if finding.subject != command.source else ""
    reason = prefix + finding.reason
    kind = finding.kind
    return PolicyFinding(
        command.source, finding.outcome, reason, finding.rule, inner=inner, kind=kind
    )


def _find_malformation(text: str) -> str:
    if len(text) > _MAX_CHARS:
        size = plural(len(text), "character")
        return f"the command has {size}; write a script and run that instead"
    if "\0" in text:
        return "a NUL in the command"
    return "control characters in the command" if _CONTROL_CHARS.search(text) else ""
