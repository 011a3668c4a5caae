"""web_search over a SearXNG server, here one on loopback that answers as SearXNG does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.helpers import ALL, failed, hands, plain
from tests.tools.builtin.test_web_fetch import answer, server
from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import Access, ToolSpec
from treadle.core.errors import ConfigError
from treadle.permissions.findings import PolicyContext
from treadle.permissions.policy import RulePolicy
from treadle.permissions.ruleset.rules_file import parse_rules

NAMES = (*ALL, "web_search")
FOUND = {
    "results": [
        {"title": "Cats", "url": "https://a.example/cats", "content": "All  about\ncats."},
        {"title": None, "url": "https://b.example", "content": None},
    ]
}


async def test_results_are_listed_and_marked_as_found_there(folder: Path) -> None:
    asked: list[str] = []

    def give(path: str) -> bytes:
        asked.append(path)
        return answer(body=json.dumps(FOUND).encode(), Content_Type="application/json")

    async with (
        server(give) as port,
        hands(folder, names=NAMES, search_address=f"http://127.0.0.1:{port}/") as agent,
    ):
        found = await agent.one("web_search", query="big cats & co")
    assert asked == ["/search?q=big+cats+%26+co&format=json"]
    assert plain(found) == (
        "Results of a web search for 'big cats & co', as they were found there:\n\n"
        "1. Cats\n   https://a.example/cats\n   All about cats.\n"
        "2. https://b.example\n   https://b.example"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (answer("403 Forbidden"), "search.formats"),
        (answer("500 Oops"), "answered 500"),
        (answer(body=b"<html>"), "is it SearXNG?"),
    ],
)
async def test_what_is_wrong_with_the_service_is_said(
    folder: Path, given: bytes, words: str
) -> None:
    async with (
        server(lambda _: given) as port,
        hands(folder, names=NAMES, search_address=f"http://127.0.0.1:{port}") as agent,
    ):
        refused = await agent.one("web_search", query="cats")
    assert words in failed(refused)


async def test_a_service_that_does_not_run_is_named_with_its_setting(folder: Path) -> None:
    async with server(lambda _: answer()) as port:
        pass  # nothing listens there any more
    address = f"http://127.0.0.1:{port}"
    async with hands(folder, names=NAMES, search_address=address) as agent:
        refused = failed(await agent.one("web_search", query="cats"))
    assert f"the search service {address} gave no answer" in refused
    assert f"127.0.0.1:{port} refused the connection" in refused
    assert "change the setting web_search" in refused
    assert "Errno" not in refused


async def test_an_address_that_is_none_is_an_error_of_the_settings(folder: Path) -> None:
    with pytest.raises(ConfigError, match="SearXNG"):
        async with hands(folder, names=NAMES, search_address="google"):
            pass


async def judge(rules: dict[str, list[str]], **given: Any) -> Verdict:
    context = PolicyContext("/r", "/h", parse_rules(rules, root="/r", home="/h"))
    spec = ToolSpec("web_search", "", {}, effect="pure")
    access = Access(url="https://search.example.org/search?q=x")
    request = PermissionRequest("s", "c", spec, {}, "", access)
    return await RulePolicy(context, **given).decide(request)


async def test_a_search_needs_a_rule_or_an_approval() -> None:
    asked = await judge({})
    assert isinstance(asked, Ask)
    assert asked.rules == ("web_search",)
    assert isinstance(await judge({"allow": ["WebSearch"]}), Allow)
    assert isinstance(await judge({"deny": ["web_search"]}, mode="bypass"), Deny)
    assert isinstance(await judge({}, interactive=False), Deny)
