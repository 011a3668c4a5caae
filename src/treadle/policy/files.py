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

from treadle.policy.paths import (
    Place,
    View,
    fold,
    inside,
    own_config,
    protected,
    resolve,
    secret,
)
from treadle.policy.patterns import PathPattern
from treadle.policy.rules import Rule, RuleSet
from treadle.policy.verdict import Finding, Outcome

Access = Literal["read", "write"]
_HARMLESS = frozenset({"/dev/null"})
_WALK_LIMIT = 5000
_RELATIVE = re.compile(r"(?:\.\./)*(?!/)(?:(?!\.\.(?:/|$)).)*", re.DOTALL)


class _TooMany(Exception):
    """More files than can be looked at while somebody waits."""


class Situation(msgspec.Struct, frozen=True):
    """Where and under which rules calls are judged."""

    root: str
    home: str
    rules: RuleSet = RuleSet()
    extra_roots: tuple[str, ...] = ()
    view: View = View()
    edits_granted: bool = False  # writing inside the roots needs no rule (accept-edits)

    @property
    def roots(self) -> tuple[str, ...]:
        return (self.root, *self.extra_roots)


class FileJudge:
    """Judges paths in one situation."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.view = situation.view
        rules = situation.rules
        self._lists = {
            tool: {
                name: tuple(r for r in getattr(rules, name) if _about(r, tool))
                for name in ("allow", "ask", "deny")
            }
            for tool in ("read", "write", "glob", "grep", "ls")
        }

    @property
    def guards_reading(self) -> bool:
        """Whether a rule forbids to read something, or to do it without a question."""
        return bool(self._lists["read"]["deny"] or self._lists["read"]["ask"])

    def place(self, path: str, cwd: str) -> Place:
        return resolve(self.view, path, cwd, self.situation.home)

    def judge(
        self, path: str, access: Access, cwd: str, *, named: bool = False, whole: bool = False,
        tool: str = "",
    ) -> Finding:  # fmt: skip
        """Judge one path. `named`: an exact rule spells it out. `whole`: all beneath it as well.
        `tool`: the searching tool that reads it, if it is one.
        """
        if any(ord(c) < 0x20 or ord(c) == 0x7F for c in path):
            # A newline may stand in a name; anything else of the kind is an attack on the reader.
            outcome: Outcome = "ask" if path.replace("\n", "").isprintable() else "deny"
            return Finding(path, outcome, "control characters in a path")
        place = self.place(path, cwd)
        subject = f"{access} {place.path}"
        lists = self._lists.get(tool, self._lists[access])
        for outcome in ("deny", "ask"):
            for rule in lists[outcome]:
                if self._forbids(rule, place):
                    return Finding(subject, outcome, f"rule {rule.text}", rule.text)
                if whole and (found := self._forbidden_beneath(rule, place, outcome)):
                    return Finding(
                        subject, found, f"rule {rule.text} is about files in it", rule.text
                    )
        if place.path in _HARMLESS:
            return Finding(subject, "allow", "keeps nothing", plain=True)
        if place.special:
            return Finding(subject, "ask", place.special)
        if access == "read":
            return self._read(place, subject, lists["allow"], named)
        finding = self._write(place, subject, lists["allow"])
        if whole and (held := self._held(place)):
            return Finding(subject, "ask", f"{held} is in it, and protected")
        return finding

    def judge_tree(self, path: str, cwd: str) -> Finding:
        """Judge what would come of copying all that is beneath `path` to another place."""
        folder, _, name = path.rstrip("/").rpartition("/")
        top = self.place(folder or ("/" if path.startswith("/") else "."), cwd).path
        top = self.place(path, cwd).path if name in ("", ".", "..") else f"{top}/{name}"
        subject = f"copy {top}"
        try:
            for found in chain((top,), self._walk(top)):
                if self._leads_out(found, top):
                    return Finding(subject, "ask", f"{found} is a link, and would lead elsewhere")
                if unit := protected(found[len(top) :]):
                    return Finding(subject, "ask", f"{'/'.join(unit)} is in it, and protected")
        except _TooMany:
            return Finding(subject, "ask", "too many files in it to look at")
        return Finding(subject, "allow", "nothing protected in it", plain=True)

    def judge_links(self, path: str, cwd: str) -> Finding:
        """Judge reading all files of a folder, wherever links in it lead."""
        place = self.place(path, cwd)
        try:
            for found in self._walk(place.path):
                if self.view.readlink(found) is not None:
                    finding = self.judge(found, "read", cwd)
                    if finding.outcome != "allow":
                        return finding
        except _TooMany:
            return Finding(f"read {place.path}", "ask", "too many files in it to look at")
        return Finding(f"read {place.path}", "allow", "no link leads out of it", plain=True)

    def judge_protected(self, path: str, cwd: str) -> Finding:
        """Judge a path that somebody may write to, for what is protected alone."""
        place = self.place(path, cwd)
        unit = next((u for name in place.names if (u := protected(name))), ())
        if unit and self.judge(path, "write", cwd).outcome != "allow":
            return Finding(f"write {place.path}", "ask", f"{'/'.join(unit)} is protected")
        return Finding(place.path, "allow", "nothing protected", plain=True)

    def exists(self, path: str) -> bool:
        return self.view.lstat(path) is not None

    def _leads_out(self, path: str, top: str) -> bool:
        """Whether it is a link that would not mean the same if `top` were another folder."""
        target = self.view.readlink(path)
        if target is None:
            return False
        # Behind another link, `..` would not be what the text says.
        plain = _RELATIVE.fullmatch(target) and inside(normpath(f"{path}/../{target}"), (top,))
        return path == top or not plain

    def _held(self, place: Place) -> str:
        """What a folder holds that must not be changed along with the rest of it."""
        for root in self.situation.roots:
            if inside(root, (place.path,)):
                return "the workspace"
        names = self.view.names(place.path)
        if names is None:
            return "more than can be looked at"
        return next((name for name in names if protected(name)), "")

    def _read(self, place: Place, subject: str, allow: tuple[Rule, ...], named: bool) -> Finding:
        if named:
            return Finding(subject, "allow", "named by the rule for the command")
        unit = next((u for name in place.names if (u := secret(name))), ())
        if not unit and place.inode and self._other_name_of_secret(place):
            unit = ("hard link",)
        for rule in allow:
            body = rule.body
            if isinstance(body, PathPattern):
                if body.allows(place.path) and (not unit or body.names(unit)):
                    return Finding(subject, "allow", f"rule {rule.text}", rule.text, plain=True)
            elif not unit:
                return Finding(subject, "allow", f"rule {rule.text}", rule.text, plain=True)
        if unit:
            return Finding(subject, "ask", f"{unit[-1]} may hold secrets")
        if inside(place.path, self.situation.roots):
            return Finding(subject, "allow", "inside the workspace", plain=True)
        return Finding(subject, "ask", "outside the workspace")

    def _write(self, place: Place, subject: str, allow: tuple[Rule, ...]) -> Finding:
        if any("/-" in place.path[len(root) :] for root in self.situation.roots):
            return Finding(subject, "ask", "its name is an option to other programs")
        unit = next((u for name in place.names if (u := protected(name) or secret(name))), ())
        within = inside(place.path, self.situation.roots)
        if not unit and place.inode:
            return Finding(subject, "ask", "the file has other names (hard links)")
        for rule in allow:
            body = rule.body
            if isinstance(body, PathPattern):
                covers = body.allows(place.path)
                if unit:
                    covers = covers and body.names(unit)
                    covers = covers and (body.literal or not own_config(place.path))
            else:
                covers = within and not unit
            if covers:
                return Finding(subject, "allow", f"rule {rule.text}", rule.text)
        if unit:
            return Finding(subject, "ask", f"{'/'.join(unit)} is protected: it makes programs run")
        if within and self.situation.edits_granted:
            return Finding(subject, "allow", "edits inside the workspace are accepted")
        where = "" if within else ", and outside the workspace"
        return Finding(subject, "ask", f"no rule allows writing it{where}")

    # ---------------------------------------------------------------- forbidding

    def _forbids(self, rule: Rule, place: Place) -> bool:
        body = rule.body
        if not isinstance(body, PathPattern):
            return True
        if any(body.forbids(name) for name in place.names):
            return True
        return place.inode is not None and self._same_file(body, place)

    def _same_file(self, pattern: PathPattern, place: Place) -> bool:
        """Whether a file with several names is one that the pattern forbids, as far as looked."""
        for glob in pattern.fixed():
            if pattern.literal:
                candidates: Iterable[str] = (glob,)
            elif inside(glob, self.situation.roots) or inside(glob, (self.situation.home,)):
                candidates = self._walk(glob)
            else:
                continue
            with suppress(_TooMany):
                for candidate in candidates:
                    status = self.view.lstat(candidate)
                    if (
                        status is not None
                        and (status.st_dev, status.st_ino) == place.inode
                        and (pattern.literal or pattern.forbids(candidate))
                    ):
                        return True
        return False

    def _walk(self, folder: str) -> Iterator[str]:
        """The files beneath a folder; _TooMany after the first thousands."""
        todo, seen = [folder], 0
        while todo:
            here = todo.pop()
            names = self.view.names(here)
            if names is None or seen > _WALK_LIMIT:
                raise _TooMany
            for name in names:
                seen += 1
                path = f"{here}/{name}"
                status = self.view.lstat(path)
                if status is not None and stat.S_ISDIR(status.st_mode):
                    todo.append(path)
                else:
                    yield path

    def _other_name_of_secret(self, place: Place) -> bool:
        places = [self.situation.root, f"{self.situation.home}/.ssh", self.situation.home]
        for folder in places:
            for name in self.view.names(folder) or ():
                path = f"{folder}/{name}"
                if secret(path):
                    status = self.view.lstat(path)
                    if status and (status.st_dev, status.st_ino) == place.inode:
                        return True
        return False

    def _forbidden_beneath(self, rule: Rule, place: Place, outcome: Outcome) -> Outcome | None:
        """What a rule says of a command that reads all of a folder."""
        body = rule.body
        if not isinstance(body, PathPattern):
            return None
        for fixed in body.fixed():
            beneath = inside(fold(fixed), (fold(place.path),))
            if body.literal:
                if beneath and self.view.lstat(fixed) is not None:
                    return outcome
            elif (beneath and self.view.lstat(fixed) is not None) or inside(place.path, (fixed,)):
                return "ask"
        return None


def _about(rule: Rule, tool: str) -> bool:
    if tool != "write":
        return rule.tool in ("read", tool)
    return rule.tool in ("write", "edit", "multiedit", "applypatch", "notebookedit")
