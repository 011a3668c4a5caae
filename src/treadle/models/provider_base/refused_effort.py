"""The effort to use instead of one that a model refuses. Used by quarantine.py."""

from __future__ import annotations

import re

from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.core.errors import BadRequest
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.profiles import EFFORTS, resolve_thinking, to_effort

_WORDS = "|".join(EFFORTS)
# Google says "thinking level".
_IS_ABOUT_EFFORT = compile_lazily(r"effort|thinking[ _]?level", re.IGNORECASE)
_QUOTED_EFFORT = compile_lazily(rf"['\"`]({_WORDS})['\"`]")
# Anthropic and Google list them without quotes.
_SUPPORTED = compile_lazily(r"(?:Supported levels|Allowed values are): ([a-z, ]+)", re.IGNORECASE)
# What was sent may be less than what was asked for: Gemini has no level above high.
_REFUSED_LEVEL = compile_lazily(rf"thinking level ({_WORDS}) is not supported", re.IGNORECASE)
_TAKES_NO_LEVEL = compile_lazily(r"thinking level is not supported", re.IGNORECASE)


def get_effort(options: ModelOptions, card: ModelCard) -> str:
    """The effort of a request, also that for a number of tokens; empty if there is none."""
    effort = resolve_thinking(options, card)
    if isinstance(effort, int) and "budget" not in card.abilities:
        effort = to_effort(effort)
    return effort if isinstance(effort, str) and effort in EFFORTS else ""


def find_accepted_effort(effort: str, refusal: BadRequest) -> str | None:
    """The next lower effort, of those that the message lists, if it lists some; for the lowest one
    the least that is listed. Empty if the model takes none. None if the refusal is about something
    else, or no effort is left."""
    text = f"{refusal.param} {refusal.provider_message}"
    if not effort or not _IS_ABOUT_EFFORT.search(text):
        return None
    if _TAKES_NO_LEVEL.search(text):
        return ""
    supported = _SUPPORTED.search(text)
    names = supported[1].lower().split(", ") if supported else _QUOTED_EFFORT.findall(text)
    listed = {*names} & {*EFFORTS} - {effort}
    place, least = EFFORTS.index(effort), EFFORTS.index("low")
    if not listed:
        if named := _REFUSED_LEVEL.search(text):
            place = min(place, EFFORTS.index(named[1].lower()))
        if EFFORTS[place] == "minimal":
            return "low"
        return EFFORTS[place - 1] if place > least else None
    ordered = [one for one in EFFORTS if one in listed]
    lower = [one for one in ordered if EFFORTS.index(one) < place]
    return lower[-1] if lower else ordered[0]
