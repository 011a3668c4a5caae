"""Values that the log cannot hold are refused where they enter; the session stays usable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent
from treadle.core.contracts.tool import BaseTool, ToolContext, ToolOutput, ToolSpec
from treadle.core.errors import StoreError
from treadle.core.transcript import Text, ToolResultItem, to_user_item
from treadle.core.transcript.entries import ItemAdded, NoticeShown
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import UserItem
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, resume
from treadle.sessions.log.journal import read_entries
from treadle.sessions.log.records import encode_record
from treadle.testing.tools import RecordingTool


async def run_tool(folder: Path, tool: BaseTool) -> str:
    """The result that the model gets; the session is read back from the disk."""
    script: list[Any] = [Say(calls=[(tool.spec.name, {})]), "done"]
    result = await Agent(Scripted(script), [tool]).run("go", session=Journal.create(folder / "s"))
    resumed = resume(folder / "s")
    await resumed.journal.aclose()
    assert resumed.warnings == ()
    assert resumed.state.transcript == result.transcript
    [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    return answer.text


def itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["value"] = value
    return value


@pytest.mark.parametrize(
    ("make_output", "answer"),
    [
        (lambda: ToolOutput("all", full_output=Path("/tmp/all.txt")), "all"),  # type: ignore[arg-type]
        (lambda: ToolOutput("all", data={"at": Path("/tmp"), "of": (1, 2)}), "all"),
        (lambda: ToolOutput("all", data={"name": "\udcff"}), "all"),
        (lambda: ToolOutput(("plain",)), "not 'plain'"),  # type: ignore[arg-type]
        (lambda: ToolOutput((Text(5),)), "not Text(text=5"),  # type: ignore[arg-type]
        (lambda: ToolOutput(5), "cannot be stored"),  # type: ignore[arg-type]
        (
            lambda: ToolOutput("all", data={"x": object()}),
            "a value of the type object cannot be stored",
        ),
        (lambda: ToolOutput("all", data=itself()), "contains itself"),
        (lambda: ToolOutput("all", data=[1]), "a dict is expected, not list"),  # type: ignore[arg-type]
    ],
)
async def test_an_output_that_cannot_be_stored_is_an_error_result(
    make_output: Callable[[], ToolOutput], answer: str, tmp_path: Path
) -> None:
    tool = RecordingTool("look", lambda _: make_output())
    assert answer in await run_tool(tmp_path, tool)


class Witness(BaseTool):
    """A verifiable tool whose evidence is `evidence_value`."""

    def __init__(self, evidence_value: dict[str, Any]) -> None:
        self._evidence = evidence_value
        self.ran = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec("write", "Writes.", {"type": "object"}, effect="verifiable")

    async def evidence(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return self._evidence

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        self.ran = True
        return ToolOutput("written")


async def test_a_path_in_evidence_is_stored_as_text(tmp_path: Path) -> None:
    assert await run_tool(tmp_path, Witness({"path": Path("/tmp/x")})) == "written"


async def test_evidence_that_cannot_be_stored_stops_the_call_before_its_effect(
    tmp_path: Path,
) -> None:
    tool = Witness({"path": object()})
    assert "a value of the type object cannot be stored" in await run_tool(tmp_path, tool)
    assert not tool.ran


def test_a_message_of_other_parts_is_refused() -> None:
    driver = Agent(Scripted(["never"])).start()
    with pytest.raises(TypeError, match="content consists of Text, Image and Document parts"):
        driver.submit((3,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not Text"):
        driver.submit(Text(Path("/tmp")))  # type: ignore[arg-type]


async def test_an_entry_that_cannot_be_encoded_does_not_stop_the_others(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    journal.append(NoticeShown("one"))
    with pytest.raises(StoreError, match="NoticeShown cannot be written to the session: "):
        journal.append(NoticeShown(Path("/tmp")))  # type: ignore[arg-type]
    journal.append(NoticeShown("two"))
    await journal.aclose()
    assert read_entries(tmp_path / "s") == [NoticeShown("one"), NoticeShown("two")]


@pytest.mark.parametrize("size", [10, 5000])
async def test_a_session_with_an_entry_that_cannot_be_decoded_is_resumed(
    tmp_path: Path, size: int
) -> None:
    journal = Journal.create(tmp_path / "s")
    journal.append(ItemAdded(to_user_item("first")))
    await journal.aclose()
    strange = ItemAdded(UserItem(("x" * size,)))  # type: ignore[arg-type]
    with (tmp_path / "s/journal.jsonl").open("ab") as file:
        file.write(encode_record(strange, 2, 1, 1.0))
    for _ in range(2):
        resumed = resume(tmp_path / "s")
        [warning] = resumed.warnings
        assert "entry 2 cannot be decoded" in warning
        assert find_violations(resumed.state.transcript) == []
        resumed.journal.append(NoticeShown("more"))
        await resumed.journal.aclose()
