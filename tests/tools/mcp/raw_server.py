"""An MCP server of a few lines that behaves as badly as its tools' names say. Run by tests.

    raw_server.py [crash|silent|noisy|old|slow|odd|many] [FLAG]

Each tool is a way to go wrong; `echo` is none.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else ""
NAMES = """
crash broken nonsense wrong_id never big big_nameless late progress binary env mixed refuse failing
child change storm deaf structured sample form noise touch doubled half_emoji odd_block flood deep
busy pings
"""
tools = {
    name: {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}}
    for name in NAMES.split()
}
tools["echo"] = {
    "name": "echo",
    "description": "Says it again.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["text"],
    },
    "annotations": {"readOnlyHint": True},
}
if MODE == "many":  # twenty tools of an issue tracker, as long as those of real servers
    for verb in ("create", "read", "update", "delete", "list"):
        for noun in ("issue", "comment", "label", "milestone"):
            fields = {
                field: {
                    "type": "string",
                    "description": f"The {field} of the {noun}, " + "as " * 20,
                }
                for field in ("owner", "repository", "title", "body")
            }
            about = f"{verb.title()} a {noun} of the tracker. " + "More about it. " * 10
            form = {"type": "object", "properties": fields, "required": ["owner"]}
            name = f"{verb}_{noun}"
            tools[name] = {"name": name, "description": about, "inputSchema": form}
    for name in [*NAMES.split(), "echo"]:
        del tools[name]
if MODE == "odd":
    tools = {"odd": {"name": "odd", "inputSchema": "none"}}
if MODE == "one_odd":
    tools["odd"] = {"name": "odd", "inputSchema": []}
    tools["echo"]["annotations"] = "read only"
waiting: list[Any] = []
pings = 0


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def send(**message: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(*words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": word} for word in words]}


def call(number: Any, params: dict[str, Any]) -> None:
    name, given = params["name"], params.get("arguments") or {}
    token = params.get("_meta", {}).get("progressToken")
    match name:
        case "echo":
            send(id=number, result=text(given["text"] * given.get("times", 1)))
        case "crash":
            print("out of cheese", file=sys.stderr, flush=True)
            os._exit(3)
        case "broken":
            write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": [')
        case "nonsense":
            write(f'{{"jsonrpc": "2.0", "id": {number}, "result": "fine"}}')
        case "wrong_id":
            send(id=number + 1000, result=text("for another request"))
        case "never" | "late":
            waiting.append(number)
        case "big":
            write(f'{{"jsonrpc": "2.0", "id": {number}, "result": "{"x" * 50_000_000}"}}')
        case "big_nameless":
            write('{"junk": "' + "x" * 50_000_000 + '"}')
        case "progress":
            for step in (1, 2):
                params = {"progressToken": token, "progress": step, "total": 2, "message": "baking"}
                send(method="notifications/progress", params=params)
            send(id=number, result=text("baked"))
        case "binary":
            sys.stdout.buffer.write(bytes(range(128, 256)) + b"\n")
            sys.stdout.flush()
            write("INFO about to answer {now}")
            send(id=number, result=text("answered"))
        case "env" | "fresh":
            send(id=number, result=text(json.dumps({**os.environ, "cwd": str(Path.cwd())})))
        case "mixed":
            picture = {"type": "image", "mimeType": "image/png", "data": "iVBORw=="}
            sound = {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}
            link = {"type": "resource_link", "name": "log", "uri": "file:///log"}
            note = {"uri": "memo://1", "mimeType": "text/plain", "text": "remember"}
            pdf = {"uri": "memo://2", "mimeType": "application/pdf",
                   "blob": base64.b64encode(b"%PDF").decode()}  # fmt: skip
            parts = [
                picture,
                sound,
                link,
                *({"type": "resource", "resource": r} for r in (note, pdf)),
            ]
            send(id=number, result={"content": parts})
        case "structured":
            send(id=number, result={"content": [], "structuredContent": {"sum": 3}})
        case "doubled":
            said = given["text"]
            same = {"content": said if "wrapped" not in given else text(said)["content"]}
            send(id=number, result={**text(said), "structuredContent": same})
        case "half_emoji":
            write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": '
                  '[{"type": "text", "text": "a \\ud83d b"}]}}')  # fmt: skip
        case "deep":
            opening, closing = given.get("opening", "["), given.get("closing", "]")
            inner = opening * given["levels"] + "1" + closing * given["levels"]
            head = f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": '
            write(f'{head}[], "structuredContent": {{"a": {inner}}}}}}}')
        case "busy":
            while not Path(given["until"]).exists():
                time.sleep(0.01)
            send(id=number, result=text("free again"))
        case "pings":
            send(id=number, result=text(str(pings)))
        case "odd_block":
            video = {"type": "video", "data": "AAAA"}
            send(id=number, result={"content": [*text("seen")["content"], video]})
        case "flood":
            for place in range(50_000):
                params = {"level": "info", "data": f"line {place}"}
                send(method="notifications/message", params=params)
            send(id=number, result=text("after the flood"))
        case "failing":
            send(id=number, result={**text("no such table"), "isError": True})
        case "refuse":
            send(id=number, error={"code": -32000, "message": "not on Sundays"})
        case "child":
            null = subprocess.DEVNULL
            argv = ["sleep", given["mark"]]
            subprocess.Popen(argv, start_new_session=True, stdin=null, stdout=null)
            send(id=number, result=text("born"))
        case "change":
            tools["fresh"] = {**tools["env"], "name": "fresh"}
            del tools["mixed"]
            send(method="notifications/tools/list_changed")
            send(id=number, result=text("changed"))
        case "storm":
            for _ in range(2000):
                send(method="notifications/tools/list_changed")
            send(id=number, result=text("calm"))
        case "sample":
            message = {"role": "user", "content": {"type": "text", "text": given["text"]}}
            wanted = {"messages": [message], "maxTokens": 50, "systemPrompt": "Rhyme."}
            ask_client(number, "sampling/createMessage", wanted)
        case "form":
            ask_client(number, "elicitation/create", given)
        case "noise":
            for level in ("debug", "info", "error"):
                params = {"level": level, "logger": "db", "data": f"a {level}"}
                send(method="notifications/message", params=params)
            send(id=number, result=text("noisy"))
        case "touch":
            send(method="notifications/resources/updated", params={"uri": "memo://1"})
            send(id=number, result=text("touched"))
        case _ if MODE == "many":
            send(id=number, result=text(f"{name} of {given['owner']}"))
        case "deaf":
            send(id=number, result=text("deaf now"))
            time.sleep(1e6)


asked: dict[str, Any] = {}


def ask_client(number: Any, method: str, params: dict[str, Any]) -> None:
    """Ask the client during a call; the call returns what it answered."""
    asked[f"ask-{number}"] = number
    send(id=f"ask-{number}", method=method, params=params)


def handle(message: dict[str, Any]) -> None:
    global pings
    pings += message.get("method") == "ping"
    if message.get("id") in asked and "method" not in message:
        answer = message.get("result", message.get("error"))
        send(id=asked.pop(message["id"]), result=text(json.dumps(answer)))
        return
    method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
    match method:
        case "server/discover" if MODE == "old":
            os._exit(4)
        case "initialize":
            info = {"name": "raw", "version": "1"}
            capabilities = {
                "tools": {"listChanged": True}, "resources": {"subscribe": True}, "prompts": {},
                "logging": {},
            }  # fmt: skip
            version = "2031-01-01" if MODE == "future" else "2025-06-18"
            send(id=number, result={"protocolVersion": version, "serverInfo": info,
                                    "capabilities": capabilities,
                                    "instructions": "Handle with care."})  # fmt: skip
        case "resources/list":
            memo = {"uri": "memo://1", "name": "memo", "mimeType": "text/plain"}
            odd = [{"name": "odd", "uri": 3}] if MODE == "one_odd" else []
            send(id=number, result={"resources": [*odd, memo]})
        case "resources/templates/list":
            template = {"uriTemplate": "memo://{n}", "name": "any memo"}
            templates = ["odd", template] if MODE == "one_odd" else [template]
            send(id=number, result={"resourceTemplates": templates})
        case "resources/read" if params["uri"] == "memo://1":
            memo = {"uri": "memo://1", "mimeType": "text/plain", "text": "remember"}
            send(id=number, result={"contents": [memo]})
        case "resources/subscribe" | "logging/setLevel":
            send(id=number, result={})
        case "prompts/list":
            argument = {"name": "topic", "description": "of the poem", "required": True}
            prompt: dict[str, Any] = {
                "name": "poem",
                "description": "Writes a poem.",
                "arguments": [argument],
            }
            odd = [{"name": "odd", "arguments": "none"}] if MODE == "one_odd" else []
            if MODE == "one_odd":
                prompt["title"] = 3
            send(id=number, result={"prompts": [*odd, prompt]})
        case "prompts/get":
            words = f"A poem about {params['arguments']['topic']}."
            message = {"role": "user", "content": {"type": "text", "text": words}}
            send(id=number, result={"messages": [message]})
        case "tools/list":
            send(id=number, result={"tools": list(tools.values())})
        case "tools/call":
            call(number, params)
        case "notifications/cancelled":
            if params.get("requestId") in waiting:
                print(f"cancelled {params['requestId']}", file=sys.stderr, flush=True)
                send(id=params["requestId"], result=text("too late"))
        case _ if number is not None and method:
            send(id=number, error={"code": -32601, "message": "not found"})


def main() -> None:
    if MODE == "crash":
        print("cannot find my config", file=sys.stderr, flush=True)
        sys.exit(1)
    if MODE == "noisy":
        write("Starting server v1...\n{not json}\n[1, 2]\n{}\n\x1b[31mred\x1b[0m")
    if MODE == "slow":
        while not Path(sys.argv[2]).exists():
            time.sleep(0.01)
    for line in sys.stdin:
        if MODE != "silent":
            handle(json.loads(line))


main()
