"""Whether a path may be read or written: rules, roots, protected and secret places.

Judges one resolved path at a time. The judge of commands and the file tools stand above, patterns
and the view of the file system below.
"""

import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from os.path import normpath
from typing import Literal

import msgspec

from treadle.policy.evaluation.ruling import Outcome, PolicyFinding
from treadle.policy.ruleset.path_patterns import PathPattern
from treadle.policy.ruleset.paths import (
    FileSystemView,
    ResolvedPath,
    find_protected_part,
    find_secret_part,
    fold_case,
    is_inside,
    is_own_config,
    resolve_path,
)
from treadle.policy.ruleset.rules import Rule, RuleSet

Access = Literal["read", "write"]
_NULL_DEVICES = frozenset({"/dev/null"})
_MAX_WALKED_FILES = 5000
_RELATIVE_TARGET = re.compile(r"(?:\.\./)*(?!/)(?:(?!\.\.(?:/|$)).)*", re.DOTALL)


class _TooManyFiles(Exception):
    """More files than can be looked at while somebody waits."""


class PolicyContext(msgspec.Struct, frozen=True):
    """Where and under which rules calls are judged."""

    root: str
    home: str
    rules: RuleSet = RuleSet()
    extra_roots: tuple[str, ...] = ()
    file_system: FileSystemView = FileSystemView()
    accept_edits: bool = False  # writing inside the roots needs no rule (accept-edits)

    @property
    def roots(self) -> tuple[str, ...]:
        return (self.root, *self.extra_roots)


