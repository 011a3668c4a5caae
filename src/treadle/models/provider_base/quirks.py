"""The servers with OpenAI's chat format, and how they differ, as a table.

A row says where the server is, which key it needs, which fields it accepts and which it refuses.
Decoding does not depend on the row: it tolerates the deviations of every server. Used by the
OpenAI packages and by the registry.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from treadle.lib.http.local_hosts import is_local

# The field for the thinking effort: one word, OpenRouter's object, the switch `thinking` of the
# makers (and the word for models that have efforts), Together's switch, Alibaba's switch, or none.
EffortField = Literal[
    "reasoning_effort", "reasoning", "thinking", "reasoning.enabled", "enable_thinking", ""
]
# The field in which the server expects its own reasoning back; `content`: as parts of it; `same`:
# the one in which it came; empty: it does not expect it.
ReasoningField = Literal[
    "reasoning_content", "reasoning", "reasoning_details", "content", "same", ""
]


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """One server. The defaults are the cautious ones, for an unknown server."""

    name: str = "compatible"
    base_url: str = ""
    host_suffixes: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()  # environment variables; the first one that is set wins
    url_variables: tuple[str, ...] = ()  # the same for its address
    needs_key: bool = True
    default_model: str = ""  # used when only the provider is named, or its key is the only one
    key_header: str = "authorization"
    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    supports_stream_usage: bool = True  # stream_options.include_usage
    supports_cache_key: bool = False  # prompt_cache_key
    effort_field: EffortField = ""
    thinking_type: Literal["enabled", "adaptive"] = "enabled"  # in the switch `thinking`
    reasoning_input_field: ReasoningField = ""
    requires_reasoning_field: bool = False  # ... in every reply, even an empty one
    supports_strict: bool = False  # "strict" in tools and schemas
    supports_documents: bool = False  # file parts: PDF
    supports_office_files: bool = False  # ... and tables and texts of office programs
    accepts_reply_first: bool = False  # the first message may be the model's
    requires_short_ids: bool = False  # call ids of nine letters or digits
    requires_call_signatures: bool = False  # the signature of a call must be sent back
    max_images: int | None = None
    max_body_bytes: int | None = None


# Each row: where it is, its variables, what it accepts.
# fmt: off
OPENAI = Quirks(
    name="openai", base_url="https://api.openai.com/v1", host_suffixes=("api.openai.com",),
    key_variables=("OPENAI_API_KEY",), url_variables=("OPENAI_BASE_URL",),
    default_model="gpt-6.1-sol", system_role="developer", max_tokens_field="max_completion_tokens",
    supports_cache_key=True,
    effort_field="reasoning_effort", supports_strict=True, supports_documents=True,
    supports_office_files=True, accepts_reply_first=True,
    max_images=500, max_body_bytes=50 << 20,
)
AZURE = msgspec.structs.replace(
    OPENAI, name="azure", base_url="", default_model="",
    host_suffixes=(".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
    key_variables=("AZURE_OPENAI_API_KEY",), url_variables=("AZURE_OPENAI_ENDPOINT",),
    key_header="api-key",
)
OPENROUTER = Quirks(
    name="openrouter", base_url="https://openrouter.ai/api/v1", host_suffixes=("openrouter.ai",),
    key_variables=("OPENROUTER_API_KEY",), url_variables=("OPENROUTER_BASE_URL",),
    default_model="anthropic/claude-sonnet-5.5",
    effort_field="reasoning", reasoning_input_field="reasoning_details",
    supports_strict=True, supports_documents=True,
)
OLLAMA = Quirks(
    name="ollama", base_url="http://127.0.0.1:11434/v1", needs_key=False,
    key_variables=("OLLAMA_API_KEY",), url_variables=("OLLAMA_HOST",),
    effort_field="reasoning_effort", reasoning_input_field="reasoning",
)
LMSTUDIO = Quirks(
    name="lmstudio", base_url="http://127.0.0.1:1234/v1", needs_key=False,
    key_variables=("LMSTUDIO_API_KEY", "LM_API_TOKEN"), url_variables=("LMSTUDIO_BASE_URL",),
    effort_field="reasoning_effort",
)
LLAMACPP = Quirks(
    name="llamacpp", base_url="http://127.0.0.1:8080/v1", needs_key=False,
    key_variables=("LLAMA_API_KEY",), url_variables=("LLAMACPP_BASE_URL",),
    reasoning_input_field="reasoning_content",
)
VLLM = Quirks(
    name="vllm", base_url="http://127.0.0.1:8000/v1", needs_key=False,
    key_variables=("VLLM_API_KEY",), url_variables=("VLLM_BASE_URL",),
    effort_field="reasoning_effort", reasoning_input_field="reasoning",
)
DEEPSEEK = Quirks(
    name="deepseek", base_url="https://api.deepseek.com/v1", host_suffixes=("api.deepseek.com",),
    key_variables=("DEEPSEEK_API_KEY",), url_variables=("DEEPSEEK_BASE_URL",),
    default_model="deepseek-v4-pro",
    effort_field="thinking", reasoning_input_field="reasoning_content",
    requires_reasoning_field=True,
)
GROQ = Quirks(
    name="groq", base_url="https://api.groq.com/openai/v1", host_suffixes=("api.groq.com",),
    key_variables=("GROQ_API_KEY",), url_variables=("GROQ_BASE_URL",),
    default_model="openai/gpt-oss-120b",
    max_tokens_field="max_completion_tokens", effort_field="reasoning_effort", max_images=5,
)
MISTRAL = Quirks(
    name="mistral", base_url="https://api.mistral.ai/v1",
    host_suffixes=("api.mistral.ai", "codestral.mistral.ai"),
    key_variables=("MISTRAL_API_KEY",), url_variables=("MISTRAL_BASE_URL",),
    default_model="mistral-medium-latest",
    supports_stream_usage=False,  # refuses unknown fields, and sends usage anyway
    supports_strict=True, requires_short_ids=True, max_images=8, reasoning_input_field="content",
    effort_field="reasoning_effort",
)
GEMINI = Quirks(
    name="gemini", base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    host_suffixes=("generativelanguage.googleapis.com",),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    url_variables=("GEMINI_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
    default_model="gemini-3.8-flash",
    effort_field="reasoning_effort", requires_call_signatures=True,
)
XAI = Quirks(
    name="xai", base_url="https://api.x.ai/v1", host_suffixes=("api.x.ai",),
    key_variables=("XAI_API_KEY",), url_variables=("XAI_BASE_URL",),
    default_model="grok-4.7", effort_field="reasoning_effort",
    reasoning_input_field="reasoning_content", supports_strict=True,
)
ZAI = Quirks(
    name="zai", base_url="https://api.z.ai/api/paas/v4", host_suffixes=("api.z.ai",),
    key_variables=("ZAI_API_KEY", "ZHIPU_API_KEY"), url_variables=("ZAI_BASE_URL",),
    default_model="glm-5.3", effort_field="thinking", reasoning_input_field="reasoning_content",
)
MOONSHOT = Quirks(
    name="moonshot", base_url="https://api.moonshot.ai/v1",
    host_suffixes=("api.moonshot.ai", "api.moonshot.cn"),
    key_variables=("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
    url_variables=("MOONSHOT_BASE_URL",), default_model="kimi-k3.1-pro",
    effort_field="thinking", reasoning_input_field="reasoning_content",
)
MINIMAX = Quirks(
    name="minimax", base_url="https://api.minimax.io/v1", host_suffixes=("api.minimax.io",),
    key_variables=("MINIMAX_API_KEY",), url_variables=("MINIMAX_BASE_URL",),
    default_model="MiniMax-M3", effort_field="thinking", thinking_type="adaptive",
    reasoning_input_field="same",
)
ALIBABA = Quirks(
    name="alibaba", base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
    host_suffixes=("dashscope-intl.aliyuncs.com", "dashscope.aliyuncs.com"),
    key_variables=("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
    url_variables=("DASHSCOPE_BASE_URL",), effort_field="enable_thinking",
    reasoning_input_field="reasoning_content",
)
COHERE = Quirks(
    name="cohere", base_url="https://api.cohere.ai/compatibility/v1",
    host_suffixes=("api.cohere.ai", "api.cohere.com"),
    key_variables=("COHERE_API_KEY", "CO_API_KEY"), url_variables=("COHERE_BASE_URL",),
    default_model="command-a-03-2025",
)
PERPLEXITY = Quirks(
    name="perplexity", base_url="https://api.perplexity.ai",
    host_suffixes=("api.perplexity.ai",), key_variables=("PERPLEXITY_API_KEY",),
    url_variables=("PERPLEXITY_BASE_URL",), default_model="sonar-pro",
)
CEREBRAS = Quirks(
    name="cerebras", base_url="https://api.cerebras.ai/v1", host_suffixes=("api.cerebras.ai",),
    key_variables=("CEREBRAS_API_KEY",), url_variables=("CEREBRAS_BASE_URL",),
    default_model="gpt-oss-120b", max_tokens_field="max_completion_tokens",
    effort_field="reasoning_effort", reasoning_input_field="reasoning", supports_strict=True,
)
TOGETHER = Quirks(
    name="together", base_url="https://api.together.xyz/v1",
    host_suffixes=("api.together.xyz", "api.together.ai"), key_variables=("TOGETHER_API_KEY",),
    url_variables=("TOGETHER_BASE_URL",), default_model="zai-org/GLM-5.3",
    effort_field="reasoning.enabled", reasoning_input_field="same",
)
FIREWORKS = Quirks(
    name="fireworks", base_url="https://api.fireworks.ai/inference/v1",
    host_suffixes=("api.fireworks.ai",), key_variables=("FIREWORKS_API_KEY",),
    url_variables=("FIREWORKS_BASE_URL",), default_model="accounts/fireworks/models/glm-5p3",
    effort_field="reasoning_effort", reasoning_input_field="same",
)
NEBIUS = Quirks(
    name="nebius", base_url="https://api.studio.nebius.com/v1",
    host_suffixes=("api.studio.nebius.com",), key_variables=("NEBIUS_API_KEY",),
    url_variables=("NEBIUS_BASE_URL",), reasoning_input_field="same",
)
SAMBANOVA = Quirks(
    name="sambanova", base_url="https://api.sambanova.ai/v1",
    host_suffixes=("api.sambanova.ai",), key_variables=("SAMBANOVA_API_KEY",),
    url_variables=("SAMBANOVA_BASE_URL",), reasoning_input_field="same",
)
DEEPINFRA = Quirks(
    name="deepinfra", base_url="https://api.deepinfra.com/v1/openai",
    host_suffixes=("api.deepinfra.com",), key_variables=("DEEPINFRA_API_KEY", "DEEPINFRA_TOKEN"),
    url_variables=("DEEPINFRA_BASE_URL",), reasoning_input_field="same",
)
OVHCLOUD = Quirks(
    name="ovhcloud", base_url="https://oai.endpoints.kepler.ai.cloud.ovh.net/v1",
    host_suffixes=("oai.endpoints.kepler.ai.cloud.ovh.net",),
    key_variables=("OVHCLOUD_API_KEY",), url_variables=("OVHCLOUD_BASE_URL",),
    reasoning_input_field="same",
)
NVIDIA = Quirks(
    name="nvidia", base_url="https://integrate.api.nvidia.com/v1",
    host_suffixes=("integrate.api.nvidia.com",), key_variables=("NVIDIA_API_KEY",),
    url_variables=("NVIDIA_BASE_URL",), reasoning_input_field="same",
)
VERCEL = Quirks(
    name="vercel", base_url="https://ai-gateway.vercel.sh/v1",
    host_suffixes=("ai-gateway.vercel.sh",),
    key_variables=("AI_GATEWAY_API_KEY", "VERCEL_AI_GATEWAY_API_KEY"),
    url_variables=("VERCEL_AI_GATEWAY_BASE_URL",), default_model="anthropic/claude-sonnet-5.5",
    effort_field="reasoning", reasoning_input_field="same",
)
HUGGINGFACE = Quirks(  # no default model: the token is often there for downloads
    name="huggingface", base_url="https://router.huggingface.co/v1",
    host_suffixes=("router.huggingface.co",), key_variables=("HF_TOKEN",),
    url_variables=("HF_BASE_URL",), effort_field="reasoning_effort",
    reasoning_input_field="same",
)
GITHUB = Quirks(  # no default model: the token is often there for other things
    name="github", base_url="https://models.github.ai/inference",
    host_suffixes=("models.github.ai",), key_variables=("GITHUB_API_KEY", "GITHUB_TOKEN"),
    url_variables=("GITHUB_MODELS_BASE_URL",),
)
VOYAGE = Quirks(  # embeddings only, so it is in no table of models
    name="voyage", base_url="https://api.voyageai.com/v1", host_suffixes=("api.voyageai.com",),
    key_variables=("VOYAGE_API_KEY",), url_variables=("VOYAGE_BASE_URL",),
)
COMPATIBLE = Quirks(
    key_variables=("OPENAI_API_KEY",), url_variables=("OPENAI_BASE_URL",), needs_key=False,
    reasoning_input_field="same",
)
_ROWS = (
    OPENAI, OPENROUTER, GEMINI, DEEPSEEK, GROQ, MISTRAL, XAI, ZAI, MOONSHOT, MINIMAX, ALIBABA,
    COHERE, PERPLEXITY, CEREBRAS, TOGETHER, FIREWORKS, NEBIUS, SAMBANOVA, DEEPINFRA, OVHCLOUD,
    NVIDIA, VERCEL, HUGGINGFACE, GITHUB, AZURE, OLLAMA, LMSTUDIO, LLAMACPP, VLLM, COMPATIBLE,
)
# fmt: on

SERVERS: dict[str, Quirks] = {row.name: row for row in _ROWS}

# A local server is recognised by its usual port.
_SERVER_PORTS = {11434: OLLAMA, 1234: LMSTUDIO}


def find_server(base_url: str) -> Quirks:
    """The row for an address; COMPATIBLE if the address is unknown."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return COMPATIBLE
    host = parts.hostname or ""
    for row in SERVERS.values():
        for end in row.host_suffixes:
            if host == end or (end.startswith(".") and host.endswith(end)):
                return row
    try:
        port = parts.port
    except ValueError:
        port = None
    return _SERVER_PORTS.get(port or 0, COMPATIBLE) if is_local(host) else COMPATIBLE


