"""What sets the servers that speak OpenAI's chat dialect apart, as a table.

Each row is a value: where the server is, which key it wants, which fields it takes and which it
refuses. How tolerant the reading is does not depend on the row: every stream is read as if it
came from the sloppiest of them. openai_chat reads this table; registry/__init__.py finds a row by its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

# How a wish for more or less thinking is said: one word, OpenRouter's object, or not at all.
EffortField = Literal["reasoning_effort", "reasoning", ""]
# The field in which the server wants its own reasoning back, if it wants it back.
ReasoningField = Literal["reasoning_content", "reasoning", "reasoning_details", ""]


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    """One server. The defaults are the cautious ones, for a server that nobody knows."""

    name: str = "compatible"
    base_url: str = ""
    host_suffixes: tuple[str, ...] = ()  # how its host names end
    key_variables: tuple[str, ...] = ()  # environment variables, the first one set wins
    url_variables: tuple[str, ...] = ()  # the same for its address
    needs_key: bool = True
    key_header: str = "authorization"
    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    supports_stream_usage: bool = True  # takes stream_options.include_usage
    supports_cache_key: bool = False  # takes prompt_cache_key
    effort_field: EffortField = ""
    reasoning_input_field: ReasoningField = ""
    requires_reasoning_field: bool = False  # ... on every reply, even if there was none
    supports_strict: bool = False  # takes "strict" in tools and schemas
    supports_documents: bool = False  # takes file parts
    requires_short_ids: bool = False  # call ids of nine letters or digits
    requires_call_signatures: bool = False  # calls carry a signature that must come back
    max_images: int | None = None
    max_body_bytes: int | None = None


OPENAI = Quirks(
    name="openai",
    base_url="https://api.openai.com/v1",
    host_suffixes=("api.openai.com",),
    key_variables=("OPENAI_API_KEY",),
    url_variables=("OPENAI_BASE_URL",),
    system_role="developer",
    max_tokens_field="max_completion_tokens",
    supports_cache_key=True,
    effort_field="reasoning_effort",
    supports_strict=True,
    supports_documents=True,
    max_images=500,
    max_body_bytes=50 << 20,
)
AZURE = msgspec.structs.replace(
    OPENAI,
    name="azure",
    base_url="",
    host_suffixes=(".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
    key_variables=("AZURE_OPENAI_API_KEY",),
    url_variables=("AZURE_OPENAI_ENDPOINT",),
    key_header="api-key",
)
OPENROUTER = Quirks(
    name="openrouter",
    base_url="https://openrouter.ai/api/v1",
    host_suffixes=("openrouter.ai",),
    key_variables=("OPENROUTER_API_KEY",),
    url_variables=("OPENROUTER_BASE_URL",),
    effort_field="reasoning",
    reasoning_input_field="reasoning_details",
    supports_strict=True,
    supports_documents=True,
)
OLLAMA = Quirks(
    name="ollama",
    base_url="http://127.0.0.1:11434/v1",
    key_variables=("OLLAMA_API_KEY",),
    url_variables=("OLLAMA_HOST",),
    needs_key=False,
    effort_field="reasoning_effort",
    reasoning_input_field="reasoning",
)
LMSTUDIO = Quirks(
    name="lmstudio",
    base_url="http://127.0.0.1:1234/v1",
    key_variables=("LMSTUDIO_API_KEY", "LM_API_TOKEN"),
    url_variables=("LMSTUDIO_BASE_URL",),
    needs_key=False,
    effort_field="reasoning_effort",
)
LLAMACPP = Quirks(
    name="llamacpp",
    base_url="http://127.0.0.1:8080/v1",
    key_variables=("LLAMA_API_KEY",),
    url_variables=("LLAMACPP_BASE_URL",),
    needs_key=False,
    reasoning_input_field="reasoning_content",
)
VLLM = Quirks(
    name="vllm",
    base_url="http://127.0.0.1:8000/v1",
    key_variables=("VLLM_API_KEY",),
    url_variables=("VLLM_BASE_URL",),
    needs_key=False,
    effort_field="reasoning_effort",
    reasoning_input_field="reasoning",
)
DEEPSEEK = Quirks(
    name="deepseek",
    base_url="https://api.deepseek.com/v1",
    host_suffixes=("api.deepseek.com",),
    key_variables=("DEEPSEEK_API_KEY",),
    url_variables=("DEEPSEEK_BASE_URL",),
    effort_field="reasoning_effort",
    reasoning_input_field="reasoning_content",
    requires_reasoning_field=True,
)
GROQ = Quirks(
    name="groq",
    base_url="https://api.groq.com/openai/v1",
    host_suffixes=("api.groq.com",),
    key_variables=("GROQ_API_KEY",),
    url_variables=("GROQ_BASE_URL",),
    max_tokens_field="max_completion_tokens",
    effort_field="reasoning_effort",
    max_images=5,
)
MISTRAL = Quirks(
    name="mistral",
    base_url="https://api.mistral.ai/v1",
    host_suffixes=("api.mistral.ai", "codestral.mistral.ai"),
    key_variables=("MISTRAL_API_KEY",),
    url_variables=("MISTRAL_BASE_URL",),
    supports_stream_usage=False,  # refuses unknown fields, and sends usage anyway
    supports_strict=True,
    requires_short_ids=True,
    max_images=8,
)
GEMINI = Quirks(
    name="gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    host_suffixes=("generativelanguage.googleapis.com",),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    url_variables=("GEMINI_BASE_URL",),
    effort_field="reasoning_effort",
    requires_call_signatures=True,
)
COMPATIBLE = Quirks(
    key_variables=("OPENAI_API_KEY",),
    url_variables=("OPENAI_BASE_URL",),
    needs_key=False,
)

SERVERS: dict[str, Quirks] = {
    row.name: row
    for row in (
        OPENAI,
        AZURE,
        OPENROUTER,
        OLLAMA,
        LMSTUDIO,
        LLAMACPP,
        VLLM,
        DEEPSEEK,
        GROQ,
        MISTRAL,
        GEMINI,
        COMPATIBLE,
    )
}

# A server of one's own is known by its usual port only.
_SERVER_PORTS = {11434: OLLAMA, 1234: LMSTUDIO}
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal")


def find_server(base_url: str) -> Quirks:
    """The row for an address. Nobody's address gets the cautious row."""
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    for row in SERVERS.values():
        if any(
            host == end or (end.startswith(".") and host.endswith(end)) for end in row.host_suffixes
        ):
            return row
    try:
        port = parts.port
    except ValueError:
        port = None
    return _SERVER_PORTS.get(port or 0, COMPATIBLE) if host in _LOCAL_HOSTS else COMPATIBLE


