"""Arguments that are nearly JSON, as models write them: read if there is only one way to read them.

A text that may have been cut off is never completed. Pure functions, used by
core/loop/calls/call_repair.py after the strict parser has refused a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from treadle.core.transcript.content import Arguments, parse_arguments
from treadle.lib.text.lazy_regex import compile_lazily

MAX_PYTHON_CHARS = 20_000  # a longer text is not read as Python: that is slow
_FENCE = compile_lazily(r"\s*```[a-zA-Z]*\s*\n?(.*?)\n?\s*```\s*", re.DOTALL)
_TEXT = r'"(?:[^"\\]|\\.)*"'
_TEXT_OR_COMMA = compile_lazily(rf"({_TEXT})|,(\s*[}}\]])", re.DOTALL)
_TEXT_PATTERN = compile_lazily(_TEXT, re.DOTALL)
_WRONG_ESCAPE = compile_lazily(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|(.))', re.DOTALL)
_CONTROL = {ord("\n"): r"\n", ord("\r"): r"\r", ord("\t"): r"\t"}
_SMART_QUOTES = str.maketrans({"“": '"', "”": '"'})


class LooseArguments(NamedTuple):
    arguments: Arguments
    problem: str
    is_guessed: bool = False


def read_loosely(raw: str, text_name: str = "") -> LooseArguments | None:
    """The arguments, and what was wrong with the text; None if it cannot be read safely.

    `text_name`: the only required argument, if it is a text; a lone text means that one.
    """
    found = _read_value(raw, text_name)
    if found is not None:
        return found
    for change, problem, is_guess in _CHANGES:
        changed = change(raw)
        if changed != raw and (found := _read_value(changed, text_name)) is not None:
            return LooseArguments(found.arguments, problem, is_guess or found.is_guessed)
    everything, is_guessed = raw, False
    for change, _, is_guess in _CHANGES:
        changed = change(everything)
        is_guessed = is_guessed or (is_guess and changed != everything)
        everything = changed
    found = _read_value(everything, text_name)
    if found is not None:
        problem = "the arguments were not valid JSON"
        return LooseArguments(found.arguments, problem, is_guessed or found.is_guessed)
    value = _read_python(raw)
    if value is None:
        return None
    return LooseArguments(value, "the arguments were Python, not JSON", True)


def _read_value(text: str, text_name: str) -> LooseArguments | None:
    if text.strip() in ("null", "[]", '""'):
        return LooseArguments({}, "the arguments were empty")
    parsed = parse_arguments(text)
    if isinstance(parsed, dict):
        return LooseArguments(parsed, "the arguments were not valid JSON")
    # As strict as the parser of arguments: no key is given twice.
    wrapped = parse_arguments(f'{{"value":{text}}}')
    value: Any = wrapped["value"] if isinstance(wrapped, dict) and len(wrapped) == 1 else None
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return LooseArguments(value[0], "the arguments were in a list")
    if not isinstance(value, str):
        return None
    inner = parse_arguments(value)
    if isinstance(inner, dict) and value.strip():
        return LooseArguments(inner, "the arguments were JSON encoded twice")
    if not text_name or value.lstrip()[:1] in ("{", "["):
        return None
    return LooseArguments({text_name: value}, f"the text is `{text_name}`", True)


def _strip_fence(text: str) -> str:
    fence = _FENCE.fullmatch(text)
    return fence.group(1) if fence else text.lstrip("\ufeff")


def _drop_trailing_commas(text: str) -> str:
    return _TEXT_OR_COMMA.sub(lambda m: m.group(1) or m.group(2), text)


def _drop_extra_brackets(text: str) -> str:
    """Without closing brackets behind the end of the object."""
    try:
        _, end = json.JSONDecoder().raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return text
    rest = text.lstrip()[end:]
    return text.lstrip()[:end] if rest.strip() and not rest.strip("}] \t\r\n") else text


def _escape_texts(text: str) -> str:
    return _TEXT_PATTERN.sub(lambda m: _escape_text(m.group()), text)


def _escape_text(text: str) -> str:
    def fix(escape: re.Match[str]) -> str:
        wrong = escape.group(2)
        if wrong is None:
            return escape.group()
        return "'" if wrong == "'" else f"\\\\{wrong}"

    return _WRONG_ESCAPE.sub(fix, text).translate(_CONTROL)


def _straighten_quotes(text: str) -> str:
    return text if '"' in text else text.translate(_SMART_QUOTES)


def _read_python(text: str) -> Arguments | None:
    if len(text) > MAX_PYTHON_CHARS:
        return None
    import ast

    try:
        tree = ast.parse(text.strip(), mode="eval")
        keys = [node.keys for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        if any(len({ast.dump(key) for key in one if key}) != len(one) for one in keys):
            return None  # a key is given twice
        value = ast.literal_eval(tree)
        plain = json.loads(json.dumps(value)) if isinstance(value, dict) else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return plain if plain is not None and plain == value else None


# A change, what was wrong, and whether the values are guessed.
_CHANGES: tuple[tuple[Callable[[str], str], str, bool], ...] = (
    (_strip_fence, "the arguments were not plain JSON", False),
    (_straighten_quotes, "the arguments had typographic quotes", True),
    (_drop_trailing_commas, "the arguments had a comma before a bracket", False),
    (_drop_extra_brackets, "the arguments had brackets behind their end", True),
    (_escape_texts, "a text in the arguments was not escaped as JSON", True),
)
