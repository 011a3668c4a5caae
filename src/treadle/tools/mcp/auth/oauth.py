"""OAuth 2.1 for servers at a URL: the SDK's flows with our store of tokens and our ways to log in.

    authorization_code   a person logs in; a session only uses and refreshes what a login left
    client_credentials, identity_assertion   no person is needed

The SDK discovers, registers, proves (PKCE) and asks for more scopes. What it leaves out is here:
after a restart a token is refreshed before it is used, at the authorization server that issued it;
and of several programs with one login, one refreshes and the others take what it got.
Importing this module imports the SDK. Used by connection.py; login.py is the way to log in.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from treadle._version import __version__
from treadle.core.errors import ToolError
from treadle.tools.mcp.auth.token_store import LoginRecord, TokenStore
from treadle.tools.mcp.client_options import PersonLogin
from treadle.tools.mcp.server_config import McpOAuthConfig, McpServerConfig

CLIENT_NAME = "Treadle"
UNUSED_REDIRECT = "http://127.0.0.1/callback"  # of a session that cannot log in
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


def make_auth(
    name: str,
    config: McpServerConfig,
    store: TokenStore,
    *,
    login: PersonLogin | None = None,
    on_login_needed: Callable[[str], None] = lambda why: None,
) -> httpx2.Auth | None:
    """The authorization of the requests to a server; None if it has none and this is no login."""
    oauth = config.oauth
    storage = _RecordStorage(name, config, store, login.redirect_uri if login else UNUSED_REDIRECT)
    if oauth.grant == "client_credentials":
        return _make_client_credentials(config.url, oauth, storage)
    if oauth.grant == "identity_assertion":
        return _make_identity_assertion(config.url, oauth, storage)
    if login is None and not store.has_login(name, config.url):
        return None
    return _StoredOAuth(config, storage, login, on_login_needed)


class _StoredOAuth(OAuthClientProvider):
    """The authorization code flow, with tokens from the store."""

    def __init__(
        self,
        config: McpServerConfig,
        storage: _RecordStorage,
        login: PersonLogin | None,
        on_login_needed: Callable[[str], None],
    ) -> None:
        self._login, self._on_login_needed = login, on_login_needed
        self._oauth = config.oauth
        self._records = storage
        self._must_log_in = login is not None
        super().__init__(
            config.url,
            OAuthClientMetadata(
                client_name=CLIENT_NAME,
                software_version=__version__,
                redirect_uris=[AnyUrl(storage.redirect_uri)],
            ),
            storage,
            self._show_link,
            self._wait_code,
            client_metadata_url=config.oauth.client_metadata_url or None,
        )
        storage.provider = self

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The SDK's flow begins at a 401. A login begins always: the server may refuse only what
        is asked of it later, and tokens that work may lack a scope."""
        flow = super()._auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if _is_refresh(outgoing):
                    async with self._records.hold():
                        response = self._records.find_newer_tokens(outgoing, self.context)
                        if response is None:
                            response = yield outgoing
                            if (
                                response.status_code != 200
                            ):  # a used token: another one got new ones
                                newer = self._records.find_newer_tokens(outgoing, self.context)
                                response = newer or response
                        outgoing = await flow.asend(response)
                        continue
                response = yield outgoing
                if outgoing is request and self._must_log_in and response.status_code != 401:
                    response = httpx2.Response(401, request=request)
                while outgoing is request and response.status_code == 401:
                    if not await self._take_newer():
                        break
                    self._add_auth_header(request)
                    response = yield request
                self._must_log_in = self._must_log_in and outgoing is not request
                if self.context.auth_server_url is None and _is_metadata(outgoing, response):
                    await response.aread()
                    response = _adopt_own_issuer(response, str(request.url))
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    async def _take_newer(self) -> bool:
        """Use the tokens that another program got meanwhile, or is getting; whether there are
        any."""
        used = self.context.current_tokens
        if self._login is not None or used is None:
            return False
        async with self._records.hold():
            record = self._records.load()
        if record.tokens is None:
            return False
        if record.tokens.get("access_token") == used.access_token:
            return False
        self.context.current_tokens = OAuthToken.model_validate(record.tokens)
        self.context.token_expiry_time = record.expires_at
        return True

    async def _initialize(self) -> None:
        await super()._initialize()
        record = self._records.load()
        if self._login is not None:
            self.context.clear_tokens()
            return
        self.context.token_expiry_time = record.expires_at
        if record.server is not None:
            self.context.oauth_metadata = OAuthMetadata.model_validate(record.server)
        if record.resource is not None:
            resource = ProtectedResourceMetadata.model_validate(record.resource)
            self.context.protected_resource_metadata = resource
            self.context.auth_server_url = str(resource.authorization_servers[0])

    async def _perform_authorization(self) -> httpx2.Request:
        context = self.context
        scope = context.client_metadata.scope or self._oauth.scope
        context.client_metadata.scope = union_scopes(scope, self._records.load().wanted_scope)
        if self._oauth.client_secret and context.client_info and context.oauth_metadata:
            # A client that was registered by hand uses what the server takes.
            methods = context.oauth_metadata.token_endpoint_auth_methods_supported or []
            if methods and "client_secret_basic" not in methods:
                context.client_info.token_endpoint_auth_method = "client_secret_post"
        return await super()._perform_authorization()

    async def _show_link(self, url: str) -> None:
        if self._login is None:
            # Stored tokens are not enough: they ended, were withdrawn, or lack a scope.
            scope = parse_qs(urlsplit(url).query).get("scope", [""])[0]
            self._records.expire(scope)
            self._on_login_needed(f"it asks for the scopes: {scope}" if scope else "")
            raise ToolError("a login is needed")
        await self._login.show_link(url)

    async def _wait_code(self) -> AuthorizationCodeResult:
        assert self._login is not None, "checked in _show_link"
        return parse_redirect(await self._login.wait_redirect())


