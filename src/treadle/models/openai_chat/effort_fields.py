"""The fields of a Chat Completions request that ask a model to think, for each kind of server.

`Quirks.effort_field` is the kind, the card says what the model takes. Used by encoding.py, and by
model.py to see whether a wish finds a field.
"""

from __future__ import annotations

from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.models.profiles import resolve_thinking
from treadle.models.provider_base.openai_common import resolve_effort
from treadle.models.provider_base.quirks import Quirks


def build_effort_fields(
    card: ModelCard, quirks: Quirks, options: ModelOptions
) -> dict[str, object]:
    """Empty if nothing is asked for, and if the server or the model has no field for it."""
    effort = resolve_effort(options, card)
    if options.thinking is None:
        return {}
    if quirks.effort_field == "thinking":
        return _build_maker_fields(card, quirks, effort)
    if effort is None:
        return {}
    match quirks.effort_field:
        case "reasoning_effort":
            return _build_word(card, quirks, effort)
        case "reasoning":
            budget = resolve_thinking(options, card)
            is_budget = isinstance(budget, int)
            return {"reasoning": {"max_tokens": budget} if is_budget else {"effort": effort}}
        case "reasoning.enabled" if "switch" in card.abilities:
            return {"reasoning": {"enabled": effort != "none"}}
        case "reasoning.enabled":
            return _build_word(card, quirks, effort)
        case "enable_thinking" if "switch" in card.abilities:
            return {"enable_thinking": effort != "none"}
    return {}


def _build_word(card: ModelCard, quirks: Quirks, effort: str) -> dict[str, object]:
    # The models of a local server are unknown; it ignores an option that they lack.
    is_accepted = "effort" in card.abilities or not quirks.needs_key
    is_off = effort == "none" and "switch" in card.abilities
    return {"reasoning_effort": effort} if is_accepted or is_off else {}


def _build_maker_fields(card: ModelCard, quirks: Quirks, effort: str | None) -> dict[str, object]:
    """The switch of the model's maker; `effort` is None for the model's own, which is on."""
    # Without it, Z.ai drops the reasoning of earlier turns that is sent back.
    kept = {"clear_thinking": False} if "all_turns" in card.abilities else {}
    if not (effort or kept):
        return {}
    word: dict[str, object] = {}
    if effort and "effort" in card.abilities:
        word["reasoning_effort"] = effort
    if "switch" not in card.abilities:
        return word
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {"thinking": {"type": quirks.thinking_type, **kept}, **word}
