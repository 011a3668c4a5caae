"""What sets the servers that speak OpenAI's chat dialect apart, as a table.

Each row is a value: where the server is, which key it wants, which fields it takes and which it
refuses. How tolerant the reading is does not depend on the row: every stream is read as if it
came from the sloppiest of them. openai_chat reads this table; names.py finds a row by its name.
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
    hosts: tuple[str, ...] = ()  # how its host names end
    keys: tuple[str, ...] = ()  # environment variables, the first one set wins
    urls: tuple[str, ...] = ()  # the same for its address
    key_needed: bool = True
    key_header: str = "authorization"
    system_role: Literal["system", "developer"] = "system"
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True  # takes stream_options.include_usage
    cache_key: bool = False  # takes prompt_cache_key
    effort_field: EffortField = ""
    reasoning_back: ReasoningField = ""
    reasoning_always: bool = False  # ... on every reply, even if there was none
    strict_schema: bool = False  # takes "strict" in tools and schemas
    documents: bool = False  # takes file parts
    short_ids: bool = False  # call ids of nine letters or digits
    call_signatures: bool = False  # calls carry a signature that must come back
    max_images: int | None = None
    max_body_bytes: int | None = None


OPENAI = Quirks(
    name="openai",
    base_url="https://api.openai.com/v1",
    hosts=("api.openai.com",),
    keys=("OPENAI_API_KEY",),
    urls=("OPENAI_BASE_URL",),
    system_role="developer",
    limit_field="max_completion_tokens",
    cache_key=True,
    effort_field="reasoning_effort",
    strict_schema=True,
    documents=True,
    max_images=500,
    max_body_bytes=50 << 20,
)
AZURE = msgspec.structs.replace(
    OPENAI,
    name="azure",
    base_url="",
    hosts=(".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com"),
    keys=("AZURE_OPENAI_API_KEY",),
    urls=("AZURE_OPENAI_ENDPOINT",),
    key_header="api-key",
)
OPENROUTER = Quirks(
    name="openrouter",
    base_url="https://openrouter.ai/api/v1",
    hosts=("openrouter.ai",),
    keys=("OPENROUTER_API_KEY",),
    urls=("OPENROUTER_BASE_URL",),
    effort_field="reasoning",
    reasoning_back="reasoning_details",
    strict_schema=True,
    documents=True,
)
OLLAMA = Quirks(
    name="ollama",
    base_url="http://127.0.0.1:11434/v1",
    keys=("OLLAMA_API_KEY",),
    urls=("OLLAMA_HOST",),
    key_needed=False,
    effort_field="reasoning_effort",
    reasoning_back="reasoning",
)
LMSTUDIO = Quirks(
    name="lmstudio",
    base_url="http://127.0.0.1:1234/v1",
    keys=("LMSTUDIO_API_KEY", "LM_API_TOKEN"),
    urls=("LMSTUDIO_BASE_URL",),
    key_needed=False,
    effort_field="reasoning_effort",
)
LLAMACPP = Quirks(
    name="llamacpp",
    base_url="http://127.0.0.1:8080/v1",
    keys=("LLAMA_API_KEY",),
    urls=("LLAMACPP_BASE_URL",),
    key_needed=False,
    reasoning_back="reasoning_content",
)
VLLM = Quirks(
    name="vllm",
    base_url="http://127.0.0.1:8000/v1",
    keys=("VLLM_API_KEY",),
    urls=("VLLM_BASE_URL",),
    key_needed=False,
    effort_field="reasoning_effort",
    reasoning_back="reasoning",
)
DEEPSEEK = Quirks(
    name="deepseek",
    base_url="https://api.deepseek.com/v1",
    hosts=("api.deepseek.com",),
    keys=("DEEPSEEK_API_KEY",),
    urls=("DEEPSEEK_BASE_URL",),
    effort_field="reasoning_effort",
    reasoning_back="reasoning_content",
    reasoning_always=True,
)
GROQ = Quirks(
    name="groq",
    base_url="https://api.groq.com/openai/v1",
    hosts=("api.groq.com",),
    keys=("GROQ_API_KEY",),
    urls=("GROQ_BASE_URL",),
    limit_field="max_completion_tokens",
    effort_field="reasoning_effort",
    max_images=5,
)
MISTRAL = Quirks(
    name="mistral",
    base_url="https://api.mistral.ai/v1",
    hosts=("api.mistral.ai", "codestral.mistral.ai"),
    keys=("MISTRAL_API_KEY",),
    urls=("MISTRAL_BASE_URL",),
    stream_usage=False,  # refuses unknown fields, and sends usage anyway
    strict_schema=True,
    short_ids=True,
    max_images=8,
)
GEMINI = Quirks(
    name="gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta/openai",
    hosts=("generativelanguage.googleapis.com",),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    urls=("GEMINI_BASE_URL",),
    effort_field="reasoning_effort",
    call_signatures=True,
)
COMPATIBLE = Quirks(
    keys=("OPENAI_API_KEY",),
    urls=("OPENAI_BASE_URL",),
    key_needed=False,
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
_PORTS = {11434: OLLAMA, 1234: LMSTUDIO}
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal")


def server_at(base_url: str) -> Quirks:
    """The row for an address. Nobody's address gets the cautious row."""
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    for row in SERVERS.values():
        if any(host == end or (end.startswith(".") and host.endswith(end)) for end in row.hosts):
            return row
    try:
        port = parts.port
    except ValueError:
        port = None
    return _PORTS.get(port or 0, COMPATIBLE) if host in _LOCAL else COMPATIBLE


def chosen(
    quirks: Quirks | str | None,
    base_url: str | None,
    environ: Mapping[str, str] | None = None,
    unknown: Quirks = COMPATIBLE,
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
        variables = (quirks or OPENAI).urls
        base_url = next((env[name] for name in variables if env.get(name)), None)
    if base_url is None:
        row = quirks or OPENAI
        return row, address(row.base_url, row)
    row = quirks or server_at(base_url)
    row = unknown if row is COMPATIBLE else row
    return row, address(base_url, row)


def address(base_url: str, row: Quirks) -> str:
    """An address as people write it, in the form that paths are appended to."""
    url = base_url.strip().rstrip("/")
    if not url:
        return ""
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if row.name == "ollama" and parts.hostname:
        # OLLAMA_HOST is also what its server listens on.
        host = "127.0.0.1" if parts.hostname == "0.0.0.0" else parts.hostname
        host = f"[{host}]" if ":" in host else host
        port = parts.port or (443 if parts.scheme == "https" else 11434)
        url = f"{parts.scheme}://{host}:{port}{parts.path}"
        parts = urlsplit(url)
    if not parts.path:
        if row.name == "azure":
            return f"{url}/openai/v1"
        if not row.key_needed:
            return f"{url}/v1"
    return url


def key_from(row: Quirks, base_url: str | None, environ: Mapping[str, str] | None = None) -> str:
    """The key in the environment, or nothing.

    An address that was given in code or settings gets the key only if it is the server's own or
    on this machine: a file in a repository must not be able to have the key sent elsewhere.
    """
    env = os.environ if environ is None else environ
    if base_url is not None and not _is_local(base_url):
        home = server_at(base_url)
        if home.name != row.name or not home.hosts:
            return ""
    return next((env[name].strip() for name in row.keys if env.get(name, "").strip()), "")


def _is_local(base_url: str) -> bool:
    return (urlsplit(base_url).hostname or "").lower() in _LOCAL
