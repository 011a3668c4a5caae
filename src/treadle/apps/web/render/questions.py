"""The cards of open questions: an approval with what is at stake, or a question of the model."""

from __future__ import annotations

import msgspec

from treadle.apps.conversation.approval_text import (
    describe_session_scope,
    find_editable_argument,
    format_approval_title,
    list_risk_lines,
    open_network,
)
from treadle.apps.conversation.choices import ModelQuestion
from treadle.apps.conversation.diff_rows import count_changes
from treadle.apps.conversation.open_questions import PendingQuestion
from treadle.apps.pages.code import highlight_code, render_diff
from treadle.apps.pages.elements import escape_html, render_icon
from treadle.apps.pages.markdown import markdown_to_html
from treadle.core.steps import PendingApproval
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import plural


def render_question(number: int, question: PendingQuestion, session: str = "") -> str:
    """The card of a question; its number is what an answer names. `session` is given where cards
    of several sessions are shown."""
    name = f"q{session}{number}"  # of the element that has the title
    if question.approval is not None:
        card = _render_approval(name, number, question.approval, is_child=question.is_child)
    else:
        assert question.model_question is not None, "a question asks for one of the two"
        card = _render_model_question(name, number, question.model_question)
    sign = f'<span class="sign warn">{render_icon("wait", label="Waits for you")}</span>'
    return f'<div class="item question" id="question-{session}{number}">{sign}{card}</div>'


# --- approvals -----------------------------------------------------------------------------


def _render_approval(name: str, number: int, approval: PendingApproval, *, is_child: bool) -> str:
    preview, tag, switch = approval.preview, "", ""
    if preview is not None and preview.kind == "diff":
        added, removed = count_changes(preview.text)
        tag = f'<span class="tag">+{added} −{removed}</span>'
        switch = _DIFF_SWITCH
    title = escape_html(format_approval_title(approval))
    return (
        f'<section class="ask" aria-labelledby="{name}" data-question="{number}">'
        f'<header><h2 id="{name}">{title}</h2>{tag}{switch}</header>'
        f"{_render_stake(approval, is_child=is_child)}{_render_preview(approval)}"
        f"{_render_answers(approval, is_child=is_child)}</section>"
    )


_DIFF_SWITCH = (
    '<span class="end"><span class="seg not-small" role="group" aria-label="Diff">'
    '<button type="button" aria-pressed="true" data-diff="unified">Unified</button>'
    '<button type="button" aria-pressed="false" data-diff="split">Side by side</button>'
    "</span></span>"
)


def _render_stake(approval: PendingApproval, *, is_child: bool) -> str:
    rows = [("What it does", [_describe_effect(approval)])]
    rows.append(("Risks", [line.text for line in list_risk_lines(approval)]))
    rows.append(("Why it asks", [approval.reason]))
    if is_child:
        rows.insert(0, ("Who asks", ["a child agent"]))
    cells = []
    for name, texts in rows:
        shown = "".join(f"<dd>{escape_html(escape_invisible(text))}</dd>" for text in texts if text)
        if shown:
            cells.append(f"<div><dt>{name}</dt>{shown}</div>")
    return f'<dl class="stake">{"".join(cells)}</dl>' if cells else ""


def _describe_effect(approval: PendingApproval) -> str:
    access = approval.access
    if access.command is not None:
        return "Runs a command" + (f" in {access.cwd}" if access.cwd else "")
    if access.url is not None:
        return f"Fetches {access.url}"
    written = [file.path for file in access.files if file.mode != "read"]
    if written:
        return f"Writes {plural(len(written), 'file')}: {', '.join(written[:3])}"
    read = [file.path for file in access.files]
    return f"Reads {', '.join(read[:3])}" if read else ""


