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

from treadle.policy.evaluation.file_evaluator import Access, FileEvaluator
from treadle.policy.evaluation.ruling import PolicyFinding
from treadle.policy.ruleset.paths import MAX_DIR_ENTRIES, is_inside
from treadle.policy.shell.analysis.effects import Effects
from treadle.policy.shell.analysis.git import parse_git_command
from treadle.policy.shell.ast import SimpleCommand, Word
from treadle.policy.shell.program_names import get_program_name


class PathAccess:
    """Judges the paths of the parts of one line."""

    def __init__(
        self, files: FileEvaluator, cwd: str, is_exact_match: Callable[[Sequence[Word]], bool]
    ) -> None:
        self.files = files
        self.roots = files.context.roots
        self.cwd = cwd
        self.is_exact_match = is_exact_match

    def evaluate(
        self, command: SimpleCommand, effects: Effects, is_exact: bool
    ) -> Iterable[PolicyFinding]:
        """What the rules for files say of each path. `named`: a rule spells the command out."""
        for redirect in command.redirects:
            if redirect.effect in ("copy", "data") or redirect.target is None:
                continue
            if redirect.effect in ("read", "both"):
                yield from self._evaluate_words(command, [redirect.target], "read")
            if redirect.effect in ("write", "both"):
                yield from self._evaluate_words(command, [redirect.target], "write")
        for word in effects.reads:
            if word.text is not None or not effects.is_print_only:
                yield from self._evaluate_words(
                    command, [word], "read", is_exact, effects.is_recursive
                )
                if effects.follows_symlinks and not is_exact:
                    yield from self._evaluate_symlinks(command, word)
        if not is_exact:
            yield from self._evaluate_globs(command)
        yield from self._evaluate_words(command, effects.writes, "write")
        for word in effects.primary_writes:
            target = any(word is into for _, into in effects.copies)
            yield from self._evaluate_primary_write(
                command, word, is_recursive=effects.is_recursive and not target
            )
        for source, into in effects.copies:
            yield from self._evaluate_copy(command, source, into, effects.is_recursive)
        for word in effects.mentions:
            yield from self._evaluate_mention(command, word, effects.is_read_only)
            if effects.is_opaque and not is_exact:
                yield from self._evaluate_protected(command, word)
        name = get_program_name(command.argv[0]) if command.argv else None
        if effects.reads_cwd and not command.is_piped:
            yield from self._evaluate_in_each_cwd(
                command,
                lambda cwd: self.files.evaluate(
                    ".", "read", cwd, is_exact=is_exact, is_recursive=effects.is_recursive
                ),
            )
        if name == "git":
            folders = [w.text for w in parse_git_command(command.argv[1:]).folders if w.text] or [
                "."
            ]
            yield from self._evaluate_in_each_cwd(
                command, lambda cwd: self._evaluate_repository(cwd, folders)
            )
        if name in ("cd", "pushd") and not is_exact:
            yield from self._evaluate_words(
                command, [w for w in command.argv[1:] if (w.text or "")[:1] != "-"], "read"
            )
            if len(command.argv) == 1:
                yield self.files.evaluate("~", "read", self.cwd)
        elif command.argv and command.cd_paths != ((),):
            yield from self._evaluate_in_each_cwd(
                command, lambda cwd: self._evaluate_cwd(command, cwd)
            )

    def _evaluate_words(
        self, command: SimpleCommand, words: Sequence[Word], access: Access, is_exact: bool = False,
        is_recursive: bool = False,
    ) -> Iterable[PolicyFinding]:  # fmt: skip
        for word in words:
            if word.is_process_substitution and access == "read":
                continue
            if word.text is None:
                yield PolicyFinding(word.source, "ask", "a path that is not static")
            elif word.text == "-" and access == "read":
                continue
            elif word.text.startswith("~") and word.has_tilde and word.text[1:2] not in ("", "/"):
                yield PolicyFinding(word.source, "ask", "a path that is not static")
            else:
                paths = self.expand_glob(command, word)
                if paths is None:
                    yield PolicyFinding(word.source, "ask", "too many names to look at")
                for path in paths or ():
                    judge = partial(
                        self.files.evaluate,
                        path,
                        access,
                        is_exact=is_exact,
                        is_recursive=is_recursive,
                    )
                    yield from self._evaluate_in_each_cwd(command, judge, path)

    def _evaluate_copy(
        self, command: SimpleCommand, source: Word, target: Word, is_recursive: bool
    ) -> Iterable[PolicyFinding]:
        """A file that is put into a folder gets its own name there."""
        if target.text is None or source.text is None:
            return
        for path in self.expand_glob(command, source) or ():
            name = path.rstrip("/").rpartition("/")[2]
            if name not in ("", ".", ".."):
                yield from self._evaluate_primary_write(
                    command, replace(target, text=f"{target.text}/{name}")
                )
            if is_recursive:
                yield from self._evaluate_in_each_cwd(
                    command, partial(self.files.evaluate_copy, path), path
                )

    def _evaluate_symlinks(self, command: SimpleCommand, word: Word) -> Iterable[PolicyFinding]:
        """The links in a folder, when they are followed."""
        for path in self.expand_glob(command, word) or ():
            yield from self._evaluate_in_each_cwd(
                command, partial(self.files.evaluate_symlinks, path), path
            )

    def _evaluate_globs(self, command: SimpleCommand) -> Iterable[PolicyFinding]:
        """The shell itself reads the folders that a pattern is looked up in."""
        for word in (*command.argv, *command.loop_globs):
            head = _find_glob_folder(word.text or "") if word.is_glob else ""
            if head:
                yield from self._evaluate_words(
                    command, [replace(word, text=head, is_glob=False)], "read"
                )

    def _evaluate_mention(
        self, command: SimpleCommand, word: Word, is_read_only: bool
    ) -> Iterable[PolicyFinding]:
        """A file that a rule forbids to read, given to a program that may read it; for one that
        needs no rule, any file that may not be read."""
        if not (is_read_only or self.files.has_read_rules):
            return
        for path in filter(None, list_values(word.text or "")):
            for finding in self._evaluate_in_each_cwd(
                command, partial(self.files.evaluate, path, "read"), path
            ):
                there = is_read_only and self.files.exists(finding.subject.removeprefix("read "))
                if finding.outcome != "allow" and (finding.rule or there):
                    yield PolicyFinding(finding.subject, "ask", finding.reason, finding.rule)

    def _evaluate_protected(self, command: SimpleCommand, word: Word) -> Iterable[PolicyFinding]:
        """A protected file, given to a program that may do anything with it."""
        for path in filter(None, list_values(word.text or "")):
            judge = partial(self.files.evaluate_protected, path)
            yield from self._evaluate_in_each_cwd(command, judge, path)

    def _evaluate_primary_write(
        self, command: SimpleCommand, word: Word, is_recursive: bool = False
    ) -> Iterable[PolicyFinding]:
        """A file that the command is there to write: inside the workspace its own rule suffices."""
        for finding in self._evaluate_words(command, [word], "write", is_recursive=is_recursive):
            path = finding.subject.removeprefix("write ")
            ordinary = finding.reason.startswith("no rule allows writing")
            if finding.outcome == "ask" and ordinary and is_inside(path, self.roots):
                yield PolicyFinding(finding.subject, "allow", "inside the workspace")
            else:
                yield finding

    def _evaluate_in_each_cwd(
        self, command: SimpleCommand, evaluate: Callable[[str], PolicyFinding], path: str = ""
    ) -> Iterable[PolicyFinding]:
        if path.startswith(("/", "~")):
            yield evaluate(self.cwd)
            return
        if command.cd_paths is None:
            yield PolicyFinding(path or command.source, "ask", "where it would run is not known")
            return
        for moves in command.cd_paths:
            for cwd in self._list_cwds(moves):
                yield evaluate(cwd)

    def _list_cwds(self, cd_path: Iterable[str]) -> Iterable[str]:
        """Where `cd` leads: by the names, as bash has it, and by the folders themselves."""
        real = named = self.cwd
        for step in cd_path:
            real = self.files.resolve(step, real).path
            named = step if step.startswith(("/", "~")) else normpath(f"{named}/{step}")
        return dict.fromkeys((real, self.files.resolve(named, self.cwd).path))

    def _evaluate_cwd(self, command: SimpleCommand, cwd: str) -> PolicyFinding:
        """Whether a command may run where `cd` has led."""
        if is_inside(cwd, self.roots) or self._is_cd_allowed(command):
            return PolicyFinding(cwd, "allow", "inside the workspace", is_read_only=True)
        return PolicyFinding(cwd, "ask", "it would run outside the workspace")

    def _is_cd_allowed(self, command: SimpleCommand) -> bool:
        """Whether every `cd` that led here is spelled out by a rule."""
        steps = {step for moves in command.cd_paths or () for step in moves}
        return bool(steps) and all(
            self.is_exact_match((Word("cd", "cd"), Word(step, step))) for step in steps
        )

    def _evaluate_repository(self, cwd: str, folders: Iterable[str]) -> PolicyFinding:
        """git takes a folder that looks like a bare repository for one, and its config runs."""
        for folder in folders:
            cwd = self.files.resolve(folder, cwd).path
        here = cwd
        while is_inside(here, self.roots):
            if self.files.file_system.lstat(f"{here}/.git") is not None:
                break
            head = self.files.file_system.lstat(f"{here}/HEAD")
            if head is not None and self.files.file_system.lstat(f"{here}/objects") is not None:
                return PolicyFinding(
                    here, "ask", "a bare repository, whose configuration can run programs"
                )
            here = here.rpartition("/")[0] or "/"
            if here == "/":
                break
        return PolicyFinding(cwd, "allow", "an ordinary repository", is_read_only=True)

    def expand_glob(self, command: SimpleCommand, word: Word) -> list[str] | None:
        """The names that a pattern stands for now; the pattern itself if there are none.
        None: too many to look at.
        """
        text = word.text or ""
        if text.startswith("~") and not word.has_tilde:
            text = "./" + text
        if not word.is_glob or command.cd_paths is None:
            return [text]
        found: list[str] = []
        for cwd in dict.fromkeys(
            cwd for moves in command.cd_paths for cwd in self._list_cwds(moves)
        ):
            names = self._match_glob(text, cwd)
            if names is None:
                return None
            found += names
        return found or [text]

    def _match_glob(self, pattern: str, cwd: str) -> list[str] | None:
        heads = ["/" if pattern.startswith("/") else ""]
        for segment in pattern.strip("/").split("/"):
            following: list[str] = []
            for head in heads:
                if not any(c in segment for c in "*?["):
                    following.append(f"{head}{segment}/")
                    continue
                names = self.files.file_system.list_names(self.files.resolve(head or ".", cwd).path)
                if names is None:
                    return None
                if segment.startswith("."):
                    names = [".", "..", *names]  # as bash has it before 5.2
                for name in names:
                    hidden = name.startswith(".") and not segment.startswith(".")
                    if not hidden and fnmatch.fnmatchcase(name, segment):
                        following.append(f"{head}{name}/")
            if len(following) > MAX_DIR_ENTRIES:
                return None
            heads = following
        return [h.rstrip("/") for h in heads]


def _find_glob_folder(text: str) -> str:
    """The folder in which a pattern is looked up, if it names one."""
    head = re.split(r"[*?\[]", text, maxsplit=1)[0]
    return head[: head.rfind("/") + 1]


def list_values(text: str) -> tuple[str, ...]:
    """What of an argument may be a value: all of it, and what stands after `-x`, `=`, `@`, `:`."""
    glued = text[2:] if text[:1] == "-" and text[1:2] != "-" else ""
    return (text, glued, *(text.partition(mark)[2] for mark in "=@:"))
