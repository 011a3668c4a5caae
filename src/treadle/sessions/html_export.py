"""A session as one HTML page, without scripts and without external resources.

Text of the model, the tools and files never becomes HTML of its own: it is escaped, or rendered as
Markdown with raw HTML and images off and only http(s) links. export.py makes the blocks;
markdown-it-py renders the Markdown and is imported at the first use.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from treadle.core.sanitize import strip_escapes
from treadle.core.text import plural
from treadle.core.transcript.content import Image, parse_arguments
from treadle.sessions.export import ExportBlock, describe_session, get_title
from treadle.sessions.index import SessionSummary

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
SUMMARY_CHARS = 100
MAX_OPEN_DIFF_LINES = 40  # longer diffs are collapsed at first
LINK_SCHEMES = ("https://", "http://")
ALLOWED_ATTRIBUTES = ("href", "start")

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<style>
:root {{ color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif;
  --faint: #666; --line: #ddd; --soft: #f5f5f4; --user: #2563eb; --bad: #b91c1c; --good: #15803d; }}
@media (prefers-color-scheme: dark) {{ :root {{ --faint: #aaa; --line: #3a3a3a; --soft: #1d1d1d;
  --user: #7aa5ff; --bad: #f08080; --good: #7bc98c; }} }}
body {{ max-width: 50rem; margin: 2rem auto 4rem; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; line-height: 1.25; margin-bottom: .25rem; overflow-wrap: anywhere; }}
.about, .engine {{ color: var(--faint); font-size: .875rem; overflow-wrap: anywhere; }}
h2 {{ font-size: .8rem; letter-spacing: .05em; text-transform: uppercase; color: var(--faint);
  margin: 2rem 0 .25rem; }}
h3 {{ font-size: 1rem; margin: 1rem 0 .25rem; }}
p {{ white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; }}
.user {{ border-left: .2rem solid var(--user); padding: .05rem 0 .05rem .8rem; }}
.engine {{ margin: .75rem 0; white-space: pre-wrap; }}
details {{ margin: .3rem 0; border: 1px solid var(--line); border-radius: .4rem; }}
summary {{ padding: .3rem .6rem; cursor: pointer; color: var(--faint); font-size: .875rem;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }}
summary b {{ color: CanvasText; font-weight: 600; }}
.tool {{ margin-left: 1.5rem; }} .error {{ border-color: var(--bad); }}
.thinking > div {{ padding: 0 .8rem; color: var(--faint); }}
pre {{ font: .8125rem/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  margin: 0; padding: .5rem .7rem; max-height: 40rem; overflow: auto; background: var(--soft); }}
p + pre, pre + p {{ margin-top: .5rem; }} details pre {{ border-top: 1px solid var(--line); }}
code {{ font: .875em ui-monospace, monospace; background: var(--soft); padding: .1em .25em; }}
ins {{ color: var(--good); text-decoration: none; }} del {{ color: var(--bad);
  text-decoration: none; }} pre i {{ color: var(--faint); font-style: normal; }}
ul, ol {{ margin: .5rem 0; padding-left: 1.5rem; }} pre code {{ font: inherit; padding: 0; }}
blockquote {{ margin: .5rem 0; padding-left: .8rem; border-left: .2rem solid var(--line); }}
table {{ border-collapse: collapse; margin: .5rem 0; }}
th, td {{ border: 1px solid var(--line); padding: .2rem .6rem; overflow-wrap: anywhere; }}
th {{ text-align: left; background: var(--soft); }}
img {{ max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: .4rem; }}
@media (max-width: 40rem) {{ .tool {{ margin-left: .5rem; }} body {{ margin-top: 1rem; }} }}
</style></head><body><h1>{title}</h1><div class="about">{about}</div>
{body}
</body></html>
"""


def render_html(summary: SessionSummary, blocks: Sequence[ExportBlock]) -> str:
    """The whole page."""
    names = {"user": "You", "assistant": "Agent", "call": "Agent", "tool": "Agent"}
    body, last = [], ""
    for block in blocks:
        name = names.get(block.role, last)
        if name != last:
            body.append(f"<h2>{name}</h2>")
        last = name
        body.append(_render_block(block))
    return _TEMPLATE.format(
        title=escape_html(get_title(summary)),
        about=escape_html(describe_session(summary)),
        body="\n".join(body),
    )


