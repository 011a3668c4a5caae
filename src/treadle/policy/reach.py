"""Where a command reaches: the files that it reads and writes, and the folder it runs in.

Turns the words of a part into paths, as the shell would expand them now, and has each judged. The
judge of commands stands above, the judge of files below.
"""

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from os.path import normpath

from msgspec.structs import replace

from treadle.policy.files import Access, FileJudge
from treadle.policy.paths import NAMES_LIMIT, inside
from treadle.policy.shell.effects import Effects
from treadle.policy.shell.facts import Part, Word
from treadle.policy.shell.git import git_line
from treadle.policy.shell.wrappers import program_name
from treadle.policy.verdict import Finding


class Reach:
    """Judges the paths of the parts of one line."""

    def __init__(
        self, files: FileJudge, cwd: str, spells_out: Callable[[Sequence[Word]], bool]
    ) -> None:
        self.files = files
        self.roots = files.situation.roots
        self.cwd = cwd
        self.spells_out = spells_out

    def findings(self, part: Part, effects: Effects, named: bool) -> Iterable[Finding]:
        """What the rules for files say of each path. `named`: a rule spells the command out."""
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
                if effects.follows and not named:
                    yield from self._followed(part, word)
        if not named:
            yield from self._listed(part)
        yield from self._words(part, effects.writes, "write")
        for word in effects.makes:
            target = any(word is into for _, into in effects.copies)
            yield from self._own(part, word, whole=effects.recurses and not target)
        for source, into in effects.copies:
            yield from self._copied(part, source, into, effects.recurses)
        for word in effects.mentions:
            yield from self._mentioned(part, word, effects.plain)
            if effects.opaque and not named:
                yield from self._handled(part, word)
        name = program_name(part.argv[0]) if part.argv else None
        if effects.here and not part.piped:
            yield from self._each_cwd(
                part,
                lambda cwd: self.files.judge(".", "read", cwd, named=named, whole=effects.recurses),
            )
        if name == "git":
            folders = [w.text for w in git_line(part.argv[1:]).folders if w.text] or ["."]
            yield from self._each_cwd(part, lambda cwd: self._repository(cwd, folders))
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
            if word.stream and access == "read":
                continue
            if word.text is None:
                yield Finding(word.source, "ask", "a path that is not static")
            elif word.text == "-" and access == "read":
                continue
            elif word.text.startswith("~") and word.tilde and word.text[1:2] not in ("", "/"):
                yield Finding(word.source, "ask", "a path that is not static")
            else:
                paths = self.expand(part, word)
                if paths is None:
                    yield Finding(word.source, "ask", "too many names to look at")
                for path in paths or ():
                    judge = partial(self.files.judge, path, access, named=named, whole=whole)
                    yield from self._each_cwd(part, judge, path)

    def _copied(self, part: Part, source: Word, into: Word, whole: bool) -> Iterable[Finding]:
        """A file that is put into a folder gets its own name there."""
        if into.text is None or source.text is None:
            return
        for path in self.expand(part, source) or ():
            name = path.rstrip("/").rpartition("/")[2]
            if name not in ("", ".", ".."):
                yield from self._own(part, replace(into, text=f"{into.text}/{name}"))
            if whole:
                yield from self._each_cwd(part, partial(self.files.judge_tree, path), path)

    def _followed(self, part: Part, word: Word) -> Iterable[Finding]:
        """The links in a folder, when they are followed."""
        for path in self.expand(part, word) or ():
            yield from self._each_cwd(part, partial(self.files.judge_links, path), path)

    def _listed(self, part: Part) -> Iterable[Finding]:
        """The shell itself reads the folders that a pattern is looked up in."""
        for word in (*part.argv, *part.patterns):
            head = _before_pattern(word.text or "") if word.glob else ""
            if head:
                yield from self._words(part, [replace(word, text=head, glob=False)], "read")

    def _mentioned(self, part: Part, word: Word, plain: bool) -> Iterable[Finding]:
        """A file that a rule forbids to read, given to a program that may read it; for one that
        needs no rule, any file that may not be read."""
        if not (plain or self.files.guards_reading):
            return
        for path in filter(None, values_in(word.text or "")):
            for finding in self._each_cwd(part, partial(self.files.judge, path, "read"), path):
                there = plain and self.files.exists(finding.subject.removeprefix("read "))
                if finding.outcome != "allow" and (finding.rule or there):
                    yield Finding(finding.subject, "ask", finding.reason, finding.rule)

    def _handled(self, part: Part, word: Word) -> Iterable[Finding]:
        """A protected file, given to a program that may do anything with it."""
        for path in filter(None, values_in(word.text or "")):
            judge = partial(self.files.judge_protected, path)
            yield from self._each_cwd(part, judge, path)

    def _own(self, part: Part, word: Word, whole: bool = False) -> Iterable[Finding]:
        """A file that the command is there to write: inside the workspace its own rule suffices."""
        for finding in self._words(part, [word], "write", whole=whole):
            path = finding.subject.removeprefix("write ")
            ordinary = finding.reason.startswith("no rule allows writing")
            if finding.outcome == "ask" and ordinary and inside(path, self.roots):
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
            for cwd in self._stands(moves):
                yield judge(cwd)

    def _stands(self, steps: Iterable[str]) -> Iterable[str]:
        """Where `cd` leads: by the names, as bash has it, and by the folders themselves."""
        real = named = self.cwd
        for step in steps:
            real = self.files.place(step, real).path
            named = step if step.startswith(("/", "~")) else normpath(f"{named}/{step}")
        return dict.fromkeys((real, self.files.place(named, self.cwd).path))

    def _standing(self, part: Part, cwd: str) -> Finding:
        """Whether a command may run where `cd` has led."""
        if inside(cwd, self.roots) or self._led_by_rule(part):
            return Finding(cwd, "allow", "inside the workspace", plain=True)
        return Finding(cwd, "ask", "it would run outside the workspace")

    def _led_by_rule(self, part: Part) -> bool:
        """Whether every `cd` that led here is spelled out by a rule."""
        steps = {step for moves in part.moves or () for step in moves}
        return bool(steps) and all(
            self.spells_out((Word("cd", "cd"), Word(step, step))) for step in steps
        )

    def _repository(self, cwd: str, folders: Iterable[str]) -> Finding:
        """git takes a folder that looks like a bare repository for one, and its config runs."""
        for folder in folders:
            cwd = self.files.place(folder, cwd).path
        here = cwd
        while inside(here, self.roots):
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

    def expand(self, part: Part, word: Word) -> list[str] | None:
        """The names that a pattern stands for now; the pattern itself if there are none.
        None: too many to look at.
        """
        text = word.text or ""
        if text.startswith("~") and not word.tilde:
            text = "./" + text
        if not word.glob or part.moves is None:
            return [text]
        found: list[str] = []
        for cwd in dict.fromkeys(cwd for moves in part.moves for cwd in self._stands(moves)):
            names = self._glob(text, cwd)
            if names is None:
                return None
            found += names
        return found or [text]

    def _glob(self, pattern: str, cwd: str) -> list[str] | None:
        heads = ["/" if pattern.startswith("/") else ""]
        for segment in pattern.strip("/").split("/"):
            following: list[str] = []
            for head in heads:
                if not any(c in segment for c in "*?["):
                    following.append(f"{head}{segment}/")
                    continue
                names = self.files.view.names(self.files.place(head or ".", cwd).path)
                if names is None:
                    return None
                if segment.startswith("."):
                    names = [".", "..", *names]  # as bash has it before 5.2
                for name in names:
                    hidden = name.startswith(".") and not segment.startswith(".")
                    if not hidden and fnmatch.fnmatchcase(name, segment):
                        following.append(f"{head}{name}/")
            if len(following) > NAMES_LIMIT:
                return None
            heads = following
        return [h.rstrip("/") for h in heads]


def _before_pattern(text: str) -> str:
    """The folder in which a pattern is looked up, if it names one."""
    head = re.split(r"[*?\[]", text, maxsplit=1)[0]
    return head[: head.rfind("/") + 1]


def values_in(text: str) -> tuple[str, ...]:
    """What of an argument may be a value: all of it, and what stands after `-x`, `=`, `@`, `:`."""
    glued = text[2:] if text[:1] == "-" and text[1:2] != "-" else ""
    return (text, glued, *(text.partition(mark)[2] for mark in "=@:"))
