"""`treadle review`: findings as data, and exit codes for CI."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.apps.program import run
from treadle.apps.cli.commands import review
from treadle.testing.provider import FakeCall, FakeReply, ProviderFault, ProviderServer

FINDING = {
    "file": "add.py",
    "line": 2,
    "severity": "error",
    "title": "subtracts",
    "detail": "add(1, 2) is -1.\nIt has to be 3.",
}


def answer(*findings: dict[str, object], summary: str = "It was read.") -> FakeReply:
    return FakeReply(json.dumps({"summary": summary, "findings": findings}))


def git(*arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(own_place: Path) -> None:
    """Two commits; the second one has a mistake."""
    git("init", "-b", "main")
    for text in ("a + b", "a - b"):
        Path("add.py").write_text(f"def add(a, b):\n    return {text}\n")
        git("add", ".")
        git("commit", "-m", text)


@pytest.mark.usefixtures("repository")
async def test_findings_are_lines_data_and_an_exit_code():
    read = FakeReply(calls=(FakeCall("bash", {"command": "git diff HEAD~1..HEAD"}),))
    write = FakeReply(calls=(FakeCall("bash", {"command": "echo x > add.py"}),))
    replies = [read, answer(FINDING), write, answer(FINDING), answer()]
    async with ProviderServer(replies) as server:
        text = await run(server, "review", "HEAD~1")
        data = await run(server, "review", "--json", "HEAD~1..HEAD")
        clean = await run(server, "review", "HEAD~1...HEAD")
    assert (text.code, text.out.splitlines()) == (
        1,
        [
            "add.py:2: error: subtracts",
            "    add(1, 2) is -1.",
            "    It has to be 3.",
            "1 finding. It was read.",
        ],
    )
    [report] = data.lines
    assert (data.code, report["exit_code"]) == (1, 1)
    assert report["output"]["findings"] == [FINDING]
    assert report["session_id"]
    assert Path("add.py").read_text().endswith("a - b\n")  # it only reads
    assert (clean.code, clean.out) == (0, "0 findings. It was read.\n")
    asked = server.requests[0].body.decode()
    assert "Review the commits HEAD~1..HEAD" in asked
    assert "return a - b" in server.requests[1].body.decode()
    assert server.violations == []


@pytest.mark.usefixtures("repository")
async def test_the_program_reads_the_change_whatever_the_repository_names_for_it():
    Path("run").write_text("#!/bin/sh\ntouch ran\n")
    Path("run").chmod(0o755)
    git("config", "diff.external", "./run")
    read = FakeReply(calls=(FakeCall("bash", {"command": "git diff HEAD~1..HEAD"}),))
    async with ProviderServer([read, answer()]) as server:
        ran = await run(server, "review", "--json", "HEAD~1")
    asked = server.requests[0].body.decode()
    assert "-    return a + b" in asked
    assert "+    return a - b" in asked
    [report] = ran.lines
    assert (ran.code, report["denied"]) == (0, ["[bash: git diff HEAD~1..HEAD]"]), report
    assert report["missing_rules"] == []  # in the mode plan no rule allows it
    assert not Path("ran").exists()


@pytest.mark.usefixtures("repository")
async def test_a_file_that_the_model_may_not_read_is_named_and_not_shown():
    Path(".env").write_text("KEY=hunter2\n")
    git("add", ".env")
    Path(".env.local").write_text("KEY=hunter2\n")
    async with ProviderServer([answer()]) as server:
        ran = await run(server, "review")
    assert ran.code == 0, ran
    asked = server.requests[0].body.decode()
    assert "or they may have secrets:\\n.env\\n.env.local" in asked
    assert "hunter2" not in asked


async def test_a_repository_without_a_commit_is_reviewed():
    git("init", "-b", "main")
    Path("add.py").write_text("a - b\n")
    Path("sub.py").write_text("a + b\n")
    git("add", "add.py")
    async with ProviderServer([answer()]) as server:
        ran = await run(server, "review")
    assert ran.code == 0, ran
    asked = server.requests[0].body.decode()
    assert "+a - b" in asked
    assert "git does not know them yet.\\nsub.py" in asked


@pytest.mark.usefixtures("repository")
async def test_a_change_that_cannot_be_read_is_an_error():
    blob = git("rev-parse", "HEAD:add.py").strip()
    Path(f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    ran = await run(None, "review", "--json", "HEAD~1")
    assert (ran.code, ran.out) == (2, "")
    assert "the change cannot be read: git diff: " in ran.err


@pytest.mark.usefixtures("repository")
async def test_of_a_long_change_the_model_is_told_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("a.py", "b.py"):
        Path(name).write_text(f"# {name}\n" * 10)
        git("add", name)
    monkeypatch.setattr(review, "MAX_DIFF_CHARS", 250)
    task = await review._describe_change(Path(), "")
    assert "+# a.py" in task
    assert "+# b.py" not in task
    assert task.endswith("diff --git a/b.py b/b.py")


@pytest.mark.usefixtures("repository")
async def test_what_is_not_a_review_has_another_code():
    async with ProviderServer([], faults=[ProviderFault("bad_request", times=-1)]) as server:
        failed = await run(server, "review", "HEAD~1")
        nothing = await run(server, "review", "HEAD..HEAD")
        data = await run(server, "review", "--json", "HEAD..HEAD")
        unknown = await run(server, "review", "nonsense..HEAD")
        option = await run(server, "review", "--output-format", "json")
        empty = await run(server, "review", "")
        several = await run(server, "review", "HEAD~1", "HEAD")
        small = await run(server, "review", "HEAD~1", "--max-cost", "0.00001")
    assert failed.code == 2, failed
    assert (small.code, "nothing was sent" in small.err) == (4, True), small
    assert "--resume" not in small.err  # a session that is continued is no review
    assert (empty.code, several.code) == (2, 2)
    assert "the range is empty" in empty.err  # an unset variable in CI is no review that passed
    assert "2 ranges given; it reviews one BASE..HEAD" in several.err
    assert (nothing.code, nothing.err) == (0, "treadle review: there are no changes\n")
    assert (data.code, data.err) == (0, nothing.err)
    [report] = data.lines
    assert report["output"] == {"summary": "there are no changes", "findings": []}
    assert (unknown.code, option.code) == (2, 2)
    assert "git does not know the commits nonsense..HEAD" in unknown.err
    assert "--output-format is not an option of review" in option.err


@pytest.mark.usefixtures("repository")
async def test_without_uncommitted_changes_no_model_is_called_and_no_filter_runs():
    git("config", "filter.a=b.clean", "touch filtered; cat")
    Path(".git/info/attributes").write_text("* filter=a=b\n")
    Path("add.py").touch()  # git reads it again
    async with ProviderServer([answer()]) as server:
        clean = await run(server, "review")
        Path("new.py").touch()
        changed = await run(server, "review")
        listed = await run(server, "sessions")
    assert (clean.code, clean.out) == (0, "")
    assert clean.err == "treadle review: there are no changes\n"
    assert (changed.code, changed.out) == (0, "0 findings. It was read.\n")
    assert len(server.requests) == 1
    assert not Path("filtered").exists()
    assert listed.out.rstrip().endswith("  review of the uncommitted changes")


async def test_outside_of_a_repository_it_says_so():
    ran = await run(None, "review")
    assert (ran.code, ran.out) == (2, "")
    assert "not in a git repository" in ran.err
