"""The dialogs: choices, files that would change, turns to rewind to, trust."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from treadle.apps.conversation.host import FileChange, LimitLine, TurnLine
from treadle.apps.pages.elements import escape_html
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_age

REWIND_TITLE = "Rewind to before this message"


def render_choices(
    title: str, action: str, choices: Sequence[tuple[str, str, str]], current: str
) -> str:
    """A list of (value, label, description); choosing one sends `action` with the value."""
    rows = [
        f'<li><button type="button" class="option" data-do="{action}" data-value='
        f'"{escape_html(value)}"{_mark(value == current)}><b>{escape_html(label)}</b>'
        f'<span class="soft">{escape_html(text)}</span></button></li>'
        for value, label, text in choices
    ]
    return _render_dialog(title, f'<ul class="options">{"".join(rows)}</ul>')


def render_files_dialog(
    action: str,
    title: str,
    changes: Sequence[FileChange],
    turn: str = "",
    include: Collection[str] = (),
) -> str:
    """What would happen to which file. What the user changed, too, is included only if chosen."""
    rows = [_render_file(change, is_named=change.path in include) for change in changes]
    listed = f'<ul class="files">{"".join(rows)}</ul>' if rows else "<p>No file would change.</p>"
    target = f' data-turn="{escape_html(turn)}"' if turn else ""
    buttons = ""
    if action == "rewind":
        buttons += _button("rewind", "Conversation only", f'{target} data-files="no"')
    if rows or action != "rewind":
        label = "Conversation and files" if action == "rewind" else action.capitalize()
        kind = "rewind" if action == "rewind" else "restore"
        data = f'{target} data-files="yes" data-action="{action}"'
        buttons += _button(kind, label, data, "first")
    if action == "undo" and not any(one.author == "agent" or one.is_doubtful for one in changes):
        buttons += _button("restore", "Skip this turn", ' data-action="undo" data-skip')
    return _render_dialog(title, f'{listed}<div class="row">{buttons}</div>')


def _render_file(change: FileChange, *, is_named: bool) -> str:
    path, note = escape_html(escape_invisible(change.path)), escape_html(change.note.strip())
    box = ""
    if change.author == "both" or change.is_doubtful or is_named:
        checked = " checked" if change.is_doubtful or is_named else ""
        box = f'<input type="checkbox" data-include="{path}"{checked}>'
    sign = escape_html(change.sign)
    return (
        f'<li><label>{box}<code>{sign} {path}</code> <span class="soft">{note}</span></label></li>'
    )


def render_rewind_dialog(turns: Sequence[TurnLine]) -> str:
    """The turns, newest first."""
    now = time.time()
    rows = [
        f'<li><button type="button" class="option" data-ask="rewind" data-turn='
        f'"{escape_html(turn.turn_id)}"><b>{escape_html(_first_line(turn.text))}</b>'
        f'<span class="soft">{format_age(now - turn.time)}</span></button></li>'
        for turn in reversed(turns)
    ]
    body = f'<ul class="options">{"".join(rows)}</ul>' if rows else "<p>There is no turn yet.</p>"
    return _render_dialog(REWIND_TITLE, body)


def render_trust_dialog(files: Sequence[str], programs: Sequence[str], rules: str = "") -> str:
    """What takes effect if the user trusts the folder. `rules`: a paragraph on its allow rules."""
    rows = "".join(f"<li><code>{escape_html(escape_invisible(one))}</code></li>" for one in files)
    text = (
        "<p>These files of the folder steer the agent. Trust it only if you know who wrote them."
        f'</p><ul class="files">{rows}</ul>'
    )
    if rules:
        lines = escape_html(rules.strip())
        text += f'<pre class="args said" tabindex="0">{lines}</pre>'
    if programs:
        lines = "\n".join(escape_html(escape_invisible(one)) for one in programs)
        text += f'<p>These programs would run:</p><pre class="args said" tabindex="0">{lines}</pre>'
    button = _button("trust", "Trust this folder", "", "first")
    return _render_dialog("Trust this folder?", f'{text}<div class="row">{button}</div>')


def render_budget_dialog(limits: Sequence[LimitLine]) -> str:
    """The limits of cost, tokens and time, each with a field for another value."""
    known = {limit.setting: limit for limit in limits}
    rows = [
        _render_limit(known.get(f"max_{name}"), name, label, hint)
        for name, label, hint in (
            ("cost", "Cost of the session in USD", "10"),
            ("tokens", "Tokens of the session", "500000"),
            ("time", "Time of a turn", "5m"),
        )
    ]
    return _render_dialog("Budget", "".join(rows))


def _render_limit(limit: LimitLine | None, name: str, label: str, hint: str) -> str:
    value = f"{limit.value:g}" if limit is not None and limit.value < 1e6 else ""
    value = f"{limit.value:.0f}" if limit is not None and not value else value
    note = "no limit"
    if limit is not None:
        used = "an unknown amount" if limit.used is None else f"{limit.used:,.6g}"
        note = f"set by {limit.origin}" + (f", {used} used" if name != "time" else "")
    change = _button("budget", "Set", f' data-kind="{name}"')
    off = _button("budget", "Remove", f' data-kind="{name}" data-off') if limit is not None else ""
    return (
        f'<div class="limit"><label>{label}<span class="field"><input type="text" '
        f'data-limit="{name}" value="{escape_html(value)}" placeholder="{hint}" '
        f'inputmode="decimal"></span></label><span class="soft">{escape_html(note)}</span>'
        f'<div class="row">{change}{off}</div></div>'
    )


def render_help_dialog(commands: Sequence[tuple[str, str]]) -> str:
    rows = [
        f"<li><code>{escape_html(name)}</code> <span>{escape_html(summary)}</span></li>"
        for name, summary in commands
    ]
    keys = '<p class="soft">? lists the keys, outside the prompt.</p>'
    return _render_dialog("Commands", f'<ul class="files commands">{"".join(rows)}</ul>{keys}')


def _render_dialog(title: str, body: str) -> str:
    close = '<button class="btn" type="button" data-close>Cancel <kbd>Esc</kbd></button>'
    return f'<h2 id="dialog-title">{escape_html(title)}</h2>{body}<div class="row">{close}</div>'


def _button(action: str, label: str, data: str, style: str = "") -> str:
    classes = f"btn {style}".rstrip()
    return f'<button class="{classes}" type="button" data-do="{action}"{data}>{label}</button>'


def _mark(is_current: bool) -> str:
    return ' aria-current="true"' if is_current else ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:120] or "(continued without a message)"
