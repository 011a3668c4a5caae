"""Credentials of AWS, without its library: for Bedrock.

In this order, as AWS's own tools look for them:

    AWS_BEARER_TOKEN_BEDROCK                                a key of Bedrock
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY                keys, with AWS_SESSION_TOKEN for a while
    AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN               a role of a cluster
    ~/.aws/credentials, ~/.aws/config                       the profile AWS_PROFILE, else `default`
    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, …_FULL_URI      a role of a container
    the metadata server                                     on a machine of AWS

A profile has keys, or a program that prints them; for a login (SSO) or a role, `aws` prints them.
"""

from __future__ import annotations

import configparser
import re
import shlex
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from treadle.core.errors import AccessDenied, ConfigError
from treadle.models.cloud.sigv4 import AWSKeys, sign_request
from treadle.models.cloud.tokens import (
    REFRESH_SECONDS,
    find_gap,
    find_home_file,
    read_named_file,
    request_json,
    run_command,
)
from treadle.models.provider_base.quirks import find_set_variable

PROVIDER = "bedrock"
BEARER_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
SERVICE = "bedrock"
LOGIN_COMMAND = "aws sso login"
REMEDY = (
    f"set {BEARER_VARIABLE} or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`"
)
_TOGETHER = (
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
)
_PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_VENDOR_FILE = Path("/sys/class/dmi/id/sys_vendor")
_METADATA_URL = "http://169.254.169.254"
_CONTAINER_URL = "http://169.254.170.2"


class AWSSource(msgspec.Struct, frozen=True):
    """Where the keys come from: `summary` is for the user."""

    kind: str  # bearer, keys, web_identity, profile, container or metadata
    summary: str


