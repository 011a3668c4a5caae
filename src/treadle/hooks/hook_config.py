"""Hooks in settings: the event, the matcher, what runs, the timeout.

    {"hooks": {"PreToolUse": [{"matcher": "Bash|Edit", "hooks": [
        {"type": "command", "command": "./check.sh", "timeout": 60},
        {"type": "http", "url": "https://hooks.example/check"},
        {"type": "prompt", "prompt": "Does this delete data? $ARGUMENTS"}]}]}}

A misspelt event or an invalid matcher is an error with file and line: such a hook would never
run, and would not guard anything. In a file that was written for Claude Code it is a note: that
program knows more events and types. Reads only; command_hook.py runs the hooks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from treadle.core.contracts.hook import HookInput, HookPoint
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import find_line, read_settings_file
from treadle.lib.text.text import suggest
from treadle.lib.text.word_set import word_set

HOOK_EVENTS: Mapping[str, HookPoint] = {
    "SessionStart": "session_start",
    "SubagentStart": "subagent_start",
    "UserPromptSubmit": "user_prompt_submit",
    "PreToolUse": "pre_tool_use",
    "PermissionRequest": "permission_request",
    "PermissionDenied": "permission_denied",
    "PostToolUseFailure": "post_tool_use",
    "PostToolUse": "post_tool_use",
    "PreCompact": "pre_compact",
    "PostCompact": "post_compact",
    "InstructionsLoaded": "instructions_loaded",
    "FileChanged": "file_changed",
    "ConfigChange": "config_change",
    "SubagentStop": "subagent_stop",
    "Stop": "stop",
    "StopFailure": "stop_failure",
    "Notification": "notification",
    "SessionEnd": "session_end",
}
# Events of Claude Code that have no counterpart here.
UNSUPPORTED_EVENTS = word_set(
    "CwdChanged DirectoryAdded Elicitation ElicitationResult MessageDisplay PostModelSwitch "
    "PostToolBatch PreModelSwitch Setup TaskCompleted TaskCreated TeammateIdle "
    "UserPromptExpansion WorktreeCreate WorktreeRemove"
)
DEFAULT_TIMEOUT = 60.0
FOREIGN_TIMEOUT = 600.0  # of a hook that was written for Claude Code
PROMPT_TIMEOUT = 30.0
HookKind = Literal["command", "http", "prompt"]
# The field of each kind that says what runs.
_KIND_FIELDS: Mapping[str, str] = {"command": "command", "http": "url", "prompt": "prompt"}
# Where a prompt has an effect: it can only object.
_PROMPT_POINTS = word_set(
    "pre_tool_use permission_request post_tool_use user_prompt_submit stop subagent_stop"
)

FOREIGN_FOLDER = ".claude"
_COMMAND_END = re.compile(r"&&|\|\||[;|\n]")

# Tool names in the settings of other agents, where they differ in more than case.
HOOK_TOOL_NAMES = {
    "web_fetch": "WebFetch", "web_search": "WebSearch", "todo": "TodoWrite",
    "apply_patch": "ApplyPatch", "notebook_edit": "NotebookEdit", "rename_symbol": "RenameSymbol",
}  # fmt: skip
# A hook for edits is also one for the tools that change several files.
HOOK_TOOL_ALIASES = {
    "apply_patch": ("Edit", "Write", "MultiEdit"), "edit": ("MultiEdit",), "task": ("Agent",),
    "rename_symbol": ("Edit", "Write", "MultiEdit"),
    "task_input": ("Bash",),  # what is typed into a shell is a command, too
}  # fmt: skip
_EDITING_TOOLS = frozenset({"edit", "write", "apply_patch", "notebook_edit", "rename_symbol"})

# The field that a matcher is compared with at points without a tool, and its default.
MATCHER_FIELDS: Mapping[HookPoint, tuple[str, str]] = {
    "session_start": ("source", "startup"),
    "subagent_start": ("agent_type", "general"),
    "pre_compact": ("trigger", "auto"),
    "post_compact": ("trigger", "auto"),
    "instructions_loaded": ("load_reason", "session_start"),
    "file_changed": ("file_path", ""),
    "config_change": ("source", "user_settings"),
    "subagent_stop": ("agent_type", "general"),
    "notification": ("notification_type", ""),
    "session_end": ("reason", "other"),
}


class HookConfig(msgspec.Struct, frozen=True):
    """One hook of the settings. `command` is the command line, the URL or the prompt, by its kind.

    headers    of the request; $NAME in them is a variable of the environment
    variables  those that headers may use
    model      the name of the model that judges a prompt; "": the small one
    """

    event: str
    command: str
    matcher: str = ""
    timeout: float = DEFAULT_TIMEOUT
    origin: str = ""
    index: int = 0  # among the commands of its event in its file
    is_project: bool = False  # an approved hook of the project, not one of the user
    condition: str = ""  # a rule, such as Bash(git *): only such calls
    kind: HookKind = "command"
    headers: Mapping[str, str] = {}
    variables: tuple[str, ...] = ()
    model: str = ""
    plugin_root: str = ""  # the folder of the plugin that has it
    is_background: bool = False  # `"async": true`: nobody waits for it, and it cannot answer

    @property
    def point(self) -> HookPoint:
        return HOOK_EVENTS[self.event]

    @property
    def name(self) -> str:
        """The name of an approval; it does not change with the command."""
        file = Path(self.origin)
        place = f"{file.parent.name}/{file.name}" if self.is_foreign else file.name
        return f"{place}/{self.event}/{self.index}"

    @property
    def is_foreign(self) -> bool:
        """Whether it was written for Claude Code, and expects what that program does."""
        return bool(self.plugin_root) or Path(self.origin).parent.name == FOREIGN_FOLDER

    @property
    def definition(self) -> dict[str, Any]:
        """The content that an approval is for."""
        keys = ("event", "matcher", "timeout", *(("condition",) * bool(self.condition)))
        content = {key: getattr(self, key) for key in keys}
        content[_KIND_FIELDS[self.kind]] = self.command
        if self.kind != "command":
            content |= {"headers": dict(self.headers), "variables": list(self.variables)}
            content["model"] = self.model
        if self.is_background:
            content["async"] = True
        return content

    def matches(self, hook_input: HookInput) -> bool:
        """Whether the event, the matcher and the condition select this input."""
        return self.matches_tool(hook_input) and self.matches_call(hook_input)

    def matches_tool(self, hook_input: HookInput) -> bool:
        """Whether the event and the matcher select it."""
        is_error = bool(hook_input.data.get("is_error"))
        if self.event == "PostToolUseFailure" and not is_error:
            return False
        if self.event == "PostToolUse" and self.is_foreign and is_error:
            return False  # there this event is about calls that succeeded
        if self.matcher in ("", "*"):
            return True
        return any(map(_compile_matcher(self.matcher).fullmatch, _list_subjects(hook_input)))

    def matches_call(self, hook_input: HookInput) -> bool:
        """Whether the condition selects it."""
        return matches_condition(self.condition, hook_input)

    def names_tool(self, tool: str) -> bool:
        """Whether the matcher has the tool's own name in its list."""
        names = {name.strip().casefold() for name in self.matcher.split("|")}
        return not names.isdisjoint({tool, to_hook_tool_name(tool).casefold()})


