"""A server for the tests of the program: one tool, without any library. Speaks JSON lines."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TOOLS = [
    {
        "name": "greet",
        "description": "Greet somebody.",
        "inputSchema": {"type": "object", "properties": {"who": {"type": "string"}}},
    }
]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
            "instructions": "Greet politely.",
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        if params["arguments"].get("who") == "nobody":
            os._exit(1)
        keys = [name for name in os.environ if "KEY" in name]
        if params["arguments"].get("who") == "env":
            given = [f"{name}={os.environ.get(name)}" for name in ("A_KEY", "B", "C_TOKEN")]
            return {"content": [{"type": "text", "text": ", ".join(given)}]}
        text = f"hello {params['arguments'].get('who')}, keys: {keys}"
        return {"content": [{"type": "text", "text": text}]}
    return {}


def main() -> None:
    wait = sys.argv[1] if len(sys.argv) > 1 else ""
    while wait and not Path(wait).exists():
        time.sleep(0.01)
    for line in sys.stdin:
        said = json.loads(line)
        if "id" not in said:
            continue
        if said["method"] not in ("initialize", "tools/list", "tools/call", "ping"):
            reply = {"error": {"code": -32601, "message": "unknown"}}
        else:
            reply = {"result": answer(said["method"], said.get("params", {}))}
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], **reply}), flush=True)
        if wait and said["method"] == "tools/list":
            Path(wait).with_name("listed").touch()


if __name__ == "__main__":
    main()
