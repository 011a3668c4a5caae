"""A session as an HTML page: what is in it stays text, and reads well."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.apps.conversation.state.blocks import ToolCallBlock
from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.pages.blocks import BlockContext, render_block
from treadle.apps.pages.markdown import markdown_to_html
from treadle.apps.pages.session_html import render_session_html
from treadle.apps.pages.static_page import render_static_page
from treadle.core.transcript import (
    AssistantItem,
    Document,
    Image,
    NoticeItem,
    SummaryItem,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.entries import ItemAdded, Rewound, TurnBegan
from treadle.core.transcript.items import Item
from treadle.sessions import Library
from treadle.sessions.export import read_blocks, render_markdown

TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "article", "section"),
    *("h1", "h2", "h3", "div", "span", "p", "pre", "a", "code", "strong", "em", "b", "i", "img"),
    "s",
    *("details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "ol"),
    *("li", "blockquote", "hr", "br", "button", "footer", "svg", "defs", "symbol", "use", "path"),
    *("circle", "rect", "line", "text", "g"),
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
        assert not [name for name, _ in attrs if name.startswith("on") or name == "style"]
        values = [value or "" for name, value in attrs if name in ("href", "src")]
        self.links += [value for value in values if not value.startswith("#icon-")]


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


def build_items(text: str) -> list[Item]:
    """The same text at every place where a page has one."""
    call = ToolCall("1", text, text)
    shell = ToolCall("2", "bash", json.dumps({"command": text}))
    edit = ToolCall("3", "edit", json.dumps({"file_path": text}))
    diff = f"--- a/{text}\n+++ b/{text}\n@@ -1 +1 @@ {text}\n-{text}\n+{text}"
    return [
        UserItem((Text(text), Text(text), Image(text, b"x"), Document(text, b"", text))),
        AssistantItem((Thinking(text), Text(text), call, shell, edit), model=text),
        ToolResultItem("1", text, (Text(text),)),
        ToolResultItem("2", "bash", (Text(text),), is_error=True, full_output=text),
        ToolResultItem("3", "edit", (Text(text),), display=diff),
        SummaryItem(text, 1),
        NoticeItem(text, "interrupted"),
    ]


def harmless(text: str) -> Seen:
    blocks = build_view(build_items(text)).blocks
    body = "".join(render_block(block, BlockContext()) for block in blocks)
    seen = Seen(render_static_page(text, body))
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
    shown = render_session_html(summary, place)
    seen = Seen(shown)
    assert [link[:22] for link in seen.links] == ["data:image/png;base64,"]
    assert "image/svg+xml, 5 bytes" in shown
    assert "<td>old &lt;b&gt;</td>" in shown
    assert "<td>new &amp;</td>" in shown
    assert "<pre>red</pre>" in shown
    assert "script" not in seen.tags
    assert "unsafe" not in shown
    text = render_markdown(summary, read_blocks(place))
    assert f"```diff\n{DIFF}\n```" in text
    assert "1 turn" not in text
    assert "0 turns" in text


async def test_the_style_sheet_is_the_only_one_that_the_policy_allows() -> None:
    place = await session(UserItem((Text("hello"),)))
    shown = render_session_html(Library().get_summary(place), place)
    styles = shown.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(styles.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in shown


async def test_what_left_the_view_is_exported_and_marked() -> None:
    journal = Library().create(Path())
    journal.append(TurnBegan("turn-1"))
    journal.append(ItemAdded(UserItem((Text("first try"),))))
    journal.append(Rewound("turn-1"))
    journal.append(ItemAdded(UserItem((Text("second try"),))))
    await journal.aclose()
    shown = render_session_html(Library().get_summary(journal.session_dir), journal.session_dir)
    first, second = shown.index("first try"), shown.index("second try")
    assert first < shown.index("rewound to before turn 1") < second


def test_struck_text_and_tasks_of_github_are_shown():
    html = markdown_to_html("~~old~~ new\n\n- [x] looked\n- [ ] written\n\n[ ] no list")
    assert "<s>old</s> new" in html
    assert '<li class="task-item">\u2611 looked' in html
    assert "\u2610 written" in html
    assert "[ ] no list" in html


def test_whole_addresses_are_links_and_nothing_else_becomes_one():
    html = markdown_to_html(
        "(see https://a.org/b_c?d=1). `http://code` [x](https://y.org) www.z.org"
    )
    assert (
        '(see <a href="https://a.org/b_c?d=1" rel="noreferrer nofollow">https://a.org/b_c' in html
    )
    assert "</a>). <code>http://code</code>" in html
    assert html.count("<a ") == 2
    assert markdown_to_html("https://" * 20_000).count("<a ") == 1  # and takes no time


def test_a_call_that_runs_has_the_time_of_its_start_for_the_clock_of_the_page():
    running = ToolCallBlock("c1", "bash", state="running")
    context = BlockContext(find_start={"c1": 1_700_000_000.0}.get)
    assert 'data-since="1700000000"' in render_block(running, context)
    done = msgspec.structs.replace(running, state="done")
    assert "data-since" not in render_block(done, context)
