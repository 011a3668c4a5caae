"""Whether a command line may run: every part covered, no part denied.

Puts together what the line does (`shell/`), what the rules say, and where its paths lead. The judge
of calls stands above.
"""

import re
from collections.abc import Iterable, Sequence

from treadle.policy.evaluation.file_evaluator import FileEvaluator, PolicyContext
from treadle.policy.evaluation.path_access import PathAccess, list_values
from treadle.policy.evaluation.ruling import PolicyFinding
from treadle.policy.ruleset.paths import is_inside
from treadle.policy.ruleset.rules import CommandPattern, Rule
from treadle.policy.ruleset.spellings import Spellings, WordTexts, list_spellings
from treadle.policy.shell.analysis.effects import Effects
from treadle.policy.shell.analysis.programs import analyze_effects
from treadle.policy.shell.ast import Assignment, ParsedCommand, SimpleCommand, Word
from treadle.policy.shell.program_names import get_program_name
from treadle.policy.shell.syntax.parser import parse_command
from treadle.policy.wordset import word_set

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
_MAX_SUFFIXES = 200
_MAX_CHARS = 200_000
_PROGRAM_NAME = re.compile(r"[\w.+-]+")
_PLAIN_VALUE = re.compile(r"[^/\\]*")
_TIME_ZONE = re.compile(r"\w+(?:/[\w+-]+)+")
# Carriage returns are bad enough to ask, not to refuse: files from elsewhere have them.
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# Blanks that bash does not split at, and marks that are not seen or turn the text around.
_INVISIBLE_CHARS = re.compile(
    r"[\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class CommandEvaluator:
    """Judges command lines in one situation."""

    def __init__(self, context: PolicyContext, files: FileEvaluator) -> None:
        self.context = context
        self.files = files
        rules = context.rules
        self._allow = _list_command_patterns(rules.allow)
        self._ask = _list_command_patterns(rules.ask)
        self._deny = _list_command_patterns(rules.deny)
        self.forbidden_programs = frozenset(
            pattern.words[0] for _, pattern in (*self._deny, *self._ask) if pattern.words
        )

    def evaluate(
        self, text: str, cwd: str
    ) -> tuple[tuple[PolicyFinding, ...], ParsedCommand | None]:
        """The findings on a command line, one for each part and one for each doubt."""
        malformed = _find_malformation(text)
        if malformed:
            return (PolicyFinding(text, "deny", malformed),), None
        facts = parse_command(text)
        findings: list[PolicyFinding] = []
        for part in facts.guessed_commands:
            forbidden = self._check_forbidden_deep(part)
            if forbidden is not None:
                findings.append(forbidden)
        judge = _SimpleCommandEvaluator(self, facts, cwd)
        findings += [judge.evaluate(part) for part in facts.commands]
        findings += [PolicyFinding(text, "ask", doubt) for doubt in facts.doubts]
        if _INVISIBLE_CHARS.search(text) or "\r" in text:
            findings.append(PolicyFinding(text, "ask", "characters that are not seen as they are"))
        if not is_inside(self.files.resolve(cwd, cwd).path, self.context.roots):
            findings.append(
                PolicyFinding(cwd, "ask", "the working directory is outside the workspace")
            )
        if not findings:
            findings.append(PolicyFinding(text, "allow", "does nothing", is_read_only=True))
        return tuple(findings), facts

    def check_forbidden(self, command: SimpleCommand, spellings: Spellings) -> PolicyFinding | None:
        """What the deny and ask lists say of a part by its words."""
        if command.is_unread:
            # However deep it is: what it comes to stands at the end of its words.
            spellings = Spellings(
                spellings.strict, (*spellings.loose, *_list_suffixes(command.argv))
            )
        for rule, pattern in self._deny:
            if pattern.is_blanket or pattern.forbids(spellings):
                return PolicyFinding(command.source, "deny", f"rule {rule.text}", rule.text)
        for rule, pattern in self._ask:
            if pattern.is_blanket or pattern.forbids(spellings):
                return PolicyFinding(command.source, "ask", f"rule {rule.text}", rule.text)
        return None

    def _check_forbidden_deep(self, command: SimpleCommand) -> PolicyFinding | None:
        found = self.check_forbidden(command, list_spellings(command.argv))
        for inner in command.inner:
            found = found if found is not None else self._check_forbidden_deep(inner)
        return found

    def is_exact_match(self, words: Sequence[Word]) -> bool:
        """Whether an allow rule spells out the whole of a command."""
        return any(pattern.is_exact_match(words) for _, pattern in self._allow)

    def find_allow_rule(
        self, command: SimpleCommand, spellings: Spellings
    ) -> tuple[Rule, CommandPattern] | None:
        """The most specific allow rule that covers the part's words."""
        found = [
            (rule, pattern)
            for rule, pattern in self._allow
            if (pattern.is_blanket or pattern.allows(spellings))
            and _has_assignments(pattern, command.assignments)
        ]
        return max(
            found, key=lambda f: (f[1].is_exact_match(command.argv), len(f[1].words)), default=None
        )


class _SimpleCommandEvaluator:
    """Judges the parts of one line."""

    def __init__(self, evaluator: CommandEvaluator, parsed: ParsedCommand, cwd: str) -> None:
        self.evaluator = evaluator
        self.parsed = parsed
        self.path_access = PathAccess(evaluator.files, cwd, evaluator.is_exact_match)

    def evaluate(
        self, command: SimpleCommand, is_covered: bool = False, is_exact: bool = False
    ) -> PolicyFinding:
        """`reached`: the rule for the wrapper around it names this program already.
        `spelled`: a rule spells out the whole of the command that it is in.
        """
        forms = list_spellings(command.argv)
        forbidden = self.evaluator.check_forbidden(command, forms)
        if forbidden is not None and forbidden.outcome == "deny":
            return forbidden
        found = self.evaluator.find_allow_rule(command, forms) if command.argv else None
        rule, pattern = found if found is not None else (None, None)
        named = is_exact or (pattern is not None and pattern.is_exact_match(command.argv))
        effects = analyze_effects(command)
        inner = tuple(
            self.evaluate(
                p, is_covered or named or _covers_inner(pattern, command, forms, p), named
            )
            for p in command.inner
        )
        paths = list(self.path_access.evaluate(command, effects, named))
        trouble = self._find_doubt(command, effects, pattern, named)
        gravest = [*inner, *paths]
        if forbidden is not None:
            gravest.append(forbidden)
        for outcome in ("deny", "ask"):
            for finding in gravest:
                if finding.outcome == outcome and (outcome == "deny" or finding is forbidden):
                    return _wrap_finding(command, finding, inner)
        if trouble:
            return PolicyFinding(command.source, "ask", trouble, inner=inner)
        for finding in gravest:
            if finding.outcome == "ask":
                return _wrap_finding(command, finding, inner)
        return self._evaluate_coverage(command, effects, rule, inner, is_covered)

    def _evaluate_coverage(
        self, command: SimpleCommand, effects: Effects, rule: Rule | None, inner: tuple[PolicyFinding, ...],
        is_covered: bool,
    ) -> PolicyFinding:  # fmt: skip
        plain = all(f.is_read_only for f in inner) and not any(
            r.effect in ("write", "both") and (r.target is None or r.target.text != "/dev/null")
            for r in command.redirects
        )
        if not command.argv:
            return PolicyFinding(command.source, "allow", "only data", is_read_only=plain)
        if inner and command.wrapper_kind == "transparent":
            return PolicyFinding(
                command.source, "allow", "what it runs is allowed", "", plain, inner
            )
        if effects.is_read_only:
            return PolicyFinding(command.source, "allow", "only reads", "", plain, inner)
        name = get_program_name(command.argv[0])
        if name in ("cd", "pushd") or (name == "popd" and len(command.argv) == 1):
            return PolicyFinding(command.source, "allow", "only moves", "", plain)
        if rule is not None:
            return PolicyFinding(
                command.source, "allow", f"rule {rule.text}", rule.text, False, inner
            )
        if is_covered:
            return PolicyFinding(
                command.source, "allow", "named by the rule around it", inner=inner
            )
        if self.evaluator.context.accept_edits and name in _EDIT_PROGRAMS:
            return PolicyFinding(command.source, "allow", "edits inside the workspace are accepted")
        return PolicyFinding(command.source, "ask", "no rule allows it", inner=inner)

    # ---------------------------------------------------------------- what stands in the way

    def _find_doubt(
        self,
        command: SimpleCommand,
        effects: Effects,
        pattern: CommandPattern | None,
        is_exact: bool,
    ) -> str:
        if command.doubts and not is_exact:
            return command.doubts[0]
        if command.argv and command.argv[0].text is None:
            return "the name of the command is not static"
        if command.argv and command.argv[0].is_glob and command.argv[0].text not in ("[", "[["):
            return "the name of the command is a pattern"
        assigned = pattern.assignments if pattern is not None else ()
        for assignment in command.assignments:
            if not self._is_safe_assignment(command, assignment, assigned):
                return f"{assignment.name} may change what programs run"
        for word in command.argv[1:]:
            if word.text is None and not (
                word.is_process_substitution or self._is_harmless(word, effects)
            ):
                return f"{word.source} is not static"
            if word.is_glob:
                found = self.path_access.expand_glob(command, word)
                if found is None:
                    return f"{word.source} finds too many names to look at"
                if any(name.startswith("-") for name in found):
                    return f"{word.source} finds a file whose name is an option"
        if is_exact:
            return ""
        if effects.doubts:
            return effects.doubts[0]
        if pattern is None or pattern.has_program_name:
            return "code given on the line" if effects.has_inline_code and pattern is None else ""
        if effects.has_inline_code:
            return "code given on the line"
        return self._may_run_forbidden(command, effects)

    def _may_run_forbidden(self, command: SimpleCommand, effects: Effects) -> str:
        """A program that nothing is known of may run what is named among its arguments."""
        if effects != Effects(mentions=effects.mentions, is_opaque=effects.is_opaque):
            return ""
        for word in command.argv[1:]:
            for text in list_values(word.text or ""):
                named = self.evaluator.forbidden_programs.intersection(_PROGRAM_NAME.findall(text))
                if named:
                    return f"it may run {min(named)}, which a rule is about"
        return ""

    def _is_safe_assignment(
        self, command: SimpleCommand, assignment: Assignment, allowed: Sequence[str]
    ) -> bool:
        name, value = assignment.name, assignment.value
        if f"{name}={value.text}" in allowed:
            return True
        if value.text is None and not value.is_plain_data:
            return False
        if name in _SAFE_VARIABLES or name.startswith("LC_"):
            # Locales, terminals and zones are looked up as files below a folder of the system's.
            zone = name == "TZ" and _TIME_ZONE.fullmatch(value.text or "")
            return bool(zone) or bool(_PLAIN_VALUE.fullmatch(value.text or ""))
        alone = not command.argv and bool(_LOCAL_VARIABLE.fullmatch(name))
        return alone and not name.endswith("_proxy")

    def _is_harmless(self, word: Word, effects: Effects) -> bool:
        """Whether a word that is not static can do no harm where it stands."""
        known = all(
            n in self.parsed.assigned_variables or n in _HARMLESS_VARIABLES
            for n in word.variable_names
        )
        return effects.is_print_only and word.is_plain_data and known


def _list_suffixes(argv: Sequence[Word]) -> Iterable[WordTexts]:
    texts = tuple((word.text or "").rpartition("/")[2] for word in argv[-_MAX_SUFFIXES:])
    return (texts[at:] for at in range(len(texts)))


def _list_command_patterns(rules: Iterable[Rule]) -> tuple[tuple[Rule, CommandPattern], ...]:
    return tuple((r, c) for r in rules if (c := r.command_pattern) is not None)


def _has_assignments(pattern: CommandPattern, assignments: Sequence[Assignment]) -> bool:
    given = {f"{a.name}={a.value.text}" for a in assignments}
    return set(pattern.assignments) <= given


def _covers_inner(
    pattern: CommandPattern | None, outer: SimpleCommand, spellings: Spellings, inner: SimpleCommand
) -> bool:
    """Whether the rule for a wrapper names the program inside it as well."""
    if pattern is None or pattern.regex or not inner.argv:
        return False
    for at, word in enumerate(outer.argv):
        if word is inner.argv[0]:
            return len(pattern.words) > at and pattern.allows(spellings)
    return False


def _wrap_finding(
    command: SimpleCommand, finding: PolicyFinding, inner: tuple[PolicyFinding, ...]
) -> PolicyFinding:
    reason = finding.reason
    if finding.subject != command.source:
        reason = f"{finding.subject}: {reason}"
    return PolicyFinding(command.source, finding.outcome, reason, finding.rule, inner=inner)


def _find_malformation(text: str) -> str:
    if len(text) > _MAX_CHARS:
        return f"a command of {len(text):,} characters; write a script, and run that"
    if "\0" in text:
        return "a NUL in the command"
    return "control characters in the command" if _CONTROL_CHARS.search(text) else ""
