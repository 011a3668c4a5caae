"""Arguments out of the request's own words: a weak model picks a name, it does not spell it.

Pure functions. A field of an offer gets the possible values as choices, and the grammar then
allows nothing else; where the request holds nothing that fits, the field stays free.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from treadle.models.embedded.few_shot import STOP_WORDS, rank_examples
from treadle.models.embedded.small_toolset import ArgumentField, SmallTool

MAX_SPANS = 60
MAX_COMMANDS = 2
MAX_SPAN_WORDS = 4

_FILE = re.compile(r"(?<![\w/.-])[\w./-]*\w\.[A-Za-z]\w{0,5}(?![\w/])")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]*)+")
_FOLDER = re.compile(r"\b(?:folder|directory)\s+(?:called\s+|named\s+)?([\w.-]+)", re.IGNORECASE)
_NAMED_FOLDER = re.compile(r"\b([\w.-]+)\s+(?:folder|directory)\b", re.IGNORECASE)
_PROGRAM = re.compile(
    r"\b((?:python3?|pytest|make|npm|npx|node|pip|uv|cargo|go|docker|sh|bash|ls|cat|"
    r"git (?:status|log|diff|show|add|commit|push|pull|branch|checkout|fetch|clone|init))\b.*)$"
)
_NAME = re.compile(r"\b(?:\w+_\w+|[a-z]+[A-Z]\w*|(?:[A-Z][a-z0-9]+){2,})\b")  # as in code
_REPLACEMENT = re.compile(
    r"\b(?:replace|change|rename|swap|turn)\s+(?:every\s+|the word\s+)?(.+?)\s+"
    r"(?:by|with|to|into|for)\s+(.+?)(?:\s+in\s+\S+)?$",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"\b(?:containing|contains|with|saying|says)\s+(?:the\s+)?(?:words?\s+|text\s+|content\s+)?(.+)$",
    re.IGNORECASE,
)
_NOT_A_VALUE = STOP_WORDS | frozenset(
    "these by where which what who how does do all every word file files folder directory its "
    "their code source current whole entire same your our".split()
)


def find_request_files(user_text: str) -> list[str]:
    """File names in a request."""
    return list(dict.fromkeys(match.rstrip(".") for match in _FILE.findall(user_text)))


def constrain_arguments(tool: SmallTool, user_text: str) -> SmallTool:
    """The same offer, its fields limited to what the request holds."""
    fields = tuple(_constrain_field(field, tool.short_name, user_text) for field in tool.fields)
    return msgspec.structs.replace(tool, fields=fields)


def _constrain_field(field: ArgumentField, tool: str, user_text: str) -> ArgumentField:
    match field.short_name:
        case "path" if tool == "ls":
            values = _find_folders(user_text) or ["."]
        case "path":
            values = find_request_files(user_text) or _PATH.findall(user_text)
        case "pattern" if tool == "grep":
            values = _NAME.findall(user_text) or _find_spans(user_text, allow_stop_words=False)
        case "old" | "new":
            exchange = _REPLACEMENT.search(_strip_punctuation(user_text))
            values = (
                [exchange[1 if field.short_name == "old" else 2]]
                if exchange
                else _find_spans(user_text)
            )
        case "content":
            content = _CONTENT.search(_strip_punctuation(user_text))
            values = [content[1].strip("`'\"") + "\n"] if content else []
        case "command":
            command = _PROGRAM.search(_strip_punctuation(user_text))
            values = [command[1].strip("`'\"")] if command else _find_commands(user_text)
        case _:
            values = []
    return msgspec.structs.replace(field, choices=tuple(values)) if values else field


def _strip_punctuation(user_text: str) -> str:
    return user_text.strip().rstrip(".!?")


def _find_commands(user_text: str) -> list[str]:
    """Commands of the nearest examples, at work on what the request names; never invented ones."""
    found: list[str] = []
    for _, example in rank_examples(user_text, frozenset({"bash"})):
        if example.tool != "bash":
            continue
        command = str(example.arguments["command"])
        theirs = find_request_files(example.user_text) or _find_folders(example.user_text)
        ours = find_request_files(user_text) or _find_folders(user_text)
        if theirs and theirs[0] in command:
            if not ours:
                continue
            command = command.replace(theirs[0], shlex.quote(ours[0]))
        found.append(command)
    return found[:MAX_COMMANDS]


def _find_folders(user_text: str) -> list[str]:
    named = _FOLDER.findall(user_text) + _NAMED_FOLDER.findall(user_text)
    found = [name for name in named if name.lower() not in _NOT_A_VALUE]
    return list(dict.fromkeys(_PATH.findall(user_text) + found))


def _find_spans(user_text: str, *, allow_stop_words: bool = True) -> list[str]:
    """Runs of words that could be meant literally; quoted ones alone if there are any."""
    quoted = re.findall(r"[\"'`]([^\"'`]+)[\"'`]", user_text)
    if quoted:
        return list(dict.fromkeys(quoted))
    words = [word.rstrip("?!,;:") for word in user_text.split()]
    files = set(find_request_files(user_text))
    found: dict[str, None] = {}
    for size in range(1, MAX_SPAN_WORDS + 1):
        for start in range(1, len(words) - size + 1):
            run = words[start : start + size]
            at_the_ends = {run[0].lower(), run[-1].lower()}
            if files.intersection(run) or (not allow_stop_words and at_the_ends & _NOT_A_VALUE):
                continue
            if allow_stop_words and size == 1 and run[0].lower() in _NOT_A_VALUE:
                continue
            found.setdefault(" ".join(run).rstrip("."), None)
    return list(found)[:MAX_SPANS]
