"""Files outside the folder that a result or a skill of the user names: they may be read."""

from __future__ import annotations

from pathlib import Path

from tests.apps.program import run
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

LAST = FakeReply("done")


async def test_the_side_file_of_a_long_output_may_be_read_and_searched():
    call = FakeCall("bash", {"command": "seq 100000"})
    async with ProviderServer([FakeReply(calls=(call,)), LAST]) as server:
        ran = await run(server, "-p", "go", "--allow", "Bash(seq:*)")
    assert ran.code == 0
    [side_file] = Path.home().rglob("outputs/*.txt")
    calls = (
        FakeCall("read", {"path": str(side_file), "offset": 54321, "limit": 1}),
        FakeCall("grep", {"pattern": "^98765$", "path": str(side_file), "output_mode": "content"}),
    )
    async with ProviderServer([FakeReply(calls=calls), LAST]) as server:
        ran = await run(server, "-p", "again", "--continue")
    assert (ran.code, ran.err) == (0, "")
    results = server.requests[-1].body.decode()
    assert "54321" in results.rpartition("seq 100000")[2]
    assert "98765:98765" in results


async def test_a_change_outside_the_folder_is_refused_with_the_reason(own_place: Path):
    call = FakeCall("write", {"path": str(own_place.parent / "new.txt"), "content": "x"})
    async with ProviderServer([FakeReply(calls=(call,)), LAST]) as server:
        await run(server, "-p", "go", "--permission-mode", "ask")
    results = server.requests[-1].body.decode()
    assert "new.txt is outside of" in results
    assert "--add-dir" in results
    assert "Read it first" not in results


async def test_files_beside_a_skill_of_the_user_may_be_read():
    skill = Path.home() / ".treadle/skills/pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: d\n---\nSee forms.md\n")
    (skill / "forms.md").write_text("fill them\n")
    (skill.parents[1] / "config.toml").write_text("# private settings\n")
    calls = (
        FakeCall("read", {"path": str(skill / "forms.md")}),
        FakeCall("write", {"path": str(skill / "forms.md"), "content": "changed"}),
        FakeCall("read", {"path": str(skill.parents[1] / "config.toml")}),
    )
    async with ProviderServer([FakeReply(calls=calls), LAST]) as server:
        await run(server, "-p", "go", "--permission-mode", "accept-edits")
    results = server.requests[-1].body.decode()
    assert "fill them" in results
    assert "private settings" not in results
    assert (skill / "forms.md").read_text() == "fill them\n"
