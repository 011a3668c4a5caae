"""Whether a path may be read or written: rules, roots, protected and secret paths.

Evaluates one path at a time, after resolving it. Used by the evaluators of file tools and of
commands. Uses the path patterns of the rules and a view of the file system.
"""

import re
import stat
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from os.path import normpath
from typing import Literal

from treadle.lib.files.file_view import (
    MAX_DIR_ENTRIES,
    NULL_DEVICE,
    PUBLIC_FILES,
    FileSystemView,
    ResolvedPath,
    find_secret_part,
    is_inside,
)
from treadle.lib.files.protected_paths import describe_use, find_protected_part, fold_case
from treadle.lib.files.secret_files import is_searched_secret, list_secrets
from treadle.lib.git.configured_files import ConfiguredFiles
from treadle.lib.git.repository import find_bare_part
from treadle.lib.shell.ast import SearchFilter
from treadle.permissions.findings import FindingKind, PolicyContext, PolicyFinding
from treadle.permissions.hard_links import HardLinks
from treadle.permissions.ruleset.path_patterns import PathPattern
from treadle.permissions.ruleset.rules import FileRules, Outcome, Rule

AccessMode = Literal["read", "write"]
_NO_FILTER = SearchFilter()
_MAX_WALKED_FILES = 5000
_CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f]")
_RELATIVE_TARGET = re.compile(r"(?:\.\./)*(?!/)(?:(?!\.\.(?:/|$)).)*", re.DOTALL)


class _TooManyFiles(Exception):
    """There are more files than can be checked while the user waits."""


