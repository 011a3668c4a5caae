"""A Transport with the address and the authorization of a cloud, around our own HTTP client.

A cloud takes the request of a format in another form: the model in the path, the version in the
body. `CloudRequest` is that form; the functions below make it. A stream of AWS frames is converted
to server-sent events. Used by registry/create.py as the `client` of a model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self
from urllib.parse import quote

import msgspec

from treadle.core.errors import AccessDenied
from treadle.lib.http.client import get_shared_client
from treadle.lib.http.timeouts import DEFAULT_TIMEOUTS, Timeouts
from treadle.lib.http.transport import Headers, Response, read_all
from treadle.models.cloud.tokens import CachedToken
from treadle.models.provider_base.aws_eventstream import MEDIA_TYPE, AWSFrameReader


class CloudRequest(msgspec.Struct, frozen=True):
    """A request as a cloud takes it."""

    path: str
    headers: dict[str, str]
    body: bytes


Rewrite = Callable[[CloudRequest], CloudRequest]


class CloudAccess(Protocol):
    """Authorizes requests. `check` raises AccessDenied if nothing is configured."""

    def check(self) -> None: ...

    async def authorize(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, str]: ...


class BearerAccess:
    """A token in the header `authorization`."""

    def __init__(
        self, token: CachedToken, is_configured: Callable[[], bool], missing: str, provider: str
    ) -> None:
        self._token = token
        self._is_configured = is_configured
        self._missing = missing
        self._provider = provider

    def check(self) -> None:
        if not self._is_configured():
            raise AccessDenied(self._missing, provider=self._provider)

    async def authorize(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, str]:
        self.check()
        return {"authorization": f"Bearer {await self._token.get()}"}


class CloudTransport:
    """A Transport; `base_url` is that of the cloud."""

    def __init__(
        self, base_url: str, access: CloudAccess, rewrite: Rewrite = lambda request: request
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._access = access
        self._rewrite = rewrite

    def check_access(self) -> None:
        self._access.check()

    @asynccontextmanager
    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> AsyncIterator[Response]:
        data = body if isinstance(body, bytes) else b"".join(body)
        path = url.removeprefix(self.base_url)
        request = self._rewrite(CloudRequest(path, dict(headers), data))
        url = self.base_url + request.path
        added = await self._access.authorize("POST", url, request.headers, request.body)
        headers = {**request.headers, **added}
        async with get_shared_client().post(url, headers, request.body, timeouts) as response:
            is_frames = response.headers.get("content-type", "").startswith(MEDIA_TYPE)
            yield FrameResponse(response) if is_frames else response

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> AsyncIterator[Response]:
        added = await self._access.authorize("GET", url, headers, b"")
        async with get_shared_client().get(url, {**headers, **added}, timeouts) as response:
            yield response

    async def aclose(self) -> None:
        return None  # the client is shared


class FrameResponse:
    """A response with a stream of AWS frames, as server-sent events."""

    def __init__(self, response: Response) -> None:
        self._response = response
        self._reader = AWSFrameReader()
        raw = [(name, value) for name, value in response.headers.items() if name != "content-type"]
        raw.append(("content-type", "text/event-stream"))
        self.headers = Headers([(name.encode(), value.encode()) for name, value in raw])

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def url(self) -> str:
        return self._response.url

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        events = b""
        while not events:
            events = self._reader.feed(await anext(self._response))
        return events

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await read_all(self, limit)

    @property
    def is_read(self) -> bool:
        return self._response.is_read

    def mark_content(self) -> None:
        self._response.mark_content()

    async def aclose(self) -> None:
        await self._response.aclose()


# ------------------------------------------------------------------ the forms of requests

BEDROCK_VERSION = "bedrock-2023-05-31"
VERTEX_VERSION = "vertex-2023-10-16"


def rewrite_for_bedrock(request: CloudRequest) -> CloudRequest:
    """A request of the Messages API as Bedrock takes it: the model in the path, and what is a
    header elsewhere in the body."""
    fields = _decode(request.body)
    model = quote(str(msgspec.json.decode(fields.pop("model"))), safe="")
    fields.pop("stream", None)
    headers = {
        name: value for name, value in request.headers.items() if name != "anthropic-version"
    }
    fields["anthropic_version"] = _raw(BEDROCK_VERSION)
    if betas := headers.pop("anthropic-beta", ""):
        fields["anthropic_beta"] = _raw(betas.split(","))
    path = f"/model/{model}/invoke-with-response-stream"
    return CloudRequest(path, headers, msgspec.json.encode(fields))


def make_vertex_rewrite(project: str, location: str) -> Rewrite:
    """A request of the Messages API or of generateContent as Vertex takes it."""
    start = f"/v1/projects/{quote(project, safe='')}/locations/{quote(location, safe='')}"

    def rewrite(request: CloudRequest) -> CloudRequest:
        if request.path.startswith("/models/"):
            path = f"{start}/publishers/google{request.path}"
            return CloudRequest(path, request.headers, _without_invocations(request.body))
        if not request.path.startswith("/v1/messages"):
            return CloudRequest(
                f"{start}/endpoints/openapi{request.path}", request.headers, request.body
            )
        fields = _decode(request.body)
        headers = {
            name: value for name, value in request.headers.items() if name != "anthropic-version"
        }
        fields["anthropic_version"] = _raw(VERTEX_VERSION)
        model, verb = quote(str(msgspec.json.decode(fields["model"])), safe="@"), "streamRawPredict"
        if request.path.endswith("/count_tokens"):
            model, verb = "count-tokens", "rawPredict"
        else:
            del fields["model"]
        path = f"{start}/publishers/anthropic/models/{model}:{verb}"
        return CloudRequest(path, headers, msgspec.json.encode(fields))

    return rewrite


def _without_invocations(body: bytes) -> bytes:
    """Vertex does not know the field that shows the searches of the provider."""
    if b'"includeServerSideToolInvocations"' not in body[: body.find(b'"contents":[')]:
        return body
    fields = _decode(body)
    config = msgspec.json.decode(fields.pop("toolConfig"), type=dict[str, Any])
    config.pop("includeServerSideToolInvocations", None)
    if config:
        fields["toolConfig"] = _raw(config)
    return msgspec.json.encode(fields)


def _decode(body: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
