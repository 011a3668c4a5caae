"""The grammar of a small model's reply, and the reader of its text while it arrives.

    {"answer":"text"}   or   {"tool":"name","field":value, ...}

Every reply is one of the two, whole or cut. It knows nothing of prompts or of the server.
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
    rules = [f"call{index} ::= {_call_rule(tool)}" for index, tool in enumerate(tools)]
    replies = [f"call{index}" for index in range(len(tools))]
    if may_answer or not replies:
        start, end = quote_literal(ANSWER_PREFIX), quote_literal('"}')
        rules.append(f"answer ::= {start} text {end}")
        replies.insert(0, "answer")
    return "\n".join([f"root ::= {' | '.join(replies)}", *rules]) + _TERMINALS


def quote_literal(text: str) -> str:
    """A literal text, in the grammar's quoting."""
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
    """A whole reply: a call's tool and arguments, or an answer."""

    tool: str = ""
    arguments: dict[str, Any] = {}
    answer: str = ""
    is_cut: bool = False


class ReplyReader:
    """Reads a reply as it arrives. `feed` returns the new text of an answer, decoded."""

    def __init__(self) -> None:
        self._raw = ""
        self._emitted = 0

    def feed(self, text: str) -> str:
        self._raw += text
        if not self._raw.startswith(ANSWER_PREFIX):
            return ""
        start = max(self._emitted, len(ANSWER_PREFIX))
        stop = _find_decodable_end(self._raw, start)
        self._emitted = stop
        return _unescape(self._raw[start:stop])

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
        return ParsedReply(tool=value.pop("tool", ""), arguments=value)


def _find_decodable_end(raw: str, start: int) -> int:
    """The end of the string, or of the part that can be decoded so far."""
    end = start
    while end < len(raw):
        if raw[end] == '"':
            return end
        if raw[end] == "\\":
            if end + 1 >= len(raw):
                return end
            end += 1
        end += 1
    return end


def _unescape(escaped: str) -> str:
    text: str = json.loads(f'"{escaped}"', strict=False)
    return text
