"""Tokens of Entra: what asks for one is what Microsoft's own library sends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import ClientSecretCredential, ManagedIdentityCredential

from tests.models.cloud.token_server import serve_tokens
from treadle.core.errors import AccessDenied, ConfigError
from treadle.models.cloud import azure
from treadle.models.cloud.create import make_azure_client
from treadle.models.cloud.status import describe_cloud

APPLICATION = {"AZURE_TENANT_ID": "t1", "AZURE_CLIENT_ID": "c1", "AZURE_CLIENT_SECRET": "s1"}


HOST = "https://login.microsoftonline.com"


class Redirected(RequestsTransport):  # type: ignore[misc] # it has no types
    """Microsoft's library refuses plain HTTP: its requests are sent to the server of the test."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace(HOST, self._url)
        return super().send(request, **options)


async def test_an_application_asks_as_microsofts_library_does():
    discovery = {
        "token_endpoint": f"{HOST}/t1/oauth2/v2.0/token",
        "authorization_endpoint": f"{HOST}/t1/oauth2/v2.0/authorize",
        "issuer": f"{HOST}/t1/v2.0",
    }
    with serve_tokens({"/t1/v2.0/.well-known/openid-configuration": discovery}) as server:
        environ = {**APPLICATION, "AZURE_AUTHORITY_HOST": server.url}
        assert await azure.make_token(environ).get() == "the-token"
        ClientSecretCredential(
            "t1", "c1", "s1", transport=Redirected(server.url), disable_instance_discovery=True
        ).get_token(azure.SCOPE)
    ours, *_, theirs = server.asked
    assert (ours.method, ours.path) == (theirs.method, theirs.path)
    assert ours.path == "/t1/oauth2/v2.0/token"
    # It also asks for a profile of the client, of which a token for a service has none.
    assert theirs.form.keys() - ours.form.keys() <= {"client_info", "claims"}
    assert ours.form == {name: theirs.form[name] for name in ours.form}


async def test_a_managed_identity_of_a_service_asks_as_microsofts_library_does(monkeypatch):
    with serve_tokens() as server:
        server.answers["/msi/token"] = {
            "access_token": "the-token", "expires_on": "4000000000", "token_type": "Bearer",
            "resource": azure.RESOURCE,
        }  # fmt: skip
        environ = {"IDENTITY_ENDPOINT": f"{server.url}/msi/token", "IDENTITY_HEADER": "h"}
        assert await azure.make_token(environ).get() == "the-token"
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        ManagedIdentityCredential().get_token(azure.SCOPE)
    ours, theirs = server.asked
    assert (ours.method, ours.path, ours.form) == (theirs.method, theirs.path, theirs.form)
    assert ours.headers["x-identity-header"] == theirs.headers["x-identity-header"] == "h"


async def test_a_managed_identity_of_a_machine_asks_as_microsofts_library_does(monkeypatch):
    path = "/metadata/identity/oauth2/token"
    answer = {
        "access_token": "the-token", "expires_in": "3600", "expires_on": "4000000000",
        "token_type": "Bearer", "resource": azure.RESOURCE,
    }  # fmt: skip
    with serve_tokens({path: answer}) as server:
        environ = {
            "AZURE_USE_MANAGED_IDENTITY": "1", "AZURE_POD_IDENTITY_AUTHORITY_HOST": server.url,
            "AZURE_CLIENT_ID": "c1",
        }  # fmt: skip
        assert await azure.make_token(environ).get() == "the-token"
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", server.url)
        ManagedIdentityCredential(client_id="c1").get_token(azure.SCOPE)
    ours, theirs = server.asked[0], server.asked[-1]
    assert (ours.method, ours.path, ours.form) == (theirs.method, theirs.path, theirs.form)
    assert ours.headers["metadata"] == theirs.headers["metadata"] == "true"


async def test_a_workload_identity_sends_the_token_of_its_file(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("signed\n")
    with serve_tokens() as server:
        environ = {
            "AZURE_TENANT_ID": "t1", "AZURE_CLIENT_ID": "c1",
            "AZURE_FEDERATED_TOKEN_FILE": str(file), "AZURE_AUTHORITY_HOST": server.url,
        }  # fmt: skip
        assert await azure.make_token(environ).get() == "the-token"
        file.unlink()
        with pytest.raises(ConfigError, match="AZURE_FEDERATED_TOKEN_FILE"):
            await azure.make_token(environ).get()
    assert server.asked[0].form["client_assertion"] == "signed"


async def test_the_login_of_the_program_az_is_used(tmp_path: Path, monkeypatch):
    program = tmp_path / "az"
    program.write_text('#!/bin/sh\necho \'{"accessToken": "from-az", "expires_on": 4000000000}\'\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    environ = {"PATH": path, "HOME": str(tmp_path)}
    assert azure.find_source(environ) is None, "there was no login"
    (tmp_path / ".azure").mkdir()
    (tmp_path / ".azure" / "azureProfile.json").write_text("{}")
    assert await azure.make_token(environ).get() == "from-az"


async def test_a_wrong_secret_is_named_with_what_to_check():
    refusal = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid secret."}
    with serve_tokens({"/t1/oauth2/v2.0/token": refusal}, status=401) as server:
        environ = {**APPLICATION, "AZURE_AUTHORITY_HOST": server.url}
        with pytest.raises(AccessDenied, match=r"AADSTS7000215.*check AZURE_TENANT_ID"):
            await azure.make_token(environ).get()
    with pytest.raises(AccessDenied, match="az login"):
        await azure.make_token({"HOME": "/nowhere", "PATH": ""}).get()


def test_half_of_an_application_is_named_and_so_is_the_login():
    half = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "HOME": "/nowhere", "PATH": ""}
    environ = {**half, "AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com"}
    gap = "AZURE_TENANT_ID is set, but not AZURE_CLIENT_SECRET"
    with pytest.raises(AccessDenied, match=rf"{gap}: run `az login`"):
        make_azure_client(environ, None).check_access()  # type: ignore[union-attr]
    is_ready, text, is_incomplete = describe_cloud("azure", environ)
    assert text.startswith(gap)
    assert is_incomplete
    assert not is_ready
