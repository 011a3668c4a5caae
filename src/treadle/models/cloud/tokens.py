"""Access tokens: one value with its end, kept until shortly before it; and where they come from.

A source is asked when there is no token, or the old one ends soon. Used by aws, google and azure.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import AccessDenied, ConfigError, Unreachable
from treadle.lib.child_process import start_child
from treadle.lib.http.client import Client, HTTPExchange, get_shared_client
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.http.transport import TransportError

REFRESH_SECONDS = 300.0  # before its end a token is replaced
COMMAND_SECONDS = 60.0
_TIMEOUTS = Timeouts(connect=10.0, first_byte=30.0, idle=30.0, total=60.0)
_METADATA_TIMEOUTS = Timeouts(connect=2.0, first_byte=10.0, idle=10.0, total=20.0)
_MAX_QUOTE_CHARS = 300


class AccessToken(msgspec.Struct, frozen=True):
    """A token, and when it ends, in seconds since 1970."""

    value: str
    expires_at: float = math.inf


class CachedToken:
    """A token that is fetched when it is needed; several requests at once may fetch it twice."""

    def __init__(self, fetch: Callable[[], Awaitable[AccessToken]]) -> None:
        self._fetch = fetch
        self._token: AccessToken | None = None

    async def get(self) -> str:
        if self._token is None or self._token.expires_at - time.time() < REFRESH_SECONDS:
            self._token = await self._fetch()
        return self._token.value


async def request_json(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    provider: str,
    remedy: str,
    is_metadata: bool = False,
    is_text: bool = False,
) -> dict[str, Any]:
    """The JSON answer of a server of tokens. AccessDenied with `remedy` if it gives none.

    The metadata server of a machine is asked directly, without a proxy. With `is_text` the answer
    is {"text": …}.
    """
    client = Client(environ={}) if is_metadata else get_shared_client()
    timeouts = _METADATA_TIMEOUTS if is_metadata else _TIMEOUTS
    content = (body,) if body else ()
    host = url.split("://", 1)[-1].split("/", 1)[0]
    try:
        async with HTTPExchange(client, method, url, headers, content, timeouts) as response:
            answer = await response.read()
            status = response.status
    except TransportError as error:
        raise Unreachable(
            f"{provider}: no token from {host} ({error})", provider=provider
        ) from None
    finally:
        if is_metadata:
            await client.aclose()
    if is_text and status == 200:
        return {"text": answer.decode("utf-8", "replace")}
    try:
        value = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = answer.decode("utf-8", "replace")
    if status != 200 or not isinstance(value, dict):
        quote = _quote_refusal(value)
        message = (
            f"{provider}: {host} gave no token (HTTP {status}: {quote}). To continue, {remedy}."
        )
        raise AccessDenied(message, provider=provider, status=status)
    return value


def _quote_refusal(value: object) -> str:
    if isinstance(value, dict):
        names = ("error_description", "error", "message", "Message")
        value = next((value[name] for name in names if isinstance(value.get(name), str)), value)
    return " ".join(str(value).split())[:_MAX_QUOTE_CHARS] or "no reason given"


def read_token(answer: Mapping[str, Any]) -> AccessToken:
    """The token of an answer of OAuth; `expires_in` may be text."""
    seconds = float(answer.get("expires_in") or 0)
    end = float(answer.get("expires_on") or 0) or time.time() + seconds
    return AccessToken(str(answer.get("access_token") or ""), end)


async def run_command(command: str | Sequence[str], *, provider: str, remedy: str) -> str:
    """What a program prints; a text is a line of the shell. AccessDenied if it fails."""
    shown = command if isinstance(command, str) else " ".join(command)
    argv = ("/bin/sh", "-c", command) if isinstance(command, str) else command
    pipe = asyncio.subprocess.PIPE
    try:
        async with (
            start_child(*argv, stdout=pipe, stderr=pipe) as process,
            asyncio.timeout(COMMAND_SECONDS),
        ):
            out, err = await process.communicate()
    except TimeoutError:
        problem = f"it was not over after {COMMAND_SECONDS:g} s"
        raise _command_failed(shown, problem, provider, remedy) from None
    except OSError as error:
        raise _command_failed(shown, str(error), provider, remedy) from None
    if process.returncode != 0:
        problem = " ".join(err.decode("utf-8", "replace").split())[-_MAX_QUOTE_CHARS:]
        raise _command_failed(shown, problem or f"exit {process.returncode}", provider, remedy)
    return out.decode("utf-8", "replace").strip()


def _command_failed(shown: str, problem: str, provider: str, remedy: str) -> AccessDenied:
    message = f"{provider}: `{shown}` gave no token ({problem}). To continue, {remedy}."
    return AccessDenied(message, provider=provider)


def find_gap(environ: Mapping[str, str], groups: Iterable[Sequence[str]]) -> str:
    """Of the first group of variables that belong together and of which only some are set, what is
    missing; "" if there is none."""
    for group in groups:
        given = [name for name in group if environ.get(name, "").strip()]
        if given and len(given) < len(group):
            missing = " and ".join(name for name in group if name not in given)
            return f"{given[0]} is set, but not {missing}"
    return ""


def find_home_file(environ: Mapping[str, str], *parts: str) -> Path:
    """A file below the home folder of this environment."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    return (Path(home) if home else Path.home()).joinpath(*parts)


def read_named_file(environ: Mapping[str, str], variable: str) -> str:
    """The text of the file that this variable names. ConfigError if it cannot be read."""
    try:
        return Path(environ[variable].strip()).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{variable} names a file that cannot be read: {error}") from None
