"""The files that a command reads and writes, and the folder it runs in.

Turns the words of a command into paths, as the shell would expand them now, and evaluates each.
Used by `verdict.py`. Uses `file_evaluator.py` and `git_evaluator.py`.
"""

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial

from msgspec.structs import replace

from treadle.lib.files.file_view import MAX_DIR_ENTRIES, NULL_DEVICE, is_inside
from treadle.lib.files.search_path import list_local_path
from treadle.lib.shell.analysis.git import parse_git_command
from treadle.lib.shell.analysis.options import list_option_values
from treadle.lib.shell.analysis.programs import list_values
from treadle.lib.shell.ast import (
    NO_CD,
    CdPaths,
    Effects,
    ParsedCommand,
    SearchFilter,
    SimpleCommand,
    Word,
)
from treadle.permissions.command_checks import REMOVERS
from treadle.permissions.file_evaluator import AccessMode, FileEvaluator
from treadle.permissions.findings import PolicyFinding
from treadle.permissions.git_evaluator import GitEvaluator
from treadle.permissions.removals import Removals
from treadle.permissions.replaced_programs import TOOLCHAIN_PROGRAMS, find_replaced, runs_dependency
from treadle.permissions.ruleset.command_patterns import CommandPattern

_NO_FILTER = SearchFilter()
_MAX_GLOB_NAMES = 2 * MAX_DIR_ENTRIES  # for a line: each name costs some file system calls
_MAX_LISTED_NAMES = 50_000
_SENDERS = frozenset({"tar", "bsdtar", "zip", "scp", "rsync"})
_RECURSIVE = re.compile(r"-\w*R|--r")
_SPLIT_OPTION = re.compile(r"[\s'\"\\]-[-\w]")
_REMOTE_PROGRAMS = frozenset({"docker", "podman", "nerdctl", "docker-compose", "kubectl", "oc"})
_PUBLIC_FOLDERS = frozenset({"/", "/tmp", "/usr", "/usr/bin", "/usr/local/bin", "/opt", "/etc"})
_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/nix")


