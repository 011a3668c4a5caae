"""A session as one HTML file: the conversation as the page shows it, and the plots of its requests.

The whole log is exported, with what a compaction or a rewind removed from the view; these points
are marked. Secrets of this process are left out.
"""

from __future__ import annotations

from pathlib import Path

from treadle.apps.conversation.state.blocks import NoteBlock, ToolCallBlock
from treadle.apps.conversation.state.from_transcript import apply_item, finish_view
from treadle.apps.conversation.state.view_state import ViewState, add_block, add_call
from treadle.apps.pages.blocks import BlockContext, render_block
from treadle.apps.pages.elements import escape_html, make_data_url
from treadle.apps.pages.gantt import KEY, render_gantt
from treadle.apps.pages.plots import render_request_plots
from treadle.apps.pages.static_page import render_static_page
from treadle.apps.pages.timeline import Timeline, read_call_seconds, read_timeline
from treadle.core.transcript.entries import Entry, ItemAdded
from treadle.core.transcript.items import ToolResultItem
from treadle.sessions.export import describe_entry, describe_session, get_title, read_redacted
from treadle.sessions.summaries import SessionSummary

MAX_TURNS = 50  # whose calls are drawn


def render_session_html(summary: SessionSummary, session_dir: Path) -> str:
    """The whole page."""
    view = ViewState()
    for _, entry in read_redacted(session_dir):
        view = _apply_entry(view, entry)
    view = finish_view(view)
    seconds = read_call_seconds(session_dir)
    context = BlockContext(make_data_url, seconds.get)
    blocks = "".join(render_block(block, context) for block in view.blocks)
    title = get_title(summary)
    body = (
        f'<header class="sub"><h1>{escape_html(title)}</h1><span class="where">'
        f"{escape_html(describe_session(summary))}</span></header>"
        f'<main class="talk"><article class="turn">{blocks}</article></main>'
        f"{_render_look(read_timeline(session_dir, read_redacted(session_dir)))}"
    )
    return render_static_page(title, body)


def _apply_entry(view: ViewState, entry: Entry) -> ViewState:
    if isinstance(entry, ItemAdded):
        if isinstance(entry.item, ToolResultItem):  # a damaged log may have lost its call
            view = add_call(view, ToolCallBlock(entry.item.call_id, entry.item.name))
        return apply_item(view, entry.item)
    text = describe_entry(entry)
    return add_block(view, NoteBlock(text)) if text else view


def _render_look(timeline: Timeline) -> str:
    if not timeline.requests:
        return ""
    turns = sorted({request.turn for request in timeline.requests})
    charts = "".join(_render_turn(timeline, turn) for turn in turns[:MAX_TURNS])
    rest = len(turns) - MAX_TURNS
    more = f"<p>The calls of {rest} more turns are not drawn.</p>" if rest > 0 else ""
    return (
        f'<section class="plots" aria-label="Requests and calls">'
        f"{render_request_plots(timeline, None)}{charts}{more}</section>"
    )


def _render_turn(timeline: Timeline, turn: int) -> str:
    requests = [one for one in timeline.requests if one.turn == turn]
    calls = [one for one in timeline.calls if one.turn == turn]
    return (
        f'<section class="plot" aria-label="Turn {turn}"><header><h2>Turn {turn}</h2>{KEY}</header>'
        f"{render_gantt(requests, calls, 0)}</section>"
    )
