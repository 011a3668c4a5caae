"""What a small model may write, as a grammar, and how its text is read while it comes.

    {"answer":"text"}   or   {"tool":"word","field":value, ...}

Every reply is one of the two, whole or cut. Nothing here knows of prompts or of the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.models.embedded.toolkit import Field, Offer

ANSWER = '{"answer":"'
CALL = '{"tool":"'

_TERMINALS = r"""
text ::= char+
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1F] | "\\" ["\\nt]
integer ::= "-"? [0-9] [0-9]{0,15}
number ::= integer ("." [0-9]{1,15})?
boolean ::= "true" | "false"
"""


def grammar(offers: Sequence[Offer], *, may_answer: bool = True) -> str:
    """One of these calls, or an answer."""
    rules = [f"call{place} ::= {_call(offer)}" for place, offer in enumerate(offers)]
    ways = [f"call{place}" for place in range(len(offers))]
    if may_answer or not ways:
        rules.append(f"answer ::= {literal(ANSWER)} text {literal(chr(34) + '}')}")
        ways.insert(0, "answer")
    return "\n".join([f"root ::= {' | '.join(ways)}", *rules]) + _TERMINALS


def literal(text: str) -> str:
    """A text as it stands, in the grammar's own quoting."""
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(old, new)
    return f'"{text}"'


def _call(offer: Offer) -> str:
    parts = [literal(f'{CALL}{offer.word}"')]
    for field in offer.fields:
        parts += [literal(f',"{field.short}":'), _value(field)]
    return " ".join([*parts, literal("}")])


def _value(field: Field) -> str:
    if field.choices:
        return "(" + " | ".join(literal(json.dumps(choice)) for choice in field.choices) + ")"
    return field.kind


class Said(msgspec.Struct, frozen=True):
    """A whole reply: a call's word and values, or an answer."""

    word: str = ""
    given: dict[str, Any] = {}
    answer: str = ""
    is_cut: bool = False


class Reader:
    """Reads a reply as it comes. `feed` gives the answer's new text, decoded."""

    def __init__(self, begun: str = "") -> None:
        self._raw = begun
        self._told = len(begun)  # what was begun for the model is told by who began it

    def feed(self, text: str) -> str:
        self._raw += text
        if not self._raw.startswith(ANSWER):
            return ""
        start = max(self._told, len(ANSWER))
        stop = _safe_end(self._raw, start)
        self._told = stop
        return _decoded(self._raw[start:stop])

    @property
    def word(self) -> str:
        """The called tool's word, as soon as it is known."""
        if not self._raw.startswith(CALL):
            return ""
        word, mark, _ = self._raw[len(CALL) :].partition('"')
        return word if mark else ""

    def finish(self) -> Said:
        raw = self._raw
        if raw.startswith(ANSWER):
            stop = _safe_end(raw, len(ANSWER))
            whole = raw[stop : stop + 1] == '"'
            return Said(answer=_decoded(raw[len(ANSWER) : stop]), is_cut=not whole)
        try:
            value = json.loads(raw)
        except ValueError:
            return Said(is_cut=True)
        word = value.pop("tool", "")
        return Said(word=word, given=value)


def _safe_end(raw: str, start: int) -> int:
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


def _decoded(escaped: str) -> str:
    text: str = json.loads(f'"{escaped}"', strict=False)
    return text
