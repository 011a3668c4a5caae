"""Application default credentials of Google, without its library: for Vertex.

In this order, as Google's own tools look for them:

    CLOUDSDK_AUTH_ACCESS_TOKEN, GOOGLE_OAUTH_ACCESS_TOKEN      a token
    TREADLE_VERTEX_TOKEN_COMMAND                               a program that prints one
    GOOGLE_APPLICATION_CREDENTIALS                             a file
    ~/.config/gcloud/application_default_credentials.json      LOGIN
    the metadata server                                        on a machine of Google

LOGIN is `gcloud auth application-default login`. A file is of a service account or of a user; for
others, a token command is needed.
"""

from __future__ import annotations

import configparser
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from treadle.core.errors import AccessDenied, ConfigError
from treadle.models.cloud.tokens import (
    AccessToken,
    CachedToken,
    find_home_file,
    read_token,
    request_json,
    run_command,
)
from treadle.models.provider_base.quirks import find_set_variable

PROVIDER = "vertex"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TOKEN_URL = "https://oauth2.googleapis.com/token"
TOKEN_VARIABLES = ("CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN")
COMMAND_VARIABLE = "TREADLE_VERTEX_TOKEN_COMMAND"
FILE_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
PROJECT_VARIABLES = (
    "GOOGLE_CLOUD_PROJECT",
    "GCLOUD_PROJECT",
    "CLOUDSDK_CORE_PROJECT",
    "ANTHROPIC_VERTEX_PROJECT_ID",
)
LOCATION_VARIABLES = ("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION", "CLOUD_ML_REGION")
DEFAULT_LOCATION = "global"
LOGIN_COMMAND = "gcloud auth application-default login"
REMEDY = f"run `{LOGIN_COMMAND}`, or set {FILE_VARIABLE}"
_FILE_REMEDY = f"set {FILE_VARIABLE} to another file, or unset it and run `{LOGIN_COMMAND}`"
TOKEN_SECONDS = 3_600
_FORM = {"content-type": "application/x-www-form-urlencoded"}
_PRODUCT_FILE = Path("/sys/class/dmi/id/product_name")


class GoogleSource(msgspec.Struct, frozen=True):
    """Where the token comes from: `summary` and `remedy` are for the user."""

    kind: str  # token, command, file or metadata
    summary: str
    value: str = ""
    remedy: str = REMEDY  # what to do if it gives no token


def find_source(environ: Mapping[str, str]) -> GoogleSource | None:
    """The first of the credentials that this environment has. It opens no connection."""
    if variable := find_set_variable(TOKEN_VARIABLES, environ):
        return GoogleSource("token", variable, environ[variable].strip())
    if command := environ.get(COMMAND_VARIABLE, "").strip():
        return GoogleSource("command", COMMAND_VARIABLE, command)
    if path := environ.get(FILE_VARIABLE, "").strip():
        return GoogleSource("file", f"{FILE_VARIABLE} {path}", path, _FILE_REMEDY)
    known = _find_config_folder(environ) / "application_default_credentials.json"
    if known.is_file():
        return GoogleSource("file", str(known), str(known))
    if environ.get("GCE_METADATA_HOST") or _is_google_machine():
        return GoogleSource("metadata", "the metadata server of this machine")
    return None


def find_project(environ: Mapping[str, str]) -> str:
    """The project of the requests; empty if none is set."""
    if variable := find_set_variable(PROJECT_VARIABLES, environ):
        return environ[variable].strip()
    source = find_source(environ)
    if source is not None and source.kind == "file":
        fields = _read_file(source)
        named = fields.get("project_id") or fields.get("quota_project_id")
        if isinstance(named, str) and named:
            return named
    return _read_gcloud_project(environ)


def find_location(environ: Mapping[str, str]) -> str:
    variable = find_set_variable(LOCATION_VARIABLES, environ)
    return environ[variable].strip() if variable else DEFAULT_LOCATION


