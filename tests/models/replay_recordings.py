"""Replays the recorded traffic of a public project: our reading of each reply of Gemini and of
Bedrock's Converse, and that of the official library.

    uv run --no-project --with pyyaml --with google-genai --with botocore --with msgspec \\
        --with httptools tests/models/replay_recordings.py CLONE

CLONE is a clone of github.com/pydantic/pydantic-ai, also a bare one: its cassettes are not copied
here. It prints the share of replies that agree, and each difference. Not a test by itself.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from treadle.core.contracts.model import ModelCard, ModelRequest  # noqa: E402 - see sys.path
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
from treadle.lib.http.sse import SSEReader  # noqa: E402
from treadle.models.bedrock_converse.model import ConverseCodec  # noqa: E402
from treadle.models.gemini.model import GeminiCodec  # noqa: E402
from treadle.models.provider_base.aws_eventstream import AWSFrameReader  # noqa: E402
from treadle.models.provider_base.codec import DecodeFailed, Decoder  # noqa: E402

REQUEST = ModelRequest(Transcript([to_user_item("hi")]))


class Recorded(NamedTuple):
    """A recorded exchange with status 200."""

    name: str
    url: str
    body: bytes


class Reading(NamedTuple):
    """What a reader finds in a reply."""

    text: str
    thinking: str
    calls: list[tuple[str, Any]]
    signatures: int
    others: int
    output_tokens: int


def list_recordings(clone: str) -> Iterator[Recorded]:
    yaml: Any = importlib.import_module("yaml")
    git = ["git", "-C", clone]
    listed = subprocess.run([*git, "ls-tree", "-rz", "--name-only", "HEAD"], capture_output=True)
    for name in listed.stdout.decode().split("\0"):
        if "/cassettes/" not in name or not name.endswith(".yaml"):
            continue
        shown = subprocess.run([*git, "show", f"HEAD:{name}"], capture_output=True).stdout
        if b"enerateContent" not in shown and b"/converse" not in shown:
            continue
        for exchange in yaml.load(shown, getattr(yaml, "CSafeLoader", yaml.SafeLoader))[
            "interactions"
        ]:
            answer = exchange["response"]
            body = answer.get("parsed_body") or answer.get("body")
            body = body["string"] if isinstance(body, dict) and "string" in body else body
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            if answer["status"]["code"] == 200 and data:
                data = data if isinstance(data, bytes) else data.encode()
                yield Recorded(Path(name).name, exchange["request"]["uri"], data)


def read_by_us(decoder: Decoder, events: list[tuple[bytes, bytes]]) -> Reading:
    decoder.feed(events)
    reply: AssistantItem = decoder.finish()
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


# ------------------------------------------------------------------ Gemini


def split_chunks(recorded: Recorded) -> list[bytes]:
    if b"data:" not in recorded.body[:20]:
        return [recorded.body]
    return [line[5:].strip() for line in recorded.body.splitlines() if line.startswith(b"data:")]


def read_by_google(chunks: list[bytes]) -> Reading:
    response: Any = importlib.import_module("google.genai.types").GenerateContentResponse
    read = [response._from_response(response=json.loads(chunk), kwargs={}) for chunk in chunks]
    candidates = [one.candidates[0] for one in read if one.candidates]
    parts = [part for one in candidates if one.content for part in one.content.parts or ()]
    usage = [one.usage_metadata for one in read if one.usage_metadata][-1]
    calls = [part.function_call for part in parts if part.function_call]
    others = [part for part in parts if part.text is None and not part.function_call]
    return Reading(
        "".join([part.text for part in parts if part.text and not part.thought]),
        "".join([part.text for part in parts if part.text and part.thought]),
        [(call.name, call.args or {}) for call in calls],
        sum(part.thought_signature is not None for part in parts),
        len(others),
        (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    )


# ------------------------------------------------------------------ Converse


class _Frames:
    """A body as botocore reads one."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


