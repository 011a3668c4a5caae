"""The blocks of a conversation as HTML, one element each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from treadle.apps.conversation.block_text import format_call_title, is_diff
from treadle.apps.conversation.diff_rows import count_changes
from treadle.apps.conversation.state.blocks import (
    ChildProgress,
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.pages.code import render_code, render_diff
from treadle.apps.pages.elements import (
    escape_html,
    is_picture,
    make_data_url,
    render_icon,
    render_sign,
)
from treadle.apps.pages.markdown import markdown_to_html
from treadle.core.transcript.content import Image
from treadle.lib.text.text import format_count, format_seconds, plural

EDGE_LINES = 20  # of a long output: so many at the beginning and at the end
MAX_OUTPUT_CHARS = 50_000
_CHEVRON = render_icon("chev", style="chev sm")
_TONES = {"good": "ok", "warning": "warn", "error": "error"}


class BlockContext(msgspec.Struct, frozen=True):
    """What the rendering of a block needs to know beside it: the address of a picture, and by the
    id of a call how long it took, or when it began (a Unix time), if it runs."""

    link_picture: Callable[[Image], str] = make_data_url
    find_seconds: Callable[[str], float | None] = lambda call_id: None
    find_start: Callable[[str], float | None] = lambda call_id: None


def render_block(block: ViewBlock, context: BlockContext) -> str:
    """The element of a block; it has the class `item`."""
    match block:
        case UserMessageBlock():
            return _render_message(block, context)
        case MarkdownBlock():
            return _render_reply(markdown_to_html(block.text), block)
        case CodeBlock():
            return _render_reply(render_code(block.text, block.language), block)
        case ThinkingBlock():
            return _render_thinking(block)
        case ToolCallBlock():
            return _render_call(block, context)
        case NoteBlock():
            return _render_note(block)
        case ShellBlock():
            return _render_shell(block)


def _render_message(block: UserMessageBlock, context: BlockContext) -> str:
    names = [f'<span class="shot">{escape_html(name)}</span>' for name in block.attachments]
    if block.steered:
        names.append("<span>sent while the agent worked</span>")
    meta = f'<div class="meta">{"".join(names)}</div>' if names else ""
    sign = f'<span class="sign accent">{render_icon("you", label="You")}</span>'
    pictures = _render_pictures(block.pictures, context)
    text = f'<p class="said">{escape_html(block.text)}</p>' if block.text else ""
    body = f'<div class="body">{text}{pictures}{meta}</div>'
    return f'<div class="item you">{sign}{body}</div>'


def _render_pictures(images: Sequence[Image], context: BlockContext) -> str:
    shown = [
        f'<img src="{escape_html(context.link_picture(image))}" alt="Picture {number}" '
        'loading="lazy">'
        for number, image in enumerate(images, 1)
        if is_picture(image)
    ]
    return f'<div class="pictures">{"".join(shown)}</div>' if shown else ""


def _render_reply(body: str, block: MarkdownBlock | CodeBlock) -> str:
    icon = "" if block.is_continuation else render_icon("say")
    style = "item more" if block.is_continuation else "item"
    sign = f'<span class="sign dim">{icon}</span>'
    return f'<div class="{style}">{sign}<div class="prose">{body}</div></div>'


def _render_thinking(block: ThinkingBlock) -> str:
    first = block.text.strip().partition("\n")[0]
    length = plural(len(block.text.split()), "word")
    return (
        f'<div class="item thought"><span class="sign dim">{render_icon("think")}</span>'
        f'<details class="think"><summary><span class="line">{escape_html(first[:200])}</span>'
        f'{_CHEVRON}<span class="time">{length}</span></summary>'
        f'<div class="opened said">{escape_html(block.text)}</div></details></div>'
    )


def _render_note(block: NoteBlock) -> str:
    tone = _TONES.get(block.tone, "soft")
    return (
        f'<div class="item note"><span class="sign dim">{render_icon("say")}</span>'
        f'<p class="said {tone}">{escape_html(block.text)}</p></div>'
    )


def _render_shell(block: ShellBlock) -> str:
    state = "running" if not block.is_finished else "failed" if block.exit_code else "done"
    title = _render_title("!", block.command)
    return _wrap_call(state, title, _render_output(block.output), "")


def _render_call(block: ToolCallBlock, context: BlockContext) -> str:
    name, _, argument = format_call_title(block).partition(": ")
    title, body = _render_title(name, argument), _render_result(block)
    body += _render_pictures(block.pictures, context)
    if block.is_finished:
        time = _render_time(context.find_seconds(block.call_id))
    else:  # the page counts the seconds
        start = context.find_start(block.call_id)
        time = f'<span class="time" data-since="{start:.0f}"></span>' if start else ""
    return _wrap_call(block.state, title, body, _describe_result(block), time)


def _render_title(name: str, argument: str) -> str:
    first, rest = escape_html(name), escape_html(argument)
    return f'<span class="name">{first}</span><span class="arg">{rest}</span>'


def _render_time(seconds: float | None) -> str:
    return f'<span class="time">{format_seconds(seconds)}</span>' if seconds is not None else ""


def _wrap_call(state: str, title: str, body: str, hint: str, time: str = "") -> str:
    shown = f'<span class="hint">{hint}</span>' if hint else ""
    return (
        f'<div class="item call">{render_sign(state)}<details class="tool"><summary>{title}{shown}'
        f'{_CHEVRON}{time}</summary><div class="opened">{body}</div></details></div>'
    )


def _describe_result(block: ToolCallBlock) -> str:
    """What the closed line says about the result."""
    if block.child is not None:
        return _describe_child(block.child)
    if block.state == "writing" and block.argument_chars:
        return f"{format_count(block.argument_chars)} characters"
    if block.state in ("running", "background") and block.progress:
        return escape_html(block.progress.rstrip().rpartition("\n")[2][:80])
    if is_diff(block.display):
        added, removed = count_changes(block.display)
        return f'<span class="ok">+{added}</span> <span class="error">−{removed}</span>'
    if block.state == "denied":
        return escape_html(block.reason.partition("\n")[0][:80])
    lines = (block.result or block.display).strip().split("\n")
    if lines == [""]:
        return ""
    return escape_html(lines[0][:80]) if len(lines) == 1 else plural(len(lines), "line")


def _describe_child(child: ChildProgress) -> str:
    doing = child.activity.subject or child.activity.kind
    calls = f"{plural(child.calls, 'call')}, {format_count(child.tokens)} tokens"
    return escape_html(calls if doing == "idle" else f"{calls}, {doing}")


def _render_result(block: ToolCallBlock) -> str:
    parts: list[str] = []
    if block.child is not None and block.child.recent_calls:
        parts.append(_render_output("\n".join(block.child.recent_calls)))
    if is_diff(block.display):
        parts.append(render_diff(block.display, f"Change by {block.name}"))
    elif block.raw:
        parts.append(f'<pre class="args said">{escape_html(block.raw[:MAX_OUTPUT_CHARS])}</pre>')
    if block.reason:
        parts.append(f'<p class="said warn">{escape_html(block.reason)}</p>')
    text = block.progress or block.result
    if text and not is_diff(block.display):
        parts.append(_render_output(text))
    if block.full_output:
        path = escape_html(block.full_output)
        parts.append(f'<p class="soft">The whole output: <code>{path}</code></p>')
    return "".join(parts)


def _render_output(text: str) -> str:
    lines = text[:MAX_OUTPUT_CHARS].rstrip("\n").split("\n")
    hidden = len(lines) - 2 * EDGE_LINES
    if hidden > EDGE_LINES:
        first, last = "\n".join(lines[:EDGE_LINES]), "\n".join(lines[-EDGE_LINES:])
        middle = "\n".join(lines[EDGE_LINES:-EDGE_LINES])
        body = (
            f"<pre>{escape_html(first)}</pre><details><summary>{hidden} more lines</summary>"
            f"<pre>{escape_html(middle)}</pre></details><pre>{escape_html(last)}</pre>"
        )
    else:
        body = f"<pre>{escape_html(chr(10).join(lines))}</pre>"
    cut = len(text) - MAX_OUTPUT_CHARS
    if cut > 0:
        body += f"<footer>{format_count(cut)} more characters are not shown</footer>"
    return f'<div class="out" tabindex="0" role="region" aria-label="Output">{body}</div>'
