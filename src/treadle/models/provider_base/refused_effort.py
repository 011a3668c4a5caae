"""The effort to use instead of one that a model refuses. Used by quarantine.py."""

from __future__ import annotations

from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.core.errors import BadRequest
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.profiles import EFFORTS, resolve_thinking

_QUOTED_EFFORT = compile_lazily(rf"['\"`]({'|'.join(EFFORTS)})['\"`]")
# Anthropic lists them without quotes.
_SUPPORTED = compile_lazily(r"Supported levels: ([a-z, ]+)")


def get_effort(options: ModelOptions, card: ModelCard) -> str:
    """The effort of a request; empty if there is none."""
    effort = resolve_thinking(options, card)
    return effort if isinstance(effort, str) and effort in EFFORTS else ""


def find_accepted_effort(effort: str, refusal: BadRequest) -> str:
    """The next lower effort, of those that the message lists, if it lists some; for the lowest one
    the least that is listed. Empty if the refusal is about something else, or none is left."""
    text = f"{refusal.param} {refusal.provider_message}"
    if not effort or "effort" not in text.lower():
        return ""
    supported = _SUPPORTED.search(text)
    names = supported[1].split(", ") if supported else _QUOTED_EFFORT.findall(text)
    listed = {*names} & {*EFFORTS} - {effort}
    place, least = EFFORTS.index(effort), EFFORTS.index("low")
    if not listed:
        return EFFORTS[place - 1] if place > least else ""
    ordered = [one for one in EFFORTS if one in listed]
    lower = [one for one in ordered if EFFORTS.index(one) < place]
    return lower[-1] if lower else ordered[0]