def _render_block(block: ExportBlock) -> str:
    match block.kind:
        case "picture" if block.image is not None and block.image.data:
            return f'<div class="{block.role}">{_render_image(block.image)}</div>'
        case "code" if block.role == "call":
            return _render_details("call", block.title, *_render_call(block.text))
        case "code" | "error":
            line, text = _first_line(block.text), escape_html(block.text)
            is_error = block.kind == "error"
            style = "tool error" if is_error else "tool"
            return _render_details(style, block.title, line, text, is_open=is_error)
        case "diff":
            lines = block.text.splitlines()
            body = "\n".join(map(_render_diff_line, lines))
            count, is_short = plural(len(lines), "line"), len(lines) <= MAX_OPEN_DIFF_LINES
            return _render_details("tool", block.title, count, body, is_open=is_short)
    if block.role == "engine":
        return f'<div class="engine">{escape_html(block.text)}</div>'
    if block.title:
        return (
            f'<details class="thinking"><summary>{escape_html(block.title)}</summary>'
            f"<div>{markdown_to_html(block.text)}</div></details>"
        )
    return f'<div class="{block.role}">{markdown_to_html(block.text)}</div>'


def _render_details(kind: str, title: str, line: str, body: str, *, is_open: bool = False) -> str:
    opened = " open" if is_open else ""
    head = f"<summary><b>{escape_html(title)}</b> {escape_html(line)}</summary>"
    return f'<details class="{kind}"{opened}>{head}<pre>{body}</pre></details>'


def _render_call(raw: str) -> tuple[str, str]:
    """The first argument as a summary, and all arguments, one per line."""
    arguments = parse_arguments(raw)
    if isinstance(arguments, str):
        return "", escape_html(raw)
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in arguments.items()
    }
    lines = [f"<i>{escape_html(key)}:</i> {escape_html(text)}" for key, text in texts.items()]
    return _first_line(next(iter(texts.values()), "")), "\n".join(lines)


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= SUMMARY_CHARS else line[:SUMMARY_CHARS] + "…"


def _render_diff_line(line: str) -> str:
    text = escape_html(line)
    if line.startswith(("--- ", "+++ ", "@@")):
        return f"<i>{text}</i>"
    tag = {"+": "ins", "-": "del"}.get(line[:1])
    return f"<{tag}>{text}</{tag}>" if tag else text


def _render_image(image: Image) -> str:
    if image.media_type not in IMAGE_TYPES:
        return f"<p>[{escape_html(image.media_type)}]</p>"
    data = base64.b64encode(image.data).decode()
    return f'<p><img alt="image" src="data:{image.media_type};base64,{data}"></p>'


# --- Markdown --------------------------------------------------------------------------------


def markdown_to_html(text: str) -> str:
    """Markdown as safe HTML."""
    parser = _markdown_parser()
    tokens = parser.parse(strip_escapes(text))
    for token in tokens:
        _restrict(token)
    html_text: str = parser.renderer.render(tokens, parser.options, {})
    return html_text


@cache
def _markdown_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    parser.validateLink = _is_safe_link  # type: ignore[method-assign]  # its documented override
    return parser


def _is_safe_link(url: str) -> bool:
    return url.lower().startswith(LINK_SCHEMES)


def _restrict(token: Token) -> None:
    """Headings below those of the page, no attributes but the allowed ones."""
    if token.type in ("heading_open", "heading_close"):
        token.tag = "h3"
    token.info = ""
    token.attrs = {name: token.attrs[name] for name in ALLOWED_ATTRIBUTES if name in token.attrs}
    if token.type == "link_open":
        if not _is_safe_link(str(token.attrs.get("href", ""))):  # the parser allows an empty one
            token.attrs.clear()
        token.attrs["rel"] = "noreferrer nofollow"
    for child in token.children or ():
        _restrict(child)


def escape_html(text: str) -> str:
    """Text that the browser shows and never interprets."""
    return html.escape(strip_escapes(text))
