"""Pages of the web as Markdown: what is kept of them, and that no page is too much."""

from __future__ import annotations

import asyncio
import codecs
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.patience import until
from tests.tools.builtin.helpers import hands
from tests.work import Work, count_work
from treadle.tools.builtin.web import html_to_markdown as conversion
from treadle.tools.builtin.web.charsets import PYTHON_ENCODINGS, decode_page
from treadle.tools.builtin.web.html_to_markdown import (
    MAX_TEXT_CHARS,
    MarkdownText,
    html_to_markdown,
)
from treadle.tools.builtin.web.http_fetch import FetchedPage


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one<p>two <em>three</em>", "one\n\ntwo *three*"),
        ("<ul><li>a<li>b<ul><li>c</ul></ul>", "- a\n- b\n  - c"),
        ("<ol><li><p>a</p></li><li>b</li></ol>after", "1. a\n2. b\n\nafter"),
        ("<a href='/x'>go <b>on</b></a>", "[go **on**](http://h/x)"),
        ("<A HREF = /x?a=1&amp;b=2 >go</A>", "[go](http://h/x?a=1&b=2)"),
        ("<a href=one>1 <a href=two>2</a></a>", "[1](http://h/d/one)[2](http://h/d/two)"),
        ("<a href='#top'>up</a>", "up"),
        ('<a title="a > b" href=x>y</a>', "[y](http://h/d/x)"),
        ("<pre class='language-py'>a = 1\n  b\n</pre>", "```py\na = 1\n  b\n\n```"),
        ("x <code>a  b</code> y", "x `a b` y"),
        (
            "<table><tr><th>a<th>b</tr><tr><td>1 | 2<td></tr></table>",
            "| a | b |\n| --- | --- |\n| 1 \\| 2 |  |",
        ),
        ("<table><tr><td>a<tr><td>b<td>c</table>", "| a |  |\n| --- | --- |\n| b | c |"),
        (
            "<table><tr><td>out<table><tr><td>in</table><tr><td>more</table>",
            "| out |\n| --- |\n\n| in |\n| --- |\n\nmore",
        ),
        ("<table><tr><td><a href=x>y</td></tr></table></a>z", "| y |\n| --- |\n\nz"),
        ("<head><style>p{}</style></head><script>x<y</script>text", "text"),
        ("<head><title>T</title><body>text", "# T\n\ntext"),
        ("<nav>menu<nav>more</nav></nav><main>text</main><footer>f</footer>", "text"),
        ("<blockquote>said</blockquote>", "> said"),
        ("a &amp; b &lt;tag&gt; &eacute;&#233;&#xe9; &nope; AT&T", "a & b <tag> ééé &nope; AT&T"),
        ("<!-- no <b> --><!doctype html><?xml?>1 < 2 <!-->3", "1 < 2 3"),
        ("<script>a</SCRIPTS></Script >text", "text"),
        ("<img src=x alt='a  dog'> <img src=y>", "[image: a dog]"),
        ("<script>never closed", ""),
        ("text <a href='never closed", "text"),
        ("</div></ul></a></table>x", "x"),
    ],
)
def test_html_becomes_markdown(html: str, text: str) -> None:
    assert html_to_markdown(html, "http://h/d/") == MarkdownText(text, is_truncated=False)


def test_deeply_nested_html_is_no_problem() -> None:
    assert html_to_markdown("<div>" * 50_000 + "x").text == "x"
    assert html_to_markdown("<ul><li>" * 5_000 + "x").text.endswith("x")


# What has made one parser or another slow, once or over and over.
HOSTILE = [
    *("<a ", "<a href=x>", "</a>", "<a href=x>y</a>", "<a href='../", '<a x="', "a='", "=", "'"),
    *("<table>", "<tr><td>x", "<td>x", "</table>", "<ul><li>", "<ol>", "<li>", "</li>", "</ul>"),
    *("<!--", "-->", "<!", "<?", "<![CDATA[", "</", "<", ">", "<script>", "</script", "</script>"),
    *(
        "<nav>",
        "</nav>",
        "<svg>",
        "<head>",
        "<title>",
        "</title>",
        "<pre>",
        "</pre>",
        "<p>",
        "<br>",
    ),
    *(
        "<blockquote>",
        "<b>",
        "&",
        "&#",
        "&#x",
        "&amp",
        "9",
        "a",
        " ",
        "\n",
        "- ",
        "1. ",
        "<textarea>",
    ),
]


def converted(html: str, base: str = "http://h/d/") -> Work:
    with count_work() as work:
        text = html_to_markdown(html, base).text
    assert work.calls < 20 * len(html) + 200, f"too much work: {html[:80]!r}"
    assert len(text) <= MAX_TEXT_CHARS + conversion.MAX_TITLE_CHARS + 10
    return work


