"""Errors of providers as they send them, and which of ours each is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    UnknownModel,
)
from treadle.models.provider_base.error_map import (
    ProviderInfo,
    map_response_error,
    map_stream_error,
    parse_error_body,
)
from treadle.models.provider_base.error_types import MESSAGES

WHO = ProviderInfo("Acme", "acme-1", "ACME_KEY")


def anthropic(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def openai(message: str, code: object = None, kind: str = "invalid_request_error", param: str = ""):
    return {"error": {"message": message, "type": kind, "param": param or None, "code": code}}


def vllm(message: str) -> dict[str, Any]:
    return {
        "object": "error",
        "message": message,
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }


def google(status: int, message: str, word: str, *reasons: str) -> list[dict[str, Any]]:
    details = [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}
        for reason in reasons
    ]
    error = {"code": status, "message": message, "status": word}
    return [{"error": {**error, "details": details} if details else error}]


def openrouter(status: int, quoted: object) -> dict[str, Any]:
    metadata = {"raw": json.dumps(quoted), "provider_name": "Anthropic"}
    return {"error": {"message": "Provider returned error", "code": status, "metadata": metadata}}


# fmt: off
TOO_LONG: list[tuple[str, int, object]] = [
    ("anthropic", 400, anthropic("prompt is too long: 213462 tokens > 200000 maximum")),
    ("anthropic on vertex", 400, anthropic("Prompt is too long")),
    ("anthropic", 400, anthropic(
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
        "input length or `max_tokens` and try again")),
    ("anthropic", 413, anthropic("Request exceeds the maximum size", "request_too_large")),
    ("bedrock", 400, {"message": "Input is too long for requested model."}),
    ("bedrock", 400, {"message": "The model returned the following errors: Input is too long for "
                                 "requested model."}),
    ("bedrock", 400, {"message": "The model returned the following errors: prompt is too long: "
                                 "286028 tokens > 200000 maximum"}),
    ("bedrock, nova", 400, {"message": "The model returned the following errors: Input Tokens "
     "Exceeded: Number of input tokens exceeds maximum length. Please update the input to try "
     "again."}),
    ("bedrock, llama", 400, {"message": "The model returned the following errors: This model's "
     "maximum context length is 8192 tokens. Please reduce the length of the prompt"}),
    ("openai chat", 400, openai(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in "
        "9001 tokens. Please reduce the length of the messages.", "context_length_exceeded")),
    ("openai responses", 400, openai(
        "Your input exceeds the context window of this model. Please adjust your input and try "
        "again.", "context_length_exceeded", param="input")),
    ("openai responses by copilot", 400, openai(
        "Your input exceeds the context window of this model. Please adjust your input and try "
        "again.", "invalid_request_body")),
    ("openai, first models", 400, openai(
        "This model's maximum context length is 4097 tokens, however you requested 4569 tokens "
        "(3545 in your prompt; 1024 for the completion). Please reduce your prompt; or completion "
        "length.")),
    ("azure", 400, openai(
        "This model's maximum context length is 128000 tokens. However, your messages resulted in "
        "204308 tokens. Please reduce the length of the messages.", "context_length_exceeded",
        param="messages")),
    ("groq", 400, openai("Please reduce the length of the messages or completion.",
                         "context_length_exceeded", param="messages")),
    ("cerebras", 400, {"message": "Please reduce the length of the messages or completion. Current "
     "length is 35125 while limit is 32768", "type": "invalid_request_error", "param": "messages",
     "code": "context_length_exceeded"}),
    ("deepseek", 400, openai(
        "This model's maximum context length is 65536 tokens. However, you requested 66384 tokens "
        "(62288 in the messages, 4096 in the completion). Please reduce the length of the messages "
        "or completion.", "invalid_request_error")),
    ("gemini", 400, google(400, "The input token count (1196265) exceeds the maximum number of "
                                "tokens allowed (1048575).", "INVALID_ARGUMENT")),
    ("gemini", 400, google(400, "The input token count exceeds the maximum number of tokens "
                                "allowed 1048576.", "INVALID_ARGUMENT")),
    ("openrouter", 400, {"error": {"message":
        "This endpoint's maximum context length is 32768 tokens. However, you requested about "
        "42832 tokens (42832 of text input). Please reduce the length of either one, or use the "
        '"middle-out" transform to compress your prompt automatically.', "code": 400,
        "metadata": {"provider_name": None}}}),
    ("openrouter", 400, openrouter(
        400, anthropic("prompt is too long: 217779 tokens > 200000 maximum"))),
    ("openrouter", 400, openrouter(400, openai("too long", "context_length_exceeded"))),
    ("mistral", 400, {"object": "error", "message":
        "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length", "type": "invalid_request_error", "param": None, "code": "3051"}),
    ("xai", 400, {"code": "Client specified an invalid argument", "error":
        "This model's maximum prompt length is 131072 but the request contains 136973 tokens."}),
    ("ollama", 400, openai("prompt too long; exceeded max context length by 100918 tokens")),
    ("ollama", 500, {"error": "the input length exceeds the context length"}),
    ("llamacpp", 400, {"error": {
        "code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 13392, "n_ctx": 8192,
        "message": "request (13392 tokens) exceeds the available context size (8192 tokens), try "
                   "increasing it"}}),
    ("llamacpp, 2025", 400, {"error": {
        "code": 400, "type": "invalid_request_error",
        "message": "the request exceeds the available context size, try increasing it"}}),
    ("llamacpp", 500, {"error": {
        "code": 500, "type": "server_error", "message": "Context size has been exceeded."}}),
    ("lmstudio", 400, {"error": "The number of tokens to keep from the initial prompt is greater "
     "than the context length (n_keep: 5453>= n_ctx: 4096). Try to load the model with a larger "
     "context length, or provide a shorter input"}),
    ("lmstudio", 400, {"error": "Trying to keep the first 10136 tokens when context the overflows. "
     "However, the model is loaded with context length of only 7866 tokens, which is not enough."}),
    ("vllm", 400, vllm(
        "This model's maximum context length is 131072 tokens. However, you requested 156632 "
        "tokens (152536 in the messages, 4096 in the completion). Please reduce the length of the "
        "messages or completion.")),
    ("vllm", 400, vllm(
        "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context "
        "length is 32768 tokens and your request has 30000 input tokens (8192 > 32768 - 30000).")),
    ("vllm", 400, vllm(
        "The prompt (total length 25938) is too long to fit into the model (context length 4096). "
        "Make sure that `max_model_len` is no smaller than the number of text tokens plus "
        "multimodal tokens.")),
    ("vllm", 400, vllm("The decoder prompt (length 12324) is longer than the maximum model length "
                       "of 8192. Make sure that `max_model_len` is no smaller than the number of "
                       "text tokens.")),
    ("vllm", 400, {"error": vllm(
        "You passed 12001 input tokens and requested 4096 output tokens. However, the model's "
        "context length is only 16096 tokens, resulting in a maximum input length of 12000 tokens. "
        "Please reduce the length of the input prompt.")}),
    ("sglang", 400, vllm("The input (691793 tokens) is longer than the model's context length "
                         "(540000 tokens).")),
    ("sglang", 400, vllm("Requested token count exceeds the model's maximum context length of "
                         "32768 tokens. You requested a total of 40000 tokens: 36000 tokens from "
                         "the input messages and 4000 tokens for the completion.")),
    ("mlx-serve", 400, anthropic("Prompt exceeds maximum context length")),
    ("fireworks", 400, openai("The prompt is too long: 131073, model maximum context length: "
                              "131071", "invalid_request_error")),
    ("cohere", 400, {"message": "too many tokens: total number of tokens in the prompt cannot "
     "exceed 4081 - received 4292. Try using a shorter prompt, or enabling prompt truncating."}),
    ("minimax", 400, anthropic("invalid params, context window exceeds limit (2013)",
                               "bad_request_error")),
    ("moonshot", 400, openai("Invalid request: Your request exceeded model token limit: 262144 "
                             "(requested: 291351)")),
    ("dashscope", 400, openai("<400> InternalError.Algo.InvalidParameter: Range of input length "
                              "should be [1, 129024]", "invalid_parameter_error")),
    ("z.ai", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}),
    ("copilot", 400, openai("prompt token count of 93854 exceeds the limit of 90000", "", "")),
    ("copilot", 400, {"error": {"message": "prompt token count of 391491 exceeds the limit of "
                                "128000", "code": "model_max_prompt_tokens_exceeded"}}),
    ("litellm", 400, openai("litellm.ContextWindowExceededError: litellm.BadRequestError: "
                            "AnthropicException - prompt is too long", "400", "")),
]
OUT_OF_CREDIT: list[tuple[str, int, object]] = [
    ("anthropic", 400, anthropic(
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing "
        "to upgrade or purchase credits.")),
    ("anthropic", 400, anthropic("You have reached your specified API usage limits. You will "
                                 "regain access on 2026-04-01 at 00:00 UTC.")),
    ("anthropic", 402, anthropic("There is an issue with your payment.", "billing_error")),
    ("openai", 429, openai(
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota", "insufficient_quota")),
    ("openai", 429, openai("Your account is not active, please check your billing details on our "
                           "website.", "billing_not_active", "billing_not_active")),
    ("openai", 400, openai("Billing hard limit has been reached", "billing_hard_limit_reached")),
    ("gemini", 429, google(429, "You exceeded your current quota, please check your plan and "
                                "billing details. For more information on this error, head to: "
                                "https://ai.google.dev/gemini-api/docs/rate-limits.",
                           "RESOURCE_EXHAUSTED")),
    ("gemini", 429, google(429, "Your prepayment credits are depleted. Please go to AI Studio to "
                                "manage your project and billing.", "RESOURCE_EXHAUSTED")),
    ("gemini", 403, google(403, "This API method requires billing to be enabled.",
                           "PERMISSION_DENIED", "BILLING_DISABLED")),
    ("openrouter", 402, {"error": {"message": "Insufficient credits", "code": 402}}),
    ("deepseek", 402, openai("Insufficient Balance", "invalid_request_error", "unknown_error")),
    ("xai", 429, {"code": "Some resource has been exhausted", "error":
        "Your team 16f2151a-40f4-4a80-8ad0-cae00c27e8dd has either used all available credits or "
        "reached its monthly spending limit. To continue making API requests, please purchase more "
        "credits or raise your spending limit."}),
    ("xai", 403, {"code": "permission-denied", "error":
        "Your team 8c268de0-42ec-4474-b4b6-4c92c1f97827 has either used all available credits or "
        "reached its monthly spending limit."}),
    ("xai", 403, {"code": "The caller does not have permission to execute the specified operation",
     "error": "Your newly created team doesn't have any credits yet. You can purchase credits on "
              "https://console.x.ai/team/abc."}),
    ("moonshot", 429, openai(
        "Your account is suspended due to insufficient balance, please recharge your account or "
        "check your plan and billing details", kind="exceeded_current_quota_error")),
    ("minimax", 429, {"error": {"http_code": "429", "message": "insufficient balance (1008)",
                                "type": "insufficient_balance_error"}}),
    ("z.ai", 429, {"error": {"code": "1113", "message":
        "Insufficient balance or no resource package. Please recharge."}}),
    ("z.ai, messages", 429, {"type": "error", "error": {
        "type": "rate_limit_error", "code": "1113",
        "message": "[1113][Insufficient balance or no resource package. Please recharge.]"}}),
    ("dashscope", 400, openai("Access denied, please make sure your account is in good standing.",
                              "Arrearage", "Arrearage")),
    ("litellm", 400, openai("Budget has been exceeded! Current cost: 20.0, Max budget: 10.0",
                            "400", "budget_exceeded")),
]
OTHERS: list[tuple[type[ModelError], int, object]] = [
    (AccessDenied, 400, {"code": "Client specified an invalid argument", "error":
        "Incorrect API key provided: xa***3. You can obtain one from https://console.x.ai."}),
    (AccessDenied, 400, {"code": "invalid-argument", "error":
        "Incorrect API key provided. You can obtain an API key from https://console.x.ai."}),
    (UnknownModel, 400, {"message": "The provided model identifier is invalid."}),
    (AccessDenied, 400, google(400, "API key not valid. Please pass a valid API key.",
                               "INVALID_ARGUMENT")),
    (AccessDenied, 400, google(400, "API key expired. Please renew the API key.",
                               "INVALID_ARGUMENT", "API_KEY_INVALID")),
    (AccessDenied, 401, openai("Incorrect API key provided: sk-***.", "invalid_api_key")),
    (AccessDenied, 403, anthropic("Your API key may not do this", "permission_error")),
    (UnknownModel, 404, anthropic("model: claude-none", "not_found_error")),
    (UnknownModel, 404, openai("The model `gpt-9` does not exist", "model_not_found")),
    (Overloaded, 529, anthropic("Overloaded", "overloaded_error")),
    (RateLimited, 429, anthropic("This request would exceed your account's rate limit.",
                                 "rate_limit_error")),
    # Both name a page about billing, where more can be bought.
    (RateLimited, 429, openai(
        "Rate limit reached for gpt-4o in organization org-x on requests per min (RPM): Limit 3, "
        "Used 3, Requested 1. Please try again in 20s. You can increase your rate limit by adding "
        "a payment method to your account at https://platform.openai.com/account/billing.",
        "rate_limit_exceeded", "requests")),
    (RateLimited, 429, openai(
        "Rate limit reached for model `llama-3.3-70b-versatile` on tokens per day (TPD): Limit "
        "100000, Used 99700, Requested 1500. Please try again in 17m16s. Need more tokens? Upgrade "
        "to Dev Tier today at https://console.groq.com/settings/billing", "rate_limit_exceeded",
        "tokens")),
    (RateLimited, 413, openai(
        "Request too large for model `llama-3.1-8b-instant` on tokens per minute (TPM): Limit "
        "6000, Requested 8000, please reduce your message size and try again.",
        "rate_limit_exceeded", "tokens")),
    (RateLimited, 429, {"object": "error", "message": "Rate limit exceeded",
                        "type": "rate_limited", "param": None, "code": "1300"}),
    (RateLimited, 429, {"message": "Too many tokens, please wait before trying again."}),
]
BODIES = [
    *[(ContextTooLong, status, body) for _, status, body in TOO_LONG],
    *[(QuotaExhausted, status, body) for _, status, body in OUT_OF_CREDIT],
    *OTHERS,
]
# fmt: on


@pytest.mark.parametrize(("kind", "status", "body"), BODIES)
def test_an_error_that_a_provider_sends_is_known(kind: type[ModelError], status: int, body: object):
    error = map_response_error(WHO, status, {}, json.dumps(body).encode())
    assert type(error) is kind


@pytest.mark.parametrize(
    "quoted",
    [
        "tools.3.custom.input_schema: JSON schema is invalid (tool 'get_billing_address')",
        "messages.0.content.1.image: could not process image billing-2026.png",
        "messages.2: `tool_use` ids must be unique: context_size_probe",
        "Invalid 'tools[0].function.name': 'insufficient_quota_check' does not match the pattern",
        "messages.4: text 'the prompt is too long: 9 tokens > 8 maximum' is not allowed",
        "Invalid value: 'your credit balance is too low'. Supported values are: 'text'",
        "tool 'rotate' has an invalid default: 'invalid api key, maximum context length is 9'",
        "document 'the previous response.pdf' is damaged",
    ],
)
@pytest.mark.parametrize("layout", [anthropic, openai, vllm])
def test_a_refusal_that_quotes_the_users_words_stays_a_refusal(quoted: str, layout: Any):
    error = map_response_error(WHO, 400, {}, json.dumps(layout(quoted)).encode())
    assert type(error) is BadRequest
    assert error.code != "previous_response_not_found"


def test_a_gateway_that_quotes_a_refusal_does_not_change_it():
    quoted = anthropic("tools.0.custom.name: 'get_billing_address' is not a valid name")
    error = map_response_error(WHO, 400, {}, json.dumps(openrouter(400, quoted)).encode())
    assert type(error) is BadRequest
    assert "get_billing_address" in error.provider_message


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"error": {"type": "throttlingException", "message": "Too many tokens, please wait"}},
         RateLimited),
        ({"error": {"type": "modelTimeoutException", "message": "slow"}}, Overloaded),
        ({"error": {"type": "validationException",
                    "message": "Input is too long for requested model."}}, ContextTooLong),
        ({"code": 500, "message": "context size has been exceeded", "type": "server_error"},
         ContextTooLong),
    ],
)  # fmt: skip
def test_an_error_inside_a_stream_is_known_without_a_status(data: object, kind: type[ModelError]):
    assert type(map_stream_error(WHO, json.dumps(data).encode())) is kind


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [(kind, pattern) for kind, rows in MESSAGES.items() for _, pattern in rows],
)
def test_every_sentence_in_the_table_has_the_body_it_was_made_for(
    kind: type[ModelError], pattern: str
):
    bodies = [parse_error_body(json.dumps(body).encode()) for k, _, body in BODIES if k is kind]
    assert any(re.match(pattern, body.message, re.IGNORECASE) for body in bodies)
