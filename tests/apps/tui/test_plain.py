"""The plain mode as a process: lines in, lines out, nothing drawn."""

import asyncio
import os
import signal
from pathlib import Path

from tests.apps.tui.harness import exists, write_file
from tests.apps.tui.tmux import PROGRAM
from treadle.testing.provider.answers import ProviderFault
from treadle.testing.provider.script import FakeCall, FakeReply
from treadle.testing.provider.server import ProviderServer

MAKE = FakeReply("I make it.", calls=(FakeCall("bash", {"command": "touch made.txt"}),))


async def start(server: ProviderServer, *more: str) -> asyncio.subprocess.Process:
    env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    return await asyncio.create_subprocess_exec(
        *(str(PROGRAM), "--plain", "--model=claude-sonnet-4-5", "--sandbox=off", *more),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )


async def run_lines(server: ProviderServer, *lines: str) -> tuple[int, str]:
    process = await start(server)
    out, err = await process.communicate("".join(f"{line}\n" for line in lines).encode())
    assert b"Traceback" not in err, err.decode()
    return process.returncode or 0, out.decode()


async def test_a_conversation_through_pipes():
    async with ProviderServer(
        [FakeReply("Hello *there*."), FakeReply("Bye.")], strict=False
    ) as server:
        code, out = await run_lines(server, "1", "hi", "/mode", "4", "!echo $((40 + 2))", "bye")
    assert code == 0
    assert "Hello *there*." in out
    assert "Bye." in out
    assert "42" in out
    assert "\x1b" not in out


async def test_the_model_gets_the_output_of_a_users_command_without_secrets(monkeypatch):
    monkeypatch.setenv("OTHER_TOKEN", "another-secret-value")
    write_file("config.ini", "another-secret-value 42\n")
    async with ProviderServer([FakeReply("I see.")], strict=False) as server:
        _, out = await run_lines(server, "1", "!cat config.ini; exit 3", "look")
        assert b"[redacted] 42" in server.requests[-1].body
        assert b"another-secret-value" not in server.requests[-1].body
    assert "[redacted] 42\nexit code 3" in out


async def test_calls_in_doubt_after_a_crash_are_listed_when_the_turn_continues():
    make = FakeReply(calls=(FakeCall("bash", {"command": "touch made.txt; sleep 20"}),))
    async with ProviderServer([make, FakeReply("I look first.")], strict=False) as server:
        process = await start(server)
        assert process.stdin is not None
        process.stdin.write(b"1\nmake it\n1\n")
        while not exists("made.txt"):  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        process.kill()
        await process.communicate()
        process = await start(server, "--continue")
        out, _ = await process.communicate(b"\n")
    assert "calls open at the interruption: bash" in out.decode()
    assert "I look first." in out.decode()


async def test_double_slash_slash_space_and_a_lone_exclamation_mark_are_sent():
    async with ProviderServer([FakeReply("Seen.")] * 3, strict=False) as server:
        await run_lines(server, "1", "// a comment", "/ alone", "!")
        for text, request in zip(("// a comment", "/ alone", "!"), server.requests, strict=True):
            assert f'"{text}"'.encode() in request.body


async def test_the_model_asks_and_another_answer_is_typed():
    ask = FakeCall("ask", {"question": "Which one?", "options": ["red", "blue"]})
    async with ProviderServer([FakeReply(calls=(ask,)), FakeReply("Thanks.")], strict=False) as on:
        _, out = await run_lines(on, "1", "paint it", "3", "green")
        assert b"The user answered: green" in on.requests[-1].body
    assert "  3 Another answer\n" in out


async def test_an_approval_by_a_line():
    async with ProviderServer([MAKE, FakeReply("Made.")], strict=False) as server:
        code, out = await run_lines(server, "1", "make it", "y")
    assert code == 0
    assert "touch made.txt" in out
    assert "Made." in out
    assert exists("made.txt")


async def test_a_question_shows_what_would_not_be_seen():
    write = FakeCall("write", {"file_path": "a\u202e.txt", "content": "a\u202e\u200bb\n"})
    async with ProviderServer(
        [FakeReply(calls=(write,)), FakeReply("I see.")], strict=False
    ) as server:
        _, out = await run_lines(server, "1", "make it", "3", "no")
    assert "+a\\u202e\\u200bb\n" in out
    assert not set(out) & {"\u202e", "\u200b"}


async def test_a_denial_with_a_reason():
    async with ProviderServer([MAKE, FakeReply("I see.")], strict=False) as server:
        _, out = await run_lines(server, "1", "make it", "3", "not today")
        assert b"not today" in server.requests[-1].body
    assert "I see." in out
    assert not exists("made.txt")


async def test_no_more_input_at_a_question_stops_the_turn():
    async with ProviderServer([MAKE], strict=False) as server:
        code, out = await run_lines(server, "1", "make it")
    assert code == 0
    assert "interrupted" in out
    assert not exists("made.txt")


async def test_not_trusted_and_left():
    async with ProviderServer([FakeReply("x")]) as server:
        code, _ = await run_lines(server, "4")
    assert code == 0
    assert not exists(str(Path.home() / ".treadle" / "trust.json"))


async def test_a_no_for_good_is_not_asked_about_again_and_can_be_taken_back():
    async with ProviderServer([FakeReply("Hi."), FakeReply("Again.")], strict=False) as server:
        _, first = await run_lines(server, "3", "hello")
        _, second = await run_lines(server, "hello", "/trust", "1", "/trust")
    assert "Do you trust" in first
    assert "Again." in second
    assert second.index("this folder is not trusted") < second.index("Do you trust")
    assert "its own files take effect now" in second
    assert "this folder is trusted\n" in second


async def test_fault_80_81_ctrl_c_stops_and_the_second_leaves():
    slow = ProviderFault("paced", seconds=0.02)
    async with ProviderServer([FakeReply("word " * 2_000)], faults=[slow], strict=False) as server:
        process = await start(server)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"1\ntalk\n")
        await process.stdout.readuntil(b"word word")
        process.send_signal(signal.SIGINT)
        await process.stdout.readuntil(b"interrupted")
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 10) == 130
        process.stdin.close()
        await process.stdout.read()
