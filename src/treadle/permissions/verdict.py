"""Whether a call may run: deny over ask over allow, for every tool, and for each command of a line.

A pure function of the call, the rules and the files on disk: it runs nothing and keeps nothing. A
command line is parsed once (lib/shell); a rule has to cover every command in it, and none may be
denied. Used by `policy.py`, which applies the mode to the ruling.
"""

import re
from collections.abc import Sequence
from copy import copy

from msgspec.structs import replace

from treadle.lib.files.file_view import NULL_DEVICE, CachedFileSystemView, is_inside
from treadle.lib.shell.analysis.overrides import drop_script_words, find_overrides
from treadle.lib.shell.analysis.programs import describe_command, is_interpreter
from treadle.lib.shell.ast import UNKNOWN_ARGUMENTS, Effects, ParsedCommand, SimpleCommand, Word
from treadle.lib.shell.syntax.parser import parse_command
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.word_set import word_set
from treadle.permissions.command_checks import (
    check_assignments,
    describe_inline_code,
    find_malformation,
    find_mentioned_program,
    has_invisible_chars,
    is_edit,
)
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.findings import PolicyCall, PolicyContext, PolicyFinding, PolicyRuling
from treadle.permissions.listed_names import (
    find_search_of_listed,
    is_found_name,
    is_listed_name,
)
from treadle.permissions.path_access import PathAccess
from treadle.permissions.ruleset.command_patterns import (
    CommandPattern,
    Spellings,
    list_spellings,
    matches_pipeline,
)
from treadle.permissions.ruleset.rules import (
    READ_TOOLS,
    WRITE_TOOLS,
    FileRules,
    Rule,
    RuleSet,
    normalize_tool_name,
)
from treadle.permissions.tool_evaluator import (
    evaluate_files,
    evaluate_sandbox_request,
    evaluate_tool,
    evaluate_url,
)

_SEVERITY = {"allow": 0, "ask": 1, "deny": 2}
# Tools that rules know by what they touch: a call of theirs has to say it.
_ACCESS_TOOLS = READ_TOOLS | WRITE_TOOLS | {"bash", "webfetch"}
_HARMLESS_VARIABLES = word_set(
    "HOME PWD OLDPWD USER LOGNAME SHELL LANG TERM HOSTNAME UID EUID RANDOM SECONDS LINENO "
    "BASH_VERSION OSTYPE PATH TMPDIR"
)
_EDITS_ACCEPTED = "edits inside the folder are accepted"
_SPLIT_CHARS = re.compile(r"[\s*?\[\\]")
_MAX_PLAIN_CHARS = 1000


class CommandRules:
    """The command rules of one rule set. Matches words only."""

    def __init__(self, rules: RuleSet) -> None:
        self.allowing = [(r, p) for r in rules.allow if (p := r.command_pattern) is not None]
        self.forbidding = [
            (o, r, p) for o, r in rules.list_forbidding() if (p := r.command_pattern) is not None
        ]
        self.forbidden_programs = frozenset(p.words[0] for _, _, p in self.forbidding if p.words)

    def find_forbidding(self, command: SimpleCommand, spellings: Spellings) -> PolicyFinding | None:
        """The finding of the first deny rule that matches the command, else of an ask rule."""
        for outcome, rule, pattern in self.forbidding:
            if pattern.forbids(spellings):
                return PolicyFinding.from_rule(command.source, outcome, rule)
        return None

    def find_allowing(
        self, command: SimpleCommand, spellings: Spellings
    ) -> tuple[Rule, CommandPattern] | tuple[None, None]:
        """The most specific allow rule that covers the words and assignments of the command."""
        if not command.argv:
            return None, None
        assigned = {f"{a.name}={a.value.text}" for a in command.assignments}
        matching = [
            (rule, pattern)
            for rule, pattern in self.allowing
            if pattern.allows(spellings) and assigned.issuperset(pattern.assignments)
        ]
        specificity = [(p.is_exact_match(command.argv), len(p.words)) for _, p in matching]
        return matching[specificity.index(max(specificity))] if matching else (None, None)