class FileEvaluator:
    """Judges paths in one situation."""

    def __init__(self, context: PolicyContext) -> None:
        self.context = context
        self.file_system = context.file_system
        rules = context.rules
        self._rules = {
            tool: {
                name: tuple(r for r in getattr(rules, name) if _applies_to(r, tool))
                for name in ("allow", "ask", "deny")
            }
            for tool in ("read", "write", "glob", "grep", "ls")
        }

    @property
    def has_read_rules(self) -> bool:
        """Whether a rule forbids to read something, or to do it without a question."""
        return bool(self._rules["read"]["deny"] or self._rules["read"]["ask"])

    def resolve(self, path: str, cwd: str) -> ResolvedPath:
        return resolve_path(self.file_system, path, cwd, self.context.home)

    def evaluate(
        self, path: str, access: Access, cwd: str, *, is_exact: bool = False, is_recursive: bool = False,
        tool: str = "",
    ) -> PolicyFinding:  # fmt: skip
        """Judge one path. `named`: an exact rule spells it out. `whole`: all beneath it as well.
        `tool`: the searching tool that reads it, if it is one.
        """
        if any(ord(c) < 0x20 or ord(c) == 0x7F for c in path):
            # A newline may stand in a name; anything else of the kind is an attack on the reader.
            outcome: Outcome = "ask" if path.replace("\n", "").isprintable() else "deny"
            return PolicyFinding(path, outcome, "control characters in a path")
        place = self.resolve(path, cwd)
        subject = f"{access} {place.path}"
        lists = self._rules.get(tool, self._rules[access])
        for outcome in ("deny", "ask"):
            for rule in lists[outcome]:
                if self._is_forbidden(rule, place):
                    return PolicyFinding(subject, outcome, f"rule {rule.text}", rule.text)
                if is_recursive and (found := self._check_children(rule, place, outcome)):
                    return PolicyFinding(
                        subject, found, f"rule {rule.text} is about files in it", rule.text
                    )
        if place.path in _NULL_DEVICES:
            return PolicyFinding(subject, "allow", "keeps nothing", is_read_only=True)
        if place.special_kind:
            return PolicyFinding(subject, "ask", place.special_kind)
        if access == "read":
            return self._evaluate_read(place, subject, lists["allow"], is_exact)
        finding = self._evaluate_write(place, subject, lists["allow"])
        if is_recursive and (held := self._find_protected_child(place)):
            return PolicyFinding(subject, "ask", f"{held} is in it, and protected")
        return finding

    def evaluate_copy(self, path: str, cwd: str) -> PolicyFinding:
        """Judge what would come of copying all that is beneath `path` to another place."""
        folder, _, name = path.rstrip("/").rpartition("/")
        top = self.resolve(folder or ("/" if path.startswith("/") else "."), cwd).path
        top = self.resolve(path, cwd).path if name in ("", ".", "..") else f"{top}/{name}"
        subject = f"copy {top}"
        try:
            for found in chain((top,), self._walk(top)):
                if self._leaves_folder(found, top):
                    return PolicyFinding(
                        subject, "ask", f"{found} is a link, and would lead elsewhere"
                    )
                if unit := find_protected_part(found[len(top) :]):
                    return PolicyFinding(
                        subject, "ask", f"{'/'.join(unit)} is in it, and protected"
                    )
        except _TooManyFiles:
            return PolicyFinding(subject, "ask", "too many files in it to look at")
        return PolicyFinding(subject, "allow", "nothing protected in it", is_read_only=True)

    def evaluate_symlinks(self, path: str, cwd: str) -> PolicyFinding:
        """Judge reading all files of a folder, wherever links in it lead."""
        place = self.resolve(path, cwd)
        try:
            for found in self._walk(place.path):
                if self.file_system.readlink(found) is not None:
                    finding = self.evaluate(found, "read", cwd)
                    if finding.outcome != "allow":
                        return finding
        except _TooManyFiles:
            return PolicyFinding(f"read {place.path}", "ask", "too many files in it to look at")
        return PolicyFinding(
            f"read {place.path}", "allow", "no link leads out of it", is_read_only=True
        )

    def evaluate_protected(self, path: str, cwd: str) -> PolicyFinding:
        """Judge a path that somebody may write to, for what is protected alone."""
        place = self.resolve(path, cwd)
        unit = next((u for name in place.all_paths if (u := find_protected_part(name))), ())
        if unit and self.evaluate(path, "write", cwd).outcome != "allow":
            return PolicyFinding(f"write {place.path}", "ask", f"{'/'.join(unit)} is protected")
        return PolicyFinding(place.path, "allow", "nothing protected", is_read_only=True)

    def exists(self, path: str) -> bool:
        return self.file_system.lstat(path) is not None

    def _leaves_folder(self, path: str, top: str) -> bool:
        """Whether it is a link that would not mean the same if `top` were another folder."""
        target = self.file_system.readlink(path)
        if target is None:
            return False
        # Behind another link, `..` would not be what the text says.
        plain = _RELATIVE_TARGET.fullmatch(target) and is_inside(
            normpath(f"{path}/../{target}"), (top,)
        )
        return path == top or not plain

    def _find_protected_child(self, resolved: ResolvedPath) -> str:
        """What a folder holds that must not be changed along with the rest of it."""
        for root in self.context.roots:
            if is_inside(root, (resolved.path,)):
                return "the workspace"
        names = self.file_system.list_names(resolved.path)
        if names is None:
            return "more than can be looked at"
        return next((name for name in names if find_protected_part(name)), "")

    def _evaluate_read(
        self, resolved: ResolvedPath, subject: str, allow: tuple[Rule, ...], is_exact: bool
    ) -> PolicyFinding:
        if is_exact:
            return PolicyFinding(subject, "allow", "named by the rule for the command")
        unit = next((u for name in resolved.all_paths if (u := find_secret_part(name))), ())
        if not unit and resolved.inode and self._is_hard_link_of_secret(resolved):
            unit = ("hard link",)
        for rule in allow:
            body = rule.pattern
            if isinstance(body, PathPattern):
                if body.allows(resolved.path) and (not unit or body.has_segments(unit)):
                    return PolicyFinding(
                        subject, "allow", f"rule {rule.text}", rule.text, is_read_only=True
                    )
            elif not unit:
                return PolicyFinding(
                    subject, "allow", f"rule {rule.text}", rule.text, is_read_only=True
                )
        if unit:
            return PolicyFinding(subject, "ask", f"{unit[-1]} may hold secrets")
        if is_inside(resolved.path, self.context.roots):
            return PolicyFinding(subject, "allow", "inside the workspace", is_read_only=True)
        return PolicyFinding(subject, "ask", "outside the workspace")

    def _evaluate_write(
        self, resolved: ResolvedPath, subject: str, allow: tuple[Rule, ...]
    ) -> PolicyFinding:
        if any("/-" in resolved.path[len(root) :] for root in self.context.roots):
            return PolicyFinding(subject, "ask", "its name is an option to other programs")
        unit = next(
            (
                u
                for name in resolved.all_paths
                if (u := find_protected_part(name) or find_secret_part(name))
            ),
            (),
        )
        within = is_inside(resolved.path, self.context.roots)
        if not unit and resolved.inode:
            return PolicyFinding(subject, "ask", "the file has other names (hard links)")
        for rule in allow:
            body = rule.pattern
            if isinstance(body, PathPattern):
                covers = body.allows(resolved.path)
                if unit:
                    covers = covers and body.has_segments(unit)
                    covers = covers and (body.is_literal or not is_own_config(resolved.path))
            else:
                covers = within and not unit
            if covers:
                return PolicyFinding(subject, "allow", f"rule {rule.text}", rule.text)
        if unit:
            return PolicyFinding(
                subject, "ask", f"{'/'.join(unit)} is protected: it makes programs run"
            )
        if within and self.context.accept_edits:
            return PolicyFinding(subject, "allow", "edits inside the workspace are accepted")
        where = "" if within else ", and outside the workspace"
        return PolicyFinding(subject, "ask", f"no rule allows writing it{where}")

    # ---------------------------------------------------------------- forbidding

    def _is_forbidden(self, rule: Rule, resolved: ResolvedPath) -> bool:
        body = rule.pattern
        if not isinstance(body, PathPattern):
            return True
        if any(body.forbids(name) for name in resolved.all_paths):
            return True
        return resolved.inode is not None and self._is_hard_link_of(body, resolved)

    def _is_hard_link_of(self, pattern: PathPattern, resolved: ResolvedPath) -> bool:
        """Whether a file with several names is one that the pattern forbids, as far as looked."""
        for glob in pattern.list_fixed_prefixes():
            if pattern.is_literal:
                candidates: Iterable[str] = (glob,)
            elif is_inside(glob, self.context.roots) or is_inside(glob, (self.context.home,)):
                candidates = self._walk(glob)
            else:
                continue
            with suppress(_TooManyFiles):
                for candidate in candidates:
                    status = self.file_system.lstat(candidate)
                    if (
                        status is not None
                        and (status.st_dev, status.st_ino) == resolved.inode
                        and (pattern.is_literal or pattern.forbids(candidate))
                    ):
                        return True
        return False

    def _walk(self, folder: str) -> Iterator[str]:
        """The files beneath a folder; _TooMany after the first thousands."""
        todo, seen = [folder], 0
        while todo:
            here = todo.pop()
            names = self.file_system.list_names(here)
            if names is None or seen > _MAX_WALKED_FILES:
                raise _TooManyFiles
            for name in names:
                seen += 1
                path = f"{here}/{name}"
                status = self.file_system.lstat(path)
                if status is not None and stat.S_ISDIR(status.st_mode):
                    todo.append(path)
                else:
                    yield path

    def _is_hard_link_of_secret(self, resolved: ResolvedPath) -> bool:
        places = [self.context.root, f"{self.context.home}/.ssh", self.context.home]
        for folder in places:
            for name in self.file_system.list_names(folder) or ():
                path = f"{folder}/{name}"
                if find_secret_part(path):
                    status = self.file_system.lstat(path)
                    if status and (status.st_dev, status.st_ino) == resolved.inode:
                        return True
        return False

    def _check_children(
        self, rule: Rule, resolved: ResolvedPath, outcome: Outcome
    ) -> Outcome | None:
        """What a rule says of a command that reads all of a folder."""
        body = rule.pattern
        if not isinstance(body, PathPattern):
            return None
        for fixed in body.list_fixed_prefixes():
            beneath = is_inside(fold_case(fixed), (fold_case(resolved.path),))
            if body.is_literal:
                if beneath and self.file_system.lstat(fixed) is not None:
                    return outcome
            elif (beneath and self.file_system.lstat(fixed) is not None) or is_inside(
                resolved.path, (fixed,)
            ):
                return "ask"
        return None


def _applies_to(rule: Rule, tool: str) -> bool:
    if tool != "write":
        return rule.tool in ("read", tool)
    return rule.tool in ("write", "edit", "multiedit", "applypatch", "notebookedit")
