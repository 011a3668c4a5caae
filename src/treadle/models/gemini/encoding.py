"""Encodes a request of Gemini's own interface: contents, system instruction, tools, options.

Sans-IO. `GeminiEncoder` encodes the items of a transcript, each once (provider_base/encoding.py);
`encode_head` adds the small part that changes from request to request. A signature is sent back
with the part that it came with; a call that another model made gets the value that stands for it.
"""

from __future__ import annotations

import base64
from collections.abc import Hashable
from typing import Any

import msgspec

from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import (
    Document,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.models.profiles import DISABLED, resolve_sampling, resolve_thinking, to_effort
from treadle.models.provider_base.codec import CALL_EXTRA_LABEL
from treadle.models.provider_base.encoding import (
    EncodedBlock,
    InputParts,
    MessageEncoder,
    MessageRole,
    ReplyParts,
    ResultParts,
    encode_call_arguments,
    encode_json,
    encode_json_string,
)
from treadle.models.provider_base.request_limits import (
    MIB,
    TEXT_TYPES,
    RequestLimits,
    make_provider_tool_name,
)
from treadle.models.provider_base.tool_schema import adapt_tool_schema

ORIGIN = "gemini"
SIGNATURE_LABEL = "signature"  # of an Opaque with the signature of the text before it
PART_LABEL = "part"  # of an Opaque that is a part of the reply as it came
# For a call without its signature, because another model made it.
UNSIGNED_CALL = base64.b64encode(b"skip_thought_signature_validator").decode()
_THINKING_BUDGETS = {"none": 0, "minimal": 512, "low": 1_024, "medium": 8_192, "high": 24_576}
_THINKING_LEVELS = ("minimal", "low", "medium", "high")
# Keywords for which Gemini refuses a schema, or which say nothing to it.
_DROPPED_KEYWORDS = frozenset(
    ("$schema", "$comment", "examples", "discriminator", "exclusiveMinimum", "exclusiveMaximum")
)

LIMITS = RequestLimits(
    origin=ORIGIN,
    max_images=3_000,
    max_document_bytes=50 * MIB,
    max_body_bytes=95 * MIB,  # the limit is 100 MB with the system instruction and the tools
    image_types=frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}),
    signed_labels=frozenset({CALL_EXTRA_LABEL, SIGNATURE_LABEL, PART_LABEL}),
)


class GeminiEncoder(MessageEncoder):
    """Encodes items as parts; consecutive parts of one role are one content."""

    merges_roles = True

    def __init__(self, model: str = "") -> None:
        self.limits = msgspec.structs.replace(LIMITS, model=model)
        self.cache_key: Hashable = ("gemini", "contents", model)

    def open_message(self, role: MessageRole) -> bytes:
        return b'{"role":"%b","parts":[' % (b"user" if role == "user" else b"model")

    def close_message(self) -> bytes:
        return b"]}"

    def encode_input(self, parts: InputParts, by_engine: bool = False) -> list[EncodedBlock]:
        return [(number, _encode_input_part(part)) for number, part in parts]

    def encode_result(
        self, call: ToolCall, parts: ResultParts, is_error: bool
    ) -> list[EncodedBlock]:
        texts = [part.text for _, part in parts if isinstance(part, Text)]
        if moved := len(parts) - len(texts):
            texts.append(f"[{moved} attachment(s) of this result follow]")
        field = b"error" if is_error else b"output"
        values = (
            encode_json_string(call.id),
            encode_json_string(call.name),
            field,
            encode_json_string("\n".join(texts)),
        )
        block = b'{"functionResponse":{"id":%b,"name":%b,"response":{"%b":%b}}}' % values
        return [(parts[0][0], block)]

    def encode_after_results(self, parts: ResultParts) -> list[EncodedBlock]:
        """Not every model takes media inside a result."""
        return self.encode_input([entry for entry in parts if not isinstance(entry[1], Text)])

    def encode_reply(self, parts: ReplyParts) -> list[EncodedBlock]:
        blocks: list[EncodedBlock] = []
        signature, is_first_call = "", True
        for number, part in parts:
            match part:
                case Opaque() if part.label == CALL_EXTRA_LABEL:
                    signature = _read_signature(part.json)
                case Opaque() if part.label == SIGNATURE_LABEL:
                    if blocks and blocks[-1][0] == number - 1:
                        owner, block = blocks[-1]
                        blocks[-1] = (owner, block[:-1] + b"," + part.json.encode()[1:])
                case Opaque() if part.label == PART_LABEL:
                    blocks.append((number, part.json.encode("utf-8", "replace")))
                case ToolCall():
                    if is_first_call and not signature:
                        signature = UNSIGNED_CALL
                    blocks.append((number, _encode_call(part, signature)))
                    signature, is_first_call = "", False
                case Text(text=text):
                    blocks.append((number, b'{"text":%b}' % encode_json_string(text)))
                case Thinking(text=text, signature=signed):
                    values = (encode_json_string(text), encode_json_string(signed))
                    block = b'{"text":%b,"thought":true,"thoughtSignature":%b}' % values
                    blocks.append((number, block))
                case _:
                    pass  # sources of an answer, and what another format kept
        return blocks


def _read_signature(json: str) -> str:
    """The signature in a call's extra content, as the compatible endpoint sends it, too."""
    try:
        extra = msgspec.json.decode(json, type=dict[str, dict[str, Any]])
    except msgspec.DecodeError:
        return ""
    return str(extra.get("google", {}).get("thought_signature") or "")


def _encode_call(call: ToolCall, signature: str) -> bytes:
    names = (encode_json_string(call.id), encode_json_string(call.name))
    values = (*names, encode_call_arguments(call))
    signed = b',"thoughtSignature":%b' % encode_json_string(signature) if signature else b""
    return b'{"functionCall":{"id":%b,"name":%b,"args":%b}%b}' % (*values, signed)


