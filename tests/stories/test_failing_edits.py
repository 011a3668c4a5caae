"""An edit that cannot be applied is not put up for approval: the model gets its error at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workspace.helpers import opened
from treadle import Agent, Result
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.permissions.policy import RulePolicy, build_policy_context
from treadle.tools.builtin import builtin_tools

Call = tuple[str, dict[str, Any]]
READ: Call = ("read", {"file_path": "a.txt"})


def edit(old: str, new: str, path: str = "a.txt") -> Call:
    return "edit", {"file_path": path, "old_string": old, "new_string": new}


def write(content: str, path: str = "a.txt") -> Call:
    return "write", {"file_path": path, "content": content}


def patch(text: str) -> Call:
    return "apply_patch", {"patch": f"*** Begin Patch\n{text}\n*** End Patch"}


class Asked:
    """Allows every call and remembers what it was asked."""

    def __init__(self) -> None:
        self.approvals: list[PendingApproval] = []

    async def __call__(self, approval: PendingApproval) -> Approval | Denial:
        self.approvals.append(approval)
        return Approval()

    @property
    def previews(self) -> list[str]:
        return [one.preview.text for one in self.approvals if one.preview is not None]


async def run(folder: Path, *rounds: list[Call], policy: Any = None) -> tuple[Result[str], Asked]:
    asked = Asked()
    async with opened(folder, sandbox=False) as workspace:
        names = ["read", "write", "edit", "apply_patch", "bash"]
        tools = builtin_tools(workspace, names, read_outside=policy is not None)
        model = Scripted([*(Say(calls=calls) for calls in rounds), "done"])
        agent = Agent(model, [tools], policy=policy, approve=asked)
        return await agent.run("go"), asked


def list_results(result: Result[Any]) -> list[ToolResultItem]:
    return [item for item in result.transcript if isinstance(item, ToolResultItem)]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (edit("four", "4"), "was not found in a.txt"),
        (edit("o", "0"), "times"),
        (edit("one", "1", "missing.txt"), "does not exist"),
        (write("new"), "was not read in this session"),
        (patch("*** Update File: a.txt\n@@\n-four\n+4"), "a.txt"),
        (patch("*** Add File: a.txt\n+x"), "exists already"),
    ],
)
async def test_an_edit_that_cannot_apply_is_answered_at_once(
    call: Call, error: str, tmp_path: Path
):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    result, asked = await run(tmp_path, [call])
    assert asked.approvals == []
    (answer,) = list_results(result)
    assert answer.is_error
    assert error in answer.text
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\n"


async def test_an_edit_of_a_file_that_changed_since_it_was_read_is_answered_at_once(
    tmp_path: Path,
):
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    change = ("bash", {"command": "echo two >> a.txt"})
    result, asked = await run(tmp_path, [READ], [change], [edit("one", "1")])
    assert [one.call.name for one in asked.approvals] == ["bash"]
    assert "was changed since it was read" in list_results(result)[-1].text


async def test_the_other_calls_of_the_round_are_put_up(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    result, asked = await run(tmp_path, [edit("one", "1"), edit("four", "4"), edit("two", "2")])
    assert len(asked.approvals) == 2
    assert [item.is_error for item in list_results(result)] == [False, True, False]
    assert (tmp_path / "a.txt").read_text() == "1\n2\n"


async def test_an_edit_of_what_an_earlier_edit_of_the_round_writes_is_put_up(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\n")
    _, asked = await run(tmp_path, [READ], [edit("one", "two"), edit("two", "three")])
    first, second = asked.previews
    assert "-one\n+two" in first
    assert "-two\n+three" in second
    assert (tmp_path / "a.txt").read_text() == "three\n"


async def test_an_edit_of_what_an_earlier_edit_of_the_round_removes_is_not_put_up(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one\n")
    result, asked = await run(tmp_path, [edit("one", "two"), edit("one", "three")])
    assert len(asked.approvals) == 1
    assert list_results(result)[-1].is_error
    assert (tmp_path / "a.txt").read_text() == "two\n"


async def test_a_file_that_the_round_creates_can_be_edited_in_it(tmp_path: Path):
    _, asked = await run(tmp_path, [write("one\n", "new.txt"), edit("one", "two", "new.txt")])
    assert "-one\n+two" in asked.previews[-1]
    assert (tmp_path / "new.txt").read_text() == "two\n"


async def test_after_a_command_of_the_round_the_user_decides(tmp_path: Path):
    make = ("bash", {"command": "echo four > a.txt"})
    _, asked = await run(tmp_path, [make, edit("four", "4")])
    assert len(asked.approvals) == 2
    assert asked.previews[-1].startswith("This call would fail as things are now: ")
    assert (tmp_path / "a.txt").read_text() == "4\n"


async def test_the_error_quotes_no_file_that_may_not_be_read_without_asking(tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    outside = tmp_path / "diary.txt"
    outside.write_text("my secret thought\n")
    call = edit("my secret thing", "x", str(outside))
    result, asked = await run(folder, [call], policy=RulePolicy(build_policy_context(folder)))
    assert asked.approvals == []
    (answer,) = list_results(result)
    assert answer.is_error
    assert "thought" not in answer.text
    assert "diary.txt is outside of" in answer.text
