"""The evidence of a session as one HTML file: for people who read it, without Treadle.

What it says is collected by sessions/audit.py. Used by `treadle sessions evidence`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from treadle.apps.pages.elements import escape_html, render_section, render_sums, render_table
from treadle.apps.pages.static_page import render_static_page
from treadle.lib.text.text import format_cost, plural
from treadle.sessions.audit import AuditedCall, Evidence

MAX_CHARS = 2_000  # of the arguments of a call; the JSON has them all


def render_evidence(evidence: Evidence) -> str:
    parts = "".join(_render_session(one, at) for at, one in enumerate(_list_sessions(evidence)))
    head = (
        f'<header class="sub"><h1>Evidence: session {escape_html(evidence.session)}</h1></header>'
    )
    body = f'{head}<main class="cost-main">{parts}</main>'
    return render_static_page(f"Evidence: {evidence.session}", body)


def _list_sessions(evidence: Evidence) -> Iterator[Evidence]:
    yield evidence
    for child in evidence.children:
        yield from _list_sessions(child)


def _render_session(evidence: Evidence, number: int) -> str:
    note = evidence.problem or (f"head {evidence.head}" if evidence.head else "")
    sums = render_sums(
        [
            ("Log", evidence.chain, note),
            ("Cost", format_cost(evidence.cost), "with child agents"),
            ("Calls", str(len(evidence.calls)), "with an effect or a decision"),
        ]
    )
    messages = "".join(f"<li>{escape_html(text)}</li>" for text in evidence.messages)
    heads = ("Entry", "Time (UTC)", "Turn", "Call", "Effect", "Allowed by", "Outcome")
    rows = [
        (
            str(call.entry),
            time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(call.time)),
            str(call.turn),
            f"<b>{escape_html(call.tool)}</b> {escape_html(call.arguments[:MAX_CHARS])}",
            escape_html(call.effect or "none"),
            escape_html(describe_decision(call)),
            escape_html(call.outcome or "none"),
        )
        for call in evidence.calls
    ]
    costs = [
        (
            escape_html(one.model),
            escape_html(one.purpose.replace("_", " ")),
            str(one.calls),
            format_cost(one.usage.cost, one.usage.known_cost),
        )
        for one in evidence.costs
    ]
    calls_table = render_table("Calls", heads, rows, texts=range(1, 7))
    cost_heads = ("Model", "For", "Calls", "Cost")
    cost_table = render_table("Costs", cost_heads, costs, texts=(0, 1))
    entries = plural(evidence.entries, "entry", "entries")
    caption = f"{escape_html(evidence.folder)}, {entries}, {evidence.unsigned} of them unsigned"
    return (
        render_section(f"s{number}", f"Session {escape_html(evidence.session)}", sums, caption)
        + render_section(f"m{number}", "What was asked for", f"<ol>{messages}</ol>")
        + render_section(f"c{number}", "What was done", calls_table)
        + render_section(f"u{number}", "What it cost", cost_table)
    )


def describe_decision(call: AuditedCall) -> str:
    """Who allowed or denied the call."""
    if call.decision:
        who = call.decided_by or "not recorded"
        return f"{who}: {call.decision}" + (f" ({call.reason})" if call.reason else "")
    return f"policy: {call.rule}" if call.rule else "policy"
