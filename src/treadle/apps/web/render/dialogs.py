"""The dialogs: choices, files that would change, turns to rewind to, trust."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.session.session_limits import LimitLine
from treadle.apps.conversation.undo import FileChange
from treadle.apps.pages.elements import escape_html, mark_current
from treadle.lib.text.sanitize import escape_invisible


def render_choices(number: int, question: Question) -> str:
    """The options; choosing one answers the question with this number."""
    rows = [
        f'<li><button type="button" class="option" data-do="choose" data-question="{number}" '
        f'data-value="{escape_html(one.value)}"{mark_current(one.value == question.current)}>'
        f'<b>{escape_html(one.label)}</b><span class="soft">{escape_html(one.description)}</span>'
        "</button></li>"
        for one in question.options
    ]
    message = escape_html(question.message.strip())
    text = f'<pre class="args said" tabindex="0">{message}</pre>' if message else ""
    return _render_dialog(question.title, f'{text}<ul class="options">{"".join(rows)}</ul>')


def render_files_dialog(number: int, question: Question) -> str:
    """What would happen to which file. What the user changed, too, is included only if chosen."""
    changes = question.changes
    rows = [_render_file(one, is_named=one.path in question.included) for one in changes]
    listed = f'<ul class="files">{"".join(rows)}</ul>' if rows else "<p>No file would change.</p>"
    target = f' data-question="{number}"'
    buttons = "".join(
        _button("choose", one.label, f'{target} data-value="{one.value}"')
        for one in question.beside_files
    )
    if rows:
        buttons += _button("choose", question.restore_label, f"{target} data-files", "first")
    return _render_dialog(question.title, f'{listed}<div class="row">{buttons}</div>')


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
