"""What of an item may be sent: a provider's rules, as pure functions over one item at a time.

    UserItem, NoticeItem, SummaryItem   -> sendable_input
    AssistantItem                       -> sendable_reply
    ToolResultItem                      -> sendable_answer

Each gives the parts that go out, with their number in the item. What cannot be sent is replaced
by a line that says what was left out; thinking of another origin is left out silently. Which
items follow each other, and how they become bytes, is encoding.py's business.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping

import msgspec

from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    Opaque,
    RedactedThinking,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.items import (
    AssistantItem,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.weighing import picture_size

MIB = 1 << 20
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
NO_OUTPUT = "(no output)"

Omitted = Mapping[tuple[int, int], str]  # (position, part) -> why it is not sent


class Rules(msgspec.Struct, frozen=True):
    """The limits of one provider. None means that there is none, or that it is not known."""

    origin: str
    max_images: int | None = None
    max_image_bytes: int | None = None
    max_image_side: int | None = None
    many_images: int | None = None  # with more pictures than this ...
    many_images_side: int | None = None  # ... each may only be this large
    max_document_bytes: int | None = None
    max_body_bytes: int | None = None
    image_types: frozenset[str] = IMAGE_TYPES
    document_types: frozenset[str] = frozenset({"application/pdf", "text/plain"})
    max_id_length: int = 64
    keeps_thinking: bool = True  # thinking of its own origin is sent back
    needs_signature: bool = True  # ... but only if it is signed


# ------------------------------------------------------------------ items


def sendable_input(
    item: UserItem | NoticeItem | SummaryItem, position: int, rules: Rules, omitted: Omitted
) -> list[tuple[int, UserContent]]:
    if type(item) is UserItem:
        return _sendable_parts(item.content, position, rules, omitted)
    reason = omitted.get((position, 0)) if omitted else None
    text = f"[left out: {reason}]" if reason else item.text
    if not text.strip():
        return []
    if isinstance(item, NoticeItem):
        return [(0, Text(f'<notice kind="{_attribute(item.kind)}">\n{text}\n</notice>'))]
    return [(0, Text(f"<summary>\n{text}\n</summary>"))]


def sendable_answer(
    item: ToolResultItem, position: int, rules: Rules, omitted: Omitted
) -> list[tuple[int, ResultContent]]:
    """Never empty: that a command printed nothing is an answer too."""
    return _sendable_parts(item.content, position, rules, omitted) or [(0, Text(NO_OUTPUT))]


def sendable_reply(
    item: AssistantItem, position: int, rules: Rules, omitted: Omitted
) -> list[tuple[int, AssistantContent]]:
    """May be empty: a reply that was nothing but somebody else's thinking is not sent."""
    parts: list[tuple[int, AssistantContent]] = []
    for number, part in enumerate(item.content):
        reason = omitted.get((position, number)) if omitted else None
        if isinstance(part, Text):
            if reason:
                parts.append((number, Text(f"[text left out: {reason}]")))
            elif part.text.strip():
                parts.append((number, part))
        elif isinstance(part, ToolCall):
            # A call must stand, because its answer does; only its arguments can go.
            parts.append((number, ToolCall(part.id, part.name, "{}") if reason else part))
        elif not reason and _is_own(part, rules):
            parts.append((number, part))
    return parts


def _is_own(part: Thinking | RedactedThinking | Opaque, rules: Rules) -> bool:
    if part.origin != rules.origin:
        return False
    if isinstance(part, Opaque):
        return True
    if not rules.keeps_thinking:
        return False
    return isinstance(part, RedactedThinking) or bool(part.signature) or not rules.needs_signature


def _sendable_parts(
    content: Iterable[UserContent], position: int, rules: Rules, omitted: Omitted
) -> list[tuple[int, UserContent]]:
    parts: list[tuple[int, UserContent]] = []
    for number, part in enumerate(content):
        reason = omitted.get((position, number)) if omitted else None
        if isinstance(part, Text):
            if reason:
                parts.append((number, Text(f"[text left out: {reason}]")))
            elif part.text.strip():
                parts.append((number, part))
            continue
        reason = reason or what_forbids(part, rules)
        parts.append((number, Text(f"[{describe(part)} left out: {reason}]") if reason else part))
    return parts


