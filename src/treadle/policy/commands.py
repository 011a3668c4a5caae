"""Whether a command line may run: every part covered, no part denied.

Puts together what the line does (`shell/`), what the rules say, and where its paths lead. The judge
of calls stands above.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from treadle.policy.files import Access, FileJudge, Situation
from treadle.policy.listed import listed
from treadle.policy.paths import inside
from treadle.policy.rules import CommandPattern, Forms, Rule, forms_of
from treadle.policy.shell.effects import Effects
from treadle.policy.shell.facts import Assignment, CommandFacts, Part, Word
from treadle.policy.shell.programs import effects_of
from treadle.policy.shell.tree import read_command
from treadle.policy.shell.wrappers import program_name
from treadle.policy.verdict import Finding

_SAFE_VARIABLES = listed(
    "LANG LANGUAGE TZ NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE TERM COLORTERM COLUMNS "
    "LINES CI PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED PYTHONHASHSEED NODE_ENV RUST_BACKTRACE "
    "RUST_LOG GOOS GOARCH DEBIAN_FRONTEND SOURCE_DATE_EPOCH"
)
_HARMLESS_VALUES = listed(
    "HOME PWD OLDPWD USER LOGNAME SHELL LANG TERM HOSTNAME UID EUID RANDOM SECONDS LINENO "
    "BASH_VERSION OSTYPE PATH TMPDIR"
)
_OWN_VARIABLE = re.compile(r"[a-z_][a-z0-9_]*")
_PLAIN_WRITERS = frozenset({"mkdir", "touch", "cp", "mv", "tee", "sed"})
_GLOB_LIMIT = 500
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
        if not part.argv:
            return None
        for rule, pattern in self._deny:
            if pattern.forbids(forms):
                return Finding(part.source, "deny", f"rule {rule.text}", rule.text)
        for rule, pattern in self._ask:
            if pattern.forbids(forms):
                return Finding(part.source, "ask", f"rule {rule.text}", rule.text)
        return None

    def _forbidden_anywhere(self, part: Part) -> Finding | None:
        found = self.forbidden(part, forms_of(part.argv))
        for inner in part.inner:
            found = found if found is not None else self._forbidden_anywhere(inner)
        return found

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
        self.files = above.files
        self.facts = facts
        self.cwd = cwd

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
        paths = list(self._paths(part, effects, named))
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
        if name in ("cd", "pushd"):
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
            if word.text is None and not self._harmless(word, effects):
                return f"{word.source} is not static"
            if word.glob and any(name.startswith("-") for name in self._expand(part, word)):
                return f"{word.source} finds a file whose name is an option"
        if named:
            return ""
        if effects.doubts:
            return effects.doubts[0]
        if pattern is None or not pattern.blanket:
            return "code given on the line" if effects.inline and pattern is None else ""
        if effects.inline:
            return "code given on the line"
        return self._may_run_forbidden(part, effects)

    def _may_run_forbidden(self, part: Part, effects: Effects) -> str:
        """A program that nothing is known of may run what is named among its arguments."""
        if effects != Effects():
            return ""
        for word in part.argv[1:]:
            base = (word.text or "").rpartition("/")[2]
            if base in self.above.forbidden_names:
                return f"it may run {base}, which a rule is about"
        return ""

    def _assignable(self, part: Part, assignment: Assignment, named: Sequence[str]) -> bool:
        name, value = assignment.name, assignment.value
        if f"{name}={value.text}" in named:
            return True
        if value.text is None and not value.data:
            return False
        if name in _SAFE_VARIABLES or name.startswith("LC_"):
            return True
        alone = not part.argv and bool(_OWN_VARIABLE.fullmatch(name))
        return alone and not name.endswith("_proxy")

    def _harmless(self, word: Word, effects: Effects) -> bool:
        """Whether a word that is not static can do no harm where it stands."""
        known = all(n in self.facts.assigned or n in _HARMLESS_VALUES for n in word.names)
        return effects.data and word.data and known

    # ---------------------------------------------------------------- paths

    def _paths(self, part: Part, effects: Effects, named: bool) -> Iterable[Finding]:
        for redirect in part.redirects:
            if redirect.effect in ("copy", "data") or redirect.target is None:
                continue
            if redirect.effect in ("read", "both"):
                yield from self._words(part, [redirect.target], "read")
            if redirect.effect in ("write", "both"):
                yield from self._words(part, [redirect.target], "write")
        for word in effects.reads:
            if word.text is not None or not effects.data:
                yield from self._words(part, [word], "read", named, effects.recurses)
        yield from self._words(part, effects.writes, "write")
        for word in effects.makes:
            yield from self._own(part, word)
        name = program_name(part.argv[0]) if part.argv else None
        if effects.here and not part.piped:
            yield from self._each_cwd(
                part,
                lambda cwd: self.files.judge(".", "read", cwd, named=named, whole=effects.recurses),
            )
        if name == "git":
            folders = [w.text for w in effects.reads if w.text] or ["."]
            yield from self._each_cwd(part, lambda cwd: self._repository(self._walk(cwd, folders)))
        if name in ("cd", "pushd") and not named:
            yield from self._words(
                part, [w for w in part.argv[1:] if (w.text or "")[:1] != "-"], "read"
            )
            if len(part.argv) == 1:
                yield self.files.judge("~", "read", self.cwd)
        elif part.argv and part.moves != ((),):
            yield from self._each_cwd(part, lambda cwd: self._standing(part, cwd))

    def _words(
        self, part: Part, words: Sequence[Word], access: Access, named: bool = False,
        whole: bool = False,
    ) -> Iterable[Finding]:  # fmt: skip
        for word in words:
            if word.text is None:
                yield Finding(word.source, "ask", "a path that is not static")
            elif word.text == "-" and access == "read":
                continue
            elif word.text.startswith("~") and word.tilde and word.text[1:2] not in ("", "/"):
                yield Finding(word.source, "ask", "a path that is not static")
            else:
                for path in self._expand(part, word):
                    judge = partial(self.files.judge, path, access, named=named, whole=whole)
                    yield from self._each_cwd(part, judge, path)

    def _own(self, part: Part, word: Word) -> Iterable[Finding]:
        """A file that the command is there to write: inside the workspace its own rule suffices."""
        for finding in self._words(part, [word], "write"):
            path = finding.subject.removeprefix("write ")
            ordinary = finding.reason.startswith("no rule allows writing")
            if finding.outcome == "ask" and ordinary and inside(path, self.above.situation.roots):
                yield Finding(finding.subject, "allow", "inside the workspace")
            else:
                yield finding

    def _each_cwd(
        self, part: Part, judge: Callable[[str], Finding], path: str = ""
    ) -> Iterable[Finding]:
        if path.startswith(("/", "~")):
            yield judge(self.cwd)
            return
        if part.moves is None:
            yield Finding(path or part.source, "ask", "where it would run is not known")
            return
        for moves in part.moves:
            yield judge(self._walk(self.cwd, moves))

    def _walk(self, cwd: str, steps: Iterable[str]) -> str:
        for step in steps:
            cwd = self.files.place(step, cwd).path
        return cwd

    def _standing(self, part: Part, cwd: str) -> Finding:
        """Whether a command may run where `cd` has led."""
        if inside(cwd, self.above.situation.roots) or self._led_by_rule(part):
            return Finding(cwd, "allow", "inside the workspace", plain=True)
        return Finding(cwd, "ask", "it would run outside the workspace")

    def _led_by_rule(self, part: Part) -> bool:
        """Whether every `cd` that led here is spelled out by a rule."""
        steps = {step for moves in part.moves or () for step in moves}
        for step in steps:
            there = (Word("cd", "cd"), Word(step, step))
            if not any(p.spells_out(there) for _, p in self.above._allow):
                return False
        return bool(steps)

    def _repository(self, cwd: str) -> Finding:
        """git takes a folder that looks like a bare repository for one, and its config runs."""
        here = cwd
        while inside(here, self.above.situation.roots):
            if self.files.view.lstat(f"{here}/.git") is not None:
                break
            head = self.files.view.lstat(f"{here}/HEAD")
            if head is not None and self.files.view.lstat(f"{here}/objects") is not None:
                return Finding(
                    here, "ask", "a bare repository, whose configuration can run programs"
                )
            here = here.rpartition("/")[0] or "/"
            if here == "/":
                break
        return Finding(cwd, "allow", "an ordinary repository", plain=True)

    def _expand(self, part: Part, word: Word) -> list[str]:
        """The names that a pattern stands for now; the pattern itself if there are none."""
        text = word.text or ""
        if text.startswith("~") and not word.tilde:
            text = "./" + text
        if not word.glob or part.moves is None:
            return [text]
        found: list[str] = []
        for moves in part.moves:
            found += self._glob(text, self._walk(self.cwd, moves))
        return found[:_GLOB_LIMIT] or [text]

    def _glob(self, pattern: str, cwd: str) -> list[str]:
        heads = ["/" if pattern.startswith("/") else ""]
        for segment in pattern.strip("/").split("/"):
            following: list[str] = []
            for head in heads:
                if not any(c in segment for c in "*?["):
                    following.append(f"{head}{segment}/")
                    continue
                folder = self.files.place(head or ".", cwd).path
                for name in self.files.view.names(folder) or ():
                    hidden = name.startswith(".") and not segment.startswith(".")
                    if not hidden and fnmatch.fnmatchcase(name, segment):
                        following.append(f"{head}{name}/")
            heads = following[:_GLOB_LIMIT]
        return [h.rstrip("/") for h in heads]


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
    if "\0" in text:
        return "a NUL in the command"
    return "control characters in the command" if _CONTROL.search(text) else ""
