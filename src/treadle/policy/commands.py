"""Whether a command line may run: every part covered, no part denied.

Puts together what the line does (`shell/`), what the rules say, and where its paths lead. The judge
of calls stands above.
"""

import re
from collections.abc import Iterable, Sequence

from treadle.policy.files import FileJudge, Situation
from treadle.policy.forms import Forms, Texts, forms_of
from treadle.policy.listed import listed
from treadle.policy.paths import inside
from treadle.policy.reach import Reach, values_in
from treadle.policy.rules import CommandPattern, Rule
from treadle.policy.shell.effects import Effects
from treadle.policy.shell.facts import Assignment, CommandFacts, Part, Word
from treadle.policy.shell.programs import effects_of
from treadle.policy.shell.tree import TOO_LONG, read_command
from treadle.policy.shell.wrappers import NESTED, program_name
from treadle.policy.verdict import Finding

_SAFE_VARIABLES = listed(
    "LANG LANGUAGE TZ NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE TERM COLORTERM COLUMNS "
    "LINES CI PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED NODE_ENV RUST_BACKTRACE "
    "RUST_LOG GOOS GOARCH GOARM CGO_ENABLED DEBUG VERBOSE LOG_LEVEL PORT DEBIAN_FRONTEND "
    "SOURCE_DATE_EPOCH"
)
_HARMLESS_VALUES = listed(
    "HOME PWD OLDPWD USER LOGNAME SHELL LANG TERM HOSTNAME UID EUID RANDOM SECONDS LINENO "
    "BASH_VERSION OSTYPE PATH TMPDIR"
)
_OWN_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_PLAIN_WRITERS = frozenset({"mkdir", "touch", "cp", "mv", "tee", "sed"})
_MOST_ENDINGS = 200
_MOST_CHARS = 200_000
_NAME_IN_TEXT = re.compile(r"[\w.+-]+")
_PLAIN_VALUE = re.compile(r"[^/\\]*")
_TIME_ZONE = re.compile(r"\w+(?:/[\w+-]+)+")
# Carriage returns are bad enough to ask, not to refuse: files from elsewhere have them.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
# Blanks that bash does not split at, and marks that are not seen or turn the text around.
_HIDDEN = re.compile(
    r"[\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


class CommandJudge:
    """Judges command lines in one situation."""

    def __init__(self, situation: Situation, files: FileJudge) -> None:
        self.situation = situation
        self.files = files
        rules = situation.rules
        self._allow = _patterns(rules.allow)
        self._ask = _patterns(rules.ask)
        self._deny = _patterns(rules.deny)
        self.forbidden_names = frozenset(
            pattern.words[0] for _, pattern in (*self._deny, *self._ask) if pattern.words
        )

    def judge(self, text: str, cwd: str) -> tuple[tuple[Finding, ...], CommandFacts | None]:
        """The findings on a command line, one for each part and one for each doubt."""
        malformed = _malformed(text)
        if malformed:
            return (Finding(text, "deny", malformed),), None
        facts = read_command(text)
        findings: list[Finding] = []
        for part in facts.guesses:
            forbidden = self._forbidden_anywhere(part)
            if forbidden is not None:
                findings.append(forbidden)
        judge = _PartJudge(self, facts, cwd)
        findings += [judge.judge(part) for part in facts.parts]
        findings += [Finding(text, "ask", doubt) for doubt in facts.doubts]
        if _HIDDEN.search(text) or "\r" in text:
            findings.append(Finding(text, "ask", "characters that are not seen as they are"))
        if not inside(self.files.place(cwd, cwd).path, self.situation.roots):
            findings.append(Finding(cwd, "ask", "the working directory is outside the workspace"))
        if not findings:
            findings.append(Finding(text, "allow", "does nothing", plain=True))
        return tuple(findings), facts

    def forbidden(self, part: Part, forms: Forms) -> Finding | None:
        """What the deny and ask lists say of a part by its words."""
        if {NESTED, TOO_LONG} & {*part.doubts}:
            # However deep it is: what it comes to stands at the end of its words.
            forms = Forms(forms.strict, (*forms.wide, *_endings(part.argv)))
        for rule, pattern in self._deny:
            if pattern.blanket or pattern.forbids(forms):
                return Finding(part.source, "deny", f"rule {rule.text}", rule.text)
        for rule, pattern in self._ask:
            if pattern.blanket or pattern.forbids(forms):
                return Finding(part.source, "ask", f"rule {rule.text}", rule.text)
        return None

    def _forbidden_anywhere(self, part: Part) -> Finding | None:
        found = self.forbidden(part, forms_of(part.argv))
        for inner in part.inner:
            found = found if found is not None else self._forbidden_anywhere(inner)
        return found

    def spells_out(self, words: Sequence[Word]) -> bool:
        """Whether an allow rule spells out the whole of a command."""
        return any(pattern.spells_out(words) for _, pattern in self._allow)

    def allowed_by(self, part: Part, forms: Forms) -> tuple[Rule, CommandPattern] | None:
        """The most specific allow rule that covers the part's words."""
        found = [
            (rule, pattern)
            for rule, pattern in self._allow
            if (pattern.blanket or pattern.allows(forms)) and _assigned(pattern, part.assignments)
        ]
        return max(found, key=lambda f: (f[1].spells_out(part.argv), len(f[1].words)), default=None)


class _PartJudge:
    """Judges the parts of one line."""

    def __init__(self, above: CommandJudge, facts: CommandFacts, cwd: str) -> None:
        self.above = above
        self.facts = facts
        self.reach = Reach(above.files, cwd, above.spells_out)

    def judge(self, part: Part, reached: bool = False, spelled: bool = False) -> Finding:
        """`reached`: the rule for the wrapper around it names this program already.
        `spelled`: a rule spells out the whole of the command that it is in.
        """
        forms = forms_of(part.argv)
        forbidden = self.above.forbidden(part, forms)
        if forbidden is not None and forbidden.outcome == "deny":
            return forbidden
        found = self.above.allowed_by(part, forms) if part.argv else None
        rule, pattern = found if found is not None else (None, None)
        named = spelled or (pattern is not None and pattern.spells_out(part.argv))
        effects = effects_of(part)
        inner = tuple(
            self.judge(p, reached or named or _reaches(pattern, part, forms, p), named)
            for p in part.inner
        )
        paths = list(self.reach.findings(part, effects, named))
        trouble = self._trouble(part, effects, pattern, named)
        gravest = [*inner, *paths]
        if forbidden is not None:
            gravest.append(forbidden)
        for outcome in ("deny", "ask"):
            for finding in gravest:
                if finding.outcome == outcome and (outcome == "deny" or finding is forbidden):
                    return _from(part, finding, inner)
        if trouble:
            return Finding(part.source, "ask", trouble, inner=inner)
        for finding in gravest:
            if finding.outcome == "ask":
                return _from(part, finding, inner)
        return self._covered(part, effects, rule, inner, reached)

    def _covered(
        self, part: Part, effects: Effects, rule: Rule | None, inner: tuple[Finding, ...],
        reached: bool,
    ) -> Finding:  # fmt: skip
        plain = all(f.plain for f in inner) and not any(
            r.effect in ("write", "both") and (r.target is None or r.target.text != "/dev/null")
            for r in part.redirects
        )
        if not part.argv:
            return Finding(part.source, "allow", "only data", plain=plain)
        if inner and part.wrapping == "transparent":
            return Finding(part.source, "allow", "what it runs is allowed", "", plain, inner)
        if effects.plain:
            return Finding(part.source, "allow", "only reads", "", plain, inner)
        name = program_name(part.argv[0])
        if name in ("cd", "pushd") or (name == "popd" and len(part.argv) == 1):
            return Finding(part.source, "allow", "only moves", "", plain)
        if rule is not None:
            return Finding(part.source, "allow", f"rule {rule.text}", rule.text, False, inner)
        if reached:
            return Finding(part.source, "allow", "named by the rule around it", inner=inner)
        if self.above.situation.edits_granted and name in _PLAIN_WRITERS:
            return Finding(part.source, "allow", "edits inside the workspace are accepted")
        return Finding(part.source, "ask", "no rule allows it", inner=inner)

    # ---------------------------------------------------------------- what stands in the way

    def _trouble(
        self, part: Part, effects: Effects, pattern: CommandPattern | None, named: bool
    ) -> str:
        if part.doubts and not named:
            return part.doubts[0]
        if part.argv and part.argv[0].text is None:
            return "the name of the command is not static"
        if part.argv and part.argv[0].glob and part.argv[0].text not in ("[", "[["):
            return "the name of the command is a pattern"
        assigned = pattern.assignments if pattern is not None else ()
        for assignment in part.assignments:
            if not self._assignable(part, assignment, assigned):
                return f"{assignment.name} may change what programs run"
        for word in part.argv[1:]:
            if word.text is None and not (word.stream or self._harmless(word, effects)):
                return f"{word.source} is not static"
            if word.glob:
                found = self.reach.expand(part, word)
                if found is None:
                    return f"{word.source} finds too many names to look at"
                if any(name.startswith("-") for name in found):
                    return f"{word.source} finds a file whose name is an option"
        if named:
            return ""
        if effects.doubts:
            return effects.doubts[0]
        if pattern is None or pattern.names_program:
            return "code given on the line" if effects.inline and pattern is None else ""
        if effects.inline:
            return "code given on the line"
        return self._may_run_forbidden(part, effects)

    def _may_run_forbidden(self, part: Part, effects: Effects) -> str:
        """A program that nothing is known of may run what is named among its arguments."""
        if effects != Effects(mentions=effects.mentions, opaque=effects.opaque):
            return ""
        for word in part.argv[1:]:
            for text in values_in(word.text or ""):
                named = self.above.forbidden_names.intersection(_NAME_IN_TEXT.findall(text))
                if named:
                    return f"it may run {min(named)}, which a rule is about"
        return ""

    def _assignable(self, part: Part, assignment: Assignment, named: Sequence[str]) -> bool:
        name, value = assignment.name, assignment.value
        if f"{name}={value.text}" in named:
            return True
        if value.text is None and not value.data:
            return False
        if name in _SAFE_VARIABLES or name.startswith("LC_"):
            # Locales, terminals and zones are looked up as files below a folder of the system's.
            zone = name == "TZ" and _TIME_ZONE.fullmatch(value.text or "")
            return bool(zone) or bool(_PLAIN_VALUE.fullmatch(value.text or ""))
        alone = not part.argv and bool(_OWN_VARIABLE.fullmatch(name))
        return alone and not name.endswith("_proxy")

    def _harmless(self, word: Word, effects: Effects) -> bool:
        """Whether a word that is not static can do no harm where it stands."""
        known = all(n in self.facts.assigned or n in _HARMLESS_VALUES for n in word.names)
        return effects.data and word.data and known


def _endings(argv: Sequence[Word]) -> Iterable[Texts]:
    texts = tuple((word.text or "").rpartition("/")[2] for word in argv[-_MOST_ENDINGS:])
    return (texts[at:] for at in range(len(texts)))


def _patterns(rules: Iterable[Rule]) -> tuple[tuple[Rule, CommandPattern], ...]:
    return tuple((r, c) for r in rules if (c := r.command) is not None)


def _assigned(pattern: CommandPattern, assignments: Sequence[Assignment]) -> bool:
    given = {f"{a.name}={a.value.text}" for a in assignments}
    return set(pattern.assignments) <= given


def _reaches(pattern: CommandPattern | None, outer: Part, forms: Forms, inner: Part) -> bool:
    """Whether the rule for a wrapper names the program inside it as well."""
    if pattern is None or pattern.wild or not inner.argv:
        return False
    for at, word in enumerate(outer.argv):
        if word is inner.argv[0]:
            return len(pattern.words) > at and pattern.allows(forms)
    return False


def _from(part: Part, finding: Finding, inner: tuple[Finding, ...]) -> Finding:
    reason = finding.reason
    if finding.subject != part.source:
        reason = f"{finding.subject}: {reason}"
    return Finding(part.source, finding.outcome, reason, finding.rule, inner=inner)


def _malformed(text: str) -> str:
    if len(text) > _MOST_CHARS:
        return f"a command of {len(text):,} characters; write a script, and run that"
    if "\0" in text:
        return "a NUL in the command"
    return "control characters in the command" if _CONTROL.search(text) else ""
