"""The panes about a session: settings, permissions, context, MCP servers, memory.

The script of the page (static/settings.js) filters their rows and sends the changes as commands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.conversation.context_usage import ContextUsage
from treadle.apps.conversation.session.session_permissions import MODE_DESCRIPTIONS
from treadle.apps.pages.charts import BarRow, draw_bar_list
from treadle.apps.pages.elements import escape_html, mark_current, render_icon
from treadle.apps.settings.settings import SETTINGS_BY_NAME, Setting
from treadle.apps.web.render.pane import render_pane
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_age, format_count, plural, shorten_home

if TYPE_CHECKING:
    from treadle.apps.console.permission_history import RuleUse
    from treadle.context.memory import Memory
    from treadle.permissions.ruleset.rules import Rule, RuleSet
    from treadle.tools.mcp.server import McpServer
    from treadle.tools.mcp.status import McpState

_PANES = (
    ("settings", "Settings"),
    ("permissions", "Permissions"),
    ("context", "Context"),
    ("servers", "MCP servers"),
    ("memory", "Memory"),
)
_DEFAULT = "default"
_NO_VALUE = ("-", "no limit")  # as `Settings.format` shows that there is none
# state of a server -> (icon, colour)
_SERVER_SIGNS: Mapping[McpState, tuple[str, str]] = {
    "up": ("done", "ok"),
    "slow": ("wait", "warn"),
    "starting": ("run", "accent"),
    "failed": ("fail", "error"),
}
_SEARCH = (
    f'<label class="field pane-search">{render_icon("search")}<span class="hidden">Search here'
    '</span><input type="search" data-search placeholder="Search here"></label>'
)


def _render(name: str, body: str) -> str:
    links = "".join(
        f'<a href="#{one}"{mark_current(one == name)}>{label}</a>' for one, label in _PANES
    )
    head = f'<nav class="seg" aria-label="About this session">{links}</nav>{_SEARCH}'
    title = dict(_PANES)[name]
    empty = '<p class="empty" data-no-row hidden>Nothing here has this text.</p>'
    body = (
        f'<div class="pane-body" data-scrolls tabindex="0" role="region" aria-label="{title}">'
        f"{body}{empty}</div>"
    )
    return render_pane(title, head, body)


def _show(text: str) -> str:
    return escape_html(escape_invisible(text))


def _render_text(text: str) -> str:
    shown = escape_html(escape_invisible(text, keep="\n\t"))
    return f'<pre class="args said" tabindex="0">{shown}</pre>'


# --- settings ------------------------------------------------------------------------------


def render_settings(rows: Sequence[tuple[str, str, str]], written: Collection[str]) -> str:
    """Name, value and origin of each; `written` are in the user's file, where they can be reset."""
    changed = sum(origin != _DEFAULT for _, _, origin in rows)
    filters = (
        '<div class="filters" role="group" aria-label="Show">'
        f'<button type="button" data-rows="" aria-pressed="true">All {len(rows)}</button>'
        f'<button type="button" data-rows="changed" aria-pressed="false">Changed {changed}</button>'
        "</div>"
    )
    listed = "".join(_render_setting(*row, is_written=row[0] in written) for row in rows)
    return _render("settings", f'{filters}<ul class="settings">{listed}</ul>')


def _render_setting(name: str, value: str, origin: str, *, is_written: bool) -> str:
    setting = SETTINGS_BY_NAME[name]
    kind = "default" if origin == _DEFAULT else "changed"
    reset = ""
    if is_written:
        reset = (
            f'<button class="btn bare" type="button" data-reset="{name}">Reset'
            f'<span class="hidden"> {name}</span></button>'
        )
    return (
        f'<li data-row="{kind}"><div class="about"><label for="setting-{name}"><code>{name}</code>'
        f'</label><p class="soft">{_show(setting.help)}</p></div>{_render_control(setting, value)}'
        f'<div class="from"><span class="origin {kind}">{_show(shorten_home(origin))}</span>{reset}'
        "</div></li>"
    )


def _render_control(setting: Setting, value: str) -> str:
    choices = ("true", "false") if setting.kind == "boolean" else setting.choices
    attributes = f'id="setting-{setting.name}" data-setting="{setting.name}"'
    if choices and (value in choices or value in _NO_VALUE):
        options = "".join(
            f'<option value="{escape_html(one)}"{" selected" * (one == value)}>'
            f"{escape_html(one) or '-'}</option>"
            for one in (choices if value in choices else ("", *choices))
            if one not in setting.flag_only or one == value
        )
        return f"<select {attributes}>{options}</select>"
    shown, hint = ("", value) if value in _NO_VALUE else (value, "")
    return (
        f'<input type="text" {attributes} value="{_show(shown)}" '
        f'placeholder="{escape_html(hint)}" spellcheck="false">'
    )


# --- permissions ---------------------------------------------------------------------------


