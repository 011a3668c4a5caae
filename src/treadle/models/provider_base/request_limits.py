"""The limits of a provider, applied to one item at a time. Pure functions, used by encoding.py.

    UserItem, NoticeItem, SummaryItem   -> filter_input
    AssistantItem                       -> filter_reply
    ToolResultItem                      -> filter_result

Each returns the parts to send, with their number in the item. A part that cannot be sent becomes a
line that says what was left out; thinking of another origin is left out silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.tool import ToolSpec
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
from treadle.lib.files.media_size import image_size
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.text import format_bytes

MIB = 1 << 20
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
TEXT_TYPES = frozenset({"text/plain", "text/csv"})  # sent as text where a file is not accepted
OFFICE_TYPES = {
    "text/csv": "csv",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
}
NO_OUTPUT = "(no output)"
_NOTICE_TAG = compile_lazily(r"<(?=\s*/?\s*notice\b)", re.IGNORECASE)
# The notices whose text is the engine's alone. Others quote files, programs or people.
ENGINE_NOTICES = frozenset({"mode", "attendance", "budget", "compaction", "sandbox", "open_todos"})

Omissions = Mapping[tuple[int, int], str]  # (position, part) -> the reason


class RequestLimits(msgspec.Struct, frozen=True):
    """The limits of one provider. None means that there is none, or that it is unknown."""

    origin: str
    max_images: int | None = None
    max_image_bytes: int | None = None
    max_image_side: int | None = None
    many_images_count: int | None = None  # with more images than this ...
    many_images_side: int | None = None  # ... the longest side of each is limited to this
    max_document_bytes: int | None = None
    max_body_bytes: int | None = None
    image_types: frozenset[str] = IMAGE_TYPES
    document_types: frozenset[str] = TEXT_TYPES | {"application/pdf"}
    max_id_length: int = 64
    resends_thinking: bool = True  # thinking of its own origin is sent back
    needs_signature: bool = True  # ... but only if it is signed
    model: str = ""  # thinking is sent back only to the model that made it
    signed_labels: frozenset[str] = frozenset()  # of the Opaque blocks that are signatures


# ------------------------------------------------------------------ items


def filter_input(
    item: UserItem | NoticeItem | SummaryItem,
    position: int,
    limits: RequestLimits,
    omissions: Omissions,
) -> list[tuple[int, UserContent]]:
    if type(item) is UserItem:
        return _filter_parts(enumerate(item.content), position, limits, omissions)
    reason = omissions.get((position, 0)) if omissions else None
    text = f"[left out: {reason}]" if reason else item.text
    if not text.strip():
        return []
    if isinstance(item, NoticeItem):
        kind = re.sub(r"[^\w.-]", "_", item.kind)
        return [(0, Text(f'<notice kind="{kind}">\n{escape_notices(text)}\n</notice>'))]
    return [(0, Text(f"<summary>\n{text}\n</summary>"))]


def escape_notices(text: str) -> str:
    """The text without the tags that only the engine writes, in any spelling."""
    # Each `<` costs the expression something, and most large results have many, but not the word.
    is_likely = "<" in text and "notice" in text.lower()
    return _NOTICE_TAG.sub("&lt;", text) if is_likely else text


def filter_result(
    item: ToolResultItem, position: int, limits: RequestLimits, omissions: Omissions
) -> list[tuple[int, ResultContent]]:
    """Never empty: a result without output says so. What looks like a notice in it is none."""
    parts = _filter_parts(item.model_parts, position, limits, omissions)
    for index, (number, part) in enumerate(parts):
        if type(part) is Text and (text := escape_notices(part.text)) is not part.text:
            parts[index] = (number, Text(text))
    return parts or [(0, Text(NO_OUTPUT))]


def filter_reply(
    item: AssistantItem, position: int, limits: RequestLimits, omissions: Omissions
) -> list[tuple[int, AssistantContent]]:
    """May be empty: a reply with only the thinking of another provider is not sent."""
    parts: list[tuple[int, AssistantContent]] = []
    for number, part in enumerate(item.content):
        reason = omissions.get((position, number)) if omissions else None
        if isinstance(part, Text):
            parts += _filter_text(number, part, reason)
        elif isinstance(part, ToolCall):
            # A call stays, because its result stays; only its arguments can be left out.
            parts.append((number, ToolCall(part.id, part.name, "{}") if reason else part))
        elif not reason and _is_accepted_back(part, item, limits):
            parts.append((number, part))
    return parts


def has_thinking(
    item: AssistantItem, position: int, limits: RequestLimits, omissions: Omissions
) -> bool:
    """Whether thinking is a part of this reply as it is sent."""
    parts = filter_reply(item, position, limits, omissions)
    return any(isinstance(part, (Thinking, RedactedThinking)) for _, part in parts)


def _is_accepted_back(
    part: Thinking | RedactedThinking | Opaque, item: AssistantItem, limits: RequestLimits
) -> bool:
    """Whether the provider takes back this part of its own reply."""
    if part.origin != limits.origin:
        return False
    is_other_model = bool(item.model and limits.model and item.model != limits.model)
    if isinstance(part, Opaque):
        return not (is_other_model and part.label in limits.signed_labels)
    if is_other_model or not limits.resends_thinking:
        return False
    return isinstance(part, RedactedThinking) or bool(part.signature) or not limits.needs_signature


def _filter_parts(
    numbered: Iterable[tuple[int, UserContent]],
    position: int,
    limits: RequestLimits,
    omissions: Omissions,
) -> list[tuple[int, UserContent]]:
    parts: list[tuple[int, UserContent]] = []
    for number, part in numbered:
        reason = omissions.get((position, number)) if omissions else None
        if isinstance(part, Text):
            parts += _filter_text(number, part, reason)
        elif reason := reason or find_violation(part, limits):
            parts.append((number, Text(f"[{describe_media(part)} left out: {reason}]")))
        else:
            parts.append((number, part))
    return parts


def _filter_text(number: int, part: Text, reason: str | None) -> list[tuple[int, Text]]:
    if reason:
        return [(number, Text(f"[text left out: {reason}]"))]
    return [(number, part)] if part.text.strip() else []


def find_violation(part: Image | Document, limits: RequestLimits) -> str | None:
    """Why this image or document is against the limits by itself; None if it is not."""
    is_image = isinstance(part, Image)
    types = limits.image_types if is_image else limits.document_types
    if not part.data and not part.url:
        return "it is empty"
    if part.media_type not in types and not (part.url and not part.data):
        return f"this provider does not accept {part.media_type or 'data of an unknown type'}"
    limit = limits.max_image_bytes if is_image else limits.max_document_bytes
    if limit is not None and len(part.data) * 4 // 3 > limit:
        return f"it is larger than this provider's limit of {format_bytes(limit)}"
    if is_image and limits.max_image_side is not None:
        side = max(image_size(part.data))
        if side > limits.max_image_side:
            return f"its side of {side} pixels is over the limit of {limits.max_image_side}"
    return None


def describe_media(part: Image | Document) -> str:
    kind = "image" if isinstance(part, Image) else "document"
    title = f" {part.title!r}" if isinstance(part, Document) and part.title else ""
    size = format_bytes(len(part.data))
    return f"{kind}{title} ({part.media_type}, {size})" if part.data else kind


# ------------------------------------------------------------------ the whole request


class MediaSize(msgspec.Struct, frozen=True):
    """An image or document in the transcript, and the bytes that it adds to the body."""

    position: int
    part: int
    size: int
    side: int  # 0 for documents
    is_image: bool


def select_omissions(
    media: list[MediaSize], body_bytes: int, limits: RequestLimits
) -> dict[tuple[int, int], str]:
    """The media to leave out so that the rest is within the limits: the oldest first.

    It leaves out more than necessary, because each change of the history costs the whole prompt
    cache: so many turns pass before the next change.
    """
    out: dict[tuple[int, int], str] = {}
    images = [entry for entry in media if entry.is_image]
    if limits.max_images is not None and len(images) > limits.max_images:
        surplus = len(images) - limits.max_images * 3 // 4
        for entry in images[:surplus]:
            out[entry.position, entry.part] = f"at most {limits.max_images} images are allowed"
        images = images[surplus:]
    if limits.many_images_count is not None and len(images) > limits.many_images_count:
        side = limits.many_images_side or 0
        for entry in images:
            if entry.side > side:
                out[entry.position, entry.part] = (
                    f"with more than {limits.many_images_count} images, the limit is {side} pixels"
                )
    if limits.max_body_bytes is not None and body_bytes > limits.max_body_bytes:
        excess = body_bytes - limits.max_body_bytes * 3 // 4
        for entry in media:
            if excess <= 0:
                break
            if (entry.position, entry.part) not in out:
                excess -= entry.size
                out[entry.position, entry.part] = "the request would be too large"
    return out


# ------------------------------------------------------------------ ids and names

_LEGAL_ID = compile_lazily(r"[a-zA-Z0-9_-]+")
MAX_TOOL_NAME_CHARS = 64
_MARKED_NAME = compile_lazily(r"_[0-9a-f]{8}$")  # see `_make_legal`
_LEGAL_TOOL_NAME = compile_lazily(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def make_provider_call_id(call_id: str, used_ids: set[str], max_length: int) -> str:
    """`call_id`, or a variant that every provider accepts and no other call has."""
    clean = call_id
    if not _LEGAL_ID.fullmatch(call_id) or len(call_id) > max_length:
        clean = _make_legal(call_id, max_length)
    unique, number = clean, 0
    while unique in used_ids:
        number += 1
        suffix = f"_{number}"
        unique = clean[: max_length - len(suffix)] + suffix
    used_ids.add(unique)
    return unique


def list_sent_tools(tools: Sequence[ToolSpec], card: ModelCard) -> Sequence[ToolSpec]:
    """The tools of a request: deferred ones only if the provider can find them."""
    if "tool_search" in card.abilities or not any(tool.deferred for tool in tools):
        return tools
    return [tool for tool in tools if not tool.deferred]


def make_provider_tool_name(name: str) -> str:
    """`name`, or a variant that every provider accepts; the same for the same name.

    Models invent names, and servers of tools choose them: one that is not legal would make the
    provider refuse every later request.
    """
    if _LEGAL_TOOL_NAME.fullmatch(name):
        return name
    return _make_legal(name if _LEGAL_TOOL_NAME.match(name) else f"_{name}", MAX_TOOL_NAME_CHARS)


def _make_legal(text: str, max_length: int) -> str:
    import zlib  # only for a name that is not legal

    mark = f"{zlib.crc32(text.encode('utf-8', 'replace')):08x}"
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', text)[: max_length - 9]}_{mark}"


def restore_tool_name(name: str, tools: Iterable[ToolSpec]) -> str:
    """The name of the tool that has this name in requests."""
    if not _MARKED_NAME.search(name):
        return name
    named = (spec.name for spec in tools if make_provider_tool_name(spec.name) == name)
    return next(named, name)
