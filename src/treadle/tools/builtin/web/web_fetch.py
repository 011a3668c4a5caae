"""`web_fetch`: a page of the web as Markdown.

A redirect within the same host is followed; one to another host is told, so that the next call is
judged for what it is. Text is given in parts; the rest is kept for a while to be read on.
"""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urldefrag, urljoin, urlsplit

import msgspec

from treadle.core.contracts.tool import Access, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments, Document, Image
from treadle.tools.builtin.base import BuiltinTool, escape_multiline
from treadle.tools.builtin.session import CallSite, ToolSessions
from treadle.tools.builtin.text import decode_text
from treadle.tools.builtin.web.charsets import decode_page
from treadle.tools.builtin.web.http_fetch import FetchedPage, FetchPage, HttpFetcher

MAX_REDIRECTS = 5
PART_CHARS = 40_000
MAX_PAGES = 8
MAX_IMAGE_BYTES = 3_900_000
MAX_HOST_CHARS = 253
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class WebFetchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, msgspec.Meta(description="An http or https address")]
    offset: Annotated[
        int, msgspec.Meta(description="Character to read on from, for a long page")
    ] = 0
    prompt: Annotated[str, msgspec.Meta(description="What you are looking for")] = ""


class WebFetchTool(BuiltinTool[WebFetchArguments]):
    """`fetch` brings one page without following redirects; ours refuses private addresses."""

    name = "web_fetch"
    arguments_type = WebFetchArguments
    timeout = 120.0

    def __init__(self, sessions: ToolSessions, *, fetch: FetchPage | None = None) -> None:
        super().__init__(sessions)
        self._fetch: FetchPage = fetch or HttpFetcher()

    def validate(self, args: WebFetchArguments) -> str | None:
        if args.offset < 0:
            return "offset counts characters from 0"
        return _check_url(args.url)

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(url=self.parse_arguments(arguments).url)

    async def run(self, args: WebFetchArguments, site: CallSite) -> ToolOutput:
        url = urldefrag(args.url.strip()).url
        kept = site.session.fetched_pages.get(url) if args.offset else None
        if kept is not None:
            return _format_part(url, kept, args)
        page = await self._fetch_with_redirects(url)
        if not 200 <= page.status < 300:
            head = decode_page(
                page.body[:8_000], page.headers.get("content-type", ""), is_truncated=True
            )
            text = head[:2_000].strip()
            raise ToolError(
                f"{page.url} answered {page.status}.{' It says: ' if text else ''}{text}"
            )
        kind = page.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in IMAGE_TYPES and len(page.body) <= MAX_IMAGE_BYTES and not page.is_truncated:
            return ToolOutput((Image(kind, page.body),), display=f"Fetched {page.url} ({kind})")
        if kind == "application/pdf" and not page.is_truncated:
            document = Document(kind, page.body, title=page.url.rpartition("/")[2])
            return ToolOutput((document,), display=f"Fetched {page.url} (PDF)")
        text = await _convert_in_thread(page, kind)
        site.session.fetched_pages[url] = text
        while len(site.session.fetched_pages) > MAX_PAGES:
            site.session.fetched_pages.popitem(last=False)
        return _format_part(page.url, text, args)

    async def _fetch_with_redirects(self, url: str) -> FetchedPage:
        for _ in range(MAX_REDIRECTS + 1):
            page = await self._fetch(url)
            target = page.headers.get("location")
            if page.status not in (301, 302, 303, 307, 308) or not target:
                return page
            there = urldefrag(urljoin(url, target)).url
            problem = _check_url(there)
            if problem is not None:
                raise ToolError(f"{url} redirects to {there[:200]!r}: {problem}")
            if not _is_same_site(url, there):
                raise ToolError(
                    f"{url} redirects to another host. If you want that page, "
                    f"call {self.name} with {there}"
                )
            url = there
        raise ToolError(f"{url} redirects again and again")


def _check_url(url: str) -> str | None:
    if any(ord(character) < 0x21 or ord(character) == 0x7F for character in url.strip()):
        return "there are blanks or control characters in the address"
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError as error:
        return f"not an address: {error}"
    if parts.scheme.lower() not in ("http", "https"):
        return "only http and https addresses can be fetched"
    if not parts.hostname or len(parts.hostname) > MAX_HOST_CHARS:
        return "the address names no host, or none that could be"
    return "an address with a user name in it is not fetched" if "@" in parts.netloc else None


def _is_same_site(one: str, other: str) -> bool:
    """The same host, with or without www, and not from https back to http."""
    first, second = urlsplit(one), urlsplit(other)
    names = [(parts.hostname or "").lower().removeprefix("www.") for parts in (first, second)]
    weaker = first.scheme == "https" and second.scheme == "http"
    same_port = first.port == second.port or (first.port is None and second.port is None)
    return names[0] == names[1] and same_port and not weaker


async def _convert_in_thread(page: FetchedPage, kind: str) -> str:
    """In a thread: seconds for a page made to take long. Cancelled, it ends on its own soon."""
    over = threading.Event()
    try:
        return await asyncio.to_thread(_convert_page, page, kind, over.is_set)
    finally:
        over.set()


def _convert_page(page: FetchedPage, kind: str, is_cancelled: Callable[[], bool]) -> str:
    from treadle.tools.builtin.web.html_to_markdown import TRUNCATION_NOTE, html_to_markdown

    text = decode_page(
        page.body, page.headers.get("content-type", ""), is_truncated=page.is_truncated
    )
    if kind in ("text/html", "application/xhtml+xml") or (not kind and "<html" in text[:1_000]):
        text = html_to_markdown(text, page.url, is_cancelled=is_cancelled)
    elif not (kind.startswith("text/") or re.search(r"json|xml|javascript|yaml|toml", kind)):
        if kind and kind != "application/octet-stream":
            raise ToolError(f"{page.url} is {kind}, which cannot be shown as text")
        if decode_text(page.body) is None:
            raise ToolError(f"{page.url} is binary data of {len(page.body):,} bytes, not text")
    return (
        f"{text}\n\n{TRUNCATION_NOTE}"
        if page.is_truncated and not text.endswith(TRUNCATION_NOTE)
        else text
    )


def _format_part(url: str, text: str, args: WebFetchArguments) -> ToolOutput:
    part = text[args.offset : args.offset + PART_CHARS]
    if not part.strip():
        nothing = "nothing more" if args.offset else "no text"
        return ToolOutput(f"There is {nothing} on {url}.", display=f"Fetched {url}: no text")
    end = args.offset + len(part)
    more = len(text) - end
    rest = f"\n\n({more} more characters; read on with offset={end})" if more > 0 else ""
    # What stands on a page is not what the user says.
    content = f"Content of {url}, as it was found there:\n\n{part}{rest}"
    return ToolOutput(content, display=escape_multiline(f"Fetched {url}, {len(part)} characters"))
