"""A transcript of another agent as a value, and how its lines and parts are read.

The readers (claude_transcript.py, codex_rollout.py) make it, import_session.py writes it. A line
that means nothing here is counted by its name in `unread`; a line that was only begun, the last one
of a file that is being written, is no error.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from treadle.core.transcript.content import Image, ResultContent, Text
from treadle.core.transcript.items import AssistantItem, UserItem
from treadle.lib.text.text import fix_surrogates

Source = Literal["claude", "codex"]
NOT_JSON = "not JSON"
_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,")


class ForeignResult(msgspec.Struct, frozen=True):
    """The result of a call."""

    content: tuple[ResultContent, ...]
    is_error: bool = False


class ForeignSummary(msgspec.Struct, frozen=True):
    """A compaction: a text in the place of all that was before it."""

    text: str


class ForeignStep(msgspec.Struct, frozen=True):
    """A message, a reply or a compaction, and its time."""

    time: float
    value: UserItem | AssistantItem | ForeignSummary


class ForeignSession(msgspec.Struct):
    """A whole transcript. `results` are by the id of the call, `unread` counts lines by name."""

    source: Source
    file: Path
    id: str = ""
    folder: str = ""
    title: str = ""
    steps: list[ForeignStep] = []
    results: dict[str, ForeignResult] = {}
    unread: Counter[str] = msgspec.field(default_factory=Counter)


def read_lines(file: Path, unread: Counter[str]) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    with file.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                if line.endswith(b"\n"):  # else the line is being written
                    unread[NOT_JSON] += 1
                continue
            if isinstance(value, dict):
                yield value
            else:
                unread[NOT_JSON] += 1


def get_text(values: object, name: str) -> str:
    """A text of an object; "" if there is none."""
    value = values.get(name) if isinstance(values, dict) else None
    return fix_surrogates(value) if isinstance(value, str) else ""


def get_list(values: object, name: str) -> list[dict[str, Any]]:
    """The objects in a list of an object."""
    value = values.get(name) if isinstance(values, dict) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def parse_time(text: str) -> float:
    """A time as both write it, in seconds since 1970; 0 if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def read_parts(blocks: list[dict[str, Any]], unread: Counter[str]) -> tuple[ResultContent, ...]:
    """The texts and images of a list of blocks, in the forms of both."""
    parts: list[ResultContent] = []
    for block in blocks:
        kind = get_text(block, "type")
        image = _read_image(block) if "image" in kind else None
        if image is not None:
            parts.append(image)
        elif text := get_text(block, "text"):
            parts.append(Text(text))
        elif kind not in ("text", "input_text", "output_text"):
            unread[f"block {kind or '?'}"] += 1
    return tuple(parts)


def _read_image(block: dict[str, Any]) -> Image | None:
    source = block.get("source")
    media_type, data = get_text(source, "media_type"), get_text(source, "data")
    if head := _DATA_URL.match(get_text(block, "image_url")):
        media_type, data = head[1], block["image_url"][head.end() :]
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return Image(media_type, content) if content and media_type.startswith("image/") else None
