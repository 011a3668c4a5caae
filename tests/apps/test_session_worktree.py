"""`treadle --worktree`: a session in a worktree of its own, through the real program."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.apps.program import run
from tests.apps.test_child_worktrees import FREELY, bash, git, make_repository, reply
from treadle.sessions.library import Library
from treadle.testing.provider import FakeCall, ProviderServer

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def find_worktree(name: str) -> Path:
    [found] = (Path.home() / ".local/state/treadle/session-worktrees").glob(f"*/{name}")
    return found


async def test_a_session_works_in_a_worktree_that_stays_and_is_continued():
    await make_repository()
    replies = (reply("", bash("echo done > one.txt")), reply("Done."), reply("Again."))
    async with ProviderServer(replies) as server:
        ran = await run(server, "-p", "change one", "--worktree", "fix", *FREELY)
        assert (ran.code, ran.out) == (0, "Done.\n")
        assert "the worktree fix stays, with 1 uncommitted or ignored path" in ran.err
        assert Path("one.txt").read_text() == "one\n"
        assert (find_worktree("fix") / "one.txt").read_text() == "done\n"
        assert "`treadle --worktree fix --continue` continues" in ran.err
        ran = await run(server, "-p", "go on", "-w", "fix", "--continue", *FREELY)
        assert (ran.code, ran.out) == (0, "Again.\n")
        words = str(server.requests[-1].json)
        assert "change one" in words
        assert "go on" in words


async def test_a_session_of_a_worktree_is_resumed_from_the_folder():
    await make_repository()
    replies = (reply("", bash("echo done > one.txt")), reply("Done."), reply("Again."))
    async with ProviderServer(replies) as server:
        await run(server, "-p", "change one", "--worktree", "fix", *FREELY)
        [session] = Library().list_summaries()
        ran = await run(server, "-p", "go on", "--resume", session.id, *FREELY)
        assert (ran.code, ran.out) == (0, "Again.\n"), ran.err
        assert "the worktree fix stays" in ran.err
        assert "change one" in str(server.requests[-1].json)


async def test_an_empty_name_is_refused():
    await make_repository()
    ran = await run(None, "-p", "hi", "--worktree", "", *FREELY)
    assert ran.code == 2
    assert "--worktree needs a value: NAME" in ran.err


async def test_a_worktree_without_changes_is_removed_and_continued_all_the_same():
    await make_repository()
    Path("mine.txt").write_text("uncommitted\n")
    async with ProviderServer((reply("Read."), reply("Again."))) as server:
        ran = await run(server, "-p", "read", "--worktree", "look", *FREELY)
        assert ran.err.splitlines()[-1] == (
            "treadle: the worktree look has no changes; it is removed"
        )
        assert "the uncommitted changes of the folder are not in it" in ran.err
        assert git("branch", "--list", "treadle/*") == ""
        ran = await run(server, "-p", "more", "--worktree", "look", "--continue", *FREELY)
        assert (ran.code, ran.out) == (0, "Again.\n")


async def test_the_worktree_is_trusted_as_the_folder_is():
    await make_repository()
    Path("AGENTS.md").write_text("Speak French.\n")
    git("add", "-A")
    git("commit", "-q", "-m", "memory")
    async with ProviderServer((reply("Oui."),)) as server:
        ran = await run(server, "-p", "hi", "--worktree", "look", *FREELY)
        assert ran.out == "Oui.\n"
        assert "Speak French." in str(server.requests[0].json)
    assert "session-worktrees" not in (Path.home() / ".treadle/trust.json").read_text()


async def test_a_suspended_turn_keeps_its_worktree_and_is_resumed_there():
    await make_repository()
    replies = (reply("", bash("echo done > one.txt")), reply("Done."))
    async with ProviderServer(replies) as server:
        words = ("--sandbox", "off", "--model", "sonnet", "--suspend")
        ran = await run(server, "-p", "change one", "--worktree", "fix", *words)
        assert ran.code == 75
        [session] = Library().list_summaries()
        ran = await run(server, "resume", session.id, "--approve")
        assert (ran.code, ran.out) == (0, "Done.\n"), ran.err
    assert (find_worktree("fix") / "one.txt").read_text() == "done\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("a b",), "'a b' is no name for a worktree"),
        (("--continue",), "--worktree needs the NAME of the one to continue in; there are: none"),
    ],
)
async def test_wrong_words_are_refused(words: tuple[str, ...], problem: str):
    await make_repository()
    ran = await run(None, "-p", "hi", "--worktree", *words)
    assert ran.code != 0
    assert problem in ran.err


async def test_an_untrusted_folder_and_one_without_git_are_refused():
    ran = await run(None, "-p", "hi", "--worktree", "fix")
    assert ran.code == 2
    assert "trust the folder first (`treadle trust`)" in ran.err
    await run(None, "trust")
    ran = await run(None, "-p", "hi", "--worktree", "fix")
    assert ran.code == 1
    assert "has no git repository" in ran.err


@pytest.mark.parametrize("pattern", ["/{0}/secret.txt", "/{0}/**/secret.txt", "/{1}/*/secret.txt"])
async def test_a_deny_rule_about_the_folder_holds_in_its_worktree(pattern: str):
    await make_repository()
    Path("secret.txt").write_text("hunter2\n")
    git("add", "secret.txt")
    git("commit", "-qm", "more")
    rule = f"Read({pattern.format(Path.cwd(), Path.cwd().parent)})"
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"permissions": {"deny": [rule]}}))
    calls = (FakeCall("read", {"file_path": "secret.txt"}), bash("cat secret.txt"))
    replies = [answer for call in calls for answer in (reply("", call), reply("Done."))]
    async with ProviderServer(replies) as server:
        for _ in range(2):
            await run(server, "-p", "look", "--worktree", "fix", *FREELY)
        assert "hunter2" not in str([request.json for request in server.requests])
        assert len(server.requests) == 4
