"""What a model is asked for by default, by its generation: what its maker's own agent sends today.

`ModelOptions.thinking == "auto"` stands for `effort`, "none" (or 0) for `off`. A model that is not
listed is not asked to think. Each row names its source and the day on which it was read; requests
of Claude Code and Codex, and values of Gemini CLI, are in tests/data/peer_requests.json. Used by
catalog.py (the card of a model) and by the encoders.

Not in the table, because it holds for a whole wire: notices of the engine have the role of the
system prompt with OpenAI, and reasoning is sent back in every turn. Thoughts are shown to the user,
so that summaries of them are asked for, which the makers' agents do not.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.core.contracts.model import ModelCard, ModelOptions

AUTO = "auto"
DISABLED = "disabled"  # a field of the request turns it off
OFF_WORDS = ("none", "off", DISABLED)
# From the least to the most.
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_CLAUDE_CODE = "Claude Code 2.1.325, recorded on 2026-11-18"
_CODEX = "Codex 0.166.0, recorded on 2026-11-18"
_OLDER_CODEX = "models.json of Codex at 343074d4, 2026-08-22"
_ANTHROPIC = "platform.claude.com/docs/en/build-with-claude/effort, 2026-11-16"
_OPENAI = "developers.openai.com/api/docs/guides/reasoning, 2026-11-16"
_GEMINI_CLI = "defaultModelConfigs.ts of Gemini CLI at 5411f113, 2026-08-21"
_GOOGLE = "documentation of Google, 2026-11-16: the level that a model has by itself"
_DEEPSEEK = "api-docs.deepseek.com/guides/thinking_mode, 2026-11-19"
_XAI = "docs.x.ai/developers/model-capabilities/text/reasoning, 2026-11-19"
_KIMI = "platform.kimi.ai/docs/guide/use-thinking-effort, 2026-11-19"
_MINIMAX = "java.agentscope.io/v2/en/integration/model/minimax, 2026-11-19"
_MISTRAL = "docs.mistral.ai/capabilities/reasoning/adjustable, 2026-11-19"
_QWEN = "help.aliyun.com/en/model-studio/deep-thinking, 2026-11-19"
_ZAI = "docs.z.ai/guides/capabilities/thinking-mode, 2026-11-19"
_ZAI_KEPT = f"{_ZAI}; recordings of pydantic-ai at 4fda3898, 2026-08-22"


class ModelProfile(NamedTuple):
    """`effort` is a word, a number of tokens, or "" for nothing. `off`: an effort, DISABLED, or ""
    if the model thinks only when it is asked to. `max_tokens`: the limit of a reply that is asked
    for, 0 for that of the wire. `keeps_reasoning`: reasoning of all turns is asked for.
    `free_text`: tools with a grammar are called with plain text. `context_edits`: the server is
    asked to clear no thinking. `system_notices`: notices of the engine are system messages.
    `efforts`: those that the model takes; empty if not known.
    `sampling`: temperature, top_p and top_k."""

    effort: str = ""
    off: str = ""
    max_tokens: int = 0
    verbosity: str = ""
    keeps_reasoning: bool = False
    free_text: bool = False
    context_edits: bool = False
    system_notices: bool = False
    efforts: tuple[str, ...] = ()
    sampling: tuple[float, float, int] | None = None
    source: str = ""


def _claude(effort: str, off: str = "", max_tokens: int = 0) -> ModelProfile:
    return ModelProfile(effort, off, max_tokens, context_edits=True, source=_CLAUDE_CODE)


def _claude_5(effort: str, off: str, max_tokens: int) -> ModelProfile:
    return _claude(effort, off, max_tokens)._replace(system_notices=True)


def _codex(effort: str, off: str = "none") -> ModelProfile:
    return ModelProfile(effort, off, 0, "low", keeps_reasoning=True, source=_CODEX)


def _older_codex(verbosity: str, source: str = "") -> ModelProfile:
    source = source or _OLDER_CODEX
    return ModelProfile("medium", "none", verbosity=verbosity, free_text=True, source=source)


def _gemini(effort: str, off: str) -> ModelProfile:
    return ModelProfile(effort, off, sampling=(1, 0.95, 64), source=_GEMINI_CLI)


def _glm(off: str) -> ModelProfile:
    return ModelProfile("", off, keeps_reasoning=True, source=_ZAI_KEPT)


def _with_efforts(efforts: str, source: str) -> ModelProfile:
    """For models that think by themselves; they take these efforts, the first one turns it off or
    is the least."""
    words = tuple(efforts.split())
    return ModelProfile("", words[0], efforts=words, source=source)


_BUDGET = _claude("31999")
_K = 1_000

# By the beginning of the name; the first that fits.
# fmt: off
PROFILES: tuple[tuple[str, ModelProfile], ...] = (
    ("claude-fable-", _claude_5("high", "low", 64 * _K)),
    ("claude-opus-5-5", _claude_5("medium", "low", 128 * _K)),
    ("claude-opus-5", _claude_5("high", DISABLED, 64 * _K)),
    ("claude-opus-4-8", _claude_5("high", "", 64 * _K)),
    ("claude-opus-4-7", _claude("xhigh", "", 64 * _K)),
    ("claude-opus-4-6", _claude("high", "", 64 * _K)),
    ("claude-opus-4", _BUDGET),
    ("claude-sonnet-5-5", _claude_5("medium", "low", 128 * _K)),
    ("claude-sonnet-5", _claude_5("high", DISABLED, 64 * _K)),
    ("claude-sonnet-4-6", _claude("high")),
    ("claude-sonnet-4", _BUDGET),
    ("claude-haiku-5-5", _claude_5("medium", DISABLED, 128 * _K)),
    ("claude-haiku-4", _BUDGET),
    ("claude-3-7", ModelProfile("16000", source=_ANTHROPIC)),
    ("claude-3", ModelProfile(source=_ANTHROPIC)),
    ("claude-", ModelProfile("high", "low", source=_ANTHROPIC)),
    ("gpt-oss", ModelProfile("medium", "low", source=_OPENAI)),
    ("gpt-6.1", _codex("low", "low")),
    ("gpt-6-astra", _codex("low")),
    ("gpt-6", _codex("medium")),
    ("gpt-5.6-sol", _codex("low")),
    ("gpt-5.6", _codex("medium")),
    ("gpt-5.5", _older_codex("low", _CODEX)),
    ("gpt-5.4-mini", _older_codex("medium")),
    ("gpt-5.4-nano", ModelProfile("medium", "none", source=_OPENAI)),
    ("gpt-5.4", _older_codex("low")),
    ("gpt-5.3-codex", ModelProfile("medium", "low", source=_OPENAI)),
    ("gpt-5.2", _older_codex("low")),
    ("gpt-5.1-codex", ModelProfile("medium", "low", source=_OPENAI)),
    ("gpt-5.", ModelProfile("medium", "none", source=_OPENAI)),
    ("gpt-5", ModelProfile("medium", "minimal", source=_OPENAI)),
    ("gpt-3", ModelProfile(source=_OPENAI)),
    ("gpt-4", ModelProfile(source=_OPENAI)),
    ("gpt-", ModelProfile("medium", "none", source=_OPENAI)),
    ("o3", ModelProfile("medium", "low", source=_OPENAI)),
    ("o4", ModelProfile("medium", "low", source=_OPENAI)),
    ("gemini-1", ModelProfile(source=_GOOGLE)),
    ("gemini-2.0", ModelProfile(source=_GOOGLE)),
    ("gemini-2.5-pro", _gemini("8192", "low")),
    ("gemini-2.5", _gemini("8192", "none")),
    ("gemini-3", _gemini("high", "low")),
    ("gemini-", ModelProfile("high", "low", source=_GOOGLE)),
    ("deepseek-", ModelProfile("high", "none", source=_DEEPSEEK)),
    ("grok-4.7", _with_efforts("low medium high xhigh", _XAI)),
    ("grok-4.6", _with_efforts("low medium high", _XAI)),
    ("grok-4.5", _with_efforts("low medium high", _XAI)),
    ("grok-4.3", _with_efforts("none low medium high", _XAI)),
    ("kimi-k3", _with_efforts("low high max", _KIMI)),
    ("kimi-k2.6", ModelProfile("", "none", source=_KIMI)),
    ("kimi-k2.5", ModelProfile("", "none", source=_KIMI)),
    ("minimax-m3", ModelProfile("", "none", source=_MINIMAX)),
    ("mistral-small", _with_efforts("none high", _MISTRAL)),
    ("qwen", ModelProfile("", "none", source=_QWEN)),
    ("glm-5.3", _glm("low")),
    ("glm-5", _glm("none")),
    ("glm-4.7", _glm("none")),
    ("glm-4.6", _glm("none")),
    ("glm-", ModelProfile("", "none", source=_ZAI)),
)
# fmt: on


def find_profile(plain_name: str) -> ModelProfile:
    """For the name of a model without its provider."""
    fitting = (profile for start, profile in PROFILES if plain_name.startswith(start))
    return next(fitting, ModelProfile())


def resolve_thinking(options: ModelOptions, card: ModelCard) -> int | str | None:
    """What is asked of this model: a budget, an effort, DISABLED, or None for nothing at all."""
    wish = options.thinking
    if wish == AUTO:
        return _read_value(card.thinking)
    if wish == 0 or wish in OFF_WORDS:
        return _read_value(card.thinking_off)
    return (fit_effort(wish, card) if isinstance(wish, str) else wish) or None


def fit_effort(effort: str, card: ModelCard) -> str:
    """The nearest effort that the model is known to take, the lower one of two."""
    if not card.efforts or effort in card.efforts or effort not in EFFORTS:
        return effort
    place = EFFORTS.index(effort)
    return min(card.efforts, key=lambda one: (abs(EFFORTS.index(one) - place), EFFORTS.index(one)))


def resolve_sampling(options: ModelOptions, card: ModelCard) -> tuple[float | None, float | None]:
    """Temperature and top_p, as far as this model takes them. Where it takes only one of them, it
    is the temperature."""
    if "sampling" not in card.abilities:
        return None, None
    if options.temperature is not None and "one_sampling" in card.abilities:
        return options.temperature, None
    return options.temperature, options.top_p


def to_effort(budget: int) -> str:
    """The effort for a number of tokens, for a model without budgets."""
    return "low" if budget <= 4_096 else "medium" if budget <= 16_384 else "high"


def _read_value(text: str) -> int | str | None:
    return int(text) if text.isdecimal() else text or None
