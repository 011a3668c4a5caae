"""Effects beyond files are taken back by the inverses that tools declare."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.apps.program import run
from treadle import Agent, UserItem, tool
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import Entry, Intent, ItemAdded, TurnBegan
from treadle.core.transcript.items import AssistantItem, CallOutcome, ToolResultItem
from treadle.models import Say, Scripted
from treadle.sessions import Journal, Library
from treadle.sessions.history import read_state
from treadle.sessions.log.journal import read_entries
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.tools.builtin.shell.inverse import find_inverse
from treadle.tools.undo import plan_undo

FREELY = ("--permission-mode", "bypass", "--sandbox", "off")


def git(*words: str, folder: str = ".") -> str:
    command = ["git", "-C", folder, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def bash(command: str) -> FakeReply:
    return FakeReply(calls=(FakeCall("bash", {"command": command}),))


async def test_a_commit_and_a_new_branch_are_taken_back_and_the_rest_is_named():
    git("init", "-q", "--bare", "-b", "main", "remote")
    git("init", "-q", "-b", "main")
    git("config", "user.name", "a")
    git("config", "user.email", "a@b")
    git("remote", "add", "origin", "./remote")
    Path("a.txt").write_text("one\n")
    git("add", "a.txt")
    git("commit", "-qm", "first")
    replies = [
        bash("echo two >> a.txt && git add a.txt"),
        bash("git commit -m second"),
        bash("git push origin main:topic"),
        FakeReply("Done."),
    ]
    async with ProviderServer(replies) as server:
        await run(server, "-p", "go", *FREELY)
    assert "topic" in git("branch", "--list", folder="remote")
    listed = await run(None, "undo", "--effects")
    lines = listed.out.splitlines()
    assert listed.code == 0, listed
    assert lines[0].startswith("1. [bash: git push origin main:topic] by bash: git push origin --")
    assert lines[1].startswith("2. [bash: git commit -m second] by bash: git revert --no-edit ")
    assert lines[2].startswith("cannot be taken back: [bash: echo two")
    assert "topic" in git("branch", "--list", folder="remote")  # it only lists
    for _ in range(2):
        done = await run(None, "undo", "--effects", "--only", "1", "--sandbox", "off")
        assert (done.code, done.out.splitlines()[-1]) == (0, "1 call of 1 carried out."), done
    session_dir = Library().find_latest(Path.cwd())
    assert session_dir is not None
    asked = [one.text for one in read_state(session_dir).transcript if isinstance(one, UserItem)]
    assert asked[1:] == [  # only what was chosen
        "Take back what these calls did: [bash: git push origin main:topic]",
        "Take back what these calls did: [bash: git commit -m second]",
    ]
    assert "topic" not in git("branch", "--list", folder="remote")
    assert Path("a.txt").read_text() == "one\n"
    assert git("log", "--format=%s").splitlines()[0] == 'Revert "second"'
    async with ProviderServer([FakeReply("More.")]) as server:
        more = await run(server, "-p", "--continue", "more")
    assert more.code == 0, more
    assert "this session used" not in more.err  # no model made the calls
    wrong = await run(None, "undo", "--sandbox", "off")
    assert (wrong.code, "--sandbox works with --effects" in wrong.err) == (2, True), wrong
    files = await run(None, "undo", "--only", "1")
    assert (files.code, "--only works with --effects" in files.err) == (2, True), files
    again = await run(None, "undo", "--effects", "--only", "all")
    assert (again.code, "nothing can be taken back" in again.out) == (0, True)


async def test_an_inverse_that_failed_is_made_again():
    git("init", "-q", "-b", "main")
    git("config", "user.name", "a")
    git("config", "user.email", "a@b")
    Path("a.txt").write_text("one\n")
    git("add", "a.txt")
    async with ProviderServer([bash("git commit -m first"), FakeReply("Done.")]) as server:
        await run(server, "-p", "go", *FREELY)
    Path("a.txt").write_text("mine\n")  # git does not revert over it
    first = await run(None, "undo", "--effects", "--only", "1", TREADLE_SANDBOX="off")
    failed = await run(None, "undo", "--effects", "--only", "1", TREADLE_SANDBOX="off")
    assert (first.code, failed.code) == (1, 1), (first, failed)
    assert "0 calls of 1 carried out. bash" in failed.out
    assert "   failed before: " in failed.out
    git("checkout", "a.txt")
    done = await run(None, "undo", "--effects", "--only", "all", TREADLE_SANDBOX="off")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 call of 1 carried out."), done
    assert git("log", "--format=%s").splitlines()[0] == 'Revert "first"'
    again = await run(None, "undo", "--effects", "--only", "all")
    assert again.out == "no turn had effects beyond files\n"


async def test_a_conversation_lists_effects_and_lets_the_model_take_them_back():
    git("init", "-q", "-b", "main")
    git("config", "user.name", "a")
    git("config", "user.email", "a@b")
    Path("a.txt").write_text("one\n")
    git("add", "a.txt")
    reading = bash("ls -la && git status | head -3")  # has no effect
    calls = [bash("echo two > b.txt"), reading, bash("git commit -m first")]
    replies = [*calls, FakeReply("Done."), FakeReply("Taken back.")]
    async with ProviderServer(replies) as server:
        await run(server, "trust")
        lines = b"go\n/undo\n/undo\n/effects\n/effects undo\n/quit\n"
        ran = await run(server, "--plain", *FREELY, said=lines)
        asked = server.requests[-1].body.decode()
    still = "\ndone beyond files, and still there:\n[bash: git commit -m first] by bash: git revert"
    assert ran.out.count(still) == 2, ran  # after the files, and when there are none
    assert "removed b.txt" in ran.out
    assert ran.out.count("[bash: echo two > b.txt]") == 1, ran  # it cannot: only /effects says so
    assert "[bash: ls -la" not in ran.out
    assert "/effects undo takes back what can be" in ran.out
    assert "[bash: git commit -m first] by bash: git revert --no-edit " in ran.out
    assert "make exactly these calls" in asked
    assert "git revert --no-edit" in asked


async def test_what_cannot_be_taken_back_is_not_offered():
    async with ProviderServer([bash("echo two > b.txt"), FakeReply("Done.")]) as server:
        await run(server, "trust")
        ran = await run(server, "--plain", *FREELY, said=b"go\n/effects\n/quit\n")
    assert "is not known\nnothing can be taken back\n" in ran.out, ran
    assert "/effects undo" not in ran.out


async def test_a_tool_of_a_program_declares_its_inverse(own_place: Path):
    tickets: dict[str, str] = {}

    @tool(undo=lambda arguments, result: ("close_ticket", {"number": result.text}))
    async def open_ticket(title: str) -> str:
        """Open a ticket."""
        tickets["T1"] = title
        return "T1"

    @tool(undo=lambda arguments, result: "a closed ticket stays closed")
    async def close_ticket(number: str) -> str:
        """Close a ticket."""
        return tickets.pop(number)

    @tool
    async def send_mail(to: str) -> str:
        """Send a mail."""
        return "sent"

    calls = [("open_ticket", {"title": "broken"}), ("send_mail", {"to": "a@b"})]
    agent = Agent(Scripted([Say(calls=calls), "done"]), [open_ticket, close_ticket, send_mail])
    journal = Journal.create(own_place / "p/s")
    await agent.run("go", session=journal)
    mail, ticket = plan_undo(read_entries(own_place / "p/s"), agent.config.source.tools())
    assert (mail.tool, mail.reason) == ("", "send_mail declares no inverse for it")
    assert (ticket.tool, ticket.arguments) == ("close_ticket", {"number": "T1"})
    _, without = plan_undo(read_entries(own_place / "p/s"), [open_ticket, send_mail])
    expected = "its `undo` names the tool 'close_ticket', which is not there"
    assert (without.tool, without.reason) == ("", expected)
    with pytest.raises(ConfigError, match="undo of a tool"):
        tool(send_mail, undo="close_ticket")  # type: ignore[call-overload]


@pytest.mark.parametrize("outcome", ["unknown", "interrupted", None])
def test_an_interrupted_call_that_has_no_effect_does_not_hide_earlier_ones(
    outcome: CallOutcome | None,
):
    @tool(undo=lambda arguments, result: "" if arguments["command"] == "sleep 9" else None)
    async def shell(command: str) -> str:
        """Run a command."""
        return command

    entries: list[Entry] = []
    for command in ("git push", "sleep 9"):
        call = ToolCall(command, "shell", json.dumps({"command": command}))
        entries += [
            TurnBegan(command),
            ItemAdded(AssistantItem((call,), "end_turn", "fake")),
            Intent(command, "shell", command, "irreversible"),
        ]
    if outcome is not None:
        entries.append(ItemAdded(ToolResultItem("sleep 9", "shell", (), outcome=outcome)))
    steps = plan_undo(entries, [shell])
    assert [(step.call.id, step.reason) for step in steps] == [
        ("git push", "it is not known whether it was done")
    ]


@pytest.mark.parametrize(
    ("command", "output", "inverse"),
    [
        ("git commit -m x", "[main 1a2b3c4] x\n 1 file changed", "git revert --no-edit 1a2b3c4"),
        ("git commit --amend -m x", "[main 1a2b3c4] x", None),
        ("git commit -m x; rm -rf y", "[main 1a2b3c4] x", None),
        ("git push origin main", "   1a2b3c4..2b3c4d5  main -> main", None),
        ("git tag v1", "", "git tag -d v1"),
        (
            "gh issue create -t x",
            "https://github.com/a/b/issues/7",
            "gh issue close https://github.com/a/b/issues/7",
        ),
        ("make release", "", None),
    ],
)
def test_an_inverse_is_named_only_where_the_output_says_what_was_done(
    command: str, output: str, inverse: str | None
):
    assert find_inverse(command, output) == inverse
