"""Our signatures are those of AWS's own library, for 200 random requests."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from treadle.models.cloud.sigv4 import AWSKeys, sign_request

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "sigv4.json").read_text()
)


def sign(vector: dict[str, Any], body: bytes) -> dict[str, str]:
    return sign_request(
        vector["method"],
        vector["url"],
        vector["headers"],
        body,
        AWSKeys(*vector["keys"]),
        region=vector["region"],
        service="bedrock",
        timestamp=vector["timestamp"],
    )


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_a_request_is_signed_as_by_botocore(number: int):
    vector = VECTORS[number]
    headers = sign(vector, base64.b64decode(vector["body"]))
    assert headers["authorization"] == vector["authorization"]
    assert headers.get("x-amz-security-token", "") == vector["keys"][2]


def test_there_are_200_and_another_body_has_another_signature():
    assert len(VECTORS) == 200
    vector = VECTORS[0]
    assert sign(vector, b"another")["authorization"] != vector["authorization"]