@pytest.mark.parametrize("before", ["", "<table><tr><td>", "<ul><li>", "<a href=x>"])
def test_repeated_text_takes_work_in_proportion_to_its_length(before: str) -> None:
    for piece in HOSTILE:
        html = before + piece * (5_000 // len(piece))
        assert converted(html).scanned < 30 * len(html), piece


_PARTS = st.tuples(st.sampled_from(HOSTILE) | st.text(max_size=8), st.integers(1, 20_000))


@settings(max_examples=25)
@given(st.lists(_PARTS, min_size=1, max_size=8), st.text(max_size=20))
def test_no_page_is_much_work_or_an_error(parts: list[tuple[str, int]], base: str) -> None:
    whole = "".join(part * min(times, 2_000 // (len(part) or 1)) for part, times in parts)
    converted(whole, base)


@pytest.mark.parametrize(
    ("html", "base"),
    [
        ("<a href=x>y</a>" * 500, "http://h/" + "long/" * 350),
        ("<ul>" * 400 + "<li>" * 1_000, ""),
        ("x" * 30_000, ""),
        ("<b>" * 5_000, ""),
        ("<table><tr>" + "<td>x" * 1_000 + "<tr><td>x" * 1_000, ""),
    ],
)
def test_what_comes_of_a_page_is_bounded_and_its_truncation_is_reported(
    html: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (
        ("MAX_HTML_CHARS", 20_000),
        ("MAX_TEXT_CHARS", 10_000),
        ("MAX_TOKENS", 3_000),
    ):
        monkeypatch.setattr(conversion, name, most)
    page = html_to_markdown("<p>first</p>" + html, base)
    assert page.text.startswith("first")
    assert page.is_truncated
    assert len(page.text) <= 10_000


def test_links_of_a_page_with_an_endless_address_stay_as_they_are() -> None:
    page = html_to_markdown("<a href=x>y</a>" * 2, "http://h/" + "long/" * 10_000)
    assert page.text == "[y](x)" * 2


def test_a_cancelled_conversion_ends() -> None:
    asked: list[bool] = []

    def stopped() -> bool:
        asked.append(True)
        return len(asked) > 2

    html_to_markdown("<b>" * 100_000, is_cancelled=stopped)
    assert len(asked) == 3


async def test_a_conversion_runs_in_a_thread_and_ends_when_it_is_cancelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, ended = threading.Event(), threading.Event()

    async def fetch(url: str) -> FetchedPage:
        return FetchedPage(url, 200, {"content-type": "text/html"}, b"x")

    def endless(html: str, base: str, *, is_cancelled: Callable[[], bool]) -> MarkdownText:
        began.set()
        while not is_cancelled():
            time.sleep(0.001)
        ended.set()
        return MarkdownText("", is_truncated=True)

    monkeypatch.setattr(conversion, "html_to_markdown", endless)
    async with hands(folder, fetch=fetch) as agent:
        work = asyncio.ensure_future(agent.one("web_fetch", url="http://site.test/"))
        await until(began.is_set)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await until(ended.is_set)


@pytest.mark.parametrize(
    ("charset", "data", "text"),
    [
        ("UTF-8", "größe".encode(), "größe"),
        ("iso-8859-1", b"gr\xf6\xdfe \x80", "größe €"),
        ("windows-1251", "привет".encode("cp1251"), "привет"),
        ("KOI8-R", "привет".encode("koi8-r"), "привет"),
        ("Shift_JIS", "日本語".encode("cp932"), "日本語"),
        ("euc-jp", "日本語".encode("euc_jp"), "日本語"),
        ("gb2312", "中文".encode("gb18030"), "中文"),
        ("big5", "中文".encode("big5"), "中文"),
        ("ks_c_5601-1987", "한국".encode("cp949"), "한국"),
        ("utf-16", "größe".encode("utf-16-le"), "größe"),
        ("iso-8859-1", codecs.BOM_UTF8 + "größe".encode(), "größe"),
        # No charsets of text: what they would make of it is not asked.
        ("idna", b"xn--aaa", "xn--aaa"),
        ("undefined", b"x", "x"),
        ("punycode", b"a-" + b"9" * 99, "a-" + "9" * 99),
        ("unicode_escape", rb"\x1b]52;c;AAAA\x07", r"\x1b]52;c;AAAA\x07"),
        ("utf-7", b"+AAA-", "+AAA-"),
        ("rot13", b"x", "x"),
        ("zlib", b"x", "x"),
        ("no such thing", "größe".encode(), "größe"),
    ],
)
def test_a_page_is_read_by_the_charset_it_names(charset: str, data: bytes, text: str) -> None:
    assert decode_page(data, f"text/html; charset={charset}") == text


def test_a_charset_is_also_found_in_the_page_itself() -> None:
    data = b'<meta charset="windows-1251">' + "привет".encode("cp1251")
    assert decode_page(data, "text/html").endswith("привет")
    body = b'<meta charset="utf-16">' + "größe".encode()  # legible here, so it cannot be
    assert decode_page(body, "text/html").endswith("größe")


@given(st.binary(max_size=300), st.sampled_from(sorted(PYTHON_ENCODINGS)), st.booleans())
def test_any_bytes_are_some_text(data: bytes, charset: str, is_cut: bool) -> None:
    decode_page(data, f"text/plain; charset={charset}", is_truncated=is_cut)
    decode_page(data * 200, f"text/plain; charset={charset}", is_truncated=is_cut)
