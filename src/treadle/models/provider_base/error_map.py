"""Maps a provider's failure (status, headers, body) to one of the project's errors.

Pure functions, shared by all providers: they differ in the layout of an error body, and all known
layouts are read here, and in their codes and words, which error_types.py knows. The loop decides
about retries (core/loop).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    QuotaExhausted,
    RateLimited,
    ReplyTimedOut,
    StreamBroken,
    UnknownModel,
    Unreachable,
)
from treadle.lib.http.transport import (
    BadRedirect,
    ConnectFailed,
    ProxyFailed,
    TimedOut,
    TLSFailed,
    TransportError,
)
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.provider_base.error_types import (
    ProviderErrorBody,
    classify_error,
    read_codes,
)
from treadle.models.provider_base.lenient import fix_json_surrogates
from treadle.models.provider_base.request_limits import make_provider_tool_name

MAX_QUOTE_CHARS = 400
MIN_KEY_CHARS = 8  # a shorter key is a placeholder and may be part of any word
PREVIOUS_RESPONSE_LOST = "previous_response_not_found"  # OpenAI's code


class ProviderInfo(msgspec.Struct, frozen=True):
    """A provider, for messages: `key_variable` is what to set when the key is wrong."""

    name: str
    model: str = ""
    key_variable: str = ""
    secret: str = ""  # the key; never quoted
    has_own_url: bool = False  # the user set its address
    remedy: str = ""  # what to do when access is denied, if it is not a key that is wrong


_FORBIDDEN = 403
# What decoding raises for data that is not JSON of the expected type, or nested too deeply.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def parse_error_body(body: bytes) -> ProviderErrorBody:
    """Read an error body: {"error": {...}}, {"error": "..."}, {"detail": ...},
    {"base_resp": {...}}, text, HTML."""
    try:
        value = msgspec.json.decode(fix_json_surrogates(body.decode()))
    except UNREADABLE:
        text = body[:4096].decode("utf-8", "replace").strip()
        if text[:200].lstrip("\ufeff").lstrip().lower().startswith(("<!doctype", "<html", "<?xml")):
            return ProviderErrorBody(message=_find_html_title(text), is_html=True)
        return ProviderErrorBody(message=text[:MAX_QUOTE_CHARS])
    return _parse_error_value(value)


def _parse_error_value(value: object) -> ProviderErrorBody:
    if isinstance(value, list) and value:
        value = value[0]  # Gemini's compatible endpoint wraps its error in a list
    if not isinstance(value, dict):
        return ProviderErrorBody(message=str(value)[:MAX_QUOTE_CHARS])
    base = value.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):  # MiniMax
        value = {**value, "message": base.get("status_msg"), "code": base["status_code"]}
    inner = value.get("error", value)
    if isinstance(inner, str):
        kind, code = (_to_text(value.get(key)) for key in ("type", "code"))
        return ProviderErrorBody(inner, kind, code)
    if not isinstance(inner, dict):
        inner = value
    message = inner.get("message") or inner.get("detail") or inner.get("msg")
    if not isinstance(message, str):
        message = msgspec.json.encode(message if message is not None else inner).decode()
    kind, code, param = (_to_text(inner.get(key)) for key in ("type", "code", "param"))
    kind = kind or _find_reason(inner.get("details"))
    metadata = inner.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not isinstance(raw, str):
        return ProviderErrorBody(message, kind, code, param)
    upstream = parse_error_body(raw.encode("utf-8", "replace"))  # OpenRouter
    return ProviderErrorBody(f"{message}: {raw}", kind, code, param, upstream=upstream)


def _find_reason(details: object) -> str:
    """Google's own code of an error: `API_KEY_INVALID`."""
    rows = details if isinstance(details, list) else []
    reasons = [_to_text(row.get("reason")) for row in rows if isinstance(row, dict)]
    return next(filter(None, reasons), "")


def is_error_body(body: bytes) -> bool:
    """Whether this JSON, which is no reply, says what went wrong."""
    try:
        fields = msgspec.json.decode(fix_json_surrogates(body.decode()), type=dict[str, object])
    except UNREADABLE:
        return False
    base = fields.get("base_resp")
    if isinstance(base, dict) and base.get("status_code"):
        return True
    # A message that is an object is a reply of another interface.
    texts = (fields.get("message"), fields.get("msg"))
    has_text = any(isinstance(text, str) for text in texts)
    return has_text or any(fields.get(name) is not None for name in ("error", "detail"))


