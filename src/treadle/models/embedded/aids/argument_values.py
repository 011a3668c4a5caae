"""The possible values of arguments, from the words of the request.

A weak model then chooses a value instead of writing one: the grammar allows only the choices of a
field. If the request has no fitting value, the field stays free. Pure functions. Used by
tool_choice.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from treadle.models.embedded.few_shot import STOP_WORDS, extract_features, rank_examples
from treadle.models.embedded.small_toolset import ArgumentField, SmallTool

MAX_SPANS = 60
MAX_COMMANDS = 2
MIN_COMMAND_SCORE = 0.2  # the command of another request is not this one's
MAX_SPAN_WORDS = 4
MAX_EDIT_LINES = 200

_FILE = re.compile(r"(?<![\w/.-])[\w./-]*\w\.[A-Za-z]\w{0,5}(?![\w/])")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]*)+")
_FOLDER = re.compile(r"\b(?:folder|directory)\s+(?:called\s+|named\s+)?([\w.-]+)", re.IGNORECASE)
_NAMED_FOLDER = re.compile(r"\b([\w.-]+)\s+(?:folder|directory)\b", re.IGNORECASE)
_PROGRAM = re.compile(
    r"\b((?:python3?|pytest|make|npm|npx|node|pip|uv|cargo|go|docker|sh|bash|ls|cat|"
    r"git (?:status|log|diff|show|add|commit|push|pull|branch|checkout|fetch|clone|init))\b[^`\n]*)"
)
# A command that only shows something.
LOOK_COMMAND = re.compile(
    r"\s*(?:cat|cd|diff|echo|find|grep|head|ls|pwd|rg|tail|wc|which|pytest|"
    r"git (?:diff|log|show|status)|python3? -m (?:pytest|unittest)|python3? --version)\b[^>]*"
)
# "make" and "go" are words of other requests, too.
_RUN_PROGRAM = re.compile(rf"(?i:\b(?:run|execute|start|with)\s+){_PROGRAM.pattern}")
_CODE_NAME = re.compile(r"\b(?:\w+_\w+|[a-z]+[A-Z]\w*|(?:[A-Z][a-z0-9]+){2,})\b")
_REPLACEMENT = re.compile(
    r"\b(?:replace|change|rename|swap|turn)\s+(?:every\s+|the word\s+)?(.+?)\s+"
    r"(?:by|with|to|into|for)\s+(.+?)(?:\s+in\s+\S+)?$",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"\b(?:containing|contains|with|saying|says)\s+(?:the\s+)?(?:words?\s+|text\s+|content\s+)?(.+)$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"[\"'`]([^\"'`]+)[\"'`]")
_GROUNDED_FIELDS = frozenset({"pattern", "old", "new", "content", "command"})
_RENAMING = re.compile(r"\b(?:rename|replace)\b", re.IGNORECASE)
_WORD = re.compile(r"\w{3,}")
_NOT_A_VALUE = STOP_WORDS | frozenset(
    re.split(
        " ",
        "these by where which what who how does do all every word file files folder directory its "
        "their code source current whole entire same your our",
    )
)


def find_request_files(user_text: str) -> list[str]:
    """File names in a request."""
    return list(dict.fromkeys(match.rstrip(".") for match in _FILE.findall(user_text)))


def constrain_arguments(tool: SmallTool, user_text: str) -> SmallTool:
    """The same tool, its fields limited to values from the request."""
    fields = tuple(_constrain_field(field, tool.short_name, user_text) for field in tool.fields)
    return msgspec.structs.replace(tool, fields=fields)


def _constrain_field(field: ArgumentField, tool: str, user_text: str) -> ArgumentField:
    match field.short_name:
        case "path" if tool == "ls":
            values = _find_folders(user_text) or ["."]
        case "path":
            values = find_request_files(user_text) or _PATH.findall(user_text)
        case "pattern" if tool == "grep":
            values = _CODE_NAME.findall(user_text) or _find_spans(user_text)
        case "old" | "new":
            match = _REPLACEMENT.search(_strip_punctuation(user_text))
            group = 1 if field.short_name == "old" else 2
            values = [match[group].strip("`'\"")] if match else []
        case "content":
            content = _CONTENT.search(_strip_punctuation(user_text))
            values = [content[1].strip("`'\"") + "\n"] if content else []
        case "command":
            command = _PROGRAM.search(_strip_punctuation(user_text))
            values = [command[1].strip("`'\"")] if command else _find_commands(user_text)
        case _:
            values = []
    return msgspec.structs.replace(field, choices=tuple(values)) if values else field


def has_values(tool: SmallTool) -> bool:
    """Whether no text that has to be right is left to the model: it would invent it. The pattern
    of a file name is one that it knows how to write."""
    return tool.short_name == "glob" or all(
        field.choices for field in tool.fields if field.short_name in _GROUNDED_FIELDS
    )


def strip_values(user_text: str) -> str:
    """The request without the values that calls take from it."""
    for pattern in (_QUOTED, _REPLACEMENT, _CONTENT, _RUN_PROGRAM):
        user_text = pattern.sub(" ", user_text)
    return user_text


def constrain_edit(tool: SmallTool, user_text: str, sources: Mapping[str, str]) -> SmallTool:
    """The same tool; an edit is limited to the files that were read, and its old text to their
    lines and the names of the request: a small model does not copy a text exactly."""
    if tool.short_name != "edit" or not sources:
        return tool
    text = "\n".join(sources.values())
    lines = list(dict.fromkeys(filter(None, map(str.strip, text.splitlines()))))
    if len(lines) > MAX_EDIT_LINES:
        return tool
    is_renaming = _RENAMING.search(user_text) is not None
    words = dict.fromkeys(_WORD.findall(user_text))
    names = [
        word
        for word in words
        if (is_renaming or _CODE_NAME.fullmatch(word)) and re.search(rf"\b{word}\b", text)
    ]
    choices = {"path": tuple(sources), "old": (*names, *lines)}
    fields = tuple(
        msgspec.structs.replace(field, choices=choices.get(field.short_name, field.choices))
        for field in tool.fields
    )
    return msgspec.structs.replace(tool, fields=fields)


def _strip_punctuation(user_text: str) -> str:
    return user_text.strip().rstrip(".!?")


def _find_commands(user_text: str) -> list[str]:
    """Commands of the most similar examples, with the names of the request; never invented.

    One that may change something needs an example with all the words of the request: who removes
    an import from a file does not remove the file."""
    commands: list[str] = []
    for score, example in rank_examples(user_text, frozenset({"bash"})):
        if example.tool != "bash" or score < MIN_COMMAND_SCORE:
            continue
        command = str(example.arguments["command"])
        theirs = find_request_files(example.user_text) or _find_folders(example.user_text)
        ours = find_request_files(user_text) or _find_folders(user_text)
        if theirs and theirs[0] in command:
            if not ours:
                continue
            command = command.replace(theirs[0], shlex.quote(ours[0]))
        if LOOK_COMMAND.fullmatch(command) or _has_all_words(example.user_text, user_text, ours):
            commands.append(command)
    return commands[:MAX_COMMANDS]


def _has_all_words(example_text: str, user_text: str, names: Sequence[str]) -> bool:
    """Whether a request has no word beside those of an example, and the one name in it."""
    rest = user_text.replace(names[0], " ") if names else user_text
    extra = extract_features(rest).keys() - extract_features(example_text).keys()
    return len(names) <= 1 and not extra


def _find_folders(user_text: str) -> list[str]:
    words = _FOLDER.findall(user_text) + _NAMED_FOLDER.findall(user_text)
    names = [name for name in words if name.lower() not in _NOT_A_VALUE]
    return list(dict.fromkeys(_PATH.findall(user_text) + names))


def _find_spans(user_text: str) -> list[str]:
    """Runs of words that could be literal values; only the quoted ones if there are any."""
    quoted = _QUOTED.findall(user_text)
    if quoted:
        return list(dict.fromkeys(quoted))
    words = [word.rstrip("?!,;:") for word in user_text.split()]
    files = set(find_request_files(user_text))
    spans: dict[str, None] = {}
    for size in range(1, MAX_SPAN_WORDS + 1):
        for start in range(1, len(words) - size + 1):
            run = words[start : start + size]
            ends = {run[0].lower(), run[-1].lower()}
            if files.intersection(run) or ends & _NOT_A_VALUE:
                continue
            spans.setdefault(" ".join(run).rstrip("."), None)
    return list(spans)[:MAX_SPANS]
