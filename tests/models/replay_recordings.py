"""Replays the recorded traffic of public projects: our reading of each reply, and that of the
official library.

    uv run --no-project --with pyyaml --with google-genai --with botocore --with anthropic \\
        --with openai --with msgspec --with httptools tests/models/replay_recordings.py CLONE…

A CLONE is a clone of a project with cassettes (pydantic/pydantic-ai, traceloop/openllmetry,
DataDog/dd-trace-py, crewAIInc/crewAI, crmne/ruby_llm, …), also a bare one: they are not
copied here. It prints the share of replies that agree, and each difference. Not a test by itself.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.models import library_readers as library  # noqa: E402 - see sys.path
from tests.models.library_readers import Reading, Recorded  # noqa: E402
from tests.models.wires import connect  # noqa: E402
from treadle.core.contracts.model import ModelRequest, Reply  # noqa: E402
from treadle.core.errors import ModelError  # noqa: E402
from treadle.core.transcript import (  # noqa: E402
    AssistantItem,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    Transcript,
    to_user_item,
)
from treadle.models.provider_base.aws_eventstream import MEDIA_TYPE  # noqa: E402

REQUEST = ModelRequest(Transcript([to_user_item("hi")]))
READERS: dict[str, Callable[[Recorded], Reading]] = {
    "messages": library.read_by_anthropic,
    "chat": library.read_chat_by_openai,
    "responses": library.read_responses_by_openai,
    "gemini": lambda recorded: library.read_by_google(library.split_chunks(recorded)),
    "converse": library.read_by_aws,
}


ENDINGS = {
    "/messages": "messages",
    "/chat/completions": "chat",
    "/responses": "responses",
    "enerateContent": "gemini",
    "/converse": "converse",
    "/converse-stream": "converse",
}
# The beginning of a reply, where the recording hides the address.
STARTS = {
    "event: message_start": "messages",
    "event: response.created": "responses",
    '"object":"chat.completion': "chat",
    '"object":"response"': "responses",
    '"type":"message","role":"assistant"': "messages",
}


def find_wire(recorded: Recorded) -> str:
    """The format of a reply; "" for any other one."""
    path = recorded.url.partition("?")[0]
    if "/threads/" in path or path.endswith(":batchGenerateContent"):  # assistants, batches
        return ""
    if "REDACTED" not in path:
        return next((wire for end, wire in ENDINGS.items() if path.endswith(end)), "")
    begin = "".join(recorded.body[:400].decode("utf-8", "replace").split(" "))
    return next((wire for start, wire in STARTS.items() if start.replace(" ", "") in begin), "")


def list_recordings(clone: str) -> Iterator[Recorded]:
    git = ["git", "-C", clone]
    listed = subprocess.run([*git, "ls-tree", "-rz", "--name-only", "HEAD"], capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        if "cassette" not in name or not name.endswith((".yaml", ".yml", ".yaml.gz")):
            continue
        shown = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True).stdout
        shown = gzip.decompress(shown) if name.endswith(".gz") else shown
        for exchange in load_exchanges(shown):
            url = exchange["request"].get("uri") or exchange["request"].get("url") or ""
            recorded = Recorded(Path(name).name, url, read_body(exchange["response"]))
            if recorded.body and find_wire(recorded):
                yield recorded


def load_exchanges(text: bytes) -> list[dict[str, Any]]:
    yaml: Any = importlib.import_module("yaml")
    try:
        loaded = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError):
        return []
    if not isinstance(loaded, dict):
        return []
    if isinstance(loaded.get("requests"), list):  # the form of langchain-tests
        pairs = zip(loaded["requests"], loaded["responses"], strict=True)
        return [{"request": request, "response": response} for request, response in pairs]
    several = (*loaded.get("interactions", ()), *loaded.get("http_interactions", ()))  # Ruby's VCR
    return [one for one in (*several, loaded) if "request" in one]


def read_body(answer: dict[str, Any]) -> bytes:
    """The body of a reply with status 200; empty for any other one."""
    status = answer.get("status") or answer.get("status_code")
    if (status["code"] if isinstance(status, dict) else status) != 200:
        return b""
    body = answer.get("parsed_body") or answer.get("body") or answer.get("content") or b""
    body = body["string"] if isinstance(body, dict) and "string" in body else body
    if isinstance(body, dict | list):
        return json.dumps(body).encode()
    data = body if isinstance(body, bytes) else str(body).encode()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


def read_by_us(reply: AssistantItem) -> Reading:
    texts = [part.text for part in reply.content if isinstance(part, Text)]
    if reply.stop == "refusal" and texts and "declined" in texts[-1]:
        texts.pop()  # our own words
    thoughts = [part for part in reply.content if isinstance(part, Thinking)]
    opaque = [
        part for part in reply.content if isinstance(part, Opaque) and part.label != "citations"
    ]
    signed = [part for part in opaque if "thoughtSignature" in part.json]
    signed += [part for part in opaque if "thought_signature" in part.json]
    others = [part for part in opaque if part.label not in ("call_extra", "signature")]
    others = [part for part in others if "text" not in json.loads(part.json)]
    redacted = sum(isinstance(part, RedactedThinking) for part in reply.content)
    return Reading(
        "".join(texts),
        "".join([part.text for part in thoughts]),
        [(call.name, call.arguments) for call in reply.calls],
        len(signed) + sum(bool(part.signature) for part in thoughts) + redacted,
        len(others),
        reply.usage.output,
    )


# ------------------------------------------------------------------ the comparison


class Server:
    """A provider on loopback that answers every request with the reply that is set."""

    def __init__(self) -> None:
        self.reply = Recorded("", "", b"")
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(int(length.split(b":")[1]))
        kind = "text/event-stream" if self.reply.is_stream else "application/json"
        if self.reply.url.endswith("-stream"):
            kind = MEDIA_TYPE
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n".encode())
        writer.write(b"content-length: %d\r\n\r\n%b" % (len(self.reply.body), self.reply.body))
        await writer.drain()
        writer.close()


async def compare(server: Server, wire: str, recorded: Recorded) -> tuple[object, object]:
    """Our reading, and theirs; an error is a reading, too."""
    ours: object = None
    theirs: object
    server.reply = recorded
    try:
        async for event in connect(wire, server.url).stream(REQUEST):
            if isinstance(event, Reply):
                ours = read_by_us(event.item)
    except ModelError as error:
        ours = error
    try:
        theirs = READERS[wire](recorded)
    except Exception as error:  # noqa: BLE001 - whatever a library raises
        theirs = error
    if isinstance(ours, Reading) and wire in ("messages", "chat", "responses"):
        ours = ours._replace(others=0, signatures=ours.signatures if wire == "messages" else 0)
    return _join_thoughts(ours), _join_thoughts(theirs)


def _join_thoughts(reading: object) -> object:
    """Ours has blank lines between the summaries of several thoughts."""
    if not isinstance(reading, Reading):
        return reading
    return reading._replace(thinking="".join(reading.thinking.split()))


def describe_difference(ours: object, theirs: object) -> str:
    """The fields that differ; an error as a whole."""
    if not isinstance(ours, Reading) or not isinstance(theirs, Reading):
        return f"  ours {ours!s:.300}\n  theirs {theirs!s:.300}\n"
    pairs = zip(Reading._fields, ours, theirs, strict=True)
    lines = [f"  {name}: ours {a!r:.200}, theirs {b!r:.200}\n" for name, a, b in pairs if a != b]
    return "".join(lines)


async def main(clones: list[str]) -> None:
    async with Server() as server:
        await compare_all(server, clones)


async def compare_all(server: Server, clones: list[str]) -> None:
    agreed: Counter[str] = Counter()
    refused: Counter[str] = Counter()  # neither can read it
    total: Counter[str] = Counter()
    for clone in clones:
        counts: Counter[str] = Counter()
        for recorded in list_recordings(clone):
            wire = find_wire(recorded)
            ours, theirs = await compare(server, wire, recorded)
            counts[wire] += 1
            agreed[wire] += ours == theirs
            are_errors = isinstance(ours, Exception) and isinstance(theirs, Exception)
            refused[wire] += are_errors
            if ours != theirs:
                both = " (an error for both)" if are_errors else ""
                difference = describe_difference(ours, theirs)
                sys.stdout.write(f"{wire}: {recorded.name}{both}\n{difference}")
        total += counts
        sys.stdout.write(f"{clone}: {dict(counts)}\n")
    for wire, count in total.items():
        share = (agreed[wire] + refused[wire]) / count
        sys.stdout.write(
            f"{wire}: {agreed[wire]} of {count} replies agree, {refused[wire]} are errors for "
            f"both, {share:.1%}\n"
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
