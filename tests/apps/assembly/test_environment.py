"""What the model is told about git, once and without a change of the cached prefix."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import treadle
from treadle.apps.assembly.system_prompt import MAX_CHANGES, describe_git
from treadle.core.steps import Finished
from treadle.core.transcript.items import NoticeItem
from treadle.models import Say, Scripted


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "work")
    (tmp_path / "a.py").write_text("x = 1\n")
    git("add", "a.py")
    git("commit", "-m", "Add a")
    (tmp_path / "a.py").write_text("x = 2\n")
    (tmp_path / "new.txt").write_text("new\n")
    return tmp_path


async def test_branch_changes_and_commits_are_told_once(repository: Path):
    model = Scripted([Say(calls=[("read", {"file_path": "a.py"})]), "done", "again"])
    async with treadle.coding_agent(repository, model=model, trust=True, sandbox="off") as agent:
        first = await agent.run("go")
        await agent.run("more", history=first.transcript)
    for request in model.requests:
        notices = [item for item in request.transcript if isinstance(item, NoticeItem)]
        [told] = [item.text for item in notices if item.kind == "environment"]
        assert "branch work." in told
        assert "2 changes of the user, not committed" in told
        assert " M a.py\n?? new.txt" in told
        assert "Add a" in told
    assert len({request.system for request in model.requests}) == 1


async def test_after_a_compaction_the_changes_of_the_user_are_told_apart(repository: Path):
    change = {"file_path": "mine.py", "content": "y = 1\n"}
    filling = [Say(calls=[("bash", {"command": "seq 9000"})]) for _ in range(3)]
    answers = [Say("done"), Say("Known: all."), Say("again")]
    model = Scripted([Say(calls=[("write", change)]), *filling, *answers])
    async with treadle.coding_agent(
        repository, model=model, trust=True, sandbox="off", permission_mode="bypass"
    ) as agent:
        driver = agent.start("go")
        while not isinstance(await driver.next(), Finished):
            pass
        assert await driver.compact()
        driver.submit("more")
        while not isinstance(await driver.next(), Finished):
            pass
        await driver.aclose()
    notices = [item for item in model.requests[-1].transcript if isinstance(item, NoticeItem)]
    texts = {item.kind: item.text for item in notices}
    assert "2 changes of the user, not committed" in texts["environment"]
    assert "Git, now: branch work." in texts["git"]
    own, _, others = texts["git"].partition("2 changes of the user, not committed; do not revert")
    assert "Changed in this session, not committed:\n?? mine.py" in own
    assert " M a.py\n?? new.txt" in others


@pytest.fixture
def empty_repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    return tmp_path


async def test_a_repository_without_commits_is_told_as_such(empty_repository: Path):
    text = await describe_git(empty_repository, trusted=True)
    assert text.startswith("Git, when the session began: branch main, which has no commits yet.")


async def test_in_an_untrusted_folder_git_is_not_run(repository: Path):
    (repository / ".git" / "config").write_text("[core]\n\tfsmonitor = touch ran\n")
    text = await describe_git(repository / "sub", trusted=False)
    assert text == "Git, when the session began: branch work."
    assert not (repository / "ran").exists()
    head = repository / ".git" / "HEAD"
    head.unlink()
    head.symlink_to("/etc/passwd")
    assert await describe_git(repository, trusted=False) == ""


async def test_many_changes_and_folders_without_git_are_bounded(repository: Path, own_place: Path):
    for number in range(MAX_CHANGES + 10):
        (repository / f"{number}.txt").write_text("x")
    text = await describe_git(repository, trusted=True)
    assert "... and 12 more" in text
    assert len(text.splitlines()) < MAX_CHANGES + 10
    assert await describe_git(own_place, trusted=True) == ""
    (repository / ".git" / "HEAD").write_text("nonsense")
    assert await describe_git(repository, trusted=True) == ""


async def test_the_model_knows_what_commands_can_write_and_reach(tmp_path: Path):
    for options, expected in (
        ({"sandbox": "off"}, "no sandbox"),
        ({"sandbox": "auto"}, "no network"),
        ({"sandbox": "auto", "network": True}, "the network is reachable"),
    ):
        model = Scripted(["done"])
        async with treadle.coding_agent(tmp_path, model=model, settings=options) as agent:
            await agent.run("go")
        assert (
            f"- Commands: {'' if 'no s' in expected else 'in a sandbox'}"
            in model.requests[0].system
        )
        assert expected in model.requests[0].system
