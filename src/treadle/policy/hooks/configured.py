"""What settings say of hooks: at which event, for which tools, which command, how long.

    {"hooks": {"PreToolUse": [{"matcher": "Bash|Edit", "hooks": [
        {"type": "command", "command": "./check.sh", "timeout": 60}]}]}}

A misspelt event or a matcher that is no pattern is an error with file and line: a hook that
nobody asks would be a guard that is not there. This reads; it runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.contracts.hook import HookPoint, Moment
from treadle.core.errors import ConfigError
from treadle.policy.settingsfile import line_of, read_settings

EVENTS: Mapping[str, HookPoint] = {
    "SessionStart": "session_start",
    "UserPromptSubmit": "user_prompt_submit",
    "PreToolUse": "pre_tool_use",
    "PermissionRequest": "permission_request",
    "PostToolUse": "post_tool_use",
    "PreCompact": "pre_compact",
    "SubagentStop": "subagent_stop",
    "Stop": "stop",
    "Notification": "notification",
    "SessionEnd": "session_end",
}
DEFAULT_TIMEOUT = 60.0

# What the well-known tools are called in other agents' settings, where it is not just the case.
KNOWN_NAMES = {"web_fetch": "WebFetch", "todo": "TodoWrite", "apply_patch": "ApplyPatch"}

# What a matcher is compared with at points that are not about a tool.
SUBJECTS: Mapping[HookPoint, tuple[str, str]] = {
    "session_start": ("source", "startup"),
    "pre_compact": ("trigger", "auto"),
    "subagent_stop": ("agent_type", "general"),
    "notification": ("notification_type", ""),
    "session_end": ("reason", "other"),
}


class HookCommand(msgspec.Struct, frozen=True):
    """One command of the settings. `slot` is its place among those of its event in its file.

    One `of_folder` is a project's, which the user approved; the others are the user's own.
    """

    event: str
    command: str
    matcher: str = ""
    timeout: float = DEFAULT_TIMEOUT
    origin: str = ""
    slot: int = 0
    of_folder: bool = False

    @property
    def point(self) -> HookPoint:
        return EVENTS[self.event]

    @property
    def name(self) -> str:
        """What an approval is kept under; the same when the command changes."""
        return f"{Path(self.origin).name}/{self.event}/{self.slot}"

    @property
    def definition(self) -> dict[str, Any]:
        """What an approval is bound to."""
        return {
            "event": self.event,
            "matcher": self.matcher,
            "command": self.command,
            "timeout": self.timeout,
        }

    def concerns(self, moment: Moment) -> bool:
        """Whether this moment is what the matcher asks for."""
        if self.matcher in ("", "*"):
            return True
        return any(_pattern(self.matcher).fullmatch(name) for name in subjects(moment))


def subjects(moment: Moment) -> Sequence[str]:
    """What a matcher is compared with: the tool's names, or what the point is about."""
    if "tool_name" in moment.data:
        name = str(moment.data["tool_name"])
        return (name, known_name(name))
    key, usual = SUBJECTS.get(moment.point, ("", ""))
    return (str(moment.data.get(key) or usual),)


def known_name(name: str) -> str:
    """A tool's name as scripts written for other agents spell it: `Bash` for `bash`."""
    if name.startswith("mcp__"):
        return name
    return KNOWN_NAMES.get(name) or name[:1].upper() + name[1:]


def hooks_of_file(file: Path, within: Path | None = None) -> list[HookCommand]:
    """The hooks of a settings file; no file means none, a wrong one is a ConfigError.

    A file of the folder `within` is not read where a link leads out of it.
    """
    settings, text = read_settings(file, within)
    return read_hooks(settings, str(file), text)


def read_hooks(settings: Mapping[str, Any], origin: str, text: str = "") -> list[HookCommand]:
    """The hooks of settings that were parsed; `text` is where lines are looked up."""
    return list(_commands(settings.get("hooks", {}), _Place(origin, text)))


class _Place:
    """Says where in a file something is wrong."""

    def __init__(self, origin: str, text: str) -> None:
        self.origin = origin
        self._text = text

    def wrong(self, near: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.origin}:{line_of(self._text, near)}: {problem}")


def _commands(hooks: object, place: _Place) -> Iterator[HookCommand]:
    if not isinstance(hooks, Mapping):
        raise place.wrong("hooks", "hooks has to be an object of events")
    for event, groups in hooks.items():
        if event not in EVENTS:
            close = get_close_matches(str(event), list(EVENTS), n=1, cutoff=0.6)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(EVENTS)}"
            raise place.wrong(str(event), f"no hook event is called {event!r}{hint}")
        if not isinstance(groups, list):
            raise place.wrong(event, f"hooks.{event} has to be a list")
        slot = 0
        for group in groups:
            for command in _group(event, group, place):
                yield msgspec.structs.replace(command, slot=slot)
                slot += 1


def _group(event: str, group: object, place: _Place) -> Iterator[HookCommand]:
    if not isinstance(group, Mapping) or not isinstance(group.get("hooks"), list):
        raise place.wrong(event, f'hooks.{event}: each entry is {{"matcher": …, "hooks": […]}}')
    matcher = group.get("matcher") or ""
    if not isinstance(matcher, str):
        raise place.wrong(event, f"hooks.{event}: matcher has to be a text")
    try:
        _pattern(matcher if matcher != "*" else "")
    except re.error as error:
        problem = f"hooks.{event}: the matcher {matcher!r} is no pattern ({error})"
        raise place.wrong(matcher, problem) from error
    for entry in group["hooks"]:
        yield _entry(event, matcher, entry, place)


def _entry(event: str, matcher: str, entry: object, place: _Place) -> HookCommand:
    if not isinstance(entry, Mapping):
        raise place.wrong(event, f"hooks.{event}: each hook is an object")
    kind, command = entry.get("type", "command"), entry.get("command")
    if kind != "command":
        raise place.wrong(event, f"hooks.{event}: type {kind!r} is not known; it is `command`")
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise place.wrong(event, f"hooks.{event}: a hook needs a command")
    timeout = entry.get("timeout", DEFAULT_TIMEOUT)
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= 86_400:
        raise place.wrong(command, f"hooks.{event}: timeout is {timeout!r}; it is seconds above 0")
    return HookCommand(event, command, matcher, float(timeout), place.origin)


@lru_cache(maxsize=256)
def _pattern(matcher: str) -> re.Pattern[str]:
    """A `|` list is a pattern too; spaces around its names are no part of them."""
    tidy = "|".join(part.strip() for part in matcher.split("|"))
    return re.compile(tidy, re.IGNORECASE)