def _render_preview(approval: PendingApproval) -> str:
    """What the call would do, complete. Secrets are shown: the user approves what will run."""
    preview = approval.preview
    shown = escape_invisible(preview.text, keep="\n\t") if preview is not None else ""
    if preview is not None and preview.kind == "diff":
        return render_diff(shown, f"Proposed change of {preview.path or approval.call.name}")
    language = "bash" if preview is not None and preview.kind == "command" else ""
    parts = [_render_text(highlight_code(shown, language))] if shown else []
    for name, value in approval.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = escape_invisible(text, keep="\n\t")
        if text and text != shown:
            label = f'<i class="dim">{escape_html(name.replace("_", " "))}</i>'
            parts.append(_render_text(f"{label} {escape_html(text)}"))
    return "".join(parts)


def _render_text(body: str) -> str:
    return f'<pre class="args said" tabindex="0">{body}</pre>'


def _render_answers(approval: PendingApproval, *, is_child: bool) -> str:
    name, text = find_editable_argument(approval)
    first = [_render_button("once", "Allow once <kbd>Y</kbd>", "first")]
    if open_network(approval) is not None and not is_child:
        first.append(_render_button("network", "With the network <kbd>O</kbd>"))
    rules = escape_html(escape_invisible(", ".join(approval.rules)))
    if (rules or approval.wider_mode) and not is_child:
        label = "Edits, this session" if approval.wider_mode else "This session"
        scope = describe_session_scope(approval) if approval.wider_mode else rules
        title = f"Until the server ends: {scope}"
        first.append(_render_button("session", f"{label} <kbd>S</kbd>", title=title))
    if rules and not is_child:
        scope = '<span class="dim not-small">for you, in this folder</span>'
        label = f"Always <code>{rules}</code>{scope}<kbd>A</kbd>"
        first.append(_render_button("always", label, "always", title=f"Always: {rules}"))
    second, editor = [], ""
    if name and not is_child:
        pen, shown = render_icon("pen", style="sm"), escape_html(name)
        second.append(_render_button("edit", f"{pen}Edit first <kbd>E</kbd>"))
        editor = (
            f'<div class="edit" hidden><label>{shown}<textarea data-argument="{shown}" rows="4" '
            f'spellcheck="false">\n{escape_html(text)}</textarea></label>'
            f"{_render_button('edited', 'Allow this', 'first')}</div>"
        )
    second.append(_render_button("deny", "Deny <kbd>N</kbd>", "no"))
    second.append(
        '<label class="field deny"><span class="hidden">Reason for a no</span>'
        '<input type="text" data-reason placeholder="Reason, which the model reads"></label>'
    )
    return (
        f'<form class="answers"><div class="row">{"".join(first)}</div>'
        f'<div class="row">{"".join(second)}</div>{editor}</form>'
    )


def _render_button(answer: str, label: str, style: str = "", title: str = "") -> str:
    """`title` is escaped."""
    classes, hint = f"btn {style}".rstrip(), f' title="{title}"' if title else ""
    return f'<button class="{classes}" type="button" data-answer="{answer}"{hint}>{label}</button>'


# --- questions of the model ----------------------------------------------------------------


def _render_model_question(name: str, number: int, question: ModelQuestion) -> str:
    kind = "checkbox" if question.is_multiple else "radio"
    plan = f'<div class="prose">{markdown_to_html(question.plan)}</div>' if question.plan else ""
    choices = [
        f'<label class="choice"><input type="{kind}" name="choice" value="{escape_html(label)}">'
        f'<span><b>{escape_html(label)}</b> <span class="soft">{escape_html(text)}</span></span>'
        "</label>"
        for label, text in question.choices
    ]
    return (
        f'<section class="ask" aria-labelledby="{name}" data-question="{number}">'
        f'<header><h2 id="{name}" class="said">{escape_html(question.text)}</h2></header>'
        f"{plan}"
        f'<form class="answers">{"".join(choices)}<div class="row"><label class="field deny">'
        '<span class="hidden">Your own answer</span><input type="text" data-own '
        'placeholder="Your own answer, here or as a message"></label>'
        f"{_render_button('answer', 'Answer', 'first')}{_render_button('none', 'No answer')}"
        "</div></form></section>"
    )
