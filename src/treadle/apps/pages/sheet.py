"""The request of a step: its figures, and what the model was sent.

Four views of it: as sent, item by item; why it cost that; the transcript as a person saw it then;
the raw items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.pages.blocks import BlockContext, render_block
from treadle.apps.pages.cost_reasons import find_cache_break, price_items, price_reply
from treadle.apps.pages.elements import escape_html, render_buttons, render_icon
from treadle.apps.pages.plots import PARTS, find_request, list_parts, split_request
from treadle.apps.pages.timeline import RequestInfo, Timeline
from treadle.core.transcript.entry_json import to_json
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
)
from treadle.core.transcript.size_estimate import CHARS_PER_MEDIA_TOKEN, estimate_item_chars
from treadle.lib.text.text import format_cost, format_count, format_dollars, plural

MAX_SHOWN_CHARS = 20_000
MAX_ITEMS = 400
MAX_BLOCKS = 200
ItemView = Literal["sent", "cost", "transcript", "raw"]
_HEAD_PARTS = {
    "system": "before the first message",
    "tools": "their definitions",
    "memory": "AGENTS.md and other memory files",
}
_VIEW_NAMES: dict[str, str] = {
    "sent": "As sent",
    "cost": "Why it cost",
    "transcript": "Transcript",
    "raw": "Raw",
}


class SentView(msgspec.Struct, frozen=True):
    """The items that a request contained, and how many of them the one before had, too. `kind` is
    how they are shown; for "transcript" they are the whole history, and reach to the step."""

    items: Sequence[Item]
    shared: int = 0
    kind: ItemView = "sent"


def render_sheet(timeline: Timeline, step: int, view: SentView) -> str:
    """What the model was sent with the request of this step."""
    request = find_request(timeline, step)
    if request is None:
        return "<header><h2>No request yet</h2></header>"
    one = timeline.steps[step - 1]
    turn_step = f'<span class="tag accent">step {step}</span>'
    model = f'<span class="tag">{escape_html(request.model.rpartition("/")[2])}</span>'
    views = render_buttons("view", _VIEW_NAMES, view.kind, "View")
    return (
        f'<header><div class="row"><h2>Request {request.number}</h2>{turn_step}{model}'
        f"{views}</div>{_render_figures(request)}{_render_bar(request)}</header>"
        f'<div class="scrolls" tabindex="0" role="region" aria-label="{_VIEW_NAMES[view.kind]}">'
        f"{_render_view(timeline, request, view)}</div>"
        f'<footer><button class="btn first" type="button" data-fork="{escape_html(one.turn_id)}">'
        f"{render_icon('fork')}Fork before turn {one.turn}</button>"
        f'<button class="btn" type="button" data-again="{escape_html(one.turn_id)}" '
        f'data-model="{escape_html(request.model)}">Run turn {one.turn} again with …</button>'
        '<button class="btn" type="button" data-link>'
        f"{render_icon('copy')}Copy link to this step</button></footer>"
    )


def _render_view(timeline: Timeline, request: RequestInfo, view: SentView) -> str:
    if view.kind == "transcript":
        return _render_transcript(view.items)
    if view.kind == "raw":
        return _render_raw(view.items)
    if view.kind == "cost":
        return _render_break(timeline, request) + _render_costs(view, request)
    return _render_rewrites(timeline, request) + _render_items(view, request)


def _render_transcript(items: Sequence[Item]) -> str:
    """The conversation as it was shown then."""
    blocks = build_view(items[-MAX_BLOCKS:]).blocks
    shown = [render_block(block, BlockContext()) for block in blocks]
    hidden = max(0, len(items) - MAX_BLOCKS)
    note = f'<p class="cache">{plural(hidden, "earlier item")} not shown</p>' if hidden else ""
    return f'{note}<article class="turn">{"".join(shown)}</article>'


def _render_raw(items: Sequence[Item]) -> str:
    """The items as they are stored."""
    rows = []
    for position, item in enumerate(items):
        if position < len(items) - MAX_ITEMS:
            continue
        text = msgspec.json.format(to_json(item), indent=1).decode()
        name = type(item).__name__.removesuffix("Item").lower()
        rows.append(_wrap_item("user", f"{position}", name, len(text) // 4, text))
    return "".join(rows)


def _render_figures(request: RequestInfo) -> str:
    usage, first = request.usage, request.seconds_to_first
    rows = (
        ("Sent", format_count(usage.total_input)),
        ("From cache", format_count(usage.cache_read)),
        ("Written", format_count(usage.cache_write)),
        ("Reply", format_count(usage.output)),
        ("Cost", format_cost(usage.cost, usage.known_cost)),
        ("First token", "not recorded" if first is None else f"{first:.1f} s"),
        ("Took", f"{request.seconds:.1f} s"),
        ("Attempts", str(request.attempts)),
    )
    cells = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in rows)
    return f'<dl class="figures">{cells}</dl>'


def _render_bar(request: RequestInfo) -> str:
    sizes = split_request(request)
    total, x, bars = sum(sizes.values()) or 1, 0.0, ""
    for name, style, _ in reversed(PARTS):
        width = 100 * sizes[name] / total
        bars += f'<rect class="{style}" x="{x:.2f}%" width="{width:.2f}%" height="8"/>'
        x += width
    return f'<svg class="parts" aria-hidden="true">{bars}</svg>'


def _render_rewrites(timeline: Timeline, request: RequestInfo) -> str:
    """What changed the view between the request before and this one."""
    before = timeline.requests[request.number - 2].seq if request.number > 1 else 0
    rewrites = [
        step
        for step in timeline.steps
        if step.kind in ("rewrite", "rewind") and before < step.seq <= request.view_seq
    ]
    if not rewrites:
        return ""
    rows = "".join(
        f"<li>{render_icon('fold')}<span>{escape_html(step.label)}</span></li>" for step in rewrites
    )
    title = f"What changed the view since request {request.number - 1}"
    return f'<div class="changes"><h3>{title}</h3><ul>{rows}</ul></div>'


def _render_break(timeline: Timeline, request: RequestInfo) -> str:
    """What the request before had in the cache, and this one did not read from it."""
    found = find_cache_break(timeline, request)
    if found is None:
        return ""
    price = "price unknown" if found.price is None else format_dollars(found.price)
    causes = found.causes or ("The cause is not known; a provider may drop its cache at any time.",)
    rows = "".join(f"<li>{escape_html(one)}</li>" for one in causes)
    again = f"{format_count(found.tokens)} tokens were sent again that were in the cache before."
    return (
        f'<div class="broke"><h3>The cache broke here<span class="end">{price}</span></h3>'
        f"<p>{again}</p><ul>{rows}</ul></div>"
    )


def _render_costs(view: SentView, request: RequestInfo) -> str:
    """Each item with its tokens and its price."""
    estimated = msgspec.structs.asdict(request.sizes)  # as those of the items
    sizes = estimated if request.sizes.has_head else split_request(request)
    heads = [
        (name, label.capitalize(), _HEAD_PARTS[name], sizes[name])
        for name, _, label in reversed(list_parts(request))
        if name in _HEAD_PARTS
    ]
    hidden = max(0, len(view.items) - MAX_ITEMS)
    rows = [*heads, *map(_describe_item, view.items[hidden:])]
    if hidden:
        size = sum(_estimate_tokens(item) for item in view.items[:hidden])
        rows.insert(len(heads), ("user", plural(hidden, "earlier item"), "", size))
    costs = price_items(request, [size for *_, size in rows])
    lines, was_cached = list[str](), False
    for (style, who, what, _), cost in zip(rows, costs, strict=True):
        if was_cached and not cost.cached:
            lines.append(
                '<tr class="edge"><td colspan="3">from here on not read from the cache</td></tr>'
            )
        was_cached = bool(cost.cached)
        lines.append(_render_cost_row(style, who, what, cost.tokens, cost.price))
    reply = price_reply(request)
    lines.append(
        _render_cost_row("assistant", "Reply", "what the model wrote", request.usage.output, reply)
    )
    total = format_cost(request.usage.cost, request.usage.known_cost)
    tokens = f"{request.usage.total:,}"
    heads_row = "".join(
        f'<th scope="col" class="{style}">{name}</th>'
        for style, name in (("t", "Item"), ("n", "Tokens"), ("n", "Price"))
    )
    return (
        f'<table class="item-costs"><thead><tr>{heads_row}</tr></thead><tbody>{"".join(lines)}'
        f'</tbody><tfoot><tr><th scope="row" class="t">All</th><td class="n">{tokens}</td>'
        f'<td class="n">{total}</td></tr></tfoot></table>'
    )


def _render_cost_row(style: str, who: str, what: str, tokens: int, price: float | None) -> str:
    shown = "unknown" if price is None else f"${price:.4f}"
    return (
        f'<tr><td class="t"><span class="dot d-{style}"></span><b>{escape_html(who)}</b> '
        f'<span class="soft">{escape_html(what[:60])}</span></td><td class="n">{tokens:,}</td>'
        f'<td class="n">{shown}</td></tr>'
    )


def _render_items(view: SentView, request: RequestInfo) -> str:
    sizes = split_request(request)
    parts = [
        _wrap_item(name, label.capitalize(), _HEAD_PARTS[name], sizes[name], "")
        for name, _, label in reversed(list_parts(request))
        if name in _HEAD_PARTS
    ]
    hidden = max(0, len(view.items) - MAX_ITEMS)
    if hidden:
        parts.append(f'<p class="cache">{plural(hidden, "earlier item")} not shown</p>')
    for position, item in enumerate(view.items):
        if position < hidden:
            continue
        if position == view.shared and position:
            parts.append('<p class="cache">new since the request before</p>')
        parts.append(_render_item(item))
    return "".join(parts)


def _render_item(item: Item) -> str:
    style, who, what, tokens = _describe_item(item)
    edit = ""
    if isinstance(item, ToolResultItem):
        edit = (
            f'<button class="btn" type="button" data-again data-call="{escape_html(item.call_id)}">'
            "Run on with another result …</button>"
        )
    return _wrap_item(style, who, what, tokens, _get_text(item), edit)


def _get_text(item: Item) -> str:
    match item:
        case AssistantItem():
            calls = [f"{call.name} {call.raw}" for call in item.calls]
            return "\n".join([item.text, *calls]).strip()
        case ToolResultItem():
            return item.model_text
    return item.text


def _describe_item(item: Item) -> tuple[str, str, str, int]:
    """The style of its part, who it is of, its first line, and its estimated tokens."""
    match item:
        case AssistantItem():
            style, who = "assistant", "Assistant"
        case ToolResultItem():
            style, who = "results", item.name
        case SummaryItem():
            style, who = "user", "Summary"
        case NoticeItem():
            style, who = "user", f"Notice ({item.kind})" if item.kind else "Notice"
        case _:
            style, who = "user", "You"
    what = _get_text(item).strip().partition("\n")[0][:120]
    return style, who, what, _estimate_tokens(item)


def _estimate_tokens(item: Item) -> int:
    return -(-estimate_item_chars(item) // CHARS_PER_MEDIA_TOKEN)


def _wrap_item(style: str, who: str, what: str, tokens: int, text: str, action: str = "") -> str:
    body = f'<pre class="said">{escape_html(text[:MAX_SHOWN_CHARS])}</pre>' if text else ""
    return (
        f'<details class="part {style}"><summary><span class="who">{escape_html(who)}</span>'
        f'<span class="what">{escape_html(what)}</span><span class="n">{format_count(tokens)}'
        f"</span></summary>{body}{action}</details>"
    )
