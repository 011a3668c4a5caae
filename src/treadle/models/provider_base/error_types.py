"""Which of the project's errors a provider means: by status, type and code.

Words decide only where a provider has no code for what it says. A row of them is the beginning of
one provider's message, with its numbers: text of the user that an error quotes never begins one.
All rows are tried, because a base URL may lead to a gateway or to another server. Pure; used by
error_map.py, which reads the bodies and writes our messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    StreamBroken,
    UnknownModel,
)


class ProviderErrorBody(msgspec.Struct, frozen=True):
    """The fields of a provider's error, whatever the layout of its body."""

    message: str = ""
    kind: str = ""  # error.type, or Google's reason
    code: str = ""  # error.code
    param: str = ""  # error.param: the field of the request that is wrong
    is_html: bool = False
    upstream: ProviderErrorBody | None = None  # what a gateway quotes of the provider behind it


_STATUSES: Mapping[int, type[ModelError]] = {
    401: AccessDenied,
    402: QuotaExhausted,
    403: AccessDenied,
    404: UnknownModel,
    413: ContextTooLong,
    429: RateLimited,
}
# What a provider writes as the type, the code or the reason of an error, in lower case.
CODES: Mapping[type[ModelError], frozenset[str]] = {
    QuotaExhausted: frozenset((
        "billing_error", "billing_not_active", "billing_hard_limit_reached", "billing_disabled",
        "insufficient_quota", "insufficient_balance", "insufficient_balance_error",
        "exceeded_current_quota_error", "budget_exceeded", "arrearage",
        "1008", "1113",  # MiniMax, Z.ai
    )),
    RateLimited: frozenset((
        "rate_limit_error", "rate_limit_exceeded", "rate_limit_reached_error", "rate_limited",
        "throttlingexception",
    )),
    AccessDenied: frozenset((
        "authentication_error", "invalid_authentication_error", "invalid_api_key",
        "invalidapikey", "api_key_invalid", "permission_error", "permission_denied",
        "permission_denied_error", "permission-denied", "1004",  # MiniMax
    )),
    UnknownModel: frozenset(("model_not_found", "not_found_error")),
    ContextTooLong: frozenset((
        "context_length_exceeded", "request_too_large", "too_many_prompt_tokens",
        "exceed_context_size_error", "model_max_prompt_tokens_exceeded", "tokens_limit_reached",
        "1261",  # Z.ai
    )),
    # The provider could not use what the model wrote; another sample may be fine.
    StreamBroken: frozenset(("tool_use_failed", "json_validate_failed", "output_parse_failed")),
    Overloaded: frozenset((
        "overloaded", "overloaded_error", "engine_overloaded_error", "server_is_overloaded",
    )),
}  # fmt: skip
# Inside a stream there is no status that says it.
_STREAM_CODES = frozenset((
    "api_error", "server_error", "internal_server_error", "internalserverexception",
    "serviceunavailableexception", "timeout", "timeout_error", "vector_store_timeout",
    "modeltimeoutexception",
))  # fmt: skip
# With these statuses a provider may say in words, or quote of another one, what it is about.
_STATUSES_OF_WORDS: Mapping[type[ModelError], tuple[int | None, ...]] = {
    QuotaExhausted: (None, 400, 403, 429),
    AccessDenied: (None, 400),
    UnknownModel: (None, 400),
    ContextTooLong: (None, 400, 422, 500),
}

# Bedrock quotes the model's own sentence after this one.
_QUOTED = r"(?:The model returned the following errors: )?"

