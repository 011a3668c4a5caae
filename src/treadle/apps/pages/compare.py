"""Two sessions side by side: up to where they are the same, what differs, what each needed then."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.pages.blocks import BlockContext, render_block
from treadle.apps.pages.elements import escape_html, render_icon, render_table
from treadle.apps.pages.frame import render_page
from treadle.apps.pages.timeline import Timeline
from treadle.core.transcript.items import AssistantItem, Item
from treadle.lib.sequences import common_prefix_length
from treadle.lib.text.text import format_count, format_dollars, format_seconds, plural, shorten_home
from treadle.sessions.replay import is_same
from treadle.sessions.summaries import SessionSummary

MAX_ITEMS = 100  # of each side, after the first difference


class ComparedSession(msgspec.Struct, frozen=True):
    summary: SessionSummary
    timeline: Timeline
    items: Sequence[Item]


def render_compare_page(
    one: ComparedSession, other: ComparedSession | None, others: Sequence[SessionSummary]
) -> str:
    """The page; `others` are the sessions to choose from."""
    title = escape_html(one.summary.title or one.summary.id)
    chosen = other.summary.id if other is not None else ""
    body = (
        f'<section class="sub" aria-label="Sessions"><h1>{title}</h1>{_render_form(others, chosen)}'
        f'<div class="acts"><a class="btn" href="/inspect/{one.summary.id}">'
        f"{render_icon('look')}Inspect</a></div></section>"
        f'<main class="cost-main">{_render_pair(one, other)}</main>'
    )
    return render_page("Compare", "inspect", one.summary.id, body, "page", script="plain")


def _render_form(others: Sequence[SessionSummary], chosen: str) -> str:
    options = [
        f'<option value="{escape_html(one.id)}"{" selected" if one.id == chosen else ""}>'
        f"{escape_html((one.title or one.id)[:60])} · {escape_html(shorten_home(one.folder))}"
        f" · {escape_html(one.id)}</option>"
        for one in others
    ]
    return (
        '<form method="get" class="with"><label>compared with <select name="with">'
        f'<option value="">choose a session</option>{"".join(options)}</select></label>'
        '<button class="btn" type="submit">Compare</button></form>'
    )


def _render_pair(one: ComparedSession, other: ComparedSession | None) -> str:
    if other is None:
        return "<p>Choose the session to compare with. A fork is compared with its origin.</p>"
    shared = common_prefix_length(one.items, other.items, is_same)
    if shared == len(one.items) == len(other.items):
        text = f"Both have the same {plural(shared, 'item')}: messages, calls and results."
        return f"<p>{text}</p>{_render_sums(one, other, shared, 'table-wrap')}"
    same = "They differ from the beginning."
    if shared:
        same = f"The same up to item {shared}. What differs:"
    return (
        f'<div class="pair"><p class="same">{same}</p>{_render_side(one, shared)}'
        f"{_render_side(other, shared)}{_render_sums(one, other, shared, 'ends')}</div>"
    )


def _render_side(one: ComparedSession, shared: int) -> str:
    items = one.items[shared : shared + MAX_ITEMS]
    blocks = [render_block(block, BlockContext()) for block in build_view(items).blocks]
    rest = len(one.items) - shared - len(items)
    more = f"<p>{plural(rest, 'more item')}</p>" if rest > 0 else ""
    title = escape_html(one.summary.title or one.summary.id)
    link = f'<a href="/inspect/{one.summary.id}">{title}</a>'
    end = "" if items else "<p>It ends here.</p>"
    tag = f'<span class="tag">{escape_html(one.summary.id)}</span>'
    return (
        f'<div><h2>{link}{tag}</h2>{end}<article class="turn">{"".join(blocks)}</article>'
        f"{more}</div>"
    )


def _render_sums(one: ComparedSession, other: ComparedSession, shared: int, style: str) -> str:
    heads = ("Since then", "Requests", "Calls", "Tokens in", "Out", "Cost", "Time of requests")
    rows = [_list_sums(session, shared) for session in (one, other)]
    return render_table("Sums", heads, rows, style=style)


def _list_sums(one: ComparedSession, shared: int) -> tuple[str, ...]:
    before = sum(isinstance(item, AssistantItem) for item in one.items[:shared])
    requests = one.timeline.requests[before:]
    calls = sum(call.request > before for call in one.timeline.calls)
    costs = [request.usage.cost for request in requests]
    known = [cost for cost in costs if cost is not None]
    return (
        escape_html(one.summary.title or one.summary.id),
        str(len(requests)),
        str(calls),
        format_count(sum(request.usage.total_input for request in requests)),
        format_count(sum(request.usage.output for request in requests)),
        "unknown" if len(known) < len(costs) else format_dollars(sum(known)),
        format_seconds(sum(request.seconds for request in requests)),
    )