class FileEvaluator:
    """Evaluates paths in one context. With a cached view of the file system it is for one
    decision."""

    def __init__(
        self,
        context: PolicyContext,
        rules: FileRules | None = None,
        file_system: FileSystemView | None = None,
    ) -> None:
        self.context = context
        self.home = context.home
        self.roots = (context.root, *context.extra_roots)
        self.file_system = file_system if file_system is not None else context.file_system
        self.rules = rules if rules is not None else FileRules(context.rules)
        self._git_files = ConfiguredFiles(self.file_system, self.home)

    @cached_property
    def _links(self) -> HardLinks:
        return HardLinks(self.file_system, self.roots, self.home)

    def find_read_rule(self, path: str) -> Rule | None:
        """The first deny or ask rule about reading this resolved path."""
        return next((rule for rule in self.rules.reading if _is_about(rule, path)), None)

    def check_read_rules(self, path: str, cwd: str) -> PolicyFinding | None:
        """The finding on a path that a deny or ask rule is about, by any of its names."""
        resolved = self.resolve(path, cwd)
        for outcome, rule in self.rules.by_tool["read"].forbidding:
            if self._forbids(rule, resolved):
                subject, reason = f"read {resolved.path}", f"rule {rule.text}"
                return make_finding(subject, outcome, resolved, reason, rule)
        return None

    def find_rule_by_name(self, pattern: str) -> Rule | None:
        """A deny or ask rule whose last part is a name that the pattern matches."""
        for rule in self.rules.reading:
            segments = rule.pattern.segments if isinstance(rule.pattern, PathPattern) else ()
            if segments and pattern not in ("", "*", "**") and fnmatchcase(segments[-1], pattern):
                return rule
        return None

    def find_denied(self, paths: Sequence[str]) -> list[str]:
        """The files that the search tool leaves out, also by other names (hard links): those that
        a rule denies, and secrets that no rule allows."""
        patterns, allow = self.rules.unsearchable, self.rules.by_tool["grep"].allow
        denied = {path for path in paths if any(p.forbids(path) for p in patterns)}
        below = len(self.context.root.rstrip("/")) + 1
        secret = (path for path in paths if is_searched_secret(path[below:]))
        denied.update(path for path in secret if not self._is_allowed_secret(path, allow))
        get_identity = self._links.get_shared_identity
        shared = {i for p in patterns for i in self._links.find_identities(p)}
        shared.update(filter(None, map(get_identity, denied)))
        if shared:
            denied.update(path for path in paths if get_identity(path) in shared)
        return [path for path in paths if path in denied]

    def list_other_names(self, rule: Rule, folder: str) -> list[str]:
        """The names below a folder of files that a rule is about by another name."""
        pattern = rule.pattern
        if not isinstance(pattern, PathPattern):
            return []
        names = self._links.list_names(self._links.find_identities(pattern), folder)
        return [name for name in names if not pattern.forbids(name)]

    def resolve(self, path: str, cwd: str) -> ResolvedPath:
        return self.file_system.resolve(path, cwd, self.home)

    def list_glob_names(self, pattern: str, cwd: str) -> list[str] | None:
        """The names that a pattern matches; None if there are too many."""
        heads = ["/" if pattern.startswith("/") else ""]
        for segment in pattern.strip("/").split("/"):
            following: list[str] = []
            for head in heads:
                if not any(c in segment for c in "*?["):
                    following.append(f"{head}{segment}/")
                    continue
                folder = self.resolve(head or ".", cwd).path
                names = self.file_system.list_names(folder)
                if names is None:
                    return None
                if segment.startswith("."):
                    names = [".", "..", *names]  # as in bash before 5.2
                for name in names:
                    is_hidden = name.startswith(".") and not segment.startswith(".")
                    if not is_hidden and fnmatchcase(name, segment):
                        following.append(f"{head}{name}/")
            if len(following) > MAX_DIR_ENTRIES:
                return None
            heads = following
        return [head.rstrip("/") for head in heads]

    def exists(self, path: str) -> bool:
        return self.file_system.lstat(path) is not None

    def is_plain_file(self, path: str, cwd: str) -> bool:
        """Whether a path is a file inside the workspace, or nothing."""
        resolved = self.resolve(path, cwd)
        status = self.file_system.lstat(resolved.path)
        is_file = status is None or stat.S_ISREG(status.st_mode)
        return is_file and path.isprintable() and is_inside(resolved.path, self.roots)

    def evaluate(
        self,
        path: str,
        access: AccessMode,
        cwd: str,
        *,
        is_exact: bool = False,
        is_recursive: bool = False,
        tool: str = "",
        search: SearchFilter = _NO_FILTER,
        hides_secrets: bool = False,
    ) -> PolicyFinding:
        """The finding on one path.

        `is_exact`: a rule contains the whole command. `is_recursive`: with everything below it,
        except what `search` leaves out. `tool`: the tool that reads it, since search tools have
        rules of their own. `hides_secrets`: it is read where secrets are hidden from searches.
        """
        if _CONTROL_CHARS.search(path):
            # A file name may contain a newline; other control characters attack the terminal.
            outcome: Outcome = "ask" if path.replace("\n", "").isprintable() else "deny"
            return PolicyFinding(path, outcome, "control characters in a path", path=path)
        resolved = self.file_system.resolve(path, cwd, self.home)
        rules = self.rules.by_tool.get(tool) or self.rules.by_tool[access]
        subject = f"{access} {resolved.path}"
        for name, rule in rules.forbidding:
            if self._forbids(rule, resolved):
                return make_finding(subject, name, resolved, f"rule {rule.text}", rule)
            is_hidden = (
                self.context.tools_skip_denied if tool else self.context.sandbox_hides_denied
            )
            if not is_recursive or (name == "deny" and access == "read" and is_hidden):
                continue
            below = self._find_below(rule, resolved.path, search)
            if not below and access == "read":
                below = self._find_link_below(rule, resolved.path, search)
            if below:
                outcome = name if access == "write" else "ask"
                reason = f"{below} is in it; rule {rule.text}"
                return make_finding(subject, outcome, resolved, reason, rule)
        if resolved.path == NULL_DEVICE:
            return PolicyFinding(subject, "allow", "the null device", is_read_only=True)
        if resolved.special_kind:
            return make_finding(subject, "ask", resolved, resolved.special_kind)
        if access == "read":
            found = self._evaluate_read(resolved, subject, rules.allow, is_exact)
            leaves_out = self.context.tools_skip_denied if tool else hides_secrets
            if not is_recursive or is_exact or leaves_out or found.outcome != "allow":
                return found
            below = self._find_secret_below(resolved.path, search, rules.allow)
            reason = f"{below} is in it and may contain secrets"
            return make_finding(subject, "ask", resolved, reason) if below else found
        if protected := self._find_protected_child(resolved) if is_recursive else "":
            return make_finding(subject, "ask", resolved, f"{protected} is in it and protected")
        return self._evaluate_write(resolved, subject, rules.allow)

    def _evaluate_read(
        self, resolved: ResolvedPath, subject: str, allow: tuple[Rule, ...], is_exact: bool
    ) -> PolicyFinding:
        if is_exact:
            return make_finding(subject, "allow", resolved, "the rule for the command names it")
        paths = (resolved.path, *resolved.other_paths)
        secret = next(filter(None, map(find_secret_part, paths)), ())
        if not secret and resolved.inode and self._is_hard_link_of_secret(resolved):
            secret = ("hard link",)
        for rule in allow:
            if _allows_read(rule, resolved.path, secret):
                return PolicyFinding.from_rule(subject, "allow", rule, is_read_only=True)
        if secret:
            return make_finding(subject, "ask", resolved, f"{secret[-1]} may contain secrets")
        if is_inside(resolved.path, self.roots):
            return PolicyFinding(subject, "allow", "inside the folder", is_read_only=True)
        if is_inside(resolved.path, self.context.readable) or resolved.path in PUBLIC_FILES:
            return PolicyFinding(subject, "allow", "made to be read", is_read_only=True)
        return make_finding(subject, "ask", resolved, "outside the folder", kind="outside_read")

    def _evaluate_write(
        self, resolved: ResolvedPath, subject: str, allow: tuple[Rule, ...]
    ) -> PolicyFinding:
        roots = self.roots
        if any("/-" in resolved.path[len(root) :] for root in roots):
            return make_finding(subject, "ask", resolved, "programs would read it as an option")
        parts = (find_protected_part(p) or find_secret_part(p) for p in resolved.all_paths)
        protected = next(filter(None, parts), ()) or self._git_files.find_part(resolved.path)
        if not protected and resolved.inode:
            return make_finding(subject, "ask", resolved, "the file has other names (hard links)")
        is_in_workspace = is_inside(resolved.path, roots)
        for rule in allow:
            if _allows_write(rule, resolved.path, protected, is_in_workspace):
                return PolicyFinding.from_rule(subject, "allow", rule)
        if protected:
            reason = f"{'/'.join(protected)} is protected: {describe_use(protected)}"
            return make_finding(subject, "ask", resolved, reason)
        if not is_in_workspace:
            return make_finding(subject, "ask", resolved, "it is outside the folder")
        if self.context.accept_edits:
            return PolicyFinding(subject, "allow", "edits inside the folder are accepted")
        reason = "this mode asks first"
        return make_finding(subject, "ask", resolved, reason, kind="unruled_workspace_write")

    def _forbids(self, rule: Rule, resolved: ResolvedPath) -> bool:
        pattern = rule.pattern
        if not isinstance(pattern, PathPattern) or any(map(pattern.forbids, resolved.all_paths)):
            return True
        return resolved.inode is not None and resolved.inode in self._links.find_identities(pattern)

    def _find_below(self, rule: Rule, path: str, search: SearchFilter) -> str:
        """A file that a rule is about, for a call that reads everything below `path`; or ""."""
        pattern = rule.pattern
        if not isinstance(pattern, PathPattern) or self._leaves_out_name(pattern, path, search):
            return ""
        try:
            for file in self._list_candidates(pattern, path):
                relative = file[len(path.rstrip("/")) + 1 :]
                if pattern.forbids(file) and not search.leaves_out(relative):
                    return relative
        except _TooManyFiles:
            return "more than can be checked"
        return ""

    def _find_link_below(self, rule: Rule, path: str, search: SearchFilter) -> str:
        """Another name below `path` of a file that a rule is about, if a search reads it; or ""."""
        relative = (file[len(path.rstrip("/")) + 1 :] for file in self.list_other_names(rule, path))
        return next((name for name in relative if not search.leaves_out(name)), "")

    def _find_secret_below(self, path: str, search: SearchFilter, allow: tuple[Rule, ...]) -> str:
        """A secret that a search below `path` reads, and that no rule allows; or ""."""
        secrets = list_secrets(self.file_system, path)
        if secrets is None:
            return "more than can be checked"
        read = (name for name in secrets if not search.leaves_out(name))
        return next((n for n in read if not self._is_allowed_secret(f"{path}/{n}", allow)), "")

    def _is_allowed_secret(self, path: str, allow: tuple[Rule, ...]) -> bool:
        return any(_allows_read(rule, path, find_secret_part(path)) for rule in allow)

    def _leaves_out_name(self, pattern: PathPattern, path: str, search: SearchFilter) -> bool:
        """Whether no file with the name in the pattern is read, at any depth."""
        name = pattern.segments[-1] if pattern.segments and pattern.is_literal else ""
        if not name:
            return False
        return all(search.leaves_out(file) for file in (name, f"a/{name}", f"a/b/{name}"))

    def _list_candidates(self, pattern: PathPattern, path: str) -> Iterator[str]:
        """The files below `path` that a pattern may match."""
        for prefix in pattern.list_fixed_prefixes():
            if is_inside(fold_case(prefix), (fold_case(path),)):
                top = prefix
            elif is_inside(fold_case(path), (fold_case(prefix),)):
                top = path
            else:
                continue
            status = self.file_system.lstat(top)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                yield top
            elif status is not None:
                yield from self._walk(top)

    def _is_hard_link_of_secret(self, resolved: ResolvedPath) -> bool:
        context = self.context
        return any(
            find_secret_part(path := f"{folder}/{name}")
            and self._links.get_shared_identity(path) == resolved.inode
            for folder in (context.root, f"{context.home}/.ssh", context.home)
            for name in self.file_system.list_names(folder) or ()
        )

    def evaluate_copy(self, path: str, cwd: str) -> PolicyFinding:
        """The finding on a recursive copy of `path`: nothing protected, no symlink out of it."""
        folder, _, name = path.rstrip("/").rpartition("/")
        if name in ("", ".", ".."):
            top = self.resolve(path, cwd).path
        else:
            parent = folder or ("/" if path.startswith("/") else ".")
            top = f"{self.resolve(parent, cwd).path}/{name}"
        subject = f"copy {top}"
        try:
            for file in chain((top,), self._walk(top)):
                if self._leaves_folder(file, top):
                    return PolicyFinding(subject, "ask", f"the symlink {file} leaves the folder")
                name = file[len(top) :]
                if protected := find_protected_part(name) or find_bare_part(self.file_system, name):
                    reason = f"{'/'.join(protected)} is in it and protected"
                    return PolicyFinding(subject, "ask", reason)
        except _TooManyFiles:
            return PolicyFinding(subject, "ask", "too many files in it to check")
        return PolicyFinding(subject, "allow", "nothing protected in it", is_read_only=True)

    def evaluate_symlinks(self, path: str, cwd: str) -> PolicyFinding:
        """The finding on reading a folder with the targets of all symlinks in it."""
        resolved = self.resolve(path, cwd)
        subject = f"read {resolved.path}"
        try:
            for file in self._walk(resolved.path):
                if self.file_system.readlink(file) is not None:
                    finding = self.evaluate(file, "read", cwd)
                    if finding.outcome != "allow":
                        return finding
        except _TooManyFiles:
            return PolicyFinding(subject, "ask", "too many files in it to check")
        return PolicyFinding(subject, "allow", "no symlink leaves it", is_read_only=True)

    def evaluate_protected(self, path: str, cwd: str) -> PolicyFinding:
        """The finding on a path that a program may write, if the path is protected."""
        resolved = self.resolve(path, cwd)
        protected = next(filter(None, map(find_protected_part, resolved.all_paths)), ())
        if protected and self.evaluate(path, "write", cwd).outcome != "allow":
            subject, reason = f"write {resolved.path}", f"{'/'.join(protected)} is protected"
            return PolicyFinding(subject, "ask", reason)
        return PolicyFinding(resolved.path, "allow", "nothing protected", is_read_only=True)

    def evaluate_option_value(self, path: str, cwd: str) -> PolicyFinding:
        """The finding on a path that an option of an unknown program may make it write."""
        resolved = self.resolve(path, cwd)
        for _, rule in self.rules.by_tool["write"].forbidding:
            is_about = isinstance(rule.pattern, PathPattern) and self._forbids(rule, resolved)
            if is_about or self._is_folder_of(rule, resolved.path):
                reason = f"the program may write it; rule {rule.text}"
                return make_finding(path, "ask", resolved, reason, rule)
        return PolicyFinding(resolved.path, "allow", "no rule is about it", is_read_only=True)

    def _is_folder_of(self, rule: Rule, path: str) -> bool:
        """Whether a folder inside the workspace contains a file that a rule is about."""
        is_inner = is_inside(path, self.roots) and path not in self.roots
        status = self.file_system.lstat(path) if is_inner else None
        if status is None or not stat.S_ISDIR(status.st_mode):
            return False
        return bool(self._find_below(rule, path, _NO_FILTER))

    def _find_protected_child(self, resolved: ResolvedPath) -> str:
        """What a folder contains that must not change along with the rest of it."""
        if any(is_inside(root, (resolved.path,)) for root in self.roots):
            return "the folder"
        names = self.file_system.list_names(resolved.path)
        if names is None:
            return "an unknown number of files"
        protected = (name for name in names if find_protected_part(name))
        return next(protected, "") or self._git_files.find_below(resolved.path)

    def _leaves_folder(self, path: str, top: str) -> bool:
        """Whether it is a symlink whose target changes if `top` is copied."""
        target = self.file_system.readlink(path)
        if target is None:
            return False
        # Behind another symlink, `..` is not the folder that the text names.
        is_plain = _RELATIVE_TARGET.fullmatch(target) is not None
        return path == top or not (is_plain and is_inside(normpath(f"{path}/../{target}"), (top,)))

    def _walk(self, folder: str) -> Iterator[str]:
        """The files below a folder; raises _TooManyFiles after the first thousands."""
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