def has_field(body: bytes, name: str) -> bool:
    """Whether this is a JSON object with a value for this field."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return False
    return bytes(fields.get(name, b"null")) != b"null"


_TOOL_NUMBERS = (
    compile_lazily(r"function_declarations\[(\d+)"),  # Gemini; its tools[0] holds all of them
    compile_lazily(r"\btools(?:\.|\[|\",\s*)(\d+)"),
)
_TOOL_NAME = compile_lazily(r"\bfunction '([\w-]+)'")


def find_refused_tool(error: BadRequest, tools: Sequence[ToolSpec]) -> str:
    """The name of the tool that an error names; empty if it names none of these."""
    text = f"{error.param} {error.provider_message}"
    for pattern in _TOOL_NUMBERS:
        if match := pattern.search(text):
            return tools[int(match[1])].name if int(match[1]) < len(tools) else ""
    match = _TOOL_NAME.search(text)
    named = [
        spec.name for spec in tools if match and make_provider_tool_name(spec.name) == match[1]
    ]
    return named[0] if named else ""


def _to_text(value: object) -> str:
    return str(value) if isinstance(value, (str, int)) else ""


def _find_html_title(html: str) -> str:
    title = re.search(r"<title[^>]*>(.*?)</title", html, re.IGNORECASE | re.DOTALL)
    return " ".join(title[1].split())[:MAX_QUOTE_CHARS] if title else ""


# ------------------------------------------------------------------ retry-after


def parse_retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds to wait, from any form of the header; never negative. The loop sets the limit."""
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _parse_number(value)
    if seconds is not None:
        return max(0.0, seconds)
    import email.utils  # slow to import, and dates are rare

    try:
        moment = email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def _parse_number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# ------------------------------------------------------------------ responses with a status

# Of Go's server, and the title of nginx's page.
_EXPECTS_TLS = compile_lazily(r"sent (an|the plain) HTTP request to an HTTPS|sent to HTTPS port")
_LOST_RESPONSE = compile_lazily(r"Previous response with id \S+ not found\.?$")


def map_response_error(
    provider: ProviderInfo, status: int, headers: Mapping[str, str], body: bytes
) -> ModelError:
    """The error for a response that is not a stream of events."""
    parsed = parse_error_body(body)
    if status == 400 and _EXPECTS_TLS.search(parsed.message):
        message = f"{provider.name}: the server expects TLS: write https:// in the base URL."
        return Unreachable(message, provider=provider.name, status=status)
    if parsed.is_html or "text/html" in headers.get("content-type", ""):
        return _map_html_page(provider, status, parsed, parse_retry_after(headers))
    error = map_error_body(provider, parsed, status, parse_retry_after(headers))
    error.request_id = headers.get("request-id") or headers.get("x-request-id") or ""
    return error


def map_error_body(
    provider: ProviderInfo,
    error: ProviderErrorBody,
    status: int | None,
    retry_after: float | None = None,
) -> ModelError:
    """The error for a provider's error body; inside a stream there is no status."""
    if (
        error.code == PREVIOUS_RESPONSE_LOST
        or error.param == "previous_response_id"
        or _LOST_RESPONSE.match(error.message)
    ):
        return _bad_request(provider, error, status, PREVIOUS_RESPONSE_LOST)
    kind = classify_error(error, status)
    if kind is BadRequest:
        return _bad_request(provider, error, status, error.code or error.kind)
    message = _format_error(kind, provider, error, status)
    mapped = kind(message, provider=provider.name, status=status)
    mapped.retry_after = retry_after
    return mapped


def map_stream_error(provider: ProviderInfo, data: bytes) -> ModelError:
    """The error that a server reports inside a stream."""
    error = parse_error_body(data)
    status = int(error.code) if re.fullmatch("[1-5][0-9][0-9]", error.code) else None
    return map_error_body(provider, error, status)


def _format_error(
    kind: type[ModelError], provider: ProviderInfo, error: ProviderErrorBody, status: int | None
) -> str:
    name, text = provider.name, quote_message(error.message, provider.secret)
    if kind is QuotaExhausted:
        return (
            f"{name}: the account has no credit or quota left ({text}). "
            "Add credit, or choose another model with --model."
        )
    if kind is RateLimited:
        return f"{name}: too many requests for now ({text})."
    if kind is AccessDenied:
        return format_access_denied(provider, text, status)
    if kind is UnknownModel:
        return (
            f"{name} does not know {provider.model or 'this model'!r} ({text})."
            f"{_suggest_model(provider)} `treadle models` lists what can be used here"
            f"{'; check the base URL too' if provider.has_own_url else ''}."
        )
    if kind is ContextTooLong:
        return f"{name}: the request is too long ({text})."
    if kind is Overloaded:
        http_status = f" (HTTP {status})" if status else ""
        return f"{name} has a temporary problem{http_status}: {text}."
    if kind in read_codes(error):
        return f"{name} could not use what the model wrote ({text})."
    return f"{name} reported an error: {text}."


