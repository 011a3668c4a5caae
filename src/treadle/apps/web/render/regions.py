"""The regions around a conversation: head, questions, what happens now, queue, meters, panels.

Each is a piece of HTML by the name of its element; a tab gets those that changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from treadle.apps.conversation.block_text import format_activity, format_call_title
from treadle.apps.conversation.open_questions import PendingQuestion
from treadle.apps.conversation.state.blocks import (
    IDLE,
    ChildProgress,
    TaskLine,
    ToolCallBlock,
)
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.pages.elements import CALL_SIGNS, TODO_ICONS, escape_html, render_icon
from treadle.apps.web.call_index import CallIndex
from treadle.apps.web.render.questions import render_question
from treadle.lib.text.text import format_cost, format_count, format_dollars, plural
from treadle.sessions.children import ChildSession, make_child_session_id

_CHEVRON = render_icon("chev", style="chev sm")
_FILE_KINDS = {"added": "new", "removed": "deleted"}


class SessionFacts(msgspec.Struct, frozen=True):
    """What a page shows of a session beside its view."""

    title: str = ""
    folder: str = ""
    session_id: str = ""
    mode: str = ""
    model: str = ""
    window: int = 0
    max_cost: float | None = None
    banner: str = ""  # why it cannot be continued, or what is unfinished
    is_trusted: bool = True
    is_unfinished: bool = False
    is_read_only: bool = False  # another program has it open
    is_agent: bool = False  # a child agent at work, which takes messages
    parent: str = ""  # of a child agent
    agents: Mapping[str, ChildSession] = {}  # those of child agents on disk, by their ids
    changed_files: Mapping[str, str] = {}  # what the turns did to them: added, removed, changed
    forecast: str = ""  # of the first message, while it is written
    retry_at: float = 0.0  # when a model call that failed is made again, as a Unix time


def render_regions(
    view: ViewState,
    facts: SessionFacts,
    questions: Sequence[tuple[int, PendingQuestion]],
    calls: CallIndex,
) -> dict[str, str]:
    """Every region of the page by the id of its element."""
    return {
        "head": _render_head(facts),
        "banner": _render_banner(facts),
        "access": _describe_access(facts),
        "questions": "".join(render_question(number, one) for number, one in questions),
        "now": _render_now(view, facts, bool(questions)),
        "queue": "".join(map(_render_queued, enumerate(view.queued_messages))),
        "meters": _render_meters(view, facts),
        "mode": escape_html(facts.mode),
        "model": escape_html(facts.model),
        "panels": _render_panels(view, facts, calls),
        "pocket": _render_pocket(view, calls),
    }


def _describe_access(facts: SessionFacts) -> str:
    """What can be done: all (""), nothing, only messages (an agent at work)."""
    if facts.parent:
        return "agent" if facts.is_agent else "ended-agent"
    return "read-only" if facts.is_read_only else ""


def _render_head(facts: SessionFacts) -> str:
    title = escape_html(facts.title or "New session")
    where = escape_html(f"{facts.folder} · {facts.session_id}")
    return f'<h1>{title}</h1><span class="where">{where}</span>'


def _render_banner(facts: SessionFacts) -> str:
    parts: list[str] = []
    if facts.banner:
        address, label = f"/inspect/{facts.session_id}", "Inspect"
        if facts.parent:
            address, label = f"/session/{facts.parent}", "Open its parent"
        look = f'<a class="btn" href="{escape_html(address)}">{label}</a>'
        link = look if facts.is_read_only else ""
        parts.append(f"<p>{escape_html(facts.banner)}{link}</p>")
    if not facts.is_trusted:
        parts.append(
            "<p>This folder is not trusted: its instructions, settings, agents, hooks and servers "
            'are not used. <button class="btn" type="button" data-ask="trust">Look and decide'
            "</button></p>"
        )
    if facts.is_unfinished:
        parts.append(
            "<p>The last turn is not finished. "
            '<span class="row"><button class="btn" type="button" data-ask="model">Switch model'
            '</button><button class="btn first" type="button" data-do="resume">Continue it</button>'
            "</span></p>"
        )
    return "".join(parts)


def _render_now(view: ViewState, facts: SessionFacts, waits: bool) -> str:
    if waits:
        sign = f'<span class="warn">{render_icon("wait", style="sm")}</span>'
        state = f'{sign}<b class="warn">Waits for your answer</b>'
    elif view.is_busy:
        sign = f'<span class="accent">{render_icon("run", style="sm")}</span>'
        state = f"{sign}<b>{escape_html(format_activity(view.activity).capitalize())}</b>"
        if view.activity.kind == "retrying" and facts.retry_at:
            state += f'<span class="num" data-until="{facts.retry_at:.0f}"></span>'
    else:
        return ""
    used = view.turn_usage
    cost = format_cost(used.cost, used.known_cost) if used.known_cost else ""
    spent = f"<span>{cost}</span>" if cost else ""
    return f'{state}{spent}<span class="end"><kbd>Esc</kbd> stops the turn</span>'


def _render_queued(queued: tuple[int, str]) -> str:
    index, text = queued
    button = (
        f'<button class="icon tiny" type="button" data-withdraw="{index}" '
        f'aria-label="Take this message back">{render_icon("x", style="sm")}</button>'
    )
    return (
        f'<li>{render_icon("later", style="sm accent")}<span class="t">{escape_html(text)}</span>'
        f'<span class="end"><span class="not-small">sent with the next step&nbsp;</span>{button}'
        "</span></li>"
    )


def _render_meters(view: ViewState, facts: SessionFacts) -> str:
    spent = view.usage.known_cost
    is_known = bool(spent) or view.usage.cost is not None
    cost = format_cost(view.usage.cost, spent) if is_known else "price unknown"
    parts = [f'<span class="meter not-small">{escape_html(facts.forecast) or cost}</span>']
    if facts.max_cost and is_known and not facts.forecast:
        share = min(1.0, spent / facts.max_cost)
        label = f"{cost} of {format_dollars(facts.max_cost)}"
        parts = [_render_meter(share, label, "not-small", f"Budget: {label}")]
    if facts.window and view.context_tokens:
        share = min(1.0, view.context_tokens / facts.window)
        window = format_count(facts.window)
        text = f'{share:.0%}<span class="long"> of {window}</span>'
        parts.append(_render_meter(share, text, "", f"Context: {share:.0%} of {window}"))
    return "".join(parts)


def _render_meter(share: float, text: str, style: str, label: str) -> str:
    return (
        f'<span class="meter {style}" title="{label}">'
        f'<svg viewBox="0 0 56 8" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<rect class="bed" width="56" height="8" rx="2"/>'
        f'<rect class="bar" width="{56 * share:.1f}" height="8" rx="2"/></svg>{text}</span>'
    )


# --- panels --------------------------------------------------------------------------------


def _render_panels(view: ViewState, facts: SessionFacts, calls: CallIndex) -> str:
    parts: list[str] = []
    if view.todos:
        done = sum(todo.status == "completed" for todo in view.todos)
        rows = [_render_todo(todo.content, todo.status) for todo in view.todos]
        count = f"{done} of {len(view.todos)}"
        parts.append(_render_panel("Todos", count, f"<ul>{''.join(rows)}</ul>"))
    if view.tasks:
        rows = [_render_task(task) for task in view.tasks]
        parts.append(_render_panel("Background", plural(len(rows), "task"), "".join(rows)))
    children = list(calls.children.values())
    if children:
        rows = [_render_child(call, facts) for call in children]
        working = sum(not call.is_finished for call in children)
        count = f"{working} of {len(children)} at work"
        parts.append(_render_panel("Agents", count, f'<ul class="tree">{"".join(rows)}</ul>'))
    rows = _render_changed_files(view, facts, calls)
    if rows:
        count = plural(len(rows), "file")
        parts.append(_render_panel("Changed files", count, f"<ul>{''.join(rows)}</ul>"))
    return "".join(parts)


def _render_changed_files(view: ViewState, facts: SessionFacts, calls: CallIndex) -> list[str]:
    """The files that the turns changed; of the turn that runs, those with a diff."""
    lines = calls.sum_changes()
    listed = dict(facts.changed_files)
    if view.is_busy or facts.is_read_only:
        listed |= {path: "changed" for path in lines if path not in listed}
    rows = []
    for path, kind in listed.items():
        detail = f'<span class="dim">{_FILE_KINDS[kind]}</span>' if kind in _FILE_KINDS else ""
        if path in lines:
            added, removed = lines[path]
            detail += f'<span class="ok num">+{added}</span>'
            detail += f'<span class="error num">−{removed}</span>'
        rows.append(f'<li class="changed"><code>{escape_html(path)}</code>{detail}</li>')
    return rows


def _render_pocket(view: ViewState, calls: CallIndex) -> str:
    """The panels in one line, for a phone."""
    done = sum(todo.status == "completed" for todo in view.todos)
    agents = len(calls.children)
    parts = (
        ("boxtick", f"{done} of {len(view.todos)}" if view.todos else ""),
        ("back", plural(len(view.tasks), "task") if view.tasks else ""),
        ("fork", plural(agents, "agent") if agents else ""),
    )
    shown = [
        f"<span>{render_icon(icon, style='sm accent')}{text}</span>" for icon, text in parts if text
    ]
    return "".join(shown) + f'<span class="end">{render_icon("up", style="sm")}</span>' * bool(
        shown
    )


def _render_panel(title: str, count: str, body: str) -> str:
    head = f'<summary>{_CHEVRON}{title}<span class="n">{count}</span></summary>'
    return f'<details class="panel" open data-panel="{title}">{head}{body}</details>'


def _render_todo(text: str, status: str) -> str:
    icon, colour, label, style = TODO_ICONS[status]
    sign = render_icon(icon, label=label, style=colour)
    return f'<li class="todo {style}">{sign}<span>{escape_html(text)}</span></li>'


def _render_task(task: TaskLine) -> str:
    icon, colour, label = CALL_SIGNS["background"]
    stop = (
        f'<button class="icon tiny" type="button" data-stop-task="{escape_html(task.task_id)}" '
        f'aria-label="Stop task {escape_html(task.task_id)}">{render_icon("stop", style="sm")}'
        "</button>"
    )
    return (
        f'<div class="task">{render_icon(icon, label=label, style=colour)}'
        f'<span class="t mono">{escape_html(task.summary)}</span>{stop}'
        f'<span class="m">{escape_html(task.task_id)}</span></div>'
    )


def _render_child(call: ToolCallBlock, facts: SessionFacts) -> str:
    session_id = make_child_session_id(facts.session_id, call.call_id)
    return _render_agent(session_id, format_call_title(call), call.state, call.child, facts)


def _render_agent(
    session_id: str, title: str, state: str, child: ChildProgress | None, facts: SessionFacts
) -> str:
    """One agent: its line, which opens to its last calls, a link to its session, and its own child
    agents below, as far as they are known of this process or from disk."""
    icon, colour, label = CALL_SIGNS[state]
    stored = facts.agents.get(session_id)
    parts = list[str]()
    if child is not None:
        parts = [plural(child.calls, "call"), f"{format_count(child.tokens)} tokens"]
        parts += [format_activity(child.activity)] if state == "running" else []
    elif stored is not None:
        parts = [f"{format_count(stored.summary.usage.total)} tokens"]
    if stored is not None and stored.summary.usage.known_cost:
        usage = stored.summary.usage
        parts.append(format_cost(usage.cost, usage.known_cost))
    calls = "\n".join(child.recent_calls) if child is not None else ""
    opened = f'<pre class="args said" tabindex="0">{escape_html(calls)}</pre>' if calls else ""
    shown = {
        make_child_session_id(session_id, call_id): one
        for call_id, one in (child.children if child is not None else {}).items()
    }
    inner = "".join(
        _render_agent(name, one.title, "done" if one.activity is IDLE else "running", one, facts)
        for name, one in shown.items()
    )
    inner += "".join(
        _render_agent(name, one.summary.title, _find_state(one), None, facts)
        for name, one in facts.agents.items()
        if one.parent == session_id and name not in shown
    )
    name = escape_html(title)
    link = (
        f'<a href="/session/{escape_html(session_id)}">Open'
        f'<span class="hidden"> the session of {name}</span></a>'
    )
    return (
        f'<li><div class="agent-row"><details data-panel="agent-{escape_html(session_id)}" '
        f'class="agent"><summary class="task">{render_icon(icon, label=label, style=colour)}'
        f'<span class="t">{name}</span>{_CHEVRON}'
        f'<span class="m">{escape_html(", ".join(parts))}</span></summary>{opened}</details>'
        + link * (stored is not None or child is not None)
        + "</div>"
        + (f"<ul>{inner}</ul>" if inner else "")
        + "</li>"
    )


def _find_state(child: ChildSession) -> str:
    """How a child agent ended that another process ran."""
    return {"done": "done", "end_turn": "done", "aborted": "stopped", "open": "interrupted"}.get(
        child.summary.state, "failed"
    )
