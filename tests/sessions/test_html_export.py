"""A session as an HTML page: what is in it stays text, and reads well."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.transcript import (
    AssistantItem,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import Item
from treadle.sessions import Library
from treadle.sessions.export import ExportBlock, read_blocks, render_markdown
from treadle.sessions.html_export import markdown_to_html, render_html
from treadle.sessions.index import SessionSummary

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "div", "p", "pre", "a"),
    *("code", "strong", "details", "summary", "b", "i", "ins", "del", "img", "table", "tr", "td"),
    *("em", "ul", "ol", "li", "blockquote", "hr", "br", "thead", "tbody", "th"),
}
DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old <b>\n+new &"


class Seen(HTMLParser):
    """The tags of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = {name for name, _ in attrs}
        assert names <= {
            *("class", "rel", "href", "src", "alt", "lang", "charset", "name", "content"),
            *("http-equiv", "open", "start"),
        }
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></style></title><script>alert(2)</script>",
    "[x](javascript:alert(3))",
    "[x](JaVaScRiPt:alert(3)) [y](data:text/html,hi) [z](//evil)",
    '[x](https://a.b/"onmouseover="alert(4))',
    "<img src=x onerror=alert(5)>",
    "```html\n</pre><script>alert(6)</script>\n",
    "`</code><script>`",
    "**<b onclick=alert(7)>**",
    "| <script> | b |\n|---|---|\n| [x](javascript:y) | `<i>` |",
    "&lt;script&gt; &#106;avascript: {body} {title}",
    "![x](https://a.b/c.png) ![y](javascript:alert(8))",
    "[x]\n\n[x]: javascript:alert(9)",
    "[x]() [y](<>)",
    '<javascript:alert(10)> <https://a.b/"onclick=alert(11)> [x](&#106;avascript:alert(12))',
    '```x" onclick="alert(13)\ncode\n```',
    '[x](https://a.b "title\\" onclick=\\"alert(14)")',
]


def kinds(text: str) -> list[ExportBlock]:
    """The same text at every place where a page has one."""
    return [
        ExportBlock("user", "", text),
        ExportBlock("assistant", "thinking", text),
        ExportBlock("assistant", "", text),
        ExportBlock("call", text, text, "code"),
        ExportBlock("call", "bash", '{"command": ' + repr(text).replace("'", '"') + "}", "code"),
        ExportBlock("tool", text, text, "code"),
        ExportBlock("tool", text, text, "error"),
        ExportBlock("tool", text, f"+{text}\n-{text}", "diff"),
        ExportBlock("user", "", text, "picture", Image(text, b"x")),
        ExportBlock("engine", "", text),
    ]


def harmless(text: str) -> Seen:
    seen = Seen(render_html(SessionSummary("id", "project", folder=text, title=text), kinds(text)))
    assert set(seen.tags) <= TAGS
    assert all(link.startswith(("https://", "http://")) for link in seen.links)
    return seen


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_hostile_stays_text(text: str) -> None:
    harmless(text)


SIGNS = [*"<>\"'&`*[]()|#\n \\", "```", "**", "](", "x", "\x1b[31m", "\u202e"]
PIECES = st.sampled_from([*SIGNS, "http://a", "javascript:"])


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60))
def test_nothing_that_can_be_written_gets_out_of_its_place(text: str) -> None:
    harmless(text)


def test_markdown_that_is_plain_to_see_is_shown_as_such() -> None:
    text = (
        "# Title\ntext with `a<b` and **weight**\n\n- [docs](https://a.b/c?d=1&e=2)\n"
        "- [bad](javascript:x)\n\n3. third\n\n"
        "```python\nif a < b:\n\n    pass\n```\nafter\n\n| a | b |\n|---|:-:|\n| 1 | `x` |"
    )
    assert markdown_to_html(text).splitlines() == [
        *("<h3>Title</h3>", "<p>text with <code>a&lt;b</code> and <strong>weight</strong></p>"),
        "<ul>",
        '<li><a href="https://a.b/c?d=1&amp;e=2" rel="noreferrer nofollow">docs</a></li>',
        *("<li>[bad](javascript:x)</li>", "</ul>", '<ol start="3">', "<li>third</li>", "</ol>"),
        *("<pre><code>if a &lt; b:", "", "    pass", "</code></pre>", "<p>after</p>"),
        *("<table>", "<thead>", "<tr>", "<th>a</th>", "<th>b</th>", "</tr>", "</thead>"),
        *("<tbody>", "<tr>", "<td>1</td>", "<td><code>x</code></td>", "</tr>", "</tbody>"),
        "</table>",
    ]


async def session(*items: Item) -> Path:
    journal = Library().create(Path())
    for item in items:
        journal.append(ItemAdded(item))
    await journal.aclose()
    return journal.session_dir


async def test_a_session_is_one_file_with_pictures_differences_and_outputs() -> None:
    picture = Image("image/png", b"p" * 100_000)  # so large that it stands beside the journal
    call = ToolCall("1", "edit", '{"file_path": "x.py", "new_string": "a\\nb"}')
    place = await session(
        UserItem((Text("Look at\nthis"), picture, Image("image/svg+xml", b"<svg>"))),
        AssistantItem((Thinking("hm"), Text("So."), call), model="m"),
        ToolResultItem("1", "edit", (Text("done"),), display=DIFF),
        ToolResultItem("2", "bash", (Text("\x1b[31mred\x1b[0m"),), is_error=True),
    )
    summary = Library().get_summary(place)
    assert summary.title == "Look at this"
    shown = render_html(summary, read_blocks(place))
    seen = Seen(shown)
    assert [link[:22] for link in seen.links] == ["data:image/png;base64,"]
    assert "[image/svg+xml]" in shown
    assert "<del>-old &lt;b&gt;</del>\n<ins>+new &amp;</ins>" in shown
    assert "<i>new_string:</i> a\nb" in shown
    assert '<details class="tool error" open>' in shown
    assert "<pre>red</pre>" in shown
    text = render_markdown(summary, read_blocks(place))
    assert f"```diff\n{DIFF}\n```" in text
    assert "1 turn" not in text
    assert "0 turns" in text