def render_permissions(
    mode: str,
    rules: RuleSet,
    uses: Mapping[str, RuleUse],
    own_files: Collection[str],
    notes: Sequence[str],
    now: float,
) -> str:
    """`own_files` are those whose rules can be removed here."""
    about = _show(MODE_DESCRIPTIONS.get(mode, ""))
    head = (
        f'<p class="pane-note">Mode <b>{_show(mode)}</b>: {about} '
        '<button class="btn" type="button" data-ask="mode">Change</button></p>'
    )
    head += "".join(f'<p class="soft">{_show(note)}</p>' for note in notes)
    add = (
        '<form class="pane-form" data-add-rule><label class="field"><span class="hidden">New rule'
        '</span><input type="text" name="rule" placeholder="Bash(npm test:*) or Read(.env)" '
        'spellcheck="false"></label><select name="list" aria-label="Verdict"><option>allow</option>'
        "<option>ask</option><option>deny</option></select>"
        '<select name="scope" aria-label="Where it counts"><option value="local">this folder, only '
        'you</option><option value="project">this project</option><option value="user">everywhere'
        '</option></select><button class="btn first" type="submit">Add</button></form>'
    )
    parts = (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow))
    rows = "".join(
        _render_rule(verdict, rule, uses.get(rule.text), rule.origin.file in own_files, now)
        for verdict, part in parts
        for rule in part
    )
    heads = ("Verdict", "Rule", "Origin", "Last use", "Uses", "")
    names = "".join(
        f'<th scope="col">{one or "<span class=hidden>Revoke</span>"}</th>' for one in heads
    )
    table = (
        f'<table class="rules"><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>'
        if rows
        else '<p class="soft">In this folder there are no rules.</p>'
    )
    note = "Deny wins over ask, ask over allow. Uses are past calls in this folder."
    return _render("permissions", f'{head}{add}{table}<p class="soft">{note}</p>')


def _render_rule(verdict: str, rule: Rule, use: RuleUse | None, is_own: bool, now: float) -> str:
    colour = {"deny": "error", "ask": "warn", "allow": "ok"}[verdict]
    text, origin = _show(rule.text), rule.origin
    last = "never"
    if use is not None:
        age = format_age(max(0.0, now - use.time))
        last = f'<a href="/session/{escape_html(use.session)}">{age}</a>'
    where = _show(f"{Path(origin.file).name}, line {origin.line}") if origin.file else ""
    revoke = (
        f'<button class="btn bare" type="button" data-revoke="{escape_html(rule.text)}">Revoke'
        f'<span class="hidden"> {text}</span></button>'
        if is_own
        else '<span class="dim">not here</span>'
    )
    return (
        f'<tr data-row="{verdict}"><td><span class="tag {colour}">{verdict}</span></td>'
        f"<td><code>{text}</code></td><td>{_show(origin.scope)} "
        f'<span class="dim">{where}</span></td><td>{last}</td>'
        f'<td class="n">{use.count if use is not None else 0}</td><td>{revoke}</td></tr>'
    )


# --- context, servers, memory --------------------------------------------------------------


def render_context(usage: ContextUsage) -> str:
    total = usage.total or 1
    rows = [
        BarRow(
            name, format_count(size), size / total, "d-user", f"{size / total:.0%} of what is used"
        )
        for name, size in usage.parts
    ]
    share = usage.total / usage.window if usage.window else 0
    rows.insert(
        0, BarRow("used", format_count(usage.total), min(1, share), "d-results", usage.summary)
    )
    note = f"{format_count(usage.free)} tokens are free. Sizes of parts are estimated."
    compact = '<button class="btn" type="button" data-ask="compact">Compact</button>'
    return _render("context", f'{draw_bar_list(rows)}<p class="pane-note">{note} {compact}</p>')


def render_servers(servers: Sequence[McpServer], tokens: Mapping[str, int]) -> str:
    """`tokens` are those of parts of the context, by their names."""
    if not servers:
        text = (
            "In this session no MCP server is configured; `treadle mcp add` in a terminal adds one."
        )
        return _render("servers", f'<p class="empty">{text}</p>')
    return _render(
        "servers",
        f'<ul class="settings">{"".join(_render_server(one, tokens) for one in servers)}</ul>',
    )


def _render_server(server: McpServer, tokens: Mapping[str, int]) -> str:
    status = server.status
    icon, colour = _SERVER_SIGNS.get(status.state, ("stopped", "dim"))
    size = tokens.get(f"MCP server {server.name}", 0)
    names = "\n".join(tool.spec.name for tool in server.tools())
    logs = "\n".join(f"{log.level} {log.logger} {log.text}" for log in server.logs)
    details = "".join(
        f"<details><summary>{title}</summary>{_render_text(text)}</details>"
        for title, text in ((plural(status.tools, "tool"), names), ("Log", logs))
        if text
    )
    problem = f'<p class="error">{_show(status.problem)}</p>' if status.problem else ""
    cost = f"{format_count(size)} tokens of each request" if size else "no tokens yet"
    return (
        f'<li data-row="{status.state}"><div class="about"><b>{_show(server.name)}</b>{problem}'
        f"{details}</div><span>{render_icon(icon, style=colour)} {status.state}</span>"
        f'<div class="from"><span class="soft">{cost}</span></div></li>'
    )


def render_memory(memory: Memory) -> str:
    add = (
        '<form class="pane-form" data-remember><label class="field"><span class="hidden">New line'
        '</span><input type="text" name="text" placeholder="Run the tests with pytest -q"></label>'
        '<button class="btn first" type="submit">Remember</button></form>'
    )
    problems = "".join(f'<p class="warn">{_show(one)}</p>' for one in memory.problems)
    files = [(one, "") for one in memory.files]
    files += [(one.file, "for some files only") for one in memory.path_rules]
    rows = "".join(
        '<section class="plot" data-row="file"><header><h3><code>'
        f"{_show(shorten_home(file.path))}</code></h3>"
        f'<p class="soft">{plural(len(file.text.splitlines()), "line")} {about}</p></header>'
        f"{_render_text(file.text)}</section>"
        for file, about in files
    )
    none = '<p class="soft">There is no memory file yet, or the folder is not trusted.</p>'
    return _render("memory", add + problems + (rows or none))