class PathAccess:
    """Evaluates the paths of the commands of one line. `patterns`: those of the allow rules."""

    def __init__(
        self,
        files: FileEvaluator,
        cwd: str,
        patterns: Sequence[CommandPattern],
        line: ParsedCommand,
        *,
        is_sandboxed: bool,
    ) -> None:
        self._findings: dict[tuple[object, ...], list[PolicyFinding]] = {}
        self._globs: dict[tuple[str, str], list[str] | None] = {}
        self._folders: dict[CdPaths, tuple[str, ...]] = {}
        self._line, self._is_sandboxed, self._left_names = line, is_sandboxed, _MAX_GLOB_NAMES
        self._files, self._cwd, self._patterns = files, cwd, patterns

    @cached_property
    def _hides_secrets(self) -> bool:
        """Whether the line runs where secrets are hidden from searches."""
        return self._files.context.sandbox_hides_denied and self._line.only_reads

    @cached_property
    def _removals(self) -> Removals:
        return Removals(self._files)

    @cached_property
    def _git(self) -> GitEvaluator:
        return GitEvaluator(self._files, lambda: self._hides_secrets, self._patterns)

    def evaluate(
        self, command: SimpleCommand, is_exact: bool, listed: Sequence[Word] = ()
    ) -> list[PolicyFinding]:
        """The findings on each path. `is_exact`: a rule contains the whole command. `listed`: names
        of files in the workspace, whichever they are."""
        effects = command.effects
        if listed:
            effects = replace(effects, reads=tuple(w for w in effects.reads if w not in listed))
        found: list[PolicyFinding] = []
        for redirect in command.redirects:
            if redirect.effect in ("copy", "data") or redirect.target is None:
                continue
            if redirect.effect in ("read", "both"):
                found += self._evaluate_word(command, redirect.target, "read")
            if redirect.effect in ("write", "both"):
                found += self._evaluate_word(command, redirect.target, "write")
        found += self._evaluate_reads(command, effects, is_exact)
        if effects.writes or effects.primary_writes or effects.copies:
            found += self._evaluate_writes(command, effects, is_exact)
        if effects.mentions:
            found += self._evaluate_mentions(command, effects, is_exact)
        path = list_local_path(os.environ.get("PATH", ""), self._files.roots, self._files.home)
        if effects.is_read_only and (path or command.program in TOOLCHAIN_PROGRAMS):
            folders = self._list_folders(command.cd_paths or ())
            found += find_replaced(command, self._files, folders, path)
        if effects.is_opaque and not self._is_sandboxed:  # which makes these files read-only
            found += self._evaluate_option_values(command)
        has_moved = bool(command.argv) and command.cd_paths != NO_CD
        if has_moved or effects.reads_cwd or command.program in ("git", "cd", "pushd"):
            found += self._evaluate_folders(command, effects, is_exact)
        return found

    def _leaves_out_secrets(self, command: SimpleCommand) -> bool:
        """Whether a command that reads a whole folder prints no secret in it, and packs none."""
        is_other = command.effects.is_read_only or command.program in _SENDERS
        return not is_other or self._hides_secrets

    def find_outside(self, command: SimpleCommand, words: Sequence[Word]) -> str:
        """A path outside of the workspace among the words of an unknown program that runs here."""
        is_remote = command.program in _REMOTE_PROGRAMS and (
            not {"exec", "run"}.isdisjoint(w.text for w in command.argv[1:4])
        )
        if not command.effects.is_opaque or is_remote or command.cd_paths is None:
            return ""
        cwds = self._list_folders(command.cd_paths)
        for word in words:
            for value in list_values(word.text or ""):
                if _may_be_outside(value) and any(self._is_outside(value, c) for c in cwds):
                    return value
        return ""

    def has_no_options(self) -> bool:
        """Whether no path below the folder can be read as an option, also if it is split."""
        found = self._files.file_system.scan_tree(self._cwd, _MAX_LISTED_NAMES)
        start = len(self._cwd.rstrip("/")) + 1
        return len(found) < _MAX_LISTED_NAMES and not any(
            path.startswith("-", start) or _SPLIT_OPTION.search(path, start) for path in found
        )

    def may_remove(self, command: SimpleCommand) -> bool:
        """Whether all that a `find` removes is inside the folder, and nothing of it protected."""
        words = command.effects.reads or (Word(".", "."),)
        if command.cd_paths is None or any(word.text is None or word.is_glob for word in words):
            return False
        return all(
            self._removals.may_remove_below(word.text or ".", command.effects.removed_name, cwd)
            for word in words
            for cwd in self._list_folders(command.cd_paths)
        )

    def has_copies(self, command: SimpleCommand) -> bool:
        """Whether a checkpoint has what the command removes, if it does."""
        if command.program not in REMOVERS:
            return True
        paths = [self.expand_glob(command, word) for word in command.effects.primary_writes]
        if command.cd_paths is None or None in paths or not self._files.context.may_remove:
            return False
        named = [path for one in paths for path in one or ()]
        folders = self._list_folders(command.cd_paths)
        return all(self._removals.has_copy(path, cwd) for path in named for cwd in folders)

    def find_symlink_out(self, command: SimpleCommand) -> PolicyFinding | None:
        """The finding on a symlink below the folder that names what may not be read, if any."""
        found = self._evaluate_in_each_cwd(
            command, partial(self._files.evaluate_symlinks, "."), "."
        )
        return next((finding for finding in found if finding.outcome != "allow"), None)

    def _is_outside(self, path: str, cwd: str) -> bool:
        real = self._files.resolve(path, cwd).path
        is_known = is_inside(real, (*self._files.roots, *_SYSTEM_FOLDERS, NULL_DEVICE))
        top = "/" + real.strip("/").partition("/")[0]
        return not is_known and (not path.startswith("/") or self._files.exists(top))

    # ---------------------------------------------------------------- the steps, in order

    def _evaluate_reads(
        self, command: SimpleCommand, effects: Effects, is_exact: bool
    ) -> list[PolicyFinding]:
        found: list[PolicyFinding] = []
        for word in effects.reads:
            if word.text is None and effects.is_print_only:
                continue
            if effects.shows_names_only and self._names_files_only(command, word):
                continue
            if command.program == "ls" and word.text in _PUBLIC_FOLDERS and not any(
                _RECURSIVE.match(w.text or "") for w in command.argv
            ):  # fmt: skip
                continue
            found += self._evaluate_word(
                command, word, "read", is_exact, effects.is_recursive, effects.search
            )
            if effects.follows_symlinks and not is_exact:
                for path in self.expand_glob(command, word) or ():
                    evaluate = partial(self._files.evaluate_symlinks, path)
                    found += self._evaluate_in_each_cwd(command, evaluate, path)
        if is_exact:
            return found
        for word in (*command.argv, *command.loop_globs):
            # The shell itself reads the folders in which it expands a pattern.
            folder = _find_glob_folder(word.text or "") if word.is_glob else ""
            if folder:
                word = replace(word, text=folder, is_glob=False)
                found += self._evaluate_word(command, word, "read")
        return found

    def _names_files_only(self, command: SimpleCommand, word: Word) -> bool:
        """Whether a word names files inside the workspace, and no folders."""
        if word.text is None or command.cd_paths is None:
            return False
        paths = self.expand_glob(command, word)
        return bool(paths) and all(
            self._files.is_plain_file(path, cwd)
            for path in paths or ()
            for cwd in self._list_folders(command.cd_paths)
        )

    def _evaluate_writes(
        self, command: SimpleCommand, effects: Effects, is_exact: bool
    ) -> list[PolicyFinding]:
        found: list[PolicyFinding] = []
        for word in effects.writes:
            found += self._evaluate_word(command, word, "write")
        for word in effects.primary_writes:
            is_target = any(word is into for _, into in effects.copies)
            is_recursive = effects.is_recursive and not is_target
            found += self._evaluate_primary_write(command, word, is_recursive)
            if command.program == "rm" and not is_exact and word.text is not None:
                for path in self.expand_glob(command, word) or ():
                    evaluate = partial(self._removals.evaluate, path)
                    found += self._evaluate_in_each_cwd(command, evaluate, path)
        for source, into in effects.copies:
            found += self._evaluate_copy(command, source, into, effects.is_recursive)
        return found

    def _evaluate_mentions(
        self, command: SimpleCommand, effects: Effects, is_exact: bool
    ) -> list[PolicyFinding]:
        found: list[PolicyFinding] = []
        for word in effects.mentions:
            paths = [value for value in list_values(word.text or "") if value]
            if effects.is_read_only or self._files.rules.reading:
                for path in paths:
                    found += self._evaluate_mention(command, path, effects.is_read_only)
            if effects.is_opaque and not is_exact:
                for path in paths:
                    evaluate = partial(self._files.evaluate_protected, path)
                    found += self._evaluate_in_each_cwd(command, evaluate, path)
        return found

    def _evaluate_option_values(self, command: SimpleCommand) -> list[PolicyFinding]:
        """Files that an option may make the program write, if a rule is about writing them."""
        found: list[PolicyFinding] = []
        if not self._files.rules.restricts_writing:
            return found
        for word, text in list_option_values(command.argv[1:]):
            for path in filter(None, list_values(text)):
                evaluate = partial(self._files.evaluate_option_value, path)
                found += [
                    replace(finding, subject=word.source)
                    for finding in self._evaluate_in_each_cwd(command, evaluate, path)
                    if finding.outcome != "allow"
                ]
        return found

    def _evaluate_folders(
        self, command: SimpleCommand, effects: Effects, is_exact: bool
    ) -> list[PolicyFinding]:
        """The folder that the command runs in, reads, or changes to."""
        name = command.program
        found: list[PolicyFinding] = []
        if name == "git" and not is_exact and self._files.rules.reading:
            found += self._git.evaluate_pathspecs(command.argv[2:])
        if effects.reads_cwd and not command.is_piped:
            evaluate = partial(
                self._files.evaluate,
                ".", "read", is_exact=is_exact, is_recursive=effects.is_recursive,
                search=effects.search,
                hides_secrets=effects.is_recursive and self._leaves_out_secrets(command),
            )  # fmt: skip
            found += self._evaluate_in_each_cwd(command, evaluate)
        if name == "git":
            # What the repository adds to the words of a git command.
            parsed, git = parse_git_command(command.argv[1:]), self._git
            steps = [git.evaluate_repository]
            if self._files.rules.reading or parsed.name == "grep":
                steps.append(git.evaluate_content)
            if effects.is_read_only and not self._is_named_alone(command):
                steps.append(git.evaluate_reading)
            for step in steps:
                found += self._evaluate_in_each_cwd(command, partial(step, parsed))
        if name in ("cd", "pushd") and not is_exact:
            for word in command.argv[1:]:
                if (word.text or "")[:1] != "-":
                    found += self._evaluate_word(command, word, "read")
            if len(command.argv) == 1:
                found.append(self._files.evaluate("~", "read", self._cwd))
        elif command.argv and command.cd_paths != NO_CD:
            found += self._evaluate_in_each_cwd(command, partial(self._evaluate_cwd, command))
        return found

    def _is_named_alone(self, command: SimpleCommand) -> bool:
        """Whether an allow rule is this command and no other: `git status`, not `git status:*`."""
        return any(p.is_exact_match(command.argv) and not p.is_prefix for p in self._patterns)

    # ---------------------------------------------------------------- one word

    def _evaluate_word(
        self,
        command: SimpleCommand,
        word: Word,
        access: AccessMode,
        is_exact: bool = False,
        is_recursive: bool = False,
        search: SearchFilter = _NO_FILTER,
    ) -> list[PolicyFinding]:
        """The findings on a word, once for each word of the line."""
        if access == "read" and (word.is_process_substitution or word.text == "-"):
            return []
        key = (word, command.cd_paths, access, is_exact, is_recursive, search)
        if key in self._findings:
            return self._findings[key]
        found = self._findings[key] = []
        text = word.text or ""
        if word.text is None or (word.has_tilde and text[:1] == "~" and text[1:2] not in ("", "/")):
            reason = "the path is known only when the command runs"
            found.append(PolicyFinding(word.source, "ask", reason))
            return found
        paths = self.expand_glob(command, word)
        if paths is None:
            found.append(PolicyFinding(word.source, "ask", "it matches too many names to check"))
        for path in paths or ():
            evaluate = partial(
                self._files.evaluate, path, access,
                is_exact=is_exact, is_recursive=is_recursive, search=search,
                hides_secrets=is_recursive and self._leaves_out_secrets(command),
            )  # fmt: skip
            found += self._evaluate_in_each_cwd(command, evaluate, path)
        if word.may_split and not word.is_glob:  # a value that could be another is not denied
            found[:] = [replace(f, outcome="ask") if f.outcome == "deny" else f for f in found]
        return found

    def _evaluate_primary_write(
        self, command: SimpleCommand, word: Word, is_recursive: bool = False
    ) -> list[PolicyFinding]:
        """A file that the program exists to write: its own rule is enough in the workspace."""
        return [
            PolicyFinding(finding.subject, "allow", "inside the folder")
            if finding.kind == "unruled_workspace_write"
            else finding
            for finding in self._evaluate_word(command, word, "write", is_recursive=is_recursive)
        ]

    def _evaluate_copy(
        self, command: SimpleCommand, source: Word, target: Word, is_recursive: bool
    ) -> list[PolicyFinding]:
        """A file that is copied into a folder keeps its name there."""
        found: list[PolicyFinding] = []
        if target.text is None or source.text is None:
            return found
        for path in self.expand_glob(command, source) or ():
            name = path.rstrip("/").rpartition("/")[2]
            if name not in ("", ".", ".."):
                copied = replace(target, text=f"{target.text}/{name}")
                found += self._evaluate_primary_write(command, copied)
            if is_recursive:
                evaluate = partial(self._files.evaluate_copy, path)
                found += self._evaluate_in_each_cwd(command, evaluate, path)
        return found

    def _evaluate_mention(
        self, command: SimpleCommand, path: str, is_read_only: bool
    ) -> list[PolicyFinding]:
        """A path that the program may read: asks if a rule is about it. A program that needs no
        rule asks for every existing file that may not be read."""
        evaluate = partial(self._files.evaluate, path, "read")
        return [
            replace(finding, outcome="ask")
            for finding in self._evaluate_in_each_cwd(command, evaluate, path)
            if finding.outcome != "allow"
            and (finding.rule or (is_read_only and self._files.exists(finding.path)))
        ]

    # ---------------------------------------------------------------- folders

    def _evaluate_in_each_cwd(
        self, command: SimpleCommand, evaluate: Callable[[str], PolicyFinding], path: str = ""
    ) -> list[PolicyFinding]:
        """Evaluate a path in every folder in which the command may run."""
        if path.startswith(("/", "~")):
            return [evaluate(self._cwd)]
        if command.cd_paths is None:
            reason = "its working directory is not known"
            return [PolicyFinding(path or command.source, "ask", reason)]
        return [*map(evaluate, self._list_folders(command.cd_paths))]

    def _list_folders(self, cd_paths: CdPaths) -> tuple[str, ...]:
        """The folders in which a command may run."""
        folders = self._folders.get(cd_paths)
        if folders is None:
            view, home = self._files.file_system, self._files.home
            folders = self._folders[cd_paths] = view.list_folders(cd_paths, self._cwd, home)
        return folders

    def _evaluate_cwd(self, command: SimpleCommand, cwd: str) -> PolicyFinding:
        """Whether a command may run in the folder after `cd`."""
        roots = self._files.roots
        is_own, is_other = is_inside(cwd, roots), runs_dependency(command, cwd, roots)
        if self._is_cd_allowed(command) or (is_own and not is_other):
            return PolicyFinding(cwd, "allow", "inside the folder", is_read_only=True)
        where = "in code of others" if is_other else "outside the folder"
        return PolicyFinding(cwd, "ask", f"it would run {where}")

    def _is_cd_allowed(self, command: SimpleCommand) -> bool:
        """Whether an exact rule allows every `cd` before the command."""
        steps = {step for cd_path in command.cd_paths or () for step in cd_path}
        return bool(steps) and all(
            any(p.is_exact_match((Word("cd", "cd"), Word(s, s))) for p in self._patterns)
            for s in steps
        )

    def expand_glob(self, command: SimpleCommand, word: Word) -> list[str] | None:
        """The names that a word matches now, or the word itself; None if there are too many."""
        text = word.text or ""
        if text.startswith("~") and not word.has_tilde:
            text = "./" + text
        if not word.is_glob or command.cd_paths is None:
            return [text]
        matches: list[str] = []
        for cwd in self._list_folders(command.cd_paths):
            names = self._match_glob(text, cwd)
            if names is None:
                return None
            matches += names
        return matches or [text]

    def _match_glob(self, pattern: str, cwd: str) -> list[str] | None:
        """The names that a pattern matches; None after the first thousands of the line."""
        if (pattern, cwd) not in self._globs:
            names = self._files.list_glob_names(pattern, cwd)
            self._left_names -= len(names or ())
            self._globs[pattern, cwd] = names if self._left_names >= 0 else None
        return self._globs[pattern, cwd]


def _find_glob_folder(text: str) -> str:
    """The folder in which a pattern is expanded, if it names one."""
    head = re.split(r"[*?\[]", text, maxsplit=1)[0]
    return head[: head.rfind("/") + 1]


def _may_be_outside(text: str) -> bool:
    return text.startswith(("/", "~")) or ".." in text.split("/")