def _encode_input_part(part: UserContent) -> bytes:
    if isinstance(part, Text):
        return b'{"text":%b}' % encode_json_string(part.text)
    kind = encode_json_string(part.media_type)
    if not part.data:
        typed = b',"mimeType":%b' % kind if part.media_type else b""
        return b'{"fileData":{"fileUri":%b%b}}' % (encode_json_string(part.url), typed)
    if isinstance(part, Document) and part.media_type in TEXT_TYPES:
        title = f"{part.title}:\n" if part.title else ""
        text = title + part.data.decode("utf-8", "replace")
        return b'{"text":%b}' % encode_json_string(text)
    data = base64.b64encode(part.data)
    return b'{"inlineData":{"mimeType":%b,"data":"%b"}}' % (kind, data)


# ------------------------------------------------------------------ the head


def encode_head(card: ModelCard, request: ModelRequest) -> bytes:
    """The bytes up to `"contents":[`."""
    options = request.options
    fields: dict[str, Any] = {}
    if request.system:
        fields["systemInstruction"] = {"parts": [{"text": request.system}]}
    tools = [spec for spec in request.tools if not spec.deferred]
    # Up to 2.5 a request has either functions or a tool of the provider.
    searches = options.web_search and "search" in card.abilities
    searches = searches and not (tools and _is_old(card))
    own: list[Any] = [{"googleSearch": {}}] if searches else []
    if tools:
        declared = b",".join([encode_tool(spec) for spec in tools])
        own.append(msgspec.Raw(b'{"functionDeclarations":[%b]}' % declared))
        if config := _build_tool_config(options, searches):
            fields["toolConfig"] = config
    if own:
        fields["tools"] = own
    if config := _build_generation_config(card, options, bool(tools)):
        fields["generationConfig"] = config
    if options.service_tier:
        fields["serviceTier"] = options.service_tier
    for name, value in options.extra.items():
        known = fields.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            value = {**known, **value}
        fields[name] = value
    head = encode_json(fields)
    return head[:-1] + (b"," if fields else b"") + b'"contents":['


def _is_old(card: ModelCard) -> bool:
    """Whether a model is of a generation that thinks with a budget: up to 2.5."""
    return "budget" in card.abilities


def encode_tool(spec: ToolSpec) -> bytes:
    """A tool's declaration, encoded once and cached in the spec."""
    encoded: bytes | None = spec.__dict__.get("gemini tool")
    if encoded is None:
        schema = adapt_schema(adapt_tool_schema(spec.schema))
        declaration = {
            "name": make_provider_tool_name(spec.name),
            "description": spec.description,
            "parametersJsonSchema": schema,
        }
        encoded = spec.__dict__["gemini tool"] = encode_json(declaration)
    return encoded


def adapt_schema(schema: Any) -> Any:
    """The schema without the keywords that Gemini refuses; a constant is an enumeration of one."""
    if isinstance(schema, list):
        return [adapt_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "const":
            out["enum"] = [value]
        elif key in ("properties", "$defs", "definitions") and isinstance(value, dict):
            out[key] = {name: adapt_schema(part) for name, part in value.items()}
        elif key in ("enum", "required", "default"):
            out[key] = value
        elif key not in _DROPPED_KEYWORDS:
            out[key] = adapt_schema(value)
    return out


def _build_tool_config(options: ModelOptions, searches: bool) -> dict[str, Any]:
    config: dict[str, Any] = {}
    choice = options.tool_choice
    if choice in ("none", "any"):
        config["functionCallingConfig"] = {"mode": choice.upper()}
    elif choice != "auto":
        names = [make_provider_tool_name(choice)]
        config["functionCallingConfig"] = {"mode": "ANY", "allowedFunctionNames": names}
    if searches:
        config["includeServerSideToolInvocations"] = True
    return config


def _build_generation_config(
    card: ModelCard, options: ModelOptions, has_tools: bool
) -> dict[str, Any]:
    heat, top_p = resolve_sampling(options, card)
    given: dict[str, Any] = {
        "temperature": heat,
        "topP": top_p,
        "maxOutputTokens": options.max_tokens,
        "seed": options.seed,
        "stopSequences": list(options.stop) or None,
        "thinkingConfig": _build_thinking_config(card, options),
    }
    is_free = options.thinking is not None and heat is None and top_p is None
    if card.sampling is not None and is_free and "sampling" in card.abilities:
        given |= zip(("temperature", "topP", "topK"), card.sampling, strict=True)
    if options.output_schema is not None and not (has_tools and _is_old(card)):
        given["responseMimeType"] = "application/json"
        given["responseJsonSchema"] = adapt_schema(options.output_schema)
    return {name: value for name, value in given.items() if value is not None}


def _build_thinking_config(card: ModelCard, options: ModelOptions) -> dict[str, Any] | None:
    if options.thinking is None or "thinking" not in card.abilities:
        return None
    thinking = resolve_thinking(options, card)
    if thinking is None:
        return {"includeThoughts": True}  # the model decides how much
    if _is_old(card):
        if thinking == DISABLED:
            thinking = 0
        budget = thinking if isinstance(thinking, int) else _THINKING_BUDGETS.get(thinking, 24_576)
        return {"includeThoughts": bool(budget), "thinkingBudget": budget}
    return {"includeThoughts": True, "thinkingLevel": _to_level(thinking)}


def _to_level(thinking: int | str) -> str:
    if isinstance(thinking, int):
        return to_effort(thinking)
    if thinking in ("none", DISABLED):
        return "minimal"
    return thinking if thinking in _THINKING_LEVELS else "high"
