"""How much a model thinks by default: what its maker recommends for agents, and how to turn it off.

`ModelOptions.thinking == "auto"` stands for the first, "none" (or 0) for the second. A model that
is not listed is not asked to think. Used by catalog.py (the card of a model) and by the encoders.

    Anthropic   an effort: https://platform.claude.com/docs/en/build-with-claude/effort;
                older models a budget in tokens
    OpenAI      medium: https://developers.openai.com/api/docs/guides/reasoning
    Google      the level that the model has by default; 2.5 decides itself
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.core.contracts.model import ModelCard, ModelOptions

AUTO = "auto"
DISABLED = "disabled"  # a field of the request turns it off
OFF_WORDS = ("none", "off", DISABLED)


class ThinkingDefault(NamedTuple):
    """`off`: an effort, DISABLED, or "" if the model thinks only when it is asked to."""

    recommended: str = ""
    off: str = ""


_BUDGET = ThinkingDefault("16000")
_MEDIUM = ThinkingDefault("medium", "none")
_MEDIUM_ALWAYS = ThinkingDefault("medium", "low")

# By the beginning of the name; the first that fits.
_DEFAULTS: tuple[tuple[str, ThinkingDefault], ...] = (
    ("claude-fable-", ThinkingDefault("high", "low")),
    ("claude-opus-5-5", ThinkingDefault("medium", "low")),
    ("claude-opus-5", ThinkingDefault("high", DISABLED)),
    ("claude-opus-4-8", ThinkingDefault("xhigh")),
    ("claude-opus-4-7", ThinkingDefault("xhigh")),
    ("claude-opus-4-6", ThinkingDefault("high")),
    ("claude-opus-4", _BUDGET),
    ("claude-sonnet-5-5", ThinkingDefault("high", "low")),
    ("claude-sonnet-5", ThinkingDefault("high", DISABLED)),
    ("claude-sonnet-4-6", ThinkingDefault("medium")),
    ("claude-sonnet-4", _BUDGET),
    ("claude-haiku-5-5", ThinkingDefault("medium", DISABLED)),
    ("claude-haiku-4", _BUDGET),
    ("claude-3-7", _BUDGET),
    ("claude-3", ThinkingDefault()),
    ("claude-", ThinkingDefault("high", "low")),
    ("gpt-oss", _MEDIUM_ALWAYS),
    ("gpt-6.1", _MEDIUM_ALWAYS),
    ("gpt-5.3-codex", _MEDIUM_ALWAYS),
    ("gpt-5.1-codex", _MEDIUM_ALWAYS),
    ("gpt-5.", _MEDIUM),
    ("gpt-5", ThinkingDefault("medium", "minimal")),
    ("gpt-3", ThinkingDefault()),
    ("gpt-4", ThinkingDefault()),
    ("gpt-", _MEDIUM),
    ("o3", _MEDIUM_ALWAYS),
    ("o4", _MEDIUM_ALWAYS),
    ("gemini-2.5-pro", ThinkingDefault("", "low")),
    ("gemini-2.5", ThinkingDefault("", "none")),
    ("gemini-3.1-pro", ThinkingDefault("high", "low")),
    ("gemini-3", _MEDIUM_ALWAYS),
    ("gemini-", ThinkingDefault("high", "low")),
    ("deepseek-", ThinkingDefault("high", "none")),
)


def find_thinking_default(plain_name: str) -> ThinkingDefault:
    """For the name of a model without its provider."""
    fitting = (default for start, default in _DEFAULTS if plain_name.startswith(start))
    return next(fitting, ThinkingDefault())


def resolve_thinking(options: ModelOptions, card: ModelCard) -> int | str | None:
    """What is asked of this model: a budget, an effort, DISABLED, or None for nothing at all."""
    wish = options.thinking
    if wish == AUTO:
        return _read_value(card.thinking)
    if wish == 0 or wish in OFF_WORDS:
        return _read_value(card.thinking_off)
    return wish or None


def _read_value(text: str) -> int | str | None:
    return int(text) if text.isdecimal() else text or None