def read_by_aws(recorded: Recorded) -> Reading:
    session: Any = importlib.import_module("botocore.session").get_session()
    parser: Any = importlib.import_module("botocore.parsers").create_parser("rest-json")
    service = session.get_service_model("bedrock-runtime")
    if not recorded.url.endswith("-stream"):
        shape = service.operation_model("Converse").output_shape
        whole = parser.parse({"status_code": 200, "headers": {}, "body": recorded.body}, shape)
        return _read_blocks(whole["output"]["message"]["content"], whole["usage"])
    shape = service.operation_model("ConverseStream").output_shape.members["stream"]
    stream: Any = importlib.import_module("botocore.eventstream").EventStream
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for event in stream(
        _Frames(recorded.body), shape, parser._event_stream_parser, "ConverseStream"
    ):
        ((name, value),) = event.items()
        if name == "metadata":
            usage = value["usage"]
        elif name == "contentBlockStart" and "toolUse" in value["start"]:
            blocks[value["contentBlockIndex"]] = {
                "toolUse": {**value["start"]["toolUse"], "input": ""}
            }
        elif name == "contentBlockDelta":
            _add_delta(blocks.setdefault(value["contentBlockIndex"], {}), value["delta"])
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    return _read_blocks(list(blocks.values()), usage)


def _add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    if "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    if "reasoningContent" in delta:
        thought = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})
        given = delta["reasoningContent"]
        thought["reasoningText"]["text"] += given.get("text", "")
        thought["reasoningText"] |= {key: given[key] for key in ("signature",) if key in given}
        thought |= {key: given[key] for key in ("redactedContent",) if key in given}


def _read_blocks(blocks: list[dict[str, Any]], usage: dict[str, Any]) -> Reading:
    thoughts = [block["reasoningContent"] for block in blocks if "reasoningContent" in block]
    plain = [thought.get("reasoningText", {}) for thought in thoughts]
    uses = [block["toolUse"] for block in blocks if "toolUse" in block]
    calls = [use for use in uses if use.get("type") != "server_tool_use"]
    known = ("text", "toolUse", "reasoningContent")
    others = [block for block in blocks if not any(key in block for key in known)]
    return Reading(
        "".join([block["text"] for block in blocks if "text" in block]),
        "".join([thought.get("text", "") for thought in plain]),
        [(use["name"], use["input"]) for use in calls],
        sum("signature" in one for one in plain)
        + sum("redactedContent" in one for one in thoughts),
        len(others) + len(uses) - len(calls),
        usage["outputTokens"],
    )


# ------------------------------------------------------------------ the comparison


def compare(recorded: Recorded) -> tuple[str, object, object]:
    """The format of a recording, our reading, and theirs."""
    if "enerateContent" in recorded.url:
        chunks = split_chunks(recorded)
        decoder: Decoder = GeminiCodec("m", ModelCard("gemini/m")).create_decoder(REQUEST)
        events = [(b"", chunk) for chunk in chunks]
        theirs = read_by_google(chunks)
        wire = "gemini"
    else:
        codec = ConverseCodec("m", ModelCard("bedrock/m"))
        decoder, wire, theirs = codec.create_decoder(REQUEST), "converse", read_by_aws(recorded)
        events = codec.split_reply(recorded.body)
        if recorded.url.endswith("-stream"):
            events = SSEReader().feed(AWSFrameReader().feed(recorded.body))
    try:
        return wire, read_by_us(decoder, events), theirs
    except (ModelError, DecodeFailed) as error:
        return wire, error, theirs


def main(clone: str) -> None:
    counts: dict[str, list[int]] = {"gemini": [0, 0], "converse": [0, 0]}
    for recorded in list_recordings(clone):
        if not any(word in recorded.url for word in ("enerateContent", "/converse")):
            continue
        wire, ours, theirs = compare(recorded)
        counts[wire][0] += ours == theirs
        counts[wire][1] += 1
        if ours != theirs:
            sys.stdout.write(
                f"{wire}: {recorded.name}\n  ours   {ours!s:.400}\n  theirs {theirs!s:.400}\n"
            )
    for wire, (agreed, all_of_them) in counts.items():
        share = agreed / max(1, all_of_them)
        sys.stdout.write(f"{wire}: {agreed} of {all_of_them} replies agree, {share:.1%}\n")


if __name__ == "__main__":
    main(sys.argv[1])