def _is_about(rule: Rule, path: str) -> bool:
    return not isinstance(rule.pattern, PathPattern) or rule.pattern.forbids(path)


def make_finding(
    subject: str,
    outcome: Outcome,
    resolved: ResolvedPath,
    reason: str,
    rule: Rule | None = None,
    kind: FindingKind = "other",
) -> PolicyFinding:
    text = rule.text if rule is not None else ""
    return PolicyFinding(subject, outcome, reason, text, kind=kind, path=resolved.path)


def _allows_read(rule: Rule, path: str, secret: tuple[str, ...]) -> bool:
    """Whether an allow rule covers a path; only a rule that names a secret covers it."""
    pattern = rule.pattern
    if not isinstance(pattern, PathPattern):
        return not secret
    return pattern.allows(path) and (not secret or pattern.has_segments(secret))


def _allows_write(rule: Rule, path: str, protected: tuple[str, ...], is_in_workspace: bool) -> bool:
    """Whether an allow rule covers a path; only a rule that names a protected part covers it."""
    pattern = rule.pattern
    if not isinstance(pattern, PathPattern):
        return is_in_workspace and not protected
    if not pattern.allows(path) or not protected:
        return pattern.allows(path)
    is_own_config = ".treadle" in map(fold_case, path.split("/"))
    return pattern.has_segments(protected) and (pattern.is_literal or not is_own_config)
