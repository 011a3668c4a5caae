"""What is used instead of an effort that a model does not take, and what the user is told of it.

Used by quarantine.py for an effort that is refused, and by http_model.py.
"""

from __future__ import annotations

import re

from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.core.errors import BadRequest
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.profiles import (
    AUTO,
    EFFORTS,
    OFF_WORDS,
    fit_effort,
    resolve_thinking,
    to_effort,
)

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
        effort = fit_effort(to_effort(effort), card)
    return effort if isinstance(effort, str) and effort in EFFORTS else ""


def explain_effort(options: ModelOptions, card: ModelCard, has_field: bool) -> str:
    """One line for the user if a wish is not sent as it is, although it matters; else empty."""
    wish = options.thinking
    if wish is None or wish in ("", AUTO):
        return ""
    if not has_field:
        is_off = wish == 0 or wish in OFF_WORDS
        may_think = bool(card.thinking_off) or (
            card.is_assumed and "thinking" not in card.abilities
        )
        if is_off and not may_think:
            return ""
        return f"nothing is known to set the thinking of {card.name}: {wish!r} is not sent"
    used = fit_effort(wish, card) if isinstance(wish, str) and wish not in OFF_WORDS else wish
    if used == wish:
        return ""
    return f"{card.name} does not take the effort {wish!r}: {used!r} is used instead"


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