def _is_refresh(request: httpx2.Request) -> bool:
    return request.method == "POST" and b"grant_type=refresh_token" in request.content


def _is_metadata(request: httpx2.Request, response: httpx2.Response) -> bool:
    path = request.url.path
    return "/.well-known/oauth-authorization-server" in path and response.status_code == 200


def _adopt_own_issuer(response: httpx2.Response, server_url: str) -> httpx2.Response:
    """The metadata of a server that is its own authorization server (2025-03-26), with the origin
    as its issuer: such servers name a path of theirs, which the SDK refuses. Metadata that names
    another origin stays as it is, and is refused. See docs/decisions/mcp-sdk.md."""
    try:
        metadata = response.json()
        issuer, server = urlsplit(str(metadata["issuer"])), urlsplit(server_url)
    except (ValueError, KeyError, TypeError):
        return response
    if (issuer.scheme, issuer.netloc) != (server.scheme, server.netloc):
        return response
    metadata["issuer"] = f"{server.scheme}://{server.netloc}"
    return httpx2.Response(200, json=metadata, request=response.request)


def parse_redirect(url: str) -> AuthorizationCodeResult:
    """The answer of the authorization server in the URL that it redirected the person to."""
    query = parse_qs(urlsplit(url.strip()).query)
    error = query.get("error_description") or query.get("error")
    if error:
        raise ToolError(f"the login was refused: {error[0][:300]}")
    if "code" not in query:
        raise ToolError("this is not the address that the login redirected to: it has no code")
    iss = query.get("iss", [None])[0]
    return AuthorizationCodeResult(
        code=query["code"][0], state=query.get("state", [None])[0], iss=iss
    )


