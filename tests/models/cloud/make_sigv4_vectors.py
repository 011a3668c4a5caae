"""Writes tests/data/sigv4.json: 200 random requests, and how AWS's own library signs them.

    uv run --no-project --with botocore --with msgspec tests/models/cloud/make_sigv4_vectors.py

botocore cannot be in the environment of the tests: its dependencies exclude those of others there.
"""

from __future__ import annotations

import base64
import json
import random
import string
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

FILE = Path(__file__).parents[2] / "data" / "sigv4.json"
TEXT = string.ascii_letters + string.digits + "-._~ :/+=%@!,;äß中"


def make_request(rng: random.Random) -> dict[str, Any]:
    def text(longest: int, alphabet: str = string.ascii_letters + string.digits) -> str:
        return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, longest)))

    from urllib.parse import quote

    segments = [quote(text(20, TEXT), safe="~") for _ in range(rng.randint(1, 4))]
    segments += rng.choice([[], [], [], [""], [".", text(3)], ["..", text(3)], ["", text(3)]])
    query = "&".join(f"{text(5)}={quote(text(8, TEXT), safe='')}" for _ in range(rng.randint(0, 3)))
    host = rng.choice(["bedrock-runtime.us-east-1.amazonaws.com", "127.0.0.1:8080", "a.test:443"])
    headers = {"content-type": "application/json", "user-agent": text(9)}
    headers |= {
        f"x-{text(6).lower()}": rng.choice([" a  b ", text(9)]) for _ in range(rng.randint(0, 3))
    }
    moment = datetime.fromtimestamp(rng.randint(1_500_000_000, 1_900_000_000), UTC)
    return {
        "method": rng.choice(["POST", "POST", "GET"]),
        "url": f"https://{host}/{'/'.join(segments)}" + (f"?{query}" if query else ""),
        "headers": headers,
        "body": base64.b64encode(rng.randbytes(rng.randint(0, 300))).decode(),
        "keys": [text(20), text(40, TEXT[:66]), rng.choice(["", text(60)])],
        "region": rng.choice(["us-east-1", "eu-central-1", "ap-southeast-2"]),
        "timestamp": moment.strftime("%Y%m%dT%H%M%SZ"),
    }


def sign(request: dict[str, Any]) -> str:
    """The signature of botocore."""
    import importlib

    auth: Any = importlib.import_module("botocore.auth")
    request_type: Any = importlib.import_module("botocore.awsrequest").AWSRequest
    keys: Any = importlib.import_module("botocore.credentials").Credentials(*request["keys"])

    moment = datetime.strptime(request["timestamp"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    sent = request_type(
        request["method"],
        request["url"],
        headers=request["headers"],
        data=base64.b64decode(request["body"]),
    )
    with patch.object(auth, "get_current_datetime", lambda *_, **__: moment.replace(tzinfo=None)):
        signer = auth.SigV4Auth(keys, "bedrock", request["region"])
        signer.add_auth(sent)
    return str(sent.headers["Authorization"])


def main() -> None:
    rng = random.Random(35)
    requests = [make_request(rng) for _ in range(200)]
    signed = [{**request, "authorization": sign(request)} for request in requests]
    FILE.write_text("[\n" + ",\n".join(json.dumps(one) for one in signed) + "\n]\n")
    sys.stdout.write(f"{len(signed)} requests in {FILE}\n")


if __name__ == "__main__":
    main()