def _list_subjects(hook_input: HookInput) -> Sequence[str]:
    """What a matcher is compared with: the names of the tool, or the field of the point; of a path
    also its last part."""
    if "tool_name" in hook_input.data:
        name = str(hook_input.data["tool_name"])
        return (name, to_hook_tool_name(name), *HOOK_TOOL_ALIASES.get(name, ()))
    key, default = MATCHER_FIELDS.get(hook_input.point, ("", ""))
    value = str(hook_input.data.get(key) or default)
    return (value, Path(value).name) if key == "file_path" else (value,)


def to_hook_tool_name(name: str) -> str:
    """A tool's name as scripts written for other agents spell it: `Bash` for `bash`."""
    if name.startswith("mcp__"):
        return name
    return HOOK_TOOL_NAMES.get(name) or name[:1].upper() + name[1:]


def matches_condition(condition: str, hook_input: HookInput) -> bool:
    """Whether a call is one that the rule describes: `Bash(git *)`, `Edit(*.ts)`, `Write`. As in
    rules, `Edit` means every tool that changes files."""
    if not condition or "tool_name" not in hook_input.data:
        return True
    name, _, pattern = condition.removesuffix(")").partition("(")
    names = {one.casefold() for one in _list_subjects(hook_input)}
    if not _EDITING_TOOLS.isdisjoint(names):
        names.add("edit")
    if name.strip().casefold() not in names:
        return False
    arguments = hook_input.data.get("tool_input", {})
    if not pattern:
        return True
    if hook_input.data["tool_name"] == "task_input":
        arguments = {"command": arguments.get("text", "")}
    if "command" in arguments:
        pattern = f"{pattern[:-2]}*" if pattern.endswith(":*") else pattern
        parts = [part.strip() for part in _COMMAND_END.split(str(arguments["command"]))]
        return any(fnmatchcase(part, pattern) or part == pattern[:-2] for part in parts)
    path = str(arguments.get("file_path") or arguments.get("path") or "")
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"*/{pattern}")


