"""`web_fetch`: a page of the web as Markdown.

A redirect within the same host is followed; one to another host is reported to the model, so that
the policy judges the next call. Text is returned in parts; the rest is cached for later calls.
"""

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Annotated, ClassVar
from urllib.parse import urldefrag, urljoin, urlsplit

import msgspec

from treadle.core.arguments.fit_names import Report
from treadle.core.contracts.tool import Access, ToolOutput
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments, Document, Image
from treadle.lib.files.media_types import IMAGE_MEDIA_TYPES, MAX_IMAGE_BYTES
from treadle.lib.http.local_hosts import is_loopback
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.file_text import decode_text, slice_part
from treadle.tools.builtin.session_memory import CallSite, ToolSessions
from treadle.tools.builtin.web.charsets import decode_page
from treadle.tools.builtin.web.http_fetch import FetchedPage, FetchPage, HttpFetcher

MAX_REDIRECTS = 5
PART_CHARS = 40_000
MAX_PAGES = 8
MAX_HOST_CHARS = 253
TRUNCATION_NOTE = "(the page was cut: it is too large)"


class WebFetchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: Annotated[str, describe("http or https")]
    offset: Annotated[int, describe("Character to read on from")] = 0
    prompt: Annotated[str, describe("What you are looking for")] = ""


class WebFetchTool(BuiltinTool[WebFetchArguments]):
    """`fetch` fetches one page without following redirects; the default refuses private hosts."""

    name = "web_fetch"
    kind = "fetch"
    aliases = ("fetch", "fetch_url", "browse", "http_get", "open_url", "read_url")
    argument_aliases: ClassVar = {"uri": "url", "link": "url", "address": "url"}
    arguments_type = WebFetchArguments
    timeout = 120.0

    def __init__(self, sessions: ToolSessions, *, fetch: FetchPage | None = None) -> None:
        super().__init__(sessions)
        self._fetch: FetchPage = fetch or HttpFetcher()

    @classmethod
    def repair_values(cls, arguments: Arguments, report: Report) -> Arguments:
        given = arguments.get("url")
        bare = _BARE_ADDRESS.match(given.strip()) if isinstance(given, str) else None
        if bare is None:
            return arguments
        scheme = "http" if is_loopback(bare["host"].strip("[]").lower()) else "https"
        url = f"{scheme}://{bare.string}"
        report.guess(f"`url` is `{url}`")
        return {**arguments, "url": url}

    def validate(self, args: WebFetchArguments) -> str | None:
        if args.offset < 0:
            return "offset counts characters from 0"
        return _check_url(args.url)

    @classmethod
    def describe_access(cls, arguments: Arguments, cwd: str) -> Access:
        return Access(url=cls.parse_arguments(arguments).url, cwd=cwd)

    async def run(self, args: WebFetchArguments, site: CallSite) -> ToolOutput:
        url = urldefrag(args.url.strip()).url
        cached = site.session.fetched_pages.get(url) if args.offset else None
        if cached is not None:
            return _format_part(url, cached, args)
        page = await self._fetch_with_redirects(url)
        content_type = page.headers.get("content-type", "")
        if not 200 <= page.status < 300:
            head = decode_page(page.body[:8_000], content_type, is_truncated=True)[:2_000].strip()
            body = f" Response body: {head}" if head else ""
            raise ToolError(f"{page.url} answered {page.status}.{body}")
        kind = content_type.partition(";")[0].strip().lower()
        is_image = kind in IMAGE_MEDIA_TYPES and len(page.body) <= MAX_IMAGE_BYTES
        if is_image and not page.is_truncated:
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
            try:
                target = urldefrag(urljoin(url, target)).url
                problem = _check_url(target)
            except ValueError as error:
                problem = f"not a URL: {error}"
            if problem is not None:
                raise ToolError(f"{url} redirects to {target[:200]!r}: {problem}")
            if not _is_same_site(url, target):
                raise ToolError(
                    f"{url} redirects to another host. If you want that page, "
                    f"call {self.name} with {target}"
                )
            url = target
        raise ToolError(f"more than {MAX_REDIRECTS} redirects, the last to {url}")


# A host with a dot, this machine or an address by numbers, with or without a port.
_BARE_ADDRESS = compile_lazily(
    r"(?P<host>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}|(?i:localhost)"
    r"|\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?=[/?#]|$)"
)


def _check_url(url: str) -> str | None:
    if any(ord(character) < 0x21 or ord(character) == 0x7F for character in url.strip()):
        return "the URL has spaces or control characters in it"
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError as error:
        return f"not a URL: {error}"
    if parts.scheme.lower() not in ("http", "https"):
        return "only http and https URLs can be fetched"
    if not parts.hostname or len(parts.hostname) > MAX_HOST_CHARS:
        return "the URL has no valid host"
    return "a URL with a user name in it is not fetched" if "@" in parts.netloc else None


def _is_same_site(url: str, target: str) -> bool:
    """The same host, with or without www, and not from https back to http."""
    first, second = urlsplit(url), urlsplit(target)
    names = [(parts.hostname or "").lower().removeprefix("www.") for parts in (first, second)]
    weaker = first.scheme == "https" and second.scheme == "http"
    return names[0] == names[1] and first.port == second.port and not weaker


async def _convert_in_thread(page: FetchedPage, kind: str) -> str:
    """In a thread: a hostile page takes seconds. After a cancellation the thread ends soon."""
    cancelled = threading.Event()
    try:
        return await asyncio.to_thread(_convert_page, page, kind, cancelled.is_set)
    finally:
        cancelled.set()


def _convert_page(page: FetchedPage, kind: str, is_cancelled: Callable[[], bool]) -> str:
    from treadle.tools.builtin.web.html_to_markdown import html_to_markdown

    is_truncated, content_type = page.is_truncated, page.headers.get("content-type", "")
    text = decode_page(page.body, content_type, is_truncated=is_truncated)
    if kind in ("text/html", "application/xhtml+xml") or (not kind and "<html" in text[:1_000]):
        markdown = html_to_markdown(text, page.url, is_cancelled=is_cancelled)
        text, is_truncated = markdown.text, is_truncated or markdown.is_truncated
    elif not (kind.startswith("text/") or re.search(r"json|xml|javascript|yaml|toml", kind)):
        if kind and kind != "application/octet-stream":
            raise ToolError(f"{page.url} is {kind}, which cannot be shown as text")
        if decode_text(page.body) is None:
            raise ToolError(f"{page.url} is binary data of {len(page.body):,} bytes, not text")
    return f"{text}\n\n{TRUNCATION_NOTE}" if is_truncated else text


def _format_part(url: str, text: str, args: WebFetchArguments) -> ToolOutput:
    part, rest = slice_part(text, args.offset, PART_CHARS)
    if not part.strip():
        nothing = "no more text" if args.offset else "no text"
        return ToolOutput(f"There is {nothing} on {url}.", display=f"Fetched {url}: no text")
    # The heading marks the text as content of a page, not as words of the user.
    content = f"Content of {url}, as it was found there:\n\n{part}{rest}"
    return ToolOutput(content, display=escape_multiline(f"Fetched {url}, {len(part)} characters"))