def resolve_server(
    quirks: Quirks | str | None,
    base_url: str | None,
    environ: Mapping[str, str] | None = None,
    default_quirks: Quirks = COMPATIBLE,
) -> tuple[Quirks, str]:
    """The row and the address, from the arguments and the environment.

    `default_quirks` is the row for an unknown address.
    """
    env = os.environ if environ is None else environ
    if isinstance(quirks, str):
        if quirks not in SERVERS:
            names = ", ".join(SERVERS)
            raise ValueError(
                f"no server is called {quirks!r}: choose one of {names}, or pass a Quirks value"
            )
        quirks = SERVERS[quirks]
    variable = ""
    if base_url is None:
        row = quirks or OPENAI
        variable = find_set_variable(row.url_variables, env)
        if not variable:
            return row, normalize_base_url(row.base_url, row)
        base_url = env[variable]
    row = quirks or find_server(base_url)
    row = default_quirks if row is COMPATIBLE else row
    return row, normalize_base_url(base_url, row, variable)


def normalize_base_url(base_url: str, quirks: Quirks, variable: str = "") -> str:
    """A user's address, in the form to which paths are appended; ConfigError if it is none."""
    url = base_url.strip()
    if not url:
        return ""
    if "://" not in url and _is_host(url, quirks):
        url = f"http://{url}"
    if base_url != quirks.base_url:
        from treadle.models.provider_base.base_url import check_base_url

        check_base_url(url, variable or f"the base URL of {quirks.name}")
    url = url.rstrip("/")
    parts = urlsplit(url)
    if quirks.name == "ollama" and parts.hostname:
        # OLLAMA_HOST is also the address on which the server listens.
        host = "127.0.0.1" if parts.hostname == "0.0.0.0" else parts.hostname
        host = f"[{host}]" if ":" in host else host
        port = parts.port or (443 if parts.scheme == "https" else 11434)
        url = f"{parts.scheme}://{host}:{port}{parts.path}"
        parts = urlsplit(url)
    if not parts.path:
        if quirks.name == "azure":
            return f"{url}/openai/v1"
        if not quirks.needs_key:
            return f"{url}/v1"
    return url


def _is_host(text: str, quirks: Quirks) -> bool:
    """Whether text without a scheme is a host: `gpu:8000`, `10.0.0.5`, `localhost/v1`."""
    host = text.partition("/")[0]
    return "." in host or ":" in host or is_local(host) or quirks.name == "ollama"


def find_server_key(
    quirks: Quirks, base_url: str | None, environ: Mapping[str, str] | None = None
) -> str:
    """The key in the environment; empty if there is none.

    An address from code or settings gets the key only if it is the server's own or on this
    machine: a file in a repository must not be able to redirect the key.
    """
    env = os.environ if environ is None else environ
    if base_url is not None and not is_local(urlsplit(base_url).hostname or ""):
        owner = find_server(base_url)
        if owner.name != quirks.name or not owner.host_suffixes:
            return ""
    variable = find_set_variable(quirks.key_variables, env)
    return env[variable].strip() if variable else ""


def find_set_variable(variables: tuple[str, ...], environ: Mapping[str, str]) -> str:
    """The first of these variables that is set and not blank; empty if none is."""
    return next((name for name in variables if environ.get(name, "").strip()), "")