class PermissionEvaluator:
    """Evaluates calls in one context."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context
        self.file_rules = FileRules(context.rules)
        self.command_rules = CommandRules(context.rules)

    def with_rules(self, added: Sequence[Rule]) -> "PermissionEvaluator":
        """With these allow rules in addition."""
        rules = self.context.rules
        context = replace(self.context, rules=replace(rules, allow=(*rules.allow, *added)))
        patterns = [(rule, rule.pattern) for rule in added]
        commands = [(r, p) for r, p in patterns if isinstance(p, CommandPattern)]
        if len(commands) < len(added):
            return PermissionEvaluator(context)
        other, other_rules = copy(self), copy(self.command_rules)
        other_rules.allowing = [*other_rules.allowing, *commands]
        other.context, other.command_rules = context, other_rules
        return other

    def open_files(self, view: CachedFileSystemView | None = None) -> FileEvaluator:
        """The evaluator of paths for one decision: it sees the file system as it is now, or as the
        view has seen it."""
        if view is None:
            view = CachedFileSystemView(self.context.file_system.mounts)
        return FileEvaluator(self.context, self.file_rules, view)

    def evaluate(self, call: PolicyCall, view: CachedFileSystemView | None = None) -> PolicyRuling:
        """The ruling by rules alone, before `modes.apply_mode`."""
        key, access, rules = normalize_tool_name(call.tool), call.access, self.context.rules
        cwd = access.cwd or self.context.root
        if access.command is not None:
            ruling = self._evaluate_line(call, access.command, cwd, self.open_files(view))
            if access.sandbox and call.is_sandboxed:
                return _add_sandbox_request(ruling, evaluate_sandbox_request(access, self.context))
            return ruling  # without a sandbox there is nothing to ask for
        if access.files:
            return _combine([*evaluate_files(key, access.files, cwd, self.open_files(view), rules)])
        if access.url is not None and key != "websearch":
            return _rule_by(evaluate_url(access.url, rules))
        if key in _ACCESS_TOOLS:
            is_denied = key in ("bash", "webfetch")
            reason = "what the call touches is not known"
            return PolicyRuling("deny" if is_denied else "ask", reason)
        # The words of a query leave the machine: that needs a rule or an approval.
        is_pure = call.is_pure and access.url is None
        return _rule_by(evaluate_tool(key, call, rules, is_pure=is_pure))

    def _evaluate_line(
        self, call: PolicyCall, text: str, cwd: str, files: FileEvaluator
    ) -> PolicyRuling:
        """The ruling on a command line."""
        is_plain = len(text) < _MAX_PLAIN_CHARS and text.isascii() and text.isprintable()
        malformed = "" if is_plain else find_malformation(text)
        if malformed:
            return _combine([PolicyFinding(text, "deny", malformed)], is_static=False)
        line = parse_command(text)
        is_sandboxed = stays_sandboxed(call)
        patterns = [pattern for _, pattern in self.command_rules.allowing]
        paths = PathAccess(files, cwd, patterns, line, is_sandboxed=is_sandboxed)
        evaluator = _LineEvaluator(self.context, paths, self.command_rules, line)
        findings = [*filter(None, map(self._find_forbidding_deep, line.guessed_commands))]
        findings += map(evaluator.evaluate, line.commands)
        for outcome, rule, pattern in self.command_rules.forbidding:
            if pattern.pipeline and matches_pipeline(pattern, line.commands):
                findings.append(PolicyFinding.from_rule(text, outcome, rule))
        findings += [PolicyFinding(text, "ask", doubt) for doubt in line.doubts]
        if not is_plain and has_invisible_chars(text):
            findings.append(PolicyFinding(text, "ask", "it contains invisible characters"))
        if not is_inside(files.file_system.resolve(cwd, cwd, files.home).path, files.roots):
            reason = "the working directory is outside the folder"
            findings.append(PolicyFinding(cwd, "ask", reason))
        findings = findings or [PolicyFinding(text, "allow", "does nothing", is_read_only=True)]
        if normalize_tool_name(call.tool) == "taskinput":
            # In which folder, and by which program, a text is read that is typed into a running
            # command is not known, so nothing allows it.
            typed = evaluate_tool("taskinput", call, self.context.rules, is_pure=call.is_pure)
            firm = [f for f in findings if f.outcome == "deny" or (f.outcome == "ask" and f.rule)]
            findings = [typed, *firm]
        return _combine(findings, is_static=not line.doubts and _is_static(line.commands))

    def _find_forbidding_deep(self, command: SimpleCommand) -> PolicyFinding | None:
        """The forbidding rule for a command of a line that was not understood."""
        finding = self.command_rules.find_forbidding(command, list_spellings(command))
        for inner in command.inner:
            finding = finding or self._find_forbidding_deep(inner)
        return finding


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
        finding = self._found.get(key)
        if finding is None:  # a line may repeat a command hundreds of times
            finding = replace(self._evaluate(command, is_covered, is_exact), command=command)
            self._found[key] = finding
        return finding

    def _evaluate(self, command: SimpleCommand, is_covered: bool, is_exact: bool) -> PolicyFinding:
        forbidden, rule, pattern = None, None, None
        if self._rules.forbidding or self._rules.allowing:
            spellings = list_spellings(command)
            forbidden = self._rules.find_forbidding(command, spellings)
            if forbidden is not None and forbidden.outcome == "deny":
                return forbidden
            rule, pattern = self._rules.find_allowing(command, spellings)
        if command.argv and command.argv[-1] is UNKNOWN_ARGUMENTS:
            search = find_search_of_listed(command, self._parsed)
            if search is not None and self._paths.has_no_options():
                outside = self._paths.find_symlink_out(command)
                return outside or self.evaluate(describe_command(search), is_covered, is_exact)
        is_exact = is_exact or (pattern is not None and pattern.is_exact_match(command.argv))
        findings: list[PolicyFinding] = []
        for c in command.inner:
            is_named = pattern is not None and pattern.names_inner(command, c)
            findings.append(self.evaluate(c, is_covered or is_exact or is_named, is_exact))
        inner = tuple(findings)
        unknown = [word for word in command.argv[1:] if word.text is None]
        listed = [w for w in unknown if is_listed_name(w, command, self._parsed)] if unknown else []
        findings += self._paths.evaluate(command, is_exact, listed)
        denied, asked = forbidden, None
        for finding in findings:
            if finding.outcome == "deny":
                denied = finding
                break
            is_firmer = asked is None or _must_ask(finding) > _must_ask(asked)
            if finding.outcome == "ask" and is_firmer:  # the firmest comes first
                asked = finding
        if denied is not None:
            return _wrap_finding(command, denied, inner)
        is_removal = bool(command.effects.removed_name) and self._context.may_remove
        if is_removal and not (asked and _must_ask(asked)) and self._paths.may_remove(command):
            return PolicyFinding(command.source, "allow", _EDITS_ACCEPTED, inner=inner)
        doubt = self._find_doubt(command, pattern, is_exact, listed)
        if not doubt and not is_exact and (pattern is not None or is_covered):
            doubt = self._check_overrides(command, pattern)
        if asked is not None and (not doubt or _must_ask(asked)):
            return _wrap_finding(command, asked, inner)
        if doubt:
            return PolicyFinding(command.source, "ask", doubt, inner=inner)
        return self._evaluate_coverage(command, rule, inner, is_covered)

    def _evaluate_coverage(
        self,
        command: SimpleCommand,
        rule: Rule | None,
        inner: tuple[PolicyFinding, ...],
        is_covered: bool,
    ) -> PolicyFinding:
        """Whether the command is harmless or covered by a rule, if nothing else forbids it."""
        reason = _find_harmless_reason(command)
        if reason:
            is_read_only = all(f.is_read_only for f in inner) and not _writes_by_redirect(command)
            return PolicyFinding(command.source, "allow", reason, "", is_read_only, inner)
        if rule is not None:
            reason = f"rule {rule.text}"
            return PolicyFinding(command.source, "allow", reason, rule.text, inner=inner)
        if is_covered:
            reason = "the rule for the command around it names it"
            return PolicyFinding(command.source, "allow", reason, inner=inner)
        if self._context.accept_edits and is_edit(command) and self._paths.has_copies(command):
            return PolicyFinding(command.source, "allow", _EDITS_ACCEPTED)
        return PolicyFinding(command.source, "ask", "no rule allows it", inner=inner)

    def _find_doubt(
        self,
        command: SimpleCommand,
        pattern: CommandPattern | None,
        is_exact: bool,
        listed: Sequence[Word],
    ) -> str:
        """Why no rule can cover the command, or why the matching rule does not; "" if it does."""
        if command.doubts and not is_exact:
            return command.doubts[0]
        program = command.argv[0] if command.argv else None
        if program is not None and program.text is None:
            return "the program is known only when the command runs"
        if program is not None and program.is_glob and program.text not in ("[", "[["):
            return "the name of the command is a pattern"
        return (
            (check_assignments(command, pattern) if command.assignments else "")
            or self._check_arguments(command, listed)
            or ("" if is_exact else self._check_effects(command, pattern))
        )

    def _check_arguments(self, command: SimpleCommand, listed: Sequence[Word]) -> str:
        for word in command.argv[1:]:
            is_known = word.text is not None or word.is_process_substitution
            is_listed = word in listed and (
                is_found_name(word, command, self._parsed) or self._paths.has_no_options()
            )
            if not is_known and not is_listed and not self._is_harmless(word, command.effects):
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
        is_known = known.issuperset(word.variable_names)
        return effects.is_print_only and word.is_plain_data and is_known

    def _check_effects(self, command: SimpleCommand, pattern: CommandPattern | None) -> str:
        effects = command.effects
        if effects.doubts:
            return effects.doubts[0]
        if pattern is not None and pattern.has_program_name:
            return ""
        if effects.has_inline_code:
            return describe_inline_code(command)
        forbidden = self._rules.forbidden_programs
        return find_mentioned_program(command, forbidden) if pattern and forbidden else ""

    def _check_overrides(self, command: SimpleCommand, pattern: CommandPattern | None) -> str:
        """Why a prefix rule does not cover words after its own ones; "" if it does."""
        if command.effects.is_read_only or (pattern is not None and not pattern.words):
            return ""
        is_plain = pattern is not None and not pattern.regex
        named = command.argv[: len(pattern.words)] if is_plain and pattern is not None else ()
        if len(named) == len(command.argv):
            return ""  # the rule names every word
        name = command.program or ""
        words = drop_script_words(name, command.argv[1:])
        rest = [word for word in words if not any(word is n for n in named)]
        found = find_overrides(name, words)
        # Options of a script are for a script, which the rule names.
        is_unknown = command.effects.is_opaque and not (is_interpreter(name) or "/" in name)
        for word in rest:
            if any(word is override for override in found.words):
                reason = "run other code, and the rule does not name it"
                return f"{word.source} can make {name} {reason}"
            if len(named) > 1 and any(word is target for target in found.targets):
                return f"{word.source} is for another target or project than the rule names"
            if len(named) > 1 and is_unknown and any(word is other for other in found.unknown):
                return f"{word.source} is not known as a harmless option of {name}"
        if is_interpreter(name) and len(named) < 2:
            return ""  # the rule allows any script
        outside = self._paths.find_outside(command, rest)
        return f"{outside} is outside the folder, and the rule does not name it" if outside else ""


def stays_sandboxed(call: PolicyCall) -> bool:
    """Whether a command runs inside the sandbox, also if it gets what it asks for."""
    return call.is_sandboxed and call.access.sandbox != "off"


def _must_ask(finding: PolicyFinding) -> bool:
    """Whether no mode may turn it into an allow."""
    is_firm = finding.kind in ("protected_removal", "changed_definition")
    return finding.outcome == "ask" and (bool(finding.rule) or is_firm)


def _rule_by(finding: PolicyFinding) -> PolicyRuling:
    return PolicyRuling(finding.outcome, finding.reason, (finding,), _must_ask(finding))


def _combine(findings: Sequence[PolicyFinding], *, is_static: bool = True) -> PolicyRuling:
    """Deny over ask over allow; the reason is the first with the gravest outcome."""
    gravest = findings[0]
    for finding in findings:
        if _SEVERITY[finding.outcome] > _SEVERITY[gravest.outcome]:
            gravest = finding
    subject = gravest.subject
    if len(subject) > 80 or not subject.isascii() or not subject.isprintable():
        # Safe to show: one short line without escapes or invisible characters.
        line = escape_invisible(subject)
        subject = line if len(line) <= 80 else line[:60] + " … " + line[-16:]
    must_ask = gravest.outcome != "allow" and any(map(_must_ask, findings))
    reason = f"{subject}: {gravest.reason}"
    return PolicyRuling(gravest.outcome, reason, tuple(findings), must_ask, is_static)


def _add_sandbox_request(ruling: PolicyRuling, request: PolicyFinding) -> PolicyRuling:
    """The ruling on a call that asks for more than the sandbox gives: a rule allows it, or the
    user is asked, in every mode but bypass."""
    # The request comes first: it is what the user has to know.
    whole = _combine([request, *ruling.findings], is_static=ruling.is_static)
    return replace(whole, must_ask=whole.must_ask or ruling.must_ask or request.outcome == "ask")


def _is_static(commands: Sequence[SimpleCommand]) -> bool:
    """Whether every program is known."""
    for command in commands:
        is_unnamed = bool(command.argv) and command.argv[0].text is None
        if command.doubts or is_unnamed or (command.inner and not _is_static(command.inner)):
            return False
    return True


def _find_harmless_reason(command: SimpleCommand) -> str:
    """Why a command needs no rule; "" if it needs one."""
    if not command.argv:
        return "only data"
    if command.inner and command.wrapper_kind == "transparent":
        return "the command inside it is allowed"
    if command.effects.is_read_only:
        return "writes only its output" if _writes_by_redirect(command) else "only reads"
    name = command.program
    if name in ("cd", "pushd") or (name == "popd" and len(command.argv) == 1):
        return "only changes the folder"
    return ""


def _writes_by_redirect(command: SimpleCommand) -> bool:
    return any(
        r.effect in ("write", "both") and (r.target is None or r.target.text != NULL_DEVICE)
        for r in command.redirects
    )


def _wrap_finding(
    command: SimpleCommand, finding: PolicyFinding, inner: tuple[PolicyFinding, ...]
) -> PolicyFinding:
    reason, kind = finding.reason, finding.kind
    if finding.subject != command.source:
        reason = f"{finding.subject}: {reason}"
    return PolicyFinding(command.source, finding.outcome, reason, finding.rule, False, inner, kind)
