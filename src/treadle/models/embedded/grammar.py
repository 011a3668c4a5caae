"""What a small model may write, as a grammar, and how its text is read while it comes.

    {"answer":"text"}   or   {"tool":"word","field":value, ...}

Every reply is one of the two, whole or cut. Nothing here knows of prompts or of the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.models.embedded.small_toolset import ArgumentField, SmallTool

ANSWER_PREFIX = '{"answer":"'
CALL_PREFIX = '{"tool":"'

_TERMINALS = r"""
text ::= char+
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1F] | "\\" ["\\nt]
integer ::= "-"? [0-9] [0-9]{0,15}
number ::= integer ("." [0-9]{1,15})?
boolean ::= "true" | "false"
"""


def build_grammar(tools: Sequence[SmallTool], *, may_answer: bool = True) -> str:
    """One of these calls, or an answer."""
    rules = [f"call{place} ::= {_call_rule(offer)}" for place, offer in enumerate(tools)]
    ways = [f"call{place}" for place in range(len(tools))]
    if may_answer or not ways:
        rules.append(
            f"answer ::= {quote_literal(ANSWER_PREFIX)} text {quote_literal(chr(34) + '}')}"
        )
        ways.insert(0, "answer")
    return "\n".join([f"root ::= {' | '.join(ways)}", *rules]) + _TERMINALS


def quote_literal(text: str) -> str:
    """A text as it stands, in the grammar's own quoting."""
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(old, new)
    return f'"{text}"'


def _call_rule(tool: SmallTool) -> str:
    parts = [quote_literal(f'{CALL_PREFIX}{tool.short_name}"')]
    for field in tool.fields:
        parts += [quote_literal(f',"{field.short_name}":'), _value_rule(field)]
    return " ".join([*parts, quote_literal("}")])


def _value_rule(field: ArgumentField) -> str:
    if field.choices:
        return "(" + " | ".join(quote_literal(json.dumps(choice)) for choice in field.choices) + ")"
    return field.json_type


class ParsedReply(msgspec.Struct, frozen=True):
    """A whole reply: a call's word and values, or an answer."""

    tool: str = ""
    arguments: dict[str, Any] = {}
    answer: str = ""
    is_cut: bool = False


class ReplyReader:
    """Reads a reply as it comes. `feed` gives the answer's new text, decoded."""

    def __init__(self, prefix: str = "") -> None:
        self._raw = prefix
        self._emitted = len(prefix)  # what was begun for the model is told by who began it

    def feed(self, text: str) -> str:
        self._raw += text
        if not self._raw.startswith(ANSWER_PREFIX):
            return ""
        start = max(self._emitted, len(ANSWER_PREFIX))
        stop = _find_decodable_end(self._raw, start)
        self._emitted = stop
        return _unescape(self._raw[start:stop])

    @property
    def tool(self) -> str:
        """The called tool's word, as soon as it is known."""
        if not self._raw.startswith(CALL_PREFIX):
            return ""
        word, mark, _ = self._raw[len(CALL_PREFIX) :].partition('"')
        return word if mark else ""

    def finish(self) -> ParsedReply:
        raw = self._raw
        if raw.startswith(ANSWER_PREFIX):
            stop = _find_decodable_end(raw, len(ANSWER_PREFIX))
            whole = raw[stop : stop + 1] == '"'
            return ParsedReply(answer=_unescape(raw[len(ANSWER_PREFIX) : stop]), is_cut=not whole)
        try:
            value = json.loads(raw)
        except ValueError:
            return ParsedReply(is_cut=True)
        word = value.pop("tool", "")
        return ParsedReply(tool=word, arguments=value)


def _find_decodable_end(raw: str, start: int) -> int:
    """Where the string ends, or the part of it that can be decoded so far."""
    place = start
    while place < len(raw):
        if raw[place] == '"':
            return place
        if raw[place] == "\\":
            if place + 1 >= len(raw):
                return place
            place += 1
        place += 1
    return place


def _unescape(escaped: str) -> str:
    text: str = json.loads(f'"{escaped}"', strict=False)
    return text
