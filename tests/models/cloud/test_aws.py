"""Credentials of AWS: where they are found, and in which order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.models.cloud.token_server import serve_tokens
from treadle.core.errors import AccessDenied, ConfigError
from treadle.models.cloud import aws
from treadle.models.cloud.sigv4 import AWSKeys
from treadle.models.cloud.status import describe_cloud

KEYS = {"AccessKeyId": "AK", "SecretAccessKey": "SK"}
END = 4_000_000_000.0
TEMPORARY = {**KEYS, "Token": "ST", "Expiration": "2096-10-02T07:06:40Z"}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    return {"HOME": str(tmp_path)}


def write(home: dict[str, str], name: str, text: str) -> None:
    (Path(home["HOME"]) / ".aws" / name).write_text(text)


async def test_keys_of_the_environment_come_before_those_of_files(home: dict[str, str]):
    write(home, "credentials", "[default]\naws_access_key_id = FK\naws_secret_access_key = FS\n")
    assert await aws.fetch_keys(home, "us-east-1") == AWSKeys("FK", "FS")
    environ = {**home, "AWS_ACCESS_KEY_ID": "EK", "AWS_SECRET_ACCESS_KEY": "ES"}
    environ["AWS_SESSION_TOKEN"] = "ET"
    assert await aws.fetch_keys(environ, "us-east-1") == AWSKeys("EK", "ES", "ET")


async def test_a_profile_has_its_region_and_its_keys(home: dict[str, str]):
    write(home, "config", "[default]\nregion=us-west-2\n[profile work]\nregion = eu-west-1\n")
    write(home, "credentials", "[work]\naws_access_key_id=WK\naws_secret_access_key=W%S\n")
    assert aws.find_region(home) == "us-west-2"
    assert aws.find_source(home) is None
    work = {**home, "AWS_PROFILE": "work"}
    assert aws.find_region(work) == "eu-west-1"
    assert await aws.fetch_keys(work, "") == AWSKeys("WK", "W%S")
    assert aws.find_region({**work, "AWS_DEFAULT_REGION": "ap-east-1"}) == "ap-east-1"


async def test_a_program_of_a_profile_prints_its_keys(home: dict[str, str]):
    printed = json.dumps({"Version": 1, **KEYS, "SessionToken": "T", "Expiration": END})
    program = Path(home["HOME"]) / "keys"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    write(home, "config", f"[default]\ncredential_process = {program} --for 'me too'\n")
    assert await aws.fetch_keys(home, "us-east-1") == AWSKeys("AK", "SK", "T", END)
    program.write_text("#!/bin/sh\necho no >&2; exit 1\n")
    with pytest.raises(AccessDenied, match="aws sso login --profile default"):
        await aws.fetch_keys(home, "us-east-1")


async def test_a_login_is_printed_by_the_program_aws(home: dict[str, str], monkeypatch):
    program = Path(home["HOME"]) / "aws"
    program.write_text(
        '#!/bin/sh\n[ "$*" = "configure export-credentials --profile sso --format process" ] &&'
        f" echo '{json.dumps(KEYS)}'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", home["HOME"], prepend=":")
    write(home, "config", "[profile sso]\nsso_session = mine\nregion = us-east-1\n")
    keys = await aws.fetch_keys({**home, "AWS_PROFILE": "sso"}, "us-east-1")
    assert keys == AWSKeys("AK", "SK")


async def test_a_container_and_a_cluster_have_a_role(tmp_path: Path, home: dict[str, str]):
    answer = {"Credentials": {**KEYS, "SessionToken": "ST", "Expiration": END}}
    whole = {"AssumeRoleWithWebIdentityResponse": {"AssumeRoleWithWebIdentityResult": answer}}
    with serve_tokens({"/role": TEMPORARY, "/": whole}) as server:
        (tmp_path / "token").write_text("from-file\n")
        container = {
            **home, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server.url}/role",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
        }  # fmt: skip
        assert await aws.fetch_keys(container, "us-east-1") == AWSKeys("AK", "SK", "ST", END)
        cluster = {
            **home, "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_ENDPOINT_URL_STS": server.url,
        }  # fmt: skip
        assert await aws.fetch_keys(cluster, "us-east-1") == AWSKeys("AK", "SK", "ST", END)
    assert server.asked[0].headers["authorization"] == "from-file"
    assert server.asked[1].form["WebIdentityToken"] == "from-file"


async def test_the_metadata_server_of_a_machine_is_asked_in_three_steps(home: dict[str, str]):
    roles = "/latest/meta-data/iam/security-credentials/"
    answers = {"/latest/api/token": "T1", roles: "role-1", f"{roles}role-1": TEMPORARY}
    with serve_tokens(answers) as server:
        environ = {**home, "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url}
        assert await aws.fetch_keys(environ, "us-east-1") == AWSKeys("AK", "SK", "ST", END)
    assert [one.method for one in server.asked] == ["PUT", "GET", "GET"]
    assert server.asked[2].headers["x-aws-ec2-metadata-token"] == "T1"


async def test_temporary_keys_are_fetched_again_before_their_end(home: dict[str, str]):
    now = [END - 3600]
    with serve_tokens({"/role": TEMPORARY}) as server:
        environ = {**home, "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{server.url}/role"}
        access = aws.AWSAccess(environ, "us-east-1", clock=lambda: now[0])
        await access.authorize("POST", "https://x.test/", {}, b"")
        headers = await access.authorize("POST", "https://x.test/", {}, b"")
        assert headers["x-amz-security-token"] == "ST"
        assert len(server.asked) == 1
        now[0] = END - 100
        await access.authorize("POST", "https://x.test/", {}, b"")
    assert len(server.asked) == 2


async def test_what_is_missing_is_named(home: dict[str, str]):
    access = aws.AWSAccess({**home, "AWS_EC2_METADATA_DISABLED": "true"}, "us-east-1")
    with pytest.raises(AccessDenied, match=r"AWS_BEARER_TOKEN_BEDROCK.*aws configure"):
        access.check()
    write(home, "config", "not a file of this kind\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        aws.find_source(home)


@pytest.mark.parametrize(
    ("given", "gap"),
    [
        ({"AWS_ACCESS_KEY_ID": "AK"}, "AWS_ACCESS_KEY_ID is set, but not AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ROLE_ARN": "r"}, "AWS_ROLE_ARN is set, but not AWS_WEB_IDENTITY_TOKEN_FILE"),
        ({"AWS_PROFILE": "nope"}, "nope of AWS_PROFILE has no credentials in ~/.aws"),
        ({}, "bedrock needs an account of AWS: set AWS_BEARER_TOKEN_BEDROCK"),
    ],
)
async def test_what_is_missing_beside_what_is_set_is_named(
    given: dict[str, str], gap: str, home: dict[str, str]
):
    environ = {**home, **given, "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.raises(AccessDenied, match=gap):
        await aws.fetch_keys(environ, "us-east-1")
    is_ready, text, is_incomplete = describe_cloud("bedrock", environ)
    assert not is_ready
    assert is_incomplete is bool(given)
    assert not given or gap in text