def _bad_request(
    provider: ProviderInfo, error: ProviderErrorBody, status: int | None, code: str
) -> BadRequest:
    return BadRequest(
        f"{provider.name} refused the request: {quote_message(error.message, provider.secret)}",
        provider=provider.name,
        status=status,
        param=error.param,
        code=code,
        provider_message=_hide_key(error.message, provider.secret),
    )


def format_access_denied(provider: ProviderInfo, reason: str, status: int | None) -> str:
    if status == _FORBIDDEN:  # the key is known: what it may do is the matter
        return (
            f"{provider.name} refused access to {provider.model or 'this model'} ({reason}). "
            "Check what the account and the key may use, or choose another model."
        )
    if provider.remedy:
        return f"{provider.name} did not accept the credentials ({reason}). {provider.remedy}."
    variable = provider.key_variable
    step = f"set {variable} to a valid key, or use `treadle login`" if variable else "check the key"
    return f"{provider.name} did not accept the key ({reason}). To continue, {step}."


def make_missing_key_error(provider: ProviderInfo, variables: str) -> AccessDenied:
    """No key is set. A misspelt model would only be noticed with one, so it is named, too."""
    return AccessDenied(
        f"{provider.name} needs a key: set {variables}, use `treadle login`, or choose another "
        f"model; `treadle models` lists what can be used here.{_suggest_model(provider)}",
        provider=provider.name,
    )


def _suggest_model(provider: ProviderInfo) -> str:
    """` Did you mean …?`, or "" if the catalog has the model, or none with a similar name."""
    from treadle.models.catalog import suggest_model  # only for errors: may read the price list

    near = suggest_model(provider.name.lower(), provider.model)
    return f" The catalog has no {provider.model!r}. Did you mean {near!r}?" if near else ""


def validate_key(provider: ProviderInfo, key: str) -> str:
    """The key without surrounding whitespace; raises AccessDenied if it cannot be a key."""
    key = key.strip()
    if key.isascii() and key.isprintable() and " " not in key:
        return key
    name = provider.name
    where = f" into {provider.key_variable}" if provider.key_variable else ""
    message = f"the key for {name} contains characters that no key has: copy it again{where}."
    raise AccessDenied(message, provider=name)


def _map_html_page(
    provider: ProviderInfo, status: int, error: ProviderErrorBody, retry_after: float | None
) -> ModelError:
    name = provider.name
    title = f" ({quote_message(error.message, provider.secret)})" if error.message else ""
    if status in (429, 500, 502, 503, 504, 520, 522, 524, 529):
        message = f"{name} or a gateway has a temporary problem (HTTP {status}){title}."
        return Overloaded(message, provider=name, status=status, retry_after=retry_after)
    message = (
        f"a web page came back instead of {name}'s API (HTTP {status}){title}: "
        "a proxy or login page intercepts the request"
        f"{', or the base URL is wrong' if provider.has_own_url else ''}."
    )
    return Unreachable(message, provider=name, status=status)


def quote_message(text: str, secret: str = "") -> str:
    """A provider's message on one line, shortened, without the key."""
    text = " ".join(_hide_key(text, secret).split()).rstrip(".")
    if len(text) > MAX_QUOTE_CHARS:
        text = text[:MAX_QUOTE_CHARS] + "..."
    return text or "no reason given"


def _hide_key(text: str, secret: str) -> str:
    return text.replace(secret, "[key]") if len(secret) >= MIN_KEY_CHARS else text


# ------------------------------------------------------------------ broken streams and connections


def incomplete_stream_error(provider: ProviderInfo) -> StreamBroken:
    """The stream ended without the event that ends every complete reply."""
    message = f"{provider.name} ended the stream before the reply was complete: try again."
    return StreamBroken(message, provider=provider.name)


def unreadable_event_error(
    provider: ProviderInfo, data: bytes, expected: str, error: Exception
) -> StreamBroken:
    """An event that is not what was `expected`; its first bytes are quoted."""
    quote = quote_message(data[:120].decode("utf-8", "replace"), provider.secret)
    message = f"{provider.name} sent an event that is not {expected} ({error}): {quote}"
    return StreamBroken(message, provider=provider.name)


def late_arguments_error(provider: ProviderInfo, tool: str) -> StreamBroken:
    message = f"{provider.name} sent arguments for the call {tool!r} after its end: try again."
    return StreamBroken(message, provider=provider.name)


def map_transport_error(provider: ProviderInfo, error: TransportError) -> ModelError:
    """The error for a connection that failed, before or during the response."""
    timeout = error.kind if isinstance(error, TimedOut) else ""
    kind: type[ModelError] = StreamBroken
    if timeout == "connect" or isinstance(
        error, (ConnectFailed, TLSFailed, ProxyFailed, BadRedirect)
    ):
        kind = Unreachable
    elif timeout in ("first_byte", "first_content", "total"):
        kind = ReplyTimedOut
    return kind(f"{provider.name}: {error}", provider=provider.name)
