"""Credentials of Google: what asks for a token is what Google's own library sends."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from google.auth.transport.requests import Request
from google.oauth2.credentials import Credentials as UserCredentials
from google.oauth2.service_account import Credentials

from tests.models.cloud.token_server import serve_tokens
from treadle.core.errors import AccessDenied, ConfigError
from treadle.models.cloud import google
from treadle.models.cloud.service_key import sign_token

KEY = rsa.generate_private_key(65537, 2048)
FORMATS = (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL)


def to_pem(form: serialization.PrivateFormat = FORMATS[0]) -> str:
    plain = serialization.NoEncryption()
    return KEY.private_bytes(serialization.Encoding.PEM, form, plain).decode()


def service_account(url: str) -> dict[str, Any]:
    return {
        "type": "service_account", "project_id": "my-project", "private_key_id": "k1",
        "private_key": to_pem(), "client_email": "me@my-project.test", "client_id": "1",
        "token_uri": f"{url}/token",
    }  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_a_signed_token_is_accepted_by_googles_library(form: serialization.PrivateFormat):
    token = sign_token(to_pem(form), "k1", {"iat": 1, "exp": 2, "aud": "x"})
    public = KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert jwt.decode(token, certs=public, verify=False)["aud"] == "x"
    text, _, signature = token.rpartition(".")
    from google.auth.crypt import RSAVerifier

    decoded = base64.urlsafe_b64decode(signature + "==")
    assert RSAVerifier.from_string(public).verify(text, decoded)
    assert not RSAVerifier.from_string(public).verify(f"{text}x", decoded)


@pytest.mark.parametrize("key", ["", "no key", "-----BEGIN X-----\nMAA=\n-----END X-----"])
def test_a_key_that_is_no_rsa_key_is_named(key: str):
    with pytest.raises(ValueError, match="private key"):
        sign_token(key, "", {})


async def test_a_service_account_asks_as_googles_library_does(tmp_path: Path):
    with serve_tokens() as server:
        fields = service_account(server.url)
        file = tmp_path / "key.json"
        file.write_text(json.dumps(fields))
        token = google.make_token({"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
        assert await token.get() == "the-token"
        assert await token.get() == "the-token"
        Credentials.from_service_account_info(fields, scopes=[google.SCOPE]).refresh(Request())
    ours, theirs = server.asked
    assert (ours.method, ours.path) == (theirs.method, theirs.path) == ("POST", "/token")
    assert ours.form.keys() == theirs.form.keys()
    assert ours.form["grant_type"] == theirs.form["grant_type"]
    claims = [jwt.decode(one.form["assertion"], verify=False) for one in (ours, theirs)]
    lifetimes = [claim.pop("exp") - claim.pop("iat") for claim in claims]
    assert lifetimes[0] == lifetimes[1]
    assert claims[0] == claims[1]
    headers = [jwt.decode_header(one.form["assertion"]) for one in (ours, theirs)]
    assert headers[0] == headers[1]


async def test_a_login_of_a_user_asks_as_googles_library_does(tmp_path: Path):
    with serve_tokens() as server:
        fields = {
            "type": "authorized_user", "client_id": "c", "client_secret": "s",
            "refresh_token": "r", "quota_project_id": "theirs", "token_uri": f"{server.url}/token",
        }  # fmt: skip
        folder = tmp_path / "gcloud"
        folder.mkdir()
        (folder / "application_default_credentials.json").write_text(json.dumps(fields))
        environ = {"CLOUDSDK_CONFIG": str(folder)}
        assert await google.make_token(environ).get() == "the-token"
        assert google.find_project(environ) == "theirs"
        names = ("refresh_token", "client_id", "client_secret", "token_uri")
        UserCredentials(None, **{name: fields[name] for name in names}).refresh(Request())
    ours, theirs = server.asked
    assert ours.form == theirs.form


async def test_the_metadata_server_is_asked_as_by_googles_library(monkeypatch):
    from google.auth.compute_engine import _metadata

    with serve_tokens() as server:
        host = server.url.removeprefix("http://")
        environ = {"GCE_METADATA_HOST": host}
        assert await google.make_token(environ).get() == "the-token"
        monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", host, raising=False)
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        root = f"http://{host}/computeMetadata/v1/"
        _metadata.get_service_account_token(
            Request(), "default", [google.SCOPE], **_metadata_arguments(_metadata, root)
        )
    ours, theirs = server.asked[0], server.asked[-1]
    assert (ours.method, ours.path, ours.form) == (theirs.method, theirs.path, theirs.form)
    assert ours.headers["metadata-flavor"] == theirs.headers["metadata-flavor"] == "Google"


def _metadata_arguments(module: Any, root: str) -> dict[str, Any]:
    """Older versions read the host at import."""
    module._METADATA_ROOT = root
    return {}


async def test_a_token_command_and_a_token_come_first(tmp_path: Path):
    command = {"TREADLE_VERTEX_TOKEN_COMMAND": "printf ' abc\\n'"}
    assert await google.make_token(command).get() == "abc"
    both = {**command, "CLOUDSDK_AUTH_ACCESS_TOKEN": "given"}
    assert await google.make_token(both).get() == "given"
    with pytest.raises(AccessDenied, match="gave no token"):
        await google.make_token({"TREADLE_VERTEX_TOKEN_COMMAND": "exit 3"}).get()


async def test_what_is_missing_or_wrong_is_named(tmp_path: Path):
    empty = {"HOME": str(tmp_path)}
    with pytest.raises(AccessDenied, match="gcloud auth application-default login"):
        await google.make_token(empty).get()
    missing = {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}
    unset = r"cannot be read: GOOGLE_APPLICATION_CREDENTIALS .*unset it and run `gcloud auth"
    with pytest.raises(ConfigError, match=unset):
        await google.make_token(missing).get()
    broken = tmp_path / "application_default_credentials.json"
    broken.write_text("{")
    with pytest.raises(ConfigError, match=r"cannot be read: /.*To continue, run `gcloud auth"):
        await google.make_token({"CLOUDSDK_CONFIG": str(tmp_path)}).get()
    file = tmp_path / "other.json"
    file.write_text('{"type": "external_account"}')
    with pytest.raises(ConfigError, match=r"'external_account'.*TREADLE_VERTEX_TOKEN_COMMAND"):
        await google.make_token({"GOOGLE_APPLICATION_CREDENTIALS": str(file)}).get()
    with serve_tokens({"/token": {"error": "invalid_grant"}}, status=400) as server:
        file.write_text(json.dumps(service_account(server.url)))
        with pytest.raises(AccessDenied, match=r"invalid_grant.*unset it and run"):
            await google.make_token({"GOOGLE_APPLICATION_CREDENTIALS": str(file)}).get()


def test_the_project_of_gcloud_is_found(tmp_path: Path):
    folder = tmp_path / ".config" / "gcloud" / "configurations"
    folder.mkdir(parents=True)
    (folder / "config_work").write_text("[core]\nproject = at-work\n")
    (folder.parent / "active_config").write_text("work")
    assert google.find_project({"HOME": str(tmp_path)}) == "at-work"
    assert google.find_project({"HOME": str(tmp_path), "GOOGLE_CLOUD_PROJECT": "x"}) == "x"
