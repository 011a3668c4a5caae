"""Tokens of Entra for Azure OpenAI, without Microsoft's library.

In this order:

    AZURE_OPENAI_AD_TOKEN                                          a token
    AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET          an application with a secret
    …, AZURE_FEDERATED_TOKEN_FILE                                  a workload identity
    IDENTITY_ENDPOINT, IDENTITY_HEADER                             a managed identity of a service
    AZURE_USE_MANAGED_IDENTITY=1                                   … of a machine
    `az`                                                           `az login`
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from treadle.core.errors import AccessDenied
from treadle.models.cloud.tokens import (
    AccessToken,
    CachedToken,
    find_gap,
    find_home_file,
    read_named_file,
    read_token,
    request_json,
    run_command,
)

PROVIDER = "azure"
RESOURCE = "https://cognitiveservices.azure.com"
SCOPE = f"{RESOURCE}/.default"
TOKEN_VARIABLE = "AZURE_OPENAI_AD_TOKEN"
MACHINE_VARIABLE = "AZURE_USE_MANAGED_IDENTITY"
LOGIN_COMMAND = "az login"
REMEDY = f"run `{LOGIN_COMMAND}`, or set AZURE_OPENAI_API_KEY"
MACHINE_URL = "http://169.254.169.254/metadata/identity/oauth2/token"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_FORM = {"content-type": "application/x-www-form-urlencoded"}


class AzureSource(msgspec.Struct, frozen=True):
    """Where the token comes from: `summary` is for the user."""

    kind: str  # token, secret, workload, service, machine or program
    summary: str


def find_source(environ: Mapping[str, str]) -> AzureSource | None:
    """The first of the credentials that this environment has. It opens no connection."""

    def has(*names: str) -> bool:
        return all(environ.get(name, "").strip() for name in names)

    if has(TOKEN_VARIABLE):
        return AzureSource("token", TOKEN_VARIABLE)
    if has("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"):
        return AzureSource("secret", "AZURE_CLIENT_SECRET")
    if has("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_FEDERATED_TOKEN_FILE"):
        return AzureSource("workload", "AZURE_FEDERATED_TOKEN_FILE")
    if has("IDENTITY_ENDPOINT", "IDENTITY_HEADER"):
        return AzureSource("service", "the managed identity of this service")
    if has(MACHINE_VARIABLE):
        return AzureSource("machine", "the managed identity of this machine")
    folder = environ.get("AZURE_CONFIG_DIR") or find_home_file(environ, ".azure")
    has_login = Path(folder, "azureProfile.json").is_file()
    if has_login and shutil.which("az", path=environ.get("PATH")):
        return AzureSource("program", "the login of az")
    return None


def describe_gap(environ: Mapping[str, str]) -> str:
    return find_gap(environ, [("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")])


def describe_missing(environ: Mapping[str, str]) -> str:
    """Why there is no access, and what to do."""
    gap = describe_gap(environ)
    return f"azure needs a key or a login{f', and {gap}' if gap else ''}: {REMEDY}."


def make_token(environ: Mapping[str, str]) -> CachedToken:
    """The token of this environment; AccessDenied at its first use if there is none."""

    async def fetch() -> AccessToken:
        source = find_source(environ)
        if source is None:
            raise AccessDenied(describe_missing(environ), provider=PROVIDER)
        match source.kind:
            case "token":
                return AccessToken(environ[TOKEN_VARIABLE].strip())
            case "secret" | "workload":
                return await _fetch_by_application(environ, source.kind)
            case "service" | "machine":
                return await _fetch_by_identity(environ, source.kind)
            case _:
                return await _fetch_by_program()

    return CachedToken(fetch)


async def _fetch_by_application(environ: Mapping[str, str], kind: str) -> AccessToken:
    body = {"client_id": environ["AZURE_CLIENT_ID"].strip(), "grant_type": "client_credentials"}
    if kind == "secret":
        body["client_secret"] = environ["AZURE_CLIENT_SECRET"].strip()
    else:
        body["client_assertion_type"] = _ASSERTION_TYPE
        body["client_assertion"] = read_named_file(environ, "AZURE_FEDERATED_TOKEN_FILE")
    body["scope"] = SCOPE
    host = environ.get("AZURE_AUTHORITY_HOST", "").strip() or "https://login.microsoftonline.com"
    host = host if "://" in host else f"https://{host}"
    url = f"{host.rstrip('/')}/{environ['AZURE_TENANT_ID'].strip()}/oauth2/v2.0/token"
    form = urlencode(body).encode()
    remedy = "check AZURE_TENANT_ID, AZURE_CLIENT_ID and the secret"
    answer = await request_json("POST", url, _FORM, form, provider=PROVIDER, remedy=remedy)
    return read_token(answer)


async def _fetch_by_identity(environ: Mapping[str, str], kind: str) -> AccessToken:
    if kind == "service":
        url, version = environ["IDENTITY_ENDPOINT"].strip(), "2019-08-01"
        headers = {"x-identity-header": environ["IDENTITY_HEADER"].strip()}
    else:
        host = environ.get("AZURE_POD_IDENTITY_AUTHORITY_HOST", "").strip()
        url = f"{host.rstrip('/')}/metadata/identity/oauth2/token" if host else MACHINE_URL
        version, headers = "2018-02-01", {"metadata": "true"}
    query = {"api-version": version, "resource": RESOURCE}
    if client_id := environ.get("AZURE_CLIENT_ID", "").strip():
        query["client_id"] = client_id
    remedy = "give the identity the role Cognitive Services OpenAI User"
    answer = await request_json(
        "GET", f"{url}?{urlencode(query)}", headers,
        provider=PROVIDER, remedy=remedy, is_metadata=True,
    )  # fmt: skip
    return read_token(answer)


async def _fetch_by_program() -> AccessToken:
    command = ("az", "account", "get-access-token", "--output", "json", "--resource", RESOURCE)
    printed = await run_command(command, provider=PROVIDER, remedy=f"run `{LOGIN_COMMAND}`")
    try:
        answer = msgspec.json.decode(printed, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise AccessDenied(f"azure: az printed no token ({error})", provider=PROVIDER) from None
    end = float(str(answer.get("expires_on") or time.time() + 600))
    return AccessToken(str(answer.get("accessToken") or ""), end)
