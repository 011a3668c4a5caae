"""The plain mode as a process: lines in, lines out, nothing drawn."""

import asyncio
import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import termios
import threading
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.apps.tui.events import after
from tests.apps.tui.harness import exists, write_file
from tests.apps.tui.tmux import PROGRAM
from tests.patience import PATIENCE, until
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.view_state import ViewState, close_stream
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.plain import PlainFrontend
from treadle.apps.tui.render.plain_transcript import WordWrap, wrap_words
from treadle.core.events import TextDelta
from treadle.core.transcript import to_user_item
from treadle.core.transcript.entries import ItemAdded
from treadle.sessions import Library
from treadle.testing.provider.answers import ProviderFault
from treadle.testing.provider.http import ReceivedRequest
from treadle.testing.provider.script import FakeCall, FakeReply
from treadle.testing.provider.server import ProviderServer

CODE = (
    "Look:\n\n```python\ndef f():\n    return 1\n```\n\n`x` is next. ~~No~~.\n\n~~~\na\n\nb\n~~~\n"
)
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


class PlainTerminal:
    """The plain mode on a pseudo-terminal: what was typed, and all that was printed."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.shown = ""
        self._lock = threading.Lock()
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    async def start(
        self, server: ProviderServer, *more: str, preexec_fn: Callable[[], None] | None = None
    ) -> None:
        env = {**os.environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        command = (str(PROGRAM), "--plain", "--model=claude-sonnet-4-5", "--sandbox=off", *more)
        self.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=env,
            preexec_fn=preexec_fn,
        )
        os.close(self.slave)
        os.set_blocking(self.master, False)

    def type(self, line: str) -> None:
        self.type_keys(line + "\n")

    def type_keys(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    async def sees(self, text: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            await asyncio.to_thread(self.read)
        return self.shown

    def read(self) -> None:
        """What is there, if something comes soon; another thread may be faster."""
        if select.select([self.master], [], [], 0.2)[0]:
            with self._lock, contextlib.suppress(BlockingIOError):
                data = os.read(self.master, 65_536)  # may end inside a character
                self.shown += self._decoder.decode(data).replace("\r", "")

    def read_until(self, text: str) -> None:
        """For a reply of the provider, while a thread of `sees` may read, too."""
        while text not in self.shown:
            self.read()

    async def close(self) -> None:
        self.process.kill()
        await self.process.wait()
        os.close(self.master)


async def run_lines(
    server: ProviderServer, *lines: str, options: tuple[str, ...] = ()
) -> tuple[int, str]:
    process = await start(server, *options)
    out, err = await process.communicate("".join(f"{line}\n" for line in lines).encode())
    assert b"Traceback" not in err, err.decode()
    return process.returncode or 0, out.decode()


async def test_a_session_that_is_open_elsewhere_ends_with_its_own_exit_code():
    journal = Library().create(Path.cwd())
    journal.append(ItemAdded(to_user_item("hello")))
    await journal.flush()
    async with ProviderServer([]) as server:
        code, _ = await run_lines(server, "1", options=("--resume", journal.session_id))
    await journal.aclose()
    assert code == 68


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
        await until(lambda: exists("made.txt"))  # another process makes it
        process.kill()
        await process.communicate()
        process = await start(server, "--continue")
        out, _ = await process.communicate(b"\n")
    assert "This command was running when the program stopped: touch made.txt" in out.decode()
    assert "I look first." in out.decode()


async def test_an_unfinished_turn_is_announced_before_an_enter_continues_it():
    make = FakeReply("I will.", calls=(FakeCall("bash", {"command": "touch made.txt; sleep 20"}),))
    async with ProviderServer([make, FakeReply("I look first.")], strict=False) as server:
        on = PlainTerminal()
        await on.start(server, "make it")
        await on.sees("1 to 4: ")
        on.type("1")
        await on.sees("Allow, 1 to 6: ")
        on.type("y")
        await until(lambda: exists("made.txt"))  # another process makes it
        await on.close()
        on = PlainTerminal()
        on.type("")  # before anything is shown
        await on.start(server, "--continue")
        await on.sees("the last turn is not finished; press enter to continue it\n[ask] > ")
        assert len(server.requests) == 1
        on.type("")
        await on.sees("I look first.")
        await on.close()


async def test_a_running_command_of_the_user_does_not_hold_back_the_reply():
    on = PlainTerminal()
    async with ProviderServer([FakeReply("Hello.")], strict=False) as server:
        await on.start(server)
        await on.sees("1 to 4: ")
        on.type("2")
        await on.sees("[ask] > ")
        on.type("!mkfifo pipe; cat pipe")
        on.type("hi")
        await on.sees("Hello.")
        write_file("pipe", "through\n")
        shown = await on.sees("through")
        assert shown.index("Hello.") < shown.index("through")
        await on.close()


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


@pytest.mark.parametrize("is_multiple", [False, True])
async def test_own_words_answer_a_question_once_and_the_next_line_is_a_message(is_multiple: bool):
    given = {"question": "Which?", "options": ["red", "blue"], "multi_select": is_multiple}
    ask = FakeCall("ask", given)
    replies = [FakeReply(calls=(ask,)), FakeReply("Thanks."), FakeReply("More.")]
    async with ProviderServer(replies, strict=False) as on:
        _, out = await run_lines(on, "1", "paint it", "a dark green", "and a door")
        assert b"The user answered: a dark green" in on.requests[1].body
        assert b"and a door" in on.requests[2].body
    assert out.count("own words: ") == 1


async def test_a_question_with_several_answers_takes_numbers_with_commas():
    given = {"question": "Which ones?", "options": ["red", "blue", "green"], "multi_select": True}
    replies = [FakeReply(calls=(FakeCall("ask", given),)), FakeReply("Thanks.")]
    async with ProviderServer(replies, strict=False) as on:
        _, out = await run_lines(on, "1", "paint it", "1,3,4", "and grey")
        assert b"The user answered: red, green, and grey" in on.requests[-1].body
    assert "Which ones? 1 to 4, several with commas, or your own words: " in out


async def test_approvals_and_a_plan_by_lines():
    names = ("a.txt", "b.txt", "c.txt")
    touch = [FakeCall("bash", {"command": f"touch {name}"}) for name in names]
    plan = FakeCall("present_plan", {"plan": "1. Make them"})
    replies = [
        FakeReply(calls=(plan,)),
        FakeReply(calls=(plan,)),
        FakeReply(calls=tuple(touch)),
        FakeReply("Made."),
    ]
    async with ProviderServer(replies, strict=False) as server:
        lines = ("1", "make them", "n", "shorter", "m", "2", "y", "y all")
        code, out = await run_lines(server, *lines, options=("--permission-mode=plan",))
        assert b"wants this changed: shorter" in server.requests[-1].body
    assert code == 0
    assert "1. Make them" in out
    assert "3 calls need your approval" in out
    assert "writes: b.txt" in out
    assert "2 calls need your approval" in out
    assert "Made." in out
    assert all(exists(name) for name in names)


async def test_a_question_shows_what_would_not_be_seen():
    write = FakeCall("write", {"file_path": "a\u202e.txt", "content": "a\u202e\u200bb\n"})
    async with ProviderServer(
        [FakeReply(calls=(write,)), FakeReply("I see.")], strict=False
    ) as server:
        _, out = await run_lines(server, "1", "make it", "4", "no")
    assert "+a\\u202e\\u200bb\n" in out
    assert not set(out) & {"\u202e", "\u200b"}


async def test_blank_lines_do_not_push_the_beginning_of_a_command_off_the_screen():
    hidden = FakeCall("bash", {"command": "touch made.txt" + "\n \n" * 40 + "\necho done"})
    replies = [FakeReply(calls=(hidden,)), FakeReply("I see.")]
    async with ProviderServer(replies, strict=False) as server:
        _, out = await run_lines(server, "1", "make it", "4", "no")
    assert "\n[80 blank lines]\necho done\n" in out
    assert not exists("made.txt")


async def test_a_denial_with_a_reason():
    async with ProviderServer([MAKE, FakeReply("I see.")], strict=False) as server:
        _, out = await run_lines(server, "1", "make it", "4", "not today")
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
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 130
        process.stdin.close()
        await process.stdout.read()


async def test_a_reply_with_code_is_printed_as_it_is_however_it_arrives():
    for text in (CODE, "word " * 1_500 + "end\n"):
        for size in (1, 2, 3, 7, 50, 100_000):
            out = StringIO()
            plain = PlainFrontend(HostedSession(Path.cwd()), TerminalOptions(), out)
            questions = SimpleNamespace(waiting=[])
            state = SimpleNamespace(view=ViewState(), questions=questions, is_idle=False)
            plain.session.conversation = cast(Conversation, state)
            for start in range(0, len(text), size):
                delta = (TextDelta, text[start : start + size])
                state.view = after(delta, view=state.view)
                plain.mark_changed()
            state.view = close_stream(state.view)
            plain.mark_changed()
            assert out.getvalue() == text


def test_lines_are_broken_between_words_however_a_text_arrives():
    text = "  A list of words,\nand one-that-is-longer-than-the-line end.\n"
    wanted = "  A list\n  of\n  words,\nand\none-that-is-longer-than-the-line\nend.\n"
    assert wrap_words(text, 9) == wanted
    assert wrap_words(text, 0) == text
    wrap = WordWrap()
    pieces = [wrap.feed(piece, 9) for piece in re.split(r"(?<=\s)", text)]
    assert "".join(pieces) == wanted


async def test_at_a_narrow_terminal_a_reply_is_broken_between_words_and_its_code_is_not():
    on = PlainTerminal()
    termios.tcsetwinsize(on.slave, (24, 40))
    code = "x = 'a line of code that is longer than forty columns'"
    reply = FakeReply(f"These are some words that do not fit.\n\n```\n{code}\n```\n")
    async with ProviderServer([reply], strict=False) as server:
        await on.start(server)
        await on.sees("1 to 4: ")
        on.type("1")
        await on.sees("[ask] > ")
        on.type("go")
        shown = await on.sees("```\n[ask] > ")
        assert "These are some words that do not fit.\n" in shown
        assert f"\n{code}\n" in shown
        question = shown[shown.index("If you trust it") : shown.index("  1 Trust")]
        assert all(len(line) <= 40 for line in question.splitlines())
        assert "AGENTS.md and CLAUDE.md, settings, commands" in " ".join(question.split())
        await on.close()


async def test_a_message_of_the_program_waits_for_the_end_of_a_sentence():
    out = StringIO()
    plain = PlainFrontend(HostedSession(Path.cwd()), TerminalOptions(), out)
    questions = SimpleNamespace(waiting=[])
    state = SimpleNamespace(view=ViewState(), questions=questions, is_idle=False)
    plain.session.conversation = cast(Conversation, state)
    plain.show_message("At once.")
    state.view = after((TextDelta, "That is "), view=state.view)
    plain.mark_changed()
    plain.show_message("a server is down")
    state.view = close_stream(after((TextDelta, "all."), view=state.view))
    plain.mark_changed()
    assert out.getvalue() == "At once.\nThat is all.\na server is down\n"


async def test_the_prompt_and_the_message_are_shown_once():
    on = PlainTerminal()
    async with ProviderServer([FakeReply("Hello."), FakeReply("Bye.")], strict=False) as server:
        await on.start(server, "hi there")
        await on.sees("1 to 4: ")
        on.type("2")
        shown = await on.sees("Hello.\n[ask] > ")
        assert shown.count("[ask] > ") == 1
        assert "You: hi there\nHello." in shown
        on.type("so long")
        shown = await on.sees("Bye.\n[ask] > ")
        assert shown.count("so long") == 1  # as typed
        on.type("/todo")
        await on.sees("[ask] > /todo\nthere is no todo list\n[ask] > ")
        await on.close()


async def test_lines_typed_before_a_question_do_not_answer_it():
    on = PlainTerminal()
    on.type("y")
    async with ProviderServer(
        [FakeReply("Yes?"), MAKE, FakeReply("Made.")], strict=False
    ) as server:
        await on.start(server)
        await on.sees("1 to 4: ")
        assert not exists(str(Path.home() / ".treadle" / "trust.json"))
        on.type("1")
        await on.sees("Yes?")  # the line was kept as a message
        on.type("make it")
        await on.sees("Allow, 1 to 6: ")
        on.type("stop it")
        await on.sees("your message was sent; the question is still open\nAllow, 1 to 6: ")
        assert not exists("made.txt")
        on.type("y")
        await on.sees("Made.")
        assert b"stop it" in server.requests[-1].body
        await on.close()


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        ("a", "", "your message was sent; the question is still open\n"),
        ("y", "", "your message was sent; the question is still open\n"),
        ("oka", "y", "neither sent nor taken as an answer: okay\n"),
        ("first ", "the tests", "your message was sent; the question is still open\n"),
    ],
)
async def test_a_line_begun_before_an_approval_does_not_answer_it(before, after, outcome):
    on = PlainTerminal()
    written = asyncio.Event()

    def reply(request: ReceivedRequest) -> FakeReply:
        if len(server.requests) > 1:
            return FakeReply("Made.")
        on.type_keys(before)
        on.read_until(f"make it\n{before}")  # the terminal has the keys
        written.set()
        return MAKE

    async with ProviderServer(reply, strict=False) as server:
        await on.start(server)
        await on.sees("1 to 4: ")
        on.type("1")
        await on.sees("[ask] > ")
        on.type("make it")
        await written.wait()
        await on.sees(f"You began a message before this question: {before}\n")
        await on.sees("Allow, 1 to 6: ")
        on.type(after)
        await on.sees(f"{outcome}Allow, 1 to 6: ")
        assert not exists("made.txt")
        assert not exists(".treadle/settings.local.json")
        on.type("y")
        await on.sees("Made.")
        assert exists("made.txt")
        is_sent = f'"{before}{after}"'.encode() in server.requests[-1].body
        assert is_sent == outcome.startswith("your message")
        await on.close()


async def test_a_line_begun_before_the_trust_question_is_sent_as_a_message_later():
    on = PlainTerminal()
    on.type_keys("1")
    async with ProviderServer([FakeReply("Yes?")], strict=False) as server:
        await on.start(server)
        await on.sees("1 to 4: ")
        on.shown = ""
        on.type(" and 2")
        await on.sees("1 to 4: ")
        assert not exists(str(Path.home() / ".treadle" / "trust.json"))
        on.type("1")
        await on.sees("Yes?")
        assert b'"1 and 2"' in server.requests[-1].body
        await on.close()


async def test_a_changed_limit_prints_the_conversation_only_once():
    async with ProviderServer([FakeReply("Hello.")], strict=False) as server:
        _, out = await run_lines(server, "1", "hi", "/budget 3")
    assert "max_cost: " in out
    assert out.count("Hello.") == 1


@pytest.mark.parametrize(
    ("choice", "told"), [("1", "not sent; to send it, type it again: msg A"), ("2", "")]
)
async def test_an_approval_waits_until_both_steps_of_an_open_menu_are_done(choice, told):
    on = PlainTerminal()

    def reply(request: ReceivedRequest) -> FakeReply:
        if len(server.requests) > 1:
            return FakeReply("Made.")
        on.type("msg A")
        on.type("/queue")
        on.read_until("Queued messages, 1 to 1: ")
        return MAKE

    async with ProviderServer(reply, strict=False) as server:
        await on.start(server)
        await on.sees("1 to 4: ")
        on.type("2")
        await on.sees("[ask] > ")
        on.type("make it")
        await on.sees("Queued messages, 1 to 1: ")
        on.type("1")
        await on.sees("What to do with this message? 1 to 4: ")
        on.type(choice)
        shown = await on.sees("Allow, 1 to 6: ")
        assert told in shown
        assert "Queued messages, 1 to 1: 1\n" in shown  # the reply is not in the line of the menu
        assert "I make it." in shown
        assert not exists("made.txt")
        on.type("y")
        await on.sees("Made.")
        assert b"msg A" not in server.requests[-1].body
        await on.close()


async def test_ctrl_c_works_after_a_paste_of_several_lines_at_an_approval():
    on = PlainTerminal()
    async with ProviderServer([MAKE, FakeReply("Made.")], strict=False) as server:
        await on.start(server, preexec_fn=_own_terminal)
        await on.sees("1 to 4: ")
        on.type("2")
        await on.sees("[ask] > ")
        on.type("make it")
        await on.sees("Allow, 1 to 6: ")
        on.type_keys("first\nsecond\nthird")
        await on.sees("You began a message before this question: third\n")
        await on.sees(
            "The next line that you type continues it and does not answer the question.\nAllow"
        )
        on.type_keys("\x03")
        await on.sees("interrupted")
        await on.close()


async def test_ctrl_c_after_an_interruption_asks_for_another_one():
    on = PlainTerminal()
    slow = ProviderFault("paced", seconds=0.02)
    async with ProviderServer([FakeReply("word " * 2_000)], faults=[slow], strict=False) as server:
        await on.start(server, "talk", preexec_fn=_own_terminal)
        await on.sees("1 to 4: ")
        on.type("2")
        await on.sees("word word")
        on.type_keys("\x03")
        await on.sees("interrupted\n[ask] > ")
        on.type_keys("\x03")
        await on.sees("press ctrl+c again to quit\n[ask] > ")
        on.type_keys("\x03")
        await on.sees("\nto continue this session: treadle --resume ")
        assert await on.process.wait() == 0
        os.close(on.master)


@pytest.mark.parametrize("keys", ["/quit\n", "\x04"])
async def test_no_prompt_comes_after_the_user_quits(keys: str):
    on = PlainTerminal()
    async with ProviderServer([FakeReply("Hello.")], strict=False) as server:
        await on.start(server, "hi", preexec_fn=_own_terminal)
        await on.sees("1 to 4: ")
        on.type("2")
        await on.sees("Hello.\n[ask] > ")
        on.type_keys(keys)
        await on.sees("to continue this session: treadle --resume ")
        typed = keys if keys.startswith("/") else "\n"
        assert f"Hello.\n[ask] > {typed}to continue" in on.shown
        assert await on.process.wait() == 0
        os.close(on.master)


async def test_ctrl_c_discards_a_line_and_the_second_quits_and_names_the_session():
    on = PlainTerminal()
    async with ProviderServer([FakeReply("Hello.")], strict=False) as server:
        await on.start(server, "hi", preexec_fn=_own_terminal)
        await on.sees("1 to 4: ")
        on.type("2")
        await on.sees("Hello.\n[ask] > ")
        on.type_keys("half a line\x03")
        await on.sees("press ctrl+c again to quit\n[ask] > ")
        on.type("/mode")
        await on.sees("Permission mode (now ask), 1 to 4: ")
        on.type_keys("\x03")
        await on.sees("to 4: ^C\n[ask] > ")
        on.shown = ""
        on.type("/help")
        shown = await on.sees("ctrl+d   quit\n[ask] > ")
        assert "discard the line; twice: quit" in shown
        assert "ctrl+o" not in shown
        on.shown = ""
        on.type_keys("\x03")
        await on.sees("^C\npress ctrl+c again to quit\n[ask] > ")
        on.type_keys("\x03")
        await on.sees("\nto continue this session: treadle --resume ")
        assert await on.process.wait() == 0
        os.close(on.master)


def _own_terminal() -> None:
    """Make the standard input the terminal of a new session: ctrl+c reaches its processes."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