def find_source(environ: Mapping[str, str]) -> AWSSource | None:
    """The first of the credentials that this environment has. It opens no connection."""

    def has(*names: str) -> bool:
        return all(environ.get(name, "").strip() for name in names)

    if has(BEARER_VARIABLE):
        return AWSSource("bearer", BEARER_VARIABLE)
    if has("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        return AWSSource("keys", "AWS_ACCESS_KEY_ID")
    if has("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"):
        return AWSSource("web_identity", "AWS_WEB_IDENTITY_TOKEN_FILE")
    profile = _get_profile_name(environ)
    if read_profile(environ).keys() & _PROFILE_FIELDS:
        return AWSSource("profile", f"the profile {profile} in ~/.aws")
    if has("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or has("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return AWSSource("container", "the role of this container")
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true" and _is_aws_machine(environ):
        return AWSSource("metadata", "the role of this machine")
    return None


def describe_gap(environ: Mapping[str, str]) -> str:
    """What is missing beside what is set; "" if nothing is set."""
    if gap := find_gap(environ, _TOGETHER):
        return gap
    variable = find_set_variable(_PROFILE_VARIABLES, environ)
    return (
        f"{environ[variable].strip()} of {variable} has no credentials in ~/.aws"
        if variable
        else ""
    )


def _make_missing_error(environ: Mapping[str, str]) -> AccessDenied:
    gap = describe_gap(environ)
    why = f"bedrock needs an account of AWS{f', and {gap}' if gap else ''}"
    return AccessDenied(f"{why}: {REMEDY}.", provider=PROVIDER)


def find_region(environ: Mapping[str, str]) -> str:
    """The region; empty if none is set."""
    if variable := find_set_variable(REGION_VARIABLES, environ):
        return environ[variable].strip()
    return read_profile(environ).get("region", "")


class AWSAccess:
    """Authorizes requests of Bedrock: a bearer key, or a signature."""

    def __init__(
        self, environ: Mapping[str, str], region: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._environ = environ
        self._region = region
        self._clock = clock
        self._keys: AWSKeys | None = None

    def check(self) -> None:
        """Raise AccessDenied if there are no credentials."""
        if find_source(self._environ) is None:
            raise _make_missing_error(self._environ)

    async def authorize(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, str]:
        """The headers to add to a request."""
        self.check()
        if bearer := self._environ.get(BEARER_VARIABLE, "").strip():
            return {"authorization": f"Bearer {bearer}"}
        now = self._clock()
        if self._keys is None or self._keys.expires_at - now < REFRESH_SECONDS:
            self._keys = await fetch_keys(self._environ, self._region)
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
        return sign_request(
            method, url, headers, body, self._keys,
            region=self._region, service=SERVICE, timestamp=stamp,
        )  # fmt: skip


async def fetch_keys(environ: Mapping[str, str], region: str) -> AWSKeys:
    """The keys of the first credentials in this environment."""
    source = find_source(environ)
    match source.kind if source is not None else "":
        case "keys":
            names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
            access, secret, token = (environ.get(name, "").strip() for name in names)
            return AWSKeys(access, secret, token)
        case "web_identity":
            return await _assume_web_identity(environ, region)
        case "profile":
            return await _fetch_from_profile(environ)
        case "container":
            return await _fetch_from_container(environ)
        case "metadata":
            return await _fetch_from_metadata(environ)
        case _:
            raise _make_missing_error(environ)


def _read_keys(answer: Mapping[str, Any]) -> AWSKeys:
    """The keys of an answer of a metadata server or of a program."""
    end = answer.get("Expiration")
    expires_at = float("inf")
    if isinstance(end, str) and end:
        expires_at = datetime.fromisoformat(end).timestamp()
    elif isinstance(end, (int, float)):
        expires_at = float(end)
    token = answer.get("SessionToken") or answer.get("Token") or ""
    access, secret = (str(answer.get(name) or "") for name in ("AccessKeyId", "SecretAccessKey"))
    if not access or not secret:
        raise AccessDenied(f"bedrock: AWS gave no keys. {REMEDY}.", provider=PROVIDER)
    return AWSKeys(access, secret, str(token), expires_at)


# ------------------------------------------------------------------ profiles

_PROFILE_FIELDS = {
    "aws_access_key_id", "credential_process", "sso_session", "sso_start_url", "role_arn",
    "login_session",
}  # fmt: skip


def _get_profile_name(environ: Mapping[str, str]) -> str:
    variable = find_set_variable(_PROFILE_VARIABLES, environ)
    return environ[variable].strip() if variable else "default"


def read_profile(environ: Mapping[str, str]) -> dict[str, str]:
    """The fields of the profile, from both files; those of the credentials count first."""
    name = _get_profile_name(environ)
    config = _find_file(environ, "AWS_CONFIG_FILE", "config")
    shared = _find_file(environ, "AWS_SHARED_CREDENTIALS_FILE", "credentials")
    section = name if name == "default" else f"profile {name}"
    return {**_read_section(config, section), **_read_section(shared, name)}


def _find_file(environ: Mapping[str, str], variable: str, name: str) -> Path:
    named = environ.get(variable, "").strip()
    return Path(named).expanduser() if named else find_home_file(environ, ".aws", name)


def _read_section(path: Path, section: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    return dict(parser[section]) if parser.has_section(section) else {}


async def _fetch_from_profile(environ: Mapping[str, str]) -> AWSKeys:
    profile, name = read_profile(environ), _get_profile_name(environ)
    if profile.get("aws_access_key_id"):
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        access, secret, token = (profile.get(field, "") for field in names)
        return AWSKeys(access, secret, token)
    command = shlex.split(profile.get("credential_process", ""))
    command = command or [
        "aws", "configure", "export-credentials", "--profile", name, "--format", "process",
    ]  # fmt: skip
    remedy = f"run `{LOGIN_COMMAND} --profile {name}`"
    printed = await run_command(command, provider=PROVIDER, remedy=remedy)
    try:
        return _read_keys(msgspec.json.decode(printed, type=dict[str, Any]))
    except (msgspec.DecodeError, ValueError) as error:
        message = f"bedrock: `{command[0]}` printed no keys ({error}). To continue, {remedy}."
        raise AccessDenied(message, provider=PROVIDER) from None


# ------------------------------------------------------------------ servers of keys


async def _assume_web_identity(environ: Mapping[str, str], region: str) -> AWSKeys:
    token = read_named_file(environ, "AWS_WEB_IDENTITY_TOKEN_FILE")
    name = environ.get("AWS_ROLE_SESSION_NAME", "").strip() or "treadle"
    query = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": environ["AWS_ROLE_ARN"].strip(),
        "RoleSessionName": name,
        "WebIdentityToken": token,
    }
    base = environ.get("AWS_ENDPOINT_URL_STS", "").strip() or f"https://sts.{region}.amazonaws.com"
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    answer = await request_json(
        "POST", f"{base.rstrip('/')}/", headers, urlencode(query).encode(),
        provider=PROVIDER, remedy="check AWS_ROLE_ARN and the token file",
    )  # fmt: skip
    whole = answer.get("AssumeRoleWithWebIdentityResponse", {})
    return _read_keys(whole.get("AssumeRoleWithWebIdentityResult", {}).get("Credentials", {}))


async def _fetch_from_container(environ: Mapping[str, str]) -> AWSKeys:
    relative = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "").strip()
    full = environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "").strip()
    headers = {}
    if environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "").strip():
        header = read_named_file(environ, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        headers["authorization"] = header
    elif token := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "").strip():
        headers["authorization"] = token
    url = f"{_CONTAINER_URL}{relative}" if relative else full
    answer = await request_json(
        "GET", url, headers, provider=PROVIDER, remedy="check the role of the container",
        is_metadata=True,
    )  # fmt: skip
    return _read_keys(answer)


async def _fetch_from_metadata(environ: Mapping[str, str]) -> AWSKeys:
    """Version 2 of the metadata server: a token first, then the name of the role, then its keys."""
    base = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").strip() or _METADATA_URL
    base = base.rstrip("/")
    remedy = "give the machine a role"

    async def ask(method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
        return await request_json(
            method, base + path, headers,
            provider=PROVIDER, remedy=remedy, is_metadata=True, is_text=True,
        )  # fmt: skip

    seconds = {"x-aws-ec2-metadata-token-ttl-seconds": "21600"}
    token = (await ask("PUT", "/latest/api/token", seconds))["text"].strip()
    headers = {"x-aws-ec2-metadata-token": token}
    roles = "/latest/meta-data/iam/security-credentials/"
    role = (await ask("GET", roles, headers))["text"].split("\n")[0].strip()
    answer = await ask("GET", roles + role, headers)
    return _read_keys(msgspec.json.decode(answer["text"], type=dict[str, Any]))


def _is_aws_machine(environ: Mapping[str, str]) -> bool:
    if environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").strip():
        return True
    try:
        return re.match(r"Amazon EC2", _VENDOR_FILE.read_text()) is not None
    except OSError:
        return False
