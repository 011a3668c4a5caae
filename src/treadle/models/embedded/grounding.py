"""Arguments out of the request's own words: a weak model picks a name, it does not spell it.

Pure functions. A field of an offer gets the possible values as choices, and the grammar then
allows nothing else; where the request holds nothing that fits, the field stays free.
"""

from __future__ import annotations

import re
import shlex

import msgspec

from treadle.models.embedded.examples import nearest
from treadle.models.embedded.toolkit import Field, Offer

MOST_SPANS = 60
MOST_COMMANDS = 2
SPAN_WORDS = 4

_FILE = re.compile(r"(?<![\w/.-])[\w./-]*\w\.[A-Za-z]\w{0,5}(?![\w/])")
_PLACE = re.compile(r"[\w.-]+(?:/[\w.-]*)+")
_FOLDER = re.compile(r"\b(?:folder|directory)\s+(?:called\s+|named\s+)?([\w.-]+)", re.IGNORECASE)
_OF_FOLDER = re.compile(r"\b([\w.-]+)\s+(?:folder|directory)\b", re.IGNORECASE)
_PROGRAM = re.compile(
    r"\b((?:python3?|pytest|make|npm|npx|node|pip|uv|cargo|go|docker|sh|bash|ls|cat|"
    r"git (?:status|log|diff|show|add|commit|push|pull|branch|checkout|fetch|clone|init))\b.*)$"
)
_NAME = re.compile(r"\b(?:\w+_\w+|[a-z]+[A-Z]\w*|(?:[A-Z][a-z0-9]+){2,})\b")  # as in code
_EXCHANGE = re.compile(
    r"\b(?:replace|change|rename|swap|turn)\s+(?:every\s+|the word\s+)?(.+?)\s+"
    r"(?:by|with|to|into|for)\s+(.+?)(?:\s+in\s+\S+)?$",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"\b(?:containing|contains|with|saying|says)\s+(?:the\s+)?(?:words?\s+|text\s+|content\s+)?(.+)$",
    re.IGNORECASE,
)
_PLAIN = frozenset(
    re.split(
        r"\s+",
        "the a an of to in is it that this these and me my i please can you for with by where "
        "which what who how does do all every word file files folder directory its their code "
        "source current whole entire same your our",
    )
)


def files_named(said: str) -> list[str]:
    """File names in a request."""
    return list(dict.fromkeys(match.rstrip(".") for match in _FILE.findall(said)))


def grounded(offer: Offer, said: str) -> Offer:
    """The same offer, its fields limited to what the request holds."""
    fields = tuple(_limited(field, offer.word, said) for field in offer.fields)
    return msgspec.structs.replace(offer, fields=fields)


def _limited(field: Field, word: str, said: str) -> Field:
    match field.short:
        case "path" if word == "ls":
            values = _folders(said) or ["."]
        case "path":
            values = files_named(said) or _PLACE.findall(said)
        case "pattern" if word == "grep":
            values = _NAME.findall(said) or _spans(said, plain_ends=False)
        case "old" | "new":
            exchange = _EXCHANGE.search(_sentence(said))
            values = [exchange[1 if field.short == "old" else 2]] if exchange else _spans(said)
        case "content":
            content = _CONTENT.search(_sentence(said))
            values = [content[1].strip("`'\"") + "\n"] if content else []
        case "command":
            command = _PROGRAM.search(_sentence(said))
            values = [command[1].strip("`'\"")] if command else _commands(said)
        case _:
            values = []
    return msgspec.structs.replace(field, choices=tuple(values)) if values else field


def _sentence(said: str) -> str:
    return said.strip().rstrip(".!?")


def _commands(said: str) -> list[str]:
    """Commands of the nearest examples, at work on what the request names; never invented ones."""
    found: list[str] = []
    for _, example in nearest(said, frozenset({"bash"})):
        if example.word != "bash":
            continue
        command = str(example.given["command"])
        theirs = files_named(example.said) or _folders(example.said)
        ours = files_named(said) or _folders(said)
        if theirs and theirs[0] in command:
            if not ours:
                continue
            command = command.replace(theirs[0], shlex.quote(ours[0]))
        found.append(command)
    return found[:MOST_COMMANDS]


def _folders(said: str) -> list[str]:
    named = _FOLDER.findall(said) + _OF_FOLDER.findall(said)
    found = [name for name in named if name.lower() not in _PLAIN]
    return list(dict.fromkeys(_PLACE.findall(said) + found))


def _spans(said: str, *, plain_ends: bool = True) -> list[str]:
    """Runs of words that could be meant literally; quoted ones alone if there are any."""
    quoted = re.findall(r"[\"'`]([^\"'`]+)[\"'`]", said)
    if quoted:
        return list(dict.fromkeys(quoted))
    words = [word.rstrip("?!,;:") for word in said.split()]
    files = set(files_named(said))
    found: dict[str, None] = {}
    for size in range(1, SPAN_WORDS + 1):
        for start in range(1, len(words) - size + 1):
            run = words[start : start + size]
            at_the_ends = {run[0].lower(), run[-1].lower()}
            if files.intersection(run) or (not plain_ends and at_the_ends & _PLAIN):
                continue
            if plain_ends and size == 1 and run[0].lower() in _PLAIN:
                continue
            found.setdefault(" ".join(run).rstrip("."), None)
    return list(found)[:MOST_SPANS]
