"""The dialog of Inspect that runs a turn again: the form, and the table of what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.apps.console.variants import HEADS, Variant, list_rows
from treadle.apps.pages.elements import escape_html
from treadle.apps.settings.settings import SETTINGS_BY_NAME
from treadle.core.transcript.items import ToolResultItem
from treadle.sessions.history import TurnInfo

DEFAULT_MODE = "accept-edits"  # the files are those of a worktree
_CLOSE = '<button class="btn" type="button" data-close>Close <kbd>Esc</kbd></button>'


def render_form(turn: TurnInfo, text: str, model: str, result: ToolResultItem | None = None) -> str:
    """For a turn, or from the result of a call on."""
    call_id, label = ("", "Message") if result is None else (result.call_id, "Result of the call")
    title = f"Run turn {turn.number} again"
    if result is not None:
        title = f"Continue turn {turn.number} from another result of {result.name}"
    setting = SETTINGS_BY_NAME["permission_mode"]
    modes = "".join(
        f"<option{' selected' if mode == DEFAULT_MODE else ''}>{mode}</option>"
        for mode in setting.choices
        if mode not in setting.flag_only
    )
    fields = (
        f'<input type="hidden" name="turn" value="{escape_html(turn.turn_id)}">'
        f'<input type="hidden" name="call" value="{escape_html(call_id)}">'
        + _label(label, f'<textarea name="text" rows="5">\n{escape_html(text)}</textarea>')
        + _input("models", "Models, by commas: a variant each", model)
        + _label("Add to the system prompt", '<textarea name="system" rows="2"></textarea>')
        + _input("check", "Check: a command that says whether a variant is good", "")
        + _input("max_cost", "Limit in USD, for all together", "", "of the settings, or 5")
        + _label("Runs without approval", f'<select name="mode">{modes}</select>')
    )
    about = (
        "Each variant is a fork in a git worktree with the files from before the turn. Your folder "
        "does not change. A call that needs an approval is denied."
    )
    return (
        f'<h2 id="dialog-title">{escape_html(title)}</h2><form class="trial">{fields}'
        f'<p class="soft">{about}</p><p class="err" role="alert" hidden></p><div class="row">'
        f'<button class="btn first" type="submit">Run</button>{_CLOSE}</div></form>'
    )


def _input(name: str, label: str, value: str, hint: str = "") -> str:
    field = f'<input name="{name}" value="{escape_html(value)}" placeholder="{hint}">'
    return _label(label, field)


def _label(text: str, field: str) -> str:
    return f"<label>{text}{field}</label>"


def render_running() -> str:
    stop = '<button class="btn" type="button" data-stop-trial>Stop</button>'
    return (
        '<h2 id="dialog-title">The variants run</h2><p class="soft" role="status" data-trial-runs>'
        "They go on if you close this; the table is here when you come back.</p>"
        f'<div class="row">{stop}{_CLOSE}</div>'
    )


def render_table(variants: Sequence[Variant], note: str = "", *, is_over: bool = False) -> str:
    """With a button to keep each, until one is chosen. `note` is what the program said last."""
    rows = "".join(
        f"<tr>{_render_cells(one, row)}"
        f"<td>{'' if is_over else _keep(row[0], 'Keep', f'variant {row[0]}')}</td></tr>"
        for one, row in zip(variants, list_rows(variants), strict=True)
    )
    heads = "".join(f'<th scope="col">{head}</th>' for head in (*HEADS[1:], ""))
    table = f'<table class="item-costs"><thead><tr><td></td>{heads}</tr></thead>{rows}</table>'
    buttons = "" if is_over else _keep("all", "Keep all") + _keep("none", "Keep none")
    said = f'<pre class="args said" tabindex="0">{escape_html(note)}</pre>' if note else ""
    return (
        '<h2 id="dialog-title">What came of it</h2>'
        f'<div class="wide" tabindex="0">{table if variants else ""}</div>{said}'
        f'<div class="row">{buttons}{_CLOSE}</div>'
    )


def _render_cells(variant: Variant, row: tuple[str, ...]) -> str:
    number, name, *rest = map(escape_html, row)
    if variant.session:
        name = f'<a href="/compare/{escape_html(variant.session)}">{name}</a>'
    return "".join(f"<td>{cell}</td>" for cell in (number, name, *rest))


def _keep(which: str, text: str, about: str = "") -> str:
    label = f' aria-label="{text} {about}"' if about else ""
    return f'<button class="btn" type="button" data-keep="{which}"{label}>{text}</button>'
