"""What is printed at a terminal is read there, never obeyed: the real program on a terminal."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import os
import pty
from pathlib import Path

import pytest

from tests.apps.program import PROGRAM, environment, read_terminal, run
from treadle.apps.cli.output import Stdout
from treadle.apps.cli.text_stream import TextStream
from treadle.core.events import ReplyDiscarded, TextDelta
from treadle.core.transcript import AssistantItem, Text
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

EVIL = "\x1b]52;c;UFdORUQ=\x07\x1b]0;TITLE\x07\x1b[2JEVIL\x9b31m\u202eEVIL2\r"
OBEYED = ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\x07")


async def on_terminal(
    server: ProviderServer | None, *arguments: str, cwd: Path | None = None
) -> str:
    """All that the program writes, where its three streams are a terminal."""
    ours, theirs = pty.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *arguments,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env=environment(server, TERM="xterm", COLUMNS="300", NO_COLOR="1"),
        )
        os.close(theirs)
        said = await asyncio.to_thread(read_terminal, ours)
        await process.wait()
    finally:
        os.close(ours)
    return said.decode()


def check(said: str) -> None:
    assert "EVIL" in said
    assert not [sign for sign in OBEYED if sign in said]


async def test_an_answer_is_harmless_on_a_terminal_and_in_a_pipe_unless_it_is_raw():
    async with ProviderServer([FakeReply(f"Hello {EVIL} end")] * 3) as server:
        check(await on_terminal(server, "-p", "go"))
        piped = await run(server, "-p", "go")
        raw = await run(server, "-p", "--raw", "go")
    assert piped.out == "Hello EVIL\\u202eEVIL2␍ end\n"
    assert raw.out == f"Hello {EVIL} end\n"


async def test_text_appears_at_a_terminal_as_it_is_written_and_once():
    script = [
        FakeReply("I look first.", calls=(FakeCall("ls", {}),)),
        FakeReply("All is **well**.\n\nThe end."),
    ]
    async with ProviderServer(script * 3) as server:
        shown = (await on_terminal(server, "-p", "go")).replace("\r\n", "\n")
        quiet = (await on_terminal(server, "-qp", "go")).replace("\r\n", "\n")
        piped = await run(server, "-p", "go")
    assert shown.index("I look first.\n") < shown.index("· ") < shown.index("All is **well**.")
    assert shown.count("All is **well**.\n\nThe end.\n") == shown.count("The end.") == 1
    assert quiet == piped.out == "All is **well**.\n\nThe end.\n"


async def test_words_are_printed_while_the_model_writes_without_the_pieces_of_a_secret(monkeypatch):
    monkeypatch.setenv("SERVICE_API_KEY", "first half-second half")
    read_end, write_end = os.pipe()
    stream = TextStream(Stdout(lambda error: None, fd=write_end))

    def printed_after(*texts: str) -> str:
        for text in texts:
            stream.on_event(TextDelta("s", "t", 0, text))
        return os.read(read_end, 65_536).decode()

    assert printed_after("Hel", "lo wor") == "Hello "
    assert printed_after("ld and \x1b]0;t\x07mo") == "world and "
    assert printed_after("re, then first ha", "lf-sec", "ond half. ") == "more, then [redacted]. "
    stream.on_event(ReplyDiscarded("s", "t", 0, 10))
    assert printed_after("Again ") == "\nAgain "
    stream.on_item(0, AssistantItem((Text("Again and done"),)))
    assert not stream.has_printed("Something else")
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("kind", ["json", "stream-json"])
async def test_json_has_the_same_value_and_no_raw_controls(kind: str):
    async with ProviderServer([FakeReply(f"Hello {EVIL} end")]) as server:
        ran = await run(server, "-p", "go", "--output-format", kind)
    assert ran.lines[-1]["text"] == f"Hello {EVIL} end"
    assert not [sign for sign in OBEYED if sign in ran.out]


async def test_titles_of_sessions_are_harmless_wherever_they_are_listed():
    async with ProviderServer([FakeReply("That is all.")]) as server:
        await on_terminal(server, "-p", f"EVIL {EVIL}")
    for arguments in (
        ("cost", "--by", "session"),
        ("sessions", "list"),
        ("sessions", "search", "EVIL"),
        ("sessions", "prune", "--days", "0", "--dry-run"),
    ):
        check(await on_terminal(None, *arguments))
    [summary] = json.loads(f"[{(await run(None, 'sessions', 'list', '--json')).out}]")
    check(await on_terminal(None, "sessions", "show", summary["id"]))
    check(await on_terminal(None, "sessions", "export", summary["id"]))
    check(await on_terminal(None, "sessions", "export", "--format", "json", summary["id"]))


async def test_the_name_of_a_folder_is_harmless():
    folder = Path.cwd() / f"w{EVIL}"
    folder.mkdir()
    async with ProviderServer([]) as server:
        for arguments in (("trust",), ("config",), ("undo",), ("prompt",), ("trust", "--remove")):
            check(await on_terminal(server, *arguments, cwd=folder))


async def test_nothing_in_the_list_of_what_a_folder_brings_hides_or_forges_a_line():
    name = f"{EVIL}\n  server good runs true"
    hook = {"matcher": "", "hooks": [{"type": "command", "command": f"true {EVIL}"}]}
    settings = {
        "mcpServers": {name: {"command": f"x{EVIL}"}},
        "hooks": {"PreToolUse": [hook]},
        "permissions": {"allow": ["Read(./EVIL\u202e*)"]},
    }
    Path(".treadle").mkdir()
    Path(".treadle/settings.json").write_text(json.dumps(settings))
    said = await on_terminal(None, "trust")
    check(said)
    assert "\n  server good" not in said
    assert "x␛]52;c;UFdORUQ=␇␛]0;TITLE␇␛[2JEVIL\\u009b31m\\u202eEVIL2␍" in said
    check(await on_terminal(None, "permissions"))