def what_forbids(part: Image | Document, rules: Rules) -> str | None:
    """Why this picture or document alone is against the rules; None if it is not."""
    is_image = isinstance(part, Image)
    types = rules.image_types if is_image else rules.document_types
    if not part.data and not part.url:
        return "it is empty"
    if part.media_type not in types and not (part.url and not part.data):
        return f"this provider does not read {part.media_type or 'data of an unknown type'}"
    limit = rules.max_image_bytes if is_image else rules.max_document_bytes
    if limit is not None and len(part.data) * 4 // 3 > limit:
        return f"it is larger than this provider's limit of {limit / MIB:g} MB"
    if is_image and rules.max_image_side is not None:
        side = max(picture_size(part.data))
        if side > rules.max_image_side:
            return f"its side of {side} pixels is over this provider's {rules.max_image_side}"
    return None


def describe(part: Image | Document) -> str:
    kind = "image" if isinstance(part, Image) else "document"
    title = f" {part.title!r}" if isinstance(part, Document) and part.title else ""
    return f"{kind}{title} ({part.media_type}, {_size(len(part.data))})" if part.data else kind


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MB" if count >= MIB else f"{count / 1024:.0f} kB"


def _attribute(kind: str) -> str:
    return re.sub(r"[^\w.-]", "_", kind)


# ------------------------------------------------------------------ the whole request


class Weight(msgspec.Struct, frozen=True):
    """A picture or document in the view, and the bytes that it adds to the body."""

    position: int
    part: int
    size: int
    side: int  # 0 for documents
    is_image: bool


def over_limits(weights: list[Weight], body_bytes: int, rules: Rules) -> dict[tuple[int, int], str]:
    """What has to be left out so that the rest is within the limits: the oldest first.

    More is left out than is strictly needed, because each change of the past costs the whole
    prompt cache: after one cut, many turns pass before the next.
    """
    out: dict[tuple[int, int], str] = {}
    images = [weight for weight in weights if weight.is_image]
    if rules.max_images is not None and len(images) > rules.max_images:
        surplus = len(images) - rules.max_images * 3 // 4
        for weight in images[:surplus]:
            out[weight.position, weight.part] = f"no more than {rules.max_images} are allowed"
        images = images[surplus:]
    if rules.many_images is not None and len(images) > rules.many_images:
        side = rules.many_images_side or 0
        for weight in images:
            if weight.side > side:
                out[weight.position, weight.part] = (
                    f"among more than {rules.many_images}, none may have over {side} pixels"
                )
    if rules.max_body_bytes is not None and body_bytes > rules.max_body_bytes:
        excess = body_bytes - rules.max_body_bytes * 3 // 4
        for weight in weights:
            if excess <= 0:
                break
            if (weight.position, weight.part) not in out:
                excess -= weight.size
                out[weight.position, weight.part] = "the request would have been too large"
    return out


# ------------------------------------------------------------------ ids

_ID = re.compile(r"[a-zA-Z0-9_-]+")


def wire_id(call_id: str, taken: set[str], max_length: int) -> str:
    """An id that every provider takes and no other call has: the given one, if it is."""
    clean = call_id
    if not _ID.fullmatch(call_id) or len(call_id) > max_length:
        mark = f"{zlib.crc32(call_id.encode('utf-8', 'replace')):08x}"
        clean = f"{re.sub('[^a-zA-Z0-9_-]', '_', call_id)[: max_length - 9]}_{mark}"
    fresh, number = clean, 0
    while fresh in taken:
        number += 1
        suffix = f"_{number}"
        fresh = clean[: max_length - len(suffix)] + suffix
    taken.add(fresh)
    return fresh
