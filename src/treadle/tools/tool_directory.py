"""A directory of tools that are not in the tool list: names for the model, and a search for one.

The text grows with the number of tools only up to a limit: names with one line each while that is
short, then names by server, then a few names of each server, then the servers alone. These are pure
functions; late_tools.py decides what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from treadle.core.contracts.tool import Tool
from treadle.lib.text.text import plural

CHARS_PER_TOKEN = 4
MAX_DIRECTORY_TOKENS = 280  # a tenth of the smallest request of the coding agent
MAX_LINE_CHARS = 80
MAX_FOUND = 5

_WORD = re.compile(r"[a-z0-9]+")


def estimate_tokens(tools: Iterable[Tool]) -> int:
    """What their descriptions and schemas add to a request, roughly."""
    return sum(len(describe_tool(tool)) for tool in tools) // CHARS_PER_TOKEN


def describe_tool(tool: Tool) -> str:
    """All that the model needs to call it."""
    schema = msgspec.json.encode(tool.spec.schema).decode()
    return f"- {tool.spec.name}: {tool.spec.description} Arguments: {schema}"


def describe_directory(tools: Sequence[Tool]) -> str:
    """The tools in as much detail as fits the limit."""
    texts = (_list_lines(tools), _list_names(tools), _list_groups(tools, 3), _list_groups(tools, 0))
    limit = MAX_DIRECTORY_TOKENS * CHARS_PER_TOKEN
    return next((text for text in texts if len(text) <= limit), texts[-1][:limit])


def search_tools(query: str, tools: Mapping[str, Tool]) -> list[Tool]:
    """The tools that fit the words of the query, the best first. An exact name is found alone."""
    if query.strip() in tools:
        return [tools[query.strip()]]
    words = set(_split_words(query))
    scored = [(score, tool) for tool in tools.values() if (score := _score(words, tool))]
    scored.sort(key=lambda entry: (-entry[0], entry[1].spec.name))
    return [tool for _, tool in scored[:MAX_FOUND]]


def _score(words: set[str], tool: Tool) -> float:
    name = set(_split_words(tool.spec.name))
    properties = tool.spec.schema.get("properties")
    arguments = set(_split_words(" ".join(properties))) if isinstance(properties, dict) else set()
    text = set(_split_words(tool.spec.description))
    total = 0.0
    for word in words:
        total += 3 * (word in name) + (word in text) + 0.5 * (word in arguments)
        if len(word) >= 4:  # parts of words: "issues" finds "issue"
            stem = word.rstrip("s")
            total += 1.5 * any(stem in other or other in stem for other in name if len(other) > 3)
    return total


def _split_words(text: str) -> list[str]:
    """Words in lower case; `createIssue` and `create_issue` have two."""
    return _WORD.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())


def _list_lines(tools: Sequence[Tool]) -> str:
    return "\n".join(f"- {tool.spec.name}: {_make_line(tool)}" for tool in tools)


def _make_line(tool: Tool) -> str:
    line = " ".join(tool.spec.description.split()).partition(". ")[0].rstrip(".")
    return line if len(line) <= MAX_LINE_CHARS else f"{line[: MAX_LINE_CHARS - 3]}..."


def _list_names(tools: Sequence[Tool]) -> str:
    groups = _group_tools(tools)
    return "\n".join(f"- {group}*: {', '.join(names)}" for group, names in groups.items())


def _list_groups(tools: Sequence[Tool], example_count: int) -> str:
    lines: list[str] = []
    for group, names in _group_tools(tools).items():
        step = max(1, len(names) // example_count) if example_count else len(names)
        examples = ", ".join(names[::step][:example_count])
        more = f", such as {examples}" if examples else ""
        lines.append(f"- {group}*: {plural(len(names), 'tool')}{more}")
    return "\n".join(lines)


def _group_tools(tools: Sequence[Tool]) -> dict[str, list[str]]:
    """The names by their server, without its prefix."""
    groups: dict[str, list[str]] = {}
    for tool in tools:
        head, mark, rest = tool.spec.name.rpartition("__")
        groups.setdefault(head + mark, []).append(rest)
    return groups
