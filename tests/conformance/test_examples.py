"""The examples of docs/extending.md keep the promises of their contracts, and run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from examples.extending.gate import CallQuota
from examples.extending.hook import HideAddresses
from examples.extending.host import main as run_host
from examples.extending.model import Echo
from examples.extending.mutator import ForgetResults
from examples.extending.observer import ToolTimes
from examples.extending.policy import AskOnce
from examples.extending.source import Pages
from examples.extending.store import LineStore
from examples.extending.tool import Book
from examples.extending.workspace import Audited
from treadle.contracts import HookInput, ModelRequest, ToolSource, Transcript
from treadle.testing import (
    ConformanceRequests,
    check_gate,
    check_hook,
    check_model,
    check_mutator,
    check_observer,
    check_policy,
    check_store,
    check_tool,
    check_tool_source,
    check_workspace,
)
from treadle.workspace import LocalWorkspace, WorkspaceOptions

EXAMPLES = Path(__file__).parents[2] / "examples/extending"
CONTRACTS = {
    *("model", "tool", "source", "store", "workspace"),
    *("policy", "hook", "gate", "mutator", "observer"),
}


def test_each_contract_has_an_example_on_one_screen():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*CONTRACTS, "host"}
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) < (70 if path.stem == "host" else 60), path.name


@pytest.mark.parametrize("name", sorted({*CONTRACTS, "host"}))
def test_an_example_runs(name: str, own_place: Path):
    script = [sys.executable, "-P", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


async def test_the_model_keeps_its_promises():
    nothing_said = ModelRequest(Transcript())
    requests = ConformanceRequests(call=None, text_token_limit=1, failing=nothing_said)
    await check_model(Echo, requests)


async def test_the_tool_keeps_its_promises():
    await check_tool(lambda: Book({"12A": ""}), {"seat": "12A"}, failing={"seat": "99Z"})


async def test_the_source_keeps_its_promises(own_place: Path):
    async def disconnect(source: ToolSource) -> None:
        (own_place / "cwd/pets.txt").unlink()

    def make() -> Pages:
        (own_place / "cwd/pets.txt").write_text("Dogs are welcome.")
        return Pages(own_place / "cwd")

    await check_tool_source(make, disconnect=disconnect)


async def test_the_store_keeps_its_promises(own_place: Path, monkeypatch: pytest.MonkeyPatch):
    sync = os.fsync

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await check_store(
        lambda session_id: LineStore(own_place / f"{session_id}.jsonl"),
        fail_writes=lambda fails: monkeypatch.setattr(os, "fsync", fail if fails else sync),
    )


async def test_half_a_line_that_a_crash_left_is_no_entry(own_place: Path):
    path = own_place / "s.jsonl"
    path.write_bytes(b'{"kind":"turn","turn_id":"turn-1"}\n{"kind":"tu')
    assert len(await LineStore(path).load()) == 1


async def test_the_workspace_keeps_its_promises(own_place: Path):
    folders = (own_place / f"folder{number}" for number in range(100))
    notes: list[str] = []

    async def make() -> Audited:
        (folder := next(folders)).mkdir()
        local = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off"))
        return Audited(local, notes.append)

    await check_workspace(make)
    assert "wrote a/b.txt: 4 bytes" in notes


async def test_the_policy_keeps_its_promises(own_place: Path):
    numbers = iter(range(1_000))
    await check_policy(lambda: AskOnce(own_place / f"rules{next(numbers)}.json"))
    await check_policy(lambda: AskOnce(own_place / "none.json", frozenset({"bash", "write"})))


async def test_the_hook_keeps_its_promises():
    data = {"tool_name": "x", "tool_response": "ask ada@example.com", "is_error": False}
    await check_hook(HideAddresses, [HookInput("post_tool_use", "s", "turn-1", data)])


async def test_the_gate_keeps_its_promises():
    await check_gate(lambda: CallQuota(2), at_once=2)


async def test_the_mutator_keeps_its_promises():
    await check_mutator(ForgetResults)
    await check_mutator(lambda: ForgetResults(keep=0))


async def test_the_observer_keeps_its_promises():
    await check_observer(ToolTimes)


async def test_the_host_asks_approves_and_goes_on_where_it_was(capsys: pytest.CaptureFixture[str]):
    async def talk(*answers: str) -> AsyncIterator[str]:
        questions: list[str] = []
        given = iter(answers)

        def ask(question: str) -> str:
            questions.append(question)
            return next(given)

        await run_host(ask)
        for question in questions:
            yield question.strip()

    assert [q async for q in talk("Send hello", "yes", "")] == [
        ">",
        "[send: Hello]: yes or no?",
        ">",
    ]
    assert "It is sent." in capsys.readouterr().out
    assert [q async for q in talk("Again", "not again", "")][1] == "[send: Hello]: yes or no?"