# (provider, what its message begins with); test_error_types.py has a body for each.
_TOO_LONG = (
    ("anthropic", _QUOTED + r"prompt is too long(?:: \d+ tokens > \d+|\.?$)"),
    ("anthropic", r"input length and `max_tokens` exceed context limit: \d+ \+ \d+ > \d+"),
    ("bedrock", _QUOTED + r"Input is too long for requested model"),
    ("bedrock", _QUOTED + r"Input Tokens Exceeded: Number of input tokens exceeds maximum length"),
    ("openai", r"Your input exceeds the context window of this model"),
    ("openai, deepseek, vllm", _QUOTED + r"This model's maximum context length is \d+ tokens"),
    ("vllm", r"'max_tokens' or 'max_completion_tokens' is too large: \d+\. This model's maximum "),
    ("vllm", r"The prompt \(total length \d+\) is too long to fit into the model"),
    ("vllm", r"The \w+ prompt \(length \d+\) is longer than the maximum model length of \d+"),
    ("vllm", r"You passed \d+ input tokens and requested \d+ output tokens\. However, the "),
    ("sglang, together", r"The input \(\d+ tokens\) is longer than the model's context length"),
    ("sglang", r"Requested token count exceeds the model's maximum context length of \d+ tokens"),
    ("openrouter", r"This endpoint's maximum context length is \d+ tokens"),
    ("gemini", r"The input token count(?: \(\d+\))? exceeds the maximum number of tokens allowed"),
    ("mistral", r"Prompt contains \d+ tokens\b.{0,60}, too large for model with \d+ maximum "),
    ("xai", r"This model's maximum prompt length is \d+ but the request contains \d+ tokens"),
    ("ollama", r"prompt too long; exceeded (?:max )?context length"),
    ("ollama", r"the input length exceeds the context length"),
    ("llamacpp", r"(?:the )?request (?:\(\d+ tokens\) )?exceeds the available context size"),
    ("llamacpp", r"context size has been exceeded\.?$"),
    ("lmstudio", r"The number of tokens to keep from the initial prompt is greater than the "),
    ("lmstudio", r"Trying to keep the first \d+ tokens when context the overflows"),
    ("mlx-serve", r"Prompt exceeds maximum context length\.?$"),
    ("fireworks", r"The prompt is too long: \d+, model maximum context length: \d+"),
    ("cohere", r"too many tokens: total number of tokens in the prompt cannot exceed \d+"),
    ("minimax", r"invalid params, context window exceeds limit"),
    ("moonshot", r"(?:Invalid request: )?Your request exceeded model token limit: \d+"),
    ("dashscope", r"(?:<400> )?InternalError\.Algo\.InvalidParameter: Range of input length "),
    ("copilot", r"prompt token count of \d+ exceeds the limit of \d+"),
    ("litellm", r"litellm\.ContextWindowExceededError: "),
)
_OUT_OF_CREDIT = (
    ("anthropic", r"Your credit balance is too low\b"),
    ("anthropic", r"You have reached your specified API usage limits\."),
    ("gemini", r"You exceeded your current quota, please check your plan and billing details"),
    ("gemini", r"Your prepayment credits are depleted\."),
    ("xai", r"Your team \S+ has either used all available credits or reached its monthly "),
    ("xai", r"Your newly created teams? doesn't have any credits yet\."),
)
_WRONG_KEY = (
    ("xai", r"Incorrect API key provided[:.] "),
    ("gemini", r"API key not valid\. Please pass a valid "),
)
_NO_MODEL = (("bedrock", r"The provided model identifier is invalid\."),)

MESSAGES: Mapping[type[ModelError], tuple[tuple[str, str], ...]] = {
    QuotaExhausted: _OUT_OF_CREDIT,
    AccessDenied: _WRONG_KEY,
    UnknownModel: _NO_MODEL,
    ContextTooLong: _TOO_LONG,
}


def classify_error(error: ProviderErrorBody, status: int | None) -> type[ModelError]:
    """The type of the error; without a status it came inside a stream.

    Where several types apply, the first of CODES counts.
    """
    found = read_codes(error)
    if not found - {AccessDenied, Overloaded}:  # these two say nothing in particular
        found |= _read_words(error, status)
    for kind in CODES:
        if kind in found or (status is not None and _STATUSES.get(status) is kind):
            return kind
    if status is not None:
        is_passing = status >= 500 or status in (408, 409, 425)
        return Overloaded if is_passing else BadRequest
    codes = _list_codes(error)
    if not codes.isdisjoint(_STREAM_CODES):
        return Overloaded
    return BadRequest if any(code.startswith("invalid") for code in codes) else StreamBroken


def read_codes(error: ProviderErrorBody) -> set[type[ModelError]]:
    """What type and code of an error say."""
    codes = _list_codes(error)
    return {kind for kind, known in CODES.items() if not known.isdisjoint(codes)}


def _read_words(error: ProviderErrorBody, status: int | None) -> set[type[ModelError]]:
    """What the message says, and the error of another provider that it quotes."""
    said = set() if error.upstream is None else read_codes(error.upstream)
    messages = [error.message, error.upstream.message if error.upstream is not None else ""]
    for kind, rows in MESSAGES.items():
        for _, pattern in rows:
            if any(re.match(pattern, message, re.IGNORECASE) for message in messages):
                said.add(kind)
    return {kind for kind in said if status in _STATUSES_OF_WORDS.get(kind, ())}


def _list_codes(error: ProviderErrorBody) -> set[str]:
    return {error.kind.lower(), error.code.lower()}
