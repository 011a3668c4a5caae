"""A language server with faults, run as a program: `scripted_server.py [FAULT]`.

It publishes an error for each line of a file that has `bad` in it, a warning for `poor` and a hint
for `meh`. Faults: silent, crash (at the word `crash` in a text), no-start, flood, long, malformed,
wrong-shape, garbage. Each start adds a line to `starts.txt`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
SEVERITIES = {"bad": 1, "poor": 2, "meh": 4}


def send(message: dict[str, Any]) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode())


def write(body: bytes, length: int | None = None) -> None:
    size = len(body) if length is None else length
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % size + body)
    sys.stdout.buffer.flush()


def receive() -> dict[str, Any]:
    length = 0
    while (line := sys.stdin.buffer.readline()).strip():
        length = int(line.split(b":")[1])
    if not line:
        sys.exit(0)
    message: dict[str, Any] = json.loads(sys.stdin.buffer.read(length))
    return message


def publish(uri: str, version: int, text: str) -> None:
    if "crash" in text and FAULT == "crash":
        print("a bug in the server", file=sys.stderr, flush=True)
        sys.exit(3)
    found = [
        {
            "range": {
                "start": {"line": n, "character": 0},
                "end": {"line": n, "character": 1},
            },
            "severity": severity,
            "message": f"a {word} line",
        }
        for n, line in enumerate(text.splitlines())
        for word, severity in SEVERITIES.items()
        if word in line
    ]
    match FAULT:
        case "silent":
            return
        case "flood":
            while True:
                send({"method": "window/logMessage", "params": {"message": "x" * 100_000}})
        case "long":
            write(b"{", length=10**9)
        case "malformed":
            write(b"{no json")
        case "garbage":
            sys.stdout.buffer.write(b"Warning: this is no frame\r\n\r\n")
            sys.stdout.buffer.flush()
        case "wrong-shape":
            found = [{"range": "line 3", "message": 5}]
    params = {"uri": uri, "version": version, "diagnostics": found}
    send({"method": "textDocument/publishDiagnostics", "params": params})


def main() -> None:
    with Path("starts.txt").open("a") as file:
        file.write("started\n")
    if FAULT == "no-start":
        print("no such option", file=sys.stderr, flush=True)
        sys.exit(2)
    while True:
        message = receive()
        document = (message.get("params") or {}).get("textDocument") or {}
        match message.get("method"):
            case "initialize":
                send({"id": message["id"], "result": {"capabilities": {}}})
            case "initialized":
                send({"id": "q", "method": "window/unknown", "params": None})
            case "textDocument/didOpen":
                publish(document["uri"], document["version"], document["text"])
            case "textDocument/didChange":
                text = message["params"]["contentChanges"][0]["text"]
                publish(document["uri"], document["version"], text)


main()
