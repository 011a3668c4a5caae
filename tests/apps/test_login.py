"""`treadle login`: a key is checked with one request, kept, and used by later runs."""

import stat
from pathlib import Path

from tests.apps.program import run
from treadle.apps.console import exit_codes
from treadle.testing.provider import FakeReply, ProviderFault, ProviderServer

KEY = "sk-test-0123456789abcdef"
TYPED = f"{KEY}\n".encode()


async def test_a_key_is_checked_kept_and_used():
    async with ProviderServer([FakeReply("yes"), FakeReply("Hello.")]) as server:
        url = server.url
        ran = await run(None, "login", "anthropic", said=TYPED, ANTHROPIC_BASE_URL=url)
        assert ran.code == 0, ran.err
        assert "anthropic accepts the key; it is kept in" in ran.out
        assert KEY not in ran.out
        file = Path.home() / ".treadle/keys.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        ran = await run(None, "-p", "hi", "--model=claude-sonnet-4-5", ANTHROPIC_BASE_URL=url)
        assert ran.out.strip() == "Hello."
        assert [one.headers["x-api-key"] for one in server.requests[:2]] == [KEY, KEY]
    ran = await run(None, "login", "--remove", "anthropic")
    assert ran.code == 0
    ran = await run(None, "-p", "hi", "--model=claude-sonnet-4-5", ANTHROPIC_BASE_URL=url)
    assert "needs a key: set ANTHROPIC_API_KEY" in ran.err
    assert "treadle login" in ran.err


async def test_a_key_that_the_provider_refuses_is_not_kept():
    fault = ProviderFault("unauthorized", times=-1)
    async with ProviderServer([FakeReply("yes")], faults=[fault]) as server:
        url = server.url
        ran = await run(None, "login", "anthropic", said=TYPED, ANTHROPIC_BASE_URL=url)
    assert ran.code == exit_codes.ACCESS_DENIED
    assert "The key is not kept." in ran.out
    assert not (Path.home() / ".treadle/keys.json").exists()


async def test_an_unknown_provider_and_no_key_change_nothing():
    ran = await run(None, "login", "aol", said=b"")
    assert "'aol' is no provider that takes a key: anthropic, openai" in ran.err
    ran = await run(None, "login", "openai", said=b"\n")
    assert "no key was given; nothing is changed" in ran.out


async def test_a_damaged_file_of_keys_is_named_and_stops_nothing():
    file = Path.home() / ".treadle/keys.json"
    file.parent.mkdir()
    file.write_text("{")
    ran = await run(None, "sessions")
    assert ran.code == 0
    assert f"{file} cannot be read" in ran.err
    assert "log in again with `treadle login`" in ran.err