def resolve_server(
    quirks: Quirks | str | None,
    base_url: str | None,
    environ: Mapping[str, str] | None = None,
    default_quirks: Quirks = COMPATIBLE,
) -> tuple[Quirks, str]:
    """The row and the address, from whatever the caller and the environment say of them.

    `unknown` is the row for an address that nobody knows.
    """
    env = os.environ if environ is None else environ
    if isinstance(quirks, str):
        if quirks not in SERVERS:
            raise ValueError(
                f"no server is called {quirks!r}: choose one of {', '.join(SERVERS)}, "
                "or give a Quirks value"
            )
        quirks = SERVERS[quirks]
    if base_url is None:
        variables = (quirks or OPENAI).url_variables
        base_url = next((env[name] for name in variables if env.get(name)), None)
    if base_url is None:
        row = quirks or OPENAI
        return row, normalize_base_url(row.base_url, row)
    row = quirks or find_server(base_url)
    row = default_quirks if row is COMPATIBLE else row
    return row, normalize_base_url(base_url, row)


def normalize_base_url(base_url: str, quirks: Quirks) -> str:
    """An address as people write it, in the form that paths are appended to."""
    url = base_url.strip().rstrip("/")
    if not url:
        return ""
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if quirks.name == "ollama" and parts.hostname:
        # OLLAMA_HOST is also what its server listens on.
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


def find_server_key(
    quirks: Quirks, base_url: str | None, environ: Mapping[str, str] | None = None
) -> str:
    """The key in the environment, or nothing.

    An address that was given in code or settings gets the key only if it is the server's own or
    on this machine: a file in a repository must not be able to have the key sent elsewhere.
    """
    env = os.environ if environ is None else environ
    if base_url is not None and not _is_local(base_url):
        home = find_server(base_url)
        if home.name != quirks.name or not home.host_suffixes:
            return ""
    return next(
        (env[name].strip() for name in quirks.key_variables if env.get(name, "").strip()), ""
    )


def _is_local(base_url: str) -> bool:
    return (urlsplit(base_url).hostname or "").lower() in _LOCAL_HOSTS