def make_token(environ: Mapping[str, str]) -> CachedToken:
    """The token of this environment; AccessDenied at its first use if there is none."""

    async def fetch() -> AccessToken:
        source = find_source(environ)
        if source is None:
            raise AccessDenied(f"vertex needs a login at Google: {REMEDY}.", provider=PROVIDER)
        if source.kind == "token":
            return AccessToken(source.value)
        if source.kind == "command":
            remedy = f"run the command of {COMMAND_VARIABLE} by hand"
            printed = await run_command(source.value, provider=PROVIDER, remedy=remedy)
            return AccessToken(printed, time.time() + TOKEN_SECONDS / 2)
        if source.kind == "metadata":
            return await _fetch_from_metadata(environ)
        return await _fetch_by_file(source)

    return CachedToken(fetch)


async def _fetch_by_file(source: GoogleSource) -> AccessToken:
    """The token for the credentials in a file."""
    fields = _read_file(source)
    kind = fields.get("type")
    url = str(fields.get("token_uri") or TOKEN_URL)
    if kind == "service_account":
        body = {"assertion": build_assertion(fields, int(time.time())), "grant_type": _JWT_GRANT}
    elif kind == "authorized_user":
        names = ("client_id", "client_secret", "refresh_token")
        body = {"grant_type": "refresh_token", **{name: str(fields.get(name)) for name in names}}
    else:
        raise ConfigError(
            f"{source.value} has credentials of the type {kind!r}, which need Google's own tools: "
            f"set {COMMAND_VARIABLE} to `gcloud auth application-default print-access-token`"
        )
    form = urlencode(body).encode()
    answer = await request_json("POST", url, _FORM, form, provider=PROVIDER, remedy=source.remedy)
    return read_token(answer)


_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def build_assertion(fields: Mapping[str, Any], now: int) -> str:
    """The signed token with which a service account asks for an access token."""
    from treadle.models.cloud.service_key import sign_token

    claims = {
        "iat": now,
        "exp": now + TOKEN_SECONDS,
        "iss": fields.get("client_email"),
        "aud": TOKEN_URL,
        "scope": SCOPE,
    }
    key, key_id = str(fields.get("private_key")), str(fields.get("private_key_id") or "")
    try:
        return sign_token(key, key_id, claims)
    except ValueError as error:
        raise ConfigError(f"the file of the service account: {error}") from None


async def _fetch_from_metadata(environ: Mapping[str, str]) -> AccessToken:
    host = environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    path = "/computeMetadata/v1/instance/service-accounts/default/token"
    url = f"http://{host}{path}?{urlencode({'scopes': SCOPE})}"
    headers = {"metadata-flavor": "Google"}
    remedy = "give the machine a service account"
    answer = await request_json(
        "GET", url, headers, provider=PROVIDER, remedy=remedy, is_metadata=True
    )
    return read_token(answer)


def _find_config_folder(environ: Mapping[str, str]) -> Path:
    folder = environ.get("CLOUDSDK_CONFIG")
    return Path(folder) if folder else find_home_file(environ, ".config", "gcloud")


def _read_file(source: GoogleSource) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(Path(source.value).read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the credentials of Google cannot be read: {source.summary} ({error}). "
            f"To continue, {source.remedy}."
        ) from None
    return fields if isinstance(fields, dict) else {}


def _read_gcloud_project(environ: Mapping[str, str]) -> str:
    folder = _find_config_folder(environ)
    config = configparser.ConfigParser(interpolation=None)
    try:
        active = (folder / "active_config").read_text().strip()
    except OSError:
        active = "default"
    try:
        config.read(folder / "configurations" / f"config_{active or 'default'}")
    except (configparser.Error, UnicodeDecodeError):
        return ""
    return config.get("core", "project", fallback="").strip()


def _is_google_machine() -> bool:
    try:
        return _PRODUCT_FILE.read_text().startswith("Google")
    except OSError:
        return False