class _RecordStorage:
    """The SDK's token storage over one record of the store."""

    def __init__(
        self, name: str, config: McpServerConfig, store: TokenStore, redirect_uri: str
    ) -> None:
        self._name, self._url, self._store = name, config.url, store
        self._oauth = config.oauth
        self.redirect_uri = redirect_uri
        self.provider: OAuthClientProvider | None = None

    def load(self) -> LoginRecord:
        return self._store.load(self._name, self._url) or LoginRecord()

    def expire(self, wanted_scope: str) -> None:
        """The next connection refreshes the tokens first, the next login asks for the scope."""
        self._save(expires_at=1.0, wanted_scope=wanted_scope or None)

    def hold(self) -> AbstractAsyncContextManager[None]:
        """While one program refreshes, the others wait."""
        return self._store.hold(self._name, self._url)

    def find_newer_tokens(
        self, refresh: httpx2.Request, context: OAuthContext
    ) -> httpx2.Response | None:
        """What a refresh would bring, if another program has refreshed since these were read."""
        record, used = self.load(), context.current_tokens
        tokens, left = record.tokens, (record.expires_at or 0.0) - time.time()
        if tokens is None or used is None or left <= 0:
            return None
        if tokens.get("refresh_token") == used.refresh_token:
            return None
        content = {**tokens, "expires_in": math.ceil(left)}
        return httpx2.Response(200, json=content, request=refresh)

    async def get_tokens(self) -> OAuthToken | None:
        tokens = self.load().tokens
        return OAuthToken.model_validate(tokens) if tokens is not None else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires = time.time() + tokens.expires_in if tokens.expires_in else None
        context = self.provider.context if self.provider is not None else None
        self._save(
            tokens=_dump(tokens),
            expires_at=expires,
            wanted_scope=None,
            server=_dump(context.oauth_metadata if context else None),
            resource=_dump(context.protected_resource_metadata if context else None),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        if self._oauth.client_id:
            return OAuthClientInformationFull(
                client_id=self._oauth.client_id,
                client_secret=self._oauth.client_secret or None,
                redirect_uris=[AnyUrl(self.redirect_uri)],
                token_endpoint_auth_method=(
                    "client_secret_basic" if self._oauth.client_secret else "none"
                ),
                issuer=self._oauth.issuer or None,
            )
        client = self.load().client
        if client is None:
            return None
        known = OAuthClientInformationFull.model_validate(client)
        is_session = self.redirect_uri == UNUSED_REDIRECT
        if is_session or self.redirect_uri in map(str, known.redirect_uris or []):
            return known
        return None  # registered with another redirect: this login registers again

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._save(client=_dump(client_info))

    def _save(self, **changes: Any) -> None:
        record = msgspec.structs.replace(self.load(), **changes)
        self._store.save(self._name, self._url, record)


def _dump(value: Any) -> dict[str, Any] | None:
    dumped: dict[str, Any] | None = None
    if value is not None:
        dumped = value.model_dump(mode="json", exclude_none=True)
    return dumped


def _make_client_credentials(
    url: str, oauth: McpOAuthConfig, storage: _RecordStorage
) -> httpx2.Auth:
    given: dict[str, Any] = {"scope": oauth.scope or None, "issuer": oauth.issuer or None}
    if oauth.private_key:
        signed = SignedJWTParameters(
            issuer=oauth.client_id,
            subject=oauth.client_id,
            signing_key=oauth.private_key,
            signing_algorithm=oauth.algorithm,
        )
        assertion = signed.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(url, storage, oauth.client_id, assertion, **given)
    return ClientCredentialsOAuthProvider(
        url, storage, oauth.client_id, oauth.client_secret, **given
    )


def _make_identity_assertion(
    url: str, oauth: McpOAuthConfig, storage: _RecordStorage
) -> httpx2.Auth:
    async def exchange(audience: str, resource: str) -> str:
        """The token of the company's identity provider for one that the server's takes."""
        form = {
            "grant_type": _TOKEN_EXCHANGE,
            "subject_token": oauth.idp_token,
            "subject_token_type": _ID_TOKEN,
            "requested_token_type": _ID_JAG,
            "audience": audience,
            "resource": resource,
            "client_id": oauth.idp_client_id,
        }
        async with httpx2.AsyncClient(timeout=30.0) as http:
            response = await http.post(oauth.idp_token_endpoint, data=form)
        if response.status_code != 200:
            raise ToolError(f"the identity provider refused the token: {response.text[:300]}")
        return str(response.json()["access_token"])

    return IdentityAssertionOAuthProvider(
        url,
        storage,
        oauth.client_id,
        oauth.client_secret,
        oauth.issuer,
        exchange,
        scope=oauth.scope or None,
        token_endpoint_auth_method="client_secret_basic",
    )
