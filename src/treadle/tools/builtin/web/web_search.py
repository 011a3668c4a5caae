"""`web_search`: results of a search service that the user has configured, such as SearXNG.

For models whose provider has no search of its own (`ModelOptions.web_search`). The address is the
user's, so it may be on this machine. What is found is data: the heading says where it comes from.
"""

from typing import Annotated, ClassVar
from urllib.parse import urlencode, urlsplit

import msgspec

from treadle.core.contracts.tool import Access, ToolOutput
from treadle.core.errors import ConfigError, ToolError
from treadle.core.transcript.content import Arguments
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.session_memory import CallSite, ToolSessions
from treadle.tools.builtin.web.http_fetch import FetchPage, HttpFetcher

MAX_RESULTS = 10
MAX_TEXT_CHARS = 400
_EXAMPLE = "write the address of a SearXNG server, such as https://search.example.org"


class WebSearchArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, describe("What to look for")]


class _Result(msgspec.Struct):
    url: str = ""
    title: str | None = None
    content: str | None = None


class _Results(msgspec.Struct):
    results: list[_Result] = []


class WebSearchTool(BuiltinTool[WebSearchArguments]):
    """`address` is that of a SearXNG server; `fetch` fetches one page of it."""

    name = "web_search"
    kind = "search"
    arguments_type = WebSearchArguments
    timeout = 60.0
    aliases = ("google_web_search", "google_search", "search_web", "internet_search")
    argument_aliases: ClassVar = {"q": "query", "search_query": "query", "text": "query"}

    def __init__(
        self, sessions: ToolSessions, *, address: str = "", fetch: FetchPage | None = None
    ) -> None:
        super().__init__(sessions)
        self._address = check_search_address(address)
        host = urlsplit(self._address).hostname or ""
        self._fetch: FetchPage = fetch or HttpFetcher(private_hosts=frozenset({host}))

    def validate(self, args: WebSearchArguments) -> str | None:
        return None if args.query.strip() else "the query is empty"

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(url=self._make_url(self.parse_arguments(arguments).query))

    def _make_url(self, query: str) -> str:
        return f"{self._address}/search?{urlencode({'q': query, 'format': 'json'})}"

    async def run(self, args: WebSearchArguments, site: CallSite) -> ToolOutput:
        service = f"the search service {self._address}"
        try:
            page = await self._fetch(self._make_url(args.query))
        except ToolError as error:
            problem = f"{error}. Check that it runs, or change the setting web_search"
            raise ToolError(f"{service} gave no answer: {problem}") from error
        if page.status == 403:
            problem = "allows no JSON; add `json` to `search.formats` in its settings.yml"
            raise ToolError(f"{service} {problem}")
        if page.status != 200:
            raise ToolError(f"{service} answered {page.status}")
        try:
            found = msgspec.json.decode(page.body, type=_Results).results
        except msgspec.MsgspecError as error:
            problem = f"sent no list of results ({error}); is it SearXNG?"
            raise ToolError(f"{service} {problem}") from error
        if not found:
            return ToolOutput(f"Nothing was found for {args.query!r}.", display="Nothing found")
        shown = [_format_result(n, one) for n, one in enumerate(found[:MAX_RESULTS], start=1)]
        text = f"Results of a web search for {args.query!r}, as they were found there:\n\n"
        display = escape_multiline(f"{plural(len(shown), 'result')} for {args.query}")
        return ToolOutput(text + "\n".join(shown), display=display)


def check_search_address(address: str) -> str:
    """The address without a slash at its end; ConfigError if it is none."""
    parts = urlsplit(address.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"web_search is {address!r}; {_EXAMPLE}")
    return address.strip().rstrip("/")


def _format_result(number: int, result: _Result) -> str:
    text = " ".join((result.content or "").split())[:MAX_TEXT_CHARS]
    lines = [f"{number}. {result.title or result.url}", f"   {result.url}"]
    return "\n".join([*lines, f"   {text}"] if text else lines)