def read_hooks_file(
    file: Path,
    within: Path | None = None,
    problems: list[str] | None = None,
    unsupported: list[str] | None = None,
) -> list[HookConfig]:
    """The hooks of a settings file; none without a file, ConfigError if it is wrong.

    With `within`, a symlink out of that folder is not followed. The lists: see `parse_hooks`.
    """
    settings, text = read_settings_file(file, within)
    return parse_hooks(settings, str(file), text, problems, unsupported)


def parse_hooks(
    settings: Mapping[str, Any],
    origin: str,
    text: str = "",
    problems: list[str] | None = None,
    unsupported: list[str] | None = None,
) -> list[HookConfig]:
    """The hooks of parsed settings; `text` is the file, for line numbers.

    With `problems`, an event or a hook that is wrong or not known is left out, with a line there;
    an event that only Claude Code has gets its line in `unsupported`.
    """
    location = _SettingsText(origin, text, problems, unsupported)
    if settings.get("disableAllHooks") is True:
        return []
    return list(_parse_events(settings.get("hooks", {}), location))


class _SettingsText(NamedTuple):
    """The file of the settings, for errors with file and line."""

    origin: str
    text: str
    problems: list[str] | None
    unsupported: list[str] | None

    def make_error(self, near: str, problem: str) -> ConfigError:
        return ConfigError(f"{self.origin}:{find_line(self.text, near)}: {problem}")

    def report(self, error: ConfigError) -> None:
        """Raise the error, or note it where errors are left out."""
        if self.problems is None:
            raise error
        self.problems.append(f"{error}; it is not used")

    def skip_unsupported(self, event: str) -> bool:
        """Whether the event is left out because only Claude Code has it."""
        if self.unsupported is None or event not in UNSUPPORTED_EVENTS:
            return False
        line = f"{self.origin}:{find_line(self.text, event)}"
        self.unsupported.append(f"{line}: hooks for {event} are not run here")
        return True


def _parse_events(hooks: object, location: _SettingsText) -> Iterator[HookConfig]:
    if not isinstance(hooks, Mapping):
        location.report(location.make_error("hooks", "hooks must be an object of events"))
        return
    for event, groups in hooks.items():
        if location.skip_unsupported(str(event)):
            continue
        if event not in HOOK_EVENTS:
            close = suggest(str(event), HOOK_EVENTS)
            hint = f"did you mean {close}?" if close else f"known events: {', '.join(HOOK_EVENTS)}"
            problem = f"unknown hook event {event!r}"
            problem += f"; {hint}" if location.problems is None else ""
            location.report(location.make_error(str(event), problem))
            continue
        if not isinstance(groups, list):
            location.report(location.make_error(event, f"hooks.{event} must be a list"))
            continue
        commands = (c for group in groups for c in _parse_group(event, group, location))
        for index, command in enumerate(commands):
            yield msgspec.structs.replace(command, index=index)


