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

from treadle.core.contracts.hook import HookInput, HookPoint
from treadle.core.errors import ConfigError
from treadle.policy.settings_file import find_line, read_settings_file

HOOK_EVENTS: Mapping[str, HookPoint] = {
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
HOOK_TOOL_NAMES = {"web_fetch": "WebFetch", "todo": "TodoWrite", "apply_patch": "ApplyPatch"}

# What a matcher is compared with at points that are not about a tool.
MATCHER_FIELDS: Mapping[HookPoint, tuple[str, str]] = {
    "session_start": ("source", "startup"),
    "pre_compact": ("trigger", "auto"),
    "subagent_stop": ("agent_type", "general"),
    "notification": ("notification_type", ""),
    "session_end": ("reason", "other"),
}


class HookConfig(msgspec.Struct, frozen=True):
    """One command of the settings. `slot` is its place among those of its event in its file.

    One `of_folder` is a project's, which the user approved; the others are the user's own.
    """

    event: str
    command: str
    matcher: str = ""
    timeout: float = DEFAULT_TIMEOUT
    origin: str = ""
    index: int = 0
    is_project: bool = False

    @property
    def point(self) -> HookPoint:
        return HOOK_EVENTS[self.event]

    @property
    def name(self) -> str:
        """What an approval is kept under; the same when the command changes."""
        return f"{Path(self.origin).name}/{self.event}/{self.index}"

    @property
    def definition(self) -> dict[str, Any]:
        """What an approval is bound to."""
        return {
            "event": self.event,
            "matcher": self.matcher,
            "command": self.command,
            "timeout": self.timeout,
        }

    def matches(self, hook_input: HookInput) -> bool:
        """Whether this moment is what the matcher asks for."""
        if self.matcher in ("", "*"):
            return True
        return any(
            _compile_matcher(self.matcher).fullmatch(name)
            for name in list_matcher_subjects(hook_input)
        )


def list_matcher_subjects(hook_input: HookInput) -> Sequence[str]:
    """What a matcher is compared with: the tool's names, or what the point is about."""
    if "tool_name" in hook_input.data:
        name = str(hook_input.data["tool_name"])
        return (name, to_hook_tool_name(name))
    key, usual = MATCHER_FIELDS.get(hook_input.point, ("", ""))
    return (str(hook_input.data.get(key) or usual),)


def to_hook_tool_name(name: str) -> str:
    """A tool's name as scripts written for other agents spell it: `Bash` for `bash`."""
    if name.startswith("mcp__"):
        return name
    return HOOK_TOOL_NAMES.get(name) or name[:1].upper() + name[1:]


def read_hooks_file(file: Path, within: Path | None = None) -> list[HookConfig]:
    """The hooks of a settings file; no file means none, a wrong one is a ConfigError.

    A file of the folder `within` is not read where a link leads out of it.
    """
    settings, text = read_settings_file(file, within)
    return parse_hooks(settings, str(file), text)


def parse_hooks(settings: Mapping[str, Any], origin: str, text: str = "") -> list[HookConfig]:
    """The hooks of settings that were parsed; `text` is where lines are looked up."""
    return list(_parse_events(settings.get("hooks", {}), _ErrorLocation(origin, text)))


class _ErrorLocation:
    """Says where in a file something is wrong."""

    def __init__(self, origin: str, text: str) -> None:
        self.origin = origin
        self._text = text

    def make_error(self, near: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.origin}:{find_line(self._text, near)}: {problem}")


def _parse_events(hooks: object, location: _ErrorLocation) -> Iterator[HookConfig]:
    if not isinstance(hooks, Mapping):
        raise location.make_error("hooks", "hooks has to be an object of events")
    for event, groups in hooks.items():
        if event not in HOOK_EVENTS:
            close = get_close_matches(str(event), list(HOOK_EVENTS), n=1, cutoff=0.6)
            hint = (
                f"; did you mean {close[0]}?" if close else f"; there are {', '.join(HOOK_EVENTS)}"
            )
            raise location.make_error(str(event), f"no hook event is called {event!r}{hint}")
        if not isinstance(groups, list):
            raise location.make_error(event, f"hooks.{event} has to be a list")
        slot = 0
        for group in groups:
            for command in _parse_group(event, group, location):
                yield msgspec.structs.replace(command, index=slot)
                slot += 1


def _parse_group(event: str, group: object, location: _ErrorLocation) -> Iterator[HookConfig]:
    if not isinstance(group, Mapping) or not isinstance(group.get("hooks"), list):
        raise location.make_error(
            event, f'hooks.{event}: each entry is {{"matcher": …, "hooks": […]}}'
        )
    matcher = group.get("matcher") or ""
    if not isinstance(matcher, str):
        raise location.make_error(event, f"hooks.{event}: matcher has to be a text")
    try:
        _compile_matcher(matcher if matcher != "*" else "")
    except re.error as error:
        problem = f"hooks.{event}: the matcher {matcher!r} is no pattern ({error})"
        raise location.make_error(matcher, problem) from error
    for entry in group["hooks"]:
        yield _parse_entry(event, matcher, entry, location)


def _parse_entry(event: str, matcher: str, entry: object, location: _ErrorLocation) -> HookConfig:
    if not isinstance(entry, Mapping):
        raise location.make_error(event, f"hooks.{event}: each hook is an object")
    kind, command = entry.get("type", "command"), entry.get("command")
    if kind != "command":
        raise location.make_error(
            event, f"hooks.{event}: type {kind!r} is not known; it is `command`"
        )
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        raise location.make_error(event, f"hooks.{event}: a hook needs a command")
    timeout = entry.get("timeout", DEFAULT_TIMEOUT)
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= 86_400:
        raise location.make_error(
            command, f"hooks.{event}: timeout is {timeout!r}; it is seconds above 0"
        )
    return HookConfig(event, command, matcher, float(timeout), location.origin)


@lru_cache(maxsize=256)
def _compile_matcher(matcher: str) -> re.Pattern[str]:
    """A `|` list is a pattern too; spaces around its names are no part of them."""
    tidy = "|".join(part.strip() for part in matcher.split("|"))
    return re.compile(tidy, re.IGNORECASE)