def _parse_group(event: str, group: object, location: _SettingsText) -> Iterator[HookConfig]:
    if not isinstance(group, Mapping) or not isinstance(group.get("hooks"), list):
        problem = f'hooks.{event}: each entry is {{"matcher": …, "hooks": […]}}'
        location.report(location.make_error(event, problem))
        return
    matcher = group.get("matcher") or ""
    if not isinstance(matcher, str):
        location.report(location.make_error(event, f"hooks.{event}: matcher must be a string"))
        return
    try:
        _compile_matcher(matcher if matcher != "*" else "")
    except re.error as error:
        problem = f"hooks.{event}: the matcher {matcher!r} is not a valid pattern ({error})"
        location.report(location.make_error(matcher, problem))
        return
    for entry in group["hooks"]:
        try:
            yield _parse_entry(event, matcher, entry, location)
        except ConfigError as error:
            location.report(error)


def _parse_entry(event: str, matcher: str, entry: object, location: _SettingsText) -> HookConfig:
    if not isinstance(entry, Mapping):
        raise location.make_error(event, f"hooks.{event}: each hook is an object")
    kind = entry.get("type", "command")
    if not isinstance(kind, str) or kind not in _KIND_FIELDS:
        types = ", ".join(_KIND_FIELDS)
        problem = f"hooks.{event}: there is no hook of the type {kind!r}; the types are {types}"
        raise location.make_error(event, problem)
    field = _KIND_FIELDS[kind]
    command = entry.get(field)
    if not isinstance(command, str) or not command.strip() or "\0" in command:
        problem = f"hooks.{event}: a hook of the type {kind} needs a {field}"
        raise location.make_error(event, problem)
    is_foreign = location.problems is not None
    default = FOREIGN_TIMEOUT if is_foreign else DEFAULT_TIMEOUT
    timeout = entry.get("timeout", PROMPT_TIMEOUT if kind == "prompt" else default)
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= 86_400:
        problem = f"hooks.{event}: timeout is {timeout!r}; it must be seconds above 0"
        raise location.make_error(command, problem)
    problem = _check_kind(event, kind, command, entry)
    if problem:
        raise location.make_error(command, f"hooks.{event}: {problem}")
    return HookConfig(
        event,
        command,
        matcher,
        float(timeout),
        location.origin,
        condition=str(entry.get("if") or "").strip(),
        kind=msgspec.convert(kind, HookKind),
        headers=dict(entry.get("headers") or {}) if kind == "http" else {},
        variables=tuple(entry.get("allowedEnvVars") or ()) if kind == "http" else (),
        model=str(entry.get("model") or "") if kind == "prompt" else "",
        # As in Claude Code, for commands only.
        is_background=kind == "command" and True in (entry.get("async"), entry.get("asyncRewake")),
    )


def _check_kind(event: str, kind: str, command: str, entry: Mapping[str, Any]) -> str:
    """What is wrong with the fields of this kind, or ""."""
    if kind == "prompt" and HOOK_EVENTS[event] not in _PROMPT_POINTS:
        return "a hook of the type prompt has no effect at this event"
    if kind != "http":
        return ""
    try:
        url = urlsplit(command)
        host = url.hostname or ""
    except ValueError as error:
        return f"the url is not valid: {error}"
    if not host or not (url.scheme == "https" or (url.scheme == "http" and _is_loopback(host))):
        return "the url must begin with https://, or with http:// for this machine (localhost)"
    headers, variables = entry.get("headers") or {}, entry.get("allowedEnvVars") or []
    if not isinstance(headers, Mapping) or not all(isinstance(v, str) for v in headers.values()):
        return "headers must be an object of texts"
    if not isinstance(variables, list) or not all(isinstance(name, str) for name in variables):
        return "allowedEnvVars must be a list of names"
    return ""


def _is_loopback(host: str) -> bool:
    is_address = host.startswith("127.") and host.replace(".", "").isdigit()
    return host in ("localhost", "::1") or is_address


@lru_cache(maxsize=256)
def _compile_matcher(matcher: str) -> re.Pattern[str]:
    """A `|` list is a pattern too; spaces around its names are ignored."""
    pattern = "|".join(part.strip() for part in matcher.split("|"))
    return re.compile(pattern, re.IGNORECASE)
